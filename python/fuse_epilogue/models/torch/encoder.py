"""torch's fast path of a transformer's encoder layer, written as the operators of the layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

aten = torch.ops.aten


def encoder_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return functions by the operators that they decompose."""
    return {aten._transformer_encoder_layer_fwd.default: _layer}


def _layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,  # noqa: ARG001 - of a mask
) -> Tensor:
    """Return the output of a layer without a mask; with one, the operator stays as it is."""
    if mask is not None:
        return NotImplemented

    def attention(x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        heads = F.linear(x, qkv_weight, qkv_bias).reshape(batch, length, 3, num_heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value).transpose(1, 2)
        return F.linear(mixed.reshape(batch, length, embed_dim), proj_weight, proj_bias)

    def feed_forward(x: Tensor) -> Tensor:
        inner = F.linear(x, ffn_weight_1, ffn_bias_1)
        inner = F.gelu(inner) if use_gelu else torch.relu(inner)
        return F.linear(inner, ffn_weight_2, ffn_bias_2)

    def first(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = src + attention(first(src))
        return x + feed_forward(second(x))
    x = first(src + attention(src))
    return second(x + feed_forward(x))
