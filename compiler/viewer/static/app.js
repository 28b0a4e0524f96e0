// Brings the parts together: rail of passes, tabs, details, keys, deep links.

const DATA = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const MARKS = ["added", "removed", "changed", "rewired", "moved"];
const TABS = ["graph", "text", "memory", "kernels", "shapes"];
const history_ = new History(DATA.graph, DATA.passes);
const artifact = DATA.artifact;
const variant = artifact?.manifest.variants[0];
const sizes = Object.fromEntries((artifact?.manifest.symbols || []).map((s) => [s.name, s.opt]));
const place = { pass: DATA.passes.length - 1, step: -1, tab: "graph", mode: "both", node: null, idle: false, squeeze: true };
let frame = null; // what is shown: {before, after, marks}
let paths = new Map(); // op key -> module path

const view = new GraphView($("canvas"), (key, edge) => {
  view.selectedEdge = edge;
  if (edge) {
    place.node = null;
    view.selected = null;
    edgeDetails(edge);
    view.redraw();
    link();
  } else select(key);
});

// -- what is shown

function compute() {
  if (place.pass < 0) {
    const state = history_.before(0);
    return { before: state, after: state, marks: new Map() };
  }
  const before = place.step > 0 ? history_.at(place.pass, place.step - 1) : history_.before(place.pass);
  const after = history_.at(place.pass, place.step);
  return { before, after, marks: difference(before, after) };
}

