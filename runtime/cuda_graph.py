"""One binding's kernels as a CUDA graph: a chain of nodes whose pointers can be changed in place.

A kernel that waits for the one before it by itself (`Kernel.waits`) gets a programmatic edge: it may
start, and do what depends on nothing, while that one ends.  Tensor maps are encoded here, from a
pointer and the launch's scalars.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphwright.runtime.cuda_driver import Device, Parameters, TensorMap, check
from graphwright.runtime.manifest import Kernel
from graphwright.runtime.program import Placement

MAP_ALIGNMENT = 256  # bytes, of zeros of a launch


@dataclass(frozen=True, slots=True)
class Grid:
    """How a kernel is launched: blocks along three axes."""

    x: int
    y: int
    z: int


class Node:
    """One kernel node: the function, its parameters, and where its pointers come from."""

    __slots__ = ("first_pointer", "function", "grid", "handle", "kernel", "maps", "parameters",
                 "places")  # fmt: skip

    def __init__(
        self,
        device: Device,
        function: Any,
        kernel: Kernel,
        grid: Grid,
        pointers: Sequence[int],
        scalars: Sequence[int],
        *,
        first_pointer: int,
        zeros: int,
    ) -> None:
        """`zeros`: the address of `zero_bytes(kernel)` bytes of this node that are 0."""
        kinds: list[str] = []
        values: list[Any] = []
        self.places: list[tuple[int, int]] = []  # (parameter, pointer of this launch)
        self.maps: dict[int, TensorMap] = {}  # by parameter
        for parameter in kernel.parameters:
            what, _, rest = parameter.partition(":")
            if what == "pointer":
                self.places.append((len(kinds), int(rest)))
                kinds.append("p")
                values.append(pointers[int(rest)])
            elif what == "scalar":
                number, _, kind = rest.partition(":")
                kinds.append(kind)
                values.append(scalars[int(number)])
            elif what == "map":
                made = tensor_map(rest, scalars)
                number = int(rest.partition(":")[0])
                self.places.append((len(kinds), number))
                self.maps[len(kinds)] = made
                kinds.append("map")
                values.append(device.encode(made, pointers[number]))
            elif what == "zeros":
                kinds.append("p")
                values.append(zeros)
                zeros += aligned(int(rest))
            else:
                kinds.append("p")
                values.append(0)
        self.function, self.kernel, self.grid = function, kernel, grid
        self.parameters = Parameters(kinds, values)
        self.first_pointer = first_pointer
        self.handle: Any = None

    def set_pointer(self, device: Device, parameter: int, address: int) -> None:
        """The address, or the tensor map that is made of it, as a parameter."""
        made = self.maps.get(parameter)
        value = address if made is None else device.encode(made, address)
        self.parameters.set(parameter, value)


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


class Replay:
    """The instantiated graph of one binding in one context, and the pointers that it holds now."""

    def __init__(
        self, device: Device, placement: Placement, nodes: list[Node], pointers: np.ndarray
    ) -> None:
        self.device, self.placement, self.nodes = device, placement, nodes
        self.pointers = pointers
        self.of_pointer: dict[int, list[tuple[Node, int]]] = {}
        for node in nodes:
            for parameter, number in node.places:
                position = node.first_pointer + number
                self.of_pointer.setdefault(position, []).append((node, parameter))
        self.executable: Any = None

    def node_parameters(self, node: Node) -> Any:
        p = self.device.driver.CUDA_KERNEL_NODE_PARAMS()
        p.func = node.function
        p.gridDimX, p.gridDimY, p.gridDimZ = node.grid.x, node.grid.y, node.grid.z
        p.blockDimX, p.blockDimY, p.blockDimZ = node.kernel.threads, 1, 1
        p.sharedMemBytes = node.kernel.shared_bytes
        p.kernelParams = node.parameters.address
        return p

    def instantiate(self) -> None:
        """Builds the graph as a chain of kernel nodes and instantiates it."""
        device, driver = self.device, self.device.driver
        graph = check("cuGraphCreate", driver.cuGraphCreate(0))
        previous: Any = None
        for node in self.nodes:
            early = previous is not None and node.kernel.waits
            before = [] if previous is None or early else [previous]
            node.handle = check(
                "cuGraphAddKernelNode",
                driver.cuGraphAddKernelNode(graph, before, len(before), self.node_parameters(node)),
            )
            if early:
                device.add_programmatic_edge(graph, previous, node.handle)
            previous = node.handle
        self.executable = check("cuGraphInstantiate", driver.cuGraphInstantiate(graph, 0))
        self._graph = graph

    def set_pointers(self, changes: Sequence[tuple[int, int]]) -> None:
        """(position, address) pairs; nodes whose pointers differ from before are updated."""
        touched: dict[int, Node] = {}
        for position, address in changes:
            if self.pointers[position] == address:
                continue
            self.pointers[position] = address
            for node, parameter in self.of_pointer.get(position, ()):
                node.set_pointer(self.device, parameter, address)
                touched[id(node)] = node
        if self.executable is None:
            return
        for node in touched.values():
            check(
                "cuGraphExecKernelNodeSetParams",
                self.device.driver.cuGraphExecKernelNodeSetParams(
                    self.executable, node.handle, self.node_parameters(node)
                ),
            )

    def launch(self, stream: Any) -> None:
        if not self.nodes:
            return
        if self.executable is None:
            self.instantiate()
        check("cuGraphLaunch", self.device.driver.cuGraphLaunch(self.executable, stream))
