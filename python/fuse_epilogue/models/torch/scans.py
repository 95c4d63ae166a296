"""Running maxima and sums of exponentials, and values that are written where an index says.

A scan takes as many steps as the axis has binary digits: in each, an element is joined with the one
half of the way before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
#: Elements of a scan, one tensor or several beside each other.
Parts = tuple[Tensor, ...]


def scan_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return functions by the operators that they decompose."""
    return {
        aten.cummax.default: lambda x, dim: _running(x, dim, torch.ge),
        aten.cummin.default: lambda x, dim: _running(x, dim, torch.le),
        aten.logcumsumexp.default: _logcumsumexp,
        aten.masked_scatter.default: _masked_scatter,
        aten.scatter_reduce.two: _scatter_reduce,
        aten.index_reduce.default: _index_reduce,
        aten.searchsorted.Tensor: _searchsorted,
    }


def _scan(parts: Parts, dim: int, join: Callable[[Parts, Parts], Parts]) -> Any:
    """Return for each element of an axis what all up to it are joined to.

    - `join`: takes earlier elements and later ones; joining must be associative.
    """
    if parts[0].dim() == 0:
        return parts
    extent = parts[0].shape[dim]
    if not isinstance(extent, int):
        return NotImplemented
    step = 1
    while step < extent:
        before = tuple(each.narrow(dim, 0, extent - step) for each in parts)
        after = tuple(each.narrow(dim, step, extent - step) for each in parts)
        joined = join(before, after)
        parts = tuple(
            torch.cat([each.narrow(dim, 0, step), new], dim)
            for each, new in zip(parts, joined, strict=True)
        )
        step *= 2
    return parts


def _running(x: Tensor, dim: int, is_better: Callable[..., Tensor]) -> Any:
    """Compute running maxima or minima and their places: the last one of equal ones, or of NaNs."""
    if x.dtype == torch.bool:
        return NotImplemented
    shape = [1] * x.dim()
    if x.dim():
        shape[dim] = -1
    extent = x.shape[dim] if x.dim() else 1
    places = torch.arange(extent, device=x.device).reshape(shape).expand(x.shape)

    def join(before: Parts, after: Parts) -> Parts:
        takes = is_better(after[0], before[0])
        if x.dtype.is_floating_point:
            takes = torch.isnan(after[0]) | (takes & ~torch.isnan(before[0]))
        return tuple(torch.where(takes, new, old) for new, old in zip(after, before, strict=True))

    return _scan((x, places), dim, join)


def _logcumsumexp(x: Tensor, dim: int) -> Any:
    found = _scan((x,), dim, lambda before, after: (torch.logaddexp(before[0], after[0]),))
    return found if found is NotImplemented else found[0]


def _masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Any:
    """Read the element of the source whose number is that of selected places up to each."""
    x, mask = torch.broadcast_tensors(x, mask)
    chosen = mask.reshape(-1)
    number = torch.cumsum(chosen.to(torch.int64), 0) - 1
    flat = source.reshape(-1)
    values = torch.index_select(flat, 0, number.clamp(0, flat.shape[0] - 1))
    return torch.where(mask, values.reshape(x.shape), x)


_NEUTRAL = {"sum": 0, "prod": 1, "mean": 0}


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