function modulePaths(...states) {
  const found = new Map();
  for (const state of states) for (const id of state.order) {
    const origin = state.ops.get(id).from?.[0];
    if (origin && origin.includes("/")) found.set(String(id), origin.replace(/^\//, "").split("/").slice(0, -1).join("/"));
  }
  return found;
}

function refresh() {
  const start = performance.now();
  frame = compute();
  paths = modulePaths(frame.before, frame.after);
  view.show({ ...frame, mode: place.mode, layout: DATA.layout, paths, rows: place.squeeze ? usedRows() : null });
  rail();
  legend();
  pane();
  details();
  link();
  document.body.dataset.milliseconds = (performance.now() - start).toFixed(1);
}

// Rows in which the pass that is shown has something, before it or after it, numbered anew: what
// earlier passes took away leaves no gaps, and stepping through one pass moves nothing.
function usedRows() {
  const states = place.pass < 0 ? [frame.after] : [history_.before(place.pass), history_.before(place.pass + 1), frame.after];
  const used = new Set();
  for (const state of states) {
    state.inputs.forEach((_, n) => DATA.layout["i" + n] && used.add(DATA.layout["i" + n][1] / ROW));
    for (const id of state.order) if (DATA.layout[id]) used.add(DATA.layout[id][1] / ROW);
  }
  return new Map([...used].sort((a, b) => a - b).map((row, n) => [row, n]));
}

function pane() {
  for (const tab of TABS) {
    $("tab-" + tab).setAttribute("aria-selected", String(tab === place.tab));
    $("pane-" + tab).hidden = tab !== place.tab;
  }
  const holder = $("pane-" + place.tab);
  if (place.tab === "text") textPane(holder, { ...frame, mode: place.mode }, place.node, select);
  if (place.tab === "shapes") shapesPane(holder, frame.after, select);
  if (place.tab === "memory") {
    if (variant) memoryPane(holder, variant, sizes, select);
    else holder.replaceChildren(el("p", { class: "note" }, "No artifact was made in this trace: there is no memory plan."));
  }
  if (place.tab === "kernels") {
    if (variant) kernelsPane(holder, artifact, variant, place.node === null || place.node.startsWith("i") ? null : +place.node, select);
    else holder.replaceChildren(el("p", { class: "note" }, "No artifact was made in this trace: there are no kernels."));
  }
  if (place.tab === "graph") view.redraw();
}

// -- rail

function rail() {
  const filter = $("filter").value.toLowerCase();
  const list = $("passes");
  const rows = [];
  let quiet = 0;
  const more = () => {
    if (quiet) rows.push(el("li", { class: "quiet" }, el("button", { onclick: toggleIdle }, quiet === 1 ? "1 pass changed nothing" : `${quiet} passes changed nothing`)));
    quiet = 0;
  };
  rows.push(el("li", {}, el("button", { "aria-current": place.pass < 0 ? "step" : null, onclick: () => goto(-1) }, el("b", {}, DATA.start || "as imported"), el("small", {}, `${DATA.graph.ops.length} ops`))));
  DATA.passes.forEach((each, n) => {
    if (filter && !each.name.includes(filter)) return;
    const changed = each.end?.changed || each.steps.length > 0;
    if (!changed && !place.idle && n !== place.pass && !filter) {
      quiet++;
      return;
    }
    more();
    const facts = [];
    if (each.end?.seconds !== undefined) facts.push(secondsText(each.end.seconds));
    if (each.end?.ops !== undefined) facts.push(each.end.ops === each.ops_before ? `${each.end.ops} ops` : `${each.ops_before} → ${each.end.ops} ops`);
    if (each.steps.length) facts.push(`${each.steps.length} rewrite${each.steps.length > 1 ? "s" : ""}`);
    const memory = (each.end?.peak_bytes ?? 0) - peakBefore(n);
    if (each.end?.peak_bytes !== undefined && memory) facts.push(`memory ${memory > 0 ? "+" : "−"}${bytesText(Math.abs(memory))}`);
    if (each.distance !== null && each.distance !== undefined) facts.push(each.distance === 0 ? "same numbers" : `off by ${each.distance.toExponential(1)}`);
    if (each.failed) facts.push("did not finish");
    rows.push(el("li", {}, el("button", { class: changed ? "changed" : "", "aria-current": n === place.pass ? "step" : null, onclick: () => goto(n) }, el("b", {}, each.name), el("small", {}, facts.join(" · ")))));
    if (n === place.pass && each.steps.length) rows.push(stepList(each));
  });
  more();
  list.replaceChildren(...rows);
  list.querySelector("[aria-current=step]")?.scrollIntoView({ block: "nearest" });
}

function stepList(each) {
  const LIMIT = 200;
  const from = Math.max(0, Math.min(place.step - LIMIT / 2, each.steps.length - LIMIT));
  const item = (n) => {
    const step = each.steps[n];
    return el("li", {}, el("button", { "aria-current": n === place.step ? "true" : null, title: step.where, onclick: () => goto(place.pass, n) }, `${n + 1}. ${step.rule}`));
  };
  const shown = each.steps.slice(from, from + LIMIT).map((_, k) => item(from + k));
  if (from > 0) shown.unshift(el("li", { class: "quiet" }, `${from} more above`));
  if (from + LIMIT < each.steps.length) shown.push(el("li", { class: "quiet" }, `${each.steps.length - from - LIMIT} more below`));
  return el("li", { class: "steps" }, el("ol", {}, ...shown));
}

const peakBefore = (n) => (n > 0 ? DATA.passes[n - 1].end?.peak_bytes ?? 0 : DATA.peak_bytes ?? 0);

function toggleIdle() {
  place.idle = !place.idle;
  rail();
}

function legend() {
  const counts = {};
  for (const { mark } of frame.marks.values()) counts[mark] = (counts[mark] || 0) + 1;
  $("legend").replaceChildren(...MARKS.map((mark) => el("button", { class: "mark " + mark, disabled: !counts[mark], title: `next ${mark} op`, onclick: () => nextMarked(1, mark) }, el("i", {}, BADGES[mark]), `${counts[mark] || 0} ${mark === "changed" ? "changed in place" : mark}`)));
}

function nextMarked(direction, mark = null) {
  const ids = [...new Set([...frame.before.order, ...frame.after.order])].filter((id) => frame.marks.has(id) && (!mark || frame.marks.get(id).mark === mark) && view.byKey.has(String(id)));
  if (!ids.length) return;
  const at = ids.indexOf(+place.node);
  const next = ids[(at + direction + ids.length) % ids.length];
  select(String(next), true);
}

// -- details

function select(key, move = place.tab !== "graph") {
  place.node = key;
  view.selected = key;
  view.selectedEdge = null;
  if (key !== null && move) view.centre(key, view.scale < 0.45 ? 0.8 : null);
  view.redraw();
  details();
  if (["text", "kernels"].includes(place.tab)) pane();
  link();
}

const opLink = (id) => el("a", { href: "#", onclick: (e) => (e.preventDefault(), select(String(id), true)) }, "%" + id);

function details() {
  const box = $("details");
  if (place.node === null) {
    const each = DATA.passes[place.pass];
    box.replaceChildren(el("h2", {}, place.pass < 0 ? "As imported" : each.name), ...passDetails(each));
    return;
  }
  const id = +place.node;
  const state = frame.after.ops.has(id) ? frame.after : frame.before;
  if (place.node.startsWith("i")) {
    const [name, type] = frame.after.inputs[+place.node.slice(1)] ?? ["", ""];
    box.replaceChildren(el("h2", {}, `input ${name}`), el("pre", {}, type));
    return;
  }
  const record = state.ops.get(id);
  if (!record) {
    box.replaceChildren(el("h2", {}, `%${id}`), el("p", { class: "note" }, "This op is not in the graph at this point."), ...historyOf(id));
    return;
  }
  const mark = frame.marks.get(id);
  const parts = [el("h2", {}, `%${id} ${label(record)}`)];
  if (mark) parts.push(el("p", { class: "note" }, el("span", { class: "mark " + mark.mark }, el("i", {}, BADGES[mark.mark])), ` ${mark.mark === "changed" ? "changed in place: " + mark.fields.join(", ") : mark.mark} in this ${place.step >= 0 ? "rewrite" : "pass"}`));
  parts.push(el("pre", {}, opLines(record, inputNames(state)).join("\n")));
  if (record.from?.length) parts.push(el("h3", {}, "Comes from"), el("ul", {}, ...record.from.map((f) => el("li", {}, el("code", {}, f)))));
  const users = state.order.filter((o) => (state.ops.get(o).in || []).some((r) => keyOf(r) === place.node));
  const feeding = [...new Set((record.in || []).map(keyOf))];
  parts.push(el("h3", {}, "Reads"), el("p", {}, ...feeding.flatMap((k) => [k.startsWith("i") ? shown(k, inputNames(state)) : opLink(k), " "])));
  parts.push(el("h3", {}, "Read by"), el("p", {}, ...users.slice(0, 30).flatMap((u) => [opLink(u), " "]), users.length > 30 ? `and ${users.length - 30} more` : ""));
  const refusals = refusalsOf([id]);
  if (refusals.length) parts.push(el("h3", {}, "Why not"), refusalList(refusals));
  parts.push(...historyOf(id));
  const launches = (variant?.launches || []).map((l, n) => [l, n]).filter(([l]) => (l.ops || []).includes(id));
  if (launches.length) {
    parts.push(el("h3", {}, "Runs as"), el("ul", {}, ...launches.map(([l, n]) => el("li", {}, `launch ${n}: `, el("a", { href: "#", onclick: (e) => (e.preventDefault(), tab("kernels")) }, variant.kernels[l.kernel ?? 0]?.name ?? l.kind)))));
  }
  box.replaceChildren(...parts);
}

function passDetails(each) {
  const parts = [];
  if (!each) return [el("p", { class: "note" }, `${DATA.graph.ops.length} ops. Choose a pass at the left, or press ↓.`), about()];
  const step = place.step >= 0 ? each.steps[place.step] : null;
  if (step) {
    parts.push(el("h3", {}, `Rewrite ${place.step + 1} of ${each.steps.length}: ${step.rule}`), el("p", {}, el("code", {}, step.where)));
    if (step.reason) parts.push(el("p", {}, step.reason));
    if (step.graph) parts.push(el("p", { class: "note" }, `in the body ${step.graph}`));
    parts.push(el("p", {}, "consumed ", ...step.consumed.flatMap((i) => [opLink(i), " "])), el("p", {}, "produced ", ...(step.produced.length ? step.produced.flatMap((i) => [opLink(i), " "]) : ["nothing"])));
  }
  for (const note of each.end?.notes || []) parts.push(el("p", { class: "note" }, note));
  const statistics = Object.entries(each.end?.statistics || {});
  if (statistics.length) parts.push(el("p", {}, statistics.map(([k, v]) => `${v} ${k}`).join(", ")));
  const rules = new Map();
  for (const s of each.steps) rules.set(`${s.rule}|${s.where}`, (rules.get(`${s.rule}|${s.where}`) || 0) + 1);
  if (rules.size) {
    parts.push(el("h3", {}, "Rules that applied"), el("table", {}, ...[...rules].sort((a, b) => b[1] - a[1]).map(([key, n]) => el("tr", {}, el("td", { class: "n" }, `${n}×`), el("td", {}, key.split("|")[0]), el("td", {}, el("code", {}, key.split("|")[1]))))));
  }
  if (each.refusals.length) parts.push(el("h3", {}, "Considered and refused"), refusalList(each.refusals));
  if (!parts.length) parts.push(el("p", { class: "note" }, "This pass changed nothing."));
  return parts;
}

function about() {
  return el("dl", {}, ...Object.entries(DATA.about).flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, String(v))]));
}

