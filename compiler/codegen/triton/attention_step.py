"""A decoding step's attention: its key and value go into the caches, one query a head reads them.

A program takes some keys of a group of heads that share them, for all queries of the group; the
program that comes last to a group combines the parts, in their order, so that results repeat bit
for bit (split keys, as in flash decoding).  Keys in the caches depend on no kernel of this run,
so that they are loaded before the program waits; the new row is taken from where it was calculated.
"""

from __future__ import annotations

from dataclasses import replace

from graphwright.compiler.codegen.kernel import EmittedLaunch, Workspace
from graphwright.compiler.codegen.lower import Lowering, offset_of
from graphwright.compiler.codegen.scalar import (
    Apply,
    Choose,
    Given,
    Index,
    Load,
    Node,
    Wrapped,
    compute_dtype,
)
from graphwright.compiler.codegen.triton.attention import LOG2_E
from graphwright.compiler.codegen.triton.choose import MULTIPROCESSORS
from graphwright.compiler.codegen.triton.kernels import (
    Extra,
    Region,
    axes_coordinates,
    next_power_of_two,
)
from graphwright.compiler.codegen.triton.matmul import store_coordinates
from graphwright.compiler.codegen.triton.printing import triton_type
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.passes.storage import owner_of

KEYS = 64  # of a program at a time
LEAST_ROWS = 16  # of a product on matrix units


def emit_attention_step(op: Op) -> EmittedLaunch:
    """One program some keys (grid axis 1) of a group of heads of a batch (axis 0)."""
    return _Step(op).emit()


