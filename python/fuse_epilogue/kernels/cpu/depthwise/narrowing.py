"""Sums of 32 bits made bytes by instructions of x86 that saturate, four sums to a word.

    y = clip((max(sum, least) + half) >> shift, low, high)

Every step is monotone: `half` is part of what the sums begin with, and `least` becomes `low`. Two
vectors of sums become one of 16 bits and two of those one of bytes, both by instructions that clip;
the shift is between them where 16 bits have all of its results that are not clipped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tvm import tirx
from tvm.ir import prim

#: What is in a byte of each type.
_RANGES = MappingProxyType({"int8": (-128, 127), "uint8": (0, 255)})
#: LLVM's names, by the sums in a vector: to 16 bits, to int8 and to uint8. Processors with
#: vpdpbusd for such vectors have them.
_PACKING = MappingProxyType(
    {
        4: tuple(f"llvm.x86.sse2.pack{kind}.128" for kind in ("ssdw", "sswb", "uswb")),
        8: tuple(f"llvm.x86.avx2.pack{kind}" for kind in ("ssdw", "sswb", "uswb")),
        16: tuple(f"llvm.x86.avx512.pack{kind}.512" for kind in ("ssdw", "sswb", "uswb")),
    }
)


@dataclass(frozen=True)
class Narrowing:
    """The way from a sum of int32 to a byte.

    - `dtype`: "int8" or "uint8".
    - `half`, `shift`, `low`, `high`: as above; there is no `least`.
    """

    dtype: str
    half: int
    shift: int
    low: int
    high: int

    def packed(self, sums: Callable[[int], Any], lanes: int) -> Any:
        """Return the bytes of four vectors of sums, those of one lane side by side.

        - `sums`: returns a vector by its number; `half` is in them.
        - `lanes`: sums of a vector.
        """
        least, most = _RANGES[self.dtype]
        # Results beyond the range of a byte must not be those that 16 bits clip.
        between = self.shift if (2**15 - 1) >> self.shift >= most else 0
        halves, to_int8, to_uint8 = _PACKING[lanes]

        def pair(first: int) -> Any:
            both = [
                _shifted(sums(place), self.shift - between, "int32", lanes)
                for place in (first, first + 1)
            ]
            words = tirx.call_llvm_pure_intrin(f"int16x{2 * lanes}", halves, *both)
            return _shifted(words, between, "int16", 2 * lanes)

        name = to_int8 if self.dtype == "int8" else to_uint8
        count = 4 * lanes
        bytes_ = tirx.call_llvm_pure_intrin(f"int8x{count}", name, pair(0), pair(2))
        # Within 16 bytes, the four of each vector are neighbours.
        order = [at // 16 * 16 + at % 4 * 4 + at % 16 // 4 for at in range(count)]
        value = tirx.reinterpret(f"{self.dtype}x{count}", prim.Shuffle([bytes_], order))
        if self.low > least:
            value = prim.Max(value, prim.Broadcast(tirx.const(self.low, self.dtype), count))
        if self.high < most:
            value = prim.Min(value, prim.Broadcast(tirx.const(self.high, self.dtype), count))
        return value


def _shifted(value: Any, shift: int, dtype: str, lanes: int) -> Any:
    """Return a vector shifted to the right."""
    if not shift:
        return value
    return prim.RShift(value, prim.Broadcast(tirx.const(shift, dtype), lanes))


def narrowing_of(value: Any, total: Any) -> Narrowing | None:
    """Return how a value is made of a sum, None if it is not in that way.

    - `value` (Expr): a byte.
    - `total` (tvm.ir.Var): the sum, int32.
    """
    dtype = str(value.ty.dtype)
    if dtype not in _RANGES or not isinstance(value, prim.Cast):
        return None
    least, most = _RANGES[dtype]
    low, high, inside = _limits(value.value)
    shift, inside = _constant(inside, prim.RShift, 0)
    half, inside = _constant(inside, prim.Add, 0)
    *ends, inside = _limits(inside)
    if not inside.same_as(total) or low is None or high is None or not 0 <= shift < 32:
        return None
    if not least <= low <= high <= most:
        return None
    limits = [
        otherwise if end is None else max(low, min((end + half) >> shift, high))
        for end, otherwise in zip(ends, (low, high), strict=True)
    ]
    return Narrowing(dtype, half, shift, *limits) if limits[0] <= limits[1] else None


def _constant(expr: Any, kind: Any, otherwise: int) -> tuple[int, Any]:
    """Return n and e of ``kind(e, n)``; another expression as it is."""
    if isinstance(expr, kind) and isinstance(expr.b, prim.IntImm):
        return int(expr.b), expr.a
    return otherwise, expr


def _limits(expr: Any) -> tuple[int | None, int | None, Any]:
    """Return a, b and e of ``max(min(e, b), a)``; None for a limit that there is not."""
    low: int | None = None
    high: int | None = None
    while isinstance(expr, (prim.Max, prim.Min)) and isinstance(expr.b, prim.IntImm):
        limit = int(expr.b)
        if isinstance(expr, prim.Max):
            low = limit if low is None else max(low, limit)
        elif low is not None and limit < low:
            break
        else:
            high = limit if high is None else min(high, limit)
        expr = expr.a
    return low, high, expr
