"""Whole models: `import_model` makes a graph of one, `check_model` lists what stands in the way."""

from __future__ import annotations

from typing import Any

import onnx

from graphwright.compiler.ir.dims import symbols_of
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.op import Registry
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.shapes import ShapesLike
from graphwright.compiler.ir.types import TensorType
from graphwright.errors import InvalidModelError, Problem, UnsupportedError
from graphwright.frontends.onnx.boundary import Boundary
from graphwright.frontends.onnx.importer import Importer
from graphwright.frontends.onnx.refusal import Refusal, Tainted
from graphwright.frontends.onnx.schema import NEWEST_OPSET
from graphwright.frontends.onnx.scope import TAINTED, Scope, Weight, sweep
from graphwright.frontends.onnx.source import Source, read_source
from graphwright.frontends.onnx.structure import check_graph_names, check_model_header, check_text
from graphwright.frontends.onnx.symbols import identifier, input_shapes
from graphwright.frontends.onnx.tensors import TensorReader, element_type, sparse_refusal

CONSTANT_INITIALIZERS_BEFORE = 4  # IR version from which initializers may be overridable inputs


def import_model(
    source: Any,
    *,
    shapes: ShapesLike | None = None,
    allow: frozenset[str] = frozenset(),
    registry: Registry = REGISTRY,
) -> Graph:
    """The IR graph of an ONNX model: a path, bytes, file, ModelProto, onnx_ir.Model or onnxscript function.

    `shapes` fixes, bounds or names dims (the grammar or mapping of ir/shapes.py).  Raises InvalidModelError for a malformed model, InputError for
    options that do not fit, UnsupportedError with every problem for what cannot be imported.
    """
    read = read_source(source)
    graph, problems = _import(read, shapes, allow, registry)
    if problems:
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        raise UnsupportedError(f"{read.name} cannot be imported: {count}", problems)
    return graph


def check_model(
    source: Any,
    *,
    shapes: ShapesLike | None = None,
    allow: frozenset[str] = frozenset(),
    registry: Registry = REGISTRY,
) -> list[Problem]:
    """Everything that keeps a model from being imported; an empty list when nothing does.

    Raises InvalidModelError and InputError as `import_model` does.
    """
    return _import(read_source(source), shapes, allow, registry)[1]


def import_in_part(
    source: Any,
    *,
    shapes: ShapesLike | None = None,
    allow: frozenset[str] = frozenset(),
    registry: Registry = REGISTRY,
) -> tuple[Graph, list[Problem]]:
    """The graph of all that could be imported, and what could not.

    Where there are problems, the graph's outputs are the values that nothing uses, so that the rest
    of it can be examined.  Raises InvalidModelError and InputError as `import_model` does.
    """
    graph, problems = _import(read_source(source), shapes, allow, registry)
    if problems:
        ends = [r for op in graph.ops for r in op.results if not r.users and op.kind != "source"]
        graph.set_outputs(ends, [f"end{i}" for i in range(len(ends))])
    return graph, problems


def _import(
    source: Source, shapes: ShapesLike | None, allow: frozenset[str], registry: Registry
) -> tuple[Graph, list[Problem]]:
    model, proto = source.proto, source.proto.graph
    opsets = check_model_header(model, source.name)
    check_graph_names(proto, source.name)
    for p in model.metadata_props:
        check_text(source.name, p.key, p.value)
    graph = Graph(identifier(proto.name or "main"), registry=registry)
    graph.metadata = {p.key: p.value for p in model.metadata_props}
    importer = Importer(model, TensorReader(source.folder), registry=registry, allow=allow)
    _check_opset(importer, opsets)
    scope = Scope(graph, opsets)
    boundary = Boundary(importer, graph)
    _add_inputs(importer, scope, model, shapes, boundary)
    importer.symbol_names.update(graph.symbols)
    importer.import_nodes(proto.node, scope, source.name)
    _set_outputs(scope, proto, source.name, boundary)
    graph.input_defaults = dict(importer.defaults)
    for name, entry in scope.names.items():
        if isinstance(entry, Weight):
            graph.sources[name] = entry.literal if entry.made else None
    if not importer.problems:
        sweep(graph)
    return graph, importer.problems


def _check_opset(importer: Importer, opsets: dict[str, int]) -> None:
    version = opsets.get("")
    if version is None:
        return
    if version > NEWEST_OPSET:
        importer.problems.append(
            Problem(
                "the model",
                f"opset {version}",
                f"the newest opset that the installed onnx package knows is {NEWEST_OPSET}",
                "update onnx, or export with an older opset",
            )
        )


def _add_inputs(
    importer: Importer,
    scope: Scope,
    model: onnx.ModelProto,
    shapes: ShapesLike | None,
    boundary: Boundary,
) -> None:
    proto = model.graph
    weights: dict[str, onnx.TensorProto] = {t.name: t for t in proto.initializer}
    for sparse in proto.sparse_initializer:
        _report_input(importer, sparse.values.name, sparse_refusal(sparse))
        scope.names[sparse.values.name] = TAINTED
    freeze = (
        model.ir_version < CONSTANT_INITIALIZERS_BEFORE or "freeze-initializers" in importer.allow
    )
    inputs = [i for i in proto.input if not (freeze and i.name in weights)]
    declared = {
        i.name: i.type.tensor_type.shape if i.type.tensor_type.HasField("shape") else None
        for i in inputs
        if i.type.WhichOneof("value") == "tensor_type"
    }
    extents = input_shapes(declared, shapes)
    sizes = [d for shape in extents.values() for d in shape or ()]
    importer.symbol_names.update(s.name for s in symbols_of(sizes))
    for info in inputs:
        try:
            if info.name not in declared:
                scope.names[info.name] = boundary.add_container(info.name, info.type)
                continue
            tensor = info.type.tensor_type
            dtype = element_type(tensor.elem_type, "it")
            shape = extents[info.name]
            if shape is None:
                raise Refusal(
                    "its rank is not declared", f"give its shape: --shape {info.name}:AxB"
                )
        except Refusal as e:
            _report_input(importer, info.name, e)
            scope.names[info.name] = TAINTED
            continue
        scope.names[info.name] = boundary.add_tensor(info.name, TensorType(dtype, shape))
    for name, tensor in weights.items():
        try:
            literal = importer.tensors.literal(tensor, f"the initializer {name!r}")
        except Refusal as e:
            _report_input(importer, name, e)
            scope.names[name] = TAINTED
            continue
        if name in scope.names:
            importer.defaults[name] = literal
        else:
            scope.names[name] = Weight(literal, name)


def _report_input(importer: Importer, name: str, refusal: Refusal) -> None:
    importer.problems.append(Problem(name, "input", refusal.reason, refusal.fix))


def _set_outputs(scope: Scope, proto: onnx.GraphProto, where: str, boundary: Boundary) -> None:
    for output in proto.output:
        if output.name not in scope:
            raise InvalidModelError(
                f"{where}: the output {output.name!r} is made by no input, initializer or node"
            )
        try:
            entry = scope.entry(output.name)
        except Tainted:
            continue
        boundary.add_output(output.name, entry, output.type.WhichOneof("value"))
    boundary.finish()
