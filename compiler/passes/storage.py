"""Decides where every value lies: in an input, an output, a weight, or an arena buffer.

Works on the final list of steps (launches, branches, jumps) as data, so that it needs to know no
kernel.  Values that share storage are joined first:

- a view is its operand at a byte offset (views.py);
- the operands of a joined concatenation lie in the storage of the first;
- a declared alias (an in-place update) is its operand;
- a captured value inside a body is the operand outside;
- a carried value of a loop is the loop's result, and what is copied to it at the start and by each
  iteration is written there at once where the old value is not read any more (loop_storage.py);
- a body's output is the result of the `if`, so that the branch writes it in place, unless the `if`
  binds its size: then it is moved there;
- the written value of an in-place pair takes the storage of an operand that dies there.

Each group then lies in the input, output or constant that is among its members, or in an arena
buffer that lives from the first to the last step that touches a member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from graphwright.compiler.ir.dims import Dim, Symbol, is_multiple, prove, symbols_of
from graphwright.compiler.ir.graph import Graph, Value
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.ir.symbol_scope import bound_by, is_sized_by
from graphwright.compiler.passes.loop_storage import (
    extend_over_loops,
    is_free_before,
    joined_inputs,
)
from graphwright.compiler.passes.plan_memory import ALIGNMENT, BufferRequest
from graphwright.compiler.passes.views import is_joined, view_of
from graphwright.errors import CompileError

Space: TypeAlias = Literal["arena", "input", "output", "weight"]


@dataclass(frozen=True, slots=True)
class Place:
    """The storage of a value: `offset` bytes into buffer, input, output or weight `index`."""

    space: Space
    index: int
    offset: Dim = 0


@dataclass(frozen=True, slots=True)
class Step:
    """What one launch touches.  `workspaces`: sizes in bytes of scratch memory that it needs.

    `in_place`: (written, read) values that may share storage, because the kernel reads each element
    before it writes the element that takes its place.  `is_copy`: the one value read is copied to the
    one written.  `back`: how many steps the replay goes back after this one, the end of a loop.
    """

    reads: tuple[Value, ...] = ()
    writes: tuple[Value, ...] = ()
    workspaces: tuple[Dim, ...] = ()
    in_place: tuple[tuple[Value, Value], ...] = ()
    is_copy: bool = False
    back: int = 0


@dataclass(frozen=True, slots=True)
class Storage:
    """`places`: every value that a step touches, and views of those; `workspaces`: (step, number)
    -> buffer; `buffers`: arena requests by index; `weights`: the constants read, by index;
    `reused`: (written, read) pairs that share storage in place.  `updated`: (output, input) pairs of the
    graph's updates whose output may lie where the input does.
    """

    places: Mapping[Value, Place]
    workspaces: Mapping[tuple[int, int], int]
    buffers: tuple[BufferRequest, ...]
    weights: tuple[Value, ...]
    reused: tuple[tuple[Value, Value], ...] = ()
    updated: tuple[tuple[int, int], ...] = ()


def assign_storage(graph: Graph, steps: Sequence[Step]) -> Storage:
    """Storage for a graph whose ops the steps compute in order.

    Requires that each output of the graph and of an `if` body is produced in that graph, once, with
    storage of its own (`separate-outputs` inserts the copies that this takes).  Raises CompileError
    when a value is read that nobody wrote, or an output is an input, constant or part of a value.
    """
    return _Assignment(graph, steps).run()


def direct_source(value: Value) -> tuple[Value, Dim] | None:
    """The value that this one is a view or alias of, one step up in its own graph, and its offset."""
    op = value.op
    if op is None:
        return None
    if value.index in op.definition.aliases:
        return op.operands[op.definition.aliases[value.index]], 0
    offset = view_of(op)
    if offset is not None:
        return op.operands[0], offset
    beside = _beside(value)
    return None if beside is None else (beside, 0)


def _beside(value: Value) -> Value | None:
    """The first operand of the joined concatenation that holds a value as another operand."""
    if value.type.layout is None or not value.type.layout.windows:
        return None
    for user in value.users:
        if is_joined(user) and user.operands[0] is not value:
            return user.operands[0]
    return None


def owner_of(value: Value) -> tuple[Value, Dim]:
    """The value at the end of views and aliases in its own graph, and the offset in its storage."""
    offset: Dim = 0
    while (source := direct_source(value)) is not None:
        value, offset = source[0], offset + source[1]
    return value, offset


def is_whole(owner: Value, value: Value, offset: Dim) -> bool:
    """Whether a value is all of the storage of an op's result that owns it."""
    same = prove(owner.type.storage_bytes, "==", value.type.storage_bytes)
    return owner.op is not None and offset == 0 and same is True


