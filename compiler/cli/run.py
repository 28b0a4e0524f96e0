"""graphwright run: an artifact on given inputs, a summary of what comes out."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import click
import numpy as np

from graphwright.compiler.cli.console import Console, table, write_file, write_json
from graphwright.compiler.cli.inputs import make_feed
from graphwright.compiler.cli.open import check_shapes, open_model, wanted_inputs
from graphwright.compiler.cli.parameters import common, shape_parameters
from graphwright.compiler.ir.shapes import ShapeSpec
from graphwright.compiler.options import CompileOptions
from graphwright.errors import InputError


@click.command("run")
@click.argument("artifact", metavar="OUT.gw|MODEL", type=click.Path(path_type=Path))
@click.option("--input", "literals", multiple=True, metavar="NAME=VALUE",
              help="x=@x.npy, x=1x3x224x224xf32=0, x=1x3=random, x=1,2,3. Repeatable.")  # fmt: skip
@click.option("--inputs", "archive", type=click.Path(dir_okay=False, path_type=Path),
              metavar="IN.npz", help="Inputs by name.")  # fmt: skip
@click.option("--random", is_flag=True, help="Random values for the inputs that are not given.")
@click.option("--seed", type=click.IntRange(0), metavar="N",
              help="Of the random values (default: 0).")  # fmt: skip
@shape_parameters
@click.option("--outputs", type=click.Path(dir_okay=False, path_type=Path), metavar="OUT.npz",
              help="Write the outputs by name.")  # fmt: skip
@click.option("--threads", type=click.IntRange(0), default=0, metavar="N", help="CPU threads.")
@common
def command(
    artifact: Path, literals: tuple[str, ...], archive: Path | None, random: bool, seed: int | None,
    shapes: ShapeSpec, outputs: Path | None, threads: int, json_to: str | None, console: Console,
) -> None:  # fmt: skip
    """Run an artifact (or a model, compiled on the way) once and summarise its outputs."""
    if seed is not None and not random and not any(t.endswith("random") for t in literals):
        raise InputError("--seed has no effect without --random or --input NAME=random")
    options = CompileOptions.make(threads=threads, shapes=shapes)
    model, shapes_left = open_model(artifact, options, console)
    feed = make_feed(
        lambda known: wanted_inputs(model.manifest, shapes_left, known),
        literals=literals,
        archive=archive,
        random=random,
        seed=seed or 0,
    )
    check_shapes(model.manifest, shapes_left, feed)
    with console.stage("running"):
        results = model.run_tensors(feed)
    if outputs is not None:
        write_file(outputs, npz_bytes(results))
        console.say(f"wrote {outputs}")
    rows = [summary(name, value) for name, value in results.items()]
    if json_to:
        write_json(
            {
                "inputs": {n: {"dtype": v.dtype.name, "shape": v.shape} for n, v in feed.items()},
                "outputs": {row["name"]: row for row in rows},
            },
            json_to,
        )
    if json_to != "-":
        columns = ["output", "type", ">min", ">max", ">mean", "first values"]
        console.show(
            table(columns, [(r["name"], r["type"], *map(_short, (r["min"], r["max"], r["mean"])),
                             " ".join(map(_short, r["first"]))) for r in rows])
        )  # fmt: skip
    for row in rows:
        if row["not_finite"]:
            console.warn(f"{row['name']} holds {row['not_finite']} values that are NaN or infinite")


def npz_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    """An .npz archive.  numpy's own savez cannot store an array that is called `file`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return buffer.getvalue()


def summary(name: str, value: np.ndarray) -> dict[str, Any]:
    """Shape, dtype, min, max and mean over the finite elements, the first few, how many are not."""
    wide = np.asarray(value)
    numbers = wide.astype(np.float64) if wide.dtype.kind not in "cOSU" else np.abs(wide)
    finite = numbers[np.isfinite(numbers)]
    shape = "x".join(map(str, value.shape)) or "scalar"
    return {
        "name": name,
        "dtype": value.dtype.name,
        "shape": list(value.shape),
        "type": f"{shape} {value.dtype.name}",
        "min": float(finite.min()) if finite.size else None,
        "max": float(finite.max()) if finite.size else None,
        "mean": float(finite.mean()) if finite.size else None,
        "first": [float(v) if np.isfinite(v) else str(v) for v in numbers.reshape(-1)[:4]],
        "not_finite": int(numbers.size - finite.size),
    }


def _short(value: Any) -> str:
    return "-" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
