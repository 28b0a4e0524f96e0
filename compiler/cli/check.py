"""graphwright check: what of a model is not supported."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import click

from graphwright.compiler.cli.console import Console, table, write_json
from graphwright.compiler.cli.parameters import common, model_argument, shape_parameters
from graphwright.compiler.ir.shapes import ShapeSpec

UNSUPPORTED = 3


@click.command("check")
@model_argument
@shape_parameters
@click.option("--target", metavar="TARGET", help="As in compile (default: cpu).")
@click.option("--allow", multiple=True, metavar="NAME", help="Allow an exception, as in compile.")
@click.option("--custom-ops", multiple=True, metavar="MODULE:NAME", help="As in compile.")
@common
def command(
    model: Path, shapes: ShapeSpec, target: str | None, allow: tuple[str, ...],
    custom_ops: tuple[str, ...], json_to: str | None, console: Console,
) -> int:  # fmt: skip
    """Say what of MODEL is not supported, without compiling it.

    Lists every op, attribute and type that stands in the way, with the node, the reason and the
    fix.  Ends with 3 when there is any.
    """
    from graphwright.compilation import check

    gc.disable()  # the graph stays until the answer is known, and then the process ends
    with console.stage(f"reading {model}"):
        report = check(
            model, target=target or "cpu", shapes=shapes, allow=allow, custom_ops=custom_ops
        )
    if json_to:
        problems: list[dict[str, Any]] = [
            {
                "node": p.node,
                "op": p.op,
                "version": p.version or None,
                "attribute": p.attribute or None,
                "reason": p.reason,
                "fix": p.fix,
            }
            for p in report.problems
        ]
        value = {"model": str(model), "ok": report.ok, "ops": report.ops, "problems": problems}
        write_json(value, json_to)
    if report.problems and json_to != "-":
        rows = [
            (p.node, f"{p.op}-{p.version}" if p.version else p.op, p.attribute, p.reason, p.fix)
            for p in report.problems
        ]
        console.show(table(["node", "op", "attribute", "what is wrong", "what to do"], rows))
    if report.ok:
        ops = f" ({sum(report.ops.values())} nodes, {len(report.ops)} ops)" if report.ops else ""
        console.say(f"{model} can be compiled{ops}")
        return 0
    count = len(report.problems)
    console.error(f"{model} cannot be compiled: {count} problem{'s' if count > 1 else ''}")
    return UNSUPPORTED
