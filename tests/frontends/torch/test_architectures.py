"""Published architectures of transformers and timm, whole through the hook and through torch.export.

`python benchmarks/torch_models.py` does the same with times; see the table in docs/torch.md.
"""

from __future__ import annotations

import collections
import importlib.util
import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "benchmarks"))
import torch_models  # noqa: E402
from torch_zoo import ARCHITECTURES  # noqa: E402

QUICK = {"GPT-2", "Mixtral", "ResNet-18", "CLIP"}
CASES = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in ARCHITECTURES
]
PACKAGES = ("transformers", "timm")


def test_every_family_has_three() -> None:
    counts = collections.Counter(a.family for a in ARCHITECTURES.values())
    assert len(counts) == 10 and min(counts.values()) >= 3 and counts.total() >= 30


def test_the_page_has_the_stored_table() -> None:
    results = json.loads(torch_models.RESULTS.read_text())
    page = (ROOT / "docs" / "torch.md").read_text()
    assert torch_models.table(results) in page
    assert set(results["models"]) <= set(ARCHITECTURES)


@pytest.mark.parametrize("name", CASES)
def test_architecture(name: str) -> None:
    """No graph break, eager's results, and another extent of the varying axis in the same artifact."""
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}")
    found = ARCHITECTURES[name]
    module = found.module()
    inputs, other = found.inputs(found.extent), found.inputs(found.other)
    with torch.no_grad():
        calls = [(i, torch_models.leaves(module(**i))) for i in (inputs, other)]
        told, _ = torch_models.hooked(module, *calls[0], 1)
        assert told["graphs"] == 1
        torch_models.export_varying(module, found.axes, calls, 1)
