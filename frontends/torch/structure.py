"""Nested arguments and results as plain text: JSON that a runtime without torch reads.

A list, tuple or dict is {"list": [...]}, {"tuple": [...]}, {"dict": {key: ...}}; a class that torch
knows how to take apart is {"class": name, "keys": [...] or null, "items": [...]} and comes back as a
dict (or a tuple) where the class is not at hand; null is a leaf.
"""

from __future__ import annotations

import json
from typing import Any

from torch.utils import _pytree as pytree


def describe_structure(spec: pytree.TreeSpec | None) -> str:
    """The text of a tree; "" for none."""
    return "" if spec is None else json.dumps(_described(spec), separators=(",", ":"))


def _described(spec: pytree.TreeSpec) -> Any:
    if spec.is_leaf():
        return None
    items = [_described(c) for c in spec.children()]
    if spec.type in (list, tuple):
        return {spec.type.__name__: items}
    keys = spec.context
    if spec.type is dict and all(isinstance(k, str) for k in keys):
        return {"dict": dict(zip(keys, items, strict=True))}
    name = f"{spec.type.__module__}.{spec.type.__qualname__}"
    return {"class": name, "keys": _keys(spec), "items": items}


def _keys(spec: pytree.TreeSpec) -> list[str] | None:
    """Names of the items, where the context of the class is a list of names (of dict-likes)."""
    context = spec.context
    if isinstance(context, tuple | list) and len(context) == spec.num_children:
        return [str(k) for k in context]
    fields = getattr(spec.type, "_fields", None)  # named tuples
    if fields is not None:
        return list(fields)
    if isinstance(context, tuple | list) and context and isinstance(context[0], list | tuple):
        inner = context[0]
        return [str(k) for k in inner] if len(inner) == spec.num_children else None
    return None
