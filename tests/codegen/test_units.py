"""How kernels are put together in translation units."""

from __future__ import annotations

from graphwright.compiler.codegen.build import (
    RUNTIME_SOURCE,
    TABLES_APART,
    TABLES_SOURCE,
    SourceKernel,
    translation_units,
)


def test_microkernels_are_in_one_unit_where_they_are_needed() -> None:
    plain = SourceKernel("a", "// a\n", ("gw/loops.h",))
    units = translation_units([plain])
    assert units[0] == RUNTIME_SOURCE and TABLES_SOURCE not in units
    assert not any(TABLES_APART in u for u in units)

    product = SourceKernel("b", "// b\n", ("gw/loops.h", "gw/gemm.h"))
    window = SourceKernel("c", "// c\n", ("gw/conv.h",))
    units = translation_units([plain, product, window])
    assert units.count(TABLES_SOURCE) == 1
    assert all(u.startswith(TABLES_APART) == ("// b" in u or "// c" in u) for u in units)


def test_headers_of_custom_ops_may_be_unknown() -> None:
    units = translation_units([SourceKernel("a", "// a\n", ("somewhere/else.h",))])
    assert len(units) == 2 and '#include "somewhere/else.h"' in units[1]
