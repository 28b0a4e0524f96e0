// Brings the parts together: rail of passes, tabs, details, keys, deep links.

const DATA = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const MARKS = ["added", "removed", "changed", "rewired", "moved"];
const TABS = ["graph", "text", "memory", "kernels", "shapes", "graphs", "profile"];
const history_ = new History(DATA.graph, DATA.passes);
const artifact = DATA.artifact;
const variant = artifact?.manifest.variants[0];
const sizes = Object.fromEntries((artifact?.manifest.symbols || []).map((s) => [s.name, s.opt]));
const place = { pass: DATA.passes.length - 1, step: -1, tab: "graph", mode: "both", node: null, idle: false, squeeze: true, heat: "" };
const measured = measurements(DATA);
const picked = new Set(); // keys of the ops that are selected together
let frame = null; // what is shown: {before, after, marks}
let paths = new Map(); // op key -> module path

const view = new GraphView($("canvas"), (key, edge, more) => {
  view.selectedEdge = edge;
  if (edge) {
    place.node = null;
    view.selected = null;
    edgeDetails(edge);
    view.redraw();
    link();
  } else if (more && key !== null && !key.startsWith("i")) pick(key);
  else select(key);
});

view.onFold = () => draw();

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

const modulesOf = new WeakMap(); // Map from op key to path, by state
function modulePaths(...states) {
  const found = new Map();
  for (const state of new Set(states)) {
    if (!modulesOf.has(state)) modulesOf.set(state, modulesIn(state));
    for (const [key, path] of modulesOf.get(state)) found.set(key, path);
  }
  return found;
}

