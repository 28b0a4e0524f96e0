"""How a caller's arguments and results map to inputs and outputs: nested structures, state, updates.

A manifest whose metadata has the key CALL says, as JSON: for each input {"argument": n}, the n-th of
the caller's flattened arguments, or {"state": name}, which the model keeps between calls (its default
is the first value); for each output {"result": n} (with "number": true for a Python number) or
{"input": i}, the new value of input i: state, or an argument that is changed in place.  `numbers` are
arguments that are no arrays and must stay what they were, `constants` results that are no arrays;
`arguments` and `results` are the structures (frontends/torch/structure.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphwright.errors import ArtifactError, InputError
from graphwright.runtime.interop import is_tensor, tensor_to_array
from graphwright.runtime.manifest import Manifest, TensorSpec

CALL = "graphwright.call"  # key of the metadata
MAX_DEPTH = 64
Structure = Any  # None for a leaf, or a dict with one of "list", "tuple", "dict", "class"


class Calling:
    """The map of one manifest.  Raises ArtifactError when it does not fit the manifest."""

    def __init__(self, text: str, manifest: Manifest) -> None:
        try:
            plan = json.loads(text)
            self._read(plan, manifest)
        except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
            raise ArtifactError(f"the description of calls is malformed: {error}") from None

    def _read(self, plan: Any, manifest: Manifest) -> None:
        inputs, outputs = plan["inputs"], plan["outputs"]
        if len(inputs) != len(manifest.inputs) or len(outputs) != len(manifest.outputs):
            raise ValueError("it has another number of inputs or outputs than the manifest")
        self.arguments: Structure = plan["arguments"]
        self.results: Structure = plan["results"]
        self.numbers = {int(k): v for k, v in plan["numbers"].items()}
        self.constants = {int(k): v for k, v in plan["constants"].items()}
        self.states: dict[str, int] = {}  # name -> input
        self.positions: dict[int, int] = {}  # flat argument -> input
        for i, entry in enumerate(inputs):
            if "state" in entry:
                if manifest.inputs[i].default is None:
                    raise ValueError(f"the state {entry['state']!r} has no first value")
                self.states[str(entry["state"])] = i
            else:
                self.positions[int(entry["argument"])] = i
        self.updates: dict[int, int] = {}  # output -> input
        self.places: dict[int, int] = {}  # flat result -> output
        self.counted: set[int] = set()
        for o, entry in enumerate(outputs):
            if "input" in entry:
                target = int(entry["input"])
                if not 0 <= target < len(inputs):
                    raise ValueError(f"output {o} changes input {target}, which there is not")
                self.updates[o] = target
            else:
                self.places[int(entry["result"])] = o
                if entry.get("number"):
                    self.counted.add(o)
        self.count = len(self.positions) + len(self.numbers)
        self.result_count = len(self.places) + len(self.constants)
        own = _leaves(self.arguments, 0) if self.arguments is not None else self.count
        if own != self.count or (
            self.results is not None and _leaves(self.results, 0) != self.result_count
        ):
            raise ValueError("its structures have another number of leaves")
        self.inputs: tuple[TensorSpec, ...] = tuple(
            manifest.inputs[i] for _, i in sorted(self.positions.items())
        )
        self.outputs: tuple[TensorSpec, ...] = tuple(
            manifest.outputs[o] for _, o in sorted(self.places.items())
        )
        self._names = {manifest.inputs[i].name: p for p, i in self.positions.items()}

    def flatten(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The flat arguments.  They come as the module's own, flat in order, or by input name."""
        flat: list[Any] = []
        if self.arguments is not None and _take(self.arguments, (tuple(args), dict(named)), flat):
            return self._checked(flat)
        slots: dict[int, Any] = dict(enumerate(args))
        tensors = sorted(self.positions)
        if len(args) != self.count:  # numbers left out
            slots = dict(zip(tensors, args, strict=False))
        if len(args) > self.count:
            raise InputError(f"{len(args)} arguments are given, the model has {self.count}")
        for name, value in named.items():
            position = self._names.get(name)
            if position is None:
                raise InputError(
                    f"the model has no input {name!r}; it has: {', '.join(self._names) or 'none'}"
                )
            if position in slots:
                raise InputError(f"input {name!r} is given twice, by position and by name")
            slots[position] = value
        for name, position in self._names.items():
            if position not in slots:
                raise InputError(f"input {name!r} is missing")
        return self._checked([slots.get(p, self.numbers.get(p)) for p in range(self.count)])

    def _checked(self, flat: list[Any]) -> list[Any]:
        for position, want in self.numbers.items():
            got = flat[position]
            if got is not want and (type(got) is not type(want) or got != want):
                raise InputError(
                    f"argument {position} is {got!r}; the model was compiled for {want!r} there"
                )
        return flat

    def rebuild(self, results: Sequence[Any]) -> Any:
        """The caller's structure of results, from all outputs."""
        leaves: list[Any] = []
        for position in range(self.result_count):
            if position in self.constants:
                leaves.append(self.constants[position])
            else:
                o = self.places[position]
                leaves.append(results[o].item() if o in self.counted else results[o])
        if self.results is None:
            return leaves[0] if len(leaves) == 1 else tuple(leaves)
        return _build(self.results, iter(leaves).__next__)


def _children(structure: Structure) -> list[Structure]:
    kind = next(iter(structure))
    if kind == "dict":
        return list(structure["dict"].values())
    return list(structure["items"] if kind == "class" else structure[kind])


def _leaves(structure: Structure, depth: int) -> int:
    if structure is None:
        return 1
    if depth > MAX_DEPTH:
        raise ValueError("its structures are too deep")
    return sum(_leaves(c, depth + 1) for c in _children(structure))


def _take(structure: Structure, value: Any, out: list[Any]) -> bool:
    """Appends the leaves of a value; False when it is not of the structure."""
    if structure is None:
        out.append(value)
        return True
    kind = next(iter(structure))
    items: Sequence[Any]
    if kind == "dict" or (kind == "class" and structure["keys"] and isinstance(value, Mapping)):
        names = list(structure["dict"]) if kind == "dict" else structure["keys"]
        if not isinstance(value, Mapping) or set(value) != set(names):
            return False
        items = [value[n] for n in names]
    elif isinstance(value, list | tuple):
        items = value
    else:
        return False
    children = _children(structure)
    return len(items) == len(children) and all(
        _take(c, item, out) for c, item in zip(children, items, strict=True)
    )


def _build(structure: Structure, take: Callable[[], Any]) -> Any:
    if structure is None:
        return take()
    kind = next(iter(structure))
    items = [_build(c, take) for c in _children(structure)]
    if kind == "list":
        return items
    if kind == "dict":
        return dict(zip(structure["dict"], items, strict=True))
    keys = structure.get("keys") if kind == "class" else None
    return tuple(items) if keys is None else dict(zip(keys, items, strict=True))


def write_back(target: Any, value: Any, name: str) -> None:
    """Copies a new value into a caller's array, unless it was made there.  Raises InputError when it
    cannot be written.
    """
    if value is target:
        return
    if is_tensor(target):
        target = tensor_to_array(target)
    if not isinstance(target, np.ndarray) or not target.flags.writeable:
        raise InputError(f"input {name!r} is changed by the model, but it cannot be written to")
    new = tensor_to_array(value) if is_tensor(value) else value
    if new.__array_interface__["data"][0] != target.__array_interface__["data"][0]:
        np.copyto(target, new)
