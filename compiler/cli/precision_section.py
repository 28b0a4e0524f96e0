"""`inspect ... precision`: which ops run in which precision, and the multiply-accumulates of each."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.precision import every_op, is_integer_product, precision_of_op
from graphwright.errors import GraphwrightError
from graphwright.runtime.expressions import evaluate_expression

if TYPE_CHECKING:
    from graphwright.compiler.cli.sections import Inspected, Shown


def mac_facts(it: Inspected) -> dict[str, Any]:
    """Multiply-accumulates by precision at the binding that is inspected, and the integer share."""
    by = {
        name: evaluate_expression(count, it.binding)
        for name, count in it.variant.multiply_accumulates.items()
    }
    integer = sum(n for name, n in by.items() if is_integer_product(name))
    total = sum(by.values())
    return {
        "binding": it.binding,
        "by_precision": by,
        "integer": integer,
        "float": total - integer,
        "integer_share": integer / total if total else None,
    }


def mac_line(facts: dict[str, Any]) -> str:
    """One line of the summary."""
    total = facts["integer"] + facts["float"]
    if not total:
        return "none"
    share = f"{100 * facts['integer_share']:.1f} % in integers" if facts["integer"] else "in floats"
    parts = ", ".join(f"{name} {_short(n)}" for name, n in facts["by_precision"].items())
    return f"{_short(total)} multiply-accumulates, {share} ({parts})"


def _short(n: int) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if n >= size:
            return f"{n / size:.2f} {unit}"
    return str(n)


def show_precision(it: Inspected) -> tuple[Any, Shown]:
    macs = mac_facts(it)
    try:
        graph = parse_graph(it.graph_text(), registry=REGISTRY, placeholders=True)
        ops = Counter((precision_of_op(op), op.name) for op in every_op(graph))
    except GraphwrightError:  # ops of the user's own, say: the manifest has the sums
        ops = Counter({(name, ""): n for name, n in it.variant.precision.items()})
    found = sorted(ops.items(), key=lambda item: (item[0][0], -item[1], item[0][1]))
    facts = {
        "multiply_accumulates": macs,
        "ops": [{"precision": p, "op": name, "count": n} for (p, name), n in found],
    }
    at = ", ".join(f"{n} = {v}" for n, v in it.binding.items())
    total = macs["integer"] + macs["float"]
    rows: list[list[object]] = [
        [name, n, f"{100 * n / total:.2f} %", "integer" if is_integer_product(name) else "float"]
        for name, n in macs["by_precision"].items()
    ]
    table: list[list[object]] = [[p, n, name] for (p, name), n in found]
    shown: Shown = [mac_line(macs) + (f", at {at}" if at else "")]
    if rows:
        shown.append((["operands", ">multiply-accumulates", ">share", ""], rows))
    shown.append((["computed in", ">count", "op"], table))
    return facts, shown
