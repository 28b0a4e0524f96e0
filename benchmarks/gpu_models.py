"""Networks for the GPU benchmark, written once: as an ONNX model and as a function on torch tensors.

A `Net` records its nodes while a network is written.  `onnx()` gives the model that is compiled,
`torch_module()` the same network for the peers: the same weights, operators of torch.  Weights are
random with a fixed seed and shared; nothing is fetched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

TYPES = {"fp32": ("float32", 1), "fp16": ("float16", 10), "bf16": ("bfloat16", 16)}


class Net:
    """A network under construction; values are names."""

    def __init__(self, precision: str) -> None:
        self.precision = precision
        self.nodes: list[tuple[str, tuple[str, ...], dict[str, Any], str]] = []
        self.weights: dict[str, np.ndarray] = {}
        self.inputs: dict[str, tuple[tuple[int, ...], str, int]] = {}
        self.output = ""
        self.flops = 0.0
        self._random = np.random.default_rng(0)
        self._pool = self._random.standard_normal(1 << 22).astype(np.float32)

    def input(self, name: str, shape: Sequence[int], kind: str = "", below: int = 0) -> str:
        self.inputs[name] = (tuple(shape), kind or self.precision, below)
        return name

    def weight(self, *shape: int, scale: float = 1.0, base: float = 0.0) -> str:
        """Normal numbers of a deviation, around a base; drawn from one pool, at a random place."""
        name = f"w{len(self.weights)}"
        size = math.prod(shape)
        start = int(self._random.integers(0, len(self._pool) - 1))
        flat = np.resize(np.roll(self._pool, start)[: max(size, 1)], size)
        self.weights[name] = (flat * scale + base).reshape(shape).astype(np.float32)
        return name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append((op, inputs, attributes, name))
        return name

    # -- layers

    def linear(self, x: str, inner: int, outer: int, rows: int, *, bias: bool = True) -> str:
        self.flops += 2.0 * rows * inner * outer
        y = self.node("MatMul", x, self.weight(inner, outer, scale=inner**-0.5))
        return self.node("Add", y, self.weight(outer, scale=0.1)) if bias else y

    def conv(self, x: str, c: int, k: int, size: int, stride: int, out: int, groups: int = 1,
             *, batch: int, norm: bool = True) -> str:  # fmt: skip
        pad = size // 2
        self.flops += 2.0 * batch * out * out * k * (c // groups) * size * size
        scale = (2.0 / (c // groups * size * size)) ** 0.5
        names = [x, self.weight(k, c // groups, size, size, scale=scale)]
        if not norm:
            names.append(self.weight(k, scale=0.1))
        y = self.node("Conv", *names, strides=[stride, stride], pads=[pad] * 4, group=groups)
        if not norm:
            return y
        parts = [self.weight(k, scale=0.1, base=b) for b in (1.0, 0.0, 0.0)]
        variance = self.weight(k, scale=0.05, base=1.0)
        return self.node("BatchNormalization", y, *parts, variance)

    def layer_norm(self, x: str, width: int) -> str:
        scale, bias = self.weight(width, scale=0.1, base=1.0), self.weight(width, scale=0.1)
        return self.node("LayerNormalization", x, scale, bias, axis=-1)

    def attention(
        self, q: str, k: str, v: str, batch: int, rows: int, heads: int, size: int
    ) -> str:
        """Of [batch, rows, heads * size] each; the same shape again."""
        self.flops += 4.0 * batch * heads * rows * rows * size
        split = [self.node("Reshape", x, shape=[batch, rows, heads, size]) for x in (q, k, v)]
        moved = [self.node("Transpose", x, perm=[0, 2, 1, 3]) for x in split]
        y = self.node("Attention", *moved)
        back = self.node("Transpose", y, perm=[0, 2, 1, 3])
        return self.node("Reshape", back, shape=[batch, rows, heads * size])

    # -- what it becomes

    @property
    def torch_type(self) -> str:
        """The name in torch of the type that the network computes in."""
        return TYPES[self.precision][0]

    def onnx(self) -> Any:
        """The model, operator set 23."""
        import onnx
        from onnx import helper

        nodes: list[Any] = []
        kind = TYPES[self.precision][1]
        initializers = [self._tensor(n, w) for n, w in self.weights.items()]
        for op, inputs, attributes, output in self.nodes:
            given = list(inputs)
            attributes = dict(attributes)
            if op == "Reshape":
                shape = helper.make_tensor(
                    f"{output}_shape", 7, [len(attributes["shape"])], attributes.pop("shape")
                )
                initializers.append(shape)
                given.append(shape.name)
            nodes.append(helper.make_node(op, given, [output], name=f"{op}_{output}", **attributes))
        inputs = [
            helper.make_tensor_value_info(n, 7 if k == "int64" else TYPES[k][1], list(shape))
            for n, (shape, k, _) in self.inputs.items()
        ]
        out = helper.make_tensor_value_info(self.output, kind, None)
        graph = helper.make_graph(nodes, "net", inputs, [out], initializers)
        opset = helper.make_opsetid("", 23)
        return helper.make_model(graph, opset_imports=[opset], ir_version=onnx.IR_VERSION)

    def _tensor(self, name: str, array: np.ndarray) -> Any:
        import ml_dtypes
        from onnx import TensorProto

        kinds = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
        data = array.astype(kinds[self.precision])
        return TensorProto(
            name=name, dims=list(array.shape), data_type=TYPES[self.precision][1],
            raw_data=data.tobytes(),
        )  # fmt: skip

    def torch_module(self, dtype: Any = None, *, channels_last: bool = False) -> Any:
        """The network as a module on the GPU, in its precision or in `dtype`."""
        import torch

        kind = dtype or getattr(torch, TYPES[self.precision][0])
        net = self

        class Module(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                for name, array in net.weights.items():
                    tensor = torch.from_numpy(array).to(
                        "cuda", getattr(torch, TYPES[net.precision][0])
                    )
                    tensor = tensor.to(kind)
                    if channels_last and tensor.ndim == 4:
                        tensor = tensor.contiguous(memory_format=torch.channels_last)
                    self.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))

            def forward(self, *given: Any) -> Any:
                values = dict(zip(net.inputs, given, strict=True))
                for op, inputs, attributes, output in net.nodes:
                    operands = [values[i] if i in values else getattr(self, i) for i in inputs]
                    values[output] = TORCH[op](*operands, **attributes)
                return values[net.output]

        return Module().eval()

    def arguments(self, dtype: Any = None) -> list[Any]:
        """Random inputs on the GPU."""
        import torch

        out: list[Any] = []
        generator = torch.Generator("cuda").manual_seed(1)
        for shape, kind, below in self.inputs.values():
            if kind == "int64":
                out.append(torch.randint(0, below, shape, device="cuda", generator=generator))
            else:
                made = torch.randn(shape, device="cuda", generator=generator)
                made = made.to(getattr(torch, TYPES[kind][0]))
                out.append(made if dtype is None else made.to(dtype))
        return out


def _torch_ops() -> dict[str, Callable[..., Any]]:
    import torch
    import torch.nn.functional as F

    return {
        "MatMul": torch.matmul, "Add": torch.add, "Mul": torch.mul, "Relu": F.relu,
        "Sigmoid": torch.sigmoid, "HardSwish": F.hardswish, "HardSigmoid": lambda x, alpha: F.hardsigmoid(x),
        "Gelu": F.gelu,
        "Conv": lambda x, w, b=None, *, strides, pads, group: F.conv2d(
            x, w, b, strides, pads[:2], 1, group
        ),
        "BatchNormalization": lambda x, s, b, m, v: F.batch_norm(x, m, v, s, b, eps=1e-5),
        "LayerNormalization": lambda x, s, b, axis: F.layer_norm(x, s.shape, s, b, 1e-5),
        "MaxPool": lambda x, kernel_shape, strides, pads: F.max_pool2d(x, kernel_shape, strides, pads[0]),
        "GlobalAveragePool": lambda x: x.mean((2, 3), keepdim=True),
        "Attention": lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        "Reshape": lambda x, shape: x.reshape(shape),
        "Transpose": lambda x, perm: x.permute(perm),
        "Gather": lambda x, i, axis=0: F.embedding(i, x),
        "Flatten": lambda x: x.flatten(1),
    }  # fmt: skip


class _Lazy(dict[str, Callable[..., Any]]):
    def __missing__(self, key: str) -> Callable[..., Any]:
        self.update(_torch_ops())
        return self[key]


TORCH: dict[str, Callable[..., Any]] = _Lazy()


def resnet50(batch: int, precision: str = "fp16") -> Net:
    net = Net(precision)
    x = net.input("x", (batch, 3, 224, 224))
    x = net.node("Relu", net.conv(x, 3, 64, 7, 2, 112, batch=batch))
    x = net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels, size = 64, 56
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            stride = 2 if block == 0 and width > 64 else 1
            size //= stride
            y = net.node("Relu", net.conv(x, channels, width, 1, 1, size * stride, batch=batch))
            y = net.node("Relu", net.conv(y, width, width, 3, stride, size, batch=batch))
            y = net.conv(y, width, 4 * width, 1, 1, size, batch=batch)
            if block == 0:
                x = net.conv(x, channels, 4 * width, 1, stride, size, batch=batch)
            x = net.node("Relu", net.node("Add", y, x))
            channels = 4 * width
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    net.output = net.linear(x, 2048, 1000, batch)
    return net


def encoder(net: Net, x: str, batch: int, rows: int, width: int, heads: int, layers: int,
            *, norm_first: bool) -> str:  # fmt: skip
    """Transformer layers on [batch, rows, width]."""
    count = batch * rows
    for _ in range(layers):
        y = net.layer_norm(x, width) if norm_first else x
        q, k, v = (net.linear(y, width, width, count) for _ in range(3))
        y = net.attention(q, k, v, batch, rows, heads, width // heads)
        x = net.node("Add", net.linear(y, width, width, count), x)
        if not norm_first:
            x = net.layer_norm(x, width)
        y = net.layer_norm(x, width) if norm_first else x
        y = net.node("Gelu", net.linear(y, width, 4 * width, count))
        x = net.node("Add", net.linear(y, 4 * width, width, count), x)
        if not norm_first:
            x = net.layer_norm(x, width)
    return x


def bert_large(batch: int, rows: int, precision: str = "fp16") -> Net:
    net = Net(precision)
    ids = net.input("ids", (batch, rows), "int64", 30000)
    x = net.node("Gather", net.weight(30522, 1024), ids, axis=0)
    x = net.node("Add", x, net.weight(1, rows, 1024, scale=0.3))
    x = net.layer_norm(x, 1024)
    net.output = encoder(net, x, batch, rows, 1024, 16, 24, norm_first=False)
    return net


def vit_b16(batch: int, precision: str = "fp16") -> Net:
    """Without the class token: 196 patches, as in pooled variants."""
    net = Net(precision)
    x = net.input("x", (batch, 3, 224, 224))
    net.flops += 2.0 * batch * 196 * 768 * 768
    x = net.node("Conv", x, net.weight(768, 3, 16, 16, scale=0.04), net.weight(768, scale=0.1),
                 strides=[16, 16], pads=[0] * 4, group=1)  # fmt: skip
    x = net.node("Transpose", net.node("Reshape", x, shape=[batch, 768, 196]), perm=[0, 2, 1])
    x = net.node("Add", x, net.weight(1, 196, 768, scale=0.3))
    x = encoder(net, x, batch, 196, 768, 12, 12, norm_first=True)
    net.output = net.linear(net.layer_norm(x, 768), 768, 1000, batch * 196)
    return net


def convnext_tiny(batch: int, precision: str = "fp16") -> Net:
    net = Net(precision)
    x = net.input("x", (batch, 3, 224, 224))
    x = net.node("Conv", x, net.weight(96, 3, 4, 4, scale=0.15), net.weight(96, scale=0.1),
                 strides=[4, 4], pads=[0] * 4, group=1)  # fmt: skip
    x = net.node("Transpose", x, perm=[0, 2, 3, 1])
    x = net.layer_norm(x, 96)
    size = 56
    for stage, (width, blocks) in enumerate(((96, 3), (192, 3), (384, 9), (768, 3))):
        if stage:
            x = net.node("Transpose", net.layer_norm(x, width // 2), perm=[0, 3, 1, 2])
            size //= 2
            net.flops += 2.0 * batch * size * size * width * width // 2 * 4
            x = net.node("Conv", x, net.weight(width, width // 2, 2, 2, scale=(2 * width) ** -0.5),
                         net.weight(width, scale=0.1), strides=[2, 2], pads=[0] * 4, group=1)  # fmt: skip
            x = net.node("Transpose", x, perm=[0, 2, 3, 1])
        for _ in range(blocks):
            y = net.node("Transpose", x, perm=[0, 3, 1, 2])
            y = net.conv(y, width, width, 7, 1, size, width, batch=batch, norm=False)
            y = net.layer_norm(net.node("Transpose", y, perm=[0, 2, 3, 1]), width)
            y = net.node("Gelu", net.linear(y, width, 4 * width, batch * size * size))
            y = net.linear(y, 4 * width, width, batch * size * size)
            y = net.node("Mul", y, net.weight(width, scale=0.1, base=0.5))
            x = net.node("Add", x, y)
    x = net.node("GlobalAveragePool", net.node("Transpose", x, perm=[0, 3, 1, 2]))
    net.output = net.linear(net.layer_norm(net.node("Flatten", x), 768), 768, 1000, batch)
    return net


def mobilenet_v3(batch: int, precision: str = "fp16") -> Net:
    net = Net(precision)
    x = net.input("x", (batch, 3, 224, 224))
    x = net.node("HardSwish", net.conv(x, 3, 16, 3, 2, 112, batch=batch))
    rows = [  # kernel, expanded, out, squeeze and excite, activation, stride
        (3, 16, 16, 0, "Relu", 1), (3, 64, 24, 0, "Relu", 2), (3, 72, 24, 0, "Relu", 1),
        (5, 72, 40, 1, "Relu", 2), (5, 120, 40, 1, "Relu", 1), (5, 120, 40, 1, "Relu", 1),
        (3, 240, 80, 0, "HardSwish", 2), (3, 200, 80, 0, "HardSwish", 1),
        (3, 184, 80, 0, "HardSwish", 1), (3, 184, 80, 0, "HardSwish", 1),
        (3, 480, 112, 1, "HardSwish", 1), (3, 672, 112, 1, "HardSwish", 1),
        (5, 672, 160, 1, "HardSwish", 2), (5, 960, 160, 1, "HardSwish", 1),
        (5, 960, 160, 1, "HardSwish", 1),
    ]  # fmt: skip
    channels, size = 16, 112
    for kernel, wide, out, squeeze, act, stride in rows:
        y = x
        if wide != channels:
            y = net.node(act, net.conv(y, channels, wide, 1, 1, size, batch=batch))
        size //= stride
        y = net.node(act, net.conv(y, wide, wide, kernel, stride, size, wide, batch=batch))
        if squeeze:
            few = -(-wide // 32) * 8
            s = net.node("GlobalAveragePool", y)
            s = net.node("Relu", net.conv(s, wide, few, 1, 1, 1, batch=batch, norm=False))
            s = net.conv(s, few, wide, 1, 1, 1, batch=batch, norm=False)
            y = net.node("Mul", y, net.node("HardSigmoid", s, alpha=1 / 6))
        y = net.conv(y, wide, out, 1, 1, size, batch=batch)
        x = net.node("Add", y, x) if stride == 1 and channels == out else y
        channels = out
    x = net.node("HardSwish", net.conv(x, 160, 960, 1, 1, 7, batch=batch))
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    x = net.node("HardSwish", net.linear(x, 960, 1280, batch))
    net.output = net.linear(x, 1280, 1000, batch)
    return net


# name: (network, floor in ms on an H200: bytes that must move, or operations, whichever is longer)
WORKLOADS: dict[str, tuple[Callable[[], Net], float]] = {
    "bert_large_fp16_b1_s128": (lambda: bert_large(1, 128), 0.141),
    "bert_large_fp16_b32_s384": (lambda: bert_large(32, 384), 9.98),
    "resnet50_fp16_b1": (lambda: resnet50(1), 0.012),
    "resnet50_fp16_b64": (lambda: resnet50(64), 0.663),
    "vit_b16_fp16_b1": (lambda: vit_b16(1), 0.044),
    "vit_b16_fp16_b64": (lambda: vit_b16(64), 2.83),
    "mobilenet_v3_fp16_b1": (lambda: mobilenet_v3(1), 0.003),
    "mobilenet_v3_fp16_b128": (lambda: mobilenet_v3(128), 0.3),
    "convnext_tiny_fp16_b32": (lambda: convnext_tiny(32), 0.4),
}
