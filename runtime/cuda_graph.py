"""Kernels in a row as a CUDA graph: a chain of nodes whose pointers can be changed in place.

A kernel that waits for the one before it by itself (`Kernel.waits`) gets a programmatic edge: it may
start, and do what depends on nothing, while that one ends.  Tensor maps are encoded here, from a
pointer and the launch's scalars.  The same nodes can be launched one by one, without a graph.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from graphwright.runtime.cuda_driver import AlignedBytes, Device, TensorMap, check
from graphwright.runtime.cuda_library import KernelNodeParams
from graphwright.runtime.manifest import Kernel

MAP_ALIGNMENT = 256  # bytes, of zeros of a launch
# Instantiated graphs of one piece, each for other addresses: a caller that keeps its last results
# alternates between two or three sets, and none of these calls then updates a node.
KEPT = 4
_WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Grid:
    """How a kernel is launched: blocks along three axes."""

    x: int
    y: int
    z: int


class Node:
    """One launch of a kernel: its parameters in memory, and where its pointers come from."""

    __slots__ = ("_names", "_scalars", "_table", "device", "first_pointer", "handle", "made",
                 "maps", "params", "params_address", "places", "values", "waits")  # fmt: skip

    def __init__(
        self,
        device: Device,
        function: int,
        kernel: Kernel,
        grid: Grid,
        pointers: Sequence[int],
        scalars: Sequence[int],
        *,
        first_pointer: int,
        zeros: int,
    ) -> None:
        """`zeros`: the address of `zero_bytes(kernel)` bytes of this node that are 0."""
        count = len(kernel.parameters)
        self.device, self.first_pointer, self.waits = device, first_pointer, kernel.waits
        self.values = (ctypes.c_uint64 * max(count, 1))()
        self._table = (ctypes.c_void_p * max(count, 1))()
        self.places: list[tuple[int, int]] = []  # (parameter, pointer of this launch)
        self.maps: dict[int, AlignedBytes] = {}  # by parameter
        self.made: dict[int, TensorMap] = {}  # what these say
        self._names: dict[int, str] = {}  # as the manifest describes them
        self._scalars: list[tuple[int, int, str]] = []  # (parameter, scalar, type)
        first = ctypes.addressof(self.values)
        for at, parameter in enumerate(kernel.parameters):
            self._table[at] = first + 8 * at
            what, _, rest = parameter.partition(":")
            if what == "pointer":
                self.places.append((at, int(rest)))
            elif what == "scalar":
                number, _, kind = rest.partition(":")
                self._scalars.append((at, int(number), kind))
            elif what == "map":
                self.places.append((at, int(rest.partition(":")[0])))
                self._names[at] = rest
                room = self.maps[at] = AlignedBytes(bytes(128))
                self._table[at] = room.address
            elif what == "zeros":
                self.values[at] = zeros
                zeros += aligned(int(rest))
        self.params = KernelNodeParams(
            func=function, block_x=kernel.threads, block_y=1, block_z=1,
            shared_bytes=kernel.shared_bytes, params=ctypes.addressof(self._table),
        )  # fmt: skip
        self.params_address = ctypes.addressof(self.params)
        self.handle = 0  # in the graph that it was added to
        self.refresh(grid, pointers, scalars)

    def refresh(self, grid: Grid, pointers: Sequence[int], scalars: Sequence[int]) -> None:
        """Another grid, other pointers and scalars of the launch."""
        p = self.params
        p.grid_x, p.grid_y, p.grid_z = grid.x, grid.y, grid.z
        for at, number, kind in self._scalars:
            if kind == "f32":
                self.values[at] = int.from_bytes(struct.pack("<f", scalars[number]), "little")
            else:
                self.values[at] = scalars[number] & _WORD
        for at, number in self.places:
            if at in self.maps:
                made = self.made[at] = tensor_map(self._names[at], scalars)
                self.maps[at].value = self.device.encode(made, pointers[number])
            else:
                self.values[at] = pointers[number]

    def set_pointer(self, parameter: int, address: int, made: TensorMap | None) -> None:
        """The address, or the tensor map that is made of it, as a parameter."""
        if made is None:
            self.values[parameter] = address
        else:
            self.maps[parameter].value = self.device.encode(made, address)

    def launch(self, stream: int) -> None:
        """Launches the kernel by itself."""
        p = self.params
        code = self.device.driver.cuLaunchKernel(
            p.func, p.grid_x, p.grid_y, p.grid_z, p.block_x, p.block_y, p.block_z,
            p.shared_bytes, stream, p.params, None,
        )  # fmt: skip
        check("cuLaunchKernel", code)


def aligned(size: int) -> int:
    return -(-size // MAP_ALIGNMENT) * MAP_ALIGNMENT


def zero_bytes(kernel: Kernel) -> int:
    """Bytes of zeros that each launch of a kernel needs for itself."""
    found = (p.partition(":") for p in kernel.parameters)
    return sum(aligned(int(rest)) for what, _, rest in found if what == "zeros")


def tensor_map(text: str, scalars: Sequence[int]) -> TensorMap:
    """A "map:" parameter of a manifest, without the word, with its scalars."""
    _, kind, size, swizzle, box, first = text.split(":")
    extents = [int(n) for n in box.split("x")]
    start, rank = int(first), len(extents)
    shape = scalars[start : start + rank]
    strides = scalars[start + rank : start + 2 * rank]
    return TensorMap(
        int(kind), int(size), int(swizzle), tuple(extents), tuple(shape), tuple(strides)
    )


@dataclass(frozen=True, slots=True)
class Mover:
    """A parameter that follows one of the tensors that move from call to call."""

    node: Node
    parameter: int
    offset: int
    made: TensorMap | None


class _Executable:
    """An instantiated graph, and the addresses that its nodes hold."""

    __slots__ = ("addresses", "handle")

    def __init__(self, handle: int, addresses: tuple[int, ...]) -> None:
        self.handle, self.addresses = handle, addresses


class Piece:
    """Nodes that run one after the other, captured in a graph at their first launch.

    `movers[i]`: the parameters that follow the i-th moving tensor (inputs, then outputs).
    """

    def __init__(
        self, device: Device, nodes: Sequence[Node], movers: Mapping[int, Sequence[Mover]]
    ) -> None:
        self.device, self.nodes = device, nodes
        self.used = tuple(sorted(movers))
        self._movers = [tuple(movers[i]) for i in self.used]
        self._touched = [tuple({id(m.node): m.node for m in ms}.values()) for ms in self._movers]
        self._graph = 0
        self._base: tuple[int, ...] = ()
        self._last: _Executable | None = None
        self._kept: dict[tuple[int, ...], _Executable] = {}  # least recently used first
        self.updates = 0  # calls that had to change nodes
        self._launch: Callable[[int, int], int] = device.driver.cuGraphLaunch

    @property
    def executables(self) -> int:
        """How many graphs are instantiated."""
        return len(self._kept)

    def launch(self, addresses: Sequence[int], stream: int) -> None:
        """Replays the graph with the moving tensors at these addresses, of all of them in order."""
        if not self.nodes:
            return
        mine = tuple(addresses) if len(addresses) == len(self.used) else self._mine(addresses)
        found = self._last
        if found is None or found.addresses != mine:
            found = self._last = self._find(mine)
        code = self._launch(found.handle, stream)
        if code:
            check("cuGraphLaunch", code)

    def launch_one_by_one(self, addresses: Sequence[int], stream: int) -> None:
        """Launches the kernels without a graph."""
        self._write(self._mine(addresses))
        for node in self.nodes:
            node.launch(stream)

    def _mine(self, addresses: Sequence[int]) -> tuple[int, ...]:
        return tuple([addresses[i] for i in self.used])

    def _write(self, mine: tuple[int, ...]) -> None:
        for address, movers in zip(mine, self._movers, strict=True):
            for m in movers:
                m.node.set_pointer(m.parameter, address + m.offset, m.made)

    def _find(self, mine: tuple[int, ...]) -> _Executable:
        found = self._kept.pop(mine, None)
        if found is None:
            self._write(mine)
            if not self._graph:
                self._build(mine)
            if len(self._kept) < KEPT:
                found = _Executable(self.device.instantiate(self._graph), self._base)
            else:
                found = self._kept.pop(next(iter(self._kept)))
            self._update(found, mine)
        self._kept[mine] = found
        return found

    def _build(self, mine: tuple[int, ...]) -> None:
        graph = self.device.create_graph()
        previous: int | None = None
        for node in self.nodes:
            previous = node.handle = self.device.add_kernel_node(
                graph, previous, node.params, early=node.waits
            )
        self._graph, self._base = graph, mine

    def _update(self, executable: _Executable, mine: tuple[int, ...]) -> None:
        """The nodes whose addresses differ get those that were written last."""
        if executable.addresses == mine:
            return
        changed: dict[int, Node] = {}
        for new, old, nodes in zip(mine, executable.addresses, self._touched, strict=True):
            if new != old:
                for node in nodes:
                    changed[node.handle] = node
        update = self.device.driver.cuGraphExecKernelNodeSetParams_v2
        for node in changed.values():
            code = update(executable.handle, node.handle, node.params_address)
            if code:
                check("cuGraphExecKernelNodeSetParams", code)
        executable.addresses = mine
        self.updates += 1

    def close(self) -> None:
        """Frees the graphs; nothing of them may be running."""
        d = self.device.driver
        for executable in self._kept.values():
            check("cuGraphExecDestroy", d.cuGraphExecDestroy(executable.handle))
        if self._graph:
            check("cuGraphDestroy", d.cuGraphDestroy(self._graph))
        self._kept.clear()
        self._graph, self._last = 0, None
