"""From a source to a compiled model: what the API, the command line and benchmarks share."""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphwright.compiler.options import CompileOptions
from graphwright.errors import CompileError, InputError, Problem

if TYPE_CHECKING:
    from graphwright.compiler.assemble import Assembly
    from graphwright.compiler.codegen.package import Artifact
    from graphwright.compiler.ir.dims import Symbol
    from graphwright.compiler.ir.graph import Graph
    from graphwright.compiler.passes.base import Listener
    from graphwright.compiler.report import CompileReport
    from graphwright.compiler.trace import TraceWriter
    from graphwright.runtime import CompiledModel


RARELY = 50_000  # objects made between two collections of young ones
NEARLY_NEVER = 2_000_000


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
    """An artifact in memory, with what the report needs.

    `graph` is the final one, `assembly` says which value each argument of each launch is.  `seconds` by stage; `passes`: (name, seconds, changed) of each run.
    """

    artifact: Artifact
    graph: Graph
    options: CompileOptions
    model: str
    seconds: Mapping[str, float]
    passes: tuple[tuple[str, float, bool], ...]
    notes: tuple[str, ...]
    assembly: Assembly | None = None

    def report(self, artifact_bytes: int) -> CompileReport:
        """The report, given how large the artifact turned out."""
        from graphwright.compiler.ir.dims import MAX_EXTENT
        from graphwright.compiler.report import (
            CompileReport,
            count_graph,
            report_variant,
            weight_bytes,
        )

        manifest = self.artifact.manifest
        files = {path: len(data) for path, data in self.artifact.files.items()}
        return CompileReport(
            model=self.model,
            target=str(self.options.target),
            counts=count_graph(self.graph),
            variants=tuple(report_variant(v, files) for v in manifest.variants),
            weight_bytes=weight_bytes([w.spec for w in self.artifact.weights]),
            artifact_bytes=artifact_bytes,
            seconds=self.seconds,
            unbounded=tuple(s.name for s in manifest.symbols if s.max >= MAX_EXTENT),
            notes=self.notes,
            passes=self.passes,
        )


def compile(
    source: Any, example_inputs: Any = None, *, dynamic_shapes: Any = None, **options: Any
) -> CompiledModel:
    """Compiles an ONNX model (a path, bytes, file object, ModelProto or onnxscript function), a torch
    module in eval mode with `example_inputs` (a tuple, or a dict by name), an ExportedProgram or a
    .pt2 file.

    `options` are the fields of CompileOptions; a module's dynamic axes are `shapes` by argument name,
    or `dynamic_shapes` as torch.export takes them.  A compiled module is called like the module and
    returns what it returns.  Raises GraphwrightError: UnsupportedError lists every op, attribute or
    type that stands in the way.
    """
    from graphwright.runtime import load

    made = CompileOptions.make(**options)
    graph = import_source(
        source, made, example_inputs=example_inputs, dynamic_shapes=dynamic_shapes
    )
    built = build(source, made, graph=graph)
    return load(
        built.artifact.to_bytes(),
        device=built.options.target.kind,
        threads=built.options.threads or None,
    )


def report(compiled: Any) -> Any:
    """What torch.compile(backend="graphwright") made of a module or function: its graphs, why captures
    ended, kernels, precision, what runs in eager (a HookReport, which prints).
    """
    from graphwright.frontends.torch.record import report_of

    return report_of(compiled)


def save(compiled: Any, path: Any) -> None:
    """Writes the artifact of what torch.compile made (one graph, called once) or of a model."""
    from graphwright.frontends.torch.record import save_compiled

    save_compiled(compiled, path)


def check(source: Any, **options: Any) -> CheckReport:
    """What of a model is not supported, with the same options as `compile` but without compiling.

    Every problem at once: of the import, and of what could be imported on the way to kernels, as
    far as `compile` would get before it runs the C++ compiler.
    """
    from graphwright.compiler.driver import check_graph
    from graphwright.frontends.onnx import import_in_part
    from graphwright.frontends.onnx.source import read_source
    from graphwright.frontends.torch.source import is_torch

    if is_torch(source):
        return _check_torch(source, options)
    made = CompileOptions.make(**options)
    read = read_source(source)
    shapes = resolve_shapes(read.proto.graph, made)
    registry = made.registry
    with _collecting_rarely(NEARLY_NEVER):
        graph, problems = import_in_part(read, shapes=shapes, allow=made.allow, registry=registry)
        try:
            found = check_graph(graph, made.target, made)
        except CompileError:
            if not problems:
                raise
            found = ()  # the rest does not hold together without what is missing
    nodes = read.proto.graph.node
    known = {f"{n.name or f'{n.op_type}#{i}'}": n for i, n in enumerate(nodes)}
    versions = {e.domain: e.version for e in read.proto.opset_import}
    for p in found:
        node = known.get(p.node)
        version = 0 if node is None else versions.get(node.domain, 0)
        problems.append(replace(p, version=version))
    ops = Counter(n.op_type for n in nodes)
    return CheckReport(tuple(problems), read.name, dict(sorted(ops.items())))


