"""Runs a program on an NVIDIA GPU: one CUDA graph per binding, built node by node, then replayed.

Device arrays (torch, cupy: anything with `__cuda_array_interface__`) are used where they lie, on
the caller's current stream, and the call is asynchronous; numpy arrays are copied in and out and the
call waits.  Nodes whose pointers changed since the last call are updated in the instantiated graph;
nothing is rebuilt.  The driver API is reached through `cuda_driver.py`; torch is never imported
here, only used when the caller's arrays are its tensors.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphwright.errors import ArtifactError, InputError
from graphwright.runtime.artifact import ArtifactFile
from graphwright.runtime.binding import Signature, describe
from graphwright.runtime.cuda_driver import Device
from graphwright.runtime.cuda_graph import Grid, Node, Replay, zero_bytes
from graphwright.runtime.expressions import evaluate_expression
from graphwright.runtime.interop import as_array
from graphwright.runtime.manifest import Kernel, Variant
from graphwright.runtime.program import Program

ALIGNMENT = 256  # bytes, of weights and of staged inputs and outputs
POINTER_ALIGNMENT = 16  # what kernels assume of every tensor
CACHED_BINDINGS = 16
WHY_NOT = {
    "bind": "a captured graph has fixed sizes, this program finds some while it runs",
    "check": "a captured graph has no branches in which a size would be checked",
    "loop": "a captured graph has no loops",
    "branch": "a captured graph has no branches",
}


def choose_variant(variants: Sequence[Variant], arch: str) -> Variant:
    """The variant for a compute capability.  Raises ArtifactError listing what there is."""
    for variant in variants:
        if variant.target == f"cuda:{arch}":
            return variant
    there = ", ".join(v.target for v in variants)
    raise ArtifactError(
        f"this device is {arch} and the artifact holds {there}; compile it with --target cuda:{arch}"
    )


class Context:
    """What one call in flight needs: a stream, an arena, staging for host arrays, replays."""

    def __init__(self, device: Device) -> None:
        self.device, self.stream = device, device.create_stream()
        self.last_stream: int | None = None  # where the last call was enqueued
        self.done = device.create_event()
        self.arena_address = self.arena_bytes = self._zeros = 0
        self.staging: dict[tuple[str, int], tuple[int, int]] = {}  # (side, index): address, bytes
        self.replays: OrderedDict[tuple[tuple[int, ...], ...], Replay] = OrderedDict()

    def follow(self, stream: int) -> None:
        """Makes work enqueued on `stream` wait for this context's last call on another one."""
        if self.last_stream is not None and self.last_stream != stream:
            self.device.wait_event(stream, self.done)
        self.last_stream = stream

    def reserve(self, size: int) -> None:
        """Makes the arena at least `size` bytes; replays of a smaller one are dropped."""
        if size <= self.arena_bytes:
            return
        self.replays.clear()
        if self.arena_address:
            self.device.synchronize(self.stream)
            self.device.free(self.arena_address)
            self.arena_address = self.arena_bytes = 0
        self.arena_address = self.device.allocate(size, "the arena")
        self.arena_bytes = size

    def zeros(self, size: int) -> int:
        """Device memory that kernels find zero and leave zero, shared by the bindings: the calls of
        a context run one after the other.
        """
        if size and not self._zeros:
            self._zeros = self.device.allocate(size, "counters")
            self.device.fill(self._zeros, 0, size, self.stream)
            self.device.synchronize(self.stream)
        return self._zeros

    def stage(self, side: str, index: int, size: int) -> int:
        """Device memory for one host input or output, kept for the next call."""
        address, capacity = self.staging.get((side, index), (0, 0))
        if size > capacity or not address:
            if address:
                self.device.synchronize(self.stream)
                self.device.free(address)
            address = self.device.allocate(size, f"{side} {index}")
            self.staging[side, index] = address, size
        return address


