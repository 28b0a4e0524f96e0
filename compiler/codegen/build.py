"""From kernel sources to shared objects: one per ISA level, compiled in parallel, cached.

Kernels are grouped in a few translation units, so that headers are read a few times and not once a
kernel; one more unit holds the thread pool and the replay of launches.
"""

from __future__ import annotations

import functools
import re
import signal
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess, run
from typing import Any

from graphwright.compiler.codegen.cache import ObjectCache, key_of
from graphwright.compiler.codegen.toolchain import (
    INCLUDE,
    Toolchain,
    find_toolchain,
    headers_digest,
    macros,
)
from graphwright.errors import CompileError, ResourceError

RUNTIME_SOURCE = '#include "gw/runtime.h"\n'
# The microkernels of floats take longer to compile than what calls them: one unit has them for all.
TABLES_SOURCE = '#include "gw/micro_tables.h"\n'
TABLES_APART = "#define GW_TABLES_APART\n"
GENERATOR = 1  # counts changes of how objects are made that no other part of the key shows
UNIT_WEIGHT = 40_000  # about how many characters of source make one translation unit


@dataclass(frozen=True, slots=True)
class SourceKernel:
    """One kernel as text with the headers that it includes."""

    name: str
    source: str
    includes: tuple[str, ...] = ()


@dataclass(slots=True)
class BuildReport:
    """What a build did, for reports: how many units were compiled and how many were cached."""

    compiled: int = 0
    cached: int = 0
    failures: list[str] = field(default_factory=list[str])


def build_libraries(
    kernels: Sequence[SourceKernel],
    levels: Sequence[str],
    *,
    jobs: int = 1,
    cache_dir: Path | None = None,
    toolchain: Toolchain | None = None,
    report: BuildReport | None = None,
    on_unit: Callable[[int, int], None] | None = None,
) -> dict[str, bytes]:
    """A shared object for each ISA level with all the kernels, the pool and the replay loop.

    `on_unit(done, total)` is told how many translation units are ready.  Raises CompileError with
    the compiler's first messages and the path of the kept source.
    """
    tools = toolchain or find_toolchain()
    cache = ObjectCache(cache_dir)
    counts = report or BuildReport()
    units = translation_units(kernels)
    libraries: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory(prefix="graphwright-") as scratch:
        folder = Path(scratch)
        missing: list[tuple[str, str, str, dict[str, Any]]] = []  # level, key, unit, record
        objects: dict[str, list[str]] = {}
        library_keys: dict[str, str] = {}
        for level in levels:
            records = [_record(tools, level, unit) for unit in units]
            keys = [key_of(r) for r in records]
            parts = {"link": list(tools.link_flags()), "objects": keys}
            library_keys[level] = key_of(parts)
            known = cache.get(library_keys[level], {"level": level, **parts})
            if known is not None:
                libraries[level] = known
                counts.cached += len(units)
                continue
            objects[level] = keys
            missing += [
                (level, key, unit, record)
                for key, unit, record in zip(keys, units, records, strict=True)
            ]

        def compile_one(item: tuple[str, str, str, dict[str, Any]]) -> None:
            level, key, unit, record = item
            path = folder / f"{key}.o"
            known = cache.get(key, record)
            if known is not None:
                path.write_bytes(known)
                counts.cached += 1
                return
            _compile(tools, level, unit, path, cache_dir)
            counts.compiled += 1
            cache.put(key, path.read_bytes(), {"level": level, **record})

        # The largest first: the last one to finish decides.
        missing.sort(key=lambda item: -len(item[2]))
        with ThreadPoolExecutor(max_workers=max(jobs, 1)) as pool:
            for done, _ in enumerate(pool.map(compile_one, missing)):
                if on_unit is not None:
                    on_unit(done + 1, len(missing))
        for level, keys in objects.items():
            data = _link(tools, level, [folder / f"{k}.o" for k in keys], folder / f"{level}.so")
            libraries[level] = data
            cache.put(
                library_keys[level],
                data,
                {"level": level, "link": list(tools.link_flags()), "objects": keys},
            )
    return {level: libraries[level] for level in levels}


