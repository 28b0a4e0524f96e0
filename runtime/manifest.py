"""The contract between compiler and runtime: `manifest.json` of an artifact as frozen dataclasses.

A size is an `Expression`: an int, a symbol name, or a prefix list [operator, operand, ...] with the
operators "+", "*", "//", "%", "max", "min".  The runtime evaluates expressions, computes buffer
offsets, fills launch records and replays them; it decides nothing and knows no op.

Memory plan: a buffer's offset is the largest end (offset + size, aligned) of the buffers in its
`after`, 0 when there is none.  `after` holds, for every buffer that is ever live at the same time
and lies below, its index, so that the plan is valid for every binding by construction.  (Indices
that follow from others are left out: "above" is transitive.)

Segments: a symbol that no input binds is bound by a launch of the kind `bind`, which ends a segment
of the program.  A size belongs to the segment of the latest bound of its symbols, segment 0 being
that of the call itself.  Buffers of each segment lie in an arena of their own, placed whenever one
of its bind launches runs; `after` names buffers of one segment only.

`read_manifest.py` reads and validates; `write_manifest` below writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, Literal, TypeAlias

FORMAT_MAJOR, FORMAT_MINOR = 1, 1
KERNEL_ABI = 1
THREADS = "graphwright.threads"  # key of the metadata: CPU threads where the caller names none
Expression: TypeAlias = Any  # int | str | list[Any]; checked when read


@dataclass(frozen=True, slots=True)
class SymbolSpec:
    """A symbolic size: range, divisor, the size optimised for, and where a call binds it.

    `bound_by`: (input index, axis), or None for a symbol bound in mid-run, by a launch.
    """

    name: str
    min: int
    max: int
    multiple_of: int
    opt: int
    bound_by: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output: dtype in numpy's long name; shape entries are expressions, row-major."""

    name: str
    dtype: str
    shape: tuple[Expression, ...]
    default: int | None = None  # index into weights, for an input with a default value
    in_place: int | None = None  # of an output: the input whose memory it may lie in, and replace


@dataclass(frozen=True, slots=True)
class ConstraintSpec:
    """left relation right; relation is a comparison or "broadcast" (equal, or one is 1)."""

    left: Expression
    relation: str
    right: Expression
    reason: str


@dataclass(frozen=True, slots=True)
class WeightSpec:
    """A tensor of `weights.safetensors` by name, as the kernels read it (perhaps packed).

    `recipe` says in words how it was made from source weights.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    recipe: str = ""


Space: TypeAlias = Literal["arena", "input", "output", "weight", "state"]


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where a kernel argument lies: the buffer, input, output or weight of this index, plus bytes."""

    space: Space
    index: int
    offset: Expression = 0


