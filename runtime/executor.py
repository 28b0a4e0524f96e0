"""Runs a program on the CPU: contexts with an arena each, cached replays, a few microseconds a call.

A context serves one call at a time; calls from several threads take a context each and share
weights and thread pool.  In steady state (a binding seen before) a call writes the addresses of
its inputs and outputs into the cached pointer table and enters native code once.
"""

from __future__ import annotations

import ctypes
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphwright.errors import ArtifactError, InputError, ResourceError
from graphwright.runtime.artifact import ArtifactFile
from graphwright.runtime.binding import Signature, describe, numpy_dtype
from graphwright.runtime.cpu import choose_variant
from graphwright.runtime.interop import as_array, as_given, is_tensor, tensor_to_array
from graphwright.runtime.library import (
    CALL_BACK,
    KINDS,
    LAUNCH,
    STOPPED_BY_CALL,
    Library,
    load_library,
    thread_pool,
)
from graphwright.runtime.mid_run import Arena, MidRun, host_launches
from graphwright.runtime.packed import pack_elements, packed_shape, unpack_elements
from graphwright.runtime.program import Placement, Program
from graphwright.runtime.read_manifest import DTYPE_BITS

ALIGNMENT = 16  # bytes that kernels expect of inputs and outputs; weights and the arena have 64
CACHED_BINDINGS = 32
_from_buffer: Callable[[Any], Any] = ctypes.c_char.from_buffer
_address_of: Callable[[Any], int] = ctypes.addressof


def address(array: np.ndarray) -> int:
    """The address of a C-contiguous array's first element."""
    try:
        return _address_of(_from_buffer(array))  # four times as fast as the next line
    except (TypeError, ValueError, BufferError):  # read-only, empty, a type without a format
        return int(array.__array_interface__["data"][0])


class Replay:
    """The prepared native program of one binding in one context."""

    __slots__ = (
        "count", "inputs", "launches", "launches_address", "mid_run", "output_shapes",
        "output_strides", "outputs",
        "placement", "pointers", "scalars", "staged", "table",
    )  # fmt: skip

    def __init__(
        self, program: Program, placement: Placement, fixed: np.ndarray, kernels: Sequence[int],
        arenas: dict[tuple[int, int], Arena],
    ) -> None:  # fmt: skip
        """`fixed`: address of each slot, 0 for inputs and outputs; `arenas`: of later segments."""
        self.placement = placement
        self.pointers = np.ascontiguousarray(fixed[program.pointer_slot] + placement.offset)
        if not len(self.pointers):
            self.pointers = np.zeros(1, np.int64)
        self.scalars = placement.scalars if len(placement.scalars) else np.zeros(1, np.int64)
        steps = program.variant.launches
        self.launches = np.zeros(len(steps), LAUNCH)
        self.launches["kind"] = [KINDS[s.kind] for s in steps]
        self.launches["jump"] = [s.jump for s in steps]
        functions = [kernels[s.kernel] if s.kind == "kernel" else 0 for s in steps]
        self.mid_run: MidRun | None = None
        hosted = host_launches(program, placement) if program.checks else []
        if hosted:
            self.mid_run = MidRun(
                program, placement, self, fixed, arenas, _allocate_output(program)
            )
            for i in hosted:
                functions[i] = self.mid_run.address
                self.launches["kind"][i] = CALL_BACK
        self.launches["fn"] = functions
        self.launches["p"] = np.array(program.pointer_start, "u8") * 8 + address(self.pointers)
        self.launches["s"] = np.array(program.scalar_start, "u8") * 8 + address(self.scalars)
        self.launches_address = address(self.launches) if len(steps) else 0
        self.count = len(steps)
        self.table = self.pointers.data  # item assignment: the fastest store from Python
        self.inputs = tuple(
            tuple((p.position, p.offset) for p in patches) for patches in placement.inputs
        )
        self.outputs = tuple(
            tuple((p.position, p.offset) for p in patches) for patches in placement.outputs
        )
        # An output whose shape is bound in mid-run is allocated then, and empty until then.
        self.output_shapes = tuple((0,) if s is None else s for s in placement.binding.outputs)
        self.output_strides = tuple(map(_row_major, self.output_shapes))
        self.staged: dict[int, np.ndarray] = {}  # aligned copies of inputs, kept for reuse


