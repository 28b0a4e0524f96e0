"""The CPU kernel where it cuts its work: chunks of keys, parts of few rows, blocks of many; operands
and results that lie otherwise than row-major; every ISA level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphwright.compiler.driver import compile_graph
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.target import Target
from graphwright.runtime import load

RNG = np.random.default_rng(5)
LEVELS = ("native", "x86-64-v3")


def attention(extra: str = "", *, inputs: str = "", operands: str = "", groups: str = "H") -> str:
    """A graph that reads q, k and v from [B, S, H * D] storage and gives the result there."""
    return f"""graph @main(B, H, G, S, T, D, E) {{
  input %x: f32[B, S, H, D]
  input %y: f32[B, T, {groups}, D]
  input %z: f32[B, T, {groups}, E]
  {inputs}
  %q = transpose(%x) {{permutation = [0, 2, 1, 3]}} : f32[B, H, S, D]
  %k = transpose(%y) {{permutation = [0, 2, 1, 3]}} : f32[B, {groups}, T, D]
  %v = transpose(%z) {{permutation = [0, 2, 1, 3]}} : f32[B, {groups}, T, E]
  %a = attention(%q, %k, %v{operands}) {{scale = 0.3{extra}}} : f32[B, H, S, E]
  %b = transpose(%a) {{permutation = [0, 2, 1, 3]}} : f32[B, S, H, E]
  return %b as "out"
}}"""


def graph_of(text: str, **sizes: int) -> Graph:
    """The graph with these numbers for its symbols."""
    for name, size in sizes.items():
        text = "".join(_numbered(part, name, size) for part in _split(text))
    return parse_graph(text.replace("@main(B, H, G, S, T, D, E)", "@main()"), registry=REGISTRY)


def _split(text: str) -> list[str]:
    """Pieces that are inside square brackets or not, in order."""
    out = [""]
    for character in text:
        if character == "[":
            out.append("")
        out[-1] += character
        if character == "]":
            out.append("")
    return out


def _numbered(part: str, name: str, size: int) -> str:
    return part.replace(name, str(size)) if part.startswith("[") else part


def check(graph: Graph, level: str, feed: list[np.ndarray]) -> None:
    artifact = compile_graph(
        graph.clone(), Target.parse(f"cpu:{level}"), CompileOptions.make(jobs=1)
    )
    model = load(artifact.to_bytes(), threads=2)
    names = [i.name for i in model.inputs]
    (want,) = evaluate(graph, feed)
    first, again = (
        next(iter(model.run(dict(zip(names, feed, strict=True))).values())) for _ in range(2)
    )
    assert np.array_equal(first, again)
    error = np.linalg.norm(first - want) / np.linalg.norm(want)
    assert error <= 1e-6, error


def inputs(b: int, h: int, g: int, s: int, t: int, d: int, e: int) -> list[np.ndarray]:
    shapes = ((b, s, h, d), (b, t, g, d), (b, t, g, e))
    return [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]


CASES: dict[str, tuple[dict[str, Any], tuple[int, ...], str]] = {
    "chunks": ({}, (1, 2, 2, 40, 1100, 24, 40), ""),
    "chunks_causal": ({"extra": ', causal = true, align = "end"'}, (2, 2, 2, 30, 1300, 32, 32), ""),
    "window": ({"extra": ", causal = true, window = [40, -1]"}, (1, 2, 2, 1100, 1100, 16, 16), ""),
    "blocks": ({}, (1, 1, 1, 700, 50, 64, 33), ""),
    "parts": ({}, (1, 2, 2, 1, 3000, 128, 128), ""),
    "parts_shared": (
        {"groups": "G", "extra": ', causal = true, align = "end"'}, (1, 8, 2, 2, 2100, 64, 80), "",
    ),
    "shared": ({"groups": "G"}, (2, 6, 2, 33, 65, 16, 16), ""),
    "bias": (
        {"inputs": "input %m: f32[1, H, S, T]", "operands": ", %m"}, (2, 3, 3, 20, 600, 16, 16),
        "bias",
    ),
    "few_bias": (
        {"inputs": "input %m: f32[B, 1, 1, T]", "operands": ", %m"}, (3, 4, 4, 1, 77, 48, 48),
        "keys",
    ),
    "mask": (
        {"inputs": "input %m: bool[B, 1, S, T]", "operands": ", %m"}, (2, 3, 3, 20, 600, 16, 16),
        "mask",
    ),
}  # fmt: skip


@pytest.mark.parametrize("level", LEVELS)
def test_cuts(level: str) -> None:
    """Each case, with operands and result as [batch, position, head, element]."""
    for name, (given, sizes, more) in CASES.items():
        b, h, _, s, t, *_ = sizes
        feed = inputs(*sizes)
        if more == "mask":
            feed.append(RNG.random((b, 1, s, t)) > 0.4)
        elif more:
            shape = (1, h, s, t) if more == "bias" else (b, 1, 1, t)
            feed.append(RNG.standard_normal(shape).astype(np.float32))
        graph = graph_of(attention(**given), **dict(zip("BHGSTDE", sizes, strict=True)))
        try:
            check(graph, level, feed)
        except AssertionError as error:
            error.add_note(name)
            raise


def test_epilogue_and_keys_that_lie_turned() -> None:
    """k as [B, H, D, T]; a residual is added to the result before it is moved."""
    graph = parse_graph(
        """graph @main(S, T) {
  input %q: f32[2, 3, S, 16]
  input %turned: f32[2, 3, 16, T]
  input %v: f32[2, 3, T, 16]
  input %r: f32[2, 3, S, 16]
  %k = transpose(%turned) {permutation = [0, 1, 3, 2]} : f32[2, 3, T, 16]
  %a = attention(%q, %k, %v) {scale = 0.25} : f32[2, 3, S, 16]
  %b = add(%a, %r) : f32[2, 3, S, 16]
  %c = relu(%b) : f32[2, 3, S, 16]
  %d = transpose(%c) {permutation = [0, 2, 1, 3]} : f32[2, S, 3, 16]
  return %d as "out"
}""",
        registry=REGISTRY,
    )
    for s, t in ((1, 5), (50, 600)):
        shapes = ((2, 3, s, 16), (2, 3, 16, t), (2, 3, t, 16), (2, 3, s, 16))
        check(graph, "native", [RNG.standard_normal(x).astype(np.float32) for x in shapes])
    artifact = compile_graph(graph, Target.parse("cpu:native"), CompileOptions.make())
    assert len(artifact.manifest.variants[0].launches) == 1, "one kernel, no copies"