function refusalList(refusals) {
  const grouped = new Map();
  for (const r of refusals) {
    const key = `${r.rule}: ${r.reason}`;
    if (!grouped.has(key)) grouped.set(key, []);
    grouped.get(key).push(r);
  }
  return el("ul", {}, ...[...grouped].slice(0, 40).map(([key, all]) => el("li", {}, key, " ", ...all.slice(0, 6).flatMap((r) => ["(", ...r.ops.flatMap((i, n) => [n ? " with " : "", opLink(i)]), ") "]), all.length > 6 ? `and ${all.length - 6} more` : "")));
}

function refusalsOf(ids) {
  const upTo = place.pass < 0 ? [] : DATA.passes.slice(0, DATA.passes.length);
  const members = new Set(ids.flatMap((id) => ancestors(id)));
  return upTo.flatMap((p) => p.refusals.filter((r) => r.ops.some((o) => members.has(o))).map((r) => ({ ...r, rule: `${p.name}/${r.rule}` })));
}

// The op and those that it was made from in the pass that is shown or before.
function ancestors(id) {
  const found = new Set([id]);
  for (let n = DATA.passes.length - 1; n >= 0; n--) {
    const steps = DATA.passes[n].steps;
    for (let k = steps.length - 1; k >= 0; k--) {
      if (steps[k].produced.some((p) => found.has(p))) steps[k].consumed.forEach((c) => found.add(c));
    }
  }
  return [...found];
}

