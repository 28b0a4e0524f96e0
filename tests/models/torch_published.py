"""Published torch networks, written out: their weights come as state dicts (scripts/models.json)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class MiniLM(nn.Module):
    """all-MiniLM-L6-v2, a BERT encoder: ids and mask [batch, steps] to unit vectors [batch, 384].

    The names of its parameters are those of Hugging Face's BertModel.
    """

    HEADS, WIDTH, LAYERS = 12, 384, 6

    def __init__(self) -> None:
        super().__init__()
        width = self.WIDTH
        self.embeddings = nn.ModuleDict({
            "word_embeddings": nn.Embedding(30522, width),
            "position_embeddings": nn.Embedding(512, width),
            "token_type_embeddings": nn.Embedding(2, width),
            "LayerNorm": nn.LayerNorm(width, eps=1e-12),
        })  # fmt: skip
        self.encoder = nn.ModuleDict(
            {"layer": nn.ModuleList(self._layer() for _ in range(self.LAYERS))}
        )

    def _layer(self) -> nn.ModuleDict:
        width = self.WIDTH
        named = {n: nn.Linear(width, width) for n in ("query", "key", "value")}
        return nn.ModuleDict({
            "attention": nn.ModuleDict({
                "self": nn.ModuleDict(named),
                "output": nn.ModuleDict({
                    "dense": nn.Linear(width, width),
                    "LayerNorm": nn.LayerNorm(width, eps=1e-12),
                }),
            }),
            "intermediate": nn.ModuleDict({"dense": nn.Linear(width, 4 * width)}),
            "output": nn.ModuleDict({
                "dense": nn.Linear(4 * width, width), "LayerNorm": nn.LayerNorm(width, eps=1e-12),
            }),
        })  # fmt: skip

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, steps = ids.shape
        e = self.embeddings
        positions = torch.arange(steps)[None]
        kinds = e["token_type_embeddings"].weight[0]
        x = e["LayerNorm"](e["word_embeddings"](ids) + e["position_embeddings"](positions) + kinds)
        seen = mask[:, None, None, :] > 0

        def heads(linear: nn.Module, x: torch.Tensor) -> torch.Tensor:
            return linear(x).view(batch, steps, self.HEADS, -1).transpose(1, 2)

        for layer in self.encoder["layer"]:
            a = layer["attention"]
            q, k, v = (heads(a["self"][n], x) for n in ("query", "key", "value"))
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
            out = out.transpose(1, 2).reshape(batch, steps, self.WIDTH)
            x = a["output"]["LayerNorm"](x + a["output"]["dense"](out))
            inner = F.gelu(layer["intermediate"]["dense"](x))
            x = layer["output"]["LayerNorm"](x + layer["output"]["dense"](inner))
        weights = mask[..., None].to(x.dtype)
        return F.normalize((x * weights).sum(1) / weights.sum(1), dim=-1)


class Crepe(nn.Module):
    """CREPE "tiny": frames [batch, 1024] at 16 kHz, normalised, to weights of 360 pitches."""

    def __init__(self) -> None:
        super().__init__()
        channels = [1, 128, 16, 16, 16, 32, 64]
        for i in range(6):
            size, stride = ((512, 1), (4, 1)) if i == 0 else ((64, 1), (1, 1))
            convolution = nn.Conv2d(channels[i], channels[i + 1], size, stride)
            setattr(self, f"conv{i + 1}", convolution)
            setattr(
                self, f"conv{i + 1}_BN", nn.BatchNorm2d(channels[i + 1], eps=0.0010000000474974513)
            )
        self.classifier = nn.Linear(256, 360)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        x = frames[:, None, :, None]
        for i in range(6):
            x = F.pad(x, (0, 0, 254, 254) if i == 0 else (0, 0, 31, 32))
            x = F.relu(getattr(self, f"conv{i + 1}")(x))
            x = F.max_pool2d(getattr(self, f"conv{i + 1}_BN")(x), (2, 1), (2, 1))
        return torch.sigmoid(self.classifier(x.permute(0, 2, 1, 3).reshape(-1, 256)))


class ProposalNet(nn.Module):
    """MTCNN's first stage: an image to boxes and chances of a face in each window of 12 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.prelu1 = nn.Conv2d(3, 10, 3), nn.PReLU(10)
        self.conv2, self.prelu2 = nn.Conv2d(10, 16, 3), nn.PReLU(16)
        self.conv3, self.prelu3 = nn.Conv2d(16, 32, 3), nn.PReLU(32)
        self.conv4_1, self.conv4_2 = nn.Conv2d(32, 2, 1), nn.Conv2d(32, 4, 1)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = F.max_pool2d(self.prelu1(self.conv1(image)), 2, 2, ceil_mode=True)
        x = self.prelu3(self.conv3(self.prelu2(self.conv2(x))))
        return self.conv4_2(x), self.conv4_1(x).softmax(1)


class RefineNet(nn.Module):
    """MTCNN's second stage: crops [batch, 3, 24, 24] to boxes and chances of a face."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.prelu1 = nn.Conv2d(3, 28, 3), nn.PReLU(28)
        self.conv2, self.prelu2 = nn.Conv2d(28, 48, 3), nn.PReLU(48)
        self.conv3, self.prelu3 = nn.Conv2d(48, 64, 2), nn.PReLU(64)
        self.dense4, self.prelu4 = nn.Linear(576, 128), nn.PReLU(128)
        self.dense5_1, self.dense5_2 = nn.Linear(128, 2), nn.Linear(128, 4)

    def forward(self, crops: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = F.max_pool2d(self.prelu1(self.conv1(crops)), 3, 2, ceil_mode=True)
        x = F.max_pool2d(self.prelu2(self.conv2(x)), 3, 2, ceil_mode=True)
        x = self.prelu3(self.conv3(x)).permute(0, 3, 2, 1).contiguous()
        x = self.prelu4(self.dense4(x.view(x.shape[0], -1)))
        return self.dense5_2(x), self.dense5_1(x).softmax(1)


class SileroVad(nn.Module):
    """silero-vad at 16 kHz, with its state in buffers: a chunk [1, 576] to the chance of speech [1, 1]."""

    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 258, 256, 128, bias=False)
        self.conv1 = nn.Conv1d(129, 128, 3, 1, 1)
        self.conv2 = nn.Conv1d(128, 64, 3, 2, 1)
        self.conv3 = nn.Conv1d(64, 64, 3, 2, 1)
        self.conv4 = nn.Conv1d(64, 128, 3, 1, 1)
        self.lstm_cell = nn.LSTMCell(128, 128)
        self.final_conv = nn.Conv1d(128, 1, 1)
        self.register_buffer("hidden", torch.zeros(1, 128), persistent=False)
        self.register_buffer("cell", torch.zeros(1, 128), persistent=False)

    def forward(self, chunk: torch.Tensor) -> torch.Tensor:
        x = self.stft_conv(F.pad(chunk, (0, 64), "reflect")[:, None])
        x = (x[:, :129] ** 2 + x[:, 129:] ** 2).sqrt()
        for convolution in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = convolution(x).relu()
        hidden, cell = self.lstm_cell(x.squeeze(-1), (self.hidden, self.cell))
        self.hidden.copy_(hidden)
        self.cell.copy_(cell)
        chance = self.final_conv(hidden[..., None].relu()).sigmoid()
        return chance.squeeze(1).mean(1, keepdim=True)
