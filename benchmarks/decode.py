"""One decoding step of Llama-shaped models on a GPU: ours beside torch (eager, CUDA graphs), in one run.

    python benchmarks/decode.py [1b|8b|NAME ...] [--layers N] [--tied] [--peers eager,graphs] [--profile]
                                [--output FILE.json]

The model is a torch module with a static cache in its buffers, imported through torch.export; the
position is an input.  Weights are random, made on the device.  Every answer is compared with the
module in float32.  Times are medians of device events around one call, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from gpu import compete, error_of, host_microseconds, milliseconds, profiled

import graphwright as gw


@dataclass(frozen=True)
class Shape:
    """Sizes of a model; `floor`: ms that its bytes take at 4.3 TB/s."""

    layers: int
    width: int
    heads: int
    groups: int
    size: int
    hidden: int
    words: int = 128256
    context: int = 1024
    tied: bool = False  # every layer has the weights of the first (and a cache of its own)

    @property
    def bytes(self) -> int:
        """Weights and cache, each read once (the embedding is one row)."""
        attention = self.width * self.size * (2 * self.heads + 2 * self.groups)
        layer = attention + 3 * self.width * self.hidden
        layer += 2 * self.groups * self.size * self.context
        return 2 * (self.layers * layer + self.words * self.width)


SHAPES = {
    "1b": Shape(16, 2048, 32, 8, 64, 8192),
    "8b": Shape(32, 4096, 32, 8, 128, 14336),
    "tiny": Shape(2, 64, 4, 2, 16, 128, words=96, context=40),
}


def parameter(*shape: int, device: str, dtype: torch.dtype) -> torch.nn.Parameter:
    made = torch.randn(*shape, device=device, dtype=dtype) * shape[-1] ** -0.5
    return torch.nn.Parameter(made, requires_grad=False)


class Layer(torch.nn.Module):
    def __init__(self, s: Shape, device: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.shape = s

        def weight(rows: int, columns: int) -> torch.nn.Parameter:
            return parameter(rows, columns, device=device, dtype=dtype)

        self.query = weight(s.heads * s.size, s.width)
        self.key = weight(s.groups * s.size, s.width)
        self.value = weight(s.groups * s.size, s.width)
        self.out = weight(s.width, s.heads * s.size)
        self.gate, self.up = weight(s.hidden, s.width), weight(s.hidden, s.width)
        self.down = weight(s.width, s.hidden)
        self.first_norm = norm_weight(s.width, device, dtype)
        self.second_norm = norm_weight(s.width, device, dtype)
        for name in ("keys", "values"):
            made = torch.randn(1, s.groups, s.context, s.size, device=device, dtype=dtype)
            self.register_buffer(name, made)

    def forward(self, x: Any, cos: Any, sin: Any, mask: Any, position: Any) -> Any:
        s = self.shape
        y = rms_norm(x, self.first_norm)
        q = F.linear(y, self.query).view(1, 1, s.heads, s.size).transpose(1, 2)
        k = F.linear(y, self.key).view(1, 1, s.groups, s.size).transpose(1, 2)
        v = F.linear(y, self.value).view(1, 1, s.groups, s.size).transpose(1, 2)
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        self.keys.index_copy_(2, position, k)
        self.values.index_copy_(2, position, v)
        y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask,
                                           enable_gqa=True)  # fmt: skip
        x = x + F.linear(y.transpose(1, 2).reshape(1, 1, -1), self.out)
        y = rms_norm(x, self.second_norm)
        return x + F.linear(F.silu(F.linear(y, self.gate)) * F.linear(y, self.up), self.down)


def norm_weight(width: int, device: str, dtype: torch.dtype) -> torch.nn.Parameter:
    made = 1 + 0.1 * torch.randn(width, device=device, dtype=dtype)
    return torch.nn.Parameter(made, requires_grad=False)


def rms_norm(x: Any, weight: Any) -> Any:
    y = x.float()
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5)
    return y.to(x.dtype) * weight


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Decoder(torch.nn.Module):
    """One token of one sequence: logits of what follows it."""

    def __init__(self, s: Shape, device: str, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.shape = s
        self.words = parameter(s.words, s.width, device=device, dtype=dtype)
        self.layers = torch.nn.ModuleList(Layer(s, device, dtype) for _ in range(s.layers))
        if s.tied:
            for layer in list(self.layers)[1:]:
                for name, weight in self.layers[0].named_parameters():
                    setattr(layer, name, weight)
        self.norm = norm_weight(s.width, device, dtype)
        rates = 500000.0 ** (-torch.arange(0, s.size, 2, device=device).float() / s.size)
        angles = torch.outer(torch.arange(s.context, device=device).float(), rates)
        angles = torch.cat([angles, angles], -1)
        self.register_buffer("cos", angles.cos().to(dtype))
        self.register_buffer("sin", angles.sin().to(dtype))

    def forward(self, word: Any, position: Any) -> Any:
        x = F.embedding(word, self.words)
        cos, sin = self.cos[position], self.sin[position]
        place = torch.arange(self.shape.context, device=word.device)
        mask = (place <= position[:, None])[None, None]
        for layer in self.layers:
            x = layer(x, cos, sin, mask, position)
        return F.linear(rms_norm(x, self.norm), self.words)


def run_ours(module: Decoder, arguments: list[Any], want: Any, profile: bool) -> dict[str, Any]:
    start = time.perf_counter()
    given = tuple(a.cpu() for a in arguments)
    exported = torch.export.export(module.cpu(), given)
    target = f"cuda:sm_{torch.cuda.get_device_capability()[0]}0"
    model = gw.compile(exported, target=target)
    compiled = time.perf_counter() - start
    got = model(*arguments)
    torch.cuda.synchronize()
    record = {"error": error_of(got, want), "compile_s": compiled,
              "launches": len(model.variant.launches),
              "kernels": len(model.variant.kernels)}  # fmt: skip
    record |= {"ms": milliseconds(lambda: model(*arguments))}
    record["host_us"] = host_microseconds(lambda: model(*arguments))
    record["again"] = error_of(model(*arguments), want)
    if profile:
        record["profile"] = profiled(lambda: model(*arguments))
    return record


def run_peer(peer: str, module: Decoder, arguments: list[Any], want: Any) -> dict[str, Any]:
    start = time.perf_counter()
    call: Any = module
    if peer != "eager":
        torch._dynamo.reset()
        mode = "max-autotune" if peer == "autotune" else "reduce-overhead"
        call = torch.compile(module, mode=mode)
    with torch.no_grad():
        got = call(*arguments)
        torch.cuda.synchronize()
        record = {"error": error_of(got, want), "compile_s": time.perf_counter() - start}
        return record | {"ms": milliseconds(lambda: call(*arguments))}


def measure(name: str, given: argparse.Namespace) -> dict[str, Any]:
    shape = SHAPES[name]
    if given.layers:
        shape = replace(shape, layers=given.layers)
    shape = replace(shape, tied=given.tied)
    if given.words:
        shape = replace(shape, words=given.words)
    torch.manual_seed(0)
    module = Decoder(shape, "cuda").eval()
    arguments = [torch.tensor([[17]], device="cuda"),
                 torch.tensor([given.position or shape.context - 1], device="cuda")]  # fmt: skip
    wide = Decoder(shape, "cuda", torch.float32)
    wide.load_state_dict({k: v.float() for k, v in module.state_dict().items()})
    with torch.no_grad():
        want = wide(*arguments)
    del wide
    result: dict[str, Any] = {"floor_ms": shape.bytes / 4.3e9}

    def run(who: str) -> dict[str, Any]:
        if who == "ours":
            return run_ours(module, arguments, want, given.profile)
        return run_peer(who, module, arguments, want)

    result |= compete(name, [*[p for p in given.peers.split(",") if p], "ours"], run)
    for row in result["ours"].get("profile", [])[:14]:
        print(f"  {row[2]:8.2f} us x {row[1]:3}  {row[0]}", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", default=["1b"])
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--words", type=int, default=0)
    parser.add_argument("--tied", action="store_true", help="layers share weights (beyond the L2)")
    parser.add_argument("--position", type=int, default=0)
    parser.add_argument("--peers", default="eager,graphs")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    results = {f"llama_{n}_decode_bf16_b1": measure(n, given) for n in given.names}
    if given.output:
        given.output.write_text(json.dumps(results, indent=1))
    sys.exit(0 if all("ms" in r["ours"] for r in results.values()) else 1)


if __name__ == "__main__":
    main()
