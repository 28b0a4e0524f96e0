"""The C++ and Triton templates of the pointwise table are well formed and documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.ops.pointwise import Pointwise
from graphwright.compiler.ir.types import DTYPES

ROWS = [op for op in REGISTRY.values() if isinstance(op, Pointwise)]
DOCS = Path(__file__).parents[3] / "docs" / "ir.md"
KINDS = {"float": "f32", "number": "f32 i32 u8", "signed": "f32 i32", "integer": "i32 u8",
         "bool": "bool", "any": "f32 i32 u8 bool"}  # fmt: skip


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
def test_template_names_operands_and_attributes(op: Pointwise) -> None:
    attributes = {n: a.default for n, a in op.attributes.items()}
    if "dtype" in attributes:
        attributes["dtype"] = DTYPES["i8"]
    numbers = {str(i) for i in range(len(op.operands))}
    for name in KINDS[op.accepts].split():
        text = op.spelling("cpp", DTYPES[name], attributes)
        fields = set(re.findall(r"\{(\w+)\}", text))
        assert fields == numbers | set(op.attributes), f"C++ of {op.name}"
        text = op.spelling("triton", DTYPES[name], attributes)
        fields = set(re.findall(r"\{(\w+)\}", text))
        if text:
            assert numbers <= fields <= numbers | set(op.attributes), f"Triton of {op.name}"
            # Every brace is a field: the text survives str.format.
            text.format(*numbers, **dict.fromkeys(op.attributes, "a"))


def test_the_appendix_lists_what_the_table_calls() -> None:
    want = []
    for op in ROWS:
        if "gw::" in op.cpp:
            call = re.sub(r"\{(\d)\}", lambda m, op=op: op.operands[int(m[1])], op.cpp)
            want.append(f"| `{op.name}` | `{call.replace('gw::', '')}` |")
    appendix = DOCS.read_text().partition("## Appendix: functions")[2]
    assert [line for line in appendix.splitlines() if line.startswith("| `")] == want


def test_the_op_tables_name_every_op_and_attribute() -> None:
    text = DOCS.read_text().partition("## Ops")[2].partition("## Regions")[0]
    text = text.replace("{", " ").replace("}", " ")
    words = set(re.findall(r"[a-z]\w*", text))
    for op in REGISTRY.values():
        missing = [n for n in (op.name, *op.attributes) if n not in words]
        assert not missing, f"{op.name}: docs/ir.md does not mention {missing}"
