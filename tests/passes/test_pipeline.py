"""Pipelines as text, verification after passes, fuel, stopping, disabling."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.literal import Literal
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.types import F32, TensorType
from graphwright.compiler.passes.base import Group, Journal, Listener, PassResult, Pipeline
from graphwright.compiler.passes.pipelines import default_pipeline
from graphwright.compiler.passes.registry import NAMES, pass_class
from graphwright.compiler.passes.rewrite import apply_rules, rule, rules_of
from graphwright.compiler.target import Target
from graphwright.errors import CompileError, InputError

TARGET = Target.parse("cpu")


def chain(*names: str, shape: tuple[int, ...] = (4,)) -> Graph:
    graph = Graph("chain", registry=REGISTRY)
    value = graph.add_input("x", TensorType(F32, shape))
    for i, name in enumerate(names):
        value = graph.create(name, [value], origins=[f"n{i}"]).result
    graph.set_outputs([value], ["y"])
    return graph


def names_of(graph: Graph) -> list[str]:
    return [op.name for op in graph.ops]


@pytest.mark.parametrize(
    "text",
    [
        "eliminate-dead",
        "fold-constants{limit=1024},eliminate-dead",
        "(canonicalize,fold-constants{limit=7})*,eliminate-dead",
        "(canonicalize,(eliminate-dead)*3)*",
        "",
    ],
)
def test_text_round_trip(text):
    assert str(Pipeline.parse(text)) == text
    assert Pipeline.parse(text) == Pipeline.parse(text.replace(",", " , "))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("canoncalize", "unknown pass 'canoncalize'; did you mean 'canonicalize'?"),
        ("eliminate-dead,", "a pass name is missing"),
        (
            "fold-constants{limt=3}",
            "unknown option of fold-constants 'limt'; did you mean 'limit'?",
        ),
        ("fold-constants{limit=three}", "option limit wants int, got 'three'"),
        ("fold-constants{limit}", "want option=value"),
        ("(canonicalize", "want ',', found ''|want ',' at end"),
        ("(canonicalize)", r"want '\*'"),
        ("canonicalize eliminate-dead", "want ','"),
        ("canonicalize;", "unexpected ';'"),
    ],
)
def test_bad_text_is_an_error_with_its_column(text, message):
    with pytest.raises(InputError, match=r"pipeline, column \d+: .*" + message.replace("?", r"\?")):
        Pipeline.parse(text)


def test_every_registered_pass_has_its_name_and_says_what_it_does():
    for name in NAMES:
        cls = pass_class(name)
        assert cls.name == name
        assert len(cls.__doc__) > 100
        assert cls() == cls(), "a pass is a value"


@pytest.mark.parametrize("kind", ["cpu", "cuda:sm_90"])
@pytest.mark.parametrize("opt", [0, 1, 2, 3])
def test_default_pipelines_parse(kind, opt):
    text = default_pipeline(Target.parse(kind), opt)
    assert str(Pipeline.parse(text)) == text
    assert "decompose" in text


def test_group_runs_to_a_fixpoint():
    graph = chain("neg", "neg", "neg", "neg", "relu", "relu")
    run = Pipeline.parse("(canonicalize,eliminate-dead)*").run(graph, TARGET)
    assert names_of(graph) == ["relu"]
    assert run.passes[-1].result.changed is False
    assert len(run.passes) <= 2 * Group(()).limit


def test_fuel_bounds_the_rewrites_exactly():
    total = len(Pipeline.parse("canonicalize").run(chain(*["neg"] * 8), TARGET).journal.rewrites)
    assert total == 4
    for fuel in range(total + 2):
        graph = chain(*["neg"] * 8)
        run = Pipeline.parse("(canonicalize)*").run(graph, TARGET, max_rewrites=fuel)
        assert len(run.journal.rewrites) == min(fuel, total)
        assert len(graph) == 8 - 2 * min(fuel, total)


def test_required_passes_run_without_fuel():
    graph = Graph("g", registry=REGISTRY)
    x, v = (graph.add_input(n, TensorType(F32, s)) for n, s in (("x", (2, 3)), ("v", (3,))))
    norm = graph.create("batch_norm", [graph.create("neg", [x]).result, v, v, v, v])
    graph.set_outputs([graph.create("neg", [norm.result]).result], ["y"])
    run = Pipeline.parse("canonicalize,decompose,canonicalize").run(graph, TARGET, max_rewrites=0)
    assert "batch_norm" not in names_of(graph)
    assert [r.rule for r in run.journal.rewrites] == ["batch-norm"]
    assert run.journal.fuel == 0


def test_stop_after_and_disabled():
    graph = chain("neg", "neg", "relu")
    run = Pipeline.parse("canonicalize,fold-constants,eliminate-dead").run(
        graph, TARGET, stop_after="fold-constants"
    )
    assert [p.name for p in run.passes] == ["canonicalize", "fold-constants"]
    assert run.stopped
    graph = chain("neg", "neg", "relu")
    run = Pipeline.parse("canonicalize,eliminate-dead").run(
        graph, TARGET, disabled={"canonicalize"}
    )
    assert [p.name for p in run.passes] == ["eliminate-dead"]
    assert len(graph) == 3


def test_unknown_names_are_refused():
    pipeline = Pipeline.parse("canonicalize,eliminate-dead")
    with pytest.raises(InputError, match="unknown pass 'eliminate-ded'; did you mean"):
        pipeline.run(chain("relu"), TARGET, stop_after="eliminate-ded")
    with pytest.raises(InputError, match="unknown pass 'fuse'"):
        pipeline.run(chain("relu"), TARGET, disabled=["fuse"])


def test_listeners_see_passes_and_rewrites():
    seen: list[str] = []

    class Watch(Listener):
        def before_pass(self, name, graph):
            seen.append(f"> {name} {len(graph)}")

        def after_pass(self, name, graph, result, seconds):
            assert seconds >= 0
            seen.append(f"< {name} {len(graph)} {result.changed}")

        def rewrite(self, rewrite):
            seen.append(f"{rewrite.rule} {rewrite.consumed} {rewrite.produced}")
            assert rewrite.where.startswith("canonicalize_algebra.py:")

    Pipeline.parse("canonicalize").run(chain("neg", "neg"), TARGET, listeners=[Watch()])
    assert seen == ["> canonicalize 2", "same-function-twice (1, 0) ()", "< canonicalize 0 True"]


@dataclass(frozen=True, slots=True)
class Breaks:
    name: ClassVar[str] = "breaks"
    how: str = "raise"

    def run(self, graph: Graph, target: Target, journal: Journal | None = None) -> PassResult:
        if self.how == "raise":
            raise KeyError("lost")
        op = next(iter(graph.ops))
        op.result.type = TensorType(F32, (5,))
        return PassResult(True)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raise", "pass breaks failed on graph 'chain': KeyError: 'lost'; --disable-pass breaks"),
        ("invalid", "pass breaks left an invalid graph: rule 3"),
    ],
)
def test_a_failing_pass_is_named(how, message):
    with pytest.raises(CompileError, match=message):
        Pipeline((Breaks(how),)).run(chain("relu", "exp"), TARGET)


# -- the rewriter


@rule("relu")
def relu_becomes_two(op, rw):
    """Never ends."""
    return rw.replace(rw.value("relu", rw.value("relu", op.operands[0])))


@rule("relu")
def builds_then_declines(op, rw):
    rw.value("exp", op.operands[0])
    return rw.fail("thought better of it")


@rule("relu")
def changes_then_declines(op, rw):
    rw.set_operand(op, 0, rw.value("exp", op.operands[0]))
    return


@rule("relu")
def wrong_type(op, rw):
    return rw.replace_by("reshape", op.operands[0], shape=(2, 2))


def test_rules_that_do_not_end_are_named():
    with pytest.raises(CompileError, match=r"does not come to an end .* relu-becomes-two"):
        apply_rules(chain("relu"), [relu_becomes_two], "test")


def test_a_declining_rule_leaves_no_trace():
    graph, journal = chain("relu", "neg", "relu"), Journal()
    result = apply_rules(graph, [builds_then_declines], "test", journal)
    assert not result.changed
    assert names_of(graph) == ["relu", "neg", "relu"]
    assert journal.misses == {("test/builds-then-declines", "thought better of it"): 2}
    assert journal.rewrites == []


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (changes_then_declines, "changed the graph but did not return True"),
        (wrong_type, r"would change the type of .*f32\[4\] became f32\[2, 2\]"),
    ],
)
def test_broken_rules_are_named(bad, message):
    with pytest.raises(CompileError, match=message):
        apply_rules(chain("relu"), [bad], "test")


def test_what_a_step_makes_inherits_all_origins():
    graph = chain("neg", "abs")  # abs(neg(x)) => abs(x)
    Pipeline.parse("canonicalize").run(graph, TARGET)
    (op,) = graph.ops
    assert op.name == "abs"
    assert set(op.origins) == {"n0", "n1"}


def test_merged_ops_keep_both_origins():
    graph = Graph("g", registry=REGISTRY)
    x = graph.add_input("x", TensorType(F32, (4,)))
    a, b = (graph.create("exp", [x], origins=[o]).result for o in ("first", "second"))
    graph.set_outputs([a, b], ["a", "b"])
    Pipeline.parse("eliminate-common").run(graph, TARGET)
    (op,) = graph.ops
    assert op.origins == ("first", "second")
    assert graph.outputs == (op.result, op.result)


def test_equal_values_keep_their_source_name():
    graph = chain("neg", "neg", "exp")
    graph.outputs[0].op.operands[0].equals = "tensor/of/the/model"
    Pipeline.parse("canonicalize").run(graph, TARGET)
    assert graph.inputs[0].equals == "tensor/of/the/model"


def test_every_rule_says_what_it_does():
    from graphwright.compiler.passes import canonicalize, decompose, fold_batch_norm, raise_patterns

    rules = (*canonicalize.RULES, *decompose.RULES, *fold_batch_norm.RULES, *raise_patterns.RULES)
    assert len({r.name for r in rules}) == len(rules)
    for r in rules:
        assert r.function.__doc__, r.name
    assert rules_of(canonicalize) == ()


@pytest.mark.parametrize(
    "pipeline", ["canonicalize", "(canonicalize,eliminate-common,eliminate-dead)*"]
)
def test_time_is_linear_in_the_graph(pipeline):
    def seconds(n: int) -> float:
        graph = chain(*["neg", "neg", "exp"] * n)
        start = time.process_time()
        Pipeline.parse(pipeline).run(graph, TARGET, verify=False)
        return time.process_time() - start

    seconds(100)
    small, large = seconds(700), seconds(7000)  # 21,000 ops
    assert large < 40 * small + 0.5
    assert large < 20


def test_deep_graphs_need_no_recursion():
    graph = chain(*["relu", "tanh"] * 10_000)
    Pipeline.parse("canonicalize,eliminate-common,fold-constants,eliminate-dead").run(
        graph, TARGET, verify=False
    )
    assert len(graph) == 20_000


# -- folding


def test_fold_limit_is_noted_and_holds_over_the_whole_run():
    graph = Graph("g", registry=REGISTRY)
    x = graph.add_input("x", TensorType(F32, (64,)))
    for i in range(4):
        ramp = np.arange(4, dtype=np.float32) + i
        c = graph.create("constant", (), {"value": Literal.dense(ramp)}).result
        wide = graph.create("reshape", [c], {"shape": (4, 1)}).result
        wide = graph.create("broadcast_to", [wide], {"shape": (4, 16)}).result
        x = graph.create(
            "add", [x, graph.create("reshape", [wide], {"shape": (64,)}).result]
        ).result
    graph.set_outputs([x], ["y"])
    # Each vector grows by 240 bytes; 500 bytes let two of the four grow, in however many rounds.
    run = Pipeline.parse("(fold-constants{limit=500})*").run(graph, TARGET)
    assert sum(op.name == "broadcast_to" for op in graph.ops) == 2
    assert any("was not folded: 240 more bytes would pass the limit of 500" in n for n in run.notes)


def test_folding_an_index_error_is_left_to_the_model():
    graph = Graph("g", registry=REGISTRY)
    table = graph.create("constant", (), {"value": Literal.dense(np.ones(3, np.float32))}).result
    index = graph.create("constant", (), {"value": Literal.dense(np.array([7]))}).result
    graph.set_outputs([graph.create("gather", [table, index], {"axis": 0}).result], ["y"])
    run = Pipeline.parse("fold-constants").run(graph, TARGET)
    assert "gather" in names_of(graph)
    assert run.journal.rewrites[0].rule == "one-value"


def test_folding_that_overflows_the_weights_is_refused():
    graph = Graph("g", registry=REGISTRY)
    x = graph.add_input("x", TensorType(F32, (1, 1, 2, 2)))
    w = Literal.dense(np.full((1, 1, 1, 1), 1e30, np.float32))
    w_value = graph.create("constant", (), {"value": w}).result
    window = {"strides": (1, 1), "low": (0, 0), "high": (0, 0), "dilations": (1, 1)}
    y = graph.create("conv", [x, w_value], window).result
    big = graph.create("constant", (), {"value": Literal.splat(1e30, F32, ())}).result
    graph.set_outputs([graph.create("mul", [y, big]).result], ["y"])
    run = Pipeline.parse("fold-batch-norm").run(graph, TARGET)
    assert names_of(graph) == ["constant", "conv", "constant", "mul"]
    assert any("not be finite" in reason for _, reason in run.journal.misses)
