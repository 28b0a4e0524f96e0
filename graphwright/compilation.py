"""From a source to a compiled model: what the API, the command line and benchmarks share."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graphwright.compiler.options import CompileOptions
from graphwright.errors import InputError, Problem

if TYPE_CHECKING:
    from graphwright.compiler.codegen.package import Artifact
    from graphwright.compiler.ir.dims import Symbol
    from graphwright.compiler.ir.graph import Graph
    from graphwright.compiler.passes.base import Listener
    from graphwright.runtime import CompiledModel


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What keeps a model from being compiled: every problem at once."""

    problems: tuple[Problem, ...]
    model: str = ""
    ops: Mapping[str, int] | None = None

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True)
class Build:
    """An artifact in memory, with what the report needs.  `seconds` by stage."""

    artifact: Artifact
    graph: Graph
    options: CompileOptions
    model: str
    seconds: Mapping[str, float]


def compile(source: Any, example_inputs: Any = None, **options: Any) -> CompiledModel:
    """Compiles an ONNX model: a path, bytes, file object, ModelProto or onnxscript function.

    `options` are the fields of CompileOptions.  Raises GraphwrightError: UnsupportedError lists
    every op, attribute or type that stands in the way.
    """
    from graphwright.runtime import load

    if example_inputs is not None:
        raise InputError(
            "example_inputs are for torch modules; an ONNX model has its inputs: leave it out, or "
            "say shapes={...}"
        )
    built = build(source, CompileOptions.make(**options))
    return load(built.artifact.to_bytes(), threads=built.options.threads or None)


def check(source: Any, *, shapes: Any = None, allow: Any = ()) -> CheckReport:
    """What of a model is not supported, found without compiling it."""
    from graphwright.frontends.onnx import check_model
    from graphwright.frontends.onnx.source import read_source

    options = CompileOptions.make(shapes=shapes, allow=allow)
    read = read_source(source)
    problems = check_model(
        read, shapes=resolve_shapes(read.proto.graph, options), allow=options.allow
    )
    ops = Counter(node.op_type for node in read.proto.graph.node)
    return CheckReport(tuple(problems), read.name, dict(sorted(ops.items())))


def resolve_shapes(graph: Any, options: CompileOptions) -> dict[str, tuple[int | Symbol, ...]]:
    """The shapes of an ONNX graph's inputs under options.shapes; {} where it says nothing."""
    from graphwright.compiler.ir.shape_resolution import resolve
    from graphwright.compiler.ir.shapes import ShapeError

    if not options.shapes:
        return {}
    weights = {t.name for t in graph.initializer}
    declared: dict[str, list[Any] | None] = {}
    for info in graph.input:
        if info.name in weights and info.name not in options.shapes.inputs:
            continue
        tensor = info.type.tensor_type
        declared[info.name] = (
            [d.dim_value if d.HasField("dim_value") else d.dim_param for d in tensor.shape.dim]
            if tensor.HasField("shape")
            else None
        )
    try:
        shapes = resolve(options.shapes, declared)
    except ShapeError as error:
        raise InputError(f"shapes: {error}") from None
    return {name: dims for name, dims in shapes.items() if dims is not None}


def import_source(source: Any, options: CompileOptions) -> Graph:
    """The IR graph of a source, its inputs as options.shapes says."""
    from graphwright.frontends.onnx import import_model
    from graphwright.frontends.onnx.source import read_source

    read = read_source(source)
    shapes = resolve_shapes(read.proto.graph, options)
    return import_model(read, shapes=shapes, allow=options.allow)


def build(source: Any, options: CompileOptions, *, listeners: Sequence[Listener] = ()) -> Build:
    """The artifact of a source, in memory.  Raises GraphwrightError."""
    from graphwright.compiler.driver import compile_graph

    start = time.perf_counter()
    graph = import_source(source, options)
    imported = time.perf_counter()
    artifact = compile_graph(graph, options.target, options, listeners=listeners)
    seconds = {"import": imported - start, "compile": time.perf_counter() - imported}
    return Build(artifact, graph, options, graph.name, seconds)
