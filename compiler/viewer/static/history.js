// The graphs of a trace: the state after every pass and step, and what differs between two of them.

class State {
  constructor(ops, order, border, inputs) {
    this.ops = ops; // Map from id to record; records are never changed
    this.order = order;
    this.border = border;
    this.inputs = inputs;
  }

  static of(graph) {
    const { ops, inputs, name, ...border } = graph;
    return new State(new Map(ops.map((op) => [op.id, op])), ops.map((op) => op.id), border, inputs);
  }

  // The state after these deltas; this one stays as it is.
  with(...deltas) {
    deltas = deltas.filter((d) => d && Object.keys(d).length);
    if (!deltas.length) return this;
    const touched = deltas.some((d) => d.erase || d.add);
    const made = new State(new Map(this.ops), touched ? this.order.slice() : this.order, { ...this.border }, this.inputs);
    for (const delta of deltas) made._apply(delta);
    return made;
  }

  _apply(delta) {
    const { ops, order, border } = this;
    for (const id of delta.erase || []) {
      ops.delete(id);
      order.splice(order.indexOf(id), 1);
    }
    for (const [anchor, record] of delta.add || []) {
      ops.set(record.id, record);
      order.splice(anchor === null ? order.length : order.indexOf(anchor), 0, record.id);
    }
    for (const [id, fields] of delta.set || []) {
      const record = { ...ops.get(id), ...fields };
      for (const key of Object.keys(fields)) if (fields[key] === null) delete record[key];
      ops.set(id, record);
    }
    for (const [key, value] of Object.entries(delta.border || {})) {
      if (value === null) delete border[key];
      else border[key] = value;
    }
    if (delta.order) this.order = delta.order.slice();
  }
}

class History {
  constructor(initial, passes) {
    this.passes = passes;
    this.after = [State.of(initial)]; // after[k]: before pass k, after pass k - 1
    this.steps = null; // {pass, states} of the pass that was last stepped through
  }

  before(pass) {
    while (this.after.length <= pass) {
      const each = this.passes[this.after.length - 1];
      const state = this.after[this.after.length - 1];
      this.after.push(state.with(...each.steps.map((s) => s.delta), each.rest));
    }
    return this.after[pass];
  }

  // The graph after step number `step` of a pass; -1: after the whole pass.
  at(pass, step) {
    if (step < 0) return this.before(pass + 1);
    if (!this.steps || this.steps.pass !== pass) this.steps = { pass, states: [this.before(pass)] };
    const states = this.steps.states;
    while (states.length <= step + 1) {
      states.push(states[states.length - 1].with(this.passes[pass].steps[states.length - 1].delta));
    }
    return states[step + 1];
  }
}

const same = (a, b) => a === b || JSON.stringify(a) === JSON.stringify(b);

// Map from id to {mark, fields}: "added", "removed", "changed", "rewired", "moved".
function difference(before, after) {
  const marks = new Map();
  if (before === after) return marks;
  for (const id of before.order) if (!after.ops.has(id)) marks.set(id, { mark: "removed", fields: [] });
  for (const id of after.order) {
    const [old, now] = [before.ops.get(id), after.ops.get(id)];
    if (old === now) continue;
    if (!old) {
      marks.set(id, { mark: "added", fields: [] });
      continue;
    }
    const fields = ["op", "attributes", "out", "bodies", "from", "in"].filter((f) => !same(old[f], now[f]));
    if (fields.length) marks.set(id, { mark: fields[0] === "in" ? "rewired" : "changed", fields });
  }
  if (before.order !== after.order) {
    for (const id of reordered(before, after)) if (!marks.has(id)) marks.set(id, { mark: "moved", fields: ["order"] });
  }
  return marks;
}

// The ids that left the longest run of ops which kept their order.
function reordered(before, after) {
  const place = new Map(before.order.map((id, n) => [id, n]));
  const common = after.order.filter((id) => place.has(id));
  const tails = [], previous = new Array(common.length);
  common.forEach((id, n) => {
    const p = place.get(id);
    let [low, high] = [0, tails.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (place.get(common[tails[middle]]) < p) low = middle + 1;
      else high = middle;
    }
    previous[n] = low ? tails[low - 1] : -1;
    tails[low] = n;
  });
  const kept = new Set();
  for (let n = tails.length ? tails[tails.length - 1] : -1; n >= 0; n = previous[n]) kept.add(common[n]);
  return common.filter((id) => !kept.has(id));
}

function inputNames(state) {
  return state.inputs.map(([name], n) => name || `input ${n}`);
}

function shown(reference, names) {
  return reference.startsWith("i") ? "%" + (names[+reference.slice(1)] ?? reference) : "%" + reference;
}

// The lines of one op in the text form, its bodies indented below it.
function opLines(record, names, indent = "") {
  const results = (record.out || []).map((_, n) => "%" + record.id + (n ? "." + n : "")).join(", ");
  const operands = (record.in || []).map((r) => shown(r, names)).join(", ");
  const attributes = Object.entries(record.attributes || {}).map(([k, v]) => `${k} = ${v}`).join(", ");
  let line = indent + (results ? results + " = " : "") + record.op;
  if (operands) line += `(${operands})`;
  if (attributes) line += ` {${attributes}}`;
  if (record.out) line += " : " + record.out.map(([type]) => type).join(", ");
  const lines = [line];
  for (const body of record.bodies || []) {
    const inner = body.inputs.map(([name], n) => name || "a" + n);
    lines.push(`${indent}  ${body.name}(${body.inputs.map(([, type], n) => `%${inner[n]}: ${type}`).join(", ")}) {`);
    for (const op of body.ops) lines.push(...opLines(op, inner, indent + "    "));
    lines.push(`${indent}    return ${body.outputs.map((r) => shown(r, inner)).join(", ")}`, `${indent}  }`);
  }
  return lines;
}

// What an op is, in a few words: a region says what it computes.
const labels = new WeakMap(); // records are never changed
function label(record) {
  if (record.op !== "fused" || !record.bodies) return record.op;
  if (!labels.has(record)) labels.set(record, regionLabel(record));
  return labels.get(record);
}

function regionLabel(record) {
  const inside = record.bodies[0].ops.filter((op) => op.op !== "constant").map((op) => op.op);
  const counts = new Map();
  inside.forEach((name) => counts.set(name, (counts.get(name) || 0) + 1));
  return [...counts].map(([name, n]) => (n > 1 ? `${name}×${n}` : name)).join(" + ");
}
