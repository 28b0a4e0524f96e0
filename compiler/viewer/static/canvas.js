// The graph on a canvas: pan, zoom, marks in shape and colour.  Only what is in sight is drawn.

const WIDTH = 160, HEIGHT = 40, ROW = 64; // ROW as in layout.py
const BADGES = { added: "+", removed: "−", changed: "±", rewired: "↷", moved: "↕" };

class GraphView {
  constructor(canvas, onSelect) {
    this.canvas = canvas;
    this.onSelect = onSelect;
    this.onFold = () => {}; // a box was opened
    this.scale = 1;
    this.x = 0; // the world coordinates of the view's centre
    this.y = 0;
    this.nodes = [];
    this.byKey = new Map();
    this.edges = [];
    this.selected = null;
    this.picked = new Set(); // selected together
    this.selectedEdge = null;
    this.folded = new Set();
    this.heat = null; // Map from id to a number between 0 and 1
    this.pending = false;
    this._listen();
    new ResizeObserver(() => this.redraw()).observe(canvas);
  }

  // before and after: states; mode: "both", "before" or "after"; layout: {key: [x, y]}.  rows: Map
  // from a row of the layout to the one it is drawn in, or null.  What is drawn where the middle of
  // the view is stays there.
  show({ before, after, marks, mode, layout, paths, rows }) {
    const anchor = this._nearest();
    this._rows = rows;
    this.nodes = [];
    this.byKey = new Map();
    const main = mode === "before" ? before : after;
    const names = inputNames(main);
    main.inputs.forEach(([name, type], n) => this._add("i" + n, names[n], type, "input", null, layout));
    const add = (record, state) => {
      const mark = marks.get(record.id)?.mark ?? null;
      if (mode === "before" && mark === "added") return;
      const type = record.out ? record.out.map(([t]) => t).join(", ") : "";
      this._add(String(record.id), label(record), type, record.op === "fused" ? "region" : "op", mark, layout, record, paths);
    };
    if (mode === "both") {
      for (const [id, { mark }] of marks) if (mark === "removed") add(before.ops.get(id), before);
    }
    for (const id of main.order) add(main.ops.get(id), main);
    const outputs = new Set(main.border.outputs || []);
    for (const reference of outputs) {
      const node = this.byKey.get(keyOf(reference));
      if (node) node.output = true;
    }
    this.edges = [];
    for (const node of this.nodes) {
      for (const reference of node.record?.in || []) {
        const from = this.byKey.get(keyOf(reference));
        if (!from || from === node) continue;
        this.edges.push({ from, to: node, ghost: node.mark === "removed" || from.mark === "removed" });
      }
    }
    this._fold();
    const now = anchor && this.byKey.get(anchor.key);
    if (now) this.y += now.y - anchor.y;
    this.redraw();
  }

  // The node nearest to the middle of the view: the one with a key that lasts.
  _nearest() {
    let best = null, least = Infinity;
    for (const node of this.nodes) {
      const d = Math.hypot(node.x - this.x, node.y - this.y) + (node.mark === "removed" ? 1e6 : 0);
      if (d < least) [best, least] = [node, d];
    }
    return best;
  }

  _add(key, text, type, shape, mark, layout, record = null, paths = null) {
    const at = layout[key];
    if (!at) return;
    const y = this._rows ? (this._rows.get(at[1] / ROW) ?? at[1] / ROW) * ROW : at[1];
    const node = { key, text, type, shape, mark, record, x: at[0], y, output: false, path: paths?.get(key) ?? "" };
    this.nodes.push(node);
    this.byKey.set(key, node);
  }

  // Groups of folded module paths: one box over their members.
  _fold() {
    this.groups = new Map();
    if (!this.folded.size) return;
    for (const node of this.nodes) {
      node.group = null;
      const prefix = foldedPrefix(node.path, this.folded);
      if (prefix !== null) {
        let group = this.groups.get(prefix);
        if (!group) {
          group = { prefix, left: node.x, right: node.x, top: node.y, bottom: node.y, count: 0, marks: {} };
          this.groups.set(prefix, group);
        }
        group.left = Math.min(group.left, node.x);
        group.right = Math.max(group.right, node.x);
        group.top = Math.min(group.top, node.y);
        group.bottom = Math.max(group.bottom, node.y);
        group.count++;
        if (node.mark) group.marks[node.mark] = (group.marks[node.mark] || 0) + 1;
        node.group = group;
      }
    }
  }

