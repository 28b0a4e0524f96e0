// Heat: measured time, bytes, fraction of the roofline and errors over the graph, for the last graph
// and, by where its ops came from, for every earlier one.

const HEATS = { time: "time", bytes: "bytes moved", roofline: "far from the roofline", error: "error" };
const percent = (x) => `${(100 * x).toFixed(x < 0.1 ? 1 : 0)} %`;

// Map from op id to {time, bytes, flops, roofline, share, error}: of launches, spread to the ops that
// the launch's ops were made from.
function measurements(data) {
  const found = new Map();
  const give = (id, facts) => found.set(id, { ...found.get(id), ...facts });
  const launches = data.profile?.launches || [];
  const whole = launches.reduce((sum, l) => sum + l.seconds, 0) || 1;
  for (const l of launches) {
    for (const id of l.ops) {
      const before = found.get(id)?.time || 0; // an op of several launches takes the time of all
      give(id, { time: before + l.seconds, share: (before + l.seconds) / whole, bytes: l.bytes, flops: l.flops, roofline: l.roofline });
    }
  }
  for (const e of data.errors?.layers || []) {
    const value = e.relative === "inf" || e.strange ? Infinity : +e.relative;
    give(e.op, { error: Math.max(found.get(e.op)?.error || 0, value) });
  }
  for (let n = data.passes.length - 1; n >= 0; n--) {
    const steps = data.passes[n].steps;
    for (let k = steps.length - 1; k >= 0; k--) {
      const of = steps[k].produced.map((id) => found.get(id)).find((f) => f);
      if (of) for (const id of steps[k].consumed) if (!found.has(id)) found.set(id, of);
    }
  }
  return found;
}

// {of: Map from key to 0..1, low, high (texts of the legend's ends)} or null without such numbers.
function heatOf(kind, measured, tolerance) {
  const values = [...measured].filter(([, f]) => f[kind] !== undefined && (kind !== "roofline" || f.bytes));
  if (!values.length) return null;
  const of = new Map();
  if (kind === "error") {
    const floor = -9, top = Math.log10(tolerance || 1e-4);
    for (const [id, f] of values) of.set(String(id), f.error === 0 ? 0 : Math.min(1, Math.max(0, (Math.log10(f.error) - floor) / (top - floor))));
    return { of, low: "≤ 1e-9", high: `≥ ${(tolerance || 1e-4).toExponential(0)}` };
  }
  if (kind === "roofline") {
    for (const [id, f] of values) of.set(String(id), 1 - Math.min(1, f.roofline));
    return { of, low: "100 % of it", high: "0 %" };
  }
  const most = values.reduce((m, [, f]) => Math.max(m, f[kind]), 0) || 1;
  for (const [id, f] of values) of.set(String(id), Math.sqrt(f[kind] / most)); // small ones stay apart
  return { of, low: "0", high: kind === "time" ? secondsText(most) : bytesText(most) };
}

function heatLegend(holder, heat, kind) {
  if (!heat) return holder.replaceChildren();
  const stops = [0, 0.25, 0.5, 0.75, 1].map((t) => heatColour(t)).join(", ");
  holder.replaceChildren(el("span", {}, HEATS[kind]), el("span", { class: "n" }, heat.low), el("i", { style: `background: linear-gradient(90deg, ${stops})` }), el("span", { class: "n" }, heat.high));
}

function measuredFacts(facts) {
  if (!facts) return [];
  const rows = [];
  const row = (name, text) => rows.push(el("dt", {}, name), el("dd", {}, text));
  if (facts.time !== undefined) {
    row("time", `${secondsText(facts.time)}, ${percent(facts.share)} of all kernels`);
    if (facts.bytes) row("memory", `${bytesText(facts.bytes)}, ${(facts.bytes / facts.time / 1e9).toFixed(1)} GB/s`);
    if (facts.flops) row("arithmetic", `${(facts.flops / 1e6).toFixed(1)} MFLOP, ${(facts.flops / facts.time / 1e9).toFixed(0)} GFLOP/s`);
    if (facts.bytes) row("of the roofline", percent(facts.roofline));
  }
  if (facts.error !== undefined) row("error", facts.error === 0 ? "none" : facts.error.toExponential(1));
  return [el("h3", {}, "Measured"), el("dl", {}, ...rows)];
}

