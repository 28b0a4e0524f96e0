from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_gpu import FakeGpu, build_driver

from graphwright.runtime import cuda_library

# The tiny models of the runtime's own tests, and the harness of control flow.
for folder in ("runtime", "control"):
    sys.path.append(str(Path(__file__).parents[1] / folder))


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    return FakeGpu(build_driver(tmp_path_factory.mktemp("driver")))


@pytest.fixture
def gpu(driver: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    monkeypatch.setattr(cuda_library, "driver_library", lambda: driver.library)
    driver.limit(1 << 32)
    driver.arch(9, 0)
    driver.reset()
    yield driver


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    from tiny_models import build_library

    return build_library(tmp_path_factory.mktemp("library"))
