"""LSTM, GRU and RNN layers: a program runs one direction of one sequence, step after step.

Each step multiplies the input and the state with the rows of a block of units, gate by gate, and
leaves the new state in scratch memory; a barrier parts reading a state from replacing it.  Sums are
float32 (float64 for its own kind).
"""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.codegen.kernel import EmittedLaunch, Workspace
from graphwright.compiler.codegen.lower import Coordinates, Lowering, offset_of, problem
from graphwright.compiler.codegen.scalar import Given, compute_dtype
from graphwright.compiler.codegen.triton.kernels import Extra, Region, next_power_of_two
from graphwright.compiler.codegen.triton.printing import triton_type
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.ops.recurrent import directions_of, parse_activation

GATES = {"lstm": "iofn", "gru": "zrn", "rnn": "n"}
FUNCTIONS = {"lstm": 3, "gru": 2, "rnn": 1}
MOST_UNITS, MOST_DEPTH = 32, 128  # of a block of rows of a gate
SPELLED = {
    "tanh": "libdevice.tanh({x})",
    "sigmoid": "(1.0 / (1.0 + libdevice.exp(-{x})))",
    "relu": "tl.maximum({x}, 0.0, propagate_nan=tl.PropagateNan.ALL)",
    "softsign": "({x} / (1.0 + tl.abs({x})))",
    "softplus": "(tl.maximum({x}, 0.0) + libdevice.log1p(libdevice.exp(-tl.abs({x}))))",
    "affine": "({0} * {x} + {1})",
    "leaky_relu": "tl.where({x} < 0, {x} * {0}, {x})",
    "thresholded_relu": "tl.where({x} > {0}, {x}, 0.0)",
    "scaled_tanh": "({0} * libdevice.tanh({1} * {x}))",
    "hard_sigmoid": "tl.minimum(tl.maximum({0} * {x} + {1}, 0.0), 1.0)",
    "elu": "tl.where({x} >= 0, {x}, {0} * libdevice.expm1(tl.minimum({x}, 0.0)))",
}


def emit_recurrent(op: Op) -> list[EmittedLaunch]:
    """One launch; grid axis 0 counts the directions, axis 1 the sequences."""
    return [_Layer(op).emit()]


