"""`verify --bisect precision`: the op that loses too much in the type it calculates in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphwright.compiler.cli.command import execute
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.verify.precision import find_precision

# In fp16 x + 5000 - 5000 loses all but three bits of x: the sum, and whoever reads it rounded.
LOSSY = """
graph @main() {
  input %x: f16[64]
  %0 = tanh(%x) : f16[64]
  %1 = constant {value = splat(5000.0): f16[64]} : f16[64]
  %2 = add(%0, %1) : f16[64]
  %3 = sub(%2, %1) : f16[64]
  %4 = sigmoid(%3) : f16[64]
  return %4 as "y"
}
"""


def feed() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).standard_normal(64).astype(np.float16)}


def test_the_op_that_rounds_away() -> None:
    graph = parse_graph(LOSSY, registry=REGISTRY)
    done = find_precision(graph, feed(), tolerance=5e-3)
    assert [f.op.name for f in done.faults] == ["add", "sub"] and done.enough
    assert done.faults[0].precision == "f16"
    assert done.after < 5e-3 < done.before
    assert done.faults[0].difference.relative > 5e-3


def test_several_culprits() -> None:
    text = LOSSY.replace('return %4 as "y"', "%5 = add(%4, %1) : f16[64]\n  %6 = sub(%5, %1) : f16[64]\n"
                         '  return %6 as "y"')  # fmt: skip
    done = find_precision(parse_graph(text, registry=REGISTRY), feed(), tolerance=5e-3)
    assert [f.op.name for f in done.faults] == ["add", "sub"] * 2 and done.enough


def test_nothing_to_find() -> None:
    graph = parse_graph(LOSSY, registry=REGISTRY)
    done = find_precision(graph, feed(), tolerance=1.0)
    assert not done.faults and done.enough and done.before == done.after
    strict = find_precision(graph, feed(), tolerance=0.0)
    assert not strict.enough or len(strict.faults) > 1, "rounding everywhere has no one culprit"


@pytest.mark.parametrize("many", [20, 60])
def test_many_ops(many: int) -> None:
    """In a chain of exact ops the one that is not is found, wherever it stands."""
    for at in (0, many // 3, many - 1):
        lines, last = ["graph @main() {", "  input %x: f16[64]"], "%x"
        lines.append("  %0 = constant {value = splat(3000.0): f16[64]} : f16[64]")
        number = 1
        for n in range(many):
            if n == at:
                lines += [f"  %{number} = add({last}, %0) : f16[64]",
                          f"  %{number + 1} = sub(%{number}, %0) : f16[64]"]  # fmt: skip
                number += 1
            else:
                lines.append(f"  %{number} = neg({last}) : f16[64]")
            last, number = f"%{number}", number + 1
        text = "\n".join([*lines, f'  return {last} as "y"', "}"]) + "\n"
        graph = parse_graph(text, registry=REGISTRY)
        done = find_precision(graph, feed(), tolerance=1e-3)
        assert [f.op.name for f in done.faults] == ["add", "sub"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lossy.ir"
    path.write_text(LOSSY)
    arguments = ["verify", str(path), "--target", "cpu:x86-64-v3", "--bisect", "precision"]
    code = execute([*arguments, "--tol", "5e-3", "--opt", "0"])
    out = capsys.readouterr()
    assert code == 1 and "loses too much in f16" in out.out, out
    assert "with 2 ops exact" in out.out
    assert execute([*arguments, "--tol", "1", "--opt", "0"]) == 0
    assert "which is allowed" in capsys.readouterr().out
