"""torch.compile(backend="graphwright"): what Dynamo captured, compiled on its first call.

AOTAutograd makes the captured graph functional and keeps torch's promises about aliases and updates
of inputs; what it hands over is compiled when it is first called, since only then parameters have
values.  A graph that needs gradients is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext

from graphwright.compiler.options import CompileOptions
from graphwright.errors import DowngradeError, InputError, UnsupportedError
from graphwright.frontends.torch.call import prepare_call
from graphwright.frontends.torch.captured import program_of_captured
from graphwright.frontends.torch.decompositions import core_table
from graphwright.frontends.torch.eager import run_in_parts
from graphwright.frontends.torch.record import GraphRecord, captured_from, record_graph

_numbers = itertools.count()


def graphwright_backend(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """The backend.  `options` are those of `gw.compile`; `target` follows the tensors' device."""
    if mode not in (None, "default"):
        raise DowngradeError(
            f"mode {mode!r} is of torch's own compiler; use options={{...}} with graphwright's names"
        )
    made = _options(options or {}, example_inputs)
    registry = made.registry

    def compile_inference(graph: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        return compile_captured(graph, made, static_positions())

    return aot_autograd(
        fw_compiler=_refuse_gradients,
        inference_compiler=compile_inference,
        decompositions=dict(core_table(registry)),
        keep_inference_input_mutations=True,
    )(module, example_inputs)


def static_positions() -> frozenset[int]:
    """Which arguments are parameters and buffers, which Dynamo guards by identity."""
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    return frozenset(() if metadata is None else metadata.static_input_indices or ())


def _options(options: Mapping[str, Any], example_inputs: Sequence[Any]) -> CompileOptions:
    given = dict(options)
    if given.get("target", "cpu") in ("cpu", None, ""):
        given["target"] = target_of(example_inputs)
    if given.get("shapes"):
        raise InputError("shapes are torch's here: mark them with torch._dynamo.mark_dynamic")
    return CompileOptions.make(**given)


def target_of(arguments: Sequence[Any]) -> str:
    """The target of the tensors' device: this machine's own."""
    devices = {a.device for a in arguments if isinstance(a, torch.Tensor)}
    kinds = {d.type for d in devices}
    if kinds <= {"cpu"}:
        return "cpu:native"
    if kinds == {"cuda"} and len(devices) == 1:
        major, minor = torch.cuda.get_device_capability(next(iter(devices)))
        return f"cuda:sm_{major}{minor}"
    raise UnsupportedError(
        f"the tensors lie on {', '.join(sorted(map(str, devices)))}: want the CPU, or one CUDA device"
    )


def _refuse_gradients(graph: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
    raise UnsupportedError(
        "this call needs gradients, and graphwright compiles inference only: call the compiled model "
        "under torch.no_grad() or torch.inference_mode(), or use module.requires_grad_(False)"
    )


Boxed = Callable[[list[Any]], list[Any]]


def compile_captured(
    graph: torch.fx.GraphModule, options: CompileOptions, static: frozenset[int]
) -> Boxed:
    """A function of one list of arguments that compiles when it is called first."""
    compiled: list[Boxed] = []
    code, reason = captured_from()
    record = record_graph(
        GraphRecord(f"graph{next(_numbers)}", graph, options, code=code, break_reason=reason)
    )

    def run(arguments: list[Any]) -> list[Any]:
        if not compiled:
            record.tensors = frozenset(id(arguments[i]) for i in static)
            compiled.append(_compile_or_split(record, static, arguments))
        return compiled[0](arguments)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _compile_or_split(
    record: GraphRecord, static: frozenset[int], arguments: Sequence[Any]
) -> Boxed:
    """The whole graph compiled, or with `allow` "eager" in parts around what is not supported."""
    try:
        return _compile(record.graph, record, static, arguments)
    except UnsupportedError as error:
        if "eager" not in record.options.allow or not error.problems:
            raise
        record.eager += error.problems
        return run_in_parts(
            record.graph, error.problems, static, lambda part, own: _later(part, record, own)
        )


def _later(part: torch.fx.GraphModule, record: GraphRecord, static: frozenset[int]) -> Boxed:
    compiled: list[Boxed] = []

    def run(arguments: list[Any]) -> list[Any]:
        if not compiled:
            compiled.append(_compile(part, record, static, arguments))
        return compiled[0](arguments)

    return run


def _compile(
    graph: torch.fx.GraphModule,
    record: GraphRecord,
    static: frozenset[int],
    arguments: Sequence[Any],
) -> Boxed:
    from graphwright.compilation import build
    from graphwright.frontends.torch.model import import_program
    from graphwright.runtime import load

    options = record.options
    program = program_of_captured(graph, arguments, static, record.name)
    imported = import_program(program, allow=options.allow, registry=options.registry)
    built = build(graph, options, graph=imported)
    content = built.artifact.to_bytes()
    model = load(content, threads=options.threads or None, device=options.target.kind)
    record.finish(model, built.report(len(content)))
    constants = [arguments[i] for i, s in enumerate(program.inputs) if s.kind == "weight"]

    def again(given: Sequence[Any]) -> Boxed:
        return _compile(graph, record, static, given)

    return prepare_call(program, model, constants, again)
