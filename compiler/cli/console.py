"""Where words go: data to stdout, everything said about it to stderr.

Colour and progress appear on a terminal only, never with NO_COLOR.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from graphwright.errors import InputError, ResourceError


class Console:
    """`verbosity`: -1 errors only, 0 normal, 1 with details, 2 with tracebacks."""

    def __init__(self, verbosity: int = 0) -> None:
        from rich.console import Console as Rich

        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        self.verbosity = verbosity
        # Lines in a pipe are never cut: whoever reads them has no width.
        wide = None if sys.stdout.isatty() else 4000
        wide_words = None if sys.stderr.isatty() else 4000
        self.words = Rich(
            stderr=True, soft_wrap=True, width=wide_words, no_color=plain, highlight=False
        )
        self.data = Rich(soft_wrap=True, width=wide, no_color=plain, highlight=False)

    @property
    def is_terminal(self) -> bool:
        return self.words.is_terminal

    def say(self, text: str) -> None:
        """A line for people, on stderr; nothing with -q."""
        if self.verbosity >= 0:
            self.words.print(text, markup=False)

    def detail(self, text: str) -> None:
        """A line that -v asks for."""
        if self.verbosity >= 1:
            self.words.print(text, markup=False, style="dim")

    def warn(self, text: str) -> None:
        self.words.print(f"warning: {text}", markup=False, style="yellow")

    def error(self, text: str) -> None:
        first, _, rest = text.partition("\n")
        self.words.print("error:", style="bold red", end=" ")
        self.words.print(first, markup=False)
        if rest:
            self.words.print(rest, markup=False)

    def show(self, what: Any) -> None:
        """Data: a string, a table or any rich renderable, on stdout."""
        if isinstance(what, str):
            self.data.print(what, markup=False, emoji=False)
        else:
            self.data.print(what)

    @contextmanager
    def stage(self, text: str, *, still: bool = False) -> Generator[Stage]:
        """A step that takes a while: on a terminal a spinner with how far it is, in a pipe one line
        when it is done, with -q nothing.  `still`: no thread draws while it runs, for what is timed.
        """
        made = Stage(self, text)
        with made.shown(still):
            yield made
        if self.verbosity >= 1 or (self.verbosity >= 0 and not self.is_terminal):
            self.words.print(made.summary(), markup=False, style="dim")


class Stage:
    """How far a step has come.  `at` counts, `note` says anything."""

    def __init__(self, console: Console, text: str) -> None:
        self._console, self.text = console, text
        self.done = self.total = 0
        self._status: Any = None
        self._start = self._first = time.perf_counter()

    def at(self, done: int, total: int) -> None:
        """`done` of `total` parts are done (0 of 0: unknown)."""
        if done == 0 or done < self.done:  # counting begins
            self._first = time.perf_counter()
        self.done, self.total = done, total
        if self._status is not None:
            self.note(f"{done} of {total}{self._left()}" if total else "")

    def note(self, text: str) -> None:
        """More about the step, on a terminal."""
        if self._status is not None:
            from rich.markup import escape

            self._status.update(escape(f"{self.text}: {text}" if text else self.text))

    def summary(self) -> str:
        counted = f" ({self.total})" if self.total else ""
        return f"{self.text}{counted}: {time.perf_counter() - self._start:.2f} s"

    def _left(self) -> str:
        """At the rate so far; nothing before there is one worth the name."""
        spent = time.perf_counter() - self._first
        if self.done < ENOUGH_PARTS or spent < ENOUGH_SECONDS or self.done >= self.total:
            return ""
        return f", about {_rough(spent / self.done * (self.total - self.done))} left"

    @contextmanager
    def shown(self, still: bool = False) -> Generator[None]:
        console = self._console
        if not console.is_terminal or console.verbosity < 0:
            yield
        elif still:
            console.words.print(self.text, markup=False, end="\r")
            yield
            console.words.print(" " * len(self.text), end="\r")
        else:
            from rich.markup import escape

            with console.words.status(escape(self.text)) as self._status:
                yield
            self._status = None


ENOUGH_PARTS, ENOUGH_SECONDS = 3, 1.0


def _rough(seconds: float) -> str:
    """As exact as a guess can be: 8 s, 40 s, 3 min."""
    if seconds < 10:
        return f"{max(round(seconds), 1)} s"
    if seconds < 90:
        return f"{round(seconds / 5) * 5} s"
    return f"{round(seconds / 60)} min"


def json_text(value: Any, indent: str = "") -> str:
    """JSON with lists of plain values, such as shapes, on one line."""
    inner = indent + "  "
    if isinstance(value, dict) and value:
        pairs = [f"{json.dumps(str(k))}: {json_text(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(inner + p for p in pairs) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and any(isinstance(v, dict | list | tuple) for v in value):
        return "[\n" + ",\n".join(inner + json_text(v, inner) for v in value) + f"\n{indent}]"
    return json.dumps(value, allow_nan=False, default=str)


def write_json(value: Any, destination: str) -> None:
    """JSON to a file, or to stdout for `-`.  Raises InputError or ResourceError."""
    text = json_text(value) + "\n"
    if destination == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write_file(Path(destination), text.encode())


def write_file(path: Path, data: bytes) -> None:
    """Writes beside the file and renames, so that a half-written file never has its name."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no folder {path.parent}") from None
    except OSError as error:
        raise ResourceError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> Any:
    """A table; columns whose header begins with `>` are numbers and stand to the right."""
    from rich.table import Table

    out = Table(
        title=title or None, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    for column in columns:
        number = column.startswith(">")
        out.add_column(
            column.lstrip(">"), justify="right" if number else "left", overflow="fold",
            no_wrap=number, header_style="bold",
        )  # fmt: skip
    from rich.text import Text

    for row in rows:
        out.add_row(*(Text(str(cell)) for cell in row))
    return out


def bytes_text(count: float) -> str:
    """1.4 MiB"""
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def seconds_text(seconds: float) -> str:
    """12.3 us, 4.56 ms, 1.2 s"""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.2f} ms"
    return f"{seconds:.1f} s"


def count(number: int, what: str) -> str:
    """1 kernel, 2 kernels, 3 launches"""
    plural = what + ("es" if what.endswith("ch") else "s")
    return f"{number} {what if number == 1 else plural}"
