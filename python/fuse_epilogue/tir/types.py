"""Sizes of types, by their names."""

from __future__ import annotations

from typing import Any

import tvm


def bits_of(dtype: Any) -> int:
    """Return the bits of an element."""
    return int(tvm.DataType(str(dtype)).bits)


def bytes_of(dtype: Any) -> int:
    """Return the bytes of an element, at least one."""
    return max(1, bits_of(dtype) // 8)
