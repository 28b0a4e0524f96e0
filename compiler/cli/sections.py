"""The sections of `inspect`: each returns its facts for JSON and what to show of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from graphwright.compiler.cli import memory_chart
from graphwright.compiler.cli.console import bytes_text, count
from graphwright.compiler.cli.graphs_section import show_graphs
from graphwright.compiler.cli.open import wanted_inputs
from graphwright.compiler.cli.precision_section import mac_facts, mac_line, show_precision
from graphwright.compiler.cli.tuning_section import tuning_facts, tuning_rows
from graphwright.compiler.ir.shapes import ShapeSpec
from graphwright.errors import InputError
from graphwright.runtime.archive import GRAPH, MANIFEST
from graphwright.runtime.artifact import ArtifactFile
from graphwright.runtime.expressions import format_expression
from graphwright.runtime.manifest import Launch, TensorSpec, Variant
from graphwright.runtime.weights import storage_bytes

Shown: TypeAlias = "list[str | tuple[list[str], list[list[object]]]]"
Section: TypeAlias = "Callable[[Inspected], tuple[Any, Shown]]"


class Inspected:
    """An artifact under inspection, one of its variants, and the binding to show sizes at."""

    def __init__(
        self, file: ArtifactFile, path: Path, variant: str | None, shapes: ShapeSpec
    ) -> None:
        self.file, self.path, self.manifest, self.shapes = file, path, file.manifest, shapes
        self.variant = self._choose(variant)

    def _choose(self, target: str | None) -> Variant:
        variants = {v.target: v for v in self.manifest.variants}
        if target is None:
            return self.manifest.variants[0]
        found = [v for name, v in variants.items() if target in (name, name.partition(":")[2])]
        if not found:
            raise InputError(f"there is no variant {target!r}; there are: {', '.join(variants)}")
        return found[0]

    @cached_property
    def binding(self) -> dict[str, int]:
        """Sizes of the symbols: --shape's, else those that the model was optimised for."""
        sizes = {s.name: s.opt for s in self.manifest.symbols}
        wanted = wanted_inputs(self.manifest, self.shapes)
        for s in self.manifest.symbols:
            if s.bound_by is not None:
                sizes[s.name] = wanted[s.bound_by[0]].shape[s.bound_by[1]]
        return sizes

    @property
    def launches(self) -> list[Launch]:
        return [x for x in self.variant.launches if x.kind in ("kernel", "host")]

    def graph_text(self) -> str:
        """The IR that was compiled."""
        return self.file.read(GRAPH).decode()


def _shape(spec: TensorSpec) -> str:
    return "x".join(format_expression(e) for e in spec.shape) or "scalar"


def show_io(it: Inspected) -> tuple[Any, Shown]:
    def rows(specs: tuple[TensorSpec, ...], what: str) -> list[list[object]]:
        return [
            [what, t.name, _shape(t), t.dtype, "" if t.default is None else "has a default"]
            for t in specs
        ]

    m = it.manifest
    facts: dict[str, Any] = {
        what: [
            {"name": t.name, "dtype": t.dtype, "shape": [format_expression(e) if not isinstance(e, int) else e for e in t.shape]}
            for t in specs
        ]
        for what, specs in (("inputs", m.inputs), ("outputs", m.outputs))
    }  # fmt: skip
    facts["symbols"] = [
        {"name": s.name, "min": s.min, "max": s.max, "multiple_of": s.multiple_of, "opt": s.opt}
        for s in m.symbols
    ]
    shown: Shown = [
        (["", "name", "shape", "dtype", ""], rows(m.inputs, "input") + rows(m.outputs, "output"))
    ]
    if m.symbols:
        symbols: list[list[object]] = [
            [s.name, f"{s.min}..{s.max}", f"multiple of {s.multiple_of}" if s.multiple_of > 1 else "",
             f"optimised for {s.opt}"]
            for s in m.symbols
        ]  # fmt: skip
        shown.append((["symbol", "range", "", ""], symbols))
    if m.constraints:
        lines = [
            f"  {format_expression(c.left)} {c.relation} {format_expression(c.right)}: {c.reason}"
            for c in m.constraints
        ]
        shown.append("\n".join(["a call must satisfy", *lines]))
    return facts, shown


