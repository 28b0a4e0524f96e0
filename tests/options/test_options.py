"""CompileOptions: conversion, refusal, suggestion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphwright.compiler.options import CompileOptions
from graphwright.errors import DowngradeError, InputError


def test_conversion() -> None:
    options = CompileOptions.make(
        target="cpu:native",
        shapes=["x:1x3"],
        opt="1",
        disable_passes="fuse, order",
        allow=["freeze-initializers"],
        cache_dir="/tmp/x",
    )
    assert options.target.arches == ("native",)
    assert options.shapes.inputs == {"x": (1, 3)}
    assert options.opt == 1
    assert options.disable_passes == ("fuse", "order")
    assert options.allow == {"freeze-initializers"}
    assert options.cache_dir == Path("/tmp/x")
    assert hash(options.target) and options.replaced(opt=2).opt == 2


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"taget": "cpu"}, InputError, "did you mean 'target'"),
        ({"target": "gpu"}, InputError, "want cpu"),
        ({"precision": "tf32"}, DowngradeError, "use precision=fp32"),
        ({"precision": "fp16", "keep_fp32": "a{b"}, InputError, "in place of"),
        ({"keep_fp32": "Softmax"}, InputError, "no effect"),
        ({"precision": "auto"}, DowngradeError, "tolerance"),
        ({"precision": "fp23"}, InputError, "fp32"),
        ({"tune": "full"}, DowngradeError, "leave it out"),
        ({"weights": "external"}, DowngradeError, "weights=embed"),
        ({"opt": 4}, InputError, "opt 4"),
        ({"opt": 3}, DowngradeError, "use opt=2"),
        ({"opt": "fast"}, InputError, "opt"),
        ({"threads": -1}, InputError, "threads"),
        ({"max_rewrites": -1}, InputError, "max_rewrites"),
        ({"check_passes": "all"}, InputError, "structural"),
        ({"allow": "freeze-initialisers"}, InputError, "freeze-initializers"),
        ({"shapes": "x:1y"}, InputError, "column 4"),
        ({"cache": False, "cache_dir": "/tmp/x"}, InputError, "no effect"),
    ],
)
def test_what_cannot_be_honoured_is_an_error(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        CompileOptions.make(**options)
    assert message in str(caught.value)
