"""What every source becomes before the import: a functional ATen graph and what its ends mean.

Placeholders and outputs of `module.graph` are described one to one by `inputs` and `outputs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

InputKind = Literal["user", "weight", "state", "number", "size"]
OutputKind = Literal["user", "state", "input"]


@dataclass(frozen=True, slots=True)
class InputSpec:
    """A placeholder.  `user`: a tensor of each call.  `weight`: a constant, whose value `tensor` is.
    `state`: a buffer that the graph changes; `tensor` is its first value.  `number`: what a call passes
    that is no tensor: None, or a number that was fixed (`constant`).  `size`: an integer that may
    differ from call to call.

    `position`: which flat argument of a call it is.  `name` is the user's: a parameter of `forward`,
    a path in the module.  `order`: the axes from the outermost in memory to the innermost, where they
    do not lie in row-major order; the graph input has them in that order.
    """

    kind: InputKind
    name: str
    tensor: torch.Tensor | None = None
    position: int = -1
    constant: Any = None
    order: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """An output.  `user`: a result of the call.  `state`, `input`: the new value of the placeholder
    `target`, a buffer or a tensor of the caller's.  `order` as for inputs.
    """

    kind: OutputKind
    name: str
    target: int = -1
    order: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """`arguments`, `results`: torch's own description (pytree text) of nested structures, "" for flat
    ones.  `ranges`: of symbols, where they are not those of the values' ShapeEnv; `names`: the
    author's names of symbols.
    """

    name: str
    module: torch.fx.GraphModule
    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]
    arguments: str = ""
    results: str = ""
    ranges: Mapping[Any, Any] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
