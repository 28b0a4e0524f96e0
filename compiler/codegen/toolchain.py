"""The C++ compiler: which one, its version, and the flags for an ISA level.

Looked for in this order: the `CXX` environment variable, `g++`, `clang++`, the `ziglang` wheel's
`python -m ziglang c++`.

Why these flags: no fast-math, so that NaN, infinities, signed zeros and subnormals keep their
meaning and a build repeats its bits; `-ffp-contract=off`, since fused multiply-adds outside
contractions would differ by compiler (contractions call fma on purpose); `-fno-math-errno` and
`-fno-trapping-math`, which change no value and without which square roots and conditionals do not
vectorise; `-fwrapv`, since our integer arithmetic wraps.  Strict aliasing stays on: kernels read
memory only as the type that it was written as, or through memcpy, and loops vectorise because of it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from graphwright.errors import CompileError

INCLUDE = Path(__file__).parent / "cpp" / "include"

COMMON_FLAGS = (
    "-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math",
    "-ffp-contract=off", "-fwrapv", "-fno-plt", "-fno-asynchronous-unwind-tables",
)  # fmt: skip
LINK_FLAGS = ("-shared", "-s", "-pthread")


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A C++ compiler: how it is called, and what it says about itself."""

    command: tuple[str, ...]
    version: str

    @property
    def is_zig(self) -> bool:
        return "ziglang" in self.command or Path(self.command[0]).name.startswith("zig")

    @property
    def is_clang(self) -> bool:
        return self.is_zig or "clang" in self.version

    def flags(self, level: str) -> tuple[str, ...]:
        """Compile flags for an ISA level of `target.CPU_LEVELS`."""
        if level == "aarch64":
            machine = ["-mcpu=generic"] if self.is_zig else ["-march=armv8.2-a"]
            if self.is_zig:
                machine += ["-target", "aarch64-linux-gnu"]
        elif self.is_zig:
            base, vnni = level.removesuffix("-vnni"), level.endswith("-vnni")
            machine = [f"-mcpu={base.replace('-', '_')}{'+avx512vnni' if vnni else ''}"]
        else:
            machine = [f"-march={level.removesuffix('-vnni')}"]
            machine += ["-mavx512vnni"] * level.endswith("-vnni")
        if level in ("x86-64-v4", "x86-64-v4-vnni", "native") and not self.is_zig:
            machine.append("-mprefer-vector-width=512")
        return (*COMMON_FLAGS, *machine)

    def link_flags(self) -> tuple[str, ...]:
        """Flags that link a library which needs nothing but the C library."""
        if self.is_zig:
            return LINK_FLAGS
        return (*LINK_FLAGS, "-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL")

    def describe(self) -> dict[str, str]:
        """What identifies the compiler in cache keys and records."""
        return {"command": shlex.join(self.command), "version": self.version}


@lru_cache(maxsize=8)
def find_toolchain(cxx: str | None = None) -> Toolchain:
    """The compiler to use.  Raises CompileError that says what to install when there is none."""
    asked = cxx or os.environ.get("CXX")
    if asked:
        command = tuple(shlex.split(asked))
        if shutil.which(command[0]) is None:
            raise CompileError(f"CXX is {asked!r}, which is not a program; unset it or correct it")
        return Toolchain((str(shutil.which(command[0])), *command[1:]), _version(command))
    for name in ("g++", "clang++"):
        path = shutil.which(name)
        if path is not None:
            return Toolchain((path,), _version((path,)))
    if importlib.util.find_spec("ziglang") is not None:
        command = (sys.executable, "-m", "ziglang", "c++")
        return Toolchain(command, _version((sys.executable, "-m", "ziglang", "c++")))
    raise CompileError(
        "no C++ compiler: install g++ or clang++, or the wheel `pip install ziglang`, or set CXX"
    )


def _version(command: tuple[str, ...]) -> str:
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompileError(f"{shlex.join(command)} --version fails: {done.stderr.strip()[:500]}")
    first = done.stdout.splitlines()
    return first[0] if first else "unknown"


@lru_cache(maxsize=32)
def macros(toolchain: Toolchain, level: str) -> str:
    """What the compiler predefines for a level: says which instructions `native` means."""
    command = [*toolchain.command, *toolchain.flags(level), "-dM", "-E", "-x", "c++", os.devnull]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompileError(
            f"{shlex.join(toolchain.command)} has no target {level}: {done.stderr.strip()[:500]}"
        )
    return done.stdout


def resolved_level(toolchain: Toolchain, level: str) -> str:
    """`native` as the level whose register tiles it has; other levels as they are."""
    if level != "native":
        return level
    defined = macros(toolchain, level)
    if "__AVX512F__" in defined:
        return "x86-64-v4"
    if "__AVX2__" in defined:
        return "x86-64-v3"
    return "aarch64" if "__aarch64__" in defined else "x86-64"


@lru_cache(maxsize=1)
def headers_digest() -> str:
    """SHA-256 over every header of ours, names and contents."""
    h = hashlib.sha256()
    for path in sorted(INCLUDE.rglob("*.h")):
        h.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return h.hexdigest()
