"""Shape buckets: bindings that are declared ahead, each a CUDA graph, and what others do.

A manifest whose metadata has the key BUCKETS says, as JSON: {"buckets": [{symbol: size, ...}, ...],
"miss": what a call of other sizes does}.  "raise" refuses it; "uncaptured" launches its kernels one
by one; "pad" runs the smallest bucket that holds it: its inputs are followed by zeros and its outputs
cut off.  The compiler has proven for "pad" that no row depends on another (codegen/buckets.py).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

from graphwright.errors import ArtifactError, InputError
from graphwright.runtime.manifest import Manifest

BUCKETS = "graphwright.buckets"  # key of the metadata
Miss: TypeAlias = Literal["pad", "uncaptured", "raise"]


class Buckets:
    """The buckets of one manifest."""

    def __init__(self, text: str, manifest: Manifest) -> None:
        """Raises ArtifactError when the text does not fit the manifest."""
        try:
            plan = json.loads(text)
            self.sizes: tuple[dict[str, int], ...] = tuple(
                {str(k): int(v) for k, v in b.items()} for b in plan["buckets"]
            )
            self.miss: Miss = plan["miss"]
            names = {s.name for s in manifest.symbols if s.bound_by is not None}
            if self.miss not in get_args(Miss) or not self.sizes:
                raise ValueError("it has no buckets, or no known rule for a miss")
            if any(b.keys() != names for b in self.sizes):
                raise ValueError(f"a bucket does not say the sizes of {sorted(names)}")
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ArtifactError(f"the description of shape buckets is malformed: {error}") from None

    @staticmethod
    def of(manifest: Manifest) -> Buckets | None:
        """Those of a manifest, None where none are declared."""
        text = manifest.metadata.get(BUCKETS)
        return None if text is None else Buckets(text, manifest)

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether these sizes are one of the buckets."""
        return any(b.items() <= sizes.items() for b in self.sizes)

    def around(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The smallest bucket in which these sizes fit.  Raises InputError when there is none."""
        fitting = [b for b in self.sizes if all(b[name] >= sizes[name] for name in b)]
        if not fitting:
            raise self.refused(sizes, "none of them is as large")
        return min(fitting, key=lambda b: (math.prod(b.values()), tuple(b.values())))

    def refused(self, sizes: Mapping[str, int], why: str) -> InputError:
        """The error for sizes that no bucket serves."""
        return InputError(
            f"the call has {_show(sizes)}; the model was compiled for "
            f"{' or '.join(map(_show, self.sizes))} (graph_buckets), and {why}"
        )


def _show(sizes: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} = {v}" for k, v in sizes.items())
