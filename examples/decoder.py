"""A Llama-shaped decoder with a static cache: prefill and decode compiled, greedy tokens as in eager.

    python examples/decoder.py

The cache is a pair of buffers of the module.  Both compiled steps update the module's own buffers, so
that they may be mixed with each other and with eager calls.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, GROUPS, LAYERS, WORDS, ROOM = 64, 4, 2, 2, 128, 64
SIZE = WIDTH // HEADS


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions: x [batch, heads, steps, size], cos and sin [steps, size]."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


class Layer(nn.Module):
    """Attention over a static cache and a gated feed-forward, each after an RMS norm."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.query = nn.Linear(WIDTH, HEADS * SIZE, bias=False)
        self.key = nn.Linear(WIDTH, GROUPS * SIZE, bias=False)
        self.value = nn.Linear(WIDTH, GROUPS * SIZE, bias=False)
        self.out = nn.Linear(HEADS * SIZE, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.register_buffer("keys", torch.zeros(1, GROUPS, ROOM, SIZE))
        self.register_buffer("values", torch.zeros(1, GROUPS, ROOM, SIZE))

    def forward(self, x, positions, cos, sin, mask):
        batch, steps, _ = x.shape
        inner = self.before(x)

        def heads(linear: nn.Linear, count: int) -> torch.Tensor:
            return linear(inner).view(batch, steps, count, SIZE).transpose(1, 2)

        q = rotated(heads(self.query, HEADS), cos, sin)
        self.keys.index_copy_(2, positions, rotated(heads(self.key, GROUPS), cos, sin))
        self.values.index_copy_(2, positions, heads(self.value, GROUPS))
        seen = F.scaled_dot_product_attention(
            q, self.keys, self.values, attn_mask=mask, enable_gqa=True
        )
        x = x + self.out(seen.transpose(1, 2).reshape(batch, steps, HEADS * SIZE))
        inner = self.after(x)
        return x + self.down(F.silu(self.gate(inner)) * self.up(inner))


class Decoder(nn.Module):
    """Token ids [1, steps] at positions [steps] to the logits of the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)
        angle = torch.outer(torch.arange(ROOM), 10000 ** -(torch.arange(0, SIZE, 2) / SIZE))
        self.register_buffer("cos", torch.cat((angle, angle), -1).cos())
        self.register_buffer("sin", torch.cat((angle, angle), -1).sin())

    def forward(self, ids, positions):
        x = self.embed(ids)
        cos, sin = self.cos[positions], self.sin[positions]
        mask = torch.arange(ROOM) <= positions[:, None]
        for layer in self.layers:
            x = layer(x, positions, cos, sin, mask)
        return F.linear(self.norm(x[:, -1]), self.embed.weight)

    def clear(self) -> None:
        """Forgets everything."""
        for layer in self.layers:
            layer.keys.zero_()
            layer.values.zero_()


@torch.no_grad()
def generate(step, prompt: torch.Tensor, count: int) -> list[int]:
    """The greedy continuation: one call for the prompt, one for each token."""
    tokens: list[int] = []
    ids, positions = prompt, torch.arange(prompt.shape[1])
    for _ in range(count):
        token = int(step(ids, positions).argmax())
        tokens.append(token)
        positions = positions[-1:] + 1
        ids = torch.tensor([[token]])
    return tokens


def main() -> None:
    """Generates with eager and with the compiled model and says whether the tokens agree."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=int, default=24)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Decoder().eval()
    prompt = torch.randint(0, WORDS, (1, 8))
    want = generate(model, prompt, options.tokens)
    compiled = torch.compile(model, backend="graphwright", fullgraph=True, dynamic=False)
    for name in ("compiles and runs", "runs"):
        model.clear()
        start = time.perf_counter()
        got = generate(compiled, prompt, options.tokens)
        seconds = time.perf_counter() - start
        print(f"{name}: {len(got)} tokens in {seconds:.3f} s, equal to eager's: {got == want}")
        assert got == want


if __name__ == "__main__":
    main()