def translation_units(kernels: Sequence[SourceKernel]) -> list[str]:
    """Sources of translation units: kernels with the same headers together, of bounded length."""
    unique = {k.name: k for k in kernels}
    by_headers: dict[tuple[str, ...], list[SourceKernel]] = {}
    for kernel in sorted(unique.values(), key=lambda k: k.name):
        by_headers.setdefault(kernel.includes, []).append(kernel)
    units = [RUNTIME_SOURCE]
    for includes, group in sorted(by_headers.items()):
        head = "".join(f'#include "{header}"\n' for header in includes)
        if any("gw/micro.h" in _with_nested(header) for header in includes):
            head = TABLES_APART + head
            if TABLES_SOURCE not in units:
                units.append(TABLES_SOURCE)
        size = sum(len(k.source) for k in group)
        count = max(1, min(len(group), round(size / UNIT_WEIGHT)))
        bins: list[list[str]] = [[] for _ in range(count)]
        for k in sorted(group, key=lambda k: (-len(k.source), k.name)):
            min(bins, key=lambda b: sum(map(len, b))).append(k.source)
        units += [head + "\n" + "\n".join(b) for b in bins]
    return units


@functools.cache
def _with_nested(header: str) -> frozenset[str]:
    """A header of ours (`gw/conv.h`) and all headers of ours that it includes."""
    found, path = {header}, INCLUDE / header
    text = path.read_text() if path.is_file() else ""  # a custom op's may be anywhere
    for name in re.findall(r'^#include "(\w+\.h)"', text, re.MULTILINE):
        found |= _with_nested(f"gw/{name}")
    return frozenset(found)


def _record(tools: Toolchain, level: str, unit: str) -> dict[str, Any]:
    """Everything that an object file depends on."""
    return {
        "generator": GENERATOR,
        "compiler": tools.describe(),
        "flags": list(tools.flags(level)),
        "isa": macros(tools, level) if level == "native" else level,
        "headers": headers_digest(),
        "source": unit,
    }


def _compile(tools: Toolchain, level: str, unit: str, path: Path, keep: Path | None) -> None:
    source = path.with_suffix(".cpp")
    source.write_text(unit)
    command = [*tools.command, *tools.flags(level), f"-I{INCLUDE}", "-c", str(source)]
    done = run([*command, "-o", str(path)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        _check_ended_itself(done)
        folder = (keep or Path(tempfile.gettempdir())) / "failed"
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / source.name
        shown = " ".join([*command[:-1], str(kept)])
        kept.write_text(f"// {shown}\n{unit}")
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        first = "\n".join((errors or done.stderr.splitlines())[:8])
        raise CompileError(
            f"the C++ compiler refused generated code ({level}); this is a fault of graphwright. "
            f"The source is kept: {kept}\n{first}"
        )


def _check_ended_itself(done: CompletedProcess[str]) -> None:
    """Raises when a signal ended the C++ compiler: an interrupt is the user's, a kill the system's."""
    if done.returncode == -signal.SIGINT:
        raise KeyboardInterrupt
    if done.returncode < 0 or "signal terminated program" in done.stderr:  # as GCC's driver says it
        raise ResourceError(
            "a signal ended the C++ compiler, which may lack memory: fewer jobs need less "
            f"(--jobs 1)\n{done.stderr.strip()[:500]}"
        )


def _link(tools: Toolchain, level: str, objects: Sequence[Path], path: Path) -> bytes:
    target = ("-target", "aarch64-linux-gnu") if tools.is_zig and level == "aarch64" else ()
    names = [str(o) for o in objects]
    command = [*tools.command, *target, *names, *tools.link_flags(), "-o", str(path)]
    done = run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        _check_ended_itself(done)
        raise CompileError(f"linking the kernels failed ({level}):\n{done.stderr.strip()[:2000]}")
    return path.read_bytes()
