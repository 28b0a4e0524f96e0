"""graphwright refit: an artifact with other weights, without compiling."""

from __future__ import annotations

from pathlib import Path

import click

from graphwright.compiler.cli.console import Console, bytes_text, write_json
from graphwright.compiler.cli.parameters import common


@click.command("refit")
@click.argument("artifact", metavar="OUT.gw", type=click.Path(path_type=Path))
@click.option(
    "--weights", required=True, metavar="NEW.safetensors", type=click.Path(path_type=Path),
    help="The new weights, by the names that the model gives them.",
)  # fmt: skip
@click.option(
    "-o", "--output", required=True, metavar="NEW.gw", type=click.Path(path_type=Path),
    help="Where the new artifact is written.",
)  # fmt: skip
@click.option("--custom-ops", multiple=True, metavar="MODULE:NAME", help="As in compile.")
@common
def command(
    artifact: Path, weights: Path, output: Path, custom_ops: tuple[str, ...],
    json_to: str | None, console: Console,
) -> None:  # fmt: skip
    """Give a compiled model new weights.

    Every constant that was folded or packed is made again from its recipe.  Names, shapes and types
    must be those of the model; a weight that decided the graph's structure must not change.
    """
    from graphwright.compiler.options import CompileOptions
    from graphwright.compiler.refit import read_safetensors, refit

    registry = CompileOptions.make(custom_ops=custom_ops).registry
    new = read_safetensors(weights)
    with console.stage(f"refitting {artifact}"):
        made = refit(artifact, new, registry=registry)
        made.write(output)
    size = output.stat().st_size
    if json_to:
        write_json({"artifact": str(output), "weights": len(new), "bytes": size}, json_to)
    console.say(f"wrote {output} with {len(new)} new weights ({bytes_text(size)})")
