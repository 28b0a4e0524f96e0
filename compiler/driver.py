"""From a graph to an artifact: the named stages, in order, each a function of plain data.

    optimise -> emit -> assemble -> build -> package

`optimise` rewrites the graph; `emit_graph` makes kernels and launches; `assemble` decides where
values lie; kernels are built for every arch of the target; the parts become an `Artifact`.
`compile_batch` does that for many graphs whose kernels are built together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from graphwright.compiler.assemble import (
    Assembly,
    Weights,
    assemble,
    constraint_specs,
    macs_of,
    packed_arguments,
    symbol_specs,
    tensor_specs,
)
from graphwright.compiler.buckets import check_buckets, describe_buckets
from graphwright.compiler.codegen.build import SourceKernel, build_libraries
from graphwright.compiler.codegen.cache import check_cache_dir, default_cache_dir
from graphwright.compiler.codegen.control import why_not_captured
from graphwright.compiler.codegen.emit import emit_graph
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.package import Artifact
from graphwright.compiler.ir.graph import Graph, Op
from graphwright.compiler.ir.printer import print_graph
from graphwright.compiler.numeric_check import NumericCheck
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.passes.base import Listener, Pipeline, PipelineRun
from graphwright.compiler.passes.pipeline_text import unknown
from graphwright.compiler.passes.pipelines import default_pipeline
from graphwright.compiler.passes.views import view_of
from graphwright.compiler.precision import ops_of
from graphwright.compiler.refit_table import MEMBER as REFIT
from graphwright.compiler.specialisation import check_specialisation, problems_of
from graphwright.compiler.target import Target
from graphwright.compiler.tune.records import MEMBER as LOCK
from graphwright.compiler.tune.records import lock_text
from graphwright.errors import GraphwrightError, InputError, Problem, UnsupportedError
from graphwright.files import replace_file
from graphwright.runtime.buckets import BUCKETS
from graphwright.runtime.cpu import native_needs
from graphwright.runtime.manifest import THREADS, Kernel, Manifest, Variant
from graphwright.version import VERSION

PIPELINE = "graphwright.pipeline"  # key of the manifest's metadata
Tell = Callable[[str, int, int], None]  # a stage, parts done, parts in all


def compile_graph(
    graph: Graph,
    target: Target,
    options: CompileOptions,
    *,
    listeners: Sequence[Listener] = (),
    on_assembly: Callable[[Assembly], None] | None = None,
) -> Artifact:
    """The artifact of a graph, which is rewritten in place to its final form.

    `on_assembly` is told which value every argument of every launch is.

    Raises UnsupportedError listing every op without a kernel, CompileError when a stage fails.
    """

    def tell(stage: str, done: int = 0, total: int = 0) -> None:
        for listener in listeners:
            listener.stage(stage, done, total)

    assembly = _plan(graph, target, options, listeners, tell)
    if on_assembly is not None:
        on_assembly(assembly)
    return _finish(assembly, target, options, tell)


def compile_batch(
    graphs: Sequence[Graph], target: Target, options: CompileOptions
) -> list[Artifact | GraphwrightError]:
    """The artifact of each graph, or what stands in its way; for CPU targets.

    Kernels of all graphs are built together and every artifact holds the library of them all, so
    that a thousand small models take minutes and not hours.  Raises CompileError when the C++
    compiler refuses a kernel: whose it is, smaller batches tell.
    """
    planned: list[Assembly | GraphwrightError] = []
    for graph in graphs:
        try:
            planned.append(_plan(graph, target, options, (), _quiet))
        except GraphwrightError as error:
            planned.append(error)
    launched = {
        step.kernel.name: step
        for assembly in planned
        if isinstance(assembly, Assembly)
        for step in _launched(assembly)
    }
    built: dict[str, bytes] = {}

    def libraries(levels: Sequence[str]) -> dict[str, bytes]:
        missing = [level for level in levels if level not in built]
        if missing:
            built.update(_libraries(list(launched.values()), missing, options, _quiet))
        return built

    out: list[Artifact | GraphwrightError] = []
    for assembly in planned:
        if isinstance(assembly, GraphwrightError):
            out.append(assembly)
            continue
        try:
            out.append(_finish(assembly, target, options, _quiet, libraries=libraries))
        except UnsupportedError as error:
            out.append(error)
    return out


def _quiet(stage: str, done: int = 0, total: int = 0) -> None:
    """Tells nobody."""


def _plan(
    graph: Graph,
    target: Target,
    options: CompileOptions,
    listeners: Sequence[Listener],
    tell: Tell,
) -> Assembly:
    """All that is decided before kernels are built."""
    check_specialisation(graph, options.allow)
    check_buckets(graph, options.graph_buckets, options.graph_miss)
    optimise(graph, target, options, listeners=listeners)
    tell("emitting kernels", 0, 0)
    if target.kind != "cuda":
        return assemble(graph, emit_graph(graph, target, skip=_is_view))
    from graphwright.compiler.tune.tuner import choose_ways

    selection, tuning = choose_ways(
        graph, target, options, skip=_is_view, cache=_cache(options), tell=tell
    )
    tell("emitting kernels", 0, 0)
    steps = emit_graph(graph, target, skip=_is_view, emitter=selection.emit)
    return replace(assemble(graph, steps), tuning=tuning)


def _is_view(op: Op) -> bool:
    """Whether an op needs no kernel."""
    return view_of(op) is not None


def _finish(
    assembly: Assembly,
    target: Target,
    options: CompileOptions,
    tell: Tell,
    *,
    libraries: Callable[[Sequence[str]], Mapping[str, bytes]] | None = None,
) -> Artifact:
    """Builds and packages.  `libraries`: gives shared objects that hold all CPU kernels."""
    graph, weights = assembly.graph, Weights()
    for value in assembly.storage.weights:
        weights.add_constant(value)
    inputs, outputs = tensor_specs(graph, weights, assembly.storage.updated)
    files: dict[str, bytes] = {}
    tell("packing weights", 0, 0)
    if target.kind == "cuda":
        variants = _build_cuda(assembly, weights, files, target, options, tell)
    else:
        variants = _build_cpu(assembly, weights, files, target, options, tell, libraries)
    files[REFIT] = weights.refit.text(graph)
    tuning = assembly.tuning
    if tuning.records:
        files[LOCK] = lock_text(str(target), tuning.mode, tuning.records).encode()
        if options.lock is not None and not options.lock.exists():
            with replace_file(options.lock) as lock:
                lock.write(files[LOCK])
    metadata = {**graph.metadata, PIPELINE: str(chosen_pipeline(target, options))}
    if options.graph_buckets:
        metadata[BUCKETS] = describe_buckets(options.graph_buckets, options.graph_miss or "raise")
    if options.threads:
        metadata[THREADS] = str(options.threads)
    manifest = Manifest(
        producer=f"graphwright {VERSION}",
        symbols=symbol_specs(graph),
        inputs=inputs,
        outputs=outputs,
        constraints=constraint_specs(graph),
        weights=(),
        variants=tuple(variants),
        metadata=metadata,
    )
    return Artifact(manifest, weights.data, files, print_graph(graph, origins=True, ids=True))


def check_graph(graph: Graph, target: Target, options: CompileOptions) -> tuple[Problem, ...]:
    """Every op of a graph that has no kernel for the target; the graph is rewritten on the way."""
    problems = problems_of(graph, options.allow)
    # The order of ops decides how much memory is needed, not whether there are kernels.
    disabled = (*options.disable_passes, "order")
    optimise(graph, target, replace(options, check_passes="off", disable_passes=disabled))
    try:
        emit_graph(graph, target, skip=lambda op: view_of(op) is not None)
    except UnsupportedError as error:
        return (*problems, *error.problems)
    return tuple(problems)


def optimise(
    graph: Graph,
    target: Target,
    options: CompileOptions,
    *,
    listeners: Sequence[Listener] = (),
) -> PipelineRun:
    """Runs the passes that the options ask for, in place."""
    pipeline = chosen_pipeline(target, options)
    for name in options.print_after:
        if name != "all" and name not in pipeline.names:
            raise InputError(f"print_after: {unknown('pass', name, pipeline.names)}")
    if options.check_passes == "numeric":

        def told(name: str, distance: float) -> None:
            for listener in listeners:
                listener.checked(name, distance)

        listeners = [*listeners, NumericCheck(tell=told)]
    return pipeline.run(
        graph,
        target,
        listeners=listeners,
        verify=options.check_passes != "off",
        stop_after=options.stop_after,
        disabled=options.disable_passes,
        max_rewrites=options.max_rewrites,
    )


def chosen_pipeline(target: Target, options: CompileOptions) -> Pipeline:
    """The passes that the options ask for, disabled ones included."""
    text = options.passes
    if text is None:
        text = default_pipeline(
            target, options.opt, precision=options.precision, keep_fp32=options.keep_fp32
        )
    return Pipeline.parse(text)


def _launched(assembly: Assembly) -> list[EmittedLaunch]:
    """One launch of each kernel, by kernel name."""
    first: dict[str, EmittedLaunch] = {}
    for step in assembly.steps:
        if isinstance(step, EmittedLaunch):
            first.setdefault(step.kernel.name, step)
    return [first[name] for name in sorted(first)]


def _cache(options: CompileOptions) -> Path | None:
    if not options.cache:
        return None
    return check_cache_dir(options.cache_dir) if options.cache_dir else default_cache_dir()


def _libraries(
    launched: Sequence[EmittedLaunch], levels: Sequence[str], options: CompileOptions, tell: Tell
) -> dict[str, bytes]:
    return build_libraries(
        [SourceKernel(s.kernel.name, s.kernel.source, s.includes) for s in launched],
        levels,
        jobs=options.effective_jobs,
        cache_dir=_cache(options),
        on_unit=lambda done, total: tell("compiling kernels", done, total),
    )


def _build_cpu(
    assembly: Assembly,
    weights: Weights,
    files: dict[str, bytes],
    target: Target,
    options: CompileOptions,
    tell: Tell,
    libraries: Callable[[Sequence[str]], Mapping[str, bytes]] | None,
) -> list[Variant]:
    """One shared object per ISA level; weights are packed for the level's vectors."""
    from graphwright.compiler.codegen.cpp.pack import pack, packed_form, packed_type

    launched = _launched(assembly)
    levels = target.arches
    if any(header.startswith("gw/integer_") for s in launched for header in s.includes):
        levels += target.integer_arches
    made = libraries(levels) if libraries else _libraries(launched, levels, options, tell)
    table: list[Kernel] = []
    for step in launched:
        path = f"kernels/{step.kernel.name}.cpp"
        head = "".join(f'#include "{header}"\n' for header in step.includes)
        files[path] = f"{head}\n{step.kernel.source}".encode()
        table.append(Kernel(step.kernel.name, path, step.kernel.summary))
    index = {k.name: i for i, k in enumerate(table)}
    precision, macs = ops_of(assembly.graph), macs_of(assembly.graph)
    variants: list[Variant] = []
    for level in levels:
        files[f"kernels/{level}.so"] = made[level]
        chosen = weights.for_variant()
        for packed in packed_arguments(assembly.steps):
            form = packed_form(level, packed.packing)
            dtype, size = packed_type(packed, form)
            chosen.add_packed(packed, form, dtype, size, lambda p, form=form: pack(p, form))
        variants.append(
            Variant(
                target=f"cpu:{level}",
                library=f"kernels/{level}.so",
                kernels=tuple(table),
                launches=assembly.launches(index, chosen),
                plan=assembly.plan,
                needs=native_needs() if level == "native" else (),  # else the level's name says it
                precision=precision,
                multiply_accumulates=macs,
            )
        )
    return variants


