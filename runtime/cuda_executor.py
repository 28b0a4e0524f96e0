"""Runs a program on an NVIDIA GPU: one CUDA graph per binding, built node by node, then replayed.

Device arrays (torch, cupy: anything with DLPack or `__cuda_array_interface__`) are used where they
lie, on the caller's current stream, and the call is asynchronous; numpy arrays are copied in and out
and the call waits.  Nodes whose pointers changed since the last call are updated in the instantiated
graph; nothing is rebuilt.  torch is never imported here, only used when the caller's arrays are its
tensors.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphwright.errors import ArtifactError, InputError
from graphwright.runtime.artifact import ArtifactFile
from graphwright.runtime.binding import Binding, Signature
from graphwright.runtime.buckets import Buckets
from graphwright.runtime.cuda_arrays import (
    POINTER_ALIGNMENT,
    Arrays,
    Maker,
    Torch,
    fits,
    fresh_results,
    is_lent,
    stream_of,
)
from graphwright.runtime.cuda_context import HOST, Context, Shapes
from graphwright.runtime.cuda_driver import Device
from graphwright.runtime.cuda_graph import zero_bytes
from graphwright.runtime.cuda_replay import Replay
from graphwright.runtime.device_arrays import DeviceArray, StateArray
from graphwright.runtime.manifest import Kernel, Variant
from graphwright.runtime.program import Program

ALIGNMENT = 256  # bytes, of weights and of staged inputs and outputs
CONTEXTS = 4  # idle ones that are kept apart by stream; more streams than that share them


def choose_variant(variants: Sequence[Variant], arch: str) -> Variant:
    """The variant for a compute capability: its own, or one whose code it runs as well.

    Raises ArtifactError naming both archs.
    """
    number = int(arch.removeprefix("sm_"))
    fitting: list[tuple[int, Variant]] = []
    for variant in variants:
        if variant.target == f"cuda:{arch}":
            return variant
        kind, _, other = variant.target.partition(":sm_")
        # Code runs on later devices of the same generation; from sm_90 on it uses what only its
        # own device has.
        if kind == "cuda" and other.isdigit() and number // 10 == int(other) // 10 < 9:
            fitting.append((int(other), variant))
    fitting = [f for f in fitting if f[0] <= number]
    if fitting:
        return max(fitting, key=lambda f: f[0])[1]
    there = ", ".join(v.target for v in variants)
    raise ArtifactError(
        f"this device is {arch} and the artifact holds {there}; compile it with --target cuda:{arch}"
    )


class CudaExecutor:
    """`call` runs the model on one GPU; everything else is preparation."""

    def __init__(self, artifact: ArtifactFile, signature: Signature, device: str) -> None:
        """Raises ArtifactError when the machine has no such device or no variant fits it."""
        number = device.partition(":")[2]
        if number and not number.isdigit():
            raise InputError(f"device {device!r} is unknown; want cuda or cuda:N")
        self._device = Device(int(number or 0))
        self.device = f"cuda:{self._device.index}"
        self.artifact, self._signature = artifact, signature
        with self._device.current():
            self.info = self._device.info()
            self.variant = choose_variant(artifact.manifest.variants, self.info.arch)
            self.program = Program(artifact.manifest, self.variant)
            self.buckets = Buckets.of(artifact.manifest)
            self._functions = [self._load(k) for k in self.variant.kernels]
            self._weights = self._upload_weights()
        self._arrays = Arrays(signature, self._device, self._weights)
        kernels = self.variant.kernels
        self._zero_bytes = sum(
            zero_bytes(kernels[s.kernel]) for s in self.variant.launches if s.kind == "kernel"
        )
        self._idle: dict[int, list[Context]] = {}  # by the stream of their last call
        self._idle_count = 0
        self._torch: Torch | None = None
        self.has_state = False
        self._state_stream: int | None = None  # of the last call with state

    def _load(self, kernel: Kernel) -> int:
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

    def default(self, index: int) -> np.ndarray:
        """The value of an input that a call may leave out."""
        spec = self._signature.inputs[index]
        if spec.default is None:
            raise InputError(f"input {spec.name!r} has no default")
        weight = self.artifact.manifest.weights[spec.default]
        start, size = self.artifact.weights[spec.default]
        data = np.frombuffer(self.artifact.data, np.uint8)
        start -= int(data.__array_interface__["data"][0])
        return data[start : start + size].view(self._signature.input_dtypes[index]).reshape(
            weight.shape
        )  # fmt: skip

    # -- state

    def state_array(self, shape: tuple[int, ...], dtype: Any, what: str) -> StateArray:
        """Memory for a state, which the calls of a model with state pass in and get back."""
        self.has_state = True
        with self._device.current():
            return StateArray(self._device, shape, dtype, 0, what)

    def fill_state(self, array: StateArray, value: np.ndarray) -> None:
        """Gives a state a value, after all calls so far."""
        with self._device.current():
            self._device.synchronize_all()
            self._device.upload(array.address, value)
            self._device.synchronize(0)

    def read_state(self, array: StateArray) -> np.ndarray:
        """A copy of a state on the host, after all calls so far."""
        with self._device.current():
            self._device.synchronize_all()
        return array.numpy()

    def _follow_state(self, stream: int) -> None:
        """State is shared by all contexts: a call on another stream waits for the last one."""
        if self._state_stream is not None and self._state_stream != stream:
            self._device.synchronize_all()
        self._state_stream = stream

    # -- calls

    def call(self, given: Sequence[Any], out: Sequence[Any] | None) -> list[Any]:
        """Runs once.  Outputs are torch tensors when an input is one, device arrays when one is such
        an array of another library, else numpy arrays.
        """
        before = self._device.enter()
        try:
            found = self._tensors(given, out)
            if found is not None:
                return found
            return self._call(given, out)
        finally:
            if before:
                self._device.leave(before)

    def _tensors(self, given: Sequence[Any], out: Sequence[Any] | None) -> list[Any] | None:
        """A call whose inputs (and `out`) are all torch tensors on this device or state, as they should
        be, in a binding that has been seen; None for all others.
        """
        t = self._torch
        if t is None:
            return None
        shapes: list[Any] = []
        addresses: list[int] = []
        index = self._device.index
        for value, dtype in zip(given, t.inputs, strict=True):
            if type(value) is StateArray:
                addresses.append(value.address)
                shapes.append(value.shape)
                continue
            if (
                not isinstance(value, t.tensor)
                or value.dtype is not dtype
                or value.get_device() != index
                or not value.is_contiguous()
            ):
                return None
            address = value.data_ptr()
            if address % POINTER_ALIGNMENT:
                return None
            addresses.append(address)
            shapes.append(value.shape)
        stream = t.stream(index)
        context = self._take(stream)
        try:
            replay = context.replays.get(tuple(shapes))
            if replay is None or replay.only is None:
                return None
            results: list[Any] = []
            if out is None or self.has_state:
                found = fresh_results(t, addresses, replay.placement.binding.outputs, out)
                if found is None:
                    return None
                results = found
            elif not fits(t, given, addresses, replay.placement.binding.outputs, out):
                return None
            else:
                results += out
            if context.last_stream != stream:
                context.follow(stream)
            if self.has_state:
                self._follow_state(stream)
            replay.only.launch(addresses, stream)
            context.finish(stream)
            return results
        finally:
            self._put(context, stream)

    def _take(self, stream: int) -> Context:
        """A context whose last call was on this stream, a new one, or another's."""
        try:
            context = self._idle[stream].pop()
        except (KeyError, IndexError):
            if self._idle_count >= CONTEXTS:
                for contexts in list(self._idle.values()):
                    try:
                        context = contexts.pop()
                    except IndexError:
                        continue
                    self._idle_count -= 1
                    return context
            return Context(self._device)
        self._idle_count -= 1
        return context

    def _put(self, context: Context, stream: int) -> None:
        contexts = self._idle.get(stream)
        if contexts is None:
            contexts = self._idle.setdefault(stream, [])
        contexts.append(context)
        self._idle_count += 1

    def contexts(self) -> list[Context]:
        """Those that no call uses now."""
        return [c for contexts in self._idle.values() for c in contexts]

    def _call(self, given: Sequence[Any], out: Sequence[Any] | None) -> list[Any]:
        torch: Any = sys.modules.get("torch")
        if torch is not None and not any(isinstance(g, torch.Tensor) for g in given):
            torch = None
        if torch is not None and self._torch is None:
            self._torch = self._arrays.find_torch(torch)
        free = [g for g in given if type(g) is not StateArray]  # whose kind is the caller's choice
        elsewhere = [getattr(g, "__cuda_array_interface__", None) is not None or is_lent(g)
                     for g in free] if torch is None else []  # fmt: skip
        stream = HOST
        if torch is not None:
            stream = self._torch.stream(self._device.index) if self._torch else 0
        elif any(elsewhere):
            stream = stream_of(free)
        context = self._take(stream)
        try:
            return self._run(context, given, out, torch, stream)
        finally:
            self._put(context, stream)

    def _run(
        self, context: Context, given: Sequence[Any], out: Sequence[Any] | None, torch: Any,
        caller: int,
    ) -> list[Any]:  # fmt: skip
        stream = context.stream if caller == HOST else caller
        context.follow(stream)
        if self.has_state:
            self._follow_state(stream)
        shapes: list[tuple[int, ...]] = []
        sources: list[int | np.ndarray] = []  # a device address, or an array of the host
        kept: list[Any] = []
        for i, value in enumerate(given):
            source, shape, keep = self._arrays.accept(i, value, stream)
            sources.append(source)
            shapes.append(shape)
            kept.append(keep)
        replay, padded = self._find(context, tuple(shapes))
        addresses = [
            self._place(context, i, source, shapes[i], replay, stream)
            for i, source in enumerate(sources)
        ]
        real = replay.placement.binding if padded is None else padded
        make = Maker(self._arrays, torch, caller, stream)
        results: list[Any] = []
        if out is not None and len(out) != len(real.outputs):
            raise InputError(
                f"out has {len(out)} arrays, the model has {len(real.outputs)} outputs"
            )
        items = [d.itemsize for d in self._signature.input_dtypes]
        read = [
            (a, a + math.prod(s) * item)
            for a, s, item in zip(addresses, replay.placement.binding.inputs, items, strict=True)
        ]
        written: list[tuple[int, int]] = []
        moved: set[int] = set()  # outputs that are copied to where the caller wants them
        for i, shape in enumerate(real.outputs):
            if shape is None:  # bound in mid-run
                results.append(None)
                addresses.append(0)
                continue
            target = None if out is None else out[i]
            if target is None:
                target = make(i, shape)
            else:
                self._arrays.check_target(i, target, shape)
            results.append(target)
            address = self._arrays.output_address(target, i, stream)
            item = self._signature.output_dtypes[i].itemsize
            span = (0, 0)
            if address is not None:
                span = address, address + math.prod(shape) * item
                if any(a < span[1] and span[0] < b for a, b in written):
                    raise InputError(f"out[{i}] shares memory with another output")
                written.append(span)
            # Kernels may write an output before they have read an input that lies there, but for the
            # input that the plan says it may replace.
            home = self.artifact.manifest.outputs[i].in_place
            others = [r for j, r in enumerate(read) if j != home or r != span]
            overlaps = any(a < span[1] and span[0] < b for a, b in others)
            if address is None or padded is not None or overlaps:
                moved.add(i)
                whole = replay.placement.binding.outputs[i]
                assert whole is not None
                address = context.stage("output", i, math.prod(whole) * item)
            addresses.append(address)
        replay.make_late = lambda i, shape: self._late_output(make, i, shape, stream)
        replay.run(addresses, stream)
        late = {} if replay.mid_run is None else replay.mid_run.outputs
        for i, made in late.items():
            results[i] = self._settle(i, made, None if out is None else out[i], make, stream)
        if replay.mid_run is not None:
            replay.mid_run.outputs = {}  # they are the caller's now
        first = len(given)
        for i, (result, shape) in enumerate(zip(results, real.outputs, strict=True)):
            if shape is None:
                continue
            if isinstance(result, np.ndarray):
                self._device.download(result, addresses[first + i], stream)
            elif i in moved:
                target = self._arrays.output_address(result, i, stream)
                assert target is not None
                size = math.prod(shape) * self._signature.output_dtypes[i].itemsize
                self._device.copy(target, addresses[first + i], size, stream)
        context.finish(stream)
        if caller == HOST or any(isinstance(r, np.ndarray) for r in results):
            self._device.synchronize(stream)
        del kept
        return results

    def _find(self, context: Context, shapes: Shapes) -> tuple[Replay, Binding | None]:
        """The replay of these input shapes; with it their binding when it is that of a bucket which
        is larger.
        """
        replay = context.replays.get(shapes)
        if replay is not None:
            context.replays.move_to_end(shapes)
            return replay, None
        binding = self._signature.bind(shapes)
        buckets = self.buckets
        if buckets is None or buckets.holds(binding.sizes):
            return self._prepare(context, binding, always=buckets is not None), None
        if buckets.miss == "raise":
            raise buckets.refused(binding.sizes, "graph_miss is raise")
        if buckets.miss == "uncaptured":
            return self._prepare(context, binding, always=False, captured=False), None
        around = buckets.around(binding.sizes)
        size = self._signature.size
        padded = tuple(tuple(size(e, around) for e in t.shape) for t in self._signature.inputs)
        replay = context.replays.get(padded)
        if replay is None:
            replay = self._prepare(context, self._signature.bind(padded), always=True)
        return replay, binding

    def _prepare(
        self, context: Context, binding: Binding, *, always: bool, captured: bool = True
    ) -> Replay:
        placement = self.program.place(binding)
        size = placement.arena_bytes
        if always and self.buckets is not None and not context.arena_bytes:
            # One arena serves all buckets: as large as the largest needs.
            of = self._signature.size
            for b in self.buckets.sizes:
                shapes = [tuple(of(e, b) for e in t.shape) for t in self._signature.inputs]
                size = max(size, self.program.arena(self._signature.bind(shapes))[0])
        context.reserve(size)
        moving = len(self._signature.inputs) + len(self._signature.outputs)
        slots = [
            *(placement.arena_offsets + context.arena_address).tolist(),
            *([0] * moving),
            *self._weights,
        ]
        replay = Replay(
            self._device, self.program, placement, np.array(slots, np.int64), self._functions,
            context.zeros(self._zero_bytes), arenas=context.later, captured=captured,
        )  # fmt: skip
        context.keep(binding.inputs, replay, always=always)
        return replay

    def warm_up_buckets(self) -> bool:
        """Builds and runs the graph of every declared bucket; False when there are none."""
        if self.buckets is None:
            return False
        # The largest first: what host arrays are staged in then stays where it is.
        for sizes in sorted(self.buckets.sizes, key=lambda b: -math.prod(b.values())):
            self.call(
                [
                    np.zeros([self._signature.size(e, sizes) for e in t.shape], dtype)
                    for t, dtype in zip(
                        self._signature.inputs, self._signature.input_dtypes, strict=True
                    )
                ],
                None,
            )
        return True

    # -- arrays

    def _place(
        self, context: Context, index: int, source: int | np.ndarray, shape: tuple[int, ...],
        replay: Replay, stream: int,
    ) -> int:  # fmt: skip
        """Where a kernel reads an input: staged when it lies on the host, is smaller than its bucket
        or starts at an odd address.
        """
        whole = replay.placement.binding.inputs[index]
        item = self._signature.input_dtypes[index].itemsize
        size, room = math.prod(shape) * item, math.prod(whole) * item
        if isinstance(source, int) and size == room and source % POINTER_ALIGNMENT == 0:
            return source
        address = context.stage("input", index, room)
        if isinstance(source, int):
            self._device.copy(address, source, size, stream)
        else:
            self._device.upload(address, source, stream)
        self._device.fill(address + size, 0, room - size, stream)
        return address

    def _late_output(
        self, make: Maker, index: int, shape: tuple[int, ...], stream: int
    ) -> tuple[Any, int]:
        """A device array for an output whose shape is known in mid-run."""
        made = make(index, shape)
        if isinstance(made, np.ndarray):
            made = DeviceArray(self._device, shape, made.dtype, stream, make.name(index))
        address = self._arrays.output_address(made, index, stream)
        assert address is not None
        return made, address

    def _settle(self, index: int, made: Any, target: Any, make: Maker, stream: int) -> Any:
        """What the caller gets of an output that was made in mid-run."""
        shape = tuple(made.shape)
        if target is None:
            if not make.on_host:
                return made
            target = make(index, shape)
        else:
            self._arrays.check_target(index, target, shape)
        source, to = self._arrays.output_address(made, index, stream), None
        assert source is not None
        to = self._arrays.output_address(target, index, stream)
        if to is None:
            self._device.download(target, source, stream)
            self._device.synchronize(stream)
        else:
            size = math.prod(shape) * self._signature.output_dtypes[index].itemsize
            self._device.copy(to, source, size, stream)
        return target