class CudaExecutor:
    """`call` runs the model on one GPU; everything else is preparation."""

    def __init__(self, artifact: ArtifactFile, signature: Signature, device: str) -> None:
        """Raises ArtifactError when the machine has no such device or no variant fits it."""
        number = device.partition(":")[2]
        if number and not number.isdigit():
            raise InputError(f"device {device!r} is unknown; want cuda or cuda:N")
        self._device = Device(int(number or 0))
        self._device.make_current()
        self.device = f"cuda:{self._device.index}"
        self.artifact, self._signature = artifact, signature
        self.info = self._device.info()
        self.variant = choose_variant(artifact.manifest.variants, self.info.arch)
        for step in self.variant.launches:
            if step.kind != "kernel":
                why = step.reason or WHY_NOT.get(step.kind, "")
                raise ArtifactError(f"a {step.kind} step cannot run on a GPU yet: {why}")
        self.program = Program(artifact.manifest, self.variant)
        self._functions = [self._load(k) for k in self.variant.kernels]
        self._weights = self._upload_weights()
        self._idle: list[Context] = []

    def _load(self, kernel: Kernel) -> Any:
        module = self._device.load_module(self.artifact.read(kernel.binary), kernel.binary)
        return self._device.function(module, kernel.name, kernel.shared_bytes)

    def _upload_weights(self) -> list[int]:
        """Device addresses of the weights, in one allocation."""
        starts: list[int] = []
        total = 0
        for _, size in self.artifact.weights:
            starts.append(total)
            total += -(-size // ALIGNMENT) * ALIGNMENT
        if not starts:
            return []
        base = self._device.allocate(total, "the weights")
        data = np.frombuffer(self.artifact.data, np.uint8)
        origin = int(data.__array_interface__["data"][0])
        for start, (address, size) in zip(starts, self.artifact.weights, strict=True):
            self._device.upload(base + start, data[address - origin : address - origin + size])
        self._device.synchronize(0)
        return [base + start for start in starts]

    def call(self, given: Sequence[Any], out: Sequence[Any] | None) -> list[Any]:
        """Runs once.  Outputs are torch tensors when an input is one, else numpy arrays."""
        self._device.make_current()
        try:
            context = self._idle.pop()
        except IndexError:
            context = Context(self._device)
        try:
            return self._call(context, given, out)
        finally:
            self._idle.append(context)

    def _call(self, context: Context, given: Sequence[Any], out: Sequence[Any] | None) -> list[Any]:
        arrays = [self._accept(i, g) for i, g in enumerate(given)]
        shapes = tuple(tuple(int(n) for n in a.shape) for a in arrays)
        replay = context.replays.get(shapes)
        if replay is None:
            replay = self._prepare(context, shapes)
        else:
            context.replays.move_to_end(shapes)
        torch = sys.modules.get("torch")
        on_torch = torch is not None and any(isinstance(a, torch.Tensor) for a in arrays)
        stream = self._caller_stream(torch) if on_torch else int(context.stream)
        context.follow(stream)
        changes: list[tuple[int, int]] = []
        for i, (array, patches) in enumerate(zip(arrays, replay.placement.inputs, strict=True)):
            address = _device_address(array, self._signature.inputs[i].name)
            if address is None:
                host = np.ascontiguousarray(array)
                address = context.stage("input", i, host.nbytes)
                self._device.upload(address, host, stream)
            changes += [(p.position, address + p.offset) for p in patches]
        results = self._results(replay, out, torch if on_torch else None)
        addresses: list[int] = []
        for i, (result, patches) in enumerate(zip(results, replay.placement.outputs, strict=True)):
            address = _device_address(result, self._signature.outputs[i].name)
            if address is None:
                address = context.stage("output", i, result.nbytes)
            addresses.append(address)
            changes += [(p.position, address + p.offset) for p in patches]
        replay.set_pointers(changes)
        replay.launch(stream)
        self._device.record_event(context.done, stream)
        if not on_torch:
            for result, address in zip(results, addresses, strict=True):
                if isinstance(result, np.ndarray):
                    self._device.download(result, address, stream)
            self._device.synchronize(stream)
        return results

    def _caller_stream(self, torch: Any) -> int:
        return int(torch.cuda.current_stream(self._device.index).cuda_stream)

    def _prepare(self, context: Context, shapes: tuple[tuple[int, ...], ...]) -> Replay:
        placement = self.program.place(self._signature.bind(shapes))
        context.reserve(placement.arena_bytes)
        moving = len(self._signature.inputs) + len(self._signature.outputs)
        slots = [
            *(placement.arena_offsets + context.arena_address).tolist(),
            *([0] * moving),
            *self._weights,
        ]
        fixed = np.array(slots, np.int64)
        pointers = fixed[self.program.pointer_slot] + placement.offset
        nodes: list[Node] = []
        kernels = self.variant.kernels
        zeros = context.zeros(sum(zero_bytes(kernels[s.kernel]) for s in self.variant.launches))
        for i, step in enumerate(self.variant.launches):
            kernel = kernels[step.kernel]
            grid = [evaluate_expression(g, placement.binding.sizes) for g in step.grid]
            grid += [1] * (3 - len(grid))
            if 0 in grid:
                continue  # a tensor without elements
            first, scalar = self.program.pointer_start[i], self.program.scalar_start[i]
            nodes.append(
                Node(
                    self._device,
                    self._functions[step.kernel],
                    kernel,
                    Grid(*grid),
                    pointers[first : first + len(step.pointers)].tolist(),
                    placement.scalars[scalar : scalar + len(step.scalars)].tolist(),
                    first_pointer=first,
                    zeros=zeros,
                )
            )
            zeros += zero_bytes(kernel)
        replay = Replay(self._device, placement, nodes, pointers)
        context.replays[shapes] = replay
        while len(context.replays) > CACHED_BINDINGS:
            context.replays.popitem(last=False)
        return replay

    def _accept(self, index: int, value: Any) -> Any:
        spec, dtype = self._signature.inputs[index], self._signature.input_dtypes[index]
        if value is None:
            raise InputError(f"input {spec.name!r} is missing")
        on_device = _is_device_tensor(value) or hasattr(value, "__cuda_array_interface__")
        array = value if on_device else as_array(value, spec.name)
        name = str(array.dtype).removeprefix("torch.")
        if name != dtype.name:
            raise InputError(f"input {spec.name!r} is {name}, want {describe(spec)}")
        return array

    def _results(self, replay: Replay, out: Sequence[Any] | None, torch: Any) -> list[Any]:
        # Programs that bind sizes in mid-run are refused, so that every shape is known here.
        shapes = [() if s is None else s for s in replay.placement.binding.outputs]
        results: list[Any] = []
        for i, spec in enumerate(self._signature.outputs):
            target = None if out is None else out[i]
            dtype = self._signature.output_dtypes[i]
            if target is not None:
                name = str(target.dtype).removeprefix("torch.")
                if name != dtype.name or tuple(target.shape) != shapes[i]:
                    raise InputError(
                        f"out[{i}] is {name}{list(target.shape)}, output {spec.name!r} is "
                        f"{spec.dtype}{list(shapes[i])}"
                    )
                results.append(target)
            elif torch is not None:
                kind = getattr(torch, dtype.name)
                results.append(torch.empty(shapes[i], dtype=kind, device=self.device))
            else:
                results.append(np.empty(shapes[i], dtype))
        return results


def _device_address(array: Any, name: str) -> int | None:
    """The address of a device array, None for a host array.  Raises InputError for one that
    kernels cannot read where it lies.
    """
    if _is_device_tensor(array):  # torch's interface lacks bfloat16
        address, contiguous = int(array.data_ptr()), bool(array.is_contiguous())
        return _checked(address, contiguous, name)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is None:
        if not isinstance(array, np.ndarray):
            raise InputError(f"{name!r}: a {type(array).__name__} lies on no CUDA device")
        return None
    strides = interface.get("strides")
    contiguous = strides is None or _contiguous(interface["shape"], strides, interface["typestr"])
    return _checked(int(interface["data"][0]), contiguous, name)


def _is_device_tensor(value: Any) -> bool:
    return bool(getattr(value, "is_cuda", False)) and hasattr(value, "data_ptr")


def _checked(address: int, contiguous: bool, name: str) -> int:
    if not contiguous:
        raise InputError(f"{name!r} is not contiguous; pass array.contiguous()")
    if address % POINTER_ALIGNMENT:
        raise InputError(f"{name!r} lies at an address that is no multiple of {POINTER_ALIGNMENT}")
    return address


def _contiguous(shape: Sequence[int], strides: Sequence[int], typestr: str) -> bool:
    step = np.dtype(typestr).itemsize
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent > 1 and stride != step:
            return False
        step *= extent
    return True
