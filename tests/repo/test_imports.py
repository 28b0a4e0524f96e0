"""The import contract of docs/architecture.md: data flows one way, the runtime stands alone."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IR = "graphwright.compiler.ir"
TARGET = "graphwright.compiler.target"
ERRORS = "graphwright.errors"
FILES = "graphwright.files"
CONTAINERS = "graphwright.containers"
MANIFEST = "graphwright.runtime.manifest"
ARCHIVE = "graphwright.runtime.archive"  # the container, beside the manifest: one format, two sides
PACKED = "graphwright.runtime.packed"  # how elements below 8 bits lie in it
STANDARD = ("numpy", "ml_dtypes")
COMPILER = [
    "graphwright.compiler." + p
    for p in (
        "ir",
        "passes",
        "codegen",
        "target",
        "options",
        "assemble",
        "buckets",
        "driver",
        "numeric_check",
        "precision",
        "refit_table",
        "specialisation",
        "trace",
        "tune",
    )
]

# folder or file: (what of ours it may import, which other packages it may import)
CONTRACT: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "compiler/ir": ([IR, ERRORS, CONTAINERS], STANDARD),
    "compiler/passes": (["graphwright.compiler.passes", IR, TARGET, ERRORS], (*STANDARD, "networkx")),
    "compiler/target.py": ([ERRORS], STANDARD),
    "compiler/custom_ops.py": ([IR, ERRORS], STANDARD),
    "compiler/options.py": (
        [IR, TARGET, ERRORS, "graphwright.compiler.passes", "graphwright.compiler.custom_ops",
         "graphwright.compiler.buckets"],
        STANDARD,
    ),
    "compiler/buckets.py": ([IR, ERRORS, "graphwright.runtime.buckets"], STANDARD),
    "compiler/codegen": (
        ["graphwright.compiler.codegen", "graphwright.compiler.passes", IR, TARGET, ERRORS,
         FILES, MANIFEST, ARCHIVE, PACKED],
        (*STANDARD, "jinja2", "triton", "cuda"),
    ),
    "compiler/report.py": ([IR, "graphwright.compiler.passes", MANIFEST, "graphwright.runtime.weights"], STANDARD),
    "compiler/trace": (
        ["graphwright.compiler.trace", IR, "graphwright.compiler.passes", "graphwright.compiler.precision", ERRORS,
         MANIFEST],
        STANDARD,
    ),
    "compiler/verify": (
        ["graphwright.compiler.verify", "graphwright.compiler.precision", "graphwright.compiler.assemble", "graphwright.compiler.numeric_check",
         "graphwright.compiler.codegen", "graphwright.compiler.passes", "graphwright.compiler.target",
         "graphwright.runtime", IR, ERRORS],
        STANDARD,
    ),
    "compiler/viewer": (["graphwright.compiler.viewer", "graphwright.compiler.trace", ERRORS], STANDARD),
    "compiler/machine.py": ([], STANDARD),
    "compiler/profile.py": (
        [IR, "graphwright.compiler.machine", "graphwright.compiler.precision",
         "graphwright.compiler.profile_cuda", "graphwright.runtime"],
        STANDARD,
    ),
    "compiler/profile_cuda.py": (["graphwright.runtime"], STANDARD),
    "compiler/timeline.py": ([IR, "graphwright.compiler.passes"], STANDARD),
    "compiler/precision.py": ([IR], STANDARD),
    "compiler/specialisation.py": ([IR, ERRORS], STANDARD),
    "compiler/refit_table.py": (["graphwright.compiler.codegen", IR], STANDARD),
    "compiler/refit.py": (
        ["graphwright.compiler.codegen", "graphwright.compiler.passes", "graphwright.compiler.refit_table",
         "graphwright.runtime", IR, ERRORS],
        STANDARD,
    ),
    "compiler/assemble.py": (
        ["graphwright.compiler.codegen", "graphwright.compiler.passes", "graphwright.compiler.precision",
         "graphwright.compiler.refit_table", "graphwright.compiler.tune",
         IR, ERRORS, MANIFEST],
        STANDARD,
    ),
    "compiler/tune": (
        ["graphwright.compiler.tune", "graphwright.compiler.codegen", "graphwright.compiler.passes",
         "graphwright.compiler.options", IR, TARGET, ERRORS, FILES, "graphwright.runtime",
         "graphwright.version"],
        STANDARD,
    ),
    "compiler/driver.py": ([*COMPILER, ERRORS, FILES, "graphwright.version", "graphwright.runtime"], STANDARD),
    "compiler/numeric_check.py": ([IR, "graphwright.compiler.passes", CONTAINERS, ERRORS], STANDARD),
    "compiler/cli": (["graphwright"], (*STANDARD, "click", "rich", "onnx", "onnxruntime")),
    "runtime": (["graphwright.runtime", ERRORS, FILES, CONTAINERS], (*STANDARD, "cuda", "torch")),
    "frontends/onnx": (
        ["graphwright.frontends.onnx", IR, "graphwright.compiler.driver", "graphwright.runtime", ERRORS,
         CONTAINERS],
        (*STANDARD, "onnx", "onnx_ir", "onnxscript", "google"),
    ),
    "frontends/torch": (
        ["graphwright.frontends.torch", IR, "graphwright.compiler.driver",
         "graphwright.compiler.options", "graphwright.compiler.report", "graphwright.compilation",
         "graphwright.runtime", ERRORS],
        (*STANDARD, "torch", "sympy"),
    ),
    "graphwright": (["graphwright"], STANDARD),
}  # fmt: skip

# Passes that code generation reads plans and views from; anything else of passes stays unseen.
LAZY_ONLY = {"runtime": ("cuda", "torch"), "compiler/codegen": ("triton", "cuda")}


def imports(path: Path) -> list[tuple[int, str, bool]]:
    """(line, dotted name, whether at the top level of the module) of every import."""
    found: list[tuple[int, str, bool]] = []
    tree = ast.parse(path.read_text(), str(path))
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, a.name, id(node) in top) for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                inside = ["graphwright", *path.resolve().relative_to(ROOT).parts]
                module = ".".join([*inside[: -node.level], *([module] if module else [])])
            found += [(node.lineno, f"{module}.{a.name}", id(node) in top) for a in node.names]
    return found


def allowed(name: str, ours: list[str], others: tuple[str, ...]) -> bool:
    first = name.partition(".")[0]
    if first == "graphwright":
        return any(name == o or name.startswith(o + ".") for o in ours)
    return first in sys.stdlib_module_names or first in others


def files(place: str) -> list[Path]:
    path = ROOT / place
    if path.suffix == ".py":
        return [path] if path.exists() else []
    return sorted(path.rglob("*.py"))


@pytest.mark.parametrize("place", CONTRACT)
def test_imports(place: str) -> None:
    ours, others = CONTRACT[place]
    faults = [
        f"{path.relative_to(ROOT)}:{line}: {place} must not import {name}"
        for path in files(place)
        for line, name, _ in imports(path)
        if not allowed(name, ours, others)
    ]
    faults += [
        f"{path.relative_to(ROOT)}:{line}: {place} imports {name} inside a function only"
        for path in files(place)
        for line, name, top in imports(path)
        if top and name.partition(".")[0] in LAZY_ONLY.get(place, ())
    ]
    assert not faults, "\n".join(faults)


def test_every_module_is_under_the_contract() -> None:
    covered = {path for place in CONTRACT for path in files(place)}
    loose = [
        str(path.relative_to(ROOT))
        for folder in ("compiler", "runtime", "frontends", "graphwright")
        for path in files(folder)
        if path not in covered and path.name != "__init__.py"
    ]
    assert not loose, f"say in CONTRACT what these may import: {loose}"


def test_the_contract_test_sees_a_breach(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("from graphwright.compiler.driver import compile_graph\nimport onnx\n")
    ours, others = CONTRACT["runtime"]
    assert [n for _, n, _ in imports(bad) if not allowed(n, ours, others)] == [
        "graphwright.compiler.driver.compile_graph",
        "onnx",
    ]
