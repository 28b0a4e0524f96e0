"""Where an emitter has several ways: it lists them, the best by its own estimate first, and gets one.

Nobody choosing, that is the first.  The tuner chooses others within `choosing`, and times them.  Ways
are values with a text of their own (`str`), by which databases and lock files name them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

Way = TypeVar("Way")
Choice = Callable[[Sequence[Any]], int]
_CHOICE: ContextVar[Choice | None] = ContextVar("choice", default=None)


@contextmanager
def choosing(choice: Choice) -> Generator[None]:
    """Within it, `choose_among` asks `choice` for the number of a way."""
    token = _CHOICE.set(choice)
    try:
        yield
    finally:
        _CHOICE.reset(token)


def choose_among(ways: Sequence[Way]) -> Way:
    """One of the ways, of which there is at least one."""
    choice = _CHOICE.get()
    return ways[0 if choice is None else choice(ways)]
