"""Writes constant masks as comparisons of places, which a kernel can skip blocks by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import tirx


def ALL_TRUE(*_axes: Any) -> Any:
    """Return the element of a mask that hides nothing."""
    return tirx.const(True, "bool")


def mask_element(constant: Any) -> Callable[..., Any] | None:
    """Return the element of a constant mask as an expression of its axes.

    - `constant`: tvm.ir.GenericConst.
    - Returns: takes the axes of what the mask is broadcast to. :func:`ALL_TRUE` for a mask that
      hides nothing; else for one that shows, or hides, each row its columns between two diagonals
      or on one side of one, and perhaps the first columns as well. Of floats, for one that is 0
      where such a mask shows, and one negative number elsewhere. None for any other constant.
    """
    dtype = str(constant.ty.dtype)
    mask: Any = constant.value.numpy() if dtype in ("bool", "float32") else np.zeros(1)
    if dtype == "bool" and mask.all():
        return ALL_TRUE
    if mask.ndim < 2 or 1 in mask.shape[-2:] or not mask.any():
        return None
    if dtype == "bool":
        shown = _shown(mask)
        hidden = _shown(~mask) if shown is None else None
        if hidden is None:
            return shown
        return lambda *axes: tirx.Not(hidden(*axes))
    least = mask.min()
    shown = _shown(mask == 0) if least < 0 and ((mask == 0) | (mask == least)).all() else None
    if shown is None:
        return None
    zero, number = (tirx.const(float(each), dtype) for each in (0.0, least))
    return lambda *axes: tirx.Select(shown(*axes), zero, number)


def _shown(mask: np.ndarray) -> Callable[..., Any] | None:
    """Return whether a mask shows an element, None unless the mask is a band of diagonals."""
    rows, columns = mask.shape[-2:]
    masks = mask.reshape(-1, rows, columns)
    beyond = np.arange(columns, dtype="int32") - np.arange(rows, dtype="int32")[:, None]
    if not masks[0].any() or (masks != masks[0]).any():
        return None
    last = int(beyond[masks[0]].max())
    # The first columns that each row sees as far as the last diagonal.
    same = (masks[0] == (beyond <= last)).all(0)
    always = columns if same.all() else int(same.argmin())
    others = masks[0].copy()
    others[:, :always] = False
    first = int(beyond[others].min()) if others.any() else columns
    band = (beyond <= last) & ((beyond >= first) | (np.arange(columns) < always))
    if not (masks[0] == band).all():
        return None

    def element(*axes: Any) -> Any:
        place = axes[-1] - axes[-2]
        parts = []
        if last < columns - 1:
            parts.append(place <= tirx.const(last, "int64"))
        if always < columns and first > 1 - rows:
            parts.append(_any(place >= tirx.const(first, "int64"), axes[-1], always))
        return tirx.all(*parts)

    return element


def _any(shown: Any, column: Any, always: int) -> Any:
    """Return whether an element is shown, or in the first columns."""
    return tirx.Or(shown, column < tirx.const(always, "int64")) if always else shown
