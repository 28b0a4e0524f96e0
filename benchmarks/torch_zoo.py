"""Published architectures with random weights in small configurations, from transformers and timm.

`ARCHITECTURES` has at least three of each family.  Each makes a module in eval mode, keyword arguments
of a batch or length, and says which axis may vary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

WORDS, WIDTH = 512, 128
Inputs = dict[str, Any]


@dataclass(frozen=True)
class Architecture:
    """`inputs(n)`: arguments whose varying axis has the extent n times `unit`; `axes`: where that is, by
    argument.  `extent`: n as usual, and `other`: n of another call.
    """

    name: str
    family: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int], Inputs]
    axes: Mapping[str, int]
    extent: int = 32
    other: int = 23

    def module(self) -> nn.Module:
        torch.manual_seed(0)
        return self.make().eval().requires_grad_(False)


def _text(**config: Any) -> dict[str, Any]:
    base = {
        "vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 2 * WIDTH, "max_position_embeddings": 128,
    }  # fmt: skip
    return {**base, **config}


def _decoder(**config: Any) -> dict[str, Any]:
    """A decoder with fewer heads for keys than for queries."""
    return _text(num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2, **config)


def _vision(**config: Any) -> dict[str, Any]:
    base = {
        "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 2 * WIDTH, "image_size": 64, "patch_size": 8,
    }  # fmt: skip
    return {**base, **config}


def _hugging_face(model: str, config: str, **settings: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        _declare_torchvision()
        import transformers

        return getattr(transformers, model)(getattr(transformers, config)(**settings))

    return make


def _timm(name: str, **settings: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        _declare_torchvision()
        import timm

        return timm.create_model(name, pretrained=False, num_classes=10, **settings)

    return make


def _declare_torchvision() -> None:
    """timm and transformers import torchvision, which wants to see two ops of its own even where its
    kernels, built for another torch, do not load.  No model here calls them.
    """
    if _LIBRARIES or hasattr(torch.ops.torchvision, "nms"):
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _LIBRARIES.append(library)


_LIBRARIES: list[torch.library.Library] = []  # a declaration lasts as long as its library


HELD = ("keys", "values", "cumulative_length")


class Cached(nn.Module):
    """A decoder and its static cache: ids [1, steps] at positions [steps] to logits."""

    def __init__(self, model: Any, room: int = 64) -> None:
        from transformers import StaticCache

        super().__init__()
        self.model = model
        config = model.config.get_text_config()
        self.cache = StaticCache(config, max_cache_len=room)
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.cache.early_initialization(1, heads, size, torch.float32, torch.device("cpu"))
        for i, layer in enumerate(self.cache.layers):
            for name in HELD:
                self.register_buffer(f"{name}{i}", getattr(layer, name), persistent=False)
        self.room = room

    def forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        for i, layer in enumerate(self.cache.layers):
            for name in HELD:  # torch.export sees buffers where they are read from the module
                setattr(layer, name, getattr(self, f"{name}{i}"))
            layer.cumulative_length.copy_(positions[0])
        mask = (torch.arange(self.room) <= positions[:, None])[None, None]
        return self.model(
            ids,
            attention_mask=mask,
            position_ids=positions[None],
            past_key_values=self.cache,
            use_cache=True,
        ).logits


def _cached(model: str, config: str, **settings: Any) -> Callable[[], nn.Module]:
    make = _hugging_face(model, config, **settings)
    return lambda: Cached(make())


def _ids(*shape: int) -> torch.Tensor:
    return torch.randint(3, WORDS, shape)


def ids(n: int) -> Inputs:
    return {"input_ids": _ids(2, n)}


def uncached(n: int) -> Inputs:
    return {"input_ids": _ids(2, n), "use_cache": False}


def sentences(n: int) -> Inputs:
    """Of one length: the recurrences are loops in Python, which torch unrolls."""
    return {"input_ids": _ids(n, 16), "use_cache": False}


def steps(n: int) -> Inputs:
    return {"ids": _ids(1, n), "positions": torch.arange(n)}


def pair(n: int) -> Inputs:
    return {"input_ids": _ids(2, n), "decoder_input_ids": _ids(2, 12), "use_cache": False}


def pixels(size: int = 64, name: str = "pixel_values") -> Callable[[int], Inputs]:
    return lambda n: {name: torch.randn(n, 3, size, size)}


def waves(n: int) -> Inputs:
    return {"input_values": torch.randn(n, 4000)}


def captions(length: int = 16) -> Callable[[int], Inputs]:
    return lambda n: {"input_ids": _ids(n, length), "pixel_values": torch.randn(n, 3, 64, 64)}


SEQUENCE, BOTH = {"input_ids": 1}, {"input_ids": 0, "pixel_values": 0}
IMAGES, WAVES = {"pixel_values": 0}, {"input_values": 0}
SPEECH_LAYERS = {
    "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 2 * WIDTH,
    "conv_dim": (32, 32, 32), "conv_stride": (5, 4, 2), "conv_kernel": (10, 8, 4),
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
}  # fmt: skip
TEXT_TOWER = {
    "vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 2 * WIDTH, "max_position_embeddings": 16,
}  # fmt: skip


def _sequence(
    family: str, name: str, make: Callable[[], nn.Module], inputs: Any = ids
) -> Architecture:
    return Architecture(name, family, make, inputs, SEQUENCE)


def _stateful(name: str, make: Callable[[], nn.Module]) -> Architecture:
    return Architecture(
        name, "decoders with cache", make, steps, {"ids": 1, "positions": 0}, extent=16, other=7
    )


def _batch(
    family: str, name: str, make: Callable[[], nn.Module], inputs: Any, axes: Any
) -> Architecture:
    return Architecture(name, family, make, inputs, axes, extent=2, other=3)


def _image(
    family: str, name: str, make: Callable[[], nn.Module], size: int = 64, argument: str = "pixel_values"
) -> Architecture:  # fmt: skip
    return _batch(family, name, make, pixels(size, argument), {argument: 0})


def _transformers() -> list[Architecture]:
    hf = _hugging_face
    encoder = [
        _sequence("encoders", name, make)
        for name, make in {
            "BERT": hf("BertModel", "BertConfig", **_text()),
            "DistilBERT": hf(
                "DistilBertModel", "DistilBertConfig", vocab_size=WORDS, dim=WIDTH, n_layers=2,
                n_heads=4, hidden_dim=2 * WIDTH,
            ),
            "RoBERTa": hf("RobertaModel", "RobertaConfig", **_text(max_position_embeddings=130)),
            "ALBERT": hf("AlbertModel", "AlbertConfig", **_text(embedding_size=64)),
            "DeBERTa-v2": hf(
                "DebertaV2Model", "DebertaV2Config",
                **_text(relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=16),
            ),
            "ELECTRA": hf("ElectraModel", "ElectraConfig", **_text(embedding_size=64)),
            "MobileBERT": hf(
                "MobileBertModel", "MobileBertConfig", vocab_size=WORDS, hidden_size=WIDTH,
                num_hidden_layers=2, num_attention_heads=4, intermediate_size=WIDTH,
                embedding_size=64, intra_bottleneck_size=64, true_hidden_size=64,
            ),
        }.items()
    ]  # fmt: skip
    gpt = {"vocab_size": WORDS, "n_embd": WIDTH, "n_layer": 2, "n_head": 4, "n_positions": 128}
    decoder = [
        _stateful("GPT-2", _cached("GPT2LMHeadModel", "GPT2Config", **gpt)),
        _stateful("Llama", _cached("LlamaForCausalLM", "LlamaConfig", **_decoder())),
        _stateful(
            "Mistral",
            _cached("MistralForCausalLM", "MistralConfig", **_decoder(sliding_window=None)),
        ),
        _stateful("Qwen2", _cached("Qwen2ForCausalLM", "Qwen2Config", **_decoder())),
        _stateful("Qwen3", _cached("Qwen3ForCausalLM", "Qwen3Config", **_decoder(head_dim=32))),
        _stateful("Gemma", _cached("GemmaForCausalLM", "GemmaConfig", **_decoder(head_dim=32))),
        _stateful("Phi", _cached("PhiForCausalLM", "PhiConfig", **_decoder())),
    ]
    t5 = {
        "vocab_size": WORDS,
        "d_model": WIDTH,
        "d_kv": 32,
        "d_ff": 256,
        "num_layers": 2,
        "num_heads": 4,
    }
    bart = {
        "vocab_size": WORDS, "d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 256,
        "decoder_ffn_dim": 256, "max_position_embeddings": 128,
    }  # fmt: skip
    both = [
        _sequence("encoder-decoders", name, make, pair)
        for name, make in {
            "T5": hf("T5Model", "T5Config", **t5),
            "BART": hf("BartModel", "BartConfig", **bart),
            "Pegasus": hf("PegasusModel", "PegasusConfig", **bart),
            "Marian": hf(
                "MarianModel", "MarianConfig", **bart, pad_token_id=0, decoder_start_token_id=0
            ),
        }.items()
    ]
    experts = [
        _sequence("mixtures of experts", name, make, uncached)
        for name, make in {
            "Mixtral": hf("MixtralForCausalLM", "MixtralConfig", **_decoder(num_local_experts=4)),
            "OLMoE": hf(
                "OlmoeForCausalLM", "OlmoeConfig", **_decoder(num_experts=4, num_experts_per_tok=2)
            ),
            "Qwen2-MoE": hf(
                "Qwen2MoeForCausalLM", "Qwen2MoeConfig",
                **_decoder(
                    num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64,
                    shared_expert_intermediate_size=64,
                ),
            ),
        }.items()
    ]  # fmt: skip
    state = [
        _batch("state space", name, make, sentences, {"input_ids": 0})
        for name, make in {
            "Mamba": hf(
                "MambaForCausalLM", "MambaConfig", vocab_size=WORDS, hidden_size=64, state_size=8,
                num_hidden_layers=2,
            ),
            "Mamba-2": hf(
                "Mamba2ForCausalLM", "Mamba2Config", vocab_size=WORDS, hidden_size=64, state_size=16,
                num_hidden_layers=2, num_heads=4, head_dim=32, n_groups=1, chunk_size=8,
            ),
            "FalconMamba": hf(
                "FalconMambaForCausalLM", "FalconMambaConfig", vocab_size=WORDS, hidden_size=64,
                state_size=8, num_hidden_layers=2,
            ),
            "RecurrentGemma": hf(
                "RecurrentGemmaForCausalLM", "RecurrentGemmaConfig",
                **_decoder(num_hidden_layers=3, lru_width=WIDTH, attention_window_size=64),
            ),
        }.items()
    ]  # fmt: skip
    vision = [
        _image("vision transformers", "ViT", hf("ViTModel", "ViTConfig", **_vision())),
        _image(
            "vision transformers", "Swin",
            hf(
                "SwinModel", "SwinConfig", image_size=64, patch_size=4, embed_dim=32, depths=[1, 2],
                num_heads=[2, 4], window_size=4,
            ),
        ),
        _image("vision transformers", "DINOv2", hf("Dinov2Model", "Dinov2Config", **_vision())),
        _image("vision transformers", "BEiT", hf("BeitModel", "BeitConfig", **_vision())),
        _image(
            "vision transformers", "MobileViT",
            hf(
                "MobileViTModel", "MobileViTConfig", hidden_sizes=[32, 48, 64],
                neck_hidden_sizes=[8, 16, 16, 24, 32, 32, 64], num_attention_heads=4, image_size=64,
                patch_size=2,
            ),
        ),
    ]  # fmt: skip
    sight = [
        _image(
            "detection and segmentation", "YOLOS",
            hf(
                "YolosForObjectDetection", "YolosConfig",
                **_vision(image_size=[64, 64], num_detection_tokens=8),
            ),
        ),
        _image(
            "detection and segmentation", "SegFormer",
            hf(
                "SegformerForSemanticSegmentation", "SegformerConfig", num_encoder_blocks=2,
                depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[32, 64], patch_sizes=[7, 3],
                strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=64,
            ),
        ),
        _image("detection and segmentation", "UperNet", _upernet),
        _image("detection and segmentation", "DETR", _detr),
        _image("detection and segmentation", "DPT", _dpt),
    ]  # fmt: skip
    whisper = {
        **{k: v for k, v in bart.items() if k != "max_position_embeddings"}, "max_source_positions": 50,
        "max_target_positions": 50, "num_mel_bins": 16, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": 2, "decoder_start_token_id": 1,
    }  # fmt: skip
    speech = [
        _batch(
            "speech", "Whisper", hf("WhisperModel", "WhisperConfig", **whisper),
            lambda n: {
                "input_features": torch.randn(n, 16, 100), "decoder_input_ids": _ids(n, 12),
                "use_cache": False,
            },
            {"input_features": 0, "decoder_input_ids": 0},
        ),
        _batch(
            "speech", "wav2vec 2.0", hf("Wav2Vec2Model", "Wav2Vec2Config", **SPEECH_LAYERS), waves, WAVES
        ),
        _batch("speech", "HuBERT", hf("HubertModel", "HubertConfig", **SPEECH_LAYERS), waves, WAVES),
        _batch(
            "speech", "Audio Spectrogram Transformer",
            hf(
                "ASTModel", "ASTConfig", hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=4,
                intermediate_size=256, max_length=96, num_mel_bins=32,
            ),
            lambda n: {"input_values": torch.randn(n, 96, 32)}, WAVES,
        ),
    ]  # fmt: skip
    towers = {"text_config": TEXT_TOWER, "vision_config": _vision()}
    several = [
        _batch("multimodal", name, make, inputs, BOTH)
        for name, make, inputs in [
            (
                "CLIP", hf("CLIPModel", "CLIPConfig", **towers, projection_dim=64), captions(),
            ),
            ("SigLIP", hf("SiglipModel", "SiglipConfig", **towers), captions()),
            ("BLIP", hf("BlipModel", "BlipConfig", **towers, projection_dim=64), captions()),
            ("ViLT", hf("ViltModel", "ViltConfig", **{**_text(), **_vision()}), _vilt),
        ]
    ]  # fmt: skip
    return [*encoder, *decoder, *both, *experts, *state, *vision, *sight, *speech, *several]


def _upernet() -> nn.Module:
    _declare_torchvision()
    import transformers

    backbone = transformers.ConvNextConfig(
        hidden_sizes=[16, 16, 32, 32], depths=[1, 1, 1, 1],
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )  # fmt: skip
    return transformers.UperNetForSemanticSegmentation(
        transformers.UperNetConfig(
            backbone_config=backbone, hidden_size=32, auxiliary_in_channels=32
        )
    )


def _detr() -> nn.Module:
    _declare_torchvision()
    import transformers

    backbone = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic",
        out_features=["stage2"],
    )  # fmt: skip
    return transformers.DetrForObjectDetection(
        transformers.DetrConfig(
            use_timm_backbone=False, use_pretrained_backbone=False, backbone_config=backbone, backbone=None,
            d_model=64, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, num_queries=10,
        )
    )  # fmt: skip


def _dpt() -> nn.Module:
    _declare_torchvision()
    import transformers

    return transformers.DPTForDepthEstimation(
        transformers.DPTConfig(
            **_vision(num_hidden_layers=4), is_hybrid=False, backbone_out_indices=[0, 1, 2, 3],
            neck_hidden_sizes=[16, 32, 32, 32], fusion_hidden_size=32,
        )
    )  # fmt: skip


def _vilt(n: int) -> Inputs:
    mask = torch.ones(n, 64, 64, dtype=torch.long)
    return {**captions(16)(n), "pixel_mask": mask}


def _published_by_timm() -> list[Architecture]:
    convolutional = {
        "ResNet-18": ("resnet18", {}),
        "MobileNetV3": ("mobilenetv3_small_050", {}),
        "EfficientNet-B0": ("efficientnet_b0", {}),
        "ConvNeXt": ("convnext_atto", {}),
        "RegNet": ("regnety_002", {}),
        "DenseNet": ("densenet121", {"growth_rate": 8, "block_config": (2, 2, 2, 2)}),
        "RepVGG": ("repvgg_a0", {}),
    }
    vision = {
        "DeiT": ("deit_tiny_patch16_224", {"img_size": 64, "depth": 3}),
        "EVA-02": ("eva02_tiny_patch14_224", {"img_size": 56, "depth": 2}),
    }
    found = [
        _image("convolutional", name, _timm(model, **settings), argument="x")
        for name, (model, settings) in convolutional.items()
    ]
    return found + [
        _image(
            "vision transformers", name, _timm(model, **settings), settings["img_size"], argument="x"
        )
        for name, (model, settings) in vision.items()
    ]  # fmt: skip


ARCHITECTURES: dict[str, Architecture] = {
    a.name: a for a in (*_transformers(), *_published_by_timm())
}