class _Layer:
    def __init__(self, op: Op) -> None:
        self.op, self.region = op, Region(op)
        self.gates = GATES[op.name]
        names = [n.rstrip("?") for n in op.definition.operands]
        self.inputs = dict(zip(names, self.region.inputs, strict=False))
        self.backwards = directions_of(op.attribute("direction"))
        self.time, self.batch, self.width = self.inputs["x"].type.shape
        hidden = self.inputs["r"].type.shape[2]
        if not isinstance(hidden, int):
            raise problem(op, f"its state has {hidden} units, want a known number")
        self.hidden = hidden
        self.compute = compute_dtype(self.inputs["x"].type.dtype)
        self.functions = self._functions()
        domain = self.region.domain
        self.d = domain.loop("part", len(self.backwards))
        self.b = domain.loop("batch", self.batch)
        self.t = domain.loop("step", self.time)
        self.j = domain.loop("j", hidden)
        self.k = domain.loop("k", dims.maximum(self.width, hidden))
        self.low = Lowering(domain)
        self.p = self.region.printer()

    def _functions(self) -> list[str]:
        texts: Sequence[str] = self.op.attribute("activations")
        count = FUNCTIONS[self.op.name]
        if any(texts[i] != texts[i % count] for i in range(len(texts))):
            raise problem(self.op, "its directions have different activations")
        clip: float | None = self.op.attribute("clip")
        out: list[str] = []
        for i, text in enumerate(texts[:count]):
            name, parameters = parse_activation(text)
            spelled = SPELLED[name].replace("{0}", repr(float((*parameters, 0.0)[0])))
            spelled = spelled.replace("{1}", repr(float((*parameters, 0.0, 0.0)[1])))
            if clip is not None and i != 2:
                limited = f"tl.clamp({{x}}, {-clip!r}, {clip!r}, propagate_nan=tl.PropagateNan.ALL)"
                spelled = spelled.replace("{x}", limited)
            out.append(spelled)
        return out

    # -- reading and writing

    def read(self, name: str, *at: Dim) -> str:
        return self.p.node(self.low.at(self.inputs[name], at))

    def write(self, place: int, at: Coordinates, text: str) -> None:
        value: Value = self.region.outputs[place]
        offset = offset_of(value.type, at, self.region.domain)
        node = Given(text, self.compute)
        self.p.store(self.region.out_pointers[place], value.type.dtype, offset, node,
                     dims.symbols_of(self.j))  # fmt: skip

    def row(self, gate: int) -> Dim:
        """The row of the weights of unit j of a gate."""
        return gate * self.hidden + self.j

    # -- the kernel

    def emit(self) -> EmittedLaunch:
        p, kind = self.p, triton_type(self.compute)
        self.units = min(next_power_of_two(self.hidden), MOST_UNITS)
        cells = dims.multiply(len(self.backwards), dims.multiply(self.batch, self.hidden))
        scratch = Workspace(dims.multiply(cells, 4 * self.compute.bytes))
        pointer = "*fp64" if self.compute.bits == 64 else "*fp32"
        extra = [Extra("p_state", pointer, "pointer", scratch)]
        p.line(f"part = tl.program_id(0){self.region.index}")
        p.line(f"batch = tl.program_id(1){self.region.index}")
        p.line("_wait()")
        p.bind(self.d, "part")
        p.bind(self.b, "batch")
        # Of this sequence: the state, the state to come, the cell state, the reset state.
        p.line(f"line = p_state + (part * {p.dim(self.batch)} + batch) * {4 * self.hidden}")
        time = p.dim(self.time)
        p.line(f"limit = {time}")
        if "lengths" in self.inputs:
            length = self.read("lengths", self.b)
            p.line(f"limit = tl.minimum(tl.maximum({length}.to(tl.int32), 0), {time})")
        self._each_unit()
        p.line(f"tl.store(line + j, {self.read('initial_h', self.d, self.b, self.j)}, mask=in_j)")
        if self.op.name == "lstm":
            start = self.read("initial_c", self.d, self.b, self.j)
            p.line(f"tl.store(line + {2 * self.hidden} + j, {start}, mask=in_j)")
        self._end()
        p.line("tl.debug_barrier()")
        p.line("for count in range(0, limit):")
        saved = p.enter()
        if len(self.backwards) > 1:
            p.line("step = tl.where(part == 1, limit - 1 - count, count)")
        else:
            is_backwards = self.backwards == (True,)
            p.line("step = limit - 1 - count" if is_backwards else "step = count")
        p.bind(self.t, "step")
        self._step(kind)
        p.leave(saved)
        p.line(f"for step in range(limit, {time}):")
        saved = p.enter()
        p.bind(self.t, "step")
        self._each_unit()
        p.line(f"whole = tl.zeros([{self.units}], {kind})")
        self.write(0, (self.t, self.d, self.b, self.j), "whole")
        self._end()
        p.leave(saved)
        self._each_unit()
        for place in range(1, len(self.region.outputs)):
            at = 2 * self.hidden if place == 2 else 0
            p.line(f"last = tl.load(line + {at} + j, mask=in_j)")
            self.write(place, (self.d, self.b, self.j), "last")
        self._end()
        grid = (len(self.backwards), self.batch)
        summary = f"{self.op.name} of {self.hidden} units, {self.time} steps"
        return self.region.launch(self.op.name, summary, p, grid, num_warps=8, extra=extra)

    def _each_unit(self) -> None:
        """Opens the loop over blocks of units."""
        p = self.p
        p.line(f"for first in range(0, {self.hidden}, {self.units}):")
        self._saved = p.enter()
        p.line(f"j = first + tl.arange(0, {self.units})")
        p.line(f"in_j = j < {self.hidden}")
        p.forget(self.j)
        p.bind(self.j, "j", "in_j")

    def _end(self) -> None:
        self.p.leave(self._saved)
        self.p.forget(self.j)

    def _product(self, name: str, gates: Sequence[int], extent: Dim, state: str, kind: str) -> None:
        """Adds the products of `x` (state "") or of a state with rows of the gates to `sums_GATE`."""
        p = self.p
        block = MOST_DEPTH
        if isinstance(extent, int):
            block = min(next_power_of_two(extent), MOST_DEPTH)
        for gate in gates:
            p.line(f"sums_{self.gates[gate]} = tl.zeros([{self.units}, {block}], {kind})")
        p.line(f"for start in range(0, {p.dim(extent)}, {block}):")
        saved = p.enter()
        p.line(f"k = start + tl.arange(0, {block})")
        p.line(f"in_k = k < {p.dim(extent)}")
        p.forget(self.k)
        p.bind(self.k, "k[None, :]", "in_k[None, :]")
        p.bind(self.j, "j[:, None]", "in_j[:, None]")
        if state:
            p.line(f"whole = tl.load({state} + k[None, :], mask=in_k[None, :], other=0)")
        else:
            p.line(f"whole = {self.read('x', self.t, self.b, self.k)}")
        for gate in gates:
            weight = self.read(name, self.d, self.row(gate), self.k)
            p.line(f"sums_{self.gates[gate]} += {weight} * whole")
        p.leave(saved)
        p.forget(self.k)
        p.forget(self.j)
        p.bind(self.j, "j", "in_j")

    def _add(self, gates: Sequence[int], into: str, bias: int) -> None:
        """`into`_GATE: the sums of a product plus a bias (of the input 0, of the state 1)."""
        for gate in gates:
            n = self.gates[gate]
            at = self.row(bias * len(self.gates) + gate)
            self.p.line(f"{into}_{n} = tl.sum(sums_{n}, axis=1) + {self.read('bias', self.d, at)}")

    def _call(self, function: int, text: str) -> str:
        return self.functions[function].replace("{x}", text)

    def _step(self, kind: str) -> None:
        p = self.p
        of_input = of_state = list(range(len(self.gates)))
        reset_first = self.op.name == "gru" and not self.op.attribute("linear_before_reset")
        if reset_first:
            self._reset(kind)
            of_input, of_state = [0, 2], [0]
        self._each_unit()
        self._product("w", of_input, self.width, "", kind)
        self._add(of_input, "given", 0)
        self._product("r", of_state, self.hidden, "line", kind)
        self._add(of_state, "again", 1)
        if reset_first:
            self._product("r", [2], self.hidden, f"line + {3 * self.hidden}", kind)
            self._add([2], "again", 1)
        getattr(self, f"_{self.op.name}")()
        p.line(f"tl.store(line + {self.hidden} + j, state, mask=in_j)")
        self.write(0, (self.t, self.d, self.b, self.j), "state")
        self._end()
        p.line("tl.debug_barrier()")
        self._each_unit()
        p.line(f"fresh = tl.load(line + {self.hidden} + j, mask=in_j)")
        p.line("tl.store(line + j, fresh, mask=in_j)")
        self._end()
        p.line("tl.debug_barrier()")

    def _reset(self, kind: str) -> None:
        """The state as the candidate's product sees it: times the reset gate."""
        p = self.p
        self._each_unit()
        self._product("w", [1], self.width, "", kind)
        self._add([1], "given", 0)
        self._product("r", [1], self.hidden, "line", kind)
        self._add([1], "again", 1)
        p.line("gate_r = given_r + again_r")
        p.line(f"gate_r = {self._call(0, 'gate_r')}")
        p.line("held = tl.load(line + j, mask=in_j)")
        p.line(f"tl.store(line + {3 * self.hidden} + j, gate_r * held, mask=in_j)")
        self._end()
        p.line("tl.debug_barrier()")

    def _rnn(self) -> None:
        self.p.line("fresh = given_n + again_n")
        self.p.line(f"state = {self._call(0, 'fresh')}")

    def _gru(self) -> None:
        p = self.p
        p.line("gate_z = given_z + again_z")
        p.line(f"gate_z = {self._call(0, 'gate_z')}")
        p.line("fresh = given_n + again_n")
        if self.op.attribute("linear_before_reset"):
            p.line("gate_r = given_r + again_r")
            p.line(f"gate_r = {self._call(0, 'gate_r')}")
            p.line("fresh = given_n + gate_r * again_n")
        p.line(f"fresh = {self._call(1, 'fresh')}")
        p.line("held = tl.load(line + j, mask=in_j)")
        p.line("state = (1.0 - gate_z) * fresh + gate_z * held")

    def _lstm(self) -> None:
        p = self.p
        for n in self.gates:
            p.line(f"gate_{n} = given_{n} + again_{n}")
        p.line(f"cell = tl.load(line + {2 * self.hidden} + j, mask=in_j)")
        peepholes = "peepholes" in self.inputs
        if peepholes:
            for place, n in ((0, "i"), (2, "f")):
                weight = self.read("peepholes", self.d, place * self.hidden + self.j)
                p.line(f"gate_{n} += {weight} * cell")
        p.line(f"gate_i = {self._call(0, 'gate_i')}")
        coupled = self.op.attribute("input_forget")
        p.line(f"gate_f = {'1.0 - gate_i' if coupled else self._call(0, 'gate_f')}")
        p.line(f"fresh = {self._call(1, 'gate_n')}")
        p.line("cell = gate_f * cell + gate_i * fresh")
        p.line(f"tl.store(line + {2 * self.hidden} + j, cell, mask=in_j)")
        if peepholes:
            weight = self.read("peepholes", self.d, self.hidden + self.j)
            p.line(f"gate_o += {weight} * cell")
        p.line(f"gate_o = {self._call(0, 'gate_o')}")
        p.line(f"state = gate_o * {self._call(2, 'cell')}")
