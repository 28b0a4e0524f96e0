"""What torch itself computes of an exported program: a reference for ours."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
import torch
from torch.utils import _pytree as pytree

from graphwright.compiler.options import CompileOptions
from graphwright.errors import InputError
from graphwright.frontends.torch.source import read_program
from graphwright.frontends.torch.tensors import array_of


def run_eagerly(
    path: str | os.PathLike[str], options: CompileOptions, feed: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], str]:
    """(outputs by the graph's names, the types that torch computes in: "f32") of a .pt2 file, on the CPU.

    `feed`: the graph's inputs by name.  Raises InputError for programs that change their buffers or
    arguments, whose new values are outputs of ours and none of the module's.
    """
    program = read_program(path, options)
    if any(o.kind != "user" for o in program.outputs):
        raise InputError(
            f"{path} changes its buffers or arguments, which eager returns nowhere; use --ref reference"
        )
    exported = torch.export.load(os.fspath(path))
    arguments = sorted((s for s in program.inputs if s.position >= 0), key=lambda s: s.position)
    flat = [
        s.constant if s.kind == "number"
        else int(feed[s.name]) if s.kind == "size"
        else _tensor_of(feed[s.name])
        for s in arguments
    ]  # fmt: skip
    args, kwargs = pytree.tree_unflatten(flat, exported.call_spec.in_spec)  # pyright: ignore[reportArgumentType]
    with torch.no_grad():
        results = pytree.tree_leaves(exported.module()(*args, **kwargs))
    found = {
        spec.name: array_of(value)
        for spec, value in zip(program.outputs, results, strict=True)
        if isinstance(value, torch.Tensor)
    }
    held = [*exported.state_dict.values(), *(a for a in flat if isinstance(a, torch.Tensor))]
    types = dict.fromkeys(str(t.dtype).removeprefix("torch.") for t in held)
    return found, ", ".join(t for t in types if "float" in t) or ", ".join(types)


def _tensor_of(array: np.ndarray) -> torch.Tensor:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))