def _allocate_output(
    program: Program,
) -> Callable[[int, tuple[int, ...]], tuple[np.ndarray, int]]:
    dtypes = [numpy_dtype(t.dtype) for t in program.manifest.outputs]

    def allocate(index: int, shape: tuple[int, ...]) -> tuple[np.ndarray, int]:
        try:
            array = np.empty(shape, dtypes[index])
            if address(array) % ALIGNMENT:
                array = _aligned_empty(shape, dtypes[index])
        except (MemoryError, ValueError) as error:
            raise ResourceError(f"an output of shape {shape}: {error}") from None
        return array, address(array)

    return allocate


class Context:
    """What one call in flight needs: arenas and the replays that point into them."""

    def __init__(self) -> None:
        self.arena = Arena()
        self.later: dict[tuple[int, int], Arena] = {}  # of segments bound in mid-run
        self.replays: OrderedDict[tuple[tuple[int, ...], ...], Replay] = OrderedDict()

    def reserve(self, size: int) -> None:
        """Makes the arena at least `size` bytes; replays of a smaller one are dropped."""
        if size > self.arena.bytes:
            self.replays.clear()
            self.arena.reserve(size)


class Prepared:
    """A context for a caller that has checked its arguments and writes addresses by itself.

    `find` gives the replay of the inputs' shapes; `replay` is the one found last.
    """

    __slots__ = ("_context", "_executor", "replay")

    def __init__(self, executor: CpuExecutor) -> None:
        self._executor, self._context = executor, Context()
        self.replay: Replay | None = None

    def find(self, shapes: tuple[tuple[int, ...], ...]) -> Replay:
        """Raises InputError for shapes that break a promise of the signature."""
        found = self._context.replays.get(shapes)
        if found is None:
            found = self._executor._prepare(self._context, shapes)
        self.replay = found
        return found


