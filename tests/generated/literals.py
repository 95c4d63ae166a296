"""Literals of any type."""

from __future__ import annotations

from typing import Any

from tvm import tirx


def literal(dtype: str, value: float) -> Any:
    """Return a literal, wrapped into the range of its type."""
    if dtype == "bool":
        return tirx.IntImm("bool", int(bool(value)))
    if "float" in dtype:
        return tirx.FloatImm(dtype, float(value))
    return tirx.IntImm(dtype, int(value))
