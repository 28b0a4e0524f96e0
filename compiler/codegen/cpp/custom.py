"""Custom ops that bring a C++ function: the kernel calls it with pointers, shapes and attributes."""

from __future__ import annotations

from typing import Any

from graphwright.compiler.codegen.cpp.call import Call
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import problem
from graphwright.compiler.ir.graph import Op, Value


def emit_custom(op: Op) -> list[EmittedLaunch]:
    """A call of the function named as the op.

    Its parameters: for each operand a pointer and its shape (const int64_t*), for each result the
    same, the attributes in declared order, and last the pool.
    """
    call = Call(op, "gw/loops.h")
    call.builder.includes = list(dict.fromkeys(call.builder.includes))
    lines: list[str] = []
    arguments: list[str] = []

    def pass_tensor(pointer: str, value: Value) -> None:
        extents = [call.size(f"{pointer}_{i}", d) for i, d in enumerate(value.type.shape)]
        shape = ", ".join(extents) or "0"
        lines.append(f"const int64_t {pointer}_shape[] = {{{shape}}};")
        arguments.extend([pointer, f"{pointer}_shape"])

    for i, value in enumerate(op.operands):
        pass_tensor(call.operand(i), value)
    for i, value in enumerate(op.results):
        pass_tensor(call.result(i), value)
    arguments += [_literal(op, name, value) for name, value in op.attributes.items()]
    call.builder.functions.append(f"namespace KERNEL_NAME_own {{\n{op.definition.cpp_source}\n}}\n")
    lines.append(f"KERNEL_NAME_own::{op.name}({', '.join([*arguments, 'pool'])});")
    return call.launch(lines)


def _literal(op: Op, name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        text = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{text}"'
    raise problem(
        op, f"its attribute {name} is a {type(value).__name__}, want a number or text for C++"
    )
