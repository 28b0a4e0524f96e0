// The panes beside the graph: text difference, memory plan, kernels, shapes.

const el = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((c) => c !== null && c !== undefined));
  return element;
};

const bytesText = (n) => {
  if (n === null || n === undefined) return "";
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  while (Math.abs(n) >= 1024 && unit < 3) [n, unit] = [n / 1024, unit + 1];
  return `${unit && Math.abs(n) < 100 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
};
const UNBOUNDED = 2 ** 50; // an arena without an upper limit
const secondsText = (s) => (s >= 1 ? `${s.toFixed(2)} s` : s >= 0.001 ? `${(s * 1e3).toFixed(1)} ms` : `${Math.round(s * 1e6)} µs`);

// -- text

// Lines of both graphs in the order of the later one, removed ops where they stood.
function textPane(holder, { before, after, marks, mode }, selected, onSelect) {
  const main = mode === "before" ? before : after;
  const other = mode === "both" ? before : main;
  const [names, otherNames] = [inputNames(main), inputNames(other)];
  const removedAfter = new Map(); // id of the op that comes before, or null: removed ops there
  if (other !== main) {
    let last = null;
    for (const id of other.order) {
      if (main.ops.has(id)) last = id;
      else removedAfter.set(last, [...(removedAfter.get(last) || []), id]);
    }
  }
  const rows = [];
  const remove = (at) => (removedAfter.get(at) || []).forEach((id) => rows.push([id, "removed", opLines(other.ops.get(id), otherNames)]));
  remove(null);
  for (const id of main.order) {
    const mark = marks.get(id)?.mark ?? null;
    if (mode === "both" && (mark === "changed" || mark === "rewired")) {
      const [old, now] = [opLines(other.ops.get(id), otherNames), opLines(main.ops.get(id), names)];
      if (same(old, now)) rows.push([id, mark, now]);
      else rows.push([id, "removed", old], [id, mark, now]);
    } else rows.push([id, mark, opLines(main.ops.get(id), names)]);
    remove(id);
  }
  const unchanged = (row) => !row[1];
  const pre = el("pre", { class: "ir", tabindex: "0", "aria-label": "the graph as text" });
  const CONTEXT = 3;
  const only = marks.size > 0 && rows.length > 400; // long texts show what changed and three lines around it
  let hidden = 0;
  const flush = () => {
    if (hidden) pre.append(el("span", { class: "gap" }, `… ${hidden} unchanged ops\n`));
    hidden = 0;
  };
  rows.forEach((row, n) => {
    const near = !only || String(row[0]) === selected || rows.slice(Math.max(0, n - CONTEXT), n + CONTEXT + 1).some((r) => !unchanged(r));
    if (!near) {
      hidden++;
      return;
    }
    flush();
    const [id, mark, lines] = row;
    const sign = { added: "+", removed: "−", changed: "±", rewired: "↷", moved: "↕" }[mark] ?? " ";
    const span = el("span", { class: `line ${mark ?? ""} ${String(id) === selected ? "selected" : ""}`, onclick: () => onSelect(String(id)) });
    span.textContent = lines.map((l) => `${sign} ${l}\n`).join("");
    pre.append(span);
  });
  flush();
  holder.replaceChildren(pre);
  pre.querySelector(".selected")?.scrollIntoView({ block: "center" });
}

// -- sizes

function evaluate(expression, sizes) {
  if (typeof expression === "number") return expression;
  if (typeof expression === "string") return sizes[expression] ?? 1;
  const [operator, ...rest] = expression;
  const values = rest.map((e) => evaluate(e, sizes));
  switch (operator) {
    case "+": return values.reduce((a, b) => a + b, 0);
    case "*": return values.reduce((a, b) => a * b, 1);
    case "//": return Math.floor(values[0] / values[1]);
    case "%": return values[0] - values[1] * Math.floor(values[0] / values[1]);
    case "max": return Math.max(...values);
    default: return Math.min(...values);
  }
}

function placed(plan, sizes) {
  const round = (n) => Math.ceil(n / plan.alignment) * plan.alignment;
  const alignment = plan.alignment || 64;
  plan = { alignment, ...plan };
  const offsets = [];
  return (plan.buffers || []).map((buffer, n) => {
    const offset = (buffer.after || []).reduce((top, b) => Math.max(top, offsets[b].end), 0);
    const size = evaluate(buffer.size, sizes);
    offsets[n] = { end: Math.ceil((offset + size) / alignment) * alignment };
    return { n, offset, size, first: buffer.first || 0, last: buffer.last || 0, values: buffer.values || [] };
  });
}

// -- memory

function memoryPane(holder, variant, sizes, onOp) {
  const buffers = placed(variant.plan || {}, sizes);
  const launches = variant.launches || [];
  if (!buffers.length) {
    holder.replaceChildren(el("p", { class: "note" }, "The plan needs no memory for intermediate values."));
    return;
  }
  const top = buffers.reduce((t, b) => Math.max(t, b.offset + b.size), 0) || 1;
  const steps = Math.max(launches.length, ...buffers.map((b) => b.last + 1));
  const live = new Array(steps).fill(0);
  for (const b of buffers) for (let t = b.first; t <= b.last; t++) live[t] += b.size;
  const peak = live.indexOf(live.reduce((a, b) => Math.max(a, b)));
  const [W, H, L, B] = [1000, 520, 70, 30];
  const ns = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(ns, "svg");
  svg.setAttribute("viewBox", `0 0 ${W + L + 10} ${H + B + 10}`);
  svg.setAttribute("class", "memory");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `memory plan: ${buffers.length} buffers, ${bytesText(top)}`);
  const make = (tag, attributes, text) => {
    const node = document.createElementNS(ns, tag);
    for (const [k, v] of Object.entries(attributes)) node.setAttribute(k, v);
    if (text) node.textContent = text;
    svg.append(node);
    return node;
  };
  const X = (t) => L + (t / steps) * W, Y = (o) => H - (o / top) * (H - 10);
  for (let k = 0; k <= 4; k++) {
    make("line", { x1: L, x2: L + W, y1: Y((top * k) / 4), y2: Y((top * k) / 4), class: "grid" });
    make("text", { x: L - 6, y: Y((top * k) / 4) + 4, class: "axis end" }, bytesText((top * k) / 4));
  }
  const info = el("p", { class: "note", "aria-live": "polite" });
  const maker = (launch) => {
    if (!launch) return "nothing";
    const origins = (launch.origins || []).filter((o) => !o.startsWith("Constant"));
    const kernel = (launch.kind ?? "kernel") === "kernel" ? variant.kernels[launch.kernel ?? 0]?.name : launch.kind;
    return kernel + (origins.length ? ` (${origins.slice(-2).join(", ")})` : "");
  };
  const describe = (b) => {
    const [first, last] = [launches[b.first], launches[b.last]];
    info.replaceChildren(
      `buffer ${b.n}: ${bytesText(b.size)} at ${bytesText(b.offset)}, launches ${b.first} to ${b.last}`,
      b.values.length ? ` · holds ${b.values.join(", ")}` : "",
      ` · made by ${maker(first)} · last read by ${maker(last)}`,
    );
  };
  buffers.forEach((b) => {
    const rect = make("rect", {
      x: X(b.first), width: Math.max(2, X(b.last + 1) - X(b.first) - 0.6), y: Y(b.offset + b.size), height: Math.max(1, Y(b.offset) - Y(b.offset + b.size) - 0.6),
      class: `buffer tone${b.n % 6} ${b.first <= peak && peak <= b.last ? "live" : ""}`, tabindex: 0,
    });
    rect.append(Object.assign(document.createElementNS(ns, "title"), { textContent: `${bytesText(b.size)}, launches ${b.first}–${b.last} ${b.values.join(" ")}` }));
    const pick = () => {
      describe(b);
      const op = (launches[b.first]?.ops || [])[0];
      if (op !== undefined) onOp(String(op));
    };
    rect.addEventListener("click", pick);
    rect.addEventListener("focus", () => describe(b));
  });
  make("line", { x1: X(peak + 0.5), x2: X(peak + 0.5), y1: 0, y2: H, class: "peak" });
  make("text", { x: X(peak + 0.5) + 5, y: 12, class: "axis strong" }, `peak at launch ${peak}: ${bytesText(live[peak])}`);
  make("text", { x: L + W / 2, y: H + 24, class: "axis middle" }, `${steps} launches, in order of time`);
  const atPeak = buffers.filter((b) => b.first <= peak && peak <= b.last).sort((a, b) => b.size - a.size);
  const bounds = variant.plan.lower_bounds || {};
  const named = Object.keys(bounds).filter((k) => bounds[k] < UNBOUNDED).map((k) => `${k}: arena ${bytesText(variant.plan.sizes?.[k])}, lower bound ${bytesText(bounds[k])}`);
  const table = el("table", {}, el("caption", {}, "Alive at the peak"), el("tr", {}, ...["buffer", "bytes", "launches", "values", "made by"].map((t) => el("th", {}, t))),
    ...atPeak.map((b) => el("tr", {}, el("td", {}, String(b.n)), el("td", { class: "n" }, bytesText(b.size)), el("td", {}, `${b.first}–${b.last}`), el("td", {}, b.values.join(", ")), el("td", {}, maker(launches[b.first])))));
  holder.replaceChildren(el("p", { class: "note" }, `Arena ${bytesText(top)} in ${buffers.length} buffers. ${named.join(" · ")}`), svg, info, table);
}

// -- kernels

function kernelsPane(holder, artifact, variant, selectedOp, onOp, tuning) {
  const kernels = variant.kernels || [];
  const uses = new Map();
  (variant.launches || []).forEach((launch, n) => {
    if ((launch.kind ?? "kernel") === "kernel") uses.set(launch.kernel ?? 0, [...(uses.get(launch.kernel ?? 0) || []), n]);
  });
  const source = el("pre", { class: "source", tabindex: "0" });
  const list = el("ul", { class: "kernels" });
  const choose = (n, item) => {
    list.querySelectorAll("[aria-current]").forEach((e) => e.removeAttribute("aria-current"));
    item.setAttribute("aria-current", "true");
    const kernel = kernels[n];
    const facts = [kernel.summary, kernel.registers ? `${kernel.registers} registers` : "", kernel.shared_bytes ? `${bytesText(kernel.shared_bytes)} shared memory` : "", kernel.threads ? `${kernel.threads} threads a block` : ""].filter(Boolean);
    const ops = [...new Set((uses.get(n) || []).flatMap((l) => variant.launches[l].ops || []))];
    source.replaceChildren(
      el("span", { class: "facts" }, `${facts.join(" · ")}\nops `),
      ...ops.slice(0, 40).map((op) => el("a", { href: "#", onclick: (e) => (e.preventDefault(), onOp(String(op))) }, `%${op} `)),
      el("span", {}, "\n"),
      candidatesTable(kernel, tuning),
      el("span", {}, `\n${artifact.sources[kernel.source] ?? "the source is not in this file"}`),
    );
  };
  let chosen = null;
  kernels.forEach((kernel, n) => {
    const launches = uses.get(n) || [];
    const item = el("li", {}, el("button", { onclick: () => choose(n, item) }, el("b", {}, kernel.name), el("small", {}, `${kernel.summary || ""} · ${launches.length} launch${launches.length === 1 ? "" : "es"}`)));
    list.append(item);
    if (selectedOp !== null && launches.some((l) => (variant.launches[l].ops || []).includes(selectedOp))) chosen = chosen ?? [n, item];
    if (!chosen && n === 0) source.dataset.first = "";
  });
  holder.replaceChildren(el("div", { class: "split" }, list, source));
  if (chosen) {
    choose(...chosen);
    chosen[1].scrollIntoView({ block: "nearest" });
  } else if (kernels.length) choose(0, list.firstChild);
}

// -- shapes

function shapesPane(holder, state, onOp) {
  const symbols = state.border.symbols || [], constraints = state.border.constraints || [];
  const names = inputNames(state);
  const mentions = (symbol) => {
    const word = new RegExp(`(^|[^\\w.])${symbol.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}([^\\w]|$)`);
    const input = state.inputs.findIndex(([, type]) => word.test(type));
    if (input >= 0) return [`input ${names[input]}`, null];
    const op = state.order.find((id) => (state.ops.get(id).out || []).some(([type]) => word.test(type)));
    return op === undefined ? ["", null] : [`%${op} ${state.ops.get(op).op}`, String(op)];
  };
  const row = (text) => {
    const [where, op] = mentions(text.split(" ")[0]);
    return el("tr", {}, el("td", {}, el("code", {}, text)), el("td", {}, op ? el("a", { href: "#", onclick: (e) => (e.preventDefault(), onOp(op)) }, where) : where));
  };
  holder.replaceChildren(
    el("table", {}, el("caption", {}, `${symbols.length || "No"} symbolic dim${symbols.length === 1 ? "" : "s"}`), symbols.length ? el("tr", {}, el("th", {}, "dim, range, typical size"), el("th", {}, "introduced by")) : "", ...symbols.map(row)),
    el("table", {}, el("caption", {}, `${constraints.length || "No"} constraint${constraints.length === 1 ? "" : "s"} that every call is checked for`), ...constraints.map((c) => el("tr", {}, el("td", {}, el("code", {}, c))))),
    el("table", {}, el("caption", {}, "Inputs and outputs"),
      ...state.inputs.map(([name, type]) => el("tr", {}, el("td", {}, "in"), el("td", {}, name), el("td", {}, el("code", {}, type)))),
      ...(state.border.outputs || []).map((r, n) => {
        const [id, index] = r.split(".");
        const type = r.startsWith("i") ? state.inputs[+r.slice(1)]?.[1] : state.ops.get(+id)?.out?.[+(index || 0)]?.[0];
        return el("tr", {}, el("td", {}, "out"), el("td", {}, state.border.output_names?.[n] ?? r), el("td", {}, el("code", {}, type ?? "")));
      })),
  );
}
