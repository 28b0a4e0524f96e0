"""Ops of a user's own: where their declarations come from."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from typing import Any

from graphwright.compiler.ir.op import OpDef
from graphwright.errors import InputError


def load_custom_ops(value: Any) -> tuple[OpDef, ...]:
    """Declarations from an OpDef, the text "module:name" of one, or a sequence of these.

    A name may stand for one declaration or a sequence of them.  Raises InputError for what is none.
    """
    if isinstance(value, OpDef):
        return (value,)
    if isinstance(value, str):
        return tuple(d for text in value.split(",") if text for d in _named(text.strip()))
    if isinstance(value, Iterable):
        return tuple(d for entry in value for d in load_custom_ops(entry))  # type: ignore[misc]
    raise InputError(f"custom_ops: {value!r} is no op declaration and no 'module:name'")


def _named(text: str) -> tuple[OpDef, ...]:
    module, colon, name = text.partition(":")
    if not colon or not module or not name:
        raise InputError(f"custom_ops {text!r}: want MODULE:NAME, such as my_ops:OPS")
    if os.getcwd() not in sys.path:  # as `python -m` has it
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise InputError(f"custom_ops {text!r}: the module cannot be imported: {error}") from None
    except AttributeError:
        raise InputError(f"custom_ops {text!r}: the module has no {name!r}") from None
    if isinstance(found, str):
        raise InputError(f"custom_ops {text!r}: it is a text, want op declarations")
    return load_custom_ops(found)
