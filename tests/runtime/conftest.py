from __future__ import annotations

import pytest
from tiny_models import build_library, two_step


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return build_library(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="session")
def model_bytes(library: bytes) -> bytes:
    return two_step(library).to_bytes()
