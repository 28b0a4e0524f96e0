"""The canonical text of a graph; `parser.py` reads it back.

    graph @name(B in 1..512 by 8 @128, S) {
      input %x: f32[B, 64]
      input %"conv/in:0": f32[S]{1,0}
      %0 = constant {value = splat(1.0): f32[64]} : f32[64]
      %1 = add(%x, %0) : f32[B, 64]
      %2 = fused(%1, %0) {region = "pointwise"} : f32[B, 64]
        body(%a0: f32[B, 64], %a1: f32[64]) {
          %0 = relu(%a0) : f32[B, 64]
          return %0
        }
      require B == S "conv: channels"
      return %2 as "out"
    }

Inputs print by name, other values by number in order of definition, so that equal graphs print
equally whatever their ids.  Attributes that equal their defaults are left out.  Constants of more
than `INLINE` elements print as a digest, which the parser resolves in a table of literals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from graphwright.compiler.ir.dims import MAX_EXTENT, Expr, Symbol
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.layout import Layout
from graphwright.compiler.ir.literal import Literal, Recipe
from graphwright.compiler.ir.types import DType, TensorType

INLINE = 64


def print_graph(graph: Graph, *, origins: bool = False, ids: bool = False) -> str:
    """The canonical text.  `origins` adds where ops came from, `ids` stable ids as comments."""
    return "\n".join(_graph_lines(graph, origins, ids)) + "\n"


def print_op(op: Op) -> str:
    """One op on one line (bodies left out), operands numbered by their ops' ids: for messages."""

    def name(value: Value) -> str:
        if value.op is None:
            return _value_name(value.name)
        suffix = f".{value.index}" if len(value.op.results) > 1 else ""
        return f"%{value.op.id}{suffix}"

    return _op_head(op, name, ", ".join(name(r) for r in op.results))


def _value_name(name: str) -> str:
    return f"%{name}" if re.fullmatch(r"[A-Za-z_][\w.]*", name) else "%" + json.dumps(name)


def print_symbol(symbol: Symbol) -> str:
    """`name in min..max by multiple @typical`, what is default left out."""
    text = symbol.name
    if (symbol.min, symbol.max) != (0, MAX_EXTENT):
        text += f" in {symbol.min}..{symbol.max}"
    if symbol.multiple_of != 1:
        text += f" by {symbol.multiple_of}"
    return text if symbol.opt is None else f"{text} @{symbol.opt}"


def _graph_lines(graph: Graph, origins: bool, ids: bool) -> Iterator[str]:
    symbols = ", ".join(print_symbol(s) for s in graph.symbols.values())
    yield f"graph @{graph.name}({symbols}) {{"
    names = {v: _value_name(v.name) for v in graph.inputs}
    for value in graph.inputs:
        yield f"  input {names[value]}: {value.type}"
    yield from _body_lines(graph, names, "  ", origins, ids)
    for c in graph.constraints:
        yield f"  require {c.left} {c.relation} {c.right} {json.dumps(c.reason)}"
    outs = ", ".join(
        f"{names[v]} as {json.dumps(n)}"
        for v, n in zip(graph.outputs, graph.output_names, strict=True)
    )
    yield f"  return {outs}" if outs else "  return"
    yield "}"


def _body_lines(
    graph: Graph, names: dict[Value, str], indent: str, origins: bool, ids: bool
) -> Iterator[str]:
    count = 0
    for op in graph.ops:
        for value in op.results:
            names[value] = f"%{count}"
            count += 1
        line = _op_head(op, names.__getitem__, ", ".join(names[r] for r in op.results))
        if origins and op.origins:
            line += f" from {', '.join(map(json.dumps, op.origins))}"
        if ids:
            line += f"  # id {op.id}"
        yield indent + line
        for label, body in zip(op.definition.bodies, op.bodies, strict=True):
            inner = {v: f"%a{i}" for i, v in enumerate(body.inputs)}
            arguments = ", ".join(f"{inner[v]}: {v.type}" for v in body.inputs)
            yield f"{indent}  {label}({arguments}) {{"
            yield from _body_lines(body, inner, indent + "    ", origins, ids)
            outs = ", ".join(inner[v] for v in body.outputs)
            yield f"{indent}    return {outs}".rstrip()
            yield f"{indent}  }}"


def _op_head(op: Op, name: Any, results: str) -> str:
    text = f"{results} = {op.name}" if results else op.name
    if op.operands:
        text += f"({', '.join(name(v) for v in op.operands)})"
    declared = op.definition.attributes
    shown = {
        n: v
        for n, v in op.attributes.items()
        if n not in declared or not _same(v, declared[n].default)
    }
    if shown:
        inside = ", ".join(f"{n} = {print_attribute(v)}" for n, v in shown.items())
        text += f" {{{inside}}}"
    types = ", ".join(str(r.type) for r in op.results)
    return f"{text} : {types}" if types else text


def _same(value: Any, default: Any) -> bool:
    if type(value) is not type(default):
        return False
    if isinstance(value, float):  # -0.0 and nan must not vanish
        return repr(value) == repr(default)
    return bool(value == default)


def _scalar(value: Any, dtype: DType) -> str:
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.kind == "float":
        if dtype.bits == 32:
            text = str(np.float32(value))
        else:
            text = repr(float(value))
        return text
    if dtype.kind == "complex":
        return json.dumps(str(complex(value)))
    return str(int(value))


def print_literal(literal: Literal) -> str:
    """`splat(v): type`, `dense(v, v, ...): type` or `dense<"digest">: type`."""
    type = TensorType(literal.dtype, literal.shape)
    if literal.is_splat:
        return f"splat({_scalar(literal.splat_value, literal.dtype)}): {type}"
    if literal.elements <= INLINE:
        values = ", ".join(_scalar(v, literal.dtype) for v in literal.array().reshape(-1))
        return f"dense({values}): {type}"
    return f'dense<"{literal.digest}">: {type}'


def _recipe(recipe: Recipe) -> str:
    if recipe.source:
        return f"recipe({json.dumps(recipe.source)})"
    attributes = ", ".join(f"{n} = {print_attribute(v)}" for n, v in recipe.attributes)
    inputs = ", ".join(map(print_attribute, recipe.inputs))
    return f"recipe({recipe.op} {{{attributes}}} [{inputs}])"


def print_attribute(value: Any) -> str:
    """An attribute's value in text form.  Raises TypeError for a type that attributes cannot have."""
    if value is None:
        return "none"
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        return repr(float(value))
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, Expr):
        return str(value)
    if isinstance(value, DType):
        return f"!{value}"
    if isinstance(value, Layout):
        return f"layout<{value}>"
    if isinstance(value, Literal):
        return print_literal(value)
    if isinstance(value, Recipe):
        return _recipe(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(print_attribute, value))}]"
    raise TypeError(f"an attribute cannot be a {type(value).__name__}: {value!r}")
