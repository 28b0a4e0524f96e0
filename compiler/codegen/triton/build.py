"""Triton source to cubins, on any machine: Triton's own ahead-of-time compiler with a named target.

A kernel's source is a complete Python module that this package generated; it is written to the
cache folder and imported, since Triton reads functions through `inspect`.  Numerics options are
passed explicitly (no fp fusion, no flush to zero), so that Triton's defaults may change.
Hidden scratch parameters that Triton appends are recorded as "null" in the kernel's parameters.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphwright.compiler.codegen.kernel import EmittedKernel
from graphwright.errors import CompileError
from graphwright.runtime.manifest import Kernel

GENERATOR = 2  # part of the cache key: raise it when the same source must be compiled differently


# Element types of tensor maps whose numbers in Triton's metadata differ from the driver's.
MAP_TYPES = {8: 10, 9: 8, 10: 9}


@dataclass(frozen=True, slots=True)
class TritonKernel(EmittedKernel):
    """Triton source with its signature, Triton's types of the parameters in order.

    `roles`: what each parameter is: "pointer" and "scalar" take the launch's pointers and scalars in
    turn; "zeros:BYTES" is memory that is zero before and after each run; "map:POINTER" a tensor
    descriptor of a pointer's memory, which takes extents and strides (in elements) from the scalars.
    `aligned` are the indices of pointers that are certainly multiples of 16 bytes.  `waits`: the
    kernel waits for the one before it by itself, so that it may be launched early.
    """

    signature: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    waits: bool = False
    aligned: tuple[int, ...] = ()
    num_warps: int = 4
    num_stages: int = 3


@dataclass(frozen=True, slots=True)
class Cubin:
    """A compiled kernel for one arch: its image and the manifest's record of it."""

    image: bytes
    kernel: Kernel


def build(kernel: TritonKernel, arch: str, cache: Path) -> Cubin:
    """The cubin for `arch` ("sm_90"), from the cache when it is there.

    Raises CompileError with Triton's message and the path of the source.
    """
    try:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
    except ImportError as e:
        raise CompileError(
            f"compiling for {arch} needs Triton: pip install 'graphwright[cuda]' ({e})"
        ) from e
    options = _options(kernel)
    capability = int(arch.removeprefix("sm_"))
    waits = kernel.waits and capability >= 90
    key = _key(kernel, arch)
    stored = cache / "triton" / f"{key}.cubin"
    record = stored.with_suffix(".json")
    cached = _read_cached(stored, record, kernel)
    if cached is not None:
        return cached
    source_path = cache / "triton" / f"{kernel.name}_{key[:8]}.py"
    _write(source_path, kernel.source.encode())
    function = _import(source_path, kernel.name, early=waits)
    names = list(function.arg_names)
    source = ASTSource(
        fn=function,
        signature=dict(zip(names, kernel.signature, strict=True)),
        constexprs={},
        attrs={(i,): [["tt.divisibility", 16]] for i in kernel.aligned},
    )
    try:
        compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    except Exception as e:
        raise CompileError(
            f"Triton cannot compile {kernel.name} for {arch}: {e}; its source is {source_path}"
        ) from e
    image: bytes = compiled.asm["cubin"]
    metadata = compiled.metadata
    maps = getattr(metadata, "tensordesc_meta", None) or []
    parameters = _parameters(kernel, compiled.asm["ptx"], maps)
    made = Kernel(
        name=metadata.name,
        source=f"kernels/{kernel.name}.py",
        summary=kernel.summary,
        binary=f"kernels/{arch}/{kernel.name}.cubin",
        threads=32 * metadata.num_warps,
        shared_bytes=metadata.shared,
        registers=registers_of(image),
        parameters=parameters,
        waits=waits,
    )
    fields = {
        "name": made.name, "threads": made.threads, "shared_bytes": made.shared_bytes,
        "parameters": list(parameters), "waits": waits, "arch": arch, "binary": made.binary,
        "sha256": hashlib.sha256(image).hexdigest(), "triton": triton.__version__,
    }  # fmt: skip
    _write(stored, image)
    _write(record, json.dumps(fields, indent=1).encode())
    return Cubin(image, made)