class CpuExecutor:
    """`call` runs the model; everything else is preparation."""

    device = "cpu"

    def __init__(self, artifact: ArtifactFile, signature: Signature, threads: int | None) -> None:
        """Raises ArtifactError when no variant runs on this CPU or the library does not fit."""
        self.artifact, self._signature = artifact, signature
        _, self.variant = choose_variant(artifact.manifest.variants)
        self.program = Program(artifact.manifest, self.variant)
        self.library: Library = load_library(
            artifact.read(self.variant.library), self.variant.library
        )
        self._kernels = self.library.addresses([k.name for k in self.variant.kernels])
        self.pool = thread_pool(threads, self.library)
        self._native = self.library.replay
        self._idle: list[Context] = []
        self._input_dtypes = tuple(signature.input_dtypes)
        self._output_dtypes = tuple(signature.output_dtypes)
        self._packed_inputs, self._packed_outputs = (
            {i: bits for i, t in enumerate(specs) if (bits := DTYPE_BITS[t.dtype]) < 8}
            for specs in (signature.inputs, signature.outputs)
        )
        manifest = artifact.manifest
        self._in_place = [
            (i, t.in_place) for i, t in enumerate(manifest.outputs) if t.in_place is not None
        ]
        self._defaults = [
            None if t.default is None else self._weight_array(t.default) for t in manifest.inputs
        ]

    def replay_with(self, native: Callable[[int, int, Any], int]) -> None:
        """Runs launches with another function than the library's `gw_replay`; see stepping.py."""
        self._native = native

    def _weight_array(self, index: int) -> np.ndarray:
        spec, (start, size) = self.artifact.manifest.weights[index], self.artifact.weights[index]
        base = np.frombuffer(self.artifact.data, np.uint8)
        offset = start - address(base)
        i = next(i for i, t in enumerate(self._signature.inputs) if t.default == index)
        array = base[offset : offset + size].view(self._input_dtypes[i]).reshape(spec.shape)
        array.flags.writeable = False  # nothing is ever updated in the artifact
        return array

    def call(self, given: Sequence[Any], out: Sequence[Any] | None) -> list[Any]:
        """Runs once.  `given`: one array per input, in order (None: its default).  Returns the
        outputs, fresh arrays where `out` has none; torch tensors when an input is one.
        """
        try:
            context = self._idle.pop()
        except IndexError:
            context = Context()
        try:
            return self._call(context, given, out)
        finally:
            self._idle.append(context)

    def _call(self, context: Context, given: Sequence[Any], out: Sequence[Any] | None) -> list[Any]:
        is_plain = True
        arrays: list[np.ndarray] = []
        key: list[tuple[int, ...]] = []
        for i, dtype in enumerate(self._input_dtypes):
            array = given[i]
            if type(array) is not np.ndarray or array.dtype is not dtype:
                array, is_plain = self._accept(i, array), False
            arrays.append(array)
            key.append(array.shape)
        shapes = tuple(key)
        replay = context.replays.get(shapes)
        if replay is None:
            replay = self._prepare(context, shapes)
        elif len(context.replays) > 1:
            context.replays.move_to_end(shapes)
        table = replay.table
        starts: list[int] = []
        for i, patches in enumerate(replay.inputs):
            array = arrays[i]
            start = address(array) if array.flags.c_contiguous else 1
            if i in self._packed_inputs:
                start = self._stage(replay, i, pack_elements(array, self._packed_inputs[i]))
            elif start % ALIGNMENT:
                start = self._stage(replay, i, array)
            starts.append(start)
            for position, offset in patches:
                table[position] = start + offset
        results: list[np.ndarray] = []
        write_back: list[tuple[np.ndarray, np.ndarray]] | None = None
        if out is not None:
            results, write_back = self._check_out(out, arrays, replay)
        else:
            try:
                for shape, dtype in zip(replay.output_shapes, self._output_dtypes, strict=True):
                    results.append(np.empty(shape, dtype))
            except (MemoryError, ValueError) as error:
                raise ResourceError(f"outputs of shape {replay.output_shapes}: {error}") from None
        for i, j in self._in_place:
            array = arrays[j]
            if starts[j] == address(array) and array.flags.writeable and out is None:
                results[i] = array  # the new value replaces the old one
        for i, patches in enumerate(replay.outputs):
            start = address(results[i])
            if start % ALIGNMENT:  # numpy's allocator promises less than malloc gives
                results[i] = _aligned_empty(results[i].shape, results[i].dtype)
                start = address(results[i])
            for position, offset in patches:
                table[position] = start + offset
        mid_run = replay.mid_run
        if mid_run is not None:
            mid_run.begin(starts, list(map(address, results)))
        pool = self.pool
        if not pool.started:
            pool.start()
        stopped = self._native(replay.launches_address, replay.count, pool.pointer)
        if stopped == STOPPED_BY_CALL and mid_run is not None:
            mid_run.finish()
        if stopped:
            raise ArtifactError("the native replay stopped at a malformed launch")
        if mid_run is not None:
            for i, array in mid_run.outputs.items():
                results[i] = array
                if out is not None and out[i] is not None and write_back is not None:
                    write_back.append((self._check_target(i, out[i], array.shape), array))
        for i, bits in self._packed_outputs.items():
            self._unpack(results[i], bits)
        if write_back is not None and out is not None:
            for target, source in write_back:
                np.copyto(target, source)
            fresh = results if is_plain else as_given(results, given)
            return [r if o is None else o for r, o in zip(fresh, out, strict=True)]
        return results if is_plain else as_given(results, given)

    def prepared(self) -> Prepared:
        """A context of its own for calls by address; one call at a time."""
        return Prepared(self)

    def default(self, index: int) -> np.ndarray:
        """The value of an input that a call may leave out."""
        found = self._defaults[index]
        if found is None:
            raise InputError(f"input {self._signature.inputs[index].name!r} has no default")
        return found

    def warm_up_buckets(self) -> bool:
        """There are none on a CPU."""
        return False

    def _prepare(self, context: Context, shapes: tuple[tuple[int, ...], ...]) -> Replay:
        placement = self.program.place(self._signature.bind(shapes))
        context.reserve(placement.arena_bytes)
        moving = len(self._signature.inputs) + len(self._signature.outputs)
        fixed = np.array(
            [
                *(placement.arena_offsets + context.arena.address).tolist(),
                *([0] * moving),
                *(start for start, _ in self.artifact.weights),
            ],
            np.int64,
        )
        replay = Replay(self.program, placement, fixed, self._kernels, context.later)
        context.replays[shapes] = replay
        while len(context.replays) > CACHED_BINDINGS:
            context.replays.popitem(last=False)
        return replay

    def _accept(self, index: int, value: Any) -> np.ndarray:
        spec, dtype = self._signature.inputs[index], self._input_dtypes[index]
        if value is None:
            default = self._defaults[index]
            if default is None:
                raise InputError(f"input {spec.name!r} ({describe(spec)}) is missing")
            return default
        array = as_array(value, spec.name)
        if array.dtype != dtype:
            raise InputError(
                f"input {spec.name!r} is {array.dtype}, want {describe(spec)}; "
                f"convert it with .astype({spec.dtype!r})"
            )
        return array

    def _stage(self, replay: Replay, index: int, array: np.ndarray) -> int:
        staged = replay.staged.get(index)
        if staged is None:
            staged = replay.staged[index] = _aligned_empty(array.shape, array.dtype)
        np.copyto(staged, array)
        return address(staged)

    @staticmethod
    def _unpack(result: np.ndarray, bits: int) -> None:
        """Spreads the packed storage at the start of an array over its elements, a byte each."""
        bytes = math.prod(packed_shape(result.shape, bits))
        packed = result.reshape(-1).view(np.uint8)[:bytes].copy()
        result[...] = unpack_elements(packed, result.shape, result.dtype, bits)

    def _check_out(
        self, out: Sequence[Any], arrays: Sequence[np.ndarray], replay: Replay
    ) -> tuple[list[np.ndarray], list[tuple[np.ndarray, np.ndarray]]]:
        specs = self._signature.outputs
        if len(out) != len(specs):
            raise InputError(f"out has {len(out)} arrays, the model has {len(specs)} outputs")
        out = [tensor_to_array(o) if is_tensor(o) else o for o in out]
        results: list[np.ndarray] = []
        write_back: list[tuple[np.ndarray, np.ndarray]] = []
        for i, given in enumerate(out):
            shape, dtype = replay.output_shapes[i], self._output_dtypes[i]
            if given is None or replay.placement.binding.outputs[i] is None:
                results.append(np.empty(shape, dtype))
                continue
            target = self._check_target(i, given, shape)
            for j in range(i):
                other = out[j]
                if other is not None and np.may_share_memory(target, other):
                    raise InputError(f"out[{i}] and out[{j}] share memory")
            usable = target.flags.c_contiguous and address(target) % ALIGNMENT == 0
            # Kernels may write an output before they have read an input that lies there.
            if not usable or any(np.may_share_memory(target, a) for a in arrays):
                results.append(np.empty(shape, dtype))
                write_back.append((target, results[-1]))
            else:
                results.append(target)
        return results, write_back

    def _check_target(self, i: int, target: Any, shape: tuple[int, ...]) -> np.ndarray:
        spec, dtype = self._signature.outputs[i], self._output_dtypes[i]
        if is_tensor(target):
            target = tensor_to_array(target)
        if not isinstance(target, np.ndarray):
            raise InputError(f"out[{i}] is a {type(target).__name__}, want a numpy array")
        if target.dtype != dtype or target.shape != shape:
            raise InputError(
                f"out[{i}] is {target.dtype}{list(target.shape)}, output {spec.name!r} is "
                f"{spec.dtype}{list(shape)}"
            )
        if not target.flags.writeable:
            raise InputError(f"out[{i}] is read-only")
        return target


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous array, in elements."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.insert(0, step)
        step *= max(extent, 1)
    return tuple(strides)


def _aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    count = math.prod(shape) * dtype.itemsize
    block = np.empty(count + 64, np.uint8)
    start = -address(block) % 64
    return block[start : start + count].view(dtype).reshape(shape)
