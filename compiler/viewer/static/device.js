// What runs as a CUDA graph and what does not; which candidates the tuner timed.

const BREAKS = { branch: "a condition that the run decides", jump: "the end of a branch", loop: "a loop that the run ends", next: "a loop that the run ends", bind: "sizes that only the run knows", check: "a check in mid-run", host: "runs on the host" };

// Runs of launches that a graph holds: {first, last, kernels} or {first, last, why}.
function captureRegions(variant) {
  const regions = [];
  (variant.launches || []).forEach((launch, n) => {
    const kind = launch.kind ?? "kernel";
    const why = variant.capture || (kind === "kernel" ? "" : launch.reason || BREAKS[kind] || kind);
    const last = regions[regions.length - 1];
    if (last && last.why === why) last.last = n;
    else regions.push({ first: n, last: n, why });
  });
  return regions;
}

function graphsPane(holder, artifact, variant, onOp) {
  if (!variant.target.startsWith("cuda")) {
    return holder.replaceChildren(el("p", { class: "note" }, `This artifact is for ${variant.target}: its ${variant.launches.length} launches are replayed by a native loop, there is no CUDA graph.`));
  }
  const regions = captureRegions(variant);
  const captured = regions.filter((r) => !r.why);
  const total = variant.launches.length || 1;
  const strip = el("div", { class: "strip", role: "img", "aria-label": `${captured.length} captured regions` }, ...regions.map((r) => el("span", { class: r.why ? "break" : "captured", style: `flex: ${r.last - r.first + 1}`, title: `launches ${r.first}–${r.last}${r.why ? ": " + r.why : ""}` })));
  const symbols = (artifact.manifest.symbols || []).map((s) => s.name);
  const waits = variant.launches.filter((l) => variant.kernels[l.kernel ?? 0]?.waits).length;
  const names = (r) => [...new Set(variant.launches.slice(r.first, r.last + 1).map((l) => kernelName(l)))];
  const go = (r) => el("a", { href: "#", onclick: (e) => (e.preventDefault(), variant.launches[r.first].ops?.length && onOp(String(variant.launches[r.first].ops[0]))) }, `${r.first}–${r.last}`);
  const plan = variant.plan || {};
  const sized = Object.entries(plan.sizes || {}).filter(([, n]) => n < UNBOUNDED);
  return holder.replaceChildren(
    el("p", { class: "note" }, variant.capture ? `Nothing is captured: ${variant.capture}.` : `${captured.length} graph${captured.length === 1 ? "" : "s"} of ${total} launches, ${symbols.length ? `one for each set of sizes (${symbols.join(", ")}) that is called, the latest are kept` : "made at the first call"}. ${waits ? `${waits} kernels start before their predecessor ends.` : ""}`),
    strip,
    el("table", { class: "wide" }, el("caption", {}, "Regions"), el("tr", {}, ...["launches", "", "kernels", "why not"].map((t) => el("th", { class: "short" }, t))),
      ...regions.map((r) => el("tr", {}, el("td", {}, go(r)), el("td", { class: "short" }, r.why ? "not captured" : "captured"), el("td", {}, names(r).slice(0, 8).join(", ") + (names(r).length > 8 ? ` and ${names(r).length - 8} more` : "")), el("td", {}, r.why)))),
    tuningTable(DATA.tuning || []) ?? "",
    el("table", {}, el("caption", {}, "Memory of a graph's arena"), ...(sized.length ? sized : [["", 0]]).map(([k, n]) => el("tr", {}, el("td", {}, k), el("td", { class: "n" }, n ? bytesText(n) : "not known before the sizes are")))),
  );
}

// Candidates of one kernel that were timed: [[name, seconds, chosen]], the fastest first.
function candidatesOf(kernel, tuning) {
  const said = [...(kernel.candidates || []), ...tuning.filter((t) => t.what === kernel.summary).flatMap((t) => t.candidates || [])];
  return said.map((c) => [c.name ?? c.config ?? JSON.stringify(c), c.seconds, Boolean(c.chosen)]).sort((a, b) => a[1] - b[1]);
}

// One line for each kernel that had several ways: the fastest, what the choice won over the slowest.
function tuningTable(tuning) {
  if (!tuning.length) return null;
  const timed = (t) => t.candidates.filter((c) => c.seconds !== null);
  const row = (t) => {
    const times = timed(t).map((c) => c.seconds), mine = timed(t).find((c) => c.chosen)?.seconds;
    return el("tr", {}, el("td", {}, t.what), el("td", {}, el("code", {}, t.chosen)), el("td", {}, t.by), el("td", { class: "n" }, mine === undefined ? "" : secondsText(mine)), el("td", { class: "n" }, String(times.length)), el("td", { class: "n" }, mine ? `${(Math.max(...times) / mine).toFixed(2)}×` : ""));
  };
  return el("table", { class: "wide" }, el("caption", {}, `Ways of ${tuning.length} kernels`), el("tr", {}, ...["computes", "way", "chosen by", "time", "timed", "slowest"].map((t, n) => el("th", { class: n > 2 ? "n" : null }, t))), ...tuning.map(row));
}

function candidatesTable(kernel, tuning) {
  const rows = candidatesOf(kernel, tuning);
  const said = tuning.find((t) => t.what === kernel.summary);
  if (!rows.length) return el("span", { class: "facts" }, `no candidates were timed: the cost model chose ${said ? said.chosen : "it"}\n`);
  return el("table", {}, el("caption", {}, `${rows.length} candidates`), ...rows.map(([name, seconds, chosen]) => el("tr", { class: chosen ? "chosen" : "" }, el("td", {}, chosen ? "✓" : ""), el("td", { class: "n" }, seconds === undefined || seconds === null ? "failed" : secondsText(seconds)), el("td", {}, el("code", {}, name)))));
}
