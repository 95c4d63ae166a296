"""torch's attention, written as products and a softmax that one kernel computes.

torch's own decomposition scales both operands first, and looks in the scores for rows without any
key; this one scales the scores, and looks in the mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def attention_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return functions by the operators that they decompose."""
    return {
        aten.scaled_dot_product_attention.default: _attention,
        # What torch makes of it for a processor where no gradients are needed.
        aten._scaled_dot_product_flash_attention_for_cpu.default: _flash,
    }


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return attention; a row that its mask leaves no key is zero, as in torch."""
    dtype = query.dtype
    query, key, value = map(_wide, (query, key, value))
    if enable_gqa:
        key, value = (_repeated(each, query.shape[-3]) for each in (key, value))
    weights = torch.softmax(_scores(query, key, attn_mask, is_causal, scale), -1)
    if dropout_p:
        weights = torch.dropout(weights, dropout_p, True)
    result = weights @ value
    if attn_mask is not None:
        shown = attn_mask if attn_mask.dtype == torch.bool else attn_mask != -math.inf
        result = torch.where(shown.any(-1, keepdim=True), result, 0.0)
    return result.to(dtype)


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return attention, and the logarithms of its sums, which only gradients need."""
    # Keys and values may have fewer heads than queries.
    key, value = (_repeated(each, query.shape[-3]) for each in (key, value))
    result = _attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)
    scores = _scores(_wide(query), _wide(key), attn_mask, is_causal, scale)
    return result, torch.logsumexp(scores, -1)


def _scores(
    query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None
) -> Tensor:
    """Return products of queries and keys, scaled; -inf where a key is hidden."""
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query @ key.transpose(-2, -1)) * factor
    visible = _causal(scores) if is_causal else mask
    if visible is None:
        return scores
    if visible.dtype == torch.bool:
        return torch.where(visible, scores, -math.inf)
    return scores + _wide(visible)


def _wide(value: Tensor) -> Tensor:
    """Return floats of 16 bits in 32, in which all is computed."""
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value


def _causal(scores: Tensor) -> Tensor:
    """Return which keys are not after their query."""
    queries, keys = (torch.arange(size) for size in scores.shape[-2:])
    return keys[None, :] <= queries[:, None]


def _repeated(value: Tensor, heads: int) -> Tensor:
    """Return keys or values with each head as often as queries have it."""
    *batch, own, rows, columns = value.shape
    if own == heads:
        return value
    groups = value.unsqueeze(-3).expand(*batch, own, heads // own, rows, columns)
    return groups.reshape(*batch, heads, rows, columns)
