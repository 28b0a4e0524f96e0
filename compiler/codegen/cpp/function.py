"""A kernel's C++ frame: header comment, parameters, worker functions, the exported entry."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from graphwright.compiler.codegen.cpp.types import is_supported, storage_type
from graphwright.compiler.codegen.expressions import Variable
from graphwright.compiler.codegen.kernel import Argument, EmittedKernel, EmittedLaunch
from graphwright.compiler.codegen.lower import problem
from graphwright.compiler.ir.dims import Dim, Expr
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.printer import print_graph
from graphwright.compiler.ir.types import DType, TensorType


@dataclass(frozen=True, slots=True)
class Parameter:
    """One pointer of a kernel: its C++ name, element type, whether it is written, what is passed."""

    name: str
    type: str
    written: bool
    argument: Argument
    restrict: bool = True

    @property
    def declaration(self) -> str:
        const = "" if self.written else "const "
        return f"{const}{self.type}* {'GW_RESTRICT ' if self.restrict else ''}{self.name}"


@dataclass(slots=True)
class KernelBuilder:
    """Collects the parts of one kernel; `launch` assembles them.

    `op` is the top-level op.  Scalars are passed by name: a model symbol, or a dim under a name of
    the kernel's own (a trip count), so that kernels that differ only in sizes are one.
    """

    op: Op
    stem: str
    parameters: list[Parameter] = field(default_factory=list[Parameter])
    scalars: dict[str, Dim] = field(default_factory=dict[str, Dim])
    functions: list[str] = field(default_factory=list[str])
    body: list[str] = field(default_factory=list[str])
    includes: list[str] = field(default_factory=lambda: ["gw/loops.h", "gw/scalar.h"])
    in_place: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def pointer(self, name: str, type: str, argument: Argument, *, written: bool = False) -> str:
        """Declares a pointer parameter and returns its name."""
        self.parameters.append(Parameter(name, type, written, argument))
        return name

    def tensor(self, name: str, value: Value, *, written: bool = False) -> str:
        """Declares the pointer to a tensor."""
        check_dtype(self.op, value.type.dtype)
        return self.pointer(name, storage_type(value.type.dtype), value, written=written)

    def scalar(self, name: str, value: Dim) -> str:
        """Declares an int64 scalar and returns its name."""
        known = self.scalars.setdefault(name, value)
        if known != value:
            raise ValueError(f"scalar {name} is {known} and {value}")
        return name

    def size(self, dim: Dim) -> str:
        """The C++ text of a dim over model symbols: a number, or a scalar of that value."""
        if not isinstance(dim, Expr):
            return str(dim)
        symbol = dim.symbol
        if isinstance(symbol, Variable):
            return symbol.name
        for name, value in self.scalars.items():
            if value == dim:
                return name
        if symbol is not None and re.fullmatch(r"[A-Za-z]\w{0,15}", symbol.name):
            return self.scalar(f"dim_{symbol.name}", dim)
        return self.scalar(f"size{len(self.scalars)}", dim)

    def unrestrict(self, names: Iterable[str]) -> None:
        """These pointers may point to one storage: no GW_RESTRICT."""
        shared = set(names)
        self.parameters = [
            replace(p, restrict=False) if p.name in shared else p for p in self.parameters
        ]

    @property
    def parameter_list(self) -> str:
        """The worker functions' parameters: pointers, then scalars."""
        parts = [p.declaration for p in self.parameters]
        return ", ".join([*parts, *(f"int64_t {s}" for s in self.scalars)])

    @property
    def argument_list(self) -> str:
        """What the entry passes to a worker function."""
        return ", ".join([*(p.name for p in self.parameters), *self.scalars])

    def launch(self, body: Graph | None, operands: Sequence[Value]) -> EmittedLaunch:
        """The kernel and its launch."""
        entry = ['extern "C" GW_EXPORT void KERNEL_NAME(void* const* p, const int64_t* s,']
        entry.append("    const gw_pool* pool) {")
        for i, p in enumerate(self.parameters):
            const = "" if p.written else "const "
            entry.append(f"  auto* const {p.name} = static_cast<{const}{p.type}*>(p[{i}]);")
        for i, name in enumerate(self.scalars):
            entry.append(f"  const int64_t {name} = s[{i}];")
        if not self.scalars:
            entry.append("  (void)s;")
        if not any("pool" in line for line in self.body):
            entry.append("  (void)pool;")
        entry += [f"  {line}" if line else "" for line in self.body]
        entry.append("}")
        # The comment is not part of the kernel's identity: kernels with equal code are one.
        code = "\n".join([*self.functions, *entry]) + "\n"
        kernel = EmittedKernel.named(self.stem, code, self.summary(body))
        index = {p.name: i for i, p in enumerate(self.parameters)}
        return EmittedLaunch(
            kernel=EmittedKernel(
                kernel.name, f"{_comment(body, self.op)}{kernel.source}", kernel.summary
            ),
            arguments=tuple(p.argument for p in self.parameters),
            writes=tuple(i for i, p in enumerate(self.parameters) if p.written),
            scalars=tuple(self.scalars.values()),
            ops=(self.op.id,),
            origins=self.op.origins,
            in_place=tuple((index[w], index[r]) for w, r in self.in_place if r in index),
            includes=tuple(self.includes),
        )

    def summary(self, body: Graph | None) -> str:
        if body is None:
            return self.op.name
        return " ".join(op.name for op in body.ops)


def _comment(body: Graph | None, op: Op) -> str:
    if body is None:
        from graphwright.compiler.ir.printer import print_op

        return f"// {print_op(op)}\n"
    copy = body.clone()
    copy.name = op.attributes.get("region", op.name)
    for i, value in enumerate(copy.inputs):
        value.name = f"in{i}"
    copy.set_outputs(copy.outputs, [f"out{i}" for i in range(len(copy.outputs))])
    return "".join(f"// {line}\n" for line in print_graph(copy).splitlines())


def check_dtype(op: Op, dtype: DType) -> None:
    """Raises UnsupportedError for an element type that C++ kernels do not know."""
    if not is_supported(dtype):
        raise problem(op, f"element type {dtype.long_name} has no C++ kernels", "cast it")


def type_order(type: TensorType) -> tuple[int, ...]:
    """The axes in physical order, outermost first (blocks ignored)."""
    return tuple(range(type.rank)) if type.layout is None else type.layout.order
