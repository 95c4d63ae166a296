"""Ranges of integer expressions, by the types of what they load."""

from __future__ import annotations

from typing import Any

from tvm.ir import TensorLoad, prim


def type_range(dtype: str) -> tuple[int, int] | None:
    """Return the least and the greatest value of an integer type, None for any other type.

    >>> type_range("uint8"), type_range("float32")
    ((0, 255), None)
    """
    if dtype == "bool":
        return 0, 1
    kind = dtype.rstrip("0123456789")
    if kind not in ("int", "uint") or dtype == kind:
        return None
    bits = int(dtype[len(kind) :])
    return (0, (1 << bits) - 1) if kind == "uint" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def value_range(value: Any) -> tuple[int, int] | None:
    """Return a range that an integer expression never leaves, None if it is not an integer.

    - `value`: Expr.
    """
    whole = type_range(str(value.ty.dtype))
    if whole is None:
        return None
    found = _range(value)
    # Beyond its type, a value wraps around.
    return whole if found is None or found[0] < whole[0] or found[1] > whole[1] else found


def _range(value: Any) -> tuple[int, int] | None:
    if isinstance(value, prim.IntImm):
        return int(value), int(value)
    if isinstance(value, TensorLoad):
        return type_range(str(value.ty.dtype))
    if isinstance(value, prim.Cast):
        return value_range(value.value)
    if not isinstance(value, prim.Add | prim.Sub | prim.Mul | prim.Min | prim.Max):
        return None
    a, b = value_range(value.a), value_range(value.b)
    if a is None or b is None:
        return None
    if isinstance(value, prim.Add):
        return a[0] + b[0], a[1] + b[1]
    if isinstance(value, prim.Sub):
        return a[0] - b[1], a[1] - b[0]
    if isinstance(value, prim.Mul):
        products = [x * y for x in a for y in b]
        return min(products), max(products)
    least = isinstance(value, prim.Min)
    pick = min if least else max
    return pick(a[0], b[0]), pick(a[1], b[1])
