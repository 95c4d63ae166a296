"""Sums of 8-bit integers and their rounding on Trainium, whose engines compute in float32.

    sum[int32] = sum of x * w                          total[float32], which has all such sums
    y[int8]    = clip((max(sum + bias, 0) + half) >> s, -128, 127)
               = the integer nearest to  clip(max(total + b, 0) * 2**-s + 2**-(s + 1), -128, 127)

with `b` the bias cut off at +-C, where the result is -128 or 127 whatever the sum is. The number
before the last step lies between two halves, so that every way of rounding to nearest agrees.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad, prim
from tvm.script.ir_builder import tirx as T

from ...rewrites.step import NotRewritten
from ...tir.walk import handle

#: Integers up to this one are in float32.
EXACT = 2**24
#: The largest magnitude of a product of two elements of int8.
_PRODUCT = 2**14
#: Bits that are dropped at most: after them, half a bit more still fits into float32.
_MOST_SHIFTED = 15
_LOW, _HIGH = -128, 127


def in_float32(expr: Any) -> Any:
    """Return a sum of products of int8, as int32, in float32.

    - Raises NotRewritten: it has other parts.
    """
    if str(expr.ty.dtype) == "float32":
        return expr
    match expr:
        case prim.IntImm():
            return tirx.const(float(int(expr)), "float32")
        case prim.Cast() if str(expr.value.ty.dtype) == "int8":
            return T.cast(expr.value, "float32")
        case prim.Add():
            return in_float32(expr.a) + in_float32(expr.b)
        case prim.Mul():
            return in_float32(expr.a) * in_float32(expr.b)
    raise NotRewritten(f"'{expr}' is not a sum of products of int8")


def quantised(value: Any, total: Any, taps: int, by: Any) -> Any:
    """Return what is stored as int8, with the sum in float32.

    - `value`: an expression of int8 with the variable `total`, the sum in int32.
    - `taps`: products of the sum.
    - `by` (Expr): the sum in float32.
    - Raises NotRewritten: it is not a requantised sum, or float32 does not have all of its values.
    """
    clipped = value.value if isinstance(value, prim.Cast) else None
    inside = _other(_other(clipped, prim.Max, _LOW), prim.Min, _HIGH)
    shift, inside = _shifted(inside)
    bound = (_HIGH + 1) * 2**shift + taps * _PRODUCT
    if inside is None:
        raise NotRewritten("its int8 results are not shifted and clipped sums")
    if shift > _MOST_SHIFTED or bound + taps * _PRODUCT > EXACT:
        raise NotRewritten(
            f"sums of {taps} taps with a shift of {shift} bits need more than the 24 bits of "
            "float32, in which engines compute: use fewer taps or bits, or a processor or GPU"
        )
    made = _sum(inside, total, by, bound)
    if shift:
        made = made * tirx.const(2.0**-shift, "float32") + tirx.const(0.5 ** (shift + 1), "float32")
    low, high = (tirx.const(float(number), "float32") for number in (_LOW, _HIGH))
    return T.cast(T.nearbyint(T.max(T.min(made, high), low)), "int8")


def _other(expr: Any, kind: Any, number: int) -> Any:
    """Return e of ``kind(e, number)``, None for another expression."""
    if not isinstance(expr, kind) or not isinstance(expr.b, prim.IntImm):
        return None
    return expr.a if int(expr.b) == number else None


def _shifted(expr: Any) -> tuple[int, Any]:
    """Return s and e of ``(e + 2**(s - 1)) >> s``; 0 and the expression if nothing is shifted."""
    if not isinstance(expr, prim.RShift):
        return 0, expr
    shift = int(expr.b) if isinstance(expr.b, prim.IntImm) else 0
    return shift, _other(expr.a, prim.Add, 1 << (shift - 1)) if shift > 0 else None


def _sum(expr: Any, total: Any, by: Any, bound: int) -> Any:
    """Return a sum with its bias, which may be cut off at 0, in float32."""
    if handle(expr) == handle(total):
        return by
    match expr:
        case prim.Max() if _other(expr, prim.Max, 0) is not None:
            return T.max(_sum(expr.a, total, by, bound), tirx.const(0.0, "float32"))
        case prim.Add(a=a, b=TensorLoad() as load):
            limits = (tirx.const(number, "int32") for number in (bound, -bound))
            high, low = limits
            clipped = prim.Max(prim.Min(load, high), low)
            return _sum(a, total, by, bound) + prim.Cast("float32", clipped)
    raise NotRewritten(f"'{expr}' of int32 cannot be computed in float32")


def is_quantised(buffer: Any) -> bool:
    """Whether a buffer holds integers of 8 bits."""
    return str(buffer.dtype) == "int8"
