// The column at the right: a pass, a rewrite, an op, an edge, a selection; and what is selected.

const signedBytes = (n) => `${n > 0 ? "+" : "−"}${bytesText(Math.abs(n))}`;

// [bytes, kernels] that a pass adds by the cost model.
function costChange(n) {
  const [after, before] = [DATA.passes[n].end?.cost, n > 0 ? DATA.passes[n - 1].end?.cost : DATA.cost];
  return after && before?.length ? [after[0] - before[0], after[2] - before[2]] : [0, 0];
}

const countText = (n) => {
  const units = ["", " k", " M", " G", " T"];
  let unit = 0;
  while (n >= 1e4 && unit < 4) [n, unit] = [n / 1e3, unit + 1];
  return (unit && n < 100 ? n.toFixed(1) : String(Math.round(n))) + units[unit];
};

function costTable(before, after) {
  const change = (a, b) => (a === b ? "" : a ? `${b > a ? "+" : "−"}${percent(Math.abs(b - a) / a)}` : "new");
  const rows = [["bytes moved", [before[0], after[0]]], ["operations", [before[1], after[1]]], ["kernels", [before[2], after[2]]]];
  const text = (name, v) => (name === "bytes moved" ? bytesText(v) : countText(v));
  return el("table", { class: "cost" }, el("tr", {}, ...["", "before", "after", ""].map((t) => el("th", { class: "n" }, t))), ...rows.map(([name, [a, b]]) => el("tr", {}, el("td", {}, name), el("td", { class: "n" }, text(name, a)), el("td", { class: "n" }, text(name, b)), el("td", { class: "n" }, change(a, b)))));
}

function pick(key) {
  if (place.node !== null && !place.node.startsWith("i")) picked.add(place.node);
  if (picked.has(key) && key !== place.node) picked.delete(key);
  else picked.add(key);
  place.node = key;
  view.selected = key;
  view.picked = picked;
  view.redraw();
  details();
}

function select(key, move = place.tab !== "graph") {
  picked.clear();
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
  if (picked.size > 1) {
    const ids = [...picked].map(Number);
    box.replaceChildren(el("h2", {}, `${ids.length} ops selected`), el("p", {}, ...ids.flatMap((i) => [opLink(i), " "])), exportButton(ids), ...(ids.length === 2 ? pairDetails(...ordered(ids)) : []));
    return;
  }
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
  parts.push(...measuredFacts(measured.get(id)), exportButton([id]));
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
    if (step.cost?.length) parts.push(costTable(...step.cost));
    if (step.reason) parts.push(el("p", {}, step.reason));
    if (step.graph) parts.push(el("p", { class: "note" }, `in the body ${step.graph}`));
    parts.push(el("p", {}, "consumed ", ...step.consumed.flatMap((i) => [opLink(i), " "])), el("p", {}, "produced ", ...(step.produced.length ? step.produced.flatMap((i) => [opLink(i), " "]) : ["nothing"])));
  }
  const before = place.pass > 0 ? DATA.passes[place.pass - 1].end?.cost : DATA.cost;
  if (!step && before?.length && each.end?.cost && String(before) !== String(each.end.cost)) parts.push(costTable(before, each.end.cost));
  for (const note of each.end?.notes || []) parts.push(el("p", { class: "note" }, note));
  const statistics = Object.entries(each.end?.statistics || {});
  if (statistics.length) parts.push(el("p", {}, statistics.map(([k, v]) => (k.includes("bytes") ? `${k.replace(/_?bytes_?/, " ").trim()} ${bytesText(v)}` : `${v} ${k.replaceAll("_", " ")}`)).join(", ")));
  const rules = new Map();
  for (const s of each.steps) rules.set(`${s.rule}|${s.where}`, (rules.get(`${s.rule}|${s.where}`) || 0) + 1);
  if (rules.size) {
    parts.push(el("h3", {}, "Rules that applied"), el("table", {}, ...[...rules].sort((a, b) => b[1] - a[1]).map(([key, n]) => el("tr", {}, el("td", { class: "n" }, `${n}×`), el("td", {}, key.split("|")[0]), el("td", {}, el("code", {}, key.split("|")[1]))))));
  }
  if (each.refusals.length) parts.push(el("h3", {}, "Considered and refused"), refusalList(each.refusals));
  if (!each.steps.length && frame.marks.size) parts.push(...markedList());
  if (!parts.length) parts.push(el("p", { class: "note" }, "This pass changed nothing."));
  return parts;
}

function about() {
  return el("dl", {}, ...Object.entries(DATA.about).flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, String(v))]));
}

function exportButton(ids) {
  const state = ids.every((i) => frame.after.ops.has(i)) ? frame.after : frame.before;
  if (!ids.every((i) => state.ops.has(i))) return null;
  return el("p", {}, el("button", { onclick: () => saveCase(state, ids) }, "Copy as a test case"));
}

const ordered = (ids) => {
  const at = new Map([...frame.before.order, ...frame.after.order].map((id, n) => [id, n]));
  return [...ids].sort((a, b) => at.get(a) - at.get(b));
};

// What differs, by mark: of two files compared, or of a pass without rewrites.
function markedList() {
  const parts = [];
  for (const mark of MARKS) {
    const ids = [...frame.marks].filter(([, m]) => m.mark === mark).map(([id]) => id);
    if (!ids.length) continue;
    const line = (id) => el("li", {}, opLink(id), ` ${label(frame.after.ops.get(id) ?? frame.before.ops.get(id))}`, mark === "changed" ? `: ${frame.marks.get(id).fields.join(", ")}` : "");
    parts.push(el("h3", {}, mark === "changed" ? "Changed in place" : mark[0].toUpperCase() + mark.slice(1)), el("ul", {}, ...ids.slice(0, 30).map(line), ids.length > 30 ? el("li", { class: "note" }, `and ${ids.length - 30} more`) : null));
  }
  return parts;
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
  if (a.startsWith("i")) parts.push(el("p", { class: "note" }, "An input of the model: its memory and its order are the caller's."));
  else parts.push(...pairDetails(+a, +b), exportButton([+a, +b]));
  $("details").replaceChildren(...parts);
}

