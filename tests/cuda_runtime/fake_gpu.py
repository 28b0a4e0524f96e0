"""A GPU for the runtime's tests on any machine: the fake driver, arrays on it, artifacts for it.

An artifact of the C++ target becomes one for CUDA: the same kernels, launches and plan, run by the
CUDA executor, so that everything but the kernels is what runs on a real GPU.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphwright.compiler.codegen.package import Artifact
from graphwright.runtime import cuda_library, load
from graphwright.runtime.cuda_driver import Device
from graphwright.runtime.model import CompiledModel

SOURCE = Path(__file__).with_name("fake_driver.cpp")


class FakeGpu:
    """What tests ask of the driver and set in it."""

    def __init__(self, path: Path) -> None:
        handle = ctypes.CDLL(str(path))
        self.handle = handle
        handle.fake_count.restype, handle.fake_count.argtypes = ctypes.c_long, [ctypes.c_char_p]
        handle.fake_limit.argtypes = [ctypes.c_size_t]
        handle.fake_used.restype = ctypes.c_size_t
        self.library = cuda_library.DriverLibrary(handle)

    def calls(self, name: str) -> int:
        """How often a driver function was called since `reset`."""
        return int(self.handle.fake_count(name.encode()))

    def reset(self) -> None:
        self.handle.fake_reset()

    def limit(self, nbytes: int) -> None:
        """The device's memory."""
        self.handle.fake_limit(nbytes)

    def used(self) -> int:
        return int(self.handle.fake_used())

    def arch(self, major: int, minor: int) -> None:
        self.handle.fake_arch(major, minor)

    def array(self, values: Any) -> OnDevice:
        return OnDevice(np.array(values, order="C"))

    def load(self, artifact: Artifact, device: str = "cuda:0") -> CompiledModel:
        return load(for_cuda(artifact).to_bytes(), device=device)


def build_driver(folder: Path) -> Path:
    """Compiles the fake driver; skips the test without a C++ compiler."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    path = folder / "libfake_cuda.so"
    subprocess.run(
        [compiler, "-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", str(SOURCE),
         "-o", str(path), "-ldl"],
        check=True,
    )  # fmt: skip
    return path


class OnDevice:
    """An array as another library has it on a device: the array interface, and nothing else."""

    def __init__(self, values: np.ndarray, device: int = 0) -> None:
        self._device, self.dtype, self.shape = Device(device), values.dtype, values.shape
        with self._device.current():
            self.address = self._device.allocate(values.nbytes, "an array")
            self._device.upload(self.address, values)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.address, False),
                "strides": None, "version": 3}  # fmt: skip

    def numpy(self) -> np.ndarray:
        out = np.empty(self.shape, self.dtype)
        with self._device.current():
            self._device.download(out, self.address)
        return out

    def __del__(self) -> None:
        with self._device.current():
            self._device.free(self.address)


def for_cuda(artifact: Artifact, arch: str = "sm_90") -> Artifact:
    """The artifact of the C++ target as one whose kernels a fake GPU runs."""
    variant = artifact.manifest.variants[0]
    shape: dict[int, tuple[int, int]] = {}
    for step in variant.launches:
        if step.kind == "kernel":
            shape[step.kernel] = len(step.pointers), len(step.scalars)
    kernels = tuple(
        replace(
            kernel,
            binary=variant.library,
            threads=1 + shape.get(i, (0, 0))[0],
            shared_bytes=shape.get(i, (0, 0))[1],
            parameters=(
                *(f"pointer:{n}" for n in range(shape.get(i, (0, 0))[0])),
                *(f"scalar:{n}:i64" for n in range(shape.get(i, (0, 0))[1])),
            ),
        )
        for i, kernel in enumerate(variant.kernels)
    )
    made = replace(variant, target=f"cuda:{arch}", library="", kernels=kernels)
    return replace(artifact, manifest=replace(artifact.manifest, variants=(made,)))
