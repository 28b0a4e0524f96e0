"""What an artifact keeps so that its weights can be exchanged: `refit.json`.

`sources` lists the model's named weights.  One is free when it reaches the artifact only through
recipes, and unused when nothing reads it; else its value decided the graph's structure, and its digest says which value that was.
`weights` has, for each stored weight, how it is made of named ones, or null where none is in it:

    {"inputs": ["recipe(\\"w\\")"], "packing": "gemm", "parameters": [], "form": [16, 1]}

Inputs are recipes or constants in the text of the IR; constants too large to print are in `literals`
by digest.  Without `packing` the one input is stored as it is.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphwright.compiler.codegen.cpp.packing import PanelShape
from graphwright.compiler.codegen.kernel import Packed
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.literal import Literal, Recipe
from graphwright.compiler.ir.printer import INLINE, print_attribute

MEMBER = "refit.json"
LARGEST_LITERAL = 2**20  # bytes of an unnamed constant that a recipe may need
_CHUNK = 2**22


@dataclass(slots=True)
class Origin:
    """How one stored weight is made; `inputs` alone: it is their first."""

    inputs: tuple[Recipe | Literal, ...]
    packing: str = ""
    parameters: tuple[tuple[str, int], ...] = ()
    form: PanelShape | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """The named weights in it."""
        found = (i.sources() for i in self.inputs if isinstance(i, Recipe))
        return tuple(dict.fromkeys(n for names in found for n in names))


@dataclass(slots=True)
class RefitTable:
    """Collects the table while weights are assembled; `origins` is parallel to the stored weights."""

    origins: list[Origin | None] = field(default_factory=list[Origin | None])

    def text(self, graph: Graph) -> bytes:
        """The member's content for the graph that was compiled."""
        sources = named_weights(graph)
        free = self._free(sources)
        used = {name for o in self.origins if o is not None for name in o.sources}
        literals: dict[str, Literal] = {}
        weights = [
            None if o is None or not o.sources else _plain(o, literals) for o in self.origins
        ]
        table = {
            "version": 1,
            "sources": [
                {"name": name, "unused": True}
                if literal is None
                else _source(name, literal, free, used)
                for name, literal in sources.items()
            ],
            "weights": weights,
            "literals": {d: _encoded(x) for d, x in sorted(literals.items())},
        }
        return (json.dumps(table, separators=(",", ":"), sort_keys=True) + "\n").encode()

    def _free(self, sources: Mapping[str, Literal | None]) -> set[str]:
        """Floats of several elements that recipes alone use, and integers that are packed as weights:
        no rule and no emitter looks into these.
        """
        used: set[str] = set()
        packed: set[str] = set()
        for origin in self.origins:
            if origin is None:
                continue
            used.update(origin.sources)
            first = origin.inputs[0]
            if origin.packing.startswith("integer_") and isinstance(first, Recipe):
                packed.update(first.sources())
        return {
            name
            for name, literal in sources.items()
            if literal is not None
            and literal.elements > 1
            and (name in packed or (literal.dtype.is_float and name in used))
        }


def packed_origin(packed: Packed, form: PanelShape) -> Origin:
    """How a packed weight is made."""
    inputs = tuple(s.recipe for s in (packed.source, *packed.more))
    return Origin(inputs, packed.packing, packed.parameters, form)


def named_weights(graph: Graph) -> dict[str, Literal | None]:
    """The model's weights by name: those that the frontend noted, and those still in the graph."""
    found = dict(graph.sources)
    pending = [graph]
    while pending:
        for op in pending.pop().ops:
            pending.extend(op.bodies)
            recipe = op.attributes.get("recipe")
            if isinstance(recipe, Recipe) and recipe.source:
                found.setdefault(recipe.source, op.attribute("value"))
    return found


def _plain(origin: Origin, literals: dict[str, Literal]) -> dict[str, Any]:
    _collect(origin.inputs, literals)
    made: dict[str, Any] = {"inputs": [print_attribute(i) for i in origin.inputs]}
    if origin.packing and origin.form is not None:
        made["packing"] = origin.packing
        made["parameters"] = [list(p) for p in origin.parameters]
        made["form"] = [origin.form.lanes, origin.form.vectors]
    return made


def _collect(inputs: Iterable[Recipe | Literal], literals: dict[str, Literal]) -> None:
    """Notes the constants that print as a digest, unless they are too large to keep twice."""
    for item in inputs:
        if isinstance(item, Recipe):
            _collect(item.inputs, literals)
        elif not item.is_splat and item.elements > INLINE and item.nbytes <= LARGEST_LITERAL:
            literals[item.digest] = item


def _encoded(literal: Literal) -> dict[str, Any]:
    data = np.ascontiguousarray(literal.array()).tobytes()
    return {
        "dtype": literal.dtype.name,
        "shape": list(literal.shape),
        "data": base64.b64encode(data).decode(),
    }


def _source(name: str, literal: Literal, free: set[str], used: set[str]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": name,
        "dtype": literal.dtype.long_name,
        "shape": list(literal.shape),
    }
    if name not in free:
        entry["digest"] = digest_of(literal)
        if name in used:  # recipes need it, also where nobody gives it anew
            entry["value"] = print_attribute(literal) if literal.elements <= INLINE else None
        return entry
    return entry | {"finite": not literal.dtype.is_float or is_finite(literal.array())}


def digest_of(literal: Literal) -> str:
    """The digest of a weight's content, the same for a repeated value and for its elements."""
    return Literal.dense(np.ascontiguousarray(literal.array())).digest


def is_finite(array: np.ndarray) -> bool:
    """Whether no element is NaN or infinite, a piece at a time."""
    flat = array.reshape(-1)
    pieces: Sequence[int] = range(0, flat.size, _CHUNK)
    return all(bool(np.isfinite(flat[i : i + _CHUNK]).all()) for i in pieces)
