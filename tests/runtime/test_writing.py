"""Writing an artifact: whole or not at all, whatever happens; and what loading imports and costs."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from tiny_models import two_step, weight

from graphwright.errors import ResourceError
from graphwright.files import replace_file
from graphwright.runtime import load

WRITER = """
import sys
from graphwright.runtime import load
model = load(sys.argv[1])
print("ready", flush=True)
while True:
    for source in sys.argv[1:3]:
        load(source).save(sys.argv[3])
"""


def big_models(library: bytes, folder: Path) -> list[Path]:
    paths: list[Path] = []
    for i in range(2):
        extra = np.full(1 << 20, i, np.float32)  # 4 MiB, so that a write takes a while
        artifact = two_step(
            library, weights=[weight("three", np.array([3], np.float32)), weight("w", extra)]
        )
        paths.append(folder / f"source{i}.gw")
        artifact.write(paths[-1])
    return paths


def test_killed_while_writing(library: bytes, tmp_path: Path) -> None:
    """SIGKILL at random moments leaves the old or the new file, never a broken one."""
    sources = big_models(library, tmp_path)
    whole = {p.read_bytes() for p in sources}
    target = tmp_path / "out" / "model.gw"
    target.parent.mkdir()
    rng = random.Random(0)
    for _ in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, *map(str, sources), str(target)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None and process.stdout.readline()
        time.sleep(rng.random() * 0.15)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        if target.exists():
            assert target.read_bytes() in whole
            load(target)
    leftovers = [p for p in target.parent.iterdir() if p != target]
    assert all(p.name.startswith(".model.gw.") and p.suffix == ".tmp" for p in leftovers)


def test_full_disk(library: bytes, tmp_path: Path) -> None:
    """A file size limit stands for the full disk: the old file stays, no rest is left."""
    old = two_step(library).to_bytes()
    target = tmp_path / "model.gw"
    target.write_bytes(old)
    large = two_step(
        library,
        weights=[weight("three", np.array([3], np.float32)), weight("w", np.zeros(1 << 19, "f4"))],
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
        with pytest.raises(ResourceError, match=r"model\.gw: .*nothing was written"):
            large.write(target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    assert target.read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == ["model.gw"]


def test_an_exception_while_writing(tmp_path: Path) -> None:
    with pytest.raises(KeyError), replace_file(tmp_path / "a") as file:
        file.write(b"half")
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError), replace_file(tmp_path / "none" / "a"):
        pass


def test_devices_and_links_stay(tmp_path: Path) -> None:
    """A pipe is written to, not replaced; a link points to the new content."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with replace_file(pipe) as file:
            file.write(b"half")
            file.seek(0)
            file.write(b"f")
        assert os.read(reader, 9) == b"falf"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    with replace_file(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "pipe", "real"]


def test_new_files_obey_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        with replace_file(tmp_path / "a") as file:
            file.write(b"x")
    finally:
        os.umask(old)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_equal_artifacts_have_equal_bytes(library: bytes) -> None:
    assert two_step(library).to_bytes() == two_step(library).to_bytes()


DEPLOYED = """
import sys
import numpy as np
import graphwright
import graphwright.runtime
model = graphwright.load(sys.argv[1])
x = np.ones((2, 3), np.float32)
assert (model(x, x)[0] == 13).all()
heavy = ("torch", "onnx", "triton", "jinja2", "networkx", "click", "rich", "graphwright.compiler",
         "graphwright.frontends")
found = [m for m in sys.modules if m in heavy or m.startswith("graphwright.compiler.")]
assert not found, found
"""


def test_a_deployment_imports_no_compiler(model_bytes: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.gw"
    path.write_bytes(model_bytes)
    environment = {k: v for k, v in os.environ.items() if k != "PATH"}
    done = subprocess.run(
        [sys.executable, "-c", DEPLOYED, str(path)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


FORKING = """
import os, sys
import numpy as np
import graphwright
model = graphwright.load(sys.argv[1], threads=2)
x = np.ones((2, 4000), np.float32)
assert (model(x, x)[0] == 13).all()
pid = os.fork()
if pid == 0:
    ok = all((model(x, x)[0] == 13).all() for _ in range(50))
    os._exit(0 if ok else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert (model(x, x)[0] == 13).all()
"""


def test_a_forked_child_runs_the_model(model_bytes: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.gw"
    path.write_bytes(model_bytes)
    done = subprocess.run(
        [sys.executable, "-c", FORKING, str(path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_steady_state_allocates_nothing(model_bytes: bytes) -> None:
    """With `out`, a call of a known binding keeps nothing and needs less than a few kB meanwhile."""
    model = load(model_bytes)
    x = np.ones((2, 4096), np.float32)
    out = [np.empty((2, 4096), np.float32)]
    for _ in range(3):
        model(x, x, out=out)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for _ in range(100):
            model(x, x, out=out)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 4096 and after - before < 512


def test_libraries_at_reused_descriptors_stay_apart(library: bytes, model_bytes: bytes) -> None:
    """The dynamic linker knows libraries by path; two from memory must not be taken for one."""
    other = two_step(library + b"\0" * 8)  # another content, hence another library
    a, b = load(model_bytes), load(other.to_bytes())
    assert a._executor.library is not b._executor.library  # type: ignore[attr-defined]
    assert a._executor._kernels != b._executor._kernels  # type: ignore[attr-defined]
    x = np.ones((2, 3), np.float32)
    assert (a(x, x)[0] == 13).all() and (b(x, x)[0] == 13).all()


def test_loading_is_quick_and_maps_weights(library: bytes, tmp_path: Path) -> None:
    """A file of 64 MiB: loading costs little beyond reading it (best of five; budget 50 ms)."""
    extra = np.random.default_rng(0).standard_normal(1 << 24).astype(np.float32)
    artifact = two_step(
        library, weights=[weight("three", np.array([3], np.float32)), weight("w", extra)]
    )
    path = tmp_path / "model.gw"
    artifact.write(path)
    model = load(path)
    maps = Path("/proc/self/maps").read_text()
    assert str(path) in maps
    start, size = model._artifact.weights[1]  # type: ignore[attr-defined]
    assert size == extra.nbytes and start % 64 == 0


def test_a_missing_folder_is_named_as_the_caller_named_the_file(tmp_path: Path) -> None:
    wanted = tmp_path / "nowhere" / "model.gw"
    with pytest.raises(FileNotFoundError) as caught, replace_file(wanted):
        pass
    assert caught.value.filename == str(wanted) and ".tmp" not in str(caught.value)
