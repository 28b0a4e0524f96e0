"""Runs generated Triton modules in Triton's interpreter, in a process of its own.

usage: TRITON_INTERPRET=1 python interpret.py CASES.json ARRAYS.npz OUT.npz

CASES: [{"outputs": [[key, shape, dtype]], "launches": [{"module", "kernel", "inputs": [key],
"outputs": [number], "workspaces": [bytes], "roles", "types", "scalars", "grid"}]}].  Outputs are poisoned before the first
launch, workspaces before each.
"""

import importlib.util
import json
import math
import sys
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime.interpreter import TensorHandle
from triton.tools.tensor_descriptor import TensorDescriptor

ERF = np.vectorize(math.erf, otypes=[np.float64])
FUNCTIONS = {"erf": ERF, "fmod": np.fmod, "pow": np.power, "rint": np.rint, "acos": np.arccos,
             "asin": np.arcsin, "atan": np.arctan, "atan2": np.arctan2}  # fmt: skip


class Libdevice:
    """The interpreter has no libdevice: numpy in float64, rounded to the operand's type."""

    def __getattr__(self, name: str) -> Any:
        compute = FUNCTIONS.get(name) or getattr(np, name)

        def call(*operands: Any) -> Any:
            first = next(o for o in operands if isinstance(o, tl.tensor))
            arrays = [o.handle.data if isinstance(o, tl.tensor) else o for o in operands]
            with np.errstate(all="ignore"):
                wide = compute(*(np.asarray(a, np.float64) for a in arrays))
            handle = TensorHandle(wide.astype(first.handle.data.dtype), first.handle.dtype)
            return tl.tensor(handle, first.type)

        return call


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(array, order="C"))


def parameters(case: dict[str, Any], pointers: list[torch.Tensor]) -> list[Any]:
    """What each parameter is by its role (see TritonKernel)."""
    out: list[Any] = []
    scalars = list(case["scalars"])
    used = iter(pointers)
    for role, kind in zip(case["roles"], case["types"], strict=True):
        what, _, rest = role.partition(":")
        if what == "pointer":
            out.append(next(used))
        elif what == "zeros":
            out.append(torch.zeros(int(rest) // 4, dtype=torch.int32))
        elif what == "map":
            box = [int(n) for n in kind.split("[")[1].split("]")[0].split(",")]
            rank = len(box)
            shape, strides = scalars[:rank], scalars[rank : 2 * rank]
            del scalars[: 2 * rank]
            out.append(TensorDescriptor(pointers[int(rest)], shape, strides, box))
        else:
            out.append(scalars.pop(0))
    return out


def run(launch: dict[str, Any], given: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
    spec = importlib.util.spec_from_file_location("kernel", launch["module"])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.libdevice = Libdevice()
    scratch = [torch.full((n // 4,), torch.nan) for n in launch["workspaces"]]
    function = getattr(module, launch["kernel"])
    function[tuple(launch["grid"])](*parameters(launch, [*given, *outputs, *scratch]))


def main() -> None:
    with open(sys.argv[1]) as file:
        cases = json.load(file)
    arrays = np.load(sys.argv[2])
    out = {}
    for case in cases:
        outputs = []
        for _, shape, dtype in case["outputs"]:
            poison = b"\xff" * (math.prod(shape) * np.dtype(dtype).itemsize)
            outputs.append(tensor(np.frombuffer(poison, dtype).reshape(shape)))
        for launch in case["launches"]:
            given = [tensor(arrays[k]) for k in launch["inputs"]]
            run(launch, given, [outputs[i] for i in launch["outputs"]])
        for (key, _, _), made in zip(case["outputs"], outputs, strict=True):
            out[key] = made.numpy()
    np.savez(sys.argv[3], **out)


main()
