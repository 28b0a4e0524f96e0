// Why two ops are not one kernel, not one buffer, not one layout.

function refusalsBetween(a, b) {
  const [left, right] = [new Set(ancestors(a)), new Set(ancestors(b))];
  return DATA.passes.flatMap((p) => p.refusals.filter((r) => r.ops.some((o) => left.has(o)) && r.ops.some((o) => right.has(o))).map((r) => ({ ...r, rule: `${p.name}/${r.rule}` })));
}

// The launches that compute what became of an op, [launch, number] each.
function launchesOf(id) {
  const last = history_.before(DATA.passes.length);
  const ids = new Set([id]);
  for (const each of DATA.passes) for (const step of each.steps) if (step.consumed.some((c) => ids.has(c))) step.produced.forEach((p) => ids.add(p));
  const living = new Set([...ids].filter((i) => last.ops.has(i)));
  return (variant?.launches || []).map((l, n) => [l, n]).filter(([l]) => (l.ops || []).some((o) => living.has(o)));
}

const kernelName = (launch) => ((launch.kind ?? "kernel") === "kernel" ? variant.kernels[launch.kernel ?? 0]?.name : launch.kind);
const written = (launch) => (launch.writes || []).map((w) => launch.pointers[w]).filter((p) => p);

function whyNotFused(a, b) {
  const [la, lb] = [launchesOf(a), launchesOf(b)];
  const shared = la.find(([, n]) => lb.some(([, m]) => n === m));
  if (shared) return [el("p", {}, `They are: launch ${shared[1]}, ${kernelName(shared[0])}.`)];
  const between = refusalsBetween(a, b);
  if (between.length) return [refusalList(between)];
  const alone = [...refusalsOf([a]), ...refusalsOf([b])].filter((r) => r.rule.startsWith("fuse"));
  if (alone.length) return [el("p", {}, "No pass considered just these two. Of one of them:"), refusalList(alone)];
  return [el("p", { class: "note" }, "No pass considered joining these two: fusion joins an op with what it reads or with its reader, of kinds that have one loop.")];
}

// By the rules of the planner (compiler/passes/storage.py): a result may take its operand's place when
// that dies there, is large enough, lies in the arena, and the kernel reads each element before
// it writes there.
function whyNotInPlace(a, b) {
  if (!variant) return [el("p", { class: "note" }, "No artifact was made in this trace: there is no memory plan.")];
  const [makers, readers] = [launchesOf(a), launchesOf(b)];
  if (!makers.length || !readers.length) return [el("p", { class: "note" }, "One of them is no launch: a view, a constant, or gone.")];
  const [[from, made], [to, at]] = [makers[makers.length - 1], readers[0]];
  if (made === at) return [el("p", {}, "They are one kernel: what is between them is never in memory.")];
  const buffers = placed(variant.plan || {}, sizes);
  for (const source of written(from)) for (const target of written(to)) {
    const [space, index] = source, [otherSpace, other] = target;
    if (space !== "arena") return [el("p", {}, `The result of launch ${made} lies in an ${space} of the model: that memory is the caller's.`)];
    if (otherSpace !== "arena") return [el("p", {}, `Launch ${at} writes an ${otherSpace} of the model, into the caller's memory.`)];
    if (index === other) return [el("p", {}, `They share one: launch ${at} (${kernelName(to)}) writes buffer ${index} in place.`)];
    const [old, fresh] = [buffers[index], buffers[other]];
    if (!old || !fresh) continue;
    if (!to.pointers.some(([s, i]) => s === "arena" && i === index)) return [el("p", {}, `Launch ${at} does not read buffer ${index}.`)];
    if (old.last > at) {
      const reader = variant.launches[old.last];
      return [el("p", {}, `Buffer ${index} is still read by launch ${old.last} (${kernelName(reader)}).`)];
    }
    if (fresh.size > old.size) return [el("p", {}, `The result needs ${bytesText(fresh.size)}, buffer ${index} has ${bytesText(old.size)}.`)];
    return [el("p", {}, `${kernelName(to)} does not promise to read every element before it writes there (it is no elementwise map of that operand, or several kernels' threads read it).`)];
  }
  return [el("p", { class: "note" }, "The plan says nothing of these two.")];
}

function whyNotLaidOut(a, b, state) {
  const layout = (type) => /\}$/.test(type) ? type.slice(type.lastIndexOf("{")) : "row-major";
  const [ra, rb] = [state.ops.get(a), state.ops.get(b)];
  if (!ra || !rb) return [el("p", { class: "note" }, "One of them is not in the graph at this point.")];
  const [one, two] = [layout(ra.out?.[0]?.[0] ?? ""), layout(rb.out?.[0]?.[0] ?? "")];
  const parts = [el("p", {}, one === two ? `Both results lie ${one}.` : `%${a} lies ${one}, %${b} lies ${two}.`)];
  const moved = [ra, rb].filter((r) => label(r) === "relayout" || r.op === "relayout");
  if (moved.length) parts.push(el("p", {}, "A relayout moves the bytes: what makes the value and what reads it are fixed to different orders (convolutions and pools want channels innermost; inputs, outputs and most others are row-major)."));
  else if (one !== two) parts.push(el("p", {}, `%${b} makes its result in the order that its readers want; its kernel reads %${a} by strides, so that no bytes are moved.`));
  const said = [...refusalsOf([a]), ...refusalsOf([b])].filter((r) => r.rule.startsWith("propagate-layout"));
  if (said.length) parts.push(refusalList(said));
  if (!state.order.some((id) => (state.ops.get(id).out || []).some(([t]) => t.endsWith("}")))) parts.push(el("p", { class: "note" }, "No layout was chosen at this point: every tensor is row-major."));
  return parts;
}

function pairDetails(a, b) {
  const state = frame.after.ops.has(b) ? frame.after : frame.before;
  return [
    el("h3", {}, "Why not fused"), ...whyNotFused(a, b),
    el("h3", {}, "Why not in place"), ...whyNotInPlace(a, b),
    el("h3", {}, "Why not laid out alike"), ...whyNotLaidOut(a, b, state),
  ];
}
