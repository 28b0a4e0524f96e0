"""Collects golden files `tests/passes/<pass>/<case>.ir`: a header, the graph before, the graph after.

    # What the case shows.
    pipeline: canonicalize
    ---
    graph @main() { ... }
    ---
    graph @main() { ... }

Each file is parsed and verified, the pipeline is run with verification after every pass, the text
of the result is compared exactly, printing and parsing it again must change nothing, and both
graphs are evaluated on seeded inputs under two bindings of their symbols.  Results must agree bit
by bit (any NaN equals any NaN) on inputs that hold NaN, infinities, both zeros and extreme
integers.  More header lines:

    tolerance: 1e-6      compare by relative norm on ordinary inputs instead
    zeros: either        the sign of a zero may differ (max(-0.0, 0.0) is either)
    range: 0..3          integer inputs lie in this range
    positive: x y        these inputs are made positive

`pytest tests/passes --accept` rewrites the graphs after.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden import Case, check_case


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--accept", action="store_true", help="rewrite the expected golden graphs")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.File | None:
    return GoldenFile.from_parent(parent, path=file_path) if file_path.suffix == ".ir" else None


class GoldenFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        yield GoldenItem.from_parent(self, name=self.path.stem)


class GoldenItem(pytest.Item):
    def runtest(self) -> None:
        case = Case.read(self.path)
        after = check_case(case, accept=self.config.getoption("--accept", default=False))
        if after is not None:
            text = self.path.read_text()
            head = re.split(r"^---\n", text, maxsplit=2, flags=re.MULTILINE)[:2]
            self.path.write_text("---\n".join([*head, after]))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> str:  # type: ignore[override]
        if isinstance(excinfo.value, AssertionError):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"golden {self.path.parent.name}/{self.path.name}"
