"""Running maxima, minima and sums of exponentials, written in other operators.

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
