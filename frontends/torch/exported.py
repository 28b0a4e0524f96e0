"""Modules and exported programs as programs: torch.export, decompositions, signatures."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind

from graphwright.compiler.ir.dims import MAX_EXTENT, Symbol
from graphwright.compiler.ir.op import Registry
from graphwright.compiler.ir.shapes import ShapeSpec
from graphwright.errors import InputError, Problem, UnsupportedError
from graphwright.frontends.torch.decompositions import export_table
from graphwright.frontends.torch.program import InputSpec, OutputSpec, Program
from graphwright.frontends.torch.structure import describe_structure


def export_module(
    module: torch.nn.Module,
    inputs: Any,
    *,
    shapes: ShapeSpec,
    dynamic_shapes: Any = None,
) -> ExportedProgram:
    """torch.export of a module.  `inputs`: a tuple of positional arguments, one tensor, or a dict of
    keyword arguments.  Raises InputError for shapes that name no argument, UnsupportedError where
    torch.export refuses the module.
    """
    args, kwargs = arguments_of(inputs)
    if shapes and dynamic_shapes is not None:
        raise InputError("shapes and dynamic_shapes say the same thing in two ways: give one")
    if shapes:
        dynamic_shapes = _dynamic(module, args, kwargs, shapes)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.export(
                module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False
            )
    except InputError:
        raise
    except Exception as error:
        raise _refused("torch.export cannot capture", type(module).__name__, error) from error


MOST_TEXT = 600  # characters of torch's words: its suggestions come after the first sentence


def _refused(what: str, name: str, error: Exception) -> UnsupportedError:
    """torch's own refusal as ours."""
    text = " ".join(str(error).split())
    text = text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]} ..."
    reason = f"{type(error).__name__}: {text}"
    return UnsupportedError(
        f"{what} {name}",
        [Problem(name, "torch.export", reason, "see torch.export's documentation")],
    )


def arguments_of(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments from what `example_inputs` may be."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, tuple | list):
        return tuple(inputs), {}
    return (inputs,), {}


def _dynamic(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], shapes: ShapeSpec
) -> dict[str, Any]:
    """torch's dynamic_shapes from ours: argument name -> dims."""
    import inspect

    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    known: dict[str, Any] = {}

    def entry(size: int | Symbol | None, axis: int, name: str) -> Any:
        if size is None or isinstance(size, int):
            return None
        label = size.name if size.name != "_" else f"{name}_{axis}"
        ranged = shapes.symbols.get(label, size)
        if isinstance(ranged, int):
            return None
        most = None if ranged.max >= MAX_EXTENT else ranged.max
        made = Dim(label, min=ranged.min or None, max=most)
        made = known.setdefault(label, made)
        return made * ranged.multiple_of if ranged.multiple_of > 1 else made

    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        given = shapes.inputs.get(name)
        if given is None:
            found[name] = torch.utils._pytree.tree_map(lambda _: None, value)
            continue
        if not isinstance(value, torch.Tensor):
            raise InputError(f"shapes: the argument {name!r} is no tensor; use dynamic_shapes")
        if len(given) != value.ndim:
            raise InputError(f"shapes: {name!r} has {value.ndim} axes, {len(given)} are given")
        found[name] = {i: entry(size, i, name) for i, size in enumerate(given)}
    unknown = [n for n in shapes.inputs if n not in found]
    if unknown:
        listed = ", ".join(found)
        raise InputError(f"shapes: no argument is named {unknown[0]!r}; there are: {listed}")
    return found


def program_of(exported: ExportedProgram, *, registry: Registry, name: str = "") -> Program:
    """The functional core-ATen program of an exported one."""
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lowered = exported.run_decompositions(export_table(registry))
    except Exception as error:
        # Among others: tensors that the module changes, but does not hold as buffers.
        label = name or _module_name(exported)
        raise _refused("torch cannot make a functional graph of", label, error) from error
    lowered.graph_module.graph.eliminate_dead_code()
    signature = lowered.graph_signature
    constants = {**lowered.constants, **lowered.state_dict}
    written = {
        *signature.buffers_to_mutate.values(),
        *getattr(signature, "parameters_to_mutate", {}).values(),
    }
    inputs: list[InputSpec] = []
    position = 0
    for spec in signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            inputs.append(_user_input(spec.arg, position))
            position += 1
            continue
        if spec.kind not in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            raise UnsupportedError(
                "the exported program cannot be compiled",
                [Problem(spec.arg.name, str(spec.kind), "an input of this kind is not supported")],
            )
        target = str(spec.target)
        kind = "state" if spec.target in written else "weight"
        inputs.append(InputSpec(kind, target, _plain(constants[target], target)))
    places = {_name(s.arg): i for i, s in enumerate(signature.input_specs)}
    states = {s.name: i for i, s in enumerate(inputs) if s.kind == "state"}
    outputs: list[OutputSpec] = []
    count = 0
    for out in signature.output_specs:
        if out.kind is OutputKind.USER_OUTPUT:
            constant = isinstance(out.arg, ConstantArgument)
            outputs.append(OutputSpec("user", "" if constant else _label(out.arg, count), count))
            count += 1
        elif out.kind is OutputKind.USER_INPUT_MUTATION:
            outputs.append(OutputSpec("input", f"{out.target}.new", places[str(out.target)]))
        else:
            outputs.append(OutputSpec("state", f"{out.target}.new", states[str(out.target)]))
    return Program(
        name=name or _module_name(exported),
        module=lowered.graph_module,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        arguments=describe_structure(lowered.call_spec.in_spec),
        results=describe_structure(lowered.call_spec.out_spec),
        ranges=_loosened(lowered.range_constraints),
    )


def _user_input(argument: Any, position: int) -> InputSpec:
    if isinstance(argument, ConstantArgument):
        return InputSpec("number", argument.name, position=position, constant=argument.value)
    return InputSpec("user", argument.name, position=position)


def _name(argument: Any) -> str:
    return str(argument.name)


def _label(argument: Any, position: int) -> str:
    return f"{argument.name}" if argument.name else f"output{position}"


def _plain(tensor: Any, name: str) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor):
        raise UnsupportedError(
            "the exported program cannot be compiled",
            [Problem(name, "constant", f"it is a {type(tensor).__name__}, want a tensor")],
        )
    return tensor


def _module_name(exported: ExportedProgram) -> str:
    for node in exported.graph.nodes:
        stack = node.meta.get("nn_module_stack")
        if stack:
            found = next(iter(stack.values()))[1]
            name = found if isinstance(found, str) else getattr(found, "__name__", "")
            return name.rpartition(".")[2] or "module"
    return "module"


def _loosened(ranges: Mapping[Any, Any]) -> dict[Any, Any]:
    """torch says 2 as the least size where it means "not specialised to 0 or 1"."""
    from torch.utils._sympy.value_ranges import ValueRanges

    return {
        symbol: ValueRanges(0, span.upper) if span.lower == 2 else span
        for symbol, span in ranges.items()
    }