def show_ops(it: Inspected) -> tuple[Any, Shown]:
    # `%3, %4 = name(operands)`: attributes in braces come after the operands.
    found = Counter(re.findall(r"^\s*%[^={]* = ([a-z_0-9]+)\(", it.graph_text(), re.MULTILINE))
    counts = dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
    rows: list[list[object]] = [[n, name] for name, n in counts.items()]
    return counts, [([">count", "op (fused bodies included)"], rows)]


def show_kernels(it: Inspected) -> tuple[Any, Shown]:
    uses = Counter(x.kernel for x in it.launches if x.kind == "kernel")
    facts = [
        {"name": k.name, "summary": k.summary, "launches": uses[i], "source": k.source}
        for i, k in enumerate(it.variant.kernels)
    ]
    rows: list[list[object]] = [[f["launches"], f["name"], f["summary"]] for f in facts]
    shown: Shown = [
        f"{count(len(it.launches), 'launch')} of {count(len(rows), 'kernel')} for {it.variant.target}",
        ([">launches", "kernel", "computes"], rows),
        "--kernel NAME prints a source, --layer NODE those that compute a node of the model",
    ]
    hosts = [x for x in it.launches if x.kind == "host"]
    if hosts:
        shown.append("\n".join(["on the host:", *(f"  {x.reason}" for x in hosts)]))
    return facts, shown


def find_kernels(it: Inspected, kernel: str | None, layer: str | None) -> list[tuple[str, str]]:
    """(name, source) of the kernels by their name or by a node they come from."""
    kernels = it.variant.kernels
    chosen: list[int] = []
    if kernel:
        chosen = [i for i, k in enumerate(kernels) if k.name == kernel]
        chosen = chosen or [i for i, k in enumerate(kernels) if kernel in k.name]
        if not chosen:
            raise InputError(f"no kernel has {kernel!r} in its name; `inspect {it.path} kernels` "
                             "lists them")  # fmt: skip
    if layer:
        exact = {x.kernel for x in it.launches if layer in x.origins}
        near = {x.kernel for x in it.launches if any(layer in o for o in x.origins)}
        chosen += sorted(exact or near)
        if not exact and not near:
            raise InputError(f"no kernel comes from a node with {layer!r} in its name")
    unique = dict.fromkeys(chosen)
    return [(kernels[i].name, it.file.read(kernels[i].source).decode()) for i in unique]


def show_memory(it: Inspected) -> tuple[Any, Shown]:
    placed = memory_chart.place(it.variant.plan, it.binding)
    total, bound = memory_chart.arena_bytes(placed), memory_chart.lower_bound(placed)
    letters = memory_chart.name_buffers(placed)
    facts = {
        "binding": it.binding,
        "arena_bytes": total,
        "lower_bound_bytes": bound,
        "buffers": [
            {"offset": p.offset, "bytes": p.size, "first": p.first, "last": p.last, "values": list(p.values)}
            for p in placed
        ],
    }  # fmt: skip
    at = ", ".join(f"{n} = {v}" for n, v in it.binding.items())
    ratio = f" ({total / bound:.3f}x)" if bound else ""
    largest = sorted(placed, key=lambda p: (-p.size, p.index))[:12]
    rows: list[list[object]] = [
        [letters.get(p.index, ""), bytes_text(p.size), p.offset, f"{p.first}..{p.last}",
         ", ".join(v for v in p.values[:3] if v) + (" ..." if len(p.values) > 3 else "")]
        for p in largest
    ]  # fmt: skip
    return facts, [
        f"arena {bytes_text(total)} of at least {bytes_text(bound)}{ratio}, {len(placed)} buffers"
        + (f", at {at}" if at else ""),
        "\n".join(memory_chart.draw(placed)),
        (["", ">size", ">offset", ">live", "values"], rows),
    ]


