"""Each command as a person uses it, on a small model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Invoke, expected


def test_check_says_yes(cli: Invoke, model: Path) -> None:
    done = cli("check", model)
    assert (done.code, done.out) == (0, "")
    assert "small.onnx can be compiled (2 nodes, 2 ops)" in done.err


def test_check_lists_every_problem(cli: Invoke, unsupported: Path) -> None:
    done = cli("check", unsupported)
    assert done.code == 3
    assert "first" in done.out and "second" in done.out and "Frobnicate" in done.out
    assert "2 problems" in done.err
    facts = cli("check", unsupported, "--json", "-").json
    assert not facts["ok"]
    assert [p["node"] for p in facts["problems"]] == ["first", "second"]
    assert all(p["reason"] for p in facts["problems"])


def test_compile_reports(cli: Invoke, model: Path, tmp_path: Path) -> None:
    done = cli("compile", model, "-o", tmp_path / "a.gw", "--json", tmp_path / "a.json")
    assert (done.code, done.out) == (0, "")
    assert "1 launch of 1 kernel for 1 contraction and 0 reductions" in done.err
    assert "0 transposes left inside" in done.err
    assert (tmp_path / "a.gw").stat().st_size > 1000
    facts = json.loads((tmp_path / "a.json").read_text())
    assert facts["contractions"] == 1 and facts["artifact"].endswith("a.gw")
    assert {v["target"] for v in facts["variants"]} == {"cpu:x86-64-v3", "cpu:x86-64-v4"}


def test_compile_is_silent_when_asked(cli: Invoke, model: Path, tmp_path: Path) -> None:
    done = cli("compile", model, "-q", "-o", tmp_path / "a.gw")
    assert done == (0, "", "")


def test_equal_options_give_equal_bytes(cli: Invoke, model: Path, tmp_path: Path) -> None:
    for name in ("a.gw", "b.gw"):
        assert cli("compile", model, "-q", "-o", tmp_path / name).code == 0
    assert (tmp_path / "a.gw").read_bytes() == (tmp_path / "b.gw").read_bytes()


def test_stop_after_prints_the_graph(cli: Invoke, model: Path) -> None:
    done = cli("compile", model, "--stop-after", "fuse")
    assert done.code == 0
    assert done.out.startswith("graph @small(N)") and "fused" in done.out
    shaped = cli("compile", model, "--stop-after", "fuse", "--shape", "x:3x8")
    assert "f32[3, 8]" in shaped.out


def test_print_after_and_disable(cli: Invoke, model: Path, tmp_path: Path) -> None:
    done = cli("compile", model, "--print-after", "fuse", "-o", tmp_path / "a.gw")
    assert done.code == 0 and done.out.startswith("# after fuse")
    stopped = cli("compile", model, "--stop-after", "separate-outputs", "--disable-pass", "fuse")
    assert "fused" not in stopped.out


def test_run_reads_and_writes_arrays(cli: Invoke, artifact: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "in.npz", x=x)
    for given in (["--input", f"x=@{tmp_path}/x.npy"], ["--inputs", tmp_path / "in.npz"]):
        done = cli("run", artifact, *given, "--outputs", tmp_path / "out.npz")
        assert done.code == 0 and "3x4 float32" in done.out
        y = np.load(tmp_path / "out.npz")["y"]
        assert np.linalg.norm(y - expected(x)) <= 1e-6 * np.linalg.norm(expected(x))


def test_run_literals(cli: Invoke, artifact: Path, model: Path) -> None:
    facts = cli("run", artifact, "--input", "x=2x8xf32=0", "--json", "-").json
    assert facts["outputs"]["y"]["shape"] == [2, 4] and facts["outputs"]["y"]["max"] == 0
    seeded = [cli("run", artifact, "--input", "x=2x8=random", "--json", "-").json for _ in "ab"]
    assert seeded[0] == seeded[1]
    other = cli("run", artifact, "--input", "x=2x8=random", "--seed", 1, "--json", "-").json
    assert other != seeded[0]
    assert cli("run", artifact, "--random", "--shape", "N=5", "--json", "-").json["outputs"]["y"]["shape"] == [5, 4]  # fmt: skip
    compiled = cli("run", model, "--random", "--shape", "x:5x8", "--json", "-")
    assert compiled.json["outputs"]["y"]["shape"] == [5, 4]


def test_bench_compares(cli: Invoke, artifact: Path, model: Path) -> None:
    done = cli("bench", artifact, "--duration", "60ms", "--warmup", "1ms", "--percentile", "50,95")
    assert done.code == 0 and "p95" in done.out
    pytest.importorskip("onnxruntime")
    facts = cli(
        "bench", artifact, "--baseline", f"ort:{model}", "--duration", "60ms", "--json", "-"
    ).json
    first, second = facts["runs"].values()
    assert facts["speedup"] == pytest.approx(second["median_ms"] / first["median_ms"])
    assert first["runs"] > 1 and first["min_ms"] <= first["median_ms"]


def test_bench_for_no_time_times_one_run(cli: Invoke, artifact: Path) -> None:
    facts = cli("bench", artifact, "--duration", "0s", "--warmup", "0s", "--json", "-").json
    assert [run["runs"] for run in facts["runs"].values()] == [1]


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("io", ["input", "Nx8", "float32", "optimised for"]),
        ("ops", ["matmul", "relu"]),
        ("kernels", ["1 launch of 1 kernel", "matmul"]),
        ("memory", ["arena", "at N = "]),
        ("weights", ["gemm"]),
        ("passes", ["fuse"]),
        ("files", ["manifest.json", "weights.safetensors"]),
        ("graph", ["graph @small(N)"]),
        ("manifest", ["kernel_abi"]),
    ],
)
def test_inspect_sections(cli: Invoke, artifact: Path, section: str, words: list[str]) -> None:
    done = cli("inspect", artifact, section)
    assert (done.code, done.err) == (0, "")
    for word in words:
        assert word in done.out
    assert cli("inspect", artifact, section, "--json", "-").json is not None


def test_inspect_prints_sources(cli: Invoke, artifact: Path) -> None:
    by_layer = cli("inspect", artifact, "--layer", "product")
    assert by_layer.code == 0 and 'extern "C"' in by_layer.out
    name = cli("inspect", artifact, "kernels", "--json", "-").json[0]["name"]
    assert cli("inspect", artifact, "--kernel", name).out == by_layer.out


def test_inspect_a_model(cli: Invoke, model: Path) -> None:
    assert "Nx8" in cli("inspect", model).out
    assert "5x8" in cli("inspect", model, "io", "--shape", "x:5x8").out