def registers_of(cubin: bytes) -> int:
    """Registers of a thread of a cubin's one kernel; 0 where the file does not say.

    The section `.nv.info` has a record for it: format 4, attribute 0x2f, eight bytes, which are the
    number of the function's symbol and the count.
    """
    at = cubin.find(b"\x04\x2f\x08\x00")
    if at < 0 or at + 12 > len(cubin):
        return 0
    count = int.from_bytes(cubin[at + 8 : at + 12], "little")
    return count if count <= 255 else 0


def _key(kernel: TritonKernel, arch: str) -> str:
    import triton

    parts = [kernel.source, kernel.signature, kernel.roles, kernel.aligned, _options(kernel), arch,
             kernel.waits, triton.__version__, GENERATOR]  # fmt: skip
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def is_built(kernel: TritonKernel, arch: str, cache: Path) -> bool:
    """Whether the cache seems to hold the cubin; True without Triton, which `build` reports."""
    try:
        return (cache / "triton" / f"{_key(kernel, arch)}.json").exists()
    except ImportError:
        return True


def _options(kernel: TritonKernel) -> dict[str, Any]:
    from triton.backends.nvidia.compiler import CUDAOptions

    wanted: dict[str, Any] = {
        "num_warps": kernel.num_warps,
        "num_stages": kernel.num_stages,
        "enable_fp_fusion": False,
        "enable_reflect_ftz": False,
    }
    known = CUDAOptions.__dataclass_fields__
    return {k: v for k, v in wanted.items() if k in known}


def _read_cached(stored: Path, record: Path, kernel: TritonKernel) -> Cubin | None:
    """None when it is absent or damaged: then it is built again."""
    try:
        image, fields = stored.read_bytes(), json.loads(record.read_text())
        if hashlib.sha256(image).hexdigest() != fields["sha256"]:
            return None
        return Cubin(
            image,
            Kernel(
                name=fields["name"],
                source=f"kernels/{kernel.name}.py",
                summary=kernel.summary,
                binary=fields["binary"],
                threads=fields["threads"],
                shared_bytes=fields["shared_bytes"],
                registers=registers_of(image),
                parameters=tuple(fields["parameters"]),
                waits=fields["waits"],
            ),
        )
    except (OSError, ValueError, KeyError):
        return None


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    with os.fdopen(handle, "wb") as f:
        f.write(data)
    os.replace(temporary, path)


def _import(path: Path, name: str, *, early: bool) -> Any:
    spec = importlib.util.spec_from_file_location(f"graphwright_kernel_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if early:
        import triton.language as tl

        vars(module)["EARLY"] = tl.constexpr(True)  # see HEADER in kernels.py
    return getattr(module, name)


def _parameters(kernel: TritonKernel, ptx: str, maps: list[dict[str, Any]]) -> tuple[str, ...]:
    """The kernel's real parameters, hidden ones included, as the manifest lists them."""
    entry = ptx[ptx.index(".entry") :]
    count = entry[: entry.index(")")].count(".param")
    listed: list[str] = []
    pointers = scalars = mapped = 0
    for kind, role in zip(kernel.signature, kernel.roles, strict=True):
        if role == "pointer":
            listed.append(f"pointer:{pointers}")
            pointers += 1
        elif role == "scalar":
            listed.append(f"scalar:{scalars}:{kind}")
            scalars += 1
        elif role.startswith("zeros:"):
            listed.append(role)
        else:
            meta = maps[mapped]
            mapped += 1
            box = "x".join(map(str, meta["block_size"]))
            kind = MAP_TYPES.get(meta["elem_type"], meta["elem_type"])
            element = f"{kind}:{meta['elem_size']}"
            listed.append(f"{role}:{element}:{meta['swizzle']}:{box}:{scalars}")
            rank = len(meta["block_size"])
            listed += [f"scalar:{scalars + i}:i32" for i in range(rank)]
            listed += [f"scalar:{scalars + rank + i}:i64" for i in range(rank)]
            scalars += 2 * rank
    return (*listed, *["null"] * (count - len(listed)))
