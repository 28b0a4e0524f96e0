"""graphwright verify: is the compiled model right, and what made it wrong if not?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from graphwright.compiler.cli.console import Console, count, table, write_file, write_json
from graphwright.compiler.cli.inputs import make_feed
from graphwright.compiler.cli.open import check_shapes, is_artifact, wanted_inputs
from graphwright.compiler.cli.parameters import common, compile_parameters
from graphwright.compiler.ir.shapes import ShapeSpec
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.verify.difference import MEASURES, Difference, difference
from graphwright.errors import InputError

if TYPE_CHECKING:
    from graphwright.compilation import Build
    from graphwright.runtime import CompiledModel

# What the arithmetic of each precision may lose over a deep model, relative to the norm.
TOLERANCES = {"fp32": 1e-4, "tf32": 5e-3, "fp16": 5e-3, "bf16": 3e-2}


@dataclass(frozen=True, slots=True)
class Subject:
    """The model under test.  `build`: how it was made, None for an artifact."""

    path: Path
    model: CompiledModel
    build: Build | None
    shapes: ShapeSpec


@click.command("verify")
@click.argument("path", metavar="OUT.gw|MODEL", type=click.Path(path_type=Path))
@click.option("--ref", "reference", metavar="REF",
              help="reference (the ops' definitions in float64; the default), ort, eager (torch, of .pt2 "
              "files), each with :MODEL beside an artifact; or another artifact.")  # fmt: skip
@click.option("--input", "literals", multiple=True, metavar="NAME=VALUE",
              help="As for run; random values for the inputs that are not given. Repeatable.")  # fmt: skip
@click.option("--inputs", "archive", type=click.Path(dir_okay=False, path_type=Path),
              metavar="IN.npz", help="Inputs by name.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, metavar="N", help="Of random values.")
@click.option("--tol", "tolerances", multiple=True, metavar="[OUTPUT=]X",
              help="Allowed difference, for all outputs or one. Repeatable.")  # fmt: skip
@click.option("--stat", "measure", type=click.Choice(MEASURES), default="relative",
              show_default=True, help="Which measure the tolerance is for.")  # fmt: skip
@click.option("--layers", is_flag=True, help="Check every kernel against its op's definition.")
@click.option("--bisect", type=click.Choice(["pass", "rewrite", "node", "precision"]),
              help="Find the first pass, rewrite or kernel that is wrong, or the ops whose precision is too low.")  # fmt: skip
@click.option("--repro", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.ir",
              help="Where --bisect writes a small case (default: repro.ir, in this folder).")  # fmt: skip
@compile_parameters
@common
def command(
    path: Path, reference: str | None, literals: tuple[str, ...], archive: Path | None, seed: int,
    tolerances: tuple[str, ...], measure: str, layers: bool, bisect: str | None,
    repro: Path | None, options: CompileOptions, json_to: str | None, console: Console,
) -> int:  # fmt: skip
    """Compare what a model computes with a reference; exit with 1 when they differ."""
    if repro is not None and bisect in (None, "precision"):
        raise InputError("--repro has no effect without --bisect pass, rewrite or node")
    subject = _open(path, options, console)
    if (layers or bisect) and subject.build is None:
        raise InputError(f"{path} is compiled already: --layers and --bisect want the model")
    feed = make_feed(
        lambda known: wanted_inputs(subject.model.manifest, subject.shapes, known),
        literals=literals,
        archive=archive,
        random=True,
        seed=seed,
    )
    check_shapes(subject.model.manifest, subject.shapes, feed)
    with console.stage("running"):
        got = subject.model.run_tensors(feed)
    name, want = _reference(reference or "reference", subject, options, feed, console)
    allowed = _tolerances(tolerances, list(got), options.precision)
    rows: dict[str, Difference] = {}
    for output, value in got.items():
        if output not in want:
            raise InputError(f"the reference has no output {output!r}")
        rows[output] = difference(np.asarray(value), np.asarray(want[output]))
    wrong = [o for o, d in rows.items() if not d.measure(measure) <= allowed[o]]
    facts: dict[str, Any] = {
        "subject": {"path": str(path), "variant": subject.model.variant.target,
                    "precision": dict(subject.model.variant.precision)},
        "reference": name,
        "stat": measure,
        "outputs": {o: d.to_json() | {"allowed": allowed[o], "ok": o not in wrong}
                    for o, d in rows.items()},
        "ok": not wrong,
    }  # fmt: skip
    _show(subject, name, rows, allowed, wrong, measure, console, json_to)
    if layers or bisect == "node":
        facts["kernels"] = _kernels(subject, feed, min(allowed.values()), measure, bisect, repro, console, json_to)  # fmt: skip
    elif bisect == "precision":
        facts["precision"] = _precision(subject, options, feed, min(allowed.values()), measure, console, json_to)  # fmt: skip
    elif bisect:
        facts["bisect"] = _bisect(subject, options, feed, min(allowed.values()), measure, bisect, repro, console, json_to)  # fmt: skip
    if json_to:
        write_json(facts, json_to)
    found = (
        facts.get("bisect")
        or facts.get("precision", {}).get("ops")
        or facts.get("kernels", {}).get("faults")
    )
    return int(bool(wrong or found))


def _open(path: Path, options: CompileOptions, console: Console) -> Subject:
    from graphwright.compilation import build
    from graphwright.compiler.cli.open import refuse_compile_options
    from graphwright.compiler.cli.progress import Progress
    from graphwright.runtime import load

    threads = options.threads or None
    if is_artifact(path):
        refuse_compile_options(path)
        return Subject(path, load(path, threads=threads), None, options.shapes)
    with Progress(console, options, path.name) as progress:
        built = build(path, options, listeners=[progress])
        return Subject(path, load(built.artifact.to_bytes(), threads=threads), built, ShapeSpec())


def _reference(
    text: str, subject: Subject, options: CompileOptions, feed: Mapping[str, np.ndarray],
    console: Console,
) -> tuple[str, Mapping[str, np.ndarray]]:  # fmt: skip
    """(what it is, its outputs by name)."""
    kind, _, other = text.partition(":")
    if kind in ("reference", "ort", "eager"):
        model = Path(other) if other else subject.path
        if is_artifact(model):
            raise InputError(f"{model} holds no model; name it: --ref {kind}:MODEL")
        if kind == "reference":
            return _evaluate(model, options, feed, console)
        if kind == "eager":
            return _eager(model, options, feed, console)
        if model.suffix == ".pt2":
            raise InputError(f"{model} is a program of torch: --ref eager compares with torch")
        from graphwright.compiler.cli.bench import open_onnx_runtime

        with console.stage("running ONNX Runtime"):
            session = open_onnx_runtime(model, options.threads)
            names = [o.name for o in session.get_outputs()]
            values = session.run(None, dict(feed))
        types = dict.fromkeys(str(np.asarray(v).dtype) for v in values)
        name = f"ONNX Runtime on {model.name} (in the model's types; outputs {', '.join(types)})"
        return name, dict(zip(names, values, strict=True))
    artifact = Path(text)
    if not artifact.exists():
        raise InputError(f"--ref {text!r}: want reference, ort, eager, or an artifact that exists")
    if not is_artifact(artifact):
        raise InputError(
            f"--ref {text}: to compare with the model write reference:{text} or ort:{text}"
        )
    from graphwright.runtime import load

    loaded = load(artifact, threads=options.threads or None)
    precision = ", ".join(loaded.variant.precision) or "unknown"
    return f"{artifact.name} ({loaded.variant.target}, {precision})", loaded.run_tensors(feed)


def _eager(
    model: Path, options: CompileOptions, feed: Mapping[str, np.ndarray], console: Console
) -> tuple[str, Mapping[str, np.ndarray]]:
    if model.suffix != ".pt2":
        raise InputError(
            f"--ref eager runs .pt2 files, {model} is none; use --ref reference or ort"
        )
    from graphwright.frontends.torch.eager_reference import run_eagerly

    with console.stage("running torch"):
        values, types = run_eagerly(model, options, feed)
    return f"eager torch on {model.name} ({types})", values


def _evaluate(
    model: Path, options: CompileOptions, feed: Mapping[str, np.ndarray], console: Console
) -> tuple[str, Mapping[str, np.ndarray]]:
    from graphwright.compilation import import_source
    from graphwright.compiler.ir.evaluate import EvaluationError, evaluate

    with console.stage("evaluating the reference"):
        graph = import_source(model, options)
        try:
            values = evaluate(graph, feed, compute=np.float64)
        except EvaluationError as error:
            raise InputError(f"the reference cannot take these inputs: {error}") from None
    return f"float64 reference of {model.name}", dict(zip(graph.output_names, values, strict=True))


def _tolerances(given: tuple[str, ...], outputs: list[str], precision: str) -> dict[str, float]:
    base = TOLERANCES.get(precision, TOLERANCES["fp32"])
    named: dict[str, float] = {}
    for text in (part for t in given for part in t.split(",")):
        name, equals, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise InputError(f"--tol {text!r}: want a number, or OUTPUT=number") from None
        if not value >= 0:
            raise InputError(f"--tol {text!r}: want a number from 0")
        if equals and name not in outputs:
            raise InputError(f"--tol {text!r}: no output is called {name!r}; there are: {', '.join(outputs)}")  # fmt: skip
        if equals:
            named[name] = value
        else:
            base = value
    return {o: named.get(o, base) for o in outputs}


# -- saying


def _show(
    subject: Subject, name: str, rows: Mapping[str, Difference], allowed: Mapping[str, float],
    wrong: list[str], measure: str, console: Console, json_to: str | None,
) -> None:  # fmt: skip
    variant = subject.model.variant
    precision = ", ".join(f"{n} ops in {p}" for p, n in variant.precision.items()) or "unknown"
    console.say(f"{subject.path.name}: {variant.target}, {precision}; against {name}")
    if json_to == "-":
        return
    columns = [
        "output",
        ">relative",
        ">max",
        ">mean",
        ">p99",
        ">1 - cosine",
        ">NaN",
        ">inf",
        ">allowed",
        "",
    ]
    body = [
        [o, *(f"{v:.2e}" for v in (d.relative, d.max, d.mean, d.p99, d.cosine)), d.nan, d.infinite,
         f"{allowed[o]:.0e}", d.note or ("differs" if o in wrong else "ok")]
        for o, d in rows.items()
    ]  # fmt: skip
    console.show(table(columns, body))
    verdict = f"{len(wrong)} of {count(len(rows), 'output')} differ by {measure}" if wrong else "ok"
    console.show(verdict)


def _kernels(
    subject: Subject, feed: Mapping[str, np.ndarray], tolerance: float, measure: str,
    bisect: str | None, repro: Path | None, console: Console, json_to: str | None,
) -> dict[str, Any]:  # fmt: skip
    from graphwright.compiler.ir.printer import print_graph, print_op
    from graphwright.compiler.verify.kernels import check_kernels
    from graphwright.compiler.verify.reproduce import cut_out

    assert subject.build is not None and subject.build.assembly is not None
    with console.stage("checking kernels") as stage:
        done = check_kernels(
            subject.model,
            subject.build.assembly,
            feed,
            tolerance=tolerance,
            measure=measure,
            tell=stage.at,
        )
    faults, everything = (
        [{"launch": f.launch, "op": f.op.id, "kernel": f.kernel, "layers": list(f.layers),
          **f.difference.to_json()} for f in found]
        for found in (done.faults, done.results)
    )  # fmt: skip
    facts: dict[str, Any] = {"checked": done.checked, "skipped": done.skipped, "faults": faults,
                             "tolerance": tolerance, "layers": everything}  # fmt: skip
    if json_to == "-":
        return facts
    skipped = f", {done.skipped} skipped (in loops or branches, or random)" if done.skipped else ""
    console.show(f"{count(done.checked, 'kernel launch')} checked against the definition of the op{skipped}")  # fmt: skip
    shown = done.faults[:1] if bisect else done.faults[:20]
    if not shown and done.worst is not None:
        w = done.worst
        console.show(f"none differs; the largest difference is {w.difference.measure(measure):.1e}, in launch {w.launch} ({w.kernel})")  # fmt: skip
    for fault in shown:
        console.show(f"launch {fault.launch}: {fault.kernel} differs by {fault.difference.measure(measure):.2e} {fault.difference.note}".rstrip())  # fmt: skip
        console.show(f"  {print_op(fault.op)}")
        if fault.layers:
            console.show(f"  from {', '.join(fault.layers)}")
    if bisect and shown:
        small = cut_out(subject.build.graph, [shown[0].op.id])
        if small is not None:
            target = repro or Path("repro.ir")
            write_file(target, print_graph(small, origins=True).encode())
            console.show(f"reproduce: graphwright verify {target} --passes '' --bisect node")
            facts["repro"] = str(target)
    return facts


def _precision(
    subject: Subject, options: CompileOptions, feed: Mapping[str, np.ndarray], tolerance: float,
    measure: str, console: Console, json_to: str | None,
) -> dict[str, Any]:  # fmt: skip
    import shlex

    from graphwright.compilation import import_source
    from graphwright.compiler.driver import chosen_pipeline
    from graphwright.compiler.ir.printer import print_op
    from graphwright.compiler.verify.precision import find_precision

    pipeline = chosen_pipeline(options.target, options)
    graph = import_source(subject.path, options)
    if "set-precision" in pipeline.names:
        pipeline.run(graph, options.target, stop_after="set-precision",
                     disabled=options.disable_passes)  # fmt: skip
    with console.stage("evaluating in mixed precision") as stage:
        done = find_precision(graph, feed, tolerance=tolerance, measure=measure, tell=stage.note)
    names = list(dict.fromkeys(f.op.origins[0] for f in done.faults if f.op.origins))
    again = " ".join(f"--keep-fp32 {shlex.quote(n)}" for n in names)
    facts: dict[str, Any] = {
        "before": str(done.before), "after": str(done.after), "enough": done.enough,
        "ops": [{"op": f.op.id, "name": f.op.name, "precision": f.precision, "output": f.output,
                 "layers": list(f.op.origins), **f.difference.to_json()} for f in done.faults],
    }  # fmt: skip
    if json_to == "-":
        return facts
    if not done.faults:
        console.show(f"the precision of the ops costs {done.before:.2e}, which is allowed: --bisect node looks at the kernels")  # fmt: skip
        return facts
    for fault in done.faults:
        console.show(f"{print_op(fault.op)} loses too much in {fault.precision}: {fault.output!r} is then off by {fault.difference.measure(measure):.2e}")  # fmt: skip
        if fault.op.origins:
            console.show(f"  from {', '.join(fault.op.origins)}")
    kept = count(len(done.faults), "op")
    console.show(f"with {kept} exact the distance is {done.after:.2e} instead of {done.before:.2e}")
    if again and options.precision != "fp32" and done.enough:
        console.show(f"keep them wider: {again}")
    elif not done.enough:
        console.show("no few ops are to blame: allow more (--tol), or a wider --precision")
    return facts


def _bisect(
    subject: Subject, options: CompileOptions, feed: Mapping[str, np.ndarray], tolerance: float,
    measure: str, what: str, repro: Path | None, console: Console, json_to: str | None,
) -> dict[str, Any] | None:  # fmt: skip
    from graphwright.compilation import import_source
    from graphwright.compiler.driver import chosen_pipeline
    from graphwright.compiler.ir.printer import print_graph
    from graphwright.compiler.verify.reproduce import reproduce_rewrite
    from graphwright.compiler.verify.rewrites import find_pass, find_rewrite

    tolerance = min(tolerance, 1e-5)  # passes are judged in float64, which rounds far less
    pipeline = chosen_pipeline(options.target, options)
    with console.stage("evaluating after each pass") as stage:
        graph = import_source(subject.path, options)
        fault = find_pass(
            graph,
            pipeline,
            options.target,
            feed,
            tolerance=tolerance,
            measure=measure,
            tell=stage.note,
        )
    if fault is None:
        if json_to != "-":
            console.show("no pass changes the results: --bisect node looks at the kernels")
        return None
    if what == "rewrite":
        with console.stage("halving the rewrites") as stage:
            fault = find_rewrite(graph, pipeline, options.target, feed, fault, tolerance=tolerance, measure=measure, tell=stage.note)  # fmt: skip
    small, is_small = reproduce_rewrite(fault, options.target, tolerance)
    target = repro or Path("repro.ir")
    write_file(target, print_graph(small, origins=True).encode())
    facts: dict[str, Any] = {
        "pass": fault.name, "execution": fault.execution, "output": fault.output,
        **fault.difference.to_json(), "repro": str(target), "small": is_small,
    }  # fmt: skip
    if fault.rewrite is not None:
        facts["rewrite"] = {
            "rule": fault.rewrite.rule, "where": fault.rewrite.where,
            "consumed": fault.rewrite.consumed, "produced": fault.rewrite.produced,
        }  # fmt: skip
    if json_to != "-":
        console.show(f"pass {fault.name} (execution {fault.execution}) is the first that changes {fault.output!r}: by {fault.difference.measure(measure):.2e} {fault.difference.note}".rstrip())  # fmt: skip
        if fault.rewrite is not None:
            console.show(f"its rewrite {fault.rewrite}")
        elif what == "rewrite":
            console.show("it did so outside of its rewrites (a type, the order of ops)")
        console.show(
            f"reproduce: graphwright verify {target} --passes {fault.name} --bisect rewrite"
        )
        if not is_small:
            console.show("no smaller part of the graph shows it on random inputs")
    return facts
