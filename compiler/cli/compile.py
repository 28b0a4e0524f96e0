"""graphwright compile: a model to one deployable file, and the report on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from graphwright.compiler.cli.console import (
    Console,
    bytes_text,
    count,
    seconds_text,
    table,
    write_json,
)
from graphwright.compiler.cli.parameters import common, compile_parameters, model_argument
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.report import CompileReport, bindings_of, ratio_text
from graphwright.compiler.trace.reader import MEMBER as TRACE
from graphwright.errors import InputError


@click.command("compile")
@model_argument
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="OUT.gw",
              help="The artifact (default: the model's name with .gw, in this folder).")  # fmt: skip
@compile_parameters
@click.option("--print-after", multiple=True, metavar="PASS|all",
              help="Print the graph after a pass, on stdout. Repeatable.")  # fmt: skip
@click.option("--stop-after", metavar="PASS",
              help="Print the graph after this pass and stop; no artifact is made.")  # fmt: skip
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write every pass and rewrite to FILE, for `graphwright viz`.")  # fmt: skip
@click.option("--keep-trace", is_flag=True,
              help="Keep the trace in the artifact, where `viz OUT.gw` finds it.")  # fmt: skip
@common
def command(
    model: Path, output: Path | None, options: CompileOptions, print_after: tuple[str, ...],
    stop_after: str | None, trace: Path | None, keep_trace: bool, json_to: str | None, console: Console,
) -> None:  # fmt: skip
    """Compile MODEL to one file that the runtime loads without the compiler."""
    from graphwright.compilation import build, run_passes
    from graphwright.compiler.cli.progress import Progress

    options = options.replaced(print_after=print_after, stop_after=stop_after, trace=trace)
    if (print_after or stop_after) and json_to == "-":
        raise InputError("--json - and the printed graphs both want stdout; give --json a file")
    if stop_after and keep_trace:
        raise InputError("--keep-trace has no effect with --stop-after, which makes no artifact")
    if stop_after:
        if output is not None:
            raise InputError("-o has no effect with --stop-after, which makes no artifact")
        with Progress(console, options, model.name) as progress:
            graph = run_passes(model, options, listeners=[progress])
        progress.print_graph(graph)
        return
    target = output or Path(model.name).with_suffix(".gw")
    if target.resolve() == model.resolve():
        raise InputError(f"-o {target} would overwrite the model; name another file")
    if not target.resolve().parent.is_dir():
        raise InputError(f"-o {target}: there is no folder {target.resolve().parent}")
    with Progress(console, options, model.name) as progress, TemporaryDirectory() as folder:
        if keep_trace and trace is None:
            options = options.replaced(trace=Path(folder) / TRACE)
        built = build(model, options, listeners=[progress])
        artifact = built.artifact
        if keep_trace and options.trace is not None:
            kept = {TRACE: options.trace.read_bytes()}
            artifact = replace(artifact, files={**artifact.files, **kept})
        artifact.write(target)
    report = built.report(target.stat().st_size)
    if json_to:
        write_json(report.to_json() | {"artifact": str(target)}, json_to)
    if console.verbosity >= 0:
        show_report(report, console)
        console.say(f"wrote {target} ({bytes_text(report.artifact_bytes)})")


def show_report(report: CompileReport, console: Console) -> None:
    """The report for people, on stderr: the artifact is the data of this command."""
    counts = report.counts
    main = report.variants[0]
    per = report.launches_per_anchor
    console.say(
        f"{count(main.launches, 'launch')} of {count(main.kernels, 'kernel')} for "
        f"{count(counts.contractions, 'contraction')} and {count(counts.reductions, 'reduction')}"
        + (f" ({per:.2f} each)" if per else "")
    )
    console.say(
        f"{count(counts.transposes, 'transpose')} left inside, {counts.edge_transposes} at inputs "
        f"and outputs; {count(counts.opaque, 'opaque op')}"
    )
    arenas = [f"{b} {bytes_text(main.arena.get(b, 0))}" for b in bindings_of(report)]
    arena = arenas[0].removeprefix("opt ") if len(arenas) == 1 else ", ".join(arenas)
    lines = {
        "arena": f"{arena} ({ratio_text(main.arena, main.lower_bound)} of the lower bound)",
        "weights": bytes_text(report.weight_bytes),
        "code": ", ".join(f"{v.target} {bytes_text(v.library_bytes)}" for v in report.variants),
        "time": ", ".join(f"{stage} {seconds_text(s)}" for stage, s in report.seconds.items()),
    }
    for name, line in lines.items():
        console.say(f"{name:8} {line}")
    if console.verbosity >= 1 and report.passes:
        rows = [[n, seconds_text(s), "changed" if c else ""] for n, s, c in report.passes]
        console.words.print(table(["pass", ">time", ""], rows))
    if report.unbounded:
        name = report.unbounded[0]
        console.say(
            f"{', '.join(report.unbounded)}: no upper limit, so that there is no largest arena; "
            f"--shape {name}=1..8@4 sets limits and the size to optimise for"
        )
    for note in report.notes:
        console.say(f"note: {note}")