def _build_cuda(
    assembly: Assembly,
    weights: Weights,
    files: dict[str, bytes],
    target: Target,
    options: CompileOptions,
    tell: Tell,
) -> list[Variant]:
    """One cubin a kernel and arch."""
    import tempfile

    from graphwright.compiler.codegen.triton.build import TritonKernel, build
    from graphwright.compiler.codegen.triton.worker import build_ahead

    launched = _launched(assembly)
    index = {s.kernel.name: i for i, s in enumerate(launched)}
    precision, macs = ops_of(assembly.graph), macs_of(assembly.graph)
    variants: list[Variant] = []
    with tempfile.TemporaryDirectory(prefix="graphwright-") as scratch:
        cache = _cache(options) or Path(scratch)
        for arch in target.arches:
            table: list[Kernel] = []
            stage = f"compiling kernels for {arch}"
            build_ahead(
                [s.kernel for s in launched if isinstance(s.kernel, TritonKernel)],
                arch,
                cache,
                jobs=options.effective_jobs,
                tell=lambda done, total, stage=stage: tell(stage, done, total),
            )
            for number, step in enumerate(launched):
                tell(stage, number, len(launched))
                assert isinstance(step.kernel, TritonKernel)
                cubin = build(step.kernel, arch, cache)
                files[cubin.kernel.binary] = cubin.image
                files[cubin.kernel.source] = step.kernel.source.encode()
                table.append(cubin.kernel)
            variants.append(
                Variant(
                    target=f"cuda:{arch}",
                    library="",
                    kernels=tuple(table),
                    launches=assembly.launches(index, weights),
                    plan=assembly.plan,
                    precision=precision,
                    multiply_accumulates=macs,
                    capture=why_not_captured(assembly.steps),
                )
            )
    return variants