function modulesIn(state) {
  const found = new Map();
  for (const id of state.order) {
    const origin = state.ops.get(id).from?.[0];
    if (origin && origin.includes("/") && origin.replace(/^\//, "").includes("/")) found.set(String(id), origin.replace(/^\//, "").split("/").slice(0, -1).join("/"));
  }
  return found;
}

function refresh() {
  const start = performance.now();
  frame = compute();
  paths = pathsNow();
  draw();
  rail();
  legend();
  pane();
  details();
  link();
  document.body.dataset.milliseconds = (performance.now() - start).toFixed(1);
}

function draw() {
  const heat = place.heat ? heatOf(place.heat, measured, tolerance) : null;
  view.heat = heat?.of ?? null;
  heatLegend($("heat-legend"), heat, place.heat);
  view.show({ ...frame, mode: place.mode, layout: DATA.layout, paths, rows: place.squeeze ? usedRows() : null });
}

// Rows in which the pass that is shown has something, before it or after it, numbered anew: what
// earlier passes took away leaves no gaps, and stepping through one pass moves nothing.
function usedRows() {
  const states = place.pass < 0 ? [frame.after] : [history_.before(place.pass), history_.before(place.pass + 1), frame.after];
  const used = new Map(); // row -> the folded paths that fill it, null where something is open
  const take = (key) => {
    const at = DATA.layout[key];
    if (!at) return;
    const row = at[1] / ROW, inside = foldedPrefix(paths.get(key), view.folded);
    if (!used.has(row)) used.set(row, inside === null ? null : new Set([inside]));
    else if (inside === null) used.set(row, null);
    else used.get(row)?.add(inside);
  };
  for (const state of states) {
    state.inputs.forEach((_, n) => take("i" + n));
    for (const id of state.order) take(String(id));
  }
  let at = -1, last = null;
  return new Map([...used].sort((a, b) => a[0] - b[0]).map(([row, inside]) => {
    const same = inside && last && [...inside].some((p) => last.has(p)); // rows of one folded box become one
    last = inside;
    if (!same) at++;
    return [row, at];
  }));
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
    if (variant) kernelsPane(holder, artifact, variant, place.node === null || place.node.startsWith("i") ? null : +place.node, select, DATA.tuning || []);
    else holder.replaceChildren(el("p", { class: "note" }, "No artifact was made in this trace: there are no kernels."));
  }
  if (place.tab === "graphs") {
    if (variant) graphsPane(holder, artifact, variant, select);
    else holder.replaceChildren(el("p", { class: "note" }, "No artifact was made in this trace: nothing was captured."));
  }
  if (place.tab === "profile") profilePane(holder, DATA, variant, select);
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
    const [moved, kernels] = costChange(n);
    if (kernels && each.end?.cost) facts.push(`${each.end.cost[2] - kernels} → ${each.end.cost[2]} kernels`);
    if (moved) facts.push(`moves ${signedBytes(moved)}`);
    const memory = (each.end?.peak_bytes ?? 0) - peakBefore(n);
    if (each.end?.peak_bytes !== undefined && memory) facts.push(`peak ${signedBytes(memory)}`);
    if (each.distance !== null && each.distance !== undefined) facts.push(each.distance === 0 ? "same numbers" : `off by ${each.distance.toExponential(1)}`);
    if (each.failed) facts.push("did not finish");
    rows.push(el("li", {}, el("button", { class: changed ? "changed" : "", "aria-current": n === place.pass ? "step" : null, onclick: () => goto(n) }, el("b", {}, each.name), el("small", {}, ...facts.flatMap((f, k) => [k ? " · " : "", el("span", {}, f)])))));
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
  if (place.heat) parts.push(`heat=${place.heat}`);
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
  place.heat = heats.includes(given.get("heat")) ? given.get("heat") : "";
  $("heat").value = place.heat;
  place.node = given.get("node");
  view.selected = place.node;
  setMode(place.mode);
  if (place.node !== null) view.centre(place.node, 1);
  else if (place.step >= 0) goto(place.pass, place.step);
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
  draw();
}

const folding = { repeats: false };
const pathsNow = () => {
  const modules = modulePaths(frame.before, frame.after);
  return folding.repeats || !modules.size ? repeatedBlocks(frame.after) : modules;
};

function foldRepeats() {
  folding.repeats = !folding.repeats;
  view.folded.clear();
  paths = pathsNow();
  if (folding.repeats) for (const path of paths.values()) view.folded.add(path);
  draw();
}

function setHeat(kind) {
  place.heat = kind;
  $("heat").value = kind;
  draw();
}

// -- keys

const KEYS = {
  ArrowDown: () => walkPass(1), ArrowUp: () => walkPass(-1), j: () => walkPass(1), k: () => walkPass(-1),
  ArrowRight: () => goto(place.pass, Math.min(place.step + 1, (DATA.passes[place.pass]?.steps.length ?? 0) - 1)),
  ArrowLeft: () => goto(place.pass, place.step - 1),
  n: () => nextMarked(1), p: () => nextMarked(-1), f: () => view.fit(), h: () => view.home(),
  b: () => setMode({ both: "before", before: "after", after: "both" }[place.mode]),
  "+": () => view.zoom(1.25), "=": () => view.zoom(1.25), "-": () => view.zoom(0.8),
  r: () => foldRepeats(), t: () => nextHeat(), e: () => place.node !== null && exportNow(), y: () => markPair(),
  q: () => ((place.squeeze = !place.squeeze), refresh()), z: () => fold(1), x: () => fold(-1), u: () => toggleIdle(),
  "/": () => $("search").focus(), "?": () => $("help").showModal(),
  w: () => pan(0, -1), s: () => pan(0, 1), a: () => pan(-1, 0), d: () => pan(1, 0),
  Escape: () => select(null),
};
const tolerance = 1e-4;
const heats = Object.keys(HEATS).filter((kind) => heatOf(kind, measured, tolerance));
const nextHeat = () => heats.length && setHeat([...heats, ""][(["", ...heats].indexOf(place.heat)) % (heats.length + 1)]);
const exportNow = () => document.querySelector("#details button")?.click();
let marked = null; // the first op of a pair, by keyboard
const markPair = () => {
  if (place.node === null || place.node.startsWith("i")) return;
  if (marked === null || marked === place.node) {
    marked = place.node;
    $("matches").textContent = `%${marked} marked; select another op and press y`;
    return;
  }
  const second = place.node;
  select(marked);
  pick(second);
  marked = null;
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
  if ($("help").open || $("case").open || event.target.matches("select") || !KEYS[event.key]) return;
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
$("repeats").addEventListener("click", foldRepeats);
$("heat").replaceChildren(el("option", { value: "" }, heats.length ? "no heat" : "no measurements"), ...heats.map((kind) => el("option", { value: kind }, `heat: ${HEATS[kind]}`)));
$("heat").disabled = !heats.length;
$("heat").addEventListener("change", () => setHeat($("heat").value));
$("case-copy").addEventListener("click", () => {
  $("case-text").select();
  document.execCommand("copy");
});
$("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme.includes("dark");
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  view.redraw();
});
window.addEventListener("hashchange", follow);

$("title").textContent = DATA.title;
$("subtitle").textContent = DATA.subtitle;
follow();
if (place.node === null && place.step < 0) view.home();
document.body.dataset.ready = "true";