class _Assignment:
    def __init__(self, graph: Graph, steps: Sequence[Step]) -> None:
        self.graph, self.steps = graph, steps
        self.joined: dict[Value, tuple[Value, Dim]] = {}  # beyond views: (value, offset there)
        self.fixed: dict[Value, Place] = {}  # groups outside the arena
        self.weights: dict[Value, int] = {}
        self.first: dict[Value, int] = {}
        self.last: dict[Value, int] = {}
        self.reused: list[tuple[Value, Value]] = []
        self.late: set[Symbol] = set()

    def root(self, value: Value) -> tuple[Value, Dim]:
        offset: Dim = 0
        while True:
            above = self.joined.get(value) or direct_source(value)
            if above is None:
                return value, offset
            value, offset = above[0], offset + above[1]

    def run(self) -> Storage:
        self._join_bodies(self.graph)
        for i, value in enumerate(self.graph.inputs):
            self.fixed[value] = Place("input", i)
        for i, value in enumerate(self.graph.outputs):
            self._claim(value, Place("output", i), f"output {self.graph.output_names[i]!r}")
        self._measure()
        extend_over_loops(self.steps, self.first, self.last)
        self._coalesce_copies()
        self._reuse_in_place()
        return self._result()

    def _join_bodies(self, graph: Graph) -> None:
        for op in graph.ops:
            if op.kind is not Kind.CONTROL:
                continue
            self.late.update(bound_by(op))
            for body in op.bodies:
                for inside, outside in joined_inputs(op, body):
                    self.joined[inside] = (outside, 0)
                self._join_bodies(body)
                if op.name == "loop":
                    continue  # what it yields is copied
                for result, output in zip(op.results, body.outputs, strict=True):
                    if is_sized_by(op, result):
                        continue  # moved there when its size is bound
                    owner, offset = self.root(output)
                    where = f"output {output.index} of a body of {op.name}#{op.id}"
                    if not is_whole(owner, output, offset) or owner.graph is not body:
                        raise CompileError(f"{where} has no storage of its own; copy it")
                    self.joined[owner] = (result, 0)

    def _claim(self, value: Value, place: Place, what: str) -> None:
        owner, offset = self.root(value)
        taken = owner in self.fixed or (owner.op is not None and owner.op.name == "constant")
        if taken or not is_whole(owner, value, offset):
            raise CompileError(f"{what} has no storage of its own; copy it")
        self.fixed[owner] = place

    def _measure(self) -> None:
        written: set[Value] = set()
        for at, step in enumerate(self.steps):
            for value in (*step.reads, *step.writes):
                owner, _ = self.root(value)
                if owner.op is not None and owner.op.name == "constant":
                    self.weights.setdefault(owner, len(self.weights))
                    if value in step.writes:
                        raise CompileError(f"step {at} writes the constant {owner!r}")
                    continue
                self.first.setdefault(owner, at)
                self.last[owner] = at
            for value in step.writes:
                owner, _ = self.root(value)
                if self.fixed.get(owner, Place("arena", 0)).space == "input":
                    raise CompileError(f"step {at} writes the graph input {owner!r}")
                written.add(owner)
            for value in step.reads:
                owner, _ = self.root(value)
                is_given = owner in self.weights or (
                    owner in self.fixed and self.fixed[owner].space == "input"
                )
                if not is_given and owner not in written:
                    raise CompileError(f"step {at} reads {owner!r}, which no step before writes")

    def _in_arena(self, owner: Value) -> bool:
        return owner not in self.fixed and owner not in self.weights

    def _coalesce_copies(self) -> None:
        for at, step in enumerate(self.steps):
            if not step.is_copy:
                continue
            (source,), (target,) = step.reads, step.writes
            (owner, offset), (home, _) = self.root(source), self.root(target)
            if owner is home or not self._in_arena(owner) or not is_whole(owner, source, offset):
                continue
            fits = self.last[owner] == at and self._segment(owner) == self._segment(home)
            if fits and is_free_before(
                self.steps, at, owner, home, self.first, lambda v: self.root(v)[0]
            ):
                self.joined[owner] = (home, 0)
                self.first[home] = min(self.first[home], self.first[owner])

    def _reuse_in_place(self) -> None:
        for at, step in enumerate(self.steps):
            taken: set[Value] = set()
            for written, read in step.in_place:
                target, (source, offset) = self.root(written)[0], self.root(read)
                # All reads of the source's storage in this step must be of this very pair.
                others = [v for v in step.reads if v is not read and self.root(v)[0] is source]
                allowed = (
                    target is written
                    and target is not source
                    and target not in taken
                    and source not in taken
                    and self._in_arena(target)
                    and self._in_arena(source)
                    and self.first[target] == at
                    and self.last[source] == at
                    and not others
                    and source not in {self.root(v)[0] for v in step.writes}
                    and is_multiple(offset, ALIGNMENT)
                    and self._segment(target) == self._segment(source)
                    and prove(written.type.storage_bytes, "<=", read.type.storage_bytes) is True
                )
                if not allowed:
                    continue
                self.joined[target] = (source, offset)
                self.last[source] = max(self.last[source], self.last[target])
                taken |= {source, target}
                self.reused.append((written, read))

    def _updated(self) -> list[tuple[int, int]]:
        """Updates that may be made in place: nobody reads the old value when the new one is begun, or
        the one who does reads each element before its place is written.
        """
        found: list[tuple[int, int]] = []
        if any(step.back for step in self.steps):
            return found  # an iteration may read what the one before has overwritten
        for output, input in self.graph.updates.items():
            old, (new, offset) = self.graph.inputs[input], self.root(self.graph.outputs[output])
            if old.type.shape != self.graph.outputs[output].type.shape or offset != 0:
                continue
            start, last = self.first.get(new, -1), self.last.get(old, -1)
            alone = all(i != input for _, i in found) and not self._segment(old)
            if alone and (last < start or (last == start and self._one_pair(start, new, old))):
                found.append((output, input))
        return found

    def _one_pair(self, at: int, new: Value, old: Value) -> bool:
        """Whether a step's only read of `old` and write of `new` are a pair that may share storage."""
        step = self.steps[at]
        reads = [v for v in step.reads if self.root(v)[0] is old]
        writes = [v for v in step.writes if self.root(v)[0] is new]
        return (
            len(reads) == len(writes) == 1
            and (writes[0], reads[0]) in step.in_place
            and self.root(reads[0])[1] == 0
            and prove(reads[0].type.storage_bytes, "==", old.type.storage_bytes) is True
        )

    def _segment(self, owner: Value) -> set[Symbol]:
        """The symbols bound in mid-run on which a size depends: with them its place changes."""
        return self.late.intersection(symbols_of(owner.type.storage_bytes))

    def _result(self) -> Storage:
        buffers: list[BufferRequest] = []
        number: dict[Value, int] = {}
        names: dict[Value, list[str]] = {}
        for step in self.steps:
            for value in (*step.reads, *step.writes):
                owner = self.root(value)[0]
                if value not in names.setdefault(owner, []):
                    names[owner].append(_name(value))
        for owner, first in self.first.items():
            if not self._in_arena(owner) or self.root(owner)[0] is not owner:
                continue
            number[owner] = len(buffers)
            held = tuple(dict.fromkeys(names[owner]))
            buffers.append(BufferRequest(owner.type.storage_bytes, first, self.last[owner], held))
        workspaces: dict[tuple[int, int], int] = {}
        for at, step in enumerate(self.steps):
            for k, size in enumerate(step.workspaces):
                workspaces[at, k] = len(buffers)
                buffers.append(BufferRequest(size, at, at, (f"workspace of step {at}",)))
        places: dict[Value, Place] = {}

        def place(value: Value) -> None:
            owner, offset = self.root(value)
            if owner in self.fixed:
                base = self.fixed[owner]
                places[value] = Place(base.space, base.index, offset)
            elif owner in self.weights:
                places[value] = Place("weight", self.weights[owner], offset)
            elif owner in number:
                places[value] = Place("arena", number[owner], offset)

        for value in _values(self.graph):
            place(value)
        return Storage(
            places, workspaces, tuple(buffers), tuple(self.weights), tuple(self.reused),
            tuple(self._updated()),
        )  # fmt: skip