class _Step:
    def __init__(self, op: Op) -> None:
        self.region = Region(op)
        body = self.region.body
        (self.root,) = (o for o in body.ops if o.name == "attention")
        q, k, v = self.root.operands[:3]
        assert k.op is not None and v.op is not None
        self.writes = (k.op, v.op)
        self.batch, self.heads, _, self.size = q.type.sizes
        _, self.groups, self.length, _ = k.type.sizes
        self.wide = v.type.sizes[3]
        self.share = self.heads // self.groups
        parts = self.batch * self.groups
        blocks = -(-self.length // KEYS)
        self.splits = max(1, min(blocks, 2 * MULTIPROCESSORS // parts))
        self.span = -(-blocks // self.splits) * KEYS
        self.splits = -(-self.length // self.span)
        domain = self.region.domain
        self.part = domain.loop("part", parts)
        self.r, self.j = domain.loop("r", self.share), domain.loop("j", self.length)
        self.d, self.e = domain.loop("d", self.size), domain.loop("e", self.wide)
        self.printer = self.region.printer()
        self.lowering = Lowering(domain)
        at = axes_coordinates(self.part, (self.batch, self.groups), (0, 1), domain)
        self.b, self.g = at[0], at[1]
        self.rows = max(next_power_of_two(self.share), LEAST_ROWS)
        self.block_d = max(next_power_of_two(self.size), 16)
        self.block_e = max(next_power_of_two(self.wide), 16)

    # -- what is bound how

    def _bind(self, **texts: str) -> None:
        """Binds r, j, d, e to blocks, each with the mask of its own that it needs."""
        p = self.printer
        loops = {"r": self.r, "j": self.j, "d": self.d, "e": self.e}
        for name in texts:
            p.forget(loops[name])
        for name, text in texts.items():
            masked = (
                name == "j"
                or {
                    "r": self.rows != self.share,
                    "d": self.block_d != self.size,
                    "e": self.block_e != self.wide,
                }[name]
            )
            mask = text.replace(name, "seen" if name == "j" else f"in_{name}", 1) if masked else ""
            p.bind(loops[name], text, mask)

    def _is_early(self, node: Node) -> bool:
        """Whether nothing that a kernel writes is read for it."""
        match node:
            case Load():
                owner = owner_of(self.region.operands[self.region.inputs.index(node.source)])[0]
                known = owner.op is None or owner.op.name == "constant"
                return known and all(map(self._is_early, self._nodes_in(node.offset)))
            case Apply():
                return all(map(self._is_early, node.arguments))
            case Wrapped():
                return self._is_early(node.index)
            case Choose():
                return self._is_early(node.then) and self._is_early(node.otherwise)
            case _:
                return isinstance(node, Index) or not isinstance(node, Given)

    def _nodes_in(self, offset: dims.Dim) -> list[Node]:
        """The loaded indices that an offset is calculated from."""
        domain = self.region.domain
        found: list[Node] = []
        for variable in domain.variables_of(offset):
            definition = domain.definitions.get(variable)
            if definition is None:
                continue
            if definition.operator == "data":
                assert isinstance(definition.node, Wrapped)
                found.append(definition.node)
            else:
                found += self._nodes_in(definition.dividend) + self._nodes_in(definition.divisor)
        return found

    # -- the kernel

    def emit(self) -> EmittedLaunch:
        p, index = self.printer, self.region.index
        p.line(f"part = tl.program_id(0){index}")
        p.line(f"split = tl.program_id(1){index}")
        p.line(f"r = tl.arange(0, {self.rows})")
        p.line(f"d, e = tl.arange(0, {self.block_d}), tl.arange(0, {self.block_e})")
        for name, block, extent in (
            ("r", self.rows, self.share), ("d", self.block_d, self.size),
            ("e", self.block_e, self.wide),
        ):  # fmt: skip
            if block != extent:
                p.line(f"in_{name} = {name} < {extent}")
        p.bind(self.part, "part")
        where = self.lowering.at(self.writes[0].operands[1], (self.b, self.g, 0, 0))
        self.place = self.lowering.wrapped(where, self.length, "place")
        more = self.root.operands[3:]
        self.mask: Node | None = None
        if more:
            shape = (*self.root.result.type.shape[:3], self.length)
            at = self.lowering.broadcast((self.b, 0, 0, self.j), shape, more[0].type.shape)
            self.mask = self.lowering.at(more[0], at)
        early = self._is_early(where) and (self.mask is None or self._is_early(self.mask))
        single = self.span == KEYS
        if early:
            p.line(f"place = {p.dim(self.place)}")
            if single:
                self._load("0")
        p.line("_wait()")
        if not early:
            p.line(f"place = {p.dim(self.place)}")
        self._fresh()
        p.line(f"peak = tl.full([{self.rows}], float('-inf'), tl.float32)")
        p.line(f"total = tl.zeros([{self.rows}], tl.float32)")
        p.line(f"sums = tl.zeros([{self.rows}, {self.block_e}], tl.float32)")
        if single:
            if not early:
                self._load("0")
            self._attend()
        else:
            p.line(f"for start in range(0, {self.span}, {KEYS}):")
            saved = p.enter()
            self._load("start")
            self._attend()
            p.leave(saved)
        self._write()
        extra = self._combine()
        text = f"one query of {self.heads} heads of {self.size} to {self.length} keys and values"
        launch = self.region.launch(
            "attention_step", text, p, (self.batch * self.groups, self.splits), num_warps=4,
            num_stages=2, extra=extra,
        )  # fmt: skip
        return replace(launch, in_place=self._pairs())

    def _pairs(self) -> tuple[tuple[int, int], ...]:
        inputs, outputs = self.region.inputs, self.region.outputs
        return tuple(
            (len(inputs) + outputs.index(w.result), inputs.index(w.operands[0]))
            for w in self.writes
        )

    def _load(self, start: str) -> None:
        """A block of keys and values from the caches, without the row that this step writes."""
        p = self.printer
        p.line(f"j = split * {self.span} + {start} + tl.arange(0, {KEYS})")
        p.line(f"seen = j < {self.length}")
        p.forget(self.j)
        if self.mask is not None:
            p.bind(self.j, "j", "seen")
            p.line(f"seen = seen & {p.node(self.mask)}")
        for name, write, text in (
            ("keys", self.writes[0], {"d": "d[:, None]", "j": "j[None, :]"}),
            ("values", self.writes[1], {"e": "e[None, :]", "j": "j[:, None]"}),
        ):
            p.line("held = seen & (j != place)")
            self._bind(**text)
            p.bind(self.j, text["j"], text["j"].replace("j", "held"))
            inner = self.d if name == "keys" else self.e
            node = self.lowering.at(write.operands[0], (self.b, self.g, self.j, inner))
            p.line(f"{name} = {p.stored(node)}")

    def _fresh(self) -> None:
        """The queries, and the row that goes into the caches."""
        p = self.printer
        type = triton_type(self.root.operands[0].type.dtype)
        self._bind(r="r[:, None]", d="d[None, :]")
        head = dims.multiply(self.g, self.share) + self.r
        query = p.node(self.lowering.at(self.root.operands[0], (self.b, head, 0, self.d)))
        p.line(f"query = tl.cast({query}, {type})")
        if self.rows != self.share or self.block_d != self.size:
            masks = ["in_r[:, None]"] * (self.rows != self.share)
            masks += ["in_d[None, :]"] * (self.block_d != self.size)
            p.line(f"query = tl.where({' & '.join(masks)}, query, 0).to({type})")
        self._bind(d="d[:, None]")
        new = self.lowering.at(self.writes[0].operands[2], (self.b, self.g, 0, self.d))
        p.line(f"fresh = tl.cast({p.node(new)}, {type})")
        if self.block_d != self.size:
            p.line(f"fresh = tl.where(in_d[:, None], fresh, 0).to({type})")
        self._bind(e="e[None, :]")
        new = self.lowering.at(self.writes[1].operands[2], (self.b, self.g, 0, self.e))
        p.line(f"given = tl.cast({p.node(new)}, {type})")

    def _attend(self) -> None:
        p, root = self.printer, self.root
        precision = "tf32" if root.attribute("tf32") else "ieee"
        p.line("keys = tl.where(j[None, :] == place, fresh, keys)")
        p.line("values = tl.where(j[:, None] == place, given, values)")
        p.line(f"scores = tl.dot(query, keys, input_precision='{precision}')")
        scale, cap = float(root.attribute("scale")), float(root.attribute("softcap"))
        if cap:
            p.line(f"scores = libdevice.tanh(scores * {scale / cap!r}) * {cap * LOG2_E!r}")
        else:
            p.line(f"scores = scores * {scale * LOG2_E!r}")
        p.line("scores = tl.where(seen[None, :], scores, float('-inf'))")
        p.line("most = tl.maximum(peak, tl.max(scores, axis=1))")
        p.line("level = tl.where(most == float('-inf'), 0.0, most)")
        p.line("weights = tl.exp2(scores - level[:, None])")
        p.line("fade = tl.exp2(peak - level)")
        p.line("total = total * fade + tl.sum(weights, axis=1)")
        p.line("peak = most")
        type = triton_type(root.operands[2].type.dtype)
        p.line(f"sums = tl.dot(weights.to({type}), values, sums * fade[:, None], "
               f"input_precision='{precision}')")  # fmt: skip

    def _write(self) -> None:
        """The new row, by the program whose keys it is among; the others too, into other storage."""
        p, region = self.printer, self.region
        for write, inner, text, name in (
            (self.writes[0], self.d, "d[:, None]", "fresh"),
            (self.writes[1], self.e, "e[None, :]", "given"),
        ):
            letter = text[0]
            source = region.pointers[write.operands[0]]
            number = region.outputs.index(write.result)
            target = region.out_pointers[number]
            self._bind(**{letter: text})
            p.forget(self.j)
            type = write.result.type
            offset = offset_of(type, (self.b, self.g, self.place, inner), region.domain)
            mask = (
                f", mask=in_{text}" if text in ("d[:, None]",) and self.block_d != self.size else ""
            )
            if letter == "e" and self.block_e != self.wide:
                mask = ", mask=in_e[None, :]"
            p.line(f"if place // {self.span} == split:")
            saved = p.enter()
            p.line(f"tl.store({target} + {p.address(offset)}, {name}{mask})")
            p.leave(saved)
            p.line(f"if {source}.to(tl.int64) != {target}.to(tl.int64):")
            saved = p.enter()
            p.line(f"for start in range(0, {self.span}, {KEYS}):")
            again = p.enter()
            p.line(f"j = split * {self.span} + start + tl.arange(0, {KEYS})")
            p.line(f"seen = (j < {self.length}) & (j != place)")
            self._bind(**{letter: text, "j": "j[None, :]" if letter == "d" else "j[:, None]"})
            at = (self.b, self.g, self.j, inner)
            node = self.lowering.at(write.operands[0], at)
            offset = offset_of(type, at, region.domain)
            p.store(target, type.dtype, offset, node, dims.symbols_of((self.j, inner)))
            p.leave(again)
            p.leave(saved)

    def _combine(self) -> list[Extra]:
        """Stores the result; with several parts of keys, in the program that comes last."""
        p = self.printer
        if self.splits == 1:
            self._store()
            return []
        rows, share, wide, splits = self.rows, self.share, self.block_e, self.splits
        parts = self.batch * self.groups
        area = rows * wide
        in_r = ", mask=in_r" if rows != share else ""
        whole = ", mask=in_r[:, None]" if rows != share else ""
        p.line(f"cell = r[:, None] * {wide} + e[None, :]")
        p.line(f"partial = p_partial + part * {splits * (area + 2 * rows)}")
        p.line(f"low = partial + {splits * area}")
        p.line(f"tl.store(partial + split * {area} + cell, sums{whole})")
        p.line(f"tl.store(low + split * {2 * rows} + r, peak{in_r})")
        p.line(f"tl.store(low + split * {2 * rows} + {rows} + r, total{in_r})")
        p.line("tl.debug_barrier()")
        p.line("arrived = tl.atomic_add(p_arrived + part, 1, sem='acq_rel', scope='gpu')")
        p.line(f"if arrived == {splits - 1}:")
        saved = p.enter()
        p.line("tl.store(p_arrived + part, 0)")
        fresh = ", cache_modifier='.cg'"
        least = ", other=float('-inf')" if in_r else ""
        zero = ", other=0" if in_r else ""
        p.line(f"top = tl.full([{rows}], float('-inf'), tl.float32)")
        p.line(f"for other in tl.static_range({splits}):")
        p.line(f"    peak = tl.load(low + other * {2 * rows} + r{in_r}{least}{fresh})")
        p.line("    top = tl.maximum(top, peak)")
        p.line("level = tl.where(top == float('-inf'), 0.0, top)")
        p.line(f"total = tl.zeros([{rows}], tl.float32)")
        p.line(f"sums = tl.zeros([{rows}, {wide}], tl.float32)")
        p.line(f"for other in tl.static_range({splits}):")
        p.line(f"    peak = tl.load(low + other * {2 * rows} + r{in_r}{least}{fresh})")
        p.line("    fade = tl.exp2(peak - level)")
        p.line(f"    count = tl.load(low + other * {2 * rows} + {rows} + r{in_r}{zero}{fresh})")
        p.line("    total += count * fade")
        p.line(f"    taken = tl.load(partial + other * {area} + cell{whole}{zero}{fresh})")
        p.line("    sums += taken * fade[:, None]")
        self._store()
        p.leave(saved)
        size = 4 * parts * splits * (area + 2 * rows)
        return [
            Extra("p_partial", "*fp32", "pointer", Workspace(size)),
            Extra("p_arrived", "*i32", f"zeros:{4 * parts}"),
        ]

    def _store(self) -> None:
        p, root, region = self.printer, self.root, self.region
        empty = "0.0" if root.attribute("empty") == "zero" else "float('nan')"
        p.line(f"product = tl.where(total[:, None] == 0, {empty}, sums / total[:, None])")
        provided = Given("product", compute_dtype(root.result.type.dtype))

        def given(value: Value, coordinates: object) -> Node | None:
            del coordinates
            return provided if value is root.result else None

        epilogue = Lowering(region.domain, given=given)
        self._bind(r="r[:, None]", e="e[None, :]")
        head = dims.multiply(self.g, self.share) + self.r
        at = (self.b, head, 0, self.e)
        written = {w.result for w in self.writes}
        for value, pointer in zip(region.outputs, region.out_pointers, strict=True):
            if value in written:
                continue
            inner, where = store_coordinates(value, at, root, region)
            offset = offset_of(value.type, where, region.domain)
            p.store(pointer, value.type.dtype, offset, epilogue.at(inner, at),
                    dims.symbols_of((self.r, self.e)))  # fmt: skip
