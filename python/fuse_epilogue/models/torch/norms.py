"""Normalisations of torch where Relax's operators differ: in 64 bits, and without factors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def norm_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return functions by the operators that they decompose."""
    return {
        aten.native_layer_norm.default: _layer_norm,
        aten.native_group_norm.default: _group_norm,
        aten._native_batch_norm_legit.no_stats: _batch_norm,
        aten._native_batch_norm_legit_functional.default: _batch_norm_in_training,
    }


def _layer_norm(
    x: Tensor, sizes: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:
    """Write out a normalisation in 64 bits, which Relax has no operator for."""
    if x.dtype != torch.float64:
        return NotImplemented
    dims = list(range(x.dim() - len(sizes), x.dim()))
    result, mean, scale = _normalised(x, dims, eps)
    if weight is not None:
        result = result * weight
    return (result if bias is None else result + bias), mean, scale


def _normalised(x: Tensor, dims: Sequence[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    mean = torch.mean(x, dims, True)
    away = x - mean
    scale = torch.rsqrt(torch.mean(away * away, dims, True) + eps)
    return away * scale, mean, scale


def _group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    n: int,
    channels: int,
    size: int,
    groups: int,
    eps: float,
) -> Any:
    """Give a normalisation the factors that Relax demands, and write out one in 64 bits."""
    if x.dtype == torch.float64:
        result, mean, scale = _normalised(x.reshape(n, groups, -1), [2], eps)
        result = _of_channels(result.reshape(x.shape), weight, bias)
        return result, mean.reshape(n, groups), scale.reshape(n, groups)
    if weight is not None and bias is not None:
        return NotImplemented
    weight = torch.ones(channels, dtype=x.dtype) if weight is None else weight
    bias = torch.zeros(channels, dtype=x.dtype) if bias is None else bias
    return aten.native_group_norm.default(x, weight, bias, n, channels, size, groups, eps)


def _batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Write out a normalisation by a batch's own moments in 64 bits."""
    if x.dtype != torch.float64:
        return NotImplemented
    dims = [dim for dim in range(x.dim()) if dim != 1]
    result, mean, scale = _normalised(x, dims, eps)
    return _of_channels(result, weight, bias), mean.reshape(-1), scale.reshape(-1)


def _batch_norm_in_training(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Write out a normalisation that also returns the new running moments.

    TVM's importer takes it for one by the running moments, and returns others for these.
    """
    if not training:
        return NotImplemented
    dims = [dim for dim in range(x.dim()) if dim != 1]
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    result, mean, scale = _normalised(wide, dims, eps)
    away = wide - mean
    count = x.numel() // x.shape[1]
    var = torch.sum(away * away, dims) / (count - 1)
    means = running_mean * (1 - momentum) + mean.reshape(-1) * momentum
    variances = running_var * (1 - momentum) + var * momentum
    result = _of_channels(result, weight, bias).to(x.dtype)
    return (
        result,
        mean.reshape(-1),
        scale.reshape(-1),
        means.to(running_mean.dtype),
        variances.to(running_var.dtype),
    )


def _of_channels(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    shape = [1, -1, *[1] * (x.dim() - 2)]
    x = x if weight is None else x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)
