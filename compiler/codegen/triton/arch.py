"""The architectures that a compilation names: what kernels may use, and the memory they have."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from graphwright.compiler.target import Target

_CAPABILITIES: ContextVar[tuple[int, ...]] = ContextVar("capabilities", default=(80,))


@contextmanager
def emitting_for(target: Target) -> Generator[None]:
    """Within it, `capability` and `capabilities` answer for the target."""
    found = [int(a.removeprefix("sm_")) for a in target.arches if a.startswith("sm_")]
    token = _CAPABILITIES.set(tuple(found) or (80,))
    try:
        yield
    finally:
        _CAPABILITIES.reset(token)


def capability() -> int:
    """80 for sm_80: the least compute capability that the emitted kernels must run on."""
    return min(_CAPABILITIES.get())


def capabilities() -> tuple[int, ...]:
    """Those of all devices that the kernels must run on."""
    return _CAPABILITIES.get()