def _values(graph: Graph) -> list[Value]:
    out = list(graph.inputs)
    for op in graph.ops:
        if op.kind is Kind.CONTROL:
            for body in op.bodies:
                out += _values(body)
        out += op.results
    return out


def _name(value: Value) -> str:
    if value.name:
        return f"%{value.name}"
    return f"%{value.op.id}.{value.index}" if value.op else f"%input{value.index}"


def check_storage(graph: Graph, steps: Sequence[Step], storage: Storage) -> None:
    """Raises CompileError unless every touched value has a place, inside what it lies in, arena
    buffers outlive the steps that touch them, and no step overwrites what is still read later.
    """
    holder: dict[Place, Value] = {}  # (space, index) at offset -> the value last written there
    for at, step in enumerate(steps):
        for value in (*step.reads, *step.writes):
            place = storage.places.get(value)
            if place is None:
                raise CompileError(f"step {at}: {value!r} has no place")
            if place.space == "arena":
                buffer = storage.buffers[place.index]
                if not buffer.first <= at <= buffer.last:
                    raise CompileError(f"step {at}: the buffer of {value!r} is not live")
                end = place.offset + value.type.storage_bytes
                if prove(end, ">", buffer.size) is True or prove(place.offset, "<", 0) is True:
                    raise CompileError(f"step {at}: {value!r} reaches beyond its buffer")
        for value in step.reads:
            held = holder.get(storage.places[value])
            if held is not None and held is not value and not _same_bytes(value, held):
                raise CompileError(f"step {at} reads {value!r}, whose place holds {held!r} by now")
        for value in step.writes:
            holder[storage.places[value]] = value


def _same_bytes(a: Value, b: Value) -> bool:
    # Views of one value hold its bytes; so do the two ends of a body's boundary.
    return _viewed(a) is _viewed(b) or a.graph is not b.graph


def _viewed(value: Value) -> Value:
    while value.op is not None:
        if view_of(value.op) is not None:
            value = value.op.operands[0]
            continue
        beside = _beside(value)
        if beside is None:
            break
        value = beside
    return value
