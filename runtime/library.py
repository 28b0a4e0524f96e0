"""Loads an artifact's shared object from memory and holds the process's thread pools.

The ABI is that of compiler/codegen/cpp/include/gw/abi.h, version `KERNEL_ABI`.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import tempfile
import threading
from collections.abc import Sequence

import numpy as np

from graphwright.errors import ArtifactError, InputError, ResourceError
from graphwright.runtime.manifest import KERNEL_ABI

# gw_launch: int32 kind, int32 jump, function, pointers, scalars.
LAUNCH = np.dtype([("kind", "i4"), ("jump", "i4"), ("fn", "u8"), ("p", "u8"), ("s", "u8")])
# A check is a jump of 0, a bind never runs as such: where they must call back, CALL_BACK says so.
KINDS = {"kernel": 0, "branch": 1, "jump": 2, "loop": 3, "next": 4, "check": 2, "bind": 2}
CALL_BACK = 5
STOPPED_BY_CALL = 2  # what gw_replay returns when a call back asked to stop
MAX_THREADS = 256

_lock = threading.Lock()
_libraries: dict[str, Library] = {}
_counter = itertools.count()


class Library:
    """A loaded shared object.  Never unloaded: kernels, pool threads and other models may use it."""

    def __init__(self, handle: ctypes.CDLL, name: str) -> None:
        self.name, self._handle = name, handle
        try:
            abi = handle.gw_abi_version
            self.replay = handle.gw_replay
            self.pool_create = handle.gw_pool_create
            self.pool_destroy = handle.gw_pool_destroy
        except AttributeError as error:
            raise ArtifactError(f"{name}: not a library of kernels: {error}") from None
        abi.restype, abi.argtypes = ctypes.c_uint32, []
        if abi() != KERNEL_ABI:
            raise ArtifactError(f"{name}: kernel ABI {abi()}, this runtime calls {KERNEL_ABI}")
        self.replay.restype = ctypes.c_int32
        self.replay.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
        self.pool_create.restype, self.pool_create.argtypes = ctypes.c_void_p, [ctypes.c_int32]
        self.pool_destroy.restype, self.pool_destroy.argtypes = None, [ctypes.c_void_p]

    def address(self, symbol: str) -> int:
        """The address of a kernel.  Raises ArtifactError when there is none of that name."""
        try:
            return ctypes.cast(getattr(self._handle, symbol), ctypes.c_void_p).value or 0
        except AttributeError:
            raise ArtifactError(f"{self.name}: there is no kernel {symbol!r}") from None

    def addresses(self, symbols: Sequence[str]) -> list[int]:
        return [self.address(s) for s in symbols]


def load_library(content: bytes, name: str) -> Library:
    """Loads a shared object that has been verified; equal contents are loaded once a process."""
    if content[:4] != b"\x7fELF":
        raise ArtifactError(f"{name}: not an ELF shared object")
    digest = hashlib.sha256(content).hexdigest()
    with _lock:
        library = _libraries.get(digest)
        if library is None:
            library = _libraries[digest] = Library(_open(content, name), name)
        return library


def _open(content: bytes, name: str) -> ctypes.CDLL:
    try:
        handle = os.memfd_create(f"graphwright-{os.path.basename(name)}", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        return _open_file(content, name)
    try:
        with os.fdopen(os.dup(handle), "wb") as file:
            file.write(content)
        # The dynamic linker takes an equal path for an equal library, and descriptor numbers are
        # reused: a count spelled in "/" and "/." makes each path unique.
        count = next(_counter)
        spelled = "".join("/." if count >> bit & 1 else "/" for bit in range(24))
        return ctypes.CDLL(f"/proc/self{spelled}/fd/{handle}", mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        if not os.path.exists("/proc/self/fd"):
            return _open_file(content, name)
        raise ArtifactError(f"{name}: the dynamic linker refuses it: {error}") from None
    finally:
        os.close(handle)


def _open_file(content: bytes, name: str) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="graphwright-") as folder:  # mode 0700
        path = os.path.join(folder, os.path.basename(name))
        try:
            with open(path, "wb") as file:
                file.write(content)
            return ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            raise ArtifactError(f"{name}: the dynamic linker refuses it: {error}") from None


def allowed_cpus() -> int:
    """How many CPUs this process may run on."""
    return len(os.sched_getaffinity(0))


class ThreadPool:
    """A native pool of `threads` threads, the caller included; started by the first artifact that
    needs it and shared by all models of the process that ask for the same number.

    `pointer` is None for one thread: kernels then run on the caller.  After a fork the child has
    none of the threads: `started` is False there until the next call starts new ones.
    """

    def __init__(self, threads: int, library: Library) -> None:
        self.threads, self._library = threads, library
        self.pointer: int | None = None
        self.started = False

    def start(self) -> None:
        """Starts the threads.  Raises ResourceError when the system refuses."""
        with _lock:
            if not self.started and self.threads > 1:
                self.pointer = self._library.pool_create(self.threads)
                if not self.pointer:
                    raise ResourceError(f"{self.threads} threads cannot be started")
            self.started = True


_pools: dict[int, ThreadPool] = {}


def thread_pool(threads: int | None, library: Library) -> ThreadPool:
    """The process's pool of that many threads (None: the allowed CPUs).  Raises InputError unless
    1 <= threads <= 256.
    """
    count = min(allowed_cpus(), MAX_THREADS) if threads is None else threads
    if type(count) is not int or not 1 <= count <= MAX_THREADS:
        raise InputError(f"threads is {threads!r}, want an int from 1 to {MAX_THREADS} or None")
    with _lock:
        pool = _pools.get(count)
        if pool is None:
            pool = _pools[count] = ThreadPool(count, library)
        return pool


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()
    for pool in _pools.values():
        pool.pointer, pool.started = None, False


os.register_at_fork(after_in_child=_after_fork_in_child)