def show_weights(it: Inspected) -> tuple[Any, Shown]:
    facts: list[dict[str, Any]] = [
        {
            "name": w.name, "dtype": w.dtype, "shape": list(w.shape),
            "bytes": storage_bytes(w.dtype, w.shape), "recipe": w.recipe,
        }
        for w in it.manifest.weights
    ]  # fmt: skip
    rows: list[list[object]] = [
        [f["name"], "x".join(map(str, f["shape"])) or "scalar", f["dtype"], bytes_text(f["bytes"]), f["recipe"]]
        for f in facts
    ]  # fmt: skip
    total = sum(f["bytes"] for f in facts)
    return facts, [
        f"{count(len(facts), 'weight')}, {bytes_text(total)}",
        (["weight", "shape", "dtype", ">size", "made from"], rows),
    ]


def show_passes(it: Inspected) -> tuple[Any, Shown]:
    pipeline = it.manifest.metadata.get("graphwright.pipeline", "")
    return {"pipeline": pipeline}, [pipeline or "the artifact does not say which passes ran"]


def show_tuning(it: Inspected) -> tuple[Any, Shown]:
    facts = tuning_facts(it.file)
    if facts is None:
        return {}, ["the cost model chose every kernel; nothing was timed (--tune quick does)"]
    header = [">us", ">timed", ">slowest", "by", "way", "computes"]
    return facts, [f"tune={facts['mode']}", (header, tuning_rows(facts))]


def show_files(it: Inspected) -> tuple[Any, Shown]:
    facts = [{"name": m.name, "bytes": m.size} for m in it.file.members.values()]
    rows: list[list[object]] = [[bytes_text(m.size), m.name] for m in it.file.members.values()]
    return facts, [([">size", "file"], rows)]


def show_graph(it: Inspected) -> tuple[Any, Shown]:
    text = it.graph_text()
    return {"text": text}, [text.rstrip()]


def show_manifest(it: Inspected) -> tuple[Any, Shown]:
    text = it.file.read(MANIFEST).decode()
    return json.loads(text), [text.rstrip()]


def show_summary(it: Inspected) -> tuple[Any, Shown]:
    m = it.manifest
    io, shown = show_io(it)
    placed = memory_chart.place(it.variant.plan, it.binding)
    weights = sum(storage_bytes(w.dtype, w.shape) for w in m.weights)
    arena = memory_chart.arena_bytes(placed)
    macs = mac_facts(it)
    facts = {
        "producer": m.producer,
        "format": list(m.format),
        **io,
        "variants": [v.target for v in m.variants],
        "launches": len(it.launches),
        "kernels": len(it.variant.kernels),
        "multiply_accumulates": macs,
        "arena_bytes": arena,
        "weight_bytes": weights,
        "bytes": len(it.file.data),
        "metadata": dict(m.metadata),
    }
    lines = [
        f"variants   {', '.join(v.target for v in m.variants)}",
        f"kernels    {count(len(it.launches), 'launch')} of {count(len(it.variant.kernels), 'kernel')}",
        f"arithmetic {mac_line(macs)}",
        f"memory     arena {bytes_text(arena)}, weights {bytes_text(weights)}, "
        f"file {bytes_text(len(it.file.data))}",
        f"made by    {m.producer}, format {m.format[0]}.{m.format[1]}",
    ]
    return facts, [
        *shown,
        "\n".join(lines),
        f"more: {', '.join(n for n in SECTIONS if n != 'summary')}",
    ]


SECTIONS: Mapping[str, Section] = {
    "summary": show_summary,
    "io": show_io,
    "ops": show_ops,
    "kernels": show_kernels,
    "precision": show_precision,
    "memory": show_memory,
    "graphs": show_graphs,
    "weights": show_weights,
    "passes": show_passes,
    "tuning": show_tuning,
    "files": show_files,
    "graph": show_graph,
    "manifest": show_manifest,
}