  redraw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this._draw();
    });
  }

  _draw() {
    const ratio = window.devicePixelRatio || 1;
    const [w, h] = [this.canvas.clientWidth, this.canvas.clientHeight];
    if (!w || !h) return;
    if (this.canvas.width !== Math.round(w * ratio)) this.canvas.width = Math.round(w * ratio);
    if (this.canvas.height !== Math.round(h * ratio)) this.canvas.height = Math.round(h * ratio);
    const c = this.canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue("--" + name).trim();
    const palette = Object.fromEntries(
      ["paper", "ink", "faint", "line", "card", "region", "input", "added", "removed", "changed", "rewired", "moved", "accent"].map((n) => [n, colour(n)]),
    );
    const s = this.scale;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.fillStyle = palette.paper;
    c.fillRect(0, 0, w, h);
    c.setTransform(ratio * s, 0, 0, ratio * s, ratio * (w / 2 - this.x * s), ratio * (h / 2 - this.y * s));
    const margin = 120;
    const view = {
      left: this.x - w / 2 / s - margin, right: this.x + w / 2 / s + margin,
      top: this.y - h / 2 / s - margin, bottom: this.y + h / 2 / s + margin,
    };
    const inSight = (n) => n.x > view.left && n.x < view.right && n.y > view.top && n.y < view.bottom;
    this._drawEdges(c, palette, view, s);
    for (const node of this.nodes) if (!node.group && inSight(node)) this._drawNode(c, node, palette, s);
    for (const group of this.groups.values()) this._drawGroup(c, group, palette, s);
  }

  _drawEdges(c, palette, view, s) {
    const path = (edge) => {
      const [a, b] = [edge.from, edge.to];
      const [y1, y2] = [a.y + HEIGHT / 2, b.y - HEIGHT / 2];
      c.moveTo(a.x, y1);
      if (s < 0.2) c.lineTo(b.x, y2);
      else {
        const bend = Math.max(12, Math.min(Math.abs(y2 - y1) / 2, 60));
        c.bezierCurveTo(a.x, y1 + bend, b.x, y2 - bend, b.x, y2);
      }
    };
    const lively = (e) => {
      if (e.from.group && e.from.group === e.to.group) return false;
      const [top, bottom] = [Math.min(e.from.y, e.to.y), Math.max(e.from.y, e.to.y)];
      const [left, right] = [Math.min(e.from.x, e.to.x), Math.max(e.from.x, e.to.x)];
      return bottom > view.top && top < view.bottom && right > view.left && left < view.right;
    };
    const visible = this.edges.filter(lively);
    c.lineWidth = 1.2 / Math.max(s, 0.4);
    for (const ghost of [true, false]) {
      c.beginPath();
      c.strokeStyle = ghost ? palette.removed : palette.line;
      c.globalAlpha = ghost ? 0.5 : 1;
      c.setLineDash(ghost ? [4, 4] : []);
      for (const edge of visible) if (edge.ghost === ghost) path(edge);
      c.stroke();
    }
    c.setLineDash([]);
    c.globalAlpha = 1;
    const strong = visible.filter((e) => e === this.selectedEdge || (this.selected && (e.from.key === this.selected || e.to.key === this.selected)));
    c.beginPath();
    c.strokeStyle = palette.accent;
    c.lineWidth = 2.4 / Math.max(s, 0.4);
    strong.forEach(path);
    c.stroke();
  }

  _drawNode(c, node, palette, s) {
    const [left, top] = [node.x - WIDTH / 2, node.y - HEIGHT / 2];
    const base = node.shape === "region" ? palette.region : node.shape === "input" ? palette.input : palette.card;
    const ghost = node.mark === "removed";
    c.globalAlpha = ghost ? 0.75 : 1;
    const shift = ghost ? -7 : 0; // a removed op peeps out behind the one that took its place
    c.beginPath();
    const round = node.shape === "input" ? HEIGHT / 2 : 6;
    c.roundRect(left + shift, top + shift, WIDTH, HEIGHT, round);
    c.fillStyle = this.heat?.has(node.key) ? heatColour(this.heat.get(node.key)) : base;
    c.fill();
    c.lineWidth = node.mark && node.mark !== "moved" ? 2.4 : 1;
    c.strokeStyle = node.mark ? palette[node.mark] : palette.line;
    c.setLineDash(ghost ? [5, 4] : node.mark === "rewired" ? [2, 2] : []);
    c.stroke();
    c.setLineDash([]);
    if (node.mark === "changed") {
      c.beginPath();
      c.roundRect(left + 3, top + 3, WIDTH - 6, HEIGHT - 6, 4);
      c.lineWidth = 1;
      c.stroke();
    }
    if (node.key === this.selected || this.picked.has(node.key)) {
      c.beginPath();
      c.roundRect(left - 4, top - 4, WIDTH + 8, HEIGHT + 8, round + 3);
      c.strokeStyle = palette.accent;
      c.lineWidth = 3;
      c.stroke();
    }
    if (s >= 0.28) {
      c.fillStyle = this.heat?.has(node.key) ? "#111" : palette.ink;
      c.font = "600 12px system-ui, sans-serif";
      c.fillText(clip(c, node.text, WIDTH - (node.mark ? 30 : 14)), left + 8 + shift, top + 16 + shift);
      if (s >= 0.45) {
        c.fillStyle = this.heat?.has(node.key) ? "#333" : palette.faint;
        c.font = "11px ui-monospace, monospace";
        c.fillText(clip(c, node.type, WIDTH - 14), left + 8 + shift, top + 32 + shift);
      }
    }
    if (node.output) {
      c.beginPath();
      c.moveTo(node.x - 7, top + HEIGHT);
      c.lineTo(node.x + 7, top + HEIGHT);
      c.lineTo(node.x, top + HEIGHT + 8);
      c.fillStyle = palette.ink;
      c.fill();
    }
    if (node.mark) {
      c.beginPath();
      c.arc(left + WIDTH - 6 + shift, top + 6 + shift, 9, 0, 7);
      c.fillStyle = palette[node.mark];
      c.fill();
      c.fillStyle = "#fff";
      c.font = "700 13px system-ui, sans-serif";
      c.textAlign = "center";
      c.fillText(BADGES[node.mark], left + WIDTH - 6 + shift, top + 10.5 + shift);
      c.textAlign = "left";
    }
    c.globalAlpha = 1;
  }

  _drawGroup(c, group, palette, s) {
    const [left, top] = [group.left - WIDTH / 2 - 6, group.top - HEIGHT / 2 - 6];
    const [w, h] = [group.right - group.left + WIDTH + 12, group.bottom - group.top + HEIGHT + 12];
    c.beginPath();
    c.roundRect(left, top, w, h, 10);
    c.fillStyle = palette.region;
    c.fill();
    c.strokeStyle = palette.line;
    c.lineWidth = 2;
    c.stroke();
    c.fillStyle = palette.ink;
    const size = Math.max(13, Math.min(h / 3, 12 / s));
    c.font = `600 ${size}px system-ui, sans-serif`;
    c.fillText(clip(c, group.prefix, w - 16), left + 8, top + 6 + size);
    const marks = Object.entries(group.marks).map(([mark, n]) => BADGES[mark] + n).join(" ");
    c.font = `${size * 0.9}px system-ui, sans-serif`;
    c.fillStyle = palette.faint;
    if (h > 2.6 * size) c.fillText(`${group.count} ops ${marks}`, left + 8, top + 8 + 2.1 * size);
  }

  // -- moving about

  centre(key, scale = null) {
    const node = this.byKey.get(key);
    if (!node) return false;
    if (scale) this.scale = scale;
    this.x = node.x;
    this.y = node.y;
    this.redraw();
    return true;
  }

  fit() {
    if (!this.nodes.length) return;
    const xs = this.nodes.map((n) => n.x), ys = this.nodes.map((n) => n.y);
    const [left, right] = [xs.reduce((a, b) => Math.min(a, b)), xs.reduce((a, b) => Math.max(a, b))];
    const [top, bottom] = [ys.reduce((a, b) => Math.min(a, b)), ys.reduce((a, b) => Math.max(a, b))];
    const [w, h] = [this.canvas.clientWidth, this.canvas.clientHeight];
    this.scale = Math.min(1.2, w / (right - left + 2 * WIDTH), h / (bottom - top + 3 * HEIGHT));
    this.x = (left + right) / 2;
    this.y = (top + bottom) / 2;
    this.redraw();
  }

  // The top of the graph at a legible size.
  home() {
    if (!this.nodes.length) return;
    const top = this.nodes.reduce((a, b) => (a.y <= b.y ? a : b));
    this.scale = 1;
    this.x = top.x;
    this.y = top.y + this.canvas.clientHeight / 2 - 76; // below the tools
    this.redraw();
  }

  zoom(factor, px = this.canvas.clientWidth / 2, py = this.canvas.clientHeight / 2) {
    const [w, h] = [this.canvas.clientWidth, this.canvas.clientHeight];
    const next = Math.min(3, Math.max(0.01, this.scale * factor));
    this.x += (px - w / 2) * (1 / this.scale - 1 / next);
    this.y += (py - h / 2) * (1 / this.scale - 1 / next);
    this.scale = next;
    this.redraw();
  }

  _world(event) {
    const box = this.canvas.getBoundingClientRect();
    return [
      this.x + (event.clientX - box.left - box.width / 2) / this.scale,
      this.y + (event.clientY - box.top - box.height / 2) / this.scale,
    ];
  }

  hit(wx, wy) {
    for (const group of this.groups?.values() ?? []) {
      if (wx > group.left - WIDTH / 2 && wx < group.right + WIDTH / 2 && wy > group.top - HEIGHT / 2 && wy < group.bottom + HEIGHT / 2) return { group };
    }
    for (let n = this.nodes.length - 1; n >= 0; n--) {
      const node = this.nodes[n];
      const shift = node.mark === "removed" ? -7 : 0;
      if (!node.group && Math.abs(wx - node.x - shift) <= WIDTH / 2 && Math.abs(wy - node.y - shift) <= HEIGHT / 2) return { node };
    }
    let best = null, least = 7 / this.scale;
    for (const edge of this.edges) {
      const d = edgeDistance(edge, wx, wy);
      if (d < least) [best, least] = [edge, d];
    }
    return best ? { edge: best } : null;
  }

  _listen() {
    const canvas = this.canvas;
    let drag = null;
    canvas.addEventListener("pointerdown", (e) => {
      drag = { x: e.clientX, y: e.clientY, moved: false };
      canvas.setPointerCapture(e.pointerId);
    });
    canvas.addEventListener("pointermove", (e) => {
      if (!drag) return;
      const [dx, dy] = [e.clientX - drag.x, e.clientY - drag.y];
      if (!drag.moved && Math.hypot(dx, dy) < 4) return;
      drag = { x: e.clientX, y: e.clientY, moved: true };
      this.x -= dx / this.scale;
      this.y -= dy / this.scale;
      this.redraw();
    });
    canvas.addEventListener("pointerup", (e) => {
      const clicked = drag && !drag.moved;
      drag = null;
      if (!clicked) return;
      const found = this.hit(...this._world(e));
      if (found?.group) {
        this.folded.delete(found.group.prefix);
        this.onFold();
      } else this.onSelect(found?.node?.key ?? null, found?.edge ?? null, e.shiftKey || e.ctrlKey || e.metaKey);
    });
    canvas.addEventListener("wheel", (e) => {
      e.preventDefault();
      const box = canvas.getBoundingClientRect();
      if (e.shiftKey) this.x += e.deltaY / this.scale;
      else if (e.ctrlKey || e.metaKey || !e.altKey) this.zoom(Math.exp(-e.deltaY * 0.0015), e.clientX - box.left, e.clientY - box.top);
      this.redraw();
    }, { passive: false });
  }
}

const keyOf = (reference) => (reference.startsWith("i") ? reference : reference.split(".")[0]);

function clip(c, text, width) {
  if (c.measureText(text).width <= width) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (c.measureText(text.slice(0, middle) + "…").width <= width) low = middle;
    else high = middle - 1;
  }
  return text.slice(0, low) + "…";
}

function edgeDistance({ from, to }, x, y) {
  const [x1, y1, x2, y2] = [from.x, from.y + HEIGHT / 2, to.x, to.y - HEIGHT / 2];
  const [dx, dy] = [x2 - x1, y2 - y1];
  const t = Math.max(0, Math.min(1, ((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(x - x1 - t * dx, y - y1 - t * dy);
}

// From pale yellow over orange to dark purple: ordered also in grey and for the colour-blind.
function heatColour(t) {
  const stops = [[255, 247, 200], [253, 187, 90], [226, 94, 80], [140, 41, 112]];
  const at = Math.min(0.9999, Math.max(0, t)) * (stops.length - 1);
  const [a, b, f] = [stops[Math.floor(at)], stops[Math.floor(at) + 1], at % 1];
  return `rgb(${a.map((v, n) => Math.round(v + (b[n] - v) * f)).join(",")})`;
}
