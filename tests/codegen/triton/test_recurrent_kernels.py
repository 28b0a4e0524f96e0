"""LSTM, GRU and RNN layers in Triton's interpreter against the reference in float64."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed")
pytest.importorskip("torch", reason="the interpreter needs torch")

from triton_runs import interpret, launches_of

from graphwright.compiler.codegen.triton.build import build

GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def layer(
    kind: str,
    attributes: str = "",
    *,
    width: int = 5,
    hidden: int = 7,
    lengths: bool = False,
    peepholes: bool = False,
    dtype: str = "f32",
) -> str:
    ways = 2 if "bidirectional" in attributes else 1
    rows = GATES[kind] * hidden
    state = f"{dtype}[{ways}, B, {hidden}]"
    operands = {
        "x": f"{dtype}[T, B, {width}]", "w": f"{dtype}[{ways}, {rows}, {width}]",
        "r": f"{dtype}[{ways}, {rows}, {hidden}]", "bias": f"{dtype}[{ways}, {2 * rows}]", "h": state,
    }  # fmt: skip
    if kind == "lstm":
        operands["c"] = state
    if lengths:
        operands["lengths"] = "i32[B]"
    if peepholes:
        operands["p"] = f"{dtype}[{ways}, {3 * hidden}]"
    results = [f"{dtype}[T, {ways}, B, {hidden}]", state, *[state] * (kind == "lstm")]
    inputs = "\n".join(f"  input %{n}: {t}" for n, t in operands.items())
    names = [f"%{i}" for i in range(len(results))]
    given = f" {{{attributes}}}" if attributes else ""
    returned = ", ".join(f'{n} as "y{i}"' for i, n in enumerate(names))
    return f"""graph @g(T in 1..99, B in 1..64) {{
{inputs}
  {", ".join(names)} = {kind}({", ".join("%" + n for n in operands)}){given} : {", ".join(results)}
  return {returned}
}}
"""


CASES = {
    "lstm": layer("lstm"),
    "lstm_wide": layer("lstm", width=150, hidden=40),
    "lstm_reverse": layer("lstm", 'direction = "reverse"', lengths=True),
    "lstm_both": layer("lstm", 'direction = "bidirectional"', lengths=True, peepholes=True),
    "lstm_coupled": layer(
        "lstm", 'input_forget = true, clip = 0.5, activations = ["hard_sigmoid", "relu", "tanh"]',
        lengths=True, peepholes=True,
    ),
    "lstm_f16": layer("lstm", dtype="f16"),
    "lstm_f64": layer("lstm", dtype="f64"),
    "gru": layer("gru"),
    "gru_linear": layer("gru", 'linear_before_reset = true, direction = "bidirectional"'),
    "gru_wide": layer("gru", 'direction = "reverse"', hidden=70, lengths=True),
    "rnn": layer("rnn", 'activations = ["softsign"], direction = "bidirectional"', lengths=True),
}  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory):
    cases = {name: (*launches_of(text), {"T": 6, "B": 3}) for name, text in CASES.items()}
    return interpret(tmp_path_factory.mktemp("recurrent"), cases, below=7)


@pytest.mark.parametrize("name", CASES)
def test_they_agree_with_the_reference(name: str, results) -> None:
    for got, want in zip(*results[name], strict=True):
        error = np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want)
        assert error <= (2e-3 if got.dtype == np.float16 else 5e-6)


@pytest.mark.parametrize("name", ["lstm_both", "gru", "rnn"])
def test_they_compile_for_hopper(name: str, tmp_path: Path) -> None:
    _, launches = launches_of(CASES[name])
    assert all(build(launch.kernel, "sm_90", tmp_path).image for launch in launches)


def test_the_kernel_says_how_many_registers_it_takes(tmp_path: Path) -> None:
    _, (launch,) = launches_of(CASES["gru"])
    made = build(launch.kernel, "sm_90", tmp_path).kernel
    assert 16 <= made.registers <= 255
    assert build(launch.kernel, "sm_90", tmp_path).kernel == made  # from the cache too