function historyOf(id) {
  const items = [];
  DATA.passes.forEach((each, n) => each.steps.forEach((step, k) => {
    const [made, used] = [step.produced.includes(id), step.consumed.includes(id)];
    if (!made && !used) return;
    items.push(el("li", {}, el("a", { href: "#", onclick: (e) => (e.preventDefault(), goto(n, k)) }, `${each.name} / ${step.rule}`), made ? " made it from " : " turned it into ", ...(made ? step.consumed : step.produced).flatMap((i) => [opLink(i), " "]), el("code", {}, step.where)));
  }));
  return [el("h3", {}, "History"), items.length ? el("ul", {}, ...items) : el("p", { class: "note" }, "No rewrite touched this op.")];
}

function edgeDetails(edge) {
  const [a, b] = [edge.from.key, edge.to.key];
  const parts = [el("h2", {}, "Edge"), el("p", {}, a.startsWith("i") ? a : opLink(a), " → ", opLink(b)), el("pre", {}, edge.from.type)];
  const [left, right] = [new Set(a.startsWith("i") ? [] : ancestors(+a)), new Set(ancestors(+b))];
  const between = DATA.passes.flatMap((p) => p.refusals.filter((r) => r.ops.some((o) => left.has(o)) && r.ops.some((o) => right.has(o))).map((r) => ({ ...r, rule: `${p.name}/${r.rule}` })));
  parts.push(el("h3", {}, "Why these are not one"), between.length ? refusalList(between) : el("p", { class: "note" }, "No pass considered joining these two."));
  $("details").replaceChildren(...parts);
}

// -- going places

function goto(pass, step = -1) {
  place.pass = Math.max(-1, Math.min(DATA.passes.length - 1, pass));
  place.step = place.pass < 0 ? -1 : Math.max(-1, Math.min(DATA.passes[place.pass].steps.length - 1, step));
  if (place.step >= 0) {
    const s = DATA.passes[place.pass].steps[place.step];
    place.node = null;
    view.selected = null;
    refresh();
    const near = [...s.produced, ...s.consumed].find((i) => view.byKey.has(String(i)));
    if (near !== undefined) view.centre(String(near), view.scale < 0.45 ? 0.8 : null);
    return;
  }
  refresh();
}

function walkPass(direction) {
  let next = place.pass + direction;
  while (next >= 0 && next < DATA.passes.length - 1 && !place.idle && !DATA.passes[next].end?.changed && !DATA.passes[next].steps.length) next += direction;
  goto(next);
}

function tab(name) {
  place.tab = name;
  pane();
  link();
}

function setMode(mode) {
  place.mode = mode;
  for (const m of ["before", "both", "after"]) $("mode-" + m).setAttribute("aria-pressed", String(m === mode));
  refresh();
}

let linking = false;
function link() {
  const parts = [`pass=${place.pass}`];
  if (place.step >= 0) parts.push(`step=${place.step}`);
  if (place.node !== null) parts.push(`node=${encodeURIComponent(place.node)}`);
  if (place.tab !== "graph") parts.push(`tab=${place.tab}`);
  if (place.mode !== "both") parts.push(`mode=${place.mode}`);
  const hash = "#" + parts.join("&");
  if (location.hash === hash) return;
  linking = true;
  history.replaceState(null, "", hash);
  linking = false;
}

const lastChange = () => DATA.passes.findLastIndex((p) => p.end?.changed || p.steps.length);

