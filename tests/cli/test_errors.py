"""Wrong command lines: one message that says what to do, the right exit code, no traceback."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from command_line import Invoke


def test_unknown_words_get_suggestions(cli: Invoke, model: Path) -> None:
    for arguments, hint in [
        (["compil", model], "did you mean 'compile'?"),
        (["compile", model, "--targt", "cpu"], "Did you mean '--target'?"),
        (["compile", model, "--disable-pass", "fuze"], "did you mean 'fuse'?"),
        (["compile", model, "--stop-after", "fuze"], "did you mean 'fuse'?"),
        (["compile", model, "--print-after", "fuze"], "did you mean 'fuse'?"),
        (["compile", model, "--passes", "fuze"], "did you mean 'fuse'?"),
        (["compile", model, "--shape", "X:1x8"], "did you mean 'x'?"),
        (["compile", model, "--allow", "cats"], "did you mean 'cast'?"),
    ]:
        done = cli(*arguments)
        assert (done.code, done.out) == (2, ""), arguments
        assert hint in done.err and "Traceback" not in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["compile", "MODEL", "--precision", "tf32"], 6, "use precision=fp32"),
        (["compile", "MODEL", "--target", "tpu"], 2, "want cpu"),
        (["compile", "MODEL", "--shape", "x:1y8"], 2, "column 4"),
        (["compile", "MODEL", "--shape", "x:1x2x3"], 2, "has rank 2"),
        (["compile", "MODEL", "--shape", "x:1x9"], 2, "is 8 in the model"),
        (["compile", "MODEL", "--min-shapes", "x:1x8"], 2, "come together"),
        (["compile", "MODEL", "-o", "nowhere/a.gw"], 2, "there is no folder"),
        (["compile", "MODEL", "-o", "MODEL"], 2, "overwrite the model"),
        (["compile", "nope.onnx"], 2, "there is no such file"),
        (["compile", "MODEL", "-o", "x.gw", "--stop-after", "fuse"], 2, "no effect"),
        (["compile", "MODEL", "--no-cache", "--cache-dir", "c"], 2, "no effect"),
        (["compile", "MODEL", "-v", "-q"], 2, "contradict"),
        (["compile", "MODEL", "--opt", "9"], 2, "0<=x<=3"),
        (["compile", "UNSUPPORTED", "-o", "x.gw"], 3, "second"),
        (["run", "ARTIFACT"], 2, "--random"),
        (["run", "ARTIFACT", "--input", "z=0"], 2, "no input is named 'z'"),
        (["run", "ARTIFACT", "--input", "x"], 2, "want NAME="),
        (["run", "ARTIFACT", "--input", "x=@nope.npy"], 2, "nope.npy"),
        (["run", "ARTIFACT", "--input", "x=2x8xf99=0"], 2, "f99"),
        (["run", "ARTIFACT", "--input", "x=2x8xf64=0"], 2, "float64"),
        (["run", "ARTIFACT", "--input", "x=2x9xf32=0"], 2, "axis 1"),
        (["run", "ARTIFACT", "--input", "x=2x8=1,2"], 2, "2 values do not fill 2x8"),
        (["run", "ARTIFACT", "--input", "x=2x8=0", "--input", "x=2x8=0"], 2, "twice"),
        (["run", "ARTIFACT", "--input", "x=2x8=0", "--seed", "3"], 2, "no effect"),
        (["run", "ARTIFACT", "--input", "x=2x8=0", "--shape", "N=3"], 2, "wants x to be 3x8"),
        (["run", "ARTIFACT", "--random", "--shape", "M=3"], 2, "no dim is named 'M'"),
        (["bench", "ARTIFACT", "--opt", "2"], 2, "compiled already"),
        (["bench", "ARTIFACT", "--baseline", "ort"], 2, "ort:MODEL.onnx"),
        (["bench", "ARTIFACT", "--duration", "5 years"], 2, "no duration"),
        (["inspect", "ARTIFACT", "mem"], 2, "memory"),
        (["inspect", "ARTIFACT", "--kernel", "nope"], 2, "no kernel has 'nope'"),
        (["inspect", "ARTIFACT", "--variant", "z80"], 2, "there is no variant"),
        (["inspect", "."], 2, "is a folder"),
        (["inspect", "ARTIFACT", "io", "--json", "no/where.json"], 2, "there is no folder"),
    ],
)
def test_wrong_command_lines(
    cli: Invoke, model: Path, artifact: Path, unsupported: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    paths = {"MODEL": model, "ARTIFACT": artifact, "UNSUPPORTED": unsupported}
    before = model.read_bytes()
    done = cli(*(paths.get(a, a) for a in arguments))
    assert message in done.err
    assert done.code == code
    assert "Traceback" not in done.err and done.out == ""
    assert not list(tmp_path.iterdir()), "a failed command leaves nothing behind"
    assert model.read_bytes() == before


def test_files_that_are_no_arrays(cli: Invoke, artifact: Path, tmp_path: Path) -> None:
    one, words, odd = tmp_path / "one.npy", tmp_path / "words.npz", tmp_path / "odd.npz"
    np.save(one, np.zeros((1, 8), np.float32))
    words.write_text("these are words")
    with ZipFile(odd, "w") as archive:
        archive.writestr("x", "not an array")
    for arguments, message in [
        (["--inputs", one], "--input NAME=@"),
        (["--inputs", words], "is no .npz file"),
        (["--inputs", odd], "holds 'x', which is no array"),
        (["--input", f"x=@{words}"], "is no .npy file"),
    ]:
        done = cli("run", artifact, *arguments)
        assert done.code == 2 and message in done.err and "pickle" not in done.err, done.err


def test_damaged_artifact(cli: Invoke, artifact: Path, tmp_path: Path) -> None:
    data = bytearray(artifact.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "flipped.gw").write_bytes(data)
    (tmp_path / "cut.gw").write_bytes(data[:-100])
    for name in ("flipped.gw", "cut.gw"):
        for arguments in (["inspect"], ["run", "--random"], ["bench"]):
            done = cli(arguments[0], tmp_path / name, *arguments[1:])
            assert done.code == 5 and "error:" in done.err, done


def test_our_own_fault_leaves_a_bundle(
    cli: Invoke, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import graphwright.compilation

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("seven")

    monkeypatch.setattr(graphwright.compilation, "build", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = cli("compile", model, "-o", tmp_path / "x.gw")
    assert done.code == 4 and "ZeroDivisionError: seven" in done.err
    assert "Traceback" not in done.err
    (bundle,) = tmp_path.glob("graphwright-failure-*.zip")
    with ZipFile(bundle) as archive:
        assert set(archive.namelist()) == {
            "traceback.txt", "about.json", "options.json", "files/small.onnx",
            "graph-after-passes.ir",  # no pass failed: what the later stages were given
        }  # fmt: skip
    assert "Traceback" in cli("compile", model, "-vv", "-o", tmp_path / "x.gw").err


def test_a_failing_pass_leaves_its_graph(
    cli: Invoke, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bundle has the graph before the pass, the options, and runs again to the same failure."""
    from graphwright.compiler.passes.fuse import Fuse

    def broken(*_: object, **__: object) -> None:
        raise IndexError("no such cluster")

    monkeypatch.setattr(Fuse, "run", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = cli("compile", model, "-o", tmp_path / "x.gw", "--opt", "2", "--threads", "3")
    assert done.code == 4 and "--disable-pass fuse avoids it" in done.err
    (bundle,) = tmp_path.glob("graphwright-failure-*.zip")
    assert str(bundle) in done.err
    with ZipFile(bundle) as archive:
        graph = archive.read("graph-before-fuse.ir").decode()
        options = json.loads(archive.read("options.json"))
        about = json.loads(archive.read("about.json"))
    assert graph.startswith("# before the pass fuse") and "matmul" in graph
    assert (options["opt"], options["threads"]) == ("2", "3")
    assert about["command"][1] == "compile" and "numpy" in about["packages"]
    case = tmp_path / "case.ir"
    case.write_text(graph)
    again = cli("compile", case, "-o", tmp_path / "y.gw", "--passes", "fuse")
    assert again.code == 4 and "no such cluster" in again.err


def test_stages_in_a_pipe(cli: Invoke, model: Path, tmp_path: Path) -> None:
    """One line for each stage, in order, with counts; nothing with -q; stdout stays for data."""
    done = cli("compile", model, "-o", tmp_path / "x.gw", "--no-cache")
    stages = [line for line in done.err.splitlines() if re.fullmatch(r".*: [\d.]+ s", line)]
    names = [re.sub(r"( \(\d+\))?: [\d.]+ s$", "", line) for line in stages]
    assert names == ["reading small.onnx", "passes", "emitting kernels", "packing weights",
                     "compiling kernels"]  # fmt: skip
    assert re.search(r"passes \(\d+\): ", done.err)
    assert done.out == ""
    quiet = cli("compile", model, "-o", tmp_path / "x.gw", "-q")
    assert (quiet.out, quiet.err) == ("", "")


def test_remaining_time_is_not_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is said before there is a rate, and then that of the parts which are done."""
    from graphwright.compiler.cli import console

    clock = [100.0]
    monkeypatch.setattr(console.time, "perf_counter", lambda: clock[0])
    stage = console.Stage(console.Console(), "compiling")
    assert stage._left() == ""
    stage.at(0, 40)
    clock[0] += 0.5
    stage.at(2, 40)
    assert stage._left() == "", "too few parts, too little time"
    clock[0] += 9.5
    stage.at(20, 40)
    assert stage._left() == ", about 10 s left"
    clock[0] += 90
    stage.at(30, 40)
    assert stage._left() == ", about 35 s left"
    stage.at(40, 40)
    assert stage._left() == ""


def test_what_is_timed_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A still stage starts no thread, even on a terminal."""
    import threading

    from graphwright.compiler.cli.console import Console

    def drawing() -> bool:
        return any(type(t).__module__.startswith("rich") for t in threading.enumerate())

    said = Console()
    monkeypatch.setattr(said.words, "_force_terminal", True)
    with said.stage("timing", still=True):
        assert not drawing()
    with said.stage("compiling"):
        assert drawing()


def test_the_console_script(artifact: Path, tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("graphwright")
    if not script.exists():
        pytest.skip("the console script is not installed beside this Python")
    done = subprocess.run([script, "--version"], capture_output=True, text=True)
    assert done.stdout.startswith("graphwright 0.") and done.returncode == 0
    # A reader that has seen enough is no error.
    command = f"'{script}' inspect '{artifact}' manifest | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert "Traceback" not in done.stderr and "error" not in done.stderr


def test_npz_with_awkward_names(tmp_path: Path) -> None:
    from graphwright.compiler.cli.run import npz_bytes

    arrays = {"file": np.arange(3), "gpu_0/softmax:0": np.ones((2, 2), np.float32)}
    (tmp_path / "out.npz").write_bytes(npz_bytes(arrays))
    with np.load(tmp_path / "out.npz") as loaded:
        for name, value in arrays.items():
            assert np.array_equal(loaded[name], value)