def _check_torch(source: Any, options: dict[str, Any]) -> CheckReport:
    from graphwright.compiler.driver import check_graph
    from graphwright.frontends import torch as frontend
    from graphwright.frontends.torch.source import read_program

    given = {n: options.pop(n, None) for n in ("example_inputs", "dynamic_shapes")}
    made = CompileOptions.make(**options)
    program = read_program(source, made, **given)
    problems = frontend.check_program(program, allow=made.allow, registry=made.registry)
    if not problems:
        graph = frontend.import_program(program, allow=made.allow, registry=made.registry)
        problems = check_graph(graph, made.target, made)
    calls = (n for n in program.module.graph.nodes if n.op == "call_function")
    ops = Counter(str(n.target) for n in calls)
    return CheckReport(problems, program.name, dict(sorted(ops.items())))


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


def import_source(
    source: Any, options: CompileOptions, *, example_inputs: Any = None, dynamic_shapes: Any = None
) -> Graph:
    """The IR graph of a source, its inputs as options.shapes says."""
    from graphwright.frontends.onnx import import_model
    from graphwright.frontends.onnx.source import read_source
    from graphwright.frontends.torch.source import is_torch

    if isinstance(source, str | os.PathLike) and Path(source).suffix == ".ir":
        return _read_ir(Path(source), options)
    if is_torch(source):
        from graphwright.frontends import torch as frontend
        from graphwright.frontends.torch.source import read_program

        program = read_program(
            source, options, example_inputs=example_inputs, dynamic_shapes=dynamic_shapes
        )
        return frontend.import_program(program, allow=options.allow, registry=options.registry)
    if example_inputs is not None or dynamic_shapes is not None:
        raise InputError(
            "example_inputs and dynamic_shapes are for torch modules; an ONNX model has its inputs: "
            "leave them out, or say shapes={...}"
        )
    read = read_source(source)
    shapes = resolve_shapes(read.proto.graph, options)
    return import_model(read, shapes=shapes, allow=options.allow, registry=options.registry)


def _read_ir(path: Path, options: CompileOptions) -> Graph:
    """A graph in the IR's own text (docs/ir.md): a case that `verify --bisect` cut out, say."""
    from graphwright.compiler.ir.parser import ParseError, parse_graph
    from graphwright.compiler.ir.verify import VerifyError, verify

    if options.shapes:
        raise InputError(f"{path} states its shapes; --shape has no effect on it")
    try:
        graph = parse_graph(path.read_text(encoding="utf-8"), registry=options.registry)
        verify(graph)
    except (ParseError, VerifyError) as error:
        raise InputError(f"{path}: {error}") from None
    return graph


def run_passes(
    source: Any, options: CompileOptions, *, listeners: Sequence[Listener] = ()
) -> Graph:
    """The graph after the passes that the options ask for; nothing is emitted."""
    from graphwright.compiler.driver import optimise

    graph = import_source(source, options)
    with _traced(graph, options) as tracing:
        optimise(graph, options.target, options, listeners=[*listeners, *tracing])
    return graph


@contextmanager
def _collecting_rarely(objects: int = RARELY) -> Generator[None]:
    """Fewer cyclic garbage collections: graphs are cycles that stay, and each would walk them all."""
    old = gc.get_threshold()
    if 0 < old[0] < objects:
        gc.set_threshold(objects, *old[1:])
    try:
        yield
    finally:
        gc.set_threshold(*old)


@contextmanager
def _traced(graph: Graph, options: CompileOptions) -> Generator[list[TraceWriter]]:
    """The listeners that options.trace asks for: one or none.  Raises OSError as `open` does."""
    if options.trace is None:
        yield []
        return
    from graphwright.compiler.driver import chosen_pipeline
    from graphwright.compiler.trace import TraceWriter
    from graphwright.version import VERSION

    about = {
        "producer": f"graphwright {VERSION}",
        "model": graph.name,
        "target": str(options.target),
        "pipeline": str(chosen_pipeline(options.target, options)),
    }
    with options.trace.open("wb") as file, TraceWriter(file, about) as writer:
        yield [writer]


def build(
    source: Any,
    options: CompileOptions,
    *,
    listeners: Sequence[Listener] = (),
    graph: Graph | None = None,
) -> Build:
    """The artifact of a source (or of the graph imported from it), in memory.  Raises GraphwrightError."""
    from graphwright.compiler.driver import compile_graph
    from graphwright.compiler.timeline import Timeline

    if options.stop_after is not None:
        raise InputError(
            "stop_after makes no artifact; graphwright.compilation.run_passes stops there"
        )
    start = time.perf_counter()
    timeline = Timeline()
    assemblies: list[Assembly] = []
    with _collecting_rarely():
        graph = import_source(source, options) if graph is None else graph
    imported = time.perf_counter()
    with _collecting_rarely(), _traced(graph, options) as tracing:
        artifact = compile_graph(
            graph,
            options.target,
            options,
            listeners=[*listeners, timeline, *tracing],
            on_assembly=assemblies.append,
        )
        for writer in tracing:
            writer.artifact(artifact.manifest, artifact.files)
    total = time.perf_counter() - imported
    seconds = {
        "import": imported - start,
        "passes": timeline.seconds,
        "kernels": total - timeline.seconds,
    }
    return Build(
        artifact,
        graph,
        options,
        graph.name,
        seconds,
        tuple(timeline.runs),
        (*timeline.notes, *assemblies[-1].tuning.notes),
        assemblies[-1],
    )
