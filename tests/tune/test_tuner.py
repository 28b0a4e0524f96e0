"""The tuner without a GPU: a timer that invents times, real candidates, real cubins where they are built."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from graphwright.compiler.driver import compile_graph
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.target import Target
from graphwright.compiler.tune import tuner
from graphwright.compiler.tune.records import MEMBER, read_lock, stored
from graphwright.compiler.tune.timer import Candidate
from graphwright.errors import DowngradeError, InputError

pytest.importorskip("triton")

TEXT = """graph @g() {
  input %x: f16[64, 128]
  input %w: f16[128, 64]
  %0 = matmul(%x, %w) : f16[64, 64]
  %1 = relu(%0) : f16[64, 64]
  return %1 as "y"
}
"""


class Invented:
    """Later candidates are faster, but the last one is wrong."""

    device, arch = "Invented GPU", "sm_90"

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def measure(self, candidates: Sequence[Candidate]) -> list[float | str]:
        self.asked.append([c.text for c in candidates])
        assert all(cubin.image for c in candidates for _, cubin in c.launches)
        times: list[float | str] = [10.0 - i for i in range(len(candidates))]
        if len(times) > 2:
            times[-1] = "its results are 0.5 away from the first candidate's"
        return times


def graph() -> Graph:
    return parse_graph(TEXT, registry=REGISTRY)


def options(tmp_path: Path, **more: object) -> CompileOptions:
    given = {"target": "cuda:sm_90", "cache_dir": tmp_path / "cache", "jobs": 1} | more
    return CompileOptions.make(**given)


def chosen(artifact: object) -> dict[str, dict[str, object]]:
    return json.loads(artifact.files[MEMBER])["kernels"]  # type: ignore[attr-defined]


@pytest.fixture
def timer(monkeypatch: pytest.MonkeyPatch) -> Invented:
    made = Invented()
    monkeypatch.setattr(tuner, "timer_for", lambda target: made)
    monkeypatch.setitem(tuner.WAYS, "quick", 4)
    return made


def test_the_fastest_right_candidate_is_chosen(tmp_path: Path, timer: Invented) -> None:
    artifact = compile_graph(graph(), Target.parse("cuda:sm_90"), options(tmp_path, tune="quick"))
    (record,) = chosen(artifact).values()
    times = record["times"]
    assert record["by"] == "timing" and len(timer.asked[-1]) == 4
    assert record["chosen"] == timer.asked[-1][2] != timer.asked[-1][0]
    assert list(times) and min(times.values()) == times[record["chosen"]]  # type: ignore[union-attr]
    assert list(record["refused"]) == [timer.asked[-1][3]]  # type: ignore[call-overload]
    tile = str(record["chosen"]).split(",")[0].replace(" x ", ", ")
    source = next(f for n, f in artifact.files.items() if n.endswith(".py")).decode()
    assert f"tl.zeros([{', '.join(tile.split(', ')[:2])}]" in source


def test_what_is_in_the_database_is_not_timed_again(tmp_path: Path, timer: Invented) -> None:
    target = Target.parse("cuda:sm_90")
    first = compile_graph(graph(), target, options(tmp_path, tune="quick"))
    asked = len(timer.asked)
    assert len(stored(tmp_path / "cache")) == 1
    second = compile_graph(graph(), target, options(tmp_path, tune="quick"))
    assert len(timer.asked) == asked
    (a,), (b,) = chosen(first).values(), chosen(second).values()
    assert b["by"] == "database" and a["chosen"] == b["chosen"] and a["times"] == b["times"]


def test_a_lock_repeats_the_bytes(tmp_path: Path, timer: Invented) -> None:
    target, lock = Target.parse("cuda:sm_90"), tmp_path / "m.lock"
    first = compile_graph(graph(), target, options(tmp_path, tune="quick", lock=lock))
    (tmp_path / "plain").touch()
    assert lock.stat().st_mode == (tmp_path / "plain").stat().st_mode  # for others to read too
    asked = len(timer.asked)
    again = options(tmp_path, lock=lock, cache_dir=tmp_path / "other")
    second = compile_graph(graph(), target, again)
    assert len(timer.asked) == asked
    assert first.to_bytes() == second.to_bytes()
    held = tmp_path / "m.gw"
    first.write(held)
    third = compile_graph(graph(), target, options(tmp_path, lock=held))
    assert third.to_bytes() == first.to_bytes()
    assert read_lock(held, "cuda:sm_90") == read_lock(lock, "cuda:sm_90")


def test_a_lock_of_another_graph_target_or_version_is_refused(
    tmp_path: Path, timer: Invented
) -> None:
    target, lock = Target.parse("cuda:sm_90"), tmp_path / "m.lock"
    compile_graph(graph(), target, options(tmp_path, tune="quick", lock=lock))
    other = parse_graph(TEXT.replace("[64, ", "[96, "), registry=REGISTRY)
    with pytest.raises(InputError, match="lacks 1 kernels of this graph, the first one matmul 96"):
        compile_graph(other, target, options(tmp_path, lock=lock))
    with pytest.raises(InputError, match="is for cuda:sm_90, not for cuda:sm_80"):
        compile_graph(
            graph(), Target.parse("cuda:sm_80"), options(tmp_path, target="cuda:sm_80", lock=lock)
        )
    lock.write_text(lock.read_text().replace('"triton": "', '"triton": "0.'))
    with pytest.raises(DowngradeError, match="was made with triton 0"):
        compile_graph(graph(), target, options(tmp_path, lock=lock))
    lock.write_text("{}")
    with pytest.raises(InputError, match="is it a lock file"):
        compile_graph(graph(), target, options(tmp_path, lock=lock))


def test_a_spent_budget_leaves_the_cost_model_and_says_so(
    tmp_path: Path, timer: Invented, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10**6, 100))
    monkeypatch.setattr(tuner.time, "monotonic", lambda: float(next(clock)))
    _, tuning = tuner.choose_ways(
        *prepared(tmp_path, tune="quick", tune_budget=5), skip=lambda op: op.name == "constant",
        cache=tmp_path, tell=lambda *a: None,
    )  # fmt: skip
    assert [r.by for r in tuning.records.values()] == ["cost model"]
    assert any("left to the cost model when the budget of 5 s" in n for n in tuning.notes)


def prepared(tmp_path: Path, **more: object) -> tuple[Graph, Target, CompileOptions]:
    from graphwright.compiler.driver import optimise

    made, found = options(tmp_path, **more), graph()
    optimise(found, made.target, made)
    return found, made.target, made


def test_progress_names_candidates_and_time(tmp_path: Path, timer: Invented) -> None:
    said: list[tuple[str, int, int]] = []
    tuner.choose_ways(
        *prepared(tmp_path, tune="quick"), skip=lambda op: op.name == "constant",
        cache=tmp_path, tell=lambda *a: said.append(a),
    )  # fmt: skip
    assert said[0] == ("tuning (at most 60 s left): candidates", 0, 4)
    assert said[-1][1] >= 1 and "about" in said[-1][0]


def test_without_a_gpu_the_cost_model_chooses_and_says_so(tmp_path: Path) -> None:
    selection, tuning = tuner.choose_ways(
        *prepared(tmp_path, tune="quick"), skip=lambda op: op.name == "constant", cache=None,
        tell=lambda *a: None, find_timer=lambda target: "nothing is timed here: no driver",
    )  # fmt: skip
    assert [r.by for r in tuning.records.values()] == ["cost model"]
    assert (
        "nothing is timed here: no driver; the database and the cost model choose"
        in tuning.notes[0]
    )
    assert set(selection.choices) == set(tuning.records)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"tune": "fast"}, InputError, "want off, quick, full"),
        ({"tune": "quick", "target": "cpu"}, DowngradeError, "nothing is tuned"),
        ({"tune_budget": 5}, InputError, "no effect with tune=off"),
        ({"tune": "quick", "tune_budget": -1}, InputError, "seconds above 0"),
        ({"lock": "/nowhere/m.lock"}, InputError, "there is no folder"),
    ],
)
def test_options(given: dict[str, object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        CompileOptions.make(**({"target": "cuda:sm_90"} | given))


def test_inspect_and_cache_status_show_what_was_chosen(tmp_path: Path, timer: Invented) -> None:
    from click.testing import CliRunner

    from graphwright.compiler.cli.cache import command as cache
    from graphwright.compiler.cli.inspect import command as inspect

    made = options(tmp_path, tune="quick")
    compile_graph(graph(), made.target, made).write(tmp_path / "m.gw")
    shown = CliRunner().invoke(inspect, [str(tmp_path / "m.gw"), "tuning", "--json", "-"])
    assert shown.exit_code == 0, shown.output
    (record,) = json.loads(shown.stdout)["kernels"].values()
    assert record["chosen"] == timer.asked[-1][2]
    words = CliRunner().invoke(inspect, [str(tmp_path / "m.gw"), "tuning"])
    assert words.exit_code == 0 and "timing" in words.stdout
    status = CliRunner().invoke(
        cache, ["status", "--cache-dir", str(tmp_path / "cache"), "--json", "-"]
    )
    assert json.loads(status.stdout)["kinds"]["tuned kernel"]["count"] == 1
