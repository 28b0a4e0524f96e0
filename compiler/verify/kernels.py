"""Which kernel is wrong: every launch of a compiled model against the op's own reference.

The model runs by steps.  After each launch its results are read from where they lie and compared
with what the reference makes, in float64, of the operands that the launch really read.  So an error
shows where it arises, not where it ends up, and one wrong kernel does not hide the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphwright.compiler.assemble import Assembly
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.evaluate import EvaluationError, bind_symbols, evaluate_op
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.layout import order_of, origin_of, storage_elements, strides_of
from graphwright.compiler.ir.op import Effect
from graphwright.compiler.passes.views import view_of
from graphwright.compiler.verify.difference import Difference, difference
from graphwright.runtime.model import CompiledModel
from graphwright.runtime.packed import unpack_elements
from graphwright.runtime.stepping import Stepper, read_memory


@dataclass(frozen=True, slots=True)
class KernelFault:
    """One result of one launch.  `op` is the IR op, `layers` the model's nodes that it came from."""

    launch: int
    op: Op
    kernel: str
    result: int
    layers: tuple[str, ...]
    difference: Difference


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """`faults`: results beyond the tolerance, in the order of launches.  `checked`, `skipped`: numbers
    of launches; those inside loops and branches, and random ops, are skipped.  `results`: all that
    was checked, faults included.
    """

    faults: tuple[KernelFault, ...]
    checked: int
    skipped: int
    worst: KernelFault | None
    results: tuple[KernelFault, ...] = ()


def check_kernels(
    model: CompiledModel,
    assembly: Assembly,
    feed: Mapping[str, np.ndarray],
    *,
    tolerance: float,
    measure: str = "relative",
    tell: Callable[[int, int], None] | None = None,
) -> KernelCheck:
    """Runs the model once on the feed.  `assembly` is what the model was made from.

    Memory: the operands of one launch and the values that later launches read, beside the model's.
    """
    return _Check(model, assembly, feed, tolerance, measure, tell).run()


class _Check:
    def __init__(
        self,
        model: CompiledModel,
        assembly: Assembly,
        feed: Mapping[str, np.ndarray],
        tolerance: float,
        measure: str,
        tell: Callable[[int, int], None] | None,
    ) -> None:
        self.model, self.assembly, self.feed = model, assembly, feed
        self.tolerance, self.measure, self.tell = tolerance, measure, tell
        graph = assembly.graph
        arrays = [np.asarray(feed[v.name]) for v in graph.inputs]
        self.binding = bind_symbols(graph, arrays)
        self.known: dict[Value, np.ndarray] = dict(zip(graph.inputs, arrays, strict=True))
        self.left = {v: len(v.uses) for op in graph.ops for v in op.results}
        self.faults: list[KernelFault] = []
        self.results: list[KernelFault] = []
        self.worst: KernelFault | None = None
        self.checked = self.skipped = 0
        self.launches = sum(isinstance(s, EmittedLaunch) for s in assembly.steps)

    def run(self) -> KernelCheck:
        Stepper(self.model).run(self.feed, after=self._after)
        return KernelCheck(
            tuple(self.faults), self.checked, self.skipped, self.worst, tuple(self.results)
        )

    def _after(self, number: int, pointers: Sequence[int]) -> None:
        step = self.assembly.steps[number]
        assert isinstance(step, EmittedLaunch)
        if self.tell is not None:
            self.tell(number, self.launches)
        op = self._op_of(step)
        if op is None:
            self.skipped += 1
            return
        got: dict[Value, np.ndarray] = {}
        for index in step.writes:
            value = step.arguments[index]
            if isinstance(value, Value) and value in op.results:
                array = self._read(value, pointers[index])
                if array is not None:
                    got[value] = array
        self._compare(number, step, op, got)
        self.known.update(got)
        for operand in op.operands:
            self._drop(operand)

    def _op_of(self, step: EmittedLaunch) -> Op | None:
        """The op of the whole graph that a launch computes all of, or None."""
        graph: Graph = self.assembly.graph
        written = [step.arguments[i] for i in step.writes]
        ops = {v.op for v in written if isinstance(v, Value) and v.op is not None}
        if len(ops) != 1:
            return None
        (op,) = ops
        return op if op.graph is graph and op.definition.effect is not Effect.RANDOM else None

    def _compare(
        self, number: int, step: EmittedLaunch, op: Op, got: Mapping[Value, np.ndarray]
    ) -> None:
        operands = [self._operand(v) for v in op.operands]
        if any(a is None for a in operands) or not got:
            self.skipped += 1
            return
        try:
            wanted = evaluate_op(
                op, [a for a in operands if a is not None], self.binding, compute=np.float64
            )
        except (EvaluationError, dims.DimError):  # sizes that only the run itself knows
            self.skipped += 1
            return
        self.checked += 1
        for index, (value, want) in enumerate(zip(op.results, wanted, strict=True)):
            if value not in got:
                continue
            found = difference(got[value], want.astype(value.type.dtype.numpy)
                               if not value.type.dtype.is_float else want)  # fmt: skip
            fault = KernelFault(number, op, step.kernel.name, index, op.origins, found)
            self.results.append(fault)
            if self.worst is None or found.measure(self.measure) > self.worst.difference.measure(
                self.measure
            ):
                self.worst = fault
            if not found.measure(self.measure) <= self.tolerance:
                self.faults.append(fault)

    def _operand(self, value: Value) -> np.ndarray | None:
        """The array that the launch read: a result, an input, a constant, or a view of one."""
        if value in self.known:
            return self.known[value]
        op = value.op
        if op is None:
            return None
        if op.name == "constant":
            return op.attributes["value"].array()
        if view_of(op) is None:
            return None
        above = [self._operand(v) for v in op.operands]
        if any(a is None for a in above):
            return None
        return evaluate_op(op, [a for a in above if a is not None], self.binding)[0]

    def _drop(self, value: Value) -> None:
        """Forgets what nothing more reads; views count as readers until they are done."""
        if value not in self.left:
            return
        self.left[value] -= 1
        if self.left[value] <= 0:
            self.known.pop(value, None)

    def _read(self, value: Value, address: int) -> np.ndarray | None:
        """A value from memory in logical order, or None where its size is not known yet."""
        type = value.type
        layout = type.layout
        try:
            shape = tuple(dims.evaluate(d, self.binding) for d in type.shape)
            count = dims.evaluate(storage_elements(type.shape, layout), self.binding)
        except dims.DimError:
            return None
        if layout is not None and layout.blocks:
            return None
        if type.dtype.bits < 8:
            packed = -(-count * type.dtype.bits // 8)
            data = read_memory(address, packed, np.dtype(np.uint8))
            return unpack_elements(data, shape, np.dtype(type.dtype.numpy), type.dtype.bits)
        dtype = np.dtype(type.dtype.numpy)
        if layout is None or not layout.windows:
            storage = read_memory(address, count, dtype)
            order = order_of(layout, len(shape))
            lying = storage.reshape([shape[a] for a in order])
            return lying.transpose(np.argsort(order)) if order else lying
        # A part of a larger tensor: the pointer is its storage's, the first element lies further in.
        origin = dims.evaluate(origin_of(type.shape, layout), self.binding)
        strides = [dims.evaluate(s, self.binding) for s in strides_of(type.shape, layout)]
        storage = read_memory(address, count, dtype)
        return np.lib.stride_tricks.as_strided(
            storage[origin:], shape, [s * dtype.itemsize for s in strides]
        ).copy()
