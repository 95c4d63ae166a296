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
      hides nothing; else for one that shows each row its columns between two diagonals, or on one
      side of one. None for any other constant.
    """
    if str(constant.ty.dtype) != "bool":
        return None
    mask = constant.value.numpy()
    if mask.all():
        return ALL_TRUE
    if mask.ndim < 2 or 1 in mask.shape[-2:]:
        return None
    rows, columns = mask.shape[-2:]
    masks = mask.reshape(-1, rows, columns)
    beyond = np.arange(columns, dtype="int32") - np.arange(rows, dtype="int32")[:, None]
    shown = beyond[masks[0]]
    if not shown.size:
        return None
    first, last = int(shown.min()), int(shown.max())
    if not (masks == ((first <= beyond) & (beyond <= last))).all():
        return None

    def element(*axes: Any) -> Any:
        place = axes[-1] - axes[-2]
        parts = []
        if last < columns - 1:
            parts.append(place <= tirx.const(last, "int64"))
        if first > 1 - rows:
            parts.append(place >= tirx.const(first, "int64"))
        return tirx.all(*parts)

    return element
