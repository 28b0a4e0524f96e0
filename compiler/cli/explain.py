"""graphwright explain: what an exit code or the name of an error means, and what to do about it."""

from __future__ import annotations

import difflib
import importlib

import click

from graphwright import errors
from graphwright.compiler.cli.console import Console, table, write_json
from graphwright.compiler.cli.parameters import common
from graphwright.errors import GraphwrightError, InputError

# What the class's own docstring does not say: what to do.
ADVICE: dict[int, str] = {
    0: "All went well.",
    1: "Two results differ by more than was allowed. `verify --bisect rewrite` and `verify --bisect "
    "node` find the rewrite or the kernel; docs/debugging.md is the walk. From `viz --exit-code`: the "
    "two graphs differ.",
    2: "The command line, an input or the model itself is malformed. The message names the thing, "
    "what was expected and the fix; nothing was written.",
    3: "The model uses something that is not supported. `check MODEL` lists every such node with the "
    "reason and what to do; `--custom-ops` brings ops of your own.",
    4: "The compiler failed where it should not: our fault. The bundle that the message names holds "
    "the command, options, versions, traceback, the model and the graph before the pass that failed. `--disable-pass` often avoids it, `-vv` shows the "
    "traceback.",
    5: "The artifact is damaged, of another format version, or for another machine. The message "
    "names both sides; compile again for this machine (`--target`), or copy the file again.",
    6: "You asked for something that cannot be honoured, and nothing is downgraded silently. Drop the "
    "option, or name the exception with `--allow`.",
    7: "Memory, disk or time ran out. The message says how much was wanted. Smaller `--shape` "
    "ranges make smaller arenas.",
    130: "The command was interrupted from the keyboard. Files are written under other names first, "
    "so that none is half there.",
}

# Errors that are not in graphwright.errors.
ELSEWHERE = {
    "CudaError": "graphwright.runtime.cuda_driver",
    "FieldError": "graphwright.runtime.expressions",
}


def _classes() -> dict[str, type[GraphwrightError]]:
    found = {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, GraphwrightError)
    }
    for name, place in ELSEWHERE.items():
        found[name] = getattr(importlib.import_module(place), name)
    return {n: c for n, c in found.items() if c is not GraphwrightError}


@click.command("explain")
@click.argument("code", metavar="CODE|ERROR", required=False)
@common
def command(code: str | None, json_to: str | None, console: Console) -> None:
    """Say what an exit code or an error's name means; without one, list them."""
    classes = _classes()
    if code is None:
        rows = [[number, ", ".join(_names(number, classes)), text.partition(". ")[0]]
                for number, text in ADVICE.items()]  # fmt: skip
        if json_to:
            known = [
                {"code": n, "errors": _names(n, classes), "meaning": m} for n, m in ADVICE.items()
            ]
            write_json(known, json_to)
        if json_to != "-":
            console.show(table([">code", "errors", "meaning"], rows))
        return
    number = classes[code].exit_code if code in classes else int(code) if code.isdigit() else -1
    if number not in ADVICE:
        known = [*map(str, ADVICE), *classes]
        near = difflib.get_close_matches(code, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
        raise InputError(f"no code or error is called {code!r}; {hint}")
    named = [code] if code in classes else _names(number, classes)
    about = [" ".join((classes[n].__doc__ or "").split()) for n in named]
    if json_to:
        write_json({"code": number, "errors": named, "meaning": ADVICE[number]}, json_to)
    if json_to != "-":
        for name, text in zip(named, about, strict=True):
            console.show(f"{name} (exit code {number}): {text}")
        console.show(ADVICE[number])


def _names(number: int, classes: dict[str, type[GraphwrightError]]) -> list[str]:
    return [n for n, c in classes.items() if c.exit_code == number]
