"""graphwright viz: what the passes did, or how two graphs differ, as one page for a browser."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from graphwright.compiler.cli.console import Console, bytes_text, write_file, write_json
from graphwright.compiler.cli.open import is_artifact
from graphwright.compiler.cli.parameters import common, compile_parameters
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.trace import Trace, TraceWriter, parse_trace
from graphwright.compiler.viewer.compare import compare, rename, summary
from graphwright.errors import InputError

TRACE_START = b'{"record":"trace"'
FORMATS = ("html", "dot", "model-explorer")


@click.command("viz")
@click.argument("source", metavar="TRACE|OUT.gw|MODEL", type=click.Path(path_type=Path))
@click.argument("other", metavar="[OTHER]", required=False, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="OUT.html",
              help="The file to write (default: SOURCE's name with .html, in this folder).")  # fmt: skip
@click.option("--format", "form", type=click.Choice(FORMATS), default="html", show_default=True,
              help="A page; or the last graph for Graphviz or Model Explorer.")  # fmt: skip
@click.option("--summary", type=click.Choice(["md"]),
              help="Print what differs as Markdown, on stdout; no page is written without -o.")  # fmt: skip
@click.option("--profile", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Lay the times of `bench --profile --json FILE` over the graph.")  # fmt: skip
@click.option("--errors", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Lay the errors of `verify --layers --json FILE` over the graph.")  # fmt: skip
@click.option("--exit-code", is_flag=True, help="With OTHER: exit with 1 when the two differ.")
@compile_parameters
@common
def command(
    source: Path, other: Path | None, output: Path | None, form: str, summary: str | None,
    profile: Path | None, errors: Path | None, exit_code: bool, options: CompileOptions, json_to: str | None, console: Console,
) -> int:  # fmt: skip
    """Show SOURCE, and with OTHER how the two differ, in one HTML file that needs no network.

    A trace (compile --trace) shows every pass and rewrite; a model is taken through the passes
    first; of two ONNX files the nodes are compared as the files have them.
    """
    if exit_code and other is None:
        raise InputError("--exit-code says whether two differ: name another file")
    if summary and json_to == "-":
        raise InputError("--json - and --summary both want stdout; give --json a file")
    measured = _Measured.read(profile, errors)
    if measured and (
        other is not None or form != "html" or (output is None and (summary or json_to))
    ):
        raise InputError("--profile and --errors are laid over the page of one source")
    with console.stage(f"reading {source}"):
        trace = _open_pair(source, other, options) if other else _open(source, options)
    if summary:
        console.show(_markdown(trace, source, other))
    if json_to:
        write_json(_facts(trace), json_to)
    if output is not None or not (summary or json_to):
        target = output or Path(source.name).with_suffix(
            {"html": ".html", "dot": ".dot"}.get(form, ".json")
        )
        if target.resolve() in {p.resolve() for p in (source, other) if p is not None}:
            raise InputError(f"-o {target} would overwrite what is shown; name another file")
        data = _render(trace, form, source, other, measured)
        write_file(target, data)
        console.say(f"wrote {target} ({bytes_text(len(data))})")
    return int(exit_code and _differs(trace))


@dataclass(frozen=True, slots=True)
class _Measured:
    """The JSON of `bench --profile` and the part of that of `verify` on kernels."""

    profile: Mapping[str, Any] | None = None
    errors: Mapping[str, Any] | None = None

    def __bool__(self) -> bool:
        return self.profile is not None or self.errors is not None

    @staticmethod
    def read(profile: Path | None, errors: Path | None) -> _Measured:
        """Raises InputError for a file of another kind."""
        times = None if profile is None else _json(profile)
        found = None if errors is None else _json(errors).get("kernels")
        if times is not None and "launches" not in times:
            raise InputError(f"--profile {profile}: want what `bench --profile --json FILE` writes")
        if errors is not None and (not isinstance(found, dict) or "layers" not in found):
            raise InputError(f"--errors {errors}: want what `verify --layers --json FILE` writes")
        return _Measured(times, found)


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise InputError(f"{path} is no JSON: {error}") from None
    return found if isinstance(found, dict) else {}


def _render(
    trace: Trace, form: str, source: Path, other: Path | None, measured: _Measured
) -> bytes:
    from graphwright.compiler.viewer import payload_of, render_page
    from graphwright.compiler.viewer.export import to_dot, to_model_explorer

    if form == "dot":
        return to_dot(trace.final().graph()).encode()
    if form == "model-explorer":
        collections = to_model_explorer(trace.final().graph(), source.name)
        return json.dumps(collections, ensure_ascii=False).encode()
    title = f"{source.name} → {other.name}" if other else source.name
    about = " · ".join(str(trace.about[k]) for k in ("model", "target") if trace.about.get(k))
    start = source.name if other else ""
    payload = payload_of(
        trace, title=title, subtitle=about, start=start,
        profile=measured.profile, errors=measured.errors,
    )  # fmt: skip
    return render_page(payload).encode()


# -- opening


def _open(path: Path, options: CompileOptions) -> Trace:
    """The trace of a file of any kind; a model goes through the passes, its trace kept in memory."""
    from graphwright.compilation import run_passes

    if is_artifact(path):
        return _open_artifact(path)
    if _is_trace(path):
        return parse_trace(path.read_bytes(), str(path))
    buffer = io.BytesIO()
    with TraceWriter(buffer, {"model": path.name, "target": str(options.target)}) as writer:
        run_passes(path, options, listeners=[writer])
    return parse_trace(buffer.getvalue(), str(path))


def _is_trace(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(TRACE_START)) == TRACE_START


def _open_artifact(path: Path) -> Trace:
    """The trace that an artifact keeps; else its last graph, its plan and its kernels."""
    from graphwright.compiler.cli.artifact_graph import read_graph
    from graphwright.compiler.trace.reader import MEMBER
    from graphwright.compiler.trace.records import Recorder
    from graphwright.compiler.trace.writer import TUNING, tuning_records
    from graphwright.runtime.artifact import ArtifactFile
    from graphwright.runtime.manifest import write_manifest

    file = ArtifactFile(path)
    if MEMBER in file.members:
        return parse_trace(file.read(MEMBER), f"{path}: {MEMBER}")
    manifest = file.manifest
    graph, ops = read_graph(file)
    sources = {
        k.source: file.read(k.source).decode(errors="replace")
        for v in manifest.variants
        for k in v.kernels
        if k.source in manifest.files
    }
    record = Recorder().graph(graph)
    record = rename(record, {op.id: i for i, op in ops.items()}, 0, record)
    about = {"model": path.name, "producer": manifest.producer}
    trace = Trace(about, record)
    plain = json.loads(write_manifest(manifest))
    lock = file.read(TUNING) if TUNING in file.members else None
    trace.others += [{"record": "tuning", **r} for r in tuning_records(lock)]
    trace.others.append({"record": "artifact", "manifest": plain, "sources": sources})
    return trace


def _open_pair(first: Path, second: Path, options: CompileOptions) -> Trace:
    plain = [not is_artifact(p) and not _is_trace(p) for p in (first, second)]
    if all(plain):  # two models: what the files say, before anything is lowered
        from graphwright.frontends.onnx.describe import describe
        from graphwright.frontends.onnx.source import read_source

        graphs = [describe(read_source(p).proto) for p in (first, second)]
        return compare(graphs[0], graphs[1], {"first": str(first), "second": str(second)})
    traces = [_open(p, options) for p in (first, second)]
    about = {"first": str(first), "second": str(second)}
    trace = compare(traces[0].final().graph(), traces[1].final().graph(), about)
    trace.others.extend(traces[1].of_kind("artifact"))
    return trace


# -- saying


def _differs(trace: Trace) -> bool:
    delta: Mapping[str, Any] = trace.passes[0].rest
    return any(delta.get(k) for k in ("erase", "add", "set", "border"))


def _facts(trace: Trace) -> dict[str, Any]:
    """What the page says, for programs: passes with their counts, and the ops that differ."""
    return {
        "about": dict(trace.about),
        "ops": {"before": len(trace.initial["ops"]), "after": len(trace.final().ops)},
        "passes": [
            {"name": p.name, "rewrites": len(p.steps), "refusals": len(p.refusals), **p.end}
            for p in trace.passes
        ],
        "different": [{"op": n, "before": a, "after": b} for n, a, b in summary(trace)],
    }


def _markdown(trace: Trace, source: Path, other: Path | None) -> str:
    name = f"`{source.name}` and `{other.name}`" if other else f"`{source.name}`"
    lines = [f"### {name}", ""]
    before, after = len(trace.initial["ops"]), len(trace.final().ops)
    lines.append(f"{before} ops before, {after} after.")
    if other and not _differs(trace):
        return "\n".join([*lines, "", "No difference."])
    if other:
        delta = trace.passes[0].rest
        lines[-1] += (
            f" {len(delta.get('add', ()))} added, {len(delta.get('erase', ()))} removed, "
            f"{len(delta.get('set', ()))} changed in place."
        )
    if rows := summary(trace):
        lines += ["", "| op | before | after |", "|---|---:|---:|"]
        lines += [f"| {n} | {a} | {b} |" for n, a, b in rows]
    changed = [p for p in trace.passes if p.steps]
    if changed and not other:
        lines += ["", "| pass | rewrites | ops after | ms |", "|---|---:|---:|---:|"]
        lines += [
            f"| {p.name} | {len(p.steps)} | {p.end.get('ops', '')} | {1e3 * p.end.get('seconds', 0):.1f} |"
            for p in changed
        ]
    return "\n".join(lines)
