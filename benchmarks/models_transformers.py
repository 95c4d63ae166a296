"""Whole architectures for `models.py`, by the package transformers: random weights, no download.

Images are 224 x 224, sentences 128 tokens; a decoder is run on 128 tokens and on one. Llama has
four queries to a group of keys and values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn

PICTURE, SENTENCE = 224, 128


class Logits(nn.Module):
    """A model of transformers that returns one array."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = getattr(self.model(x), self.name)
        return result


@dataclass(frozen=True)
class Architecture:
    """A model of transformers and what goes in: pictures, or as many tokens.

    `make(small)` returns a module; a small one is for tests.
    """

    make: Callable[[bool], nn.Module]
    tokens: int = 0
    result: str = "logits"

    def build(self, seed: int = 0, small: bool = False) -> tuple[nn.Module, Tensor]:
        """The module, in inference mode, and its input; the same for the same seed."""
        torch.manual_seed(seed)
        module = Logits(self.make(small), self.result).eval()
        if self.tokens:
            return module, torch.randint(0, 50, (1, min(self.tokens, 5) if small else self.tokens))
        size = 32 if small else PICTURE
        return module, torch.randn(1, 3, size, size)


def resnet(depths: list[int], sizes: list[int], layer: str) -> Callable[[bool], nn.Module]:
    """The residual network of that many blocks and channels at each of its four sizes."""

    def make(small: bool) -> nn.Module:
        config = hf.ResNetConfig(
            embedding_size=8 if small else 64,
            depths=[1, 1, 1, 1] if small else depths,
            hidden_sizes=[8, 8, 16, 16] if small else sizes,
            layer_type=layer,
            num_labels=10 if small else 1000,
        )
        return hf.ResNetForImageClassification(config)

    return make


def mobilenet(small: bool) -> nn.Module:
    """MobileNetV2, with the padding of its authors' PyTorch version."""
    config = hf.MobileNetV2Config(
        tf_padding=False, depth_multiplier=0.25 if small else 1.0, num_labels=10 if small else 1000
    )
    return hf.MobileNetV2ForImageClassification(config)


def convnext(small: bool) -> nn.Module:
    """ConvNeXt-T."""
    sizes = {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]} if small else {}
    return hf.ConvNextForImageClassification(
        hf.ConvNextConfig(num_labels=10 if small else 1000, **sizes)
    )


def transformer(
    config: Callable[..., Any], model: Callable[[Any], nn.Module], tiny: dict[str, Any], **own: Any
) -> Callable[[bool], nn.Module]:
    """A transformer by its configuration; `tiny` are the sizes of a small one."""

    def make(small: bool) -> nn.Module:
        sizes = own | tiny if small else own
        return model(config(attn_implementation="sdpa", **sizes))

    return make


_TINY = {"hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 1}
_TINY_GPT2 = {"n_embd": 16, "n_head": 4, "vocab_size": 64}
_LLAMA = {
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "vocab_size": 8000,
}
_GPT2 = transformer(
    lambda **sizes: hf.GPT2Config(**({"n_layer": 6} | sizes)),
    hf.GPT2LMHeadModel,
    _TINY_GPT2 | {"n_layer": 1},
    use_cache=False,
)
_SMALL_LLAMA = transformer(
    lambda **sizes: hf.LlamaConfig(**(_LLAMA | sizes)),
    hf.LlamaForCausalLM,
    _TINY | {"intermediate_size": 24, "vocab_size": 64, "num_key_value_heads": 1},
    num_key_value_heads=2,
    use_cache=False,
)

ARCHITECTURES: dict[str, Architecture] = {
    "ResNet-18": Architecture(resnet([2, 2, 2, 2], [64, 128, 256, 512], "basic")),
    "ResNet-50": Architecture(resnet([3, 4, 6, 3], [256, 512, 1024, 2048], "bottleneck")),
    "MobileNetV2": Architecture(mobilenet),
    "ConvNeXt-T": Architecture(convnext),
    "ViT-B/16": Architecture(
        transformer(
            hf.ViTConfig,
            hf.ViTForImageClassification,
            _TINY | {"intermediate_size": 24, "image_size": 32},
            num_labels=1000,
        )
    ),
    "BERT-base": Architecture(
        transformer(
            hf.BertConfig, hf.BertModel, _TINY | {"intermediate_size": 24, "vocab_size": 64}
        ),
        SENTENCE,
        "last_hidden_state",
    ),
    "GPT-2 prefill": Architecture(_GPT2, SENTENCE),
    "GPT-2 token": Architecture(_GPT2, 1),
    "Llama prefill": Architecture(_SMALL_LLAMA, SENTENCE),
    "Llama token": Architecture(_SMALL_LLAMA, 1),
}