function follow() {
  if (linking) return;
  const given = new URLSearchParams(location.hash.slice(1));
  const number = (name, otherwise) => (given.has(name) && /^-?\d+$/.test(given.get(name)) ? +given.get(name) : otherwise);
  let pass = number("pass", null);
  if (pass === null && given.has("pass")) pass = DATA.passes.findLastIndex((p) => p.name === given.get("pass") && (p.end?.changed || p.steps.length));
  place.pass = Math.max(-1, Math.min(DATA.passes.length - 1, pass ?? lastChange()));
  place.step = place.pass < 0 ? -1 : Math.min(number("step", -1), DATA.passes[place.pass].steps.length - 1);
  place.tab = TABS.includes(given.get("tab")) ? given.get("tab") : "graph";
  place.mode = ["before", "after"].includes(given.get("mode")) ? given.get("mode") : "both";
  place.node = given.get("node");
  view.selected = place.node;
  setMode(place.mode);
  if (place.node !== null) view.centre(place.node, 1);
}

// -- search

let found = [], foundAt = -1;
function search(direction = 1) {
  const text = $("search").value.trim().toLowerCase();
  if (!text) return;
  found = view.nodes.filter((n) => n.key === text.replace(/^%/, "") || n.text.toLowerCase().includes(text) || n.type.toLowerCase().includes(text) || (n.record?.from || []).some((f) => f.toLowerCase().includes(text)));
  found.sort((a, b) => a.y - b.y || a.x - b.x);
  if (!found.length) {
    $("matches").textContent = "nothing found";
    return;
  }
  const at = found.findIndex((n) => n.key === place.node);
  foundAt = at < 0 ? 0 : (at + direction + found.length) % found.length;
  $("matches").textContent = `${foundAt + 1} of ${found.length}`;
  select(found[foundAt].key, true);
}

// -- folding

function fold(level) {
  if (level === 0) view.folded.clear();
  else {
    const depth = Math.max(0, ...[...view.folded].map((p) => p.split("/").length));
    const wanted = level > 0 ? depth + 1 : depth - 1;
    view.folded = new Set();
    if (wanted > 0) for (const path of paths.values()) {
      const parts = path.split("/");
      if (parts.length >= 1) view.folded.add(parts.slice(0, Math.min(wanted, parts.length)).join("/"));
    }
  }
  view._fold();
  view.redraw();
}

// -- keys

const KEYS = {
  ArrowDown: () => walkPass(1), ArrowUp: () => walkPass(-1), j: () => walkPass(1), k: () => walkPass(-1),
  ArrowRight: () => goto(place.pass, Math.min(place.step + 1, (DATA.passes[place.pass]?.steps.length ?? 0) - 1)),
  ArrowLeft: () => goto(place.pass, place.step - 1),
  n: () => nextMarked(1), p: () => nextMarked(-1), f: () => view.fit(), h: () => view.home(),
  b: () => setMode({ both: "before", before: "after", after: "both" }[place.mode]),
  "+": () => view.zoom(1.25), "=": () => view.zoom(1.25), "-": () => view.zoom(0.8),
  q: () => ((place.squeeze = !place.squeeze), refresh()), z: () => fold(1), x: () => fold(-1), u: () => toggleIdle(),
  "/": () => $("search").focus(), "?": () => $("help").showModal(),
  w: () => pan(0, -1), s: () => pan(0, 1), a: () => pan(-1, 0), d: () => pan(1, 0),
  Escape: () => select(null),
};
const pan = (dx, dy) => {
  view.x += (dx * 120) / view.scale;
  view.y += (dy * 120) / view.scale;
  view.redraw();
};
TABS.forEach((name, n) => (KEYS[String(n + 1)] = () => tab(name)));

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input")) {
    if (event.key === "Enter" && event.target.id === "search") search(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") event.target.blur();
    return;
  }
  if ($("help").open || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
});

$("filter").addEventListener("input", rail);
$("search").addEventListener("search", () => search());
for (const name of TABS) $("tab-" + name).addEventListener("click", () => tab(name));
for (const mode of ["before", "both", "after"]) $("mode-" + mode).addEventListener("click", () => setMode(mode));
$("fit").addEventListener("click", () => view.fit());
$("home").addEventListener("click", () => view.home());
$("fold").addEventListener("click", () => fold(1));
$("unfold").addEventListener("click", () => fold(-1));
$("open-help").addEventListener("click", () => $("help").showModal());
$("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme.includes("dark");
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  view.redraw();
});
window.addEventListener("hashchange", follow);

$("title").textContent = DATA.title;
$("subtitle").textContent = DATA.subtitle;
follow();
if (place.node === null) view.home();
document.body.dataset.ready = "true";
