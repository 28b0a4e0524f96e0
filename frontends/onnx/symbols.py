"""Shapes of graph inputs: a file's dim_params become symbols, options fix, bound or rename them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from onnx import TensorShapeProto

from graphwright.compiler.ir.dims import Dim, of
from graphwright.compiler.ir.shape_resolution import resolve
from graphwright.compiler.ir.shapes import Declared, ShapeError, ShapesLike, ShapeSpec
from graphwright.errors import InputError


def input_shapes(
    declared: Mapping[str, TensorShapeProto | None], shapes: ShapesLike | None
) -> dict[str, tuple[Dim, ...] | None]:
    """Each input's shape in dims; None where neither the file nor the option gives a rank.

    Equal dim_params are one symbol, different ones never; a dim without a name (or 0, -1, "?") is
    a symbol of its own, named after input and axis.  Raises InputError for options that do not fit.
    """
    names = _unique_names(declared)

    def entry(dim: TensorShapeProto.Dimension) -> Declared:
        return dim.dim_value if dim.dim_value > 0 else names.get(dim.dim_param)

    wanted = {
        name: None if shape is None else [entry(d) for d in shape.dim]
        for name, shape in declared.items()
    }
    try:
        resolved = resolve(ShapeSpec.make(shapes), wanted)
    except ShapeError as e:
        raise InputError(f"shapes: {e}") from None
    return {
        name: None if shape is None else tuple(d if isinstance(d, int) else of(d) for d in shape)
        for name, shape in resolved.items()
    }


def _unique_names(declared: Mapping[str, TensorShapeProto | None]) -> dict[str, str]:
    """{dim_param: identifier}; parameters that differ only in odd characters stay apart."""
    taken = {f"{identifier(n)}_{i}" for n, s in declared.items() if s for i in range(len(s.dim))}
    names: dict[str, str] = {}
    for shape in declared.values():
        for dim in shape.dim if shape is not None else ():
            # Exporters write "?" for "unknown": two of those are not one size.
            if dim.dim_param in names or not re.search(r"\w", dim.dim_param):
                continue
            name = wish = identifier(dim.dim_param)
            count = 1
            while name in taken:
                count += 1
                name = f"{wish}_{count}"
            taken.add(name)
            names[dim.dim_param] = name
    return names


def identifier(text: str) -> str:
    """The text with what an identifier may not hold replaced by underscores."""
    clean = re.sub(r"[^A-Za-z0-9_.]+", "_", text).strip("_.") or "dim"
    return clean if re.match(r"[A-Za-z_]", clean) else f"d{clean}"
