// Repeated blocks of a graph, for folding what has no module paths: runs of ops that come again, one
// right after the other, with the same ops, attributes and types of results.

// Map from op key to "name/number": the longest runs first, found over all periods up to MOST.
const LEAST = 3, MOST = 400; // ops in one block

function repeatedBlocks(state) {
  const ids = state.order.filter((id) => state.ops.get(id).op !== "constant");
  const numbers = new Map();
  const labels = Int32Array.from(ids, (id) => {
    const op = state.ops.get(id);
    const text = JSON.stringify([label(op), (op.out || []).map((o) => o[0])]);
    if (!numbers.has(text)) numbers.set(text, numbers.size);
    return numbers.get(text);
  });
  const runs = []; // [first, period, ops covered]
  for (let period = LEAST; period <= Math.min(MOST, labels.length >> 1); period++) {
    let length = 0;
    for (let n = 0; n + period <= labels.length; n++) {
      if (n + period < labels.length && labels[n] === labels[n + period]) {
        length++;
        continue;
      }
      if (length >= period) runs.push([n - length, period, Math.floor(length / period + 1) * period]);
      length = 0;
    }
  }
  runs.sort((a, b) => b[2] - a[2] || a[1] - b[1] || a[0] - b[0]);
  const taken = new Uint8Array(labels.length), found = new Map();
  let name = 0;
  for (const [first, period, covered] of runs) {
    if (new Set(labels.subarray(first, first + period)).size < 2) continue; // one op over and over
    if (taken.subarray(first, first + covered).some((t) => t)) continue;
    taken.fill(1, first, first + covered);
    const count = covered / period;
    const title = `block ${String.fromCharCode(65 + (name % 26))}${name > 25 ? Math.floor(name / 26) : ""}`;
    for (let n = 0; n < covered; n++) found.set(String(ids[first + n]), `${title}, ${count} times/${title} ${Math.floor(n / period) + 1} of ${count}`);
    name++;
  }
  return found;
}

// The first part of a path that is folded, or null.
function foldedPrefix(path, folded) {
  if (!path || !folded.size) return null;
  for (let at = path.indexOf("/"); ; at = path.indexOf("/", at + 1)) {
    const prefix = at < 0 ? path : path.slice(0, at);
    if (prefix && folded.has(prefix)) return prefix;
    if (at < 0) return null;
  }
}