@dataclass(frozen=True, slots=True)
class Buffer:
    """One arena buffer: bytes, and which buffers it lies above (see the module's contract)."""

    size: Expression
    after: tuple[int, ...] = ()
    values: tuple[str, ...] = ()  # the IR values that live in it, for inspect and the viewer
    first: int = 0  # first and last launch during which it is live
    last: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Buffers in an order in which offsets can be computed; `alignment` in bytes."""

    buffers: tuple[Buffer, ...] = ()
    alignment: int = 64
    lower_bounds: Mapping[str, int] = field(default_factory=dict)  # at "min", "opt", "max" bindings
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kernel:
    """One compiled kernel: its symbol in the binary, where its source is, what it computes.

    GPU: `binary` is the cubin's path in the artifact, `shared_bytes` dynamic shared memory,
    `threads` per block; `parameters` lists the kernel's parameters in order as "pointer:N" (N-th
    of the launch's pointers), "scalar:N:i32|i64|f32", "zeros:BYTES" (memory of the launch that is
    zero before and after each run), "map:POINTER:TYPE:BYTES:SWIZZLE:BOX:N" (a tensor map of a pointer:
    the driver's element type and swizzle, bytes of an element, the box as "64x128"; extents and then
    strides in elements are the scalars from N on) or "null" (hidden scratch pointers).  `waits`: it
    waits for the kernel before it by itself, so that it may start early.
    """

    name: str
    source: str
    summary: str = ""
    binary: str = ""
    threads: int = 0
    shared_bytes: int = 0
    registers: int = 0
    parameters: tuple[str, ...] = ()
    waits: bool = False


LaunchKind: TypeAlias = Literal["kernel", "branch", "jump", "host", "loop", "next", "bind", "check"]


@dataclass(frozen=True, slots=True)
class Move:
    """Bytes copied when a segment is placed: from one pointer of the launch, where it pointed before,
    to another, where it points now.
    """

    source: int
    target: int
    bytes: Expression


@dataclass(frozen=True, slots=True)
class Launch:
    """One step of the replay.

    kernel: call kernel `kernel` with `pointers` and `scalars` (int64 expressions; on a GPU over
    `grid`).  branch: skip `jump` launches unless the bool at pointers[0] is true.  jump: skip
    `jump` launches.  host: `reason` says why it is not a kernel.

    loop: skip `jump` launches unless the int64 counter at pointers[0] is below the trip count at
    pointers[1] and the bool at pointers[2] is true.  next: add one to the counter at pointers[0]
    and go back, by a negative `jump`, to the loop launch.

    bind: give `symbols` their sizes, read as int64 at the first pointers or, when there are
    `scalars`, calculated; then place the segment that they begin, and do `moves`.  check: no more
    than the checks.  Both fail with the first of `checks` that does not hold.
    """

    kind: LaunchKind = "kernel"
    kernel: int = 0
    pointers: tuple[Pointer, ...] = ()
    scalars: tuple[Expression, ...] = ()
    grid: tuple[Expression, ...] = ()
    jump: int = 0
    writes: tuple[int, ...] = ()  # which of the pointers are written
    ops: tuple[int, ...] = ()  # ids of the IR ops that it computes
    origins: tuple[str, ...] = ()
    reason: str = ""
    symbols: tuple[str, ...] = ()
    moves: tuple[Move, ...] = ()
    checks: tuple[ConstraintSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class Variant:
    """Everything for one target: ISA level (`cpu:x86-64-v3`) or arch, binary, kernels, plan.

    `library`: path in the artifact of the CPU shared object.  Variants of one target kind share
    weights and usually launches; the loader picks the best that the machine can run.
    """

    target: str
    library: str
    kernels: tuple[Kernel, ...]
    launches: tuple[Launch, ...]
    plan: Plan
    needs: tuple[str, ...] = ()  # CPU features, or libraries with version ranges
    precision: Mapping[str, int] = field(default_factory=dict)  # "f32": number of ops
    multiply_accumulates: Mapping[str, Expression] = field(
        default_factory=dict
    )  # "u8*i8": a call's
    capture: str = ""  # why no CUDA graph is captured; empty when it is


@dataclass(frozen=True, slots=True)
class Manifest:
    """The whole manifest.

    `files`: path in the archive -> {sha256, bytes} of every other member.  Large members also have
    `chunk` (bytes) and `crc32` (a list, one per chunk), which several threads verify at load.
    """

    producer: str
    symbols: tuple[SymbolSpec, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    constraints: tuple[ConstraintSpec, ...]
    weights: tuple[WeightSpec, ...]
    variants: tuple[Variant, ...]
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    format: tuple[int, int] = (FORMAT_MAJOR, FORMAT_MINOR)
    kernel_abi: int = KERNEL_ABI


def _plain(value: Any) -> Any:
    if isinstance(value, Pointer):
        short: list[Any] = [value.space, value.index]
        return [*short, _plain(value.offset)] if value.offset != 0 else short
    if is_dataclass(value):
        out: dict[str, Any] = {}
        for f in fields(value):
            item = getattr(value, f.name)
            default = f.default_factory() if f.default_factory is not MISSING else f.default
            if f.name in ("format", "kernel_abi") or item != default:
                out[f.name] = _plain(item)
        return out
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def write_manifest(manifest: Manifest) -> bytes:
    """The manifest as JSON text: one line a launch, buffer, kernel or weight; the same bytes for
    equal manifests.  Fields that have their default value are left out; a pointer is
    [space, index] or [space, index, offset].
    """

    def line(value: Any) -> str:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)

    def block(value: Any, indent: str, depth: int) -> str:
        if depth == 0 or not value or not isinstance(value, list | dict):
            return line(value)
        inner = indent + " "
        if isinstance(value, dict):
            pairs = (f"{line(k)}:{block(v, inner, depth - 1)}" for k, v in value.items())
            return "{\n" + ",\n".join(inner + p for p in pairs) + "\n" + indent + "}"
        if all(isinstance(v, int | str) for v in value):
            return line(value)
        items = (inner + block(v, inner, depth - 1) for v in value)
        return "[\n" + ",\n".join(items) + "\n" + indent + "]"

    plain = _plain(manifest)
    return (block({"format": plain.pop("format"), **plain}, "", 6) + "\n").encode()
