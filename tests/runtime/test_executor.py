"""Calls: bindings, guards, staging, out=, threads, several models."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import COPY, IS_POSITIVE, SCALE_ADD, S, make_artifact, two_step, weight

from graphwright.errors import ArtifactError, InputError
from graphwright.runtime import load
from graphwright.runtime.binding import numpy_dtype
from graphwright.runtime.executor import CACHED_BINDINGS
from graphwright.runtime.interop import array_to_tensor, tensor_to_array
from graphwright.runtime.manifest import (
    Buffer,
    ConstraintSpec,
    Launch,
    Pointer,
    SymbolSpec,
    TensorSpec,
)


def data(size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal((2, size)).astype(np.float32) for _ in range(2))  # type: ignore[return-value]


def expected(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (x * np.float32(3) + y) * np.float32(3) + x


def test_runs_many_bindings(model_bytes: bytes) -> None:
    model = load(model_bytes)
    for size in [1, 7, 64, 4096, 3, 7, *range(1, CACHED_BINDINGS + 10)]:
        x, y = data(size, size)
        (z,) = model(x, y)
        np.testing.assert_allclose(z, expected(x, y), rtol=1e-6)
    assert [t.name for t in model.inputs] == ["x", "y"] and model.outputs[0].shape == (2, "S")


def test_by_name_and_run(model_bytes: bytes) -> None:
    model = load(model_bytes)
    x, y = data(5)
    want = expected(x, y)
    np.testing.assert_allclose(model(y=y, x=x)[0], want, rtol=1e-6)
    np.testing.assert_allclose(model(x, y=y)[0], want, rtol=1e-6)
    np.testing.assert_allclose(model.run({"x": x, "y": y})["z"], want, rtol=1e-6)


def test_path_and_save(model_bytes: bytes, tmp_path: Path) -> None:
    load(model_bytes).save(tmp_path / "a.gw")
    assert (tmp_path / "a.gw").read_bytes() == model_bytes
    model = load(tmp_path / "a.gw", threads=1)
    x, y = data(9)
    np.testing.assert_allclose(model(x, y)[0], expected(x, y), rtol=1e-6)
    assert [p.name for p in tmp_path.iterdir()] == ["a.gw"]


def test_strided_misaligned_and_foreign_inputs(model_bytes: bytes) -> None:
    model = load(model_bytes)
    x, y = data(8)
    want = expected(x, y)
    block = np.empty(8 * 2 * 4 + 64, np.uint8)
    for shift in range(1, 16):
        odd = block[shift : shift + 64].view(np.float32).reshape(2, 8)
        odd[...] = x
        np.testing.assert_allclose(model(odd, np.asfortranarray(y))[0], want, rtol=1e-6)
    x.flags.writeable = False
    np.testing.assert_allclose(model(x, y)[0], want, rtol=1e-6)

    class Foreign:
        def __init__(self, array: np.ndarray) -> None:
            self.__array_interface__ = array.__array_interface__

    np.testing.assert_allclose(model(Foreign(x), y)[0], want, rtol=1e-6)


def test_torch_in_torch_out(model_bytes: bytes) -> None:
    torch = pytest.importorskip("torch")
    model = load(model_bytes)
    x, y = data(8)
    a = torch.from_numpy(x).requires_grad_()
    (z,) = model(a, y)
    assert isinstance(z, torch.Tensor)
    np.testing.assert_allclose(z.numpy(), expected(x, y), rtol=1e-6)
    target = torch.full((2, 8), float("nan"))
    assert model(a, y, out=[target])[0] is target
    np.testing.assert_allclose(target.numpy(), expected(x, y), rtol=1e-6)
    with pytest.raises(InputError, match="'x' is float64"):
        model(a.double(), y)
    with pytest.raises(InputError, match="lies on meta, want cpu"):
        model(a.to("meta"), y)


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e5m2", "bool", "int64"])
def test_torch_element_types(name: str) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([0.0, 1.0, 2.0]).to(getattr(torch, name))
    array = tensor_to_array(tensor)
    assert array.dtype == numpy_dtype(name)
    np.testing.assert_array_equal(array.astype(np.float32), tensor.float().numpy())
    back = array_to_tensor(array)
    assert back.dtype == tensor.dtype and back.data_ptr() == tensor.data_ptr()


def test_memory_use(model_bytes: bytes) -> None:
    use = load(model_bytes).memory({"x": (2, 100), "y": (2, 100)})
    assert (use.arena, use.lower_bound, use.weights) == (832, 832, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (np.zeros((2, 3), np.float64), np.zeros((2, 3), np.float32)),
            "'x' is float64, want float32",
        ),
        (
            (np.zeros((2, 3), np.float32), np.zeros((2, 4), np.float32)),
            "'y': axis 1 is 4, want S = 3",
        ),
        ((np.zeros((3, 3), np.float32), np.zeros((2, 3), np.float32)), "'x': axis 0 is 3, want 2"),
        (
            (np.zeros((2, 0), np.float32), np.zeros((2, 0), np.float32)),
            r"axis 1 is 0, want S in 1\.\.4096",
        ),
        ((np.zeros(3, np.float32), np.zeros((2, 3), np.float32)), "'x' has shape .* want 2 axes"),
        ((np.zeros((2, 3), np.float32),), "'y' .* is missing"),
        ((np.zeros((2, 3), np.float32), None), "'y' .* is missing"),
        ((1, 2, 3), "3 inputs are given, the model has 2: x, y"),
        ((object(), np.zeros((2, 3), np.float32)), "'x'"),
    ],
)
def test_input_errors(model_bytes: bytes, arguments: tuple[Any, ...], message: str) -> None:
    model = load(model_bytes)
    with pytest.raises(InputError, match=message):
        model(*arguments)
    x, y = data(4)
    np.testing.assert_allclose(model(x, y)[0], expected(x, y), rtol=1e-6)


def test_unknown_names(model_bytes: bytes) -> None:
    model = load(model_bytes)
    x, y = data(4)
    with pytest.raises(InputError, match="no input 'w'; it has: x, y"):
        model(x, w=y)
    with pytest.raises(InputError, match="given twice"):
        model(x, y, x=x)
    with pytest.raises(InputError, match="no output 'q'"):
        model.run({"x": x, "y": y}, out={"q": x})
    with pytest.raises(InputError, match="threads"):
        load(model_bytes, threads=0)
    with pytest.raises(InputError, match="device"):
        load(model_bytes, device="tpu")


def test_multiple_of_and_constraint(library: bytes) -> None:
    spec = SymbolSpec("S", 1, 64, 4, 64, (0, 1))
    limit = ConstraintSpec("S", "<", 40, "the table of positions has 40 rows")
    model = load(two_step(library, symbols=[spec], constraints=[limit]).to_bytes())
    model(*data(8))
    with pytest.raises(InputError, match="axis 1 is 6, want S a multiple of 4"):
        model(*data(6))
    with pytest.raises(InputError, match=r"want S < 40, got 60 and 40 .*table of positions"):
        model(*data(60))


def test_out(model_bytes: bytes) -> None:
    model = load(model_bytes)
    x, y = data(6)
    want = expected(x, y)
    target = np.full((2, 6), np.nan, np.float32)
    (z,) = model(x, y, out=[target])
    assert z is target
    np.testing.assert_allclose(target, want, rtol=1e-6)
    strided = np.full((2, 12), np.nan, np.float32)[:, ::2]
    assert model(x, y, out=[strided])[0] is strided
    np.testing.assert_allclose(strided, want, rtol=1e-6)
    aliased = x.copy()
    model(aliased, y, out=[aliased])
    np.testing.assert_allclose(aliased, want, rtol=1e-6)
    frozen = np.zeros((2, 6), np.float32)
    frozen.flags.writeable = False
    for bad, message in [
        (np.zeros((2, 5), np.float32), "want|is"),
        (np.zeros((2, 6), np.float64), "float64"),
        (frozen, "read-only"),
        ([0], "want a numpy array"),
    ]:
        with pytest.raises(InputError, match=message):
            model(x, y, out=[bad])  # type: ignore[list-item]
    with pytest.raises(InputError, match="out has 2 arrays"):
        model(x, y, out=[None, None])


def test_outputs_are_fresh(model_bytes: bytes) -> None:
    model = load(model_bytes)
    x, y = data(6)
    first = model(x, y)[0]
    kept = first.copy()
    model(y, x)
    np.testing.assert_array_equal(first, kept)


def test_many_threads_one_model(model_bytes: bytes) -> None:
    model = load(model_bytes)
    start = threading.Barrier(4)

    def work(seed: int) -> None:
        start.wait()
        for i in range(60):
            x, y = data(1 + (seed * 37 + i * 11) % 3000, i)
            np.testing.assert_allclose(model(x, y)[0], expected(x, y), rtol=1e-6)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_two_models(library: bytes, model_bytes: bytes) -> None:
    half = two_step(library, weights=[weight("three", np.array([0.5], np.float32))])
    a, b = load(model_bytes), load(half.to_bytes())
    x, y = data(10)
    for _ in range(3):
        np.testing.assert_allclose(a(x, y)[0], expected(x, y), rtol=1e-6)
        np.testing.assert_allclose(b(x, y)[0], (x * 0.5 + y) * 0.5 + x, rtol=1e-6)


def test_default_input(library: bytes) -> None:
    default = np.full((2, 3), 5, np.float32)
    artifact = two_step(
        library,
        inputs=[TensorSpec("x", "float32", (2, "S")), TensorSpec("y", "float32", (2, 3), 1)],
        weights=[weight("three", np.array([3], np.float32)), weight("y", default)],
    )
    model = load(artifact.to_bytes())
    x, y = data(3)
    np.testing.assert_allclose(model(x)[0], expected(x, default), rtol=1e-6)
    np.testing.assert_allclose(model(x, None)[0], expected(x, default), rtol=1e-6)
    np.testing.assert_allclose(model(x, y)[0], expected(x, y), rtol=1e-6)


def test_zero_size(library: bytes) -> None:
    model = load(two_step(library, symbols=[SymbolSpec("S", 0, 9, 1, 1, (0, 1))]).to_bytes())
    assert model(*data(0))[0].shape == (2, 0)


def test_branch(library: bytes) -> None:
    # if x[0] > 0: z = copy of x else: z = copy of y
    x, y, z = Pointer("input", 0), Pointer("input", 1), Pointer("output", 0)
    flag = Pointer("arena", 0)
    launches = [
        Launch(kernel=IS_POSITIVE, pointers=(x, flag), writes=(1,)),
        Launch("branch", pointers=(flag,), jump=2),
        Launch(kernel=COPY, pointers=(x, z), scalars=(["*", 8, "S"],), writes=(1,)),
        Launch("jump", jump=1),
        Launch(kernel=COPY, pointers=(y, z), scalars=(["*", 8, "S"],), writes=(1,)),
    ]
    tensors = [TensorSpec(n, "float32", (2, "S")) for n in "xyz"]
    artifact = make_artifact(
        library, launches, inputs=tensors[:2], outputs=tensors[2:], buffers=[Buffer(1)]
    )
    model = load(artifact.to_bytes())
    a, b = np.ones((2, 5), np.float32), -np.ones((2, 5), np.float32)
    np.testing.assert_array_equal(model(a, b)[0], a)
    np.testing.assert_array_equal(model(b, a)[0], a)


def test_warm_up_prepares_the_binding(model_bytes: bytes) -> None:
    model = load(model_bytes)
    model.warm_up()
    model.warm_up({"x": (2, 3), "y": (2, 3)})
    with pytest.raises(InputError, match="no input"):
        model.warm_up({"q": (1,)})


def test_pointer_outside_its_tensor(library: bytes) -> None:
    launches = [
        Launch(
            kernel=COPY,
            pointers=(Pointer("input", 0), Pointer("output", 0, ["*", 9, "S"])),
            scalars=(0,),
        )
    ]
    tensors = [TensorSpec(n, "float32", (2, "S")) for n in "xz"]
    model = load(
        make_artifact(library, launches, inputs=tensors[:1], outputs=tensors[1:]).to_bytes()
    )
    with pytest.raises(ArtifactError, match=r"pointer 1 .* lies 36 bytes into a tensor of 32"):
        model(np.zeros((2, 4), np.float32))


def test_missing_kernel_and_unused_symbol(library: bytes) -> None:
    free = SymbolSpec("N", 0, 10, 1, 1, None)
    artifact = two_step(library, symbols=[S, free])
    x, y = data(2)
    np.testing.assert_allclose(load(artifact.to_bytes())(x, y)[0], expected(x, y), rtol=1e-6)
    bad = two_step(library, symbols=[S, free], outputs=[TensorSpec("z", "float32", (2, "N"))])
    with pytest.raises(ArtifactError, match="nothing binds the symbol N"):
        load(bad.to_bytes())
    assert SCALE_ADD == 0
