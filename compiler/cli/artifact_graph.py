"""The graph in an artifact, with the ids by which its launches name ops."""

from __future__ import annotations

import re

from graphwright.compiler.ir.graph import Graph, Op
from graphwright.errors import InputError
from graphwright.runtime.artifact import ArtifactFile


def read_graph(file: ArtifactFile) -> tuple[Graph, dict[int, Op]]:
    """(final graph, ops by id).  Large constants in it cannot be read.  Raises InputError when the
    graph has ops that this installation does not know (custom ones, say).
    """
    from graphwright.compiler.ir.ops import REGISTRY
    from graphwright.compiler.ir.parser import ParseError, parse_graph

    text = file.read("graph.ir").decode()
    try:
        graph = parse_graph(text, registry=REGISTRY, placeholders=True)
    except ParseError as error:
        raise InputError(f"{file.name}: its graph cannot be read here: {error}") from None
    # The parser numbers ops anew; the ids are in the text's comments.
    ids = [int(i) for i in re.findall(r"^  (?! ).*  # id (\d+)$", text, re.MULTILINE)]
    ops = list(graph.ops)
    if len(ids) != len(ops):
        ids = [op.id for op in ops]  # of an older release: without ids
    return graph, dict(zip(ids, ops, strict=True))
