"""Where the file of a published model is; its test is skipped where it cannot be fetched."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "scripts")]
from fetch_models import FetchError, fetch  # noqa: E402
from random_weights import with_random_weights  # noqa: E402


def model_path(name: str) -> Path:
    """The ONNX file of a model; one that is published without weights has random ones."""
    try:
        (path,) = fetch([name])
    except (FetchError, OSError, zipfile.BadZipFile) as error:
        pytest.skip(f"{name} cannot be fetched: {error}")
    return with_random_weights(path) if name.startswith("light-") else path
