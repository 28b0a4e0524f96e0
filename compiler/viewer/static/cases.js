// The selection as a minimal test case: a graph in the IR's own text that the compiler reads.

// The ops `ids` of a state in order.  What they read from outside becomes an input, as do constants
// whose contents are not in the trace.  Inputs and outputs of a graph lie in row-major order: a
// relayout gives those of another layout theirs.  Throws when an op holds such a constant inside.
function caseText(state, ids) {
  const chosen = new Set(ids);
  const names = new Map(), inputs = [], lines = [];
  const incomplete = (text) => text.includes("dense<#");
  let count = 0;
  const typeOf = (reference) => {
    if (reference.startsWith("i")) return state.inputs[+reference.slice(1)][1];
    const [id, index] = reference.split(".");
    return state.ops.get(+id).out[+(index || 0)][0];
  };
  const take = (reference) => {
    if (names.has(reference)) return;
    const maker = reference.startsWith("i") ? null : state.ops.get(+reference.split(".")[0]);
    if (maker?.op === "constant" && !incomplete(maker.attributes?.value ?? "<#")) {
      names.set(reference, `%${count++}`);
      lines.push(`  ${names.get(reference)} = constant {value = ${maker.attributes.value}} : ${maker.out[0][0]}`);
    } else {
      const [plain, layout] = plainType(typeOf(reference));
      let name = `%x${inputs.length}`;
      inputs.push(`  input ${name}: ${plain}`);
      if (layout) {
        lines.push(`  %${count} = relayout(${name}) {layout = layout<${layout}>} : ${plain}{${layout}}`);
        name = `%${count++}`;
      }
      names.set(reference, name);
    }
  };
  const outside = new Set((state.border.outputs || []).filter((r) => chosen.has(+r.split(".")[0])));
  const read = new Set();
  for (const id of state.order) for (const r of state.ops.get(id).in || []) {
    if (!chosen.has(+r.split(".")[0])) continue;
    read.add(r);
    if (!chosen.has(id)) outside.add(r);
  }
  for (const id of state.order) {
    const op = state.ops.get(id);
    if (!chosen.has(id) || op.op === "constant") continue;
    for (const r of op.in || []) take(r);
    const results = (op.out || []).map((_, n) => (n ? `${id}.${n}` : String(id)));
    const operands = (op.in || []).map((r) => names.get(r));
    results.forEach((r) => names.set(r, `%${count++}`));
    lines.push(...caseLines(op, operands, results.map((r) => names.get(r)), "  "));
    for (const r of results) if (!read.has(r)) outside.add(r);
  }
  const outputs = [...outside].filter((r) => names.has(r)).map((r) => {
    const [plain, layout] = plainType(typeOf(r));
    if (!layout) return names.get(r);
    lines.push(`  %${count} = relayout(${names.get(r)}) : ${plain}`);
    return `%${count++}`;
  });
  const body = [...inputs, ...lines].join("\n");
  if (incomplete(body)) throw new Error("an op of the selection holds a constant whose contents are not in the trace");
  const symbols = (state.border.symbols || []).filter((s) => new RegExp(`(^|[^\\w.])${s.split(" ")[0].replace(/[.*+?^$\{}()|[\]\\]/g, "\\$&")}([^\\w]|$)`).test(body));
  return `graph @case(${symbols.join(", ")}) {\n${body}\n  return ${outputs.map((name, n) => `${name} as "y${n}"`).join(", ")}\n}\n`;
}

// "f32[2, 3]{1,0}" as ["f32[2, 3]", "1,0"].
function plainType(type) {
  const at = type.indexOf("]{");
  return at < 0 ? [type, ""] : [type.slice(0, at + 1), type.slice(at + 2, -1)];
}

function caseLines(op, operands, results, indent) {
  const attributes = Object.entries(op.attributes || {}).filter(([k]) => k !== "recipe" || op.op !== "constant");
  let line = `${indent}${results.length ? results.join(", ") + " = " : ""}${op.op}`;
  if (operands.length) line += `(${operands.join(", ")})`;
  if (attributes.length) line += ` {${attributes.map(([k, v]) => `${k} = ${v}`).join(", ")}}`;
  if (op.out?.length) line += ` : ${op.out.map(([t]) => t).join(", ")}`;
  if (op.from?.length) line += ` from ${op.from.map((f) => JSON.stringify(f)).join(", ")}`;
  const lines = [line];
  for (const body of op.bodies || []) {
    const names = new Map(body.inputs.map((_, n) => ["i" + n, `%a${n}`]));
    lines.push(`${indent}  ${body.name}(${body.inputs.map(([, type], n) => `%a${n}: ${type}`).join(", ")}) {`);
    let count = 0;
    for (const inner of body.ops) {
      const made = (inner.out || []).map((_, n) => (n ? `${inner.id}.${n}` : String(inner.id)));
      const given = (inner.in || []).map((r) => names.get(r));
      made.forEach((r) => names.set(r, `%${count++}`));
      lines.push(...caseLines(inner, given, made.map((r) => names.get(r)), indent + "    "));
    }
    lines.push(`${indent}    return ${body.outputs.map((r) => names.get(r)).join(", ")}`.trimEnd(), `${indent}  }`);
  }
  return lines;
}

function saveCase(state, ids) {
  let text;
  try {
    text = caseText(state, ids);
  } catch (error) {
    $("case-text").value = String(error.message);
    $("case").showModal();
    return;
  }
  $("case-text").value = text;
  const link = $("case-save");
  if (link.href.startsWith("blob:")) URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  $("case").showModal();
}
