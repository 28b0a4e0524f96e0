"""graphwright cache: what compiled kernels are kept, why one was or was not taken, and what may go."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from graphwright.compiler.cli.console import Console, bytes_text, table, write_json
from graphwright.compiler.cli.parameters import common
from graphwright.compiler.codegen.cache import default_cache_dir
from graphwright.compiler.codegen.cache_report import entries, explain, lookups, prunable, tuned
from graphwright.errors import InputError

_folder = click.option(
    "--cache-dir", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="Another cache than the user's own.",
)  # fmt: skip


def _chosen(given: Path | None) -> Path:
    folder = given or default_cache_dir()
    if folder is None:
        raise InputError("this user has no home and so no cache; name one with --cache-dir")
    if given is not None and not given.is_dir():
        raise InputError(f"{given}: there is no such cache folder")
    return folder


@click.group("cache")
def command() -> None:
    """Look into the cache of compiled kernels, or empty it."""


@command.command("status")
@_folder
@common
def status(cache_dir: Path | None, json_to: str | None, console: Console) -> None:
    """Say what the cache holds and how often it was of use lately; -v lists the keys."""
    folder = _chosen(cache_dir)
    held, asked = entries(folder), lookups(folder)
    outcomes = Counter(a.outcome for a in asked)
    kinds = {
        kind: {"count": sum(e.kind == kind for e in held),
               "bytes": sum(e.bytes for e in held if e.kind == kind)}
        for kind in ("object", "library", "cubin")
    }  # fmt: skip
    number, size = tuned(folder)
    kinds["tuned kernel"] = {"count": number, "bytes": size}
    if json_to:
        keys = [{"key": e.key, "kind": e.kind, "bytes": e.bytes, "used": e.used} for e in held]
        value: dict[str, Any] = {"folder": str(folder), "kinds": kinds, "lookups": outcomes}
        write_json(value | {"entries": keys}, json_to)
    if json_to == "-":
        return
    rows = [[k, str(v["count"]), bytes_text(v["bytes"])] for k, v in kinds.items()]
    console.show(table(["kind", ">files", ">size"], rows))
    told = ", ".join(f"{n} {outcome}" for outcome, n in outcomes.items()) or "none noted"
    console.say(f"{folder}: lately asked for: {told}")
    if console.verbosity >= 1:
        latest = {a.key: a for a in asked}
        keys = dict.fromkeys([*latest, *(e.key for e in held)])
        kind_of = {e.key: e.kind for e in held}
        listed = [
            [k[:16], kind_of.get(k, ""), latest[k].outcome if k in latest else ""] for k in keys
        ]
        console.show(table(["key", "held as", "last asked for"], listed))


@command.command("explain")
@click.argument("key")
@_folder
@common
def explain_key(key: str, cache_dir: Path | None, json_to: str | None, console: Console) -> None:
    """Say of what KEY is made, and why it was or was not taken: the first part that differs from the
    nearest entry.  The beginning of a key is enough.
    """
    lines = explain(_chosen(cache_dir), key)
    if json_to:
        write_json([list(line.split(None, 1)) for line in lines], json_to)
    if json_to != "-":
        console.show("\n".join(lines))


@command.command("prune")
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    default=30.0,
    metavar="DAYS",
    help="What was not used for so long goes (default: 30).",
)
@click.option(
    "--keep",
    type=click.FloatRange(min=0),
    metavar="MEGABYTES",
    help="Then the least recently used, until no more than this is left.",
)
@click.option("--all", "everything", is_flag=True, help="Everything goes.")
@_folder
@common
def prune(
    older_than: float, keep: float | None, everything: bool, cache_dir: Path | None,
    json_to: str | None, console: Console,
) -> None:  # fmt: skip
    """Remove what is damaged, left behind, or was not used for long."""
    folder = _chosen(cache_dir)
    limit = None if keep is None else int(keep * 1e6)
    reasons: Counter[str] = Counter()
    freed = 0
    found = list(
        prunable(folder, older_than_days=older_than, keep_bytes=limit, everything=everything)
    )
    for files, size, reason in found:
        for path in files:
            path.unlink(missing_ok=True)
        reasons[reason] += 1
        freed += size
    if json_to:
        write_json({"folder": str(folder), "bytes": freed, "removed": reasons}, json_to)
    told = ", ".join(f"{n} {reason}" for reason, n in reasons.items()) or "nothing to remove"
    console.say(f"{folder}: {told}" + (f"; {bytes_text(freed)} are free" if freed else ""))