// Launches by time with their bars; the errors of layers by size.
function profilePane(holder, data, variant, onOp) {
  const empty = el("p", { class: "note" }, "Nothing was measured. ", el("code", {}, "graphwright bench OUT.gw --profile --json profile.json"), " and ", el("code", {}, "graphwright verify MODEL --layers --json errors.json"), " measure; ", el("code", {}, "graphwright viz … --profile profile.json --errors errors.json"), " shows it here and over the graph.");
  if (!data.profile && !data.errors) return holder.replaceChildren(empty);
  const parts = [];
  const go = (ops, text) => (ops.length ? el("a", { href: "#", onclick: (e) => (e.preventDefault(), onOp(String(ops[0]))) }, text) : text);
  if (data.profile) {
    const rows = [...data.profile.launches].sort((a, b) => b.seconds - a.seconds);
    const most = rows[0]?.seconds || 1;
    const { end_to_end, explained } = data.profile;
    const machine = data.profile.machine ? ` The machine: ${(data.profile.machine.flops / 1e9).toFixed(0)} GFLOP/s, ${(data.profile.machine.bandwidth / 1e9).toFixed(0)} GB/s.` : "";
    parts.push(
      el("p", { class: "note" }, `Kernels ${secondsText(explained)} of ${secondsText(end_to_end)} a call.${machine}`),
      el("table", { class: "wide" }, el("caption", {}, `${rows.length} launches by time`), el("tr", {}, ...["", "time", "share", "GB/s", "GFLOP/s", "of the roofline", "kernel", "layer"].map((t, n) => el("th", { class: n > 0 && n < 6 ? "n" : null }, t))),
        ...rows.slice(0, 200).map((l) => el("tr", {}, el("td", { class: "meter" }, el("i", { style: `width: ${(100 * l.seconds) / most}%` })), el("td", { class: "n" }, secondsText(l.seconds)), el("td", { class: "n" }, percent(l.seconds / (explained || 1))),
          el("td", { class: "n" }, l.bytes ? (l.bytes / l.seconds / 1e9).toFixed(1) : ""), el("td", { class: "n" }, l.flops ? (l.flops / l.seconds / 1e9).toFixed(0) : ""), el("td", { class: "n" }, l.bytes && l.roofline !== undefined ? percent(l.roofline) : ""), el("td", {}, go(l.ops, l.kernel)), el("td", {}, l.layers.filter((n) => !n.startsWith("Constant")).slice(-1)[0] ?? "")))),
    );
  }
  if (data.errors) {
    const rows = [...(data.errors.layers || [])].sort((a, b) => (b.relative === "inf" ? Infinity : b.relative) - (a.relative === "inf" ? Infinity : a.relative));
    parts.push(el("table", { class: "wide" }, el("caption", {}, `${rows.length} kernels by their distance from the op's definition (${data.errors.checked} checked, ${data.errors.skipped} skipped)`), el("tr", {}, ...["launch", "relative", "largest", "kernel", "layer"].map((t, n) => el("th", { class: n < 3 ? "n" : null }, t))),
      ...rows.slice(0, 200).map((e) => el("tr", {}, el("td", { class: "n" }, String(e.launch)), el("td", { class: "n" }, e.relative === "inf" ? "∞" : (+e.relative).toExponential(1)), el("td", { class: "n" }, e.max === "inf" ? "∞" : (+e.max).toExponential(1)), el("td", {}, go([e.op], e.kernel)), el("td", {}, e.layers.filter((n) => !n.startsWith("Constant")).slice(-1)[0] ?? "")))));
  }
  return holder.replaceChildren(...parts);
}
