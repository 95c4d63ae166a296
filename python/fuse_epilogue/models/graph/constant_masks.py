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
      hides nothing; else for one that shows each row its columns up to a diagonal. None for any
      other constant.
    """
    if str(constant.ty.dtype) != "bool":
        return None
    mask = constant.value.numpy()
    if mask.all():
        return ALL_TRUE
    if mask.ndim < 2 or any(size != 1 for size in mask.shape[:-2]):
        return None
    rows, columns = mask.shape[-2:]
    ahead = np.arange(columns) - np.arange(rows)[:, None]
    shown = ahead[mask.reshape(rows, columns)]
    last = int(shown.max()) if shown.size else 0
    if rows == 1 or columns == 1 or not (mask.reshape(rows, columns) == (ahead <= last)).all():
        return None

    def element(*axes: Any) -> Any:
        return axes[-1] - axes[-2] <= tirx.const(last, "int64")

    return element
