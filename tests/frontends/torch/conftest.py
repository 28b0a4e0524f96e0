"""Skips the folder without torch; gives modules and a comparison."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch")


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
