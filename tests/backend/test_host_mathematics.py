"""A compiled model's results come from its kernels: the runtime calculates none of them.

Backend tests run with numpy's mathematics replaced by a function that raises, and once with a native
replay that does nothing, after which every output is what it was before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from backend_cases import all_cases, input_names
from backend_judge import difference
from backend_rules import WRONG, why_not
from backend_run import feed_of, poisoned

from graphwright.compiler.codegen import toolchain
from graphwright.compiler.driver import compile_batch
from graphwright.compiler.options import CompileOptions
from graphwright.frontends.onnx import import_model
from graphwright.runtime import CompiledModel, load

# What a runtime may ask of numpy: memory, its addresses and types, bytes moved as they are.
ALLOWED = frozenset(
    (
        "array", "asarray", "ascontiguousarray", "copyto", "empty", "empty_like", "frombuffer",
        "may_share_memory", "shares_memory", "zeros",
        "arange", "atleast_1d", "concatenate",  # elements below 8 bits are spread over bytes
    )
)  # fmt: skip
PART = slice(3, None, 40)
STEPS = {"kernel", "branch", "jump", "loop", "next", "check", "bind"}


@contextmanager
def numpy_without_mathematics() -> Iterator[None]:
    """Every function and ufunc of numpy raises, but those of ALLOWED."""

    def forbid(name: str) -> Any:
        def raises(*args: Any, **named: Any) -> Any:
            raise AssertionError(f"the runtime called numpy.{name}")

        return raises

    # Some names import a module when they are looked at: that happens before anything raises.
    members = {name: getattr(np, name) for name in np.__all__}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in members.items():
            if callable(value) and not isinstance(value, type) and name not in ALLOWED:
                patch.setattr(np, name, forbid(name))
        for module in (np.linalg, np.fft, np.random):
            for name in module.__all__:
                if callable(getattr(module, name)) and not isinstance(getattr(module, name), type):
                    patch.setattr(module, name, forbid(f"{module.__name__}.{name}"))
        yield


@pytest.fixture(scope="module")
def models() -> list[tuple[Any, CompiledModel, Any]]:
    chosen = [c for c in all_cases()[PART] if c.kind == "node"]
    loaded = [(c, *c.load()) for c in chosen]
    loaded = [t for t in loaded if not why_not(t[0], t[1], "compiled") and t[0].name not in WRONG]
    options = CompileOptions.make(target="cpu:x86-64-v3", threads=1)
    with pytest.MonkeyPatch.context() as patch:
        flags = tuple("-O1" if f == "-O3" else f for f in toolchain.COMMON_FLAGS)
        patch.setattr(toolchain, "COMMON_FLAGS", flags)
        artifacts = compile_batch([import_model(m) for _, m, _ in loaded], options.target, options)
    return [
        (case, load(artifact.to_bytes()), (input_names(model), sets))  # type: ignore[union-attr]
        for (case, model, sets), artifact in zip(loaded, artifacts, strict=True)
    ]


def test_numpy_calculates_nothing(models: list[tuple[Any, CompiledModel, Any]]) -> None:
    assert len(models) > 40
    results: list[tuple[Any, Any, Any]] = []
    for _, model, (names, sets) in models:  # places are planned once for each binding of the sizes
        for inputs, _ in sets:
            model(**feed_of(names, inputs))
    with numpy_without_mathematics():
        for case, model, (names, sets) in models:
            for inputs, wanted in sets:
                results.append((case, model(**feed_of(names, inputs)), wanted))
    for case, got, wanted in results:
        for g, w in zip(got, wanted, strict=True):
            assert not difference(case, g, w), case.name


def test_without_kernels_nothing_is_written(models: list[tuple[Any, CompiledModel, Any]]) -> None:
    count = 0
    for case, model, (names, sets) in models:
        executor = model._executor
        if executor.program.checks or executor._packed_outputs:  # type: ignore[union-attr]
            continue
        for inputs, wanted in sets:
            out = [poisoned(w) for w in wanted]
            before = [o.tobytes() for o in out if o is not None]
            native = executor._native  # type: ignore[union-attr]
            executor._native = lambda *_: 0  # type: ignore[union-attr]
            try:
                got = model(**feed_of(names, inputs), out=out)
            finally:
                executor._native = native  # type: ignore[union-attr]
            assert [g.tobytes() for g in got] == before, case.name
            count += 1
    assert count > 30


def test_no_step_runs_on_the_host(models: list[tuple[Any, CompiledModel, Any]]) -> None:
    """Steps are kernels and control; binds and checks look at sizes only."""
    kinds = {step.kind for _, model, _ in models for step in model.variant.launches}
    assert "kernel" in kinds
    assert kinds <= STEPS
