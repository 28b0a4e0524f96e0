"""graphwright inspect: what is inside an artifact, or what a model would become."""

from __future__ import annotations

from pathlib import Path

import click

from graphwright.compiler.cli.console import Console, table, write_json
from graphwright.compiler.cli.open import artifact_bytes, is_artifact, refuse_compile_options
from graphwright.compiler.cli.parameters import common, compile_parameters
from graphwright.compiler.cli.sections import SECTIONS, Inspected, find_kernels
from graphwright.compiler.ir.shapes import ShapeSpec
from graphwright.compiler.options import CompileOptions
from graphwright.errors import InputError


@click.command("inspect")
@click.argument("path", metavar="OUT.gw|MODEL", type=click.Path(path_type=Path))
@click.argument("sections", nargs=-1, metavar="[SECTION]...", type=click.Choice(list(SECTIONS)))
@click.option(
    "--kernel", metavar="NAME", help="Print the source of the kernels with this in their name."
)
@click.option(
    "--layer",
    metavar="NAME",
    help="Print the sources of the kernels that compute this node of the model.",
)
@click.option("--variant", metavar="TARGET", help="Of this variant (default: the first).")
@compile_parameters
@common
def command(
    path: Path, sections: tuple[str, ...], kernel: str | None, layer: str | None,
    variant: str | None, options: CompileOptions, json_to: str | None, console: Console,
) -> None:  # fmt: skip
    """Show what is inside an artifact; of a model, what it would become.

    Sections: io, ops, kernels, precision, memory, graphs, weights, passes, tuning, files, graph (the
    IR), manifest (JSON).
    Without one: io, and one line on each of the others.
    """
    from graphwright.runtime.artifact import ArtifactFile

    if is_artifact(path):
        refuse_compile_options(path)
        file, shapes = ArtifactFile(path), options.shapes
    else:  # compiled for the shapes that were asked for
        shapes = ShapeSpec()
        file = ArtifactFile(artifact_bytes(path, options, console))
    inspected = Inspected(file, path, variant, shapes)
    if kernel or layer:
        if sections:
            raise InputError("--kernel and --layer print sources; leave the sections out")
        sources = find_kernels(inspected, kernel, layer)
        if json_to:
            write_json([{"name": n, "source": s} for n, s in sources], json_to)
        if json_to != "-":
            for name, source in sources:
                console.show(f"// {name}\n{source.rstrip()}\n")
        return
    chosen = list(sections) or ["summary"]
    found = {name: SECTIONS[name](inspected) for name in chosen}
    if json_to:
        facts = {name: fact for name, (fact, _) in found.items()}
        write_json(facts if len(chosen) > 1 else facts[chosen[0]], json_to)
    if json_to == "-":
        return
    for name, (_, shown) in found.items():
        if len(chosen) > 1:
            console.show(f"{name}:")
        for part in shown:
            console.show(table(*part) if isinstance(part, tuple) else part)
