"""Writes at places that masks or indices name, and searches for places, in other operators.

Those that Relax has an operator for are converted in :mod:`.indexing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

#: What a reduction starts from; maxima and minima start from the end of the type.
_NEUTRAL = {"sum": 0, "prod": 1, "mean": 0}


def places_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return functions by the operators that they decompose."""
    return {
        aten.masked_scatter.default: _masked_scatter,
        aten.index_put.default: _index_put,
        aten.scatter_reduce.two: _scatter_reduce,
        aten.index_reduce.default: _index_reduce,
        aten.searchsorted.Tensor: _searchsorted,
    }


def _masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Any:
    """Read the element of the source whose number is that of selected places up to each."""
    x, mask = torch.broadcast_tensors(x, mask)
    chosen = mask.reshape(-1)
    number = torch.cumsum(chosen.to(torch.int64), 0) - 1
    flat = source.reshape(-1)
    values = torch.index_select(flat, 0, number.clamp(0, flat.shape[0] - 1))
    return torch.where(mask, values.reshape(x.shape), x)


def _index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Any:
    """Choose between old and new values by a mask, where all places get the same ones."""
    masks = [each for each in indices if each is not None]
    if len(masks) != 1 or masks[0].dtype != torch.bool:
        return NotImplemented
    (mask,) = masks
    before = next(place for place, each in enumerate(indices) if each is not None)
    rest = x.dim() - before - mask.dim()
    # Of the values, one dimension is for the places.
    rank = before + 1 + rest
    shape = ([1] * rank + list(values.shape))[-rank:]
    if shape[before] != 1:
        return NotImplemented
    values = values.reshape([*shape[:before], *[1] * mask.dim(), *shape[before + 1 :]])
    values = values.to(x.dtype)
    return torch.where(
        mask.reshape([*mask.shape, *[1] * rest]), x + values if accumulate else values, x
    )


def _scatter_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    """Write means as sums and counts, and start from the neutral element without the tensor."""
    if include_self and reduce != "mean":
        return NotImplemented
    one = torch.ones_like(x).scatter_add if include_self else torch.zeros_like(x).scatter_add
    count = one(dim, index, torch.ones_like(source))
    start = x
    if not include_self:
        neutral = _NEUTRAL.get(reduce)
        if neutral is None:
            neutral = _last(x.dtype, least=reduce == "amax")
        start = torch.where(count > 0, torch.full_like(x, neutral), x)
    if reduce != "mean":
        return aten.scatter_reduce.two(start, dim, index, source, reduce)
    total = start.scatter_add(dim, index, source)
    rounding = None if x.dtype.is_floating_point else "floor"
    return torch.div(total, count.clamp(min=1), rounding_mode=rounding)


def _last(dtype: Any, least: bool) -> Any:
    """Return the least value of a type, or the greatest."""
    if dtype.is_floating_point:
        return -torch.inf if least else torch.inf
    info = torch.iinfo(dtype)
    return info.min if least else info.max


def _index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    shape = [1] * x.dim()
    shape[dim] = -1
    every = index.reshape(shape).expand(source.shape)
    return torch.scatter_reduce(x, dim, every, source, reduce, include_self=include_self)


def _searchsorted(
    rows: Tensor,
    values: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Any:
    """Count in each of several rows the elements that are before a value."""
    if rows.dim() == 1 or sorter is not None:
        return NotImplemented
    elements, wanted = rows.unsqueeze(-2), values.unsqueeze(-1)
    # Every element is before NaN.
    after = elements > wanted if right or side == "right" else elements >= wanted
    return (~after).sum(-1, dtype=torch.int32 if out_int32 else torch.int64)
