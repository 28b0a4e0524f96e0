"""Immutable tensor constants: dense (possibly memory-mapped) or one repeated value, with recipes."""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphwright.compiler.ir.types import DType, dtype_of


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a folded constant was made: an op over source weights, other recipes, or small literals.

    `source` names an original weight (then op is ""); otherwise `op` was evaluated on `inputs`.
    Weight swapping replays it on new source weights.
    """

    op: str = ""
    attributes: tuple[tuple[str, Any], ...] = ()
    inputs: tuple[Recipe | Literal, ...] = ()
    source: str = ""

    def sources(self) -> tuple[str, ...]:
        """The names of the original weights that this constant depends on."""
        if self.source:
            return (self.source,)
        found: dict[str, None] = {}
        for i in self.inputs:
            if isinstance(i, Recipe):
                found.update(dict.fromkeys(i.sources()))
        return tuple(found)


class Literal:
    """A constant tensor.  Equality and hash are by dtype, shape and content.

    `splat(value, dtype, shape)` keeps one value as a recipe until it is materialised;
    `dense(array)` holds a read-only view (a memory map stays a map); `lazy` defers a read;
    `derived` calculates the array whenever it is asked for and nobody holds it, so that large
    constants need memory one at a time.
    """

    __slots__ = (
        "_array", "_derive", "_digest", "_held", "_load", "dtype", "elements", "shape",
        "splat_value",
    )  # fmt: skip

    def __init__(
        self,
        dtype: DType,
        shape: tuple[int, ...],
        *,
        array: np.ndarray | None = None,
        splat_value: Any = None,
        load: Callable[[], np.ndarray] | None = None,
    ) -> None:
        self.dtype, self.shape = dtype, tuple(int(d) for d in shape)
        self.elements = math.prod(self.shape)
        self.splat_value = splat_value
        self._array, self._load, self._digest = array, load, None
        self._derive: Callable[[], np.ndarray] | None = None
        self._held: weakref.ref[np.ndarray] | None = None

    @staticmethod
    def dense(array: Any) -> Literal:
        array = np.asarray(array)
        view = array.view()
        view.flags.writeable = False
        return Literal(dtype_of(array), array.shape, array=view)

    @staticmethod
    def splat(value: Any, dtype: DType, shape: tuple[int, ...]) -> Literal:
        return Literal(dtype, shape, splat_value=np.asarray(value, dtype.numpy)[()])

    @staticmethod
    def lazy(load: Callable[[], np.ndarray], dtype: DType, shape: tuple[int, ...]) -> Literal:
        return Literal(dtype, shape, load=load)

    @staticmethod
    def derived(derive: Callable[[], np.ndarray], dtype: DType, shape: tuple[int, ...]) -> Literal:
        made = Literal(dtype, shape)
        made._derive = derive
        return made

    @property
    def is_splat(self) -> bool:
        return self._array is None and self._load is None and self._derive is None

    @property
    def is_derived(self) -> bool:
        return self._derive is not None

    @property
    def nbytes(self) -> int:
        """Bytes when materialised."""
        return self.elements * self.dtype.bytes

    @property
    def stored_bytes(self) -> int:
        """Bytes really kept: one element for a splat."""
        return self.dtype.bytes if self.is_splat else self.nbytes

    def array(self) -> np.ndarray:
        """The value as a read-only numpy array (a broadcast view for a splat)."""
        if self._array is not None:
            return self._array
        if self._load is not None:
            loaded = self._checked(self._load())
            self._array, self._load = loaded, None
            return loaded
        if self._derive is not None:
            held = None if self._held is None else self._held()
            if held is None:
                held = self._checked(self._derive())
                self._held = weakref.ref(held)
            return held
        return np.broadcast_to(np.asarray(self.splat_value, self.dtype.numpy), self.shape)

    def _checked(self, loaded: np.ndarray) -> np.ndarray:
        if loaded.shape != self.shape or dtype_of(loaded) is not self.dtype:
            raise ValueError(
                f"constant: want {self.dtype}{list(self.shape)}, its data is "
                f"{loaded.dtype}{list(loaded.shape)}"
            )
        view = loaded.view()
        view.flags.writeable = False
        return view

    def sample(self, count: int) -> bytes:
        """About `count` elements from everywhere, the same ones of equal literals."""
        if self.is_derived:
            return self.digest.encode()
        flat = self.array().reshape(-1)
        return np.ascontiguousarray(flat[:: max(flat.size // count, 1)]).tobytes()

    def item(self) -> Any:
        """The single value of a one-element constant as a Python scalar."""
        if self.elements != 1:
            raise ValueError(f"constant of shape {list(self.shape)} is not a single value")
        return self.array().reshape(()).item()

    @property
    def digest(self) -> str:
        """SHA-256 over dtype, shape and bytes."""
        if self._digest is None:
            h = hashlib.sha256(f"{self.dtype}{self.shape}".encode())
            h.update(np.ascontiguousarray(self.array()).reshape(-1).view(np.uint8).data)
            self._digest = h.hexdigest()
        return self._digest

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Literal):
            return False
        if (self.dtype, self.shape) != (other.dtype, other.shape):
            return False
        return self.digest == other.digest

    def __hash__(self) -> int:
        return hash((self.dtype.name, self.shape))

    def __str__(self) -> str:
        kind = "splat" if self.is_splat else "dense"
        return f"{kind}<{self.dtype}{list(self.shape)}>"
