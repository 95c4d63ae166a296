"""The bytes of the tensors of an execution: made when first touched, and counted."""

from __future__ import annotations

import math

import numpy as np

from . import limits
from .errors import Refused
from .trace import ITEMSIZE, BufferInfo

# What integers hold before they are written. Nothing may depend on it.
_GARBAGE = 0x5A


class Memory:
    """Memory that an execution holds.

    - `held` (int): bytes of the tensors that are in use now.
    """

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = 0

    def check(self, info: BufferInfo) -> int:
        """Return the bytes of a tensor that there is room for.

        - Raises Refused: there is none.
        """
        size = math.prod(info.shape) * ITEMSIZE[info.dtype]
        if self.held + size > limits.MOST_BYTES:
            others = f" next to {self.held} of others" if self.held else ""
            raise Refused(
                "language",
                f"'{info.name}' takes {size} bytes{others}: executed, a kernel holds at most "
                f"{limits.MOST_BYTES}; check and predict need no memory",
            )
        return size

    def take(self, info: BufferInfo, dtype: np.dtype[np.generic]) -> np.ndarray:
        """Return the bytes of a new tensor, NaN or garbage.

        - Raises Refused: there is no room for them.
        """
        size = self.check(info)
        if dtype.kind in "iu":
            raw = np.full(size, _GARBAGE, np.uint8)
        else:
            raw = np.full(size // dtype.itemsize, np.nan, dtype).view(np.uint8)
        self.held += size
        return raw
