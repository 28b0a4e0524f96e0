"""Runs emitted launches through ctypes on numpy arrays: kernels against the IR evaluator."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from graphwright.compiler.codegen.build import SourceKernel, build_libraries
from graphwright.compiler.codegen.emit import emit_graph
from graphwright.compiler.codegen.kernel import EmittedLaunch, Packed, Workspace
from graphwright.compiler.codegen.package import weight_bytes
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.evaluate import bind_symbols, evaluate
from graphwright.compiler.ir.graph import Graph, Value
from graphwright.compiler.ir.layout import order_of
from graphwright.compiler.target import Target
from graphwright.runtime.manifest import WeightSpec
from graphwright.runtime.packed import unpack_elements

LEVEL = "native"
CACHE = Path(tempfile.gettempdir()) / "graphwright-test-cache"


def storage(array: np.ndarray, value: Value) -> np.ndarray:
    """The array's elements in the value's physical order, padded to its blocks, flat."""
    layout = value.type.layout
    if layout is not None and layout.blocks:
        return _blocked(array, value)
    if value.type.dtype.bits < 8:
        return np.array(
            weight_bytes(WeightSpec("", value.type.dtype.long_name, array.shape), array)
        )
    return np.ascontiguousarray(array.transpose(order_of(layout, array.ndim))).reshape(-1)


def _blocked(array: np.ndarray, value: Value) -> np.ndarray:
    layout = value.type.layout
    for axis, size in layout.blocks:
        pad = [(0, 0)] * array.ndim
        pad[axis] = (0, -array.shape[axis] % size)
        array = np.pad(array, pad)
    sizes = dict(layout.blocks)
    shape: list[int] = []
    where: dict[int, int] = {}
    inner: dict[int, int] = {}
    for axis, extent in enumerate(array.shape):
        where[axis] = len(shape)
        shape += [extent // sizes[axis], sizes[axis]] if axis in sizes else [extent]
        if axis in sizes:
            inner[axis] = len(shape) - 1
    order = [where[a] for a in layout.order] + [inner[a] for a, _ in layout.blocks]
    return np.ascontiguousarray(array.reshape(shape).transpose(order)).reshape(-1)


def logical(flat: np.ndarray, value: Value, shape: Sequence[int]) -> np.ndarray:
    """The reverse of `storage` (unblocked layouts)."""
    bits = value.type.dtype.bits
    if bits < 8:
        return unpack_elements(flat.view(np.uint8), shape, value.type.dtype.numpy, bits)
    order = order_of(value.type.layout, len(shape))
    return flat.reshape([shape[a] for a in order]).transpose(np.argsort(order))


class Compiled:
    """Graphs compiled together into one library."""

    def __init__(self, graphs: Sequence[Graph], level: str = LEVEL) -> None:
        self.graphs = list(graphs)
        self.level = level
        self.steps = [emit_graph(g, Target.parse(f"cpu:{level}")) for g in self.graphs]
        launches = [s for steps in self.steps for s in steps if isinstance(s, EmittedLaunch)]
        kernels = [SourceKernel(s.kernel.name, s.kernel.source, s.includes) for s in launches]
        data = build_libraries(kernels, [level], jobs=2, cache_dir=CACHE)[level]
        with tempfile.NamedTemporaryFile(suffix=".so") as f:
            f.write(data)
            f.flush()
            self.library = ctypes.CDLL(f.name)
        self.library.gw_pool_create.restype = ctypes.c_void_p
        self.pool = ctypes.c_void_p(self.library.gw_pool_create(2))

    def run(self, index: int, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Outputs of one graph, in logical order."""
        graph, steps = self.graphs[index], self.steps[index]
        binding = bind_symbols(graph, arrays)
        memory: dict[Value, np.ndarray] = {
            v: storage(a, v) for v, a in zip(graph.inputs, arrays, strict=True)
        }
        for op in graph.ops:
            if op.name == "constant":
                memory[op.result] = storage(np.array(op.attribute("value").array()), op.result)
        keep: list[np.ndarray] = []
        for step in steps:
            assert isinstance(step, EmittedLaunch)
            pointers = (ctypes.c_void_p * len(step.arguments))()
            for i, argument in enumerate(step.arguments):
                pointers[i] = self._memory(argument, memory, binding, keep)
            scalars = [dims.evaluate(d, binding) for d in step.scalars]
            numbers = (ctypes.c_int64 * max(len(scalars), 1))(*scalars)
            function = getattr(self.library, step.kernel.name)
            function.restype = None
            function(pointers, numbers, self.pool)
        for array, value in zip(arrays, graph.inputs, strict=True):
            assert np.array_equal(
                storage(array, value).view(np.uint8), memory[value].view(np.uint8)
            ), f"a kernel wrote over input {value.name}"
        return [
            logical(memory[v], v, [dims.evaluate(d, binding) for d in v.type.shape])
            for v in graph.outputs
        ]

    def _memory(self, argument, memory, binding, keep):
        if isinstance(argument, Workspace):
            array = np.full(dims.evaluate(argument.bytes, binding), 0xAB, np.uint8)
            keep.append(array)
        elif isinstance(argument, Packed):
            from graphwright.compiler.codegen.cpp.pack import pack, packed_form

            array = pack(argument, packed_form(self.level, argument.packing))
            keep.append(array)
        else:
            if argument not in memory:
                size = dims.evaluate(argument.type.storage_bytes, binding)
                raw = np.full(size, 0xAB, np.uint8)  # poison: NaN-like bits, never zero
                memory[argument] = raw.view(argument.type.dtype.numpy)
            array = memory[argument]
        return array.ctypes.data


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """||got - want|| / ||want||; NaN and infinity must agree in place."""
    assert got.shape == want.shape, f"shape {got.shape}, want {want.shape}"
    if got.dtype.kind in "biu" or got.dtype.name.startswith(("int", "uint")):
        return 0.0 if np.array_equal(got, want) else float(np.mean(got != want)) or 1.0
    a, b = got.astype(np.float64), want.astype(np.float64)
    odd = ~np.isfinite(b)
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        return float("inf")
    if not np.array_equal(a[odd & ~np.isnan(b)], b[odd & ~np.isnan(b)]):
        return float("inf")
    a, b = np.where(odd, 0, a), np.where(odd, 0, b)
    norm = float(np.linalg.norm(b))
    return float(np.linalg.norm(a - b)) / (norm or 1.0)


def check(compiled: Compiled, index: int, arrays: Sequence[np.ndarray], tolerance: float) -> None:
    """Runs one graph and compares every output with the evaluator."""
    got = compiled.run(index, arrays)
    want = evaluate(compiled.graphs[index], list(arrays))
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        error = relative_error(a, np.asarray(b))
        assert error <= tolerance, f"output {k}: error {error:.3g} > {tolerance:g}"
