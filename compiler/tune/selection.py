"""Emission under a choice: which way each op takes, and what ways it had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphwright.compiler.codegen.choice import choosing
from graphwright.compiler.codegen.emit import emit
from graphwright.compiler.codegen.kernel import EmittedLaunch, Step
from graphwright.compiler.ir.graph import Op
from graphwright.compiler.target import Target
from graphwright.compiler.tune.records import Record, key_of


@dataclass(slots=True)
class Tunable:
    """An op with several ways, named by their texts, the cost model's first one first."""

    op: Op
    what: str
    ways: tuple[str, ...]
    chosen: str


@dataclass(slots=True)
class Selection:
    """Emits by `choices` (a way by an op's key), by the cost model where they say nothing.

    `seen` gathers the ops that had several ways.
    """

    choices: Mapping[str, str] = field(default_factory=dict)
    seen: dict[str, Tunable] = field(default_factory=dict)

    def emit(self, op: Op, target: Target) -> Sequence[Step]:
        """The steps of an op: an emitter for `emit_graph`."""
        found: list[tuple[str, tuple[str, ...], int]] = []

        def choice(ways: Sequence[Any]) -> int:
            if found or len(ways) == 1:
                return 0  # what a second question is about depends on the first answer
            key, texts = key_of(op), tuple(map(str, ways))
            wanted = self.choices.get(key)
            number = texts.index(wanted) if wanted in texts else 0
            found.append((key, texts, number))
            return number

        with choosing(choice):
            steps = emit(op, target)
        for key, texts, number in found:
            launches = [s for s in steps if isinstance(s, EmittedLaunch)]
            what = launches[0].kernel.summary if launches else op.name
            self.seen[key] = Tunable(op, what, texts, texts[number])
        return steps


@dataclass(frozen=True, slots=True)
class Tuning:
    """The choices of a build: `mode` as the option, `records` by key, and what to tell about them."""

    mode: str = "off"
    records: Mapping[str, Record] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
