"""Calls through the CUDA executor on a fake driver: arrays in and out, graphs, streams, errors."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace

import numpy as np
import pytest
from fake_gpu import FakeGpu, OnDevice, for_cuda
from tiny_models import two_step

from graphwright.errors import ArtifactError, InputError, ResourceError
from graphwright.runtime import load
from graphwright.runtime.device_arrays import DeviceArray


def feed(size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((2, 2, size)).astype(np.float32)
    return x, y


def want(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (x * np.float32(3) + y) * np.float32(3) + x


def test_host_arrays(gpu: FakeGpu, library: bytes) -> None:
    model = gpu.load(two_step(library))
    for size in (4096, 1, 5, 64, 5, 1):
        (got,) = model(*feed(size))
        np.testing.assert_array_equal(got, want(*feed(size)))
    assert gpu.calls("cuGraphInstantiateWithFlags") == 4


def test_device_arrays_are_used_where_they_lie(gpu: FakeGpu, library: bytes) -> None:
    model = gpu.load(two_step(library))
    x, y = feed(64)
    first = model(gpu.array(x), gpu.array(y))[0]
    gpu.reset()
    dx, dy = gpu.array(x), gpu.array(y)
    gpu.reset()
    got = model(dx, dy)[0]
    assert isinstance(got, DeviceArray) and isinstance(first, DeviceArray)
    for name in ("cuMemcpyHtoDAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
                 "cuStreamSynchronize"):  # fmt: skip
        assert gpu.calls(name) == 0
    np.testing.assert_array_equal(got.numpy(), want(x, y))
    np.testing.assert_array_equal(first.numpy(), got.numpy())
    out = gpu.array(np.full_like(x, np.nan))
    assert model(dx, dy, out=[out])[0] is out
    np.testing.assert_array_equal(out.numpy(), want(x, y))


def test_results_that_lie_where_inputs_do(gpu: FakeGpu, library: bytes) -> None:
    model = gpu.load(two_step(library))
    x, y = feed(64)
    dx, dy = gpu.array(x), gpu.array(y)
    model(dx, dy, out=[dx])
    np.testing.assert_array_equal(dx.numpy(), want(x, y))
    host = np.full_like(x, np.nan)
    assert model(x, y, out=[host])[0] is host
    np.testing.assert_array_equal(host, want(x, y))
    with pytest.raises(InputError, match="not contiguous"):
        model(x, y, out=[np.empty((64, 2), np.float32).T])
    with pytest.raises(InputError, match="out has 2 arrays"):
        model(x, y, out=[host, host])


def test_dlpack_in_and_out(gpu: FakeGpu, library: bytes) -> None:
    model = gpu.load(two_step(library))
    x, y = feed(33)
    z = model(gpu.array(x), gpu.array(y))[0]

    class Only:
        """Has DLPack alone."""

        def __init__(self, array: DeviceArray) -> None:
            self._array = array

        def __dlpack__(self, **more: object) -> object:
            return self._array.__dlpack__(**more)  # type: ignore[arg-type]

        def __dlpack_device__(self) -> tuple[int, int]:
            return self._array.__dlpack_device__()

    before = gpu.used()
    again = model(Only(z), gpu.array(y))[0]
    np.testing.assert_array_equal(again.numpy(), want(want(x, y), y))
    del again
    gc.collect()
    assert gpu.used() <= before + 4 * x.nbytes  # the capsule gave its array back
    from graphwright.runtime import device_arrays

    assert not device_arrays._lent


def test_pointers_that_change(gpu: FakeGpu, library: bytes) -> None:
    model = gpu.load(two_step(library))
    y = gpu.array(feed(64)[1])
    inputs = [gpu.array(feed(64, seed)[0]) for seed in range(7)]
    outs = [gpu.array(np.full((2, 64), np.nan, np.float32)) for _ in range(3)]
    for turn in range(60):
        x, out = inputs[turn % 7], outs[turn % 3]
        model(x, y, out=[out])
        np.testing.assert_array_equal(out.numpy(), want(x.numpy(), y.numpy()))
    gpu.reset()
    for _ in range(10):  # pointers that come back cost no update
        for x in inputs[:2]:
            model(x, y, out=[outs[0]])
    assert gpu.calls("cuGraphExecKernelNodeSetParams_v2") <= 4
    assert gpu.calls("cuGraphInstantiateWithFlags") == 0


def test_odd_addresses_are_staged_and_strides_refused(gpu: FakeGpu, library: bytes) -> None:
    model = gpu.load(two_step(library))
    x, y = feed(64)
    room = gpu.array(np.concatenate([np.zeros(1, np.float32), x.ravel()]))

    class Part:
        shape, dtype = x.shape, x.dtype

        def __init__(self, strides: tuple[int, ...] | None) -> None:
            self.__cuda_array_interface__ = {
                **room.__cuda_array_interface__, "shape": x.shape, "strides": strides,
                "data": (room.address + 4, False),
            }  # fmt: skip

    np.testing.assert_array_equal(model(Part(None), gpu.array(y))[0].numpy(), want(x, y))
    with pytest.raises(InputError, match="not contiguous"):
        model(Part((4, 8)), gpu.array(y))


def test_threads_and_devices(gpu: FakeGpu, library: bytes) -> None:
    artifact = two_step(library)
    models = [gpu.load(artifact), gpu.load(artifact, "cuda:1"), gpu.load(artifact)]
    wrong: list[str] = []

    def work(number: int) -> None:
        model = models[number % 3]
        for turn in range(50):
            x, y = feed(8 + turn % 3, number * 100 + turn)
            if not np.array_equal(model(x, y)[0], want(x, y)):
                wrong.append(f"thread {number}, turn {turn}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_the_callers_device_stays_current(gpu: FakeGpu, library: bytes) -> None:
    import ctypes

    model = gpu.load(two_step(library), "cuda:1")
    gpu.library.cuCtxSetCurrent(0x1000)
    model(*feed(3))
    now = ctypes.c_void_p()
    gpu.library.cuCtxGetCurrent(ctypes.byref(now))
    assert now.value == 0x1000


def test_streams_have_contexts_of_their_own(gpu: FakeGpu, library: bytes) -> None:
    model = gpu.load(two_step(library))
    x, y = feed(16)

    class On(OnDevice):
        stream = 7

        @property
        def __cuda_array_interface__(self) -> dict[str, object]:
            return {**super().__cuda_array_interface__, "stream": self.stream}

    a, b = On(x), On(y)
    for stream in (7, 8, 7, 8):
        On.stream = stream
        np.testing.assert_array_equal(model(a, b)[0].numpy(), want(x, y))
    assert gpu.calls("cuStreamWaitEvent") == 0 and gpu.calls("cuCtxSynchronize") == 0
    for stream in (9, 10, 11, 12, 7, 9, 10):  # more than are kept apart: they wait for each other
        On.stream = stream
        np.testing.assert_array_equal(model(a, b)[0].numpy(), want(x, y))
    assert gpu.calls("cuStreamWaitEvent") + gpu.calls("cuCtxSynchronize") > 0


def test_memory_that_is_short_is_told_in_bytes(gpu: FakeGpu, library: bytes) -> None:
    model = gpu.load(two_step(library))
    gpu.limit(gpu.used() + 100)
    with pytest.raises(ResourceError, match=r"32,768 bytes asked for on cuda:0, 100 of [\d,]+ are"):
        model(*feed(4096))
    gpu.limit(1 << 32)
    np.testing.assert_array_equal(model(*feed(4096))[0], want(*feed(4096)))


def test_another_arch_is_refused_with_both_names(gpu: FakeGpu, library: bytes) -> None:
    gpu.arch(8, 9)
    with pytest.raises(ArtifactError, match=r"this device is sm_89 .*cuda:sm_90") as caught:
        gpu.load(two_step(library))
    assert caught.value.exit_code == 5
    # Code of an earlier device of the same generation runs.
    data = for_cuda(two_step(library), "sm_80").to_bytes()
    np.testing.assert_array_equal(load(data, device="cuda")(*feed(3))[0], want(*feed(3)))


def test_arrays_that_do_not_fit_are_named(gpu: FakeGpu, library: bytes) -> None:
    model = gpu.load(two_step(library))
    x, y = feed(4)
    with pytest.raises(InputError, match="float64"):
        model(gpu.array(x.astype(np.float64)), gpu.array(y))
    with pytest.raises(InputError, match="axis 1"):
        model(gpu.array(x), gpu.array(y[:, :2]))
    with pytest.raises(InputError, match=r"out\[0\]"):
        model(x, y, out=[np.empty((2, 5), np.float32)])


def test_programmatic_edges_join_kernels_that_wait(gpu: FakeGpu, library: bytes) -> None:
    artifact = for_cuda(two_step(library))
    variant = artifact.manifest.variants[0]
    waiting = replace(variant, kernels=tuple(replace(k, waits=True) for k in variant.kernels))
    manifest = replace(artifact.manifest, variants=(waiting,))
    model = load(replace(artifact, manifest=manifest).to_bytes(), device="cuda:0")
    np.testing.assert_array_equal(model(*feed(9))[0], want(*feed(9)))
