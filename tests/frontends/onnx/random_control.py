"""Random models of nested If, Loop and Scan, with captures, sequences, growing and stacked values."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper

WIDTH = 3


class Block:
    """Nodes of one graph; `vectors` are the names of float[3] values that may be read."""

    def __init__(self, outer: Program, vectors: list[str], numbers: list[str]) -> None:
        self.program, self.nodes = outer, list[NodeProto]()
        self.vectors, self.numbers = list(vectors), list(numbers)

    def emit(self, op: str, *inputs: str, outputs: int = 1, **attributes: object) -> list[str]:
        names = [self.program.fresh(op.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names

    def one(self, op: str, *inputs: str, **attributes: object) -> str:
        return self.emit(op, *inputs, **attributes)[0]

    def constant(self, value: object, dtype: type) -> str:
        tensor = onnx.numpy_helper.from_array(np.array(value, dtype))
        return self.one("Constant", value=tensor)

    def vector(self) -> str:
        # The newest are the most interesting.
        recent = self.vectors[-4:]
        return recent[self.program.rng.integers(len(recent))]

    def sum(self, name: str) -> str:
        """A scalar of any tensor."""
        return self.one("ReduceSum", name, keepdims=0)

    def condition(self) -> str:
        # An odd margin, so that no decision hangs on the last bit of saturated values.
        margin = self.constant(self.program.rng.standard_normal(), np.float32)
        bound = self.one("Add", self.sum(self.vector()), margin)
        return self.one("Less", self.sum(self.vector()), bound)

    def add_vector(self, name: str) -> None:
        self.vectors.append(self.one("Tanh", name))

    def statements(self, depth: int, count: int) -> None:
        for _ in range(count):
            kinds = ["binary", "unary"] + ["if", "loop", "loop", "scan"] * (depth > 0)
            getattr(self, f"_{self.program.pick(kinds)}")(depth)

    def _unary(self, depth: int) -> None:
        del depth
        self.vectors.append(self.one(self.program.pick(["Neg", "Sin", "Abs"]), self.vector()))

    def _binary(self, depth: int) -> None:
        del depth
        op = self.program.pick(["Add", "Sub", "Mul", "Max"])
        self.vectors.append(self.one(op, self.vector(), self.vector()))

    def inside(self) -> Block:
        return Block(self.program, self.vectors, self.numbers)

    def _if(self, depth: int) -> None:
        condition, count = self.condition(), int(self.program.rng.integers(1, 3))
        bodies = []
        for name in ("then_branch", "else_branch"):
            block = self.inside()
            block.statements(depth - 1, 2)
            outputs = [block.one("Identity", block.vector()) for _ in range(count)]
            bodies.append(self.program.graph(name, block, [], [(o, [WIDTH]) for o in outputs]))
        self.vectors += self.emit(
            "If", condition, outputs=count, then_branch=bodies[0], else_branch=bodies[1]
        )

    def _loop(self, depth: int) -> None:
        program, rng = self.program, self.program.rng
        block = self.inside()
        i, go = program.fresh("i"), program.fresh("go")
        carried = [self.vector() for _ in range(rng.integers(1, 3))]
        inside = [program.fresh("carried") for _ in carried]
        inputs = [(i, TensorProto.INT64, []), (go, TensorProto.BOOL, [])]
        inputs += [(n, TensorProto.FLOAT, [WIDTH]) for n in inside]
        block.vectors += inside
        block.numbers.append(i)
        counted = block.one("Cast", i, to=TensorProto.FLOAT)
        block.vectors.append(block.one("Sub", inside[0], counted))
        block.statements(depth - 1, 2)
        limit = block.constant(int(rng.integers(1, 6)), np.int64)
        goes = block.one("Less", i, limit)
        if rng.random() < 0.3:
            goes = block.one("Or", goes, block.condition())
        if rng.random() < 0.5:
            goes = block.one("Identity", go)
        outputs = [(goes, [])]
        outputs += [(block.one("Identity", block.vector()), [WIDTH]) for _ in carried]
        initial = list(carried)
        grows, appends = rng.random() < 0.4, rng.random() < 0.3
        if grows:
            held = program.fresh("grown")
            inputs.append((held, TensorProto.FLOAT, ["P"]))
            initial.append(self.vector())
            outputs.append((block.one("Concat", held, block.vector(), axis=0), ["Q"]))
        sequences = []
        if appends:
            held = program.fresh("sequence")
            sequences.append(held)
            initial.append(self.one("SequenceConstruct", self.vector()))
            front = [block.constant(0, np.int64)] * (rng.random() < 0.5)
            sequences.append(block.one("SequenceInsert", held, block.vector(), *front))
        rows = int(rng.integers(0, 3))
        for _ in range(rows):
            row = block.vector()
            as_matrix = rng.random() < 0.3
            if as_matrix:
                axis = block.constant([0], np.int64)
                row = block.one("Unsqueeze", row, axis)
            outputs.append((block.one("Identity", row), [1, WIDTH] if as_matrix else [WIDTH]))
        body = program.graph("body", block, inputs, outputs, sequences, rows)
        trips = program.pick([*self.numbers, self.constant(int(rng.integers(0, 5)), np.int64)])
        condition = self.condition() if rng.random() < 0.3 else self.constant(True, np.bool_)
        results = self.emit(
            "Loop", trips, condition, *initial, outputs=len(initial) + rows, body=body
        )
        self.vectors += results[: len(carried)]
        rest = results[len(carried) :]
        if appends:
            joined = rest.pop(1 if grows else 0)
            rest.insert(0, self.one("ConcatFromSequence", joined, axis=0))
        for name in rest:
            self.add_vector(self.one("Add", self.vector(), self.sum(name)))

    def _scan(self, depth: int) -> None:
        program, rng = self.program, self.program.rng
        block = self.inside()
        state, row = program.fresh("state"), program.fresh("row")
        block.vectors += [row, state]
        block.statements(depth - 1, 1)
        after = block.one("Tanh", block.one("Add", state, block.vector()))
        out = block.one("Mul", after, row)
        shape = [WIDTH]
        body = program.graph(
            "body", block,
            [(state, TensorProto.FLOAT, shape), (row, TensorProto.FLOAT, shape)],
            [(after, shape), (out, shape)],
        )  # fmt: skip
        last, rows = self.emit(
            "Scan", self.vector(), "table", outputs=2, body=body, num_scan_inputs=1,
            scan_input_directions=[int(rng.integers(2))],
            scan_output_axes=[int(rng.integers(2))], scan_output_directions=[int(rng.integers(2))],
        )  # fmt: skip
        self.vectors.append(last)
        self.add_vector(self.one("Add", self.vector(), self.sum(rows)))


class Program:
    """`model` reads float[3] `x` and `y`, int64 `n`, and float[T, 3] `table`."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self._count = 0
        block = Block(self, ["x", "y"], ["n"])
        block.statements(2, 5)
        info = helper.make_tensor_value_info
        outputs = block.vectors[-4:]
        ends = [block.one("Identity", o) for o in outputs]
        graph = helper.make_graph(
            block.nodes, f"random_{seed}",
            [info("x", 1, [WIDTH]), info("y", 1, [WIDTH]), info("n", 7, []),
             info("table", 1, ["T", WIDTH])],
            [info(e, 1, [WIDTH]) for e in ends],
        )  # fmt: skip
        opset = helper.make_opsetid("", 17)
        self.model = helper.make_model(graph, opset_imports=[opset], ir_version=8)

    def fresh(self, stem: str) -> str:
        self._count += 1
        return f"{stem}_{self._count}"

    def pick(self, choices: list[str]) -> str:
        return choices[int(self.rng.integers(len(choices)))]

    def graph(
        self, name: str, block: Block, inputs: list[tuple[str, int, list]],
        outputs: list[tuple[str, list]], sequences: list[str] | None = None, rows: int = 0,
    ) -> onnx.GraphProto:  # fmt: skip
        """A subgraph; `sequences`: (input, output) names of one that comes before the rows."""
        info = helper.make_tensor_value_info
        given = [info(n, t, s) for n, t, s in inputs]
        made = [info(n, 9 if not k and inputs and name == "body" and not s else 1, s) for k, (n, s) in enumerate(outputs)]  # fmt: skip
        if sequences:
            type = helper.make_tensor_type_proto(1, [WIDTH])
            kind = helper.make_sequence_type_proto(type)
            given.append(helper.make_value_info(sequences[0], kind))
            made.insert(len(made) - rows, helper.make_value_info(sequences[1], kind))
        return helper.make_graph(block.nodes, name, given, made)

    def feeds(self) -> list[dict[str, np.ndarray]]:
        """Several trip counts and table lengths."""
        rng = np.random.default_rng(1)
        return [
            {
                "x": rng.standard_normal(WIDTH).astype(np.float32),
                "y": rng.standard_normal(WIDTH).astype(np.float32),
                "n": np.array(n),
                "table": rng.standard_normal((t, WIDTH)).astype(np.float32),
            }
            for n, t in [(2, 3), (0, 1), (5, 4)]
        ]
