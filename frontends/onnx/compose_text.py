"""TfIdfVectorizer of integers: n-grams counted by comparing every window with every n-gram."""

from __future__ import annotations

import itertools

import numpy as np

from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import F32, I64
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal


def tf_idf_vectorizer(node: Node) -> Value:
    """How often each n-gram of the pool is in each row, weighted as `mode` says."""
    if node.has("pool_strings"):
        raise Refusal("its pool holds strings, which are not supported", "do it before the model")
    x = node.x()
    if x.type.rank not in (1, 2) or not x.type.dtype.is_integer:
        raise Refusal(f"its input is {x.type}, want integers of rank 1 or 2")
    is_vector = x.type.rank == 1
    rows = node.cast(node.unsqueeze(x, (0,)) if is_vector else x, I64)
    grams = _pool(node)
    counts = [_count(node, rows, table) for table in grams]
    found = counts[0] if len(counts) == 1 else node.emit("concat", *counts, axis=1)
    weighted = _weighted(node, found)
    out = _placed(node, weighted, list(node.attr("ngram_indexes")))
    return node.reshape(out, out.type.shape[1:]) if is_vector else out


def _pool(node: Node) -> list[np.ndarray]:
    """The n-grams by length, [count, n] each, in the order of the pool; lengths that are not asked
    for have rows that nothing equals."""
    pool = np.array(node.attr("pool_int64s", ()), np.int64)
    starts = [*node.attr("ngram_counts"), len(pool)]
    if sorted(starts) != starts or starts[0] != 0:
        raise Refusal(f"its ngram_counts are {starts[:-1]} for a pool of {len(pool)}")
    out: list[np.ndarray] = []
    for n, (start, end) in enumerate(itertools.pairwise(starts), 1):
        if (end - start) % n:
            raise Refusal(f"its pool has {end - start} numbers for n-grams of {n}")
        out.append(pool[start:end].reshape(-1, n))
    if sum(map(len, out)) != len(node.attr("ngram_indexes")):
        raise Refusal("its ngram_indexes are not one for each n-gram of the pool")
    return out


def _count(node: Node, rows: Value, grams: np.ndarray) -> Value:
    """f32[N, count]: how often each n-gram is in a row, its elements 1 to max_skip_count + 1 apart."""
    count, n = grams.shape
    batch, length = rows.type.shape
    if not isinstance(length, int):
        raise Refusal(f"its rows have the length {length}, want a known one", "fix it with --shape")
    total = node.full(0.0, F32, (batch, count))
    skips = node.attr("max_skip_count") + 1 if n > 1 else 1
    if not node.attr("min_gram_length") <= n <= node.attr("max_gram_length") or not count:
        return total
    for step in range(1, skips + 1):
        windows = length - (n - 1) * step
        if windows < 1:
            break
        same: Value | None = None
        for k in range(n):
            part = node.unsqueeze(node.slice_axis(rows, 1, k * step, windows), (2,))
            equal = node.emit("equal", part, node.array(np.ascontiguousarray(grams[:, k])))
            same = equal if same is None else node.emit("logical_and", same, equal)
        assert same is not None
        here = node.emit("reduce_sum", node.cast(same, F32), axes=(1,), keepdims=False)
        total = node.emit("add", total, here)
    return total


def _weighted(node: Node, found: Value) -> Value:
    mode = node.attr("mode")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise Refusal(f"its mode is {mode!r}, want TF, IDF or TFIDF")
    weights = node.attr("weights", ())
    if mode == "IDF":
        found = node.emit("minimum", found, node.scalar(1, F32))
    if mode == "TF" or not weights:
        return found
    if len(weights) != found.type.shape[1]:
        raise Refusal(f"it has {len(weights)} weights for {found.type.shape[1]} n-grams")
    return node.emit("mul", found, node.array(np.array(weights, np.float32)))


def _placed(node: Node, found: Value, indexes: list[int]) -> Value:
    """The numbers of the n-grams at their places in the output; zeros elsewhere."""
    if min(indexes, default=0) < 0 or len(set(indexes)) != len(indexes):
        raise Refusal("its ngram_indexes are negative or name a place twice")
    width = max(indexes, default=-1) + 1
    where = np.full(width, len(indexes), np.int64)
    where[indexes] = np.arange(len(indexes))
    zero = node.full(0.0, F32, (found.type.shape[0], 1))
    return node.gather(node.emit("concat", found, zero, axis=1), node.array(where), 1)


COMPOSE = {"TfIdfVectorizer": tf_idf_vectorizer}
