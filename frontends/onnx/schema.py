"""What the onnx package's op schemas say: which ops and defaults exist, and function bodies."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import onnx
from onnx import AttributeProto, FunctionProto, helper

from graphwright.compiler.ir.dims import Expr
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal
from graphwright.frontends.onnx.structure import domain_of
from graphwright.frontends.onnx.tensors import ONNX_TYPE

# Ops that ONNX Runtime puts into the default domain, of which ONNX knows nothing.
FOREIGN = frozenset({"SimplifiedLayerNormalization"})
NEWEST_OPSET = onnx.defs.onnx_opset_version()


@lru_cache(maxsize=4096)
def schema_of(op: str, opset: int, domain: str = "") -> onnx.defs.OpSchema | None:
    """The schema of an op as of an opset of its domain, or None."""
    if opset < 1:
        return None
    try:
        return onnx.defs.get_schema(op, opset if domain else min(opset, NEWEST_OPSET), domain)
    except onnx.defs.SchemaError:
        return None


def defaults_of(node: Node) -> dict[str, Any]:
    """{attribute: default} of a node's op, where ONNX gives one."""
    return {} if domain_of(node.proto.domain) else _defaults(node.type, node.opset)


@lru_cache(maxsize=4096)
def _defaults(op: str, opset: int) -> dict[str, Any]:
    schema = schema_of(op, opset)
    found: dict[str, Any] = {}
    for name, attribute in schema.attributes.items() if schema else ():
        if attribute.default_value.type:
            value = helper.get_attribute_value(attribute.default_value)
            found[name] = value.decode() if isinstance(value, bytes) else value
    return found


@lru_cache(maxsize=4096)
def _kinds(op: str, opset: int) -> dict[str, int]:
    """{attribute: AttributeProto type} of an op."""
    schema = schema_of(op, opset)
    assert schema is not None
    return {name: int(a.type.value) for name, a in schema.attributes.items()}


@lru_cache(maxsize=4096)
def _required(op: str, opset: int) -> frozenset[str]:
    schema = schema_of(op, opset)
    assert schema is not None
    return frozenset(name for name, a in schema.attributes.items() if a.required)


def check_known(node: Node) -> None:
    """Raises Refusal when the opset has no such op, or an attribute is missing or of a wrong kind."""
    if node.type in FOREIGN:
        return
    if schema_of(node.type, node.opset) is None:
        newer = schema_of(node.type, NEWEST_OPSET)
        hint = f"; it came with opset {newer.since_version}" if newer else ""
        fix = (
            f"export with opset {newer.since_version} or newer"
            if newer
            else "replace it by standard ops, or declare it in a domain of its own with custom_ops"
        )
        raise Refusal(f"ONNX has no op {node.type} in opset {node.opset}{hint}", fix)
    given = node.attribute_protos
    if missing := _required(node.type, node.opset) - given.keys():
        raise Refusal(f"its attribute {min(missing)} is missing")
    if given:
        kinds = _kinds(node.type, node.opset)
        for name, attribute in given.items():
            want = kinds.get(name)
            if want is None:
                raise Refusal(
                    f"ONNX's {node.type} has no attribute {name} in opset {node.opset}",
                    "remove it, or export for the opset that has it",
                )
            if attribute.type != want:
                kind, wanted = map(AttributeProto.AttributeType.Name, (attribute.type, want))
                raise Refusal(f"its attribute {name} is of the kind {kind}, want {wanted}")


def is_default(node: Node, attribute: AttributeProto) -> bool:
    """Whether an attribute just states the default."""
    default = defaults_of(node).get(attribute.name)
    value = helper.get_attribute_value(attribute)
    value = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return default is not None and default == value


def function_body(node: Node) -> FunctionProto | None:
    """The op's definition by other ops, for this node's types, or None when it has none."""
    schema = schema_of(node.type, node.opset, domain_of(node.proto.domain))
    if schema is None:
        return None
    if schema.has_function:
        body = FunctionProto()
        versions = [v for v in schema.function_opset_versions if v <= node.opset]
        if versions:
            data = schema.get_function_with_opset_version(max(versions))
            body.ParseFromString(data if isinstance(data, bytes) else data.SerializeToString())
            return _completed(body, node, schema)
    if schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= node.opset]
        if versions:
            types = [_type_proto(node, i) for i in range(len(node.proto.input))]
            try:
                data = schema.get_context_dependent_function_with_opset_version(
                    max(versions), _plain(node).SerializeToString(), types
                )
            except (RuntimeError, UnicodeDecodeError) as e:
                raise Refusal(f"its attributes and inputs make no valid {node.type}: {e}") from e
            body = FunctionProto()
            body.ParseFromString(data)
            return _completed(body, node, schema)
    return None


def _plain(node: Node) -> onnx.NodeProto:
    """The node with attribute references resolved."""
    plain = onnx.NodeProto()
    plain.CopyFrom(node.proto)
    del plain.attribute[:]
    for name, attribute in node.attribute_protos.items():
        plain.attribute.add().CopyFrom(attribute)
        plain.attribute[-1].name = name
    return plain


def _completed(body: FunctionProto, node: Node, schema: onnx.defs.OpSchema) -> FunctionProto:
    """The body with a name, a version and the schema's defaults of its attributes."""
    body.domain, body.name = node.proto.domain or "ai.onnx", node.type
    stated = {a.name for a in body.attribute_proto}
    for name in body.attribute:
        declared = schema.attributes.get(name)
        if declared is not None and declared.default_value.type and name not in stated:
            body.attribute_proto.add().CopyFrom(declared.default_value)
    if not any(domain_of(o.domain) == "" for o in body.opset_import):
        body.opset_import.add(domain="", version=node.scope.opset("") or NEWEST_OPSET)
    return body


def _type_proto(node: Node, i: int) -> bytes:
    if not node.has_input(i):
        return onnx.TypeProto().SerializeToString()
    type = node.x(i).type
    shape = [str(d) if isinstance(d, Expr) else d for d in type.shape]
    return helper.make_tensor_type_proto(ONNX_TYPE[type.dtype], shape).SerializeToString()
