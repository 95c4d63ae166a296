"""Causal masks: keys after a query are hidden from it, and whole blocks of them are skipped."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import prim
from tvm.sym import detect_linear_equation

from ....recognize.attention import Attention
from ..loops import index, loop, sequence, wide
from .key_block import buffer_of

#: Bits of the exponent of a float32, all of which are set in infinities and NaN only.
EXPONENT = 0x7F800000


@dataclass(frozen=True)
class Causal:
    """A mask that hides the keys after ``query + offset``.

    - `hidden` (Expr): weight of a hidden key in the maximum.
    """

    offset: int
    hidden: Any

    def needed(self, begin: Any, queries: int, keys: int, count: Any, greatest: Any) -> Any:
        """Return the number of blocks of keys that are computed for a block of queries.

        - `begin` (Expr): the first query.
        - `queries`, `keys`: number of each in a block.
        - `count` (Expr): number of blocks of keys.
        - `greatest` (Expr): by :func:`greatest_exponent`, of the values. A hidden value that is
          infinite or NaN makes NaN of every query, as 0 times it: then nothing is skipped.
        """
        visible = begin + index(queries + self.offset + keys - 1)
        blocks = tirx.max(index(0), tirx.floordiv(visible, index(keys)))
        finite = greatest < tirx.const(EXPONENT, "int32")
        return tirx.Select(finite, tirx.min(count, blocks), count)


def causal_of(found: Attention) -> Causal | None:
    """Return the causal mask of attention, None if it has another one or none.

    Hidden keys have the share 0, whatever their score, and count as a constant in the maximum: the
    mask is also that of the shares, or the constant is -inf, whose exponential is 0 since no
    maximum is below the finite number that it starts from.
    """
    share, weight = found.share, found.weight
    if not isinstance(weight, prim.Select):
        return None
    hidden, condition = weight.false_value, weight.condition
    if not isinstance(hidden, prim.FloatImm) or hidden.value != hidden.value:
        return None
    if isinstance(share, prim.Select):
        if not tvm_ffi.structural_equal(share.condition, condition):
            return None
    elif not tvm_ffi.structural_equal(share, tirx.exp(found.weighed - found.highest)):
        return None
    elif hidden.value != -math.inf or not _is_finite(found.lowest):
        return None
    if isinstance(condition, prim.LE):
        more = condition.b - condition.a
    elif isinstance(condition, prim.GE):
        more = condition.a - condition.b
    else:
        return None
    linear = detect_linear_equation(more, [found.query.var, found.key.var])
    if len(linear) != 3 or not all(isinstance(each, prim.IntImm) for each in linear):
        return None
    query, key, offset = map(int, linear)
    return Causal(offset, hidden) if (query, key) == (1, -1) else None


def _is_finite(value: Any) -> bool:
    return isinstance(value, prim.FloatImm) and math.isfinite(value.value)


def greatest_exponent(
    value: Callable[[Any, Any], Any], keys: Any, columns: int, lanes: int
) -> tuple[Any, Any]:
    """Return statements that find the greatest exponent of a matrix, and a load of it.

    - `value`: returns an element of float32 by key and column.
    - `keys`: int or Expr.
    - `columns`: a multiple of `lanes`.
    - Returns: the load is of the exponent's bits: those of an infinity or NaN if there is one.
    """
    parts = buffer_of("exponents", lanes, dtype="int32")
    mask = tirx.const(EXPONENT, "int32")

    def each(body: Any) -> Any:
        return loop("lane", 0, lanes, body, tirx.ForKind.VECTORIZED)

    def one(key: Any, vector: Any) -> Any:
        def store(lane: Any) -> Any:
            element = value(key, vector * index(lanes) + lane)
            bits = tirx.reinterpret("int32", element) & mask
            return tirx.BufferStore(parts, tirx.max(tirx.BufferLoad(parts, [lane]), bits), [lane])

        return each(store)

    rows = loop(
        "key",
        0,
        wide(keys),
        lambda key: loop("vector", 0, columns // lanes, lambda vector: one(key, vector)),
    )
    first = tirx.BufferLoad(parts, [index(0)])
    greatest = first
    for lane in range(1, lanes):
        greatest = tirx.max(greatest, tirx.BufferLoad(parts, [index(lane)]))
    found = sequence(
        [
            tirx.AllocBuffer(parts),
            each(lambda lane: tirx.BufferStore(parts, tirx.const(0, "int32"), [lane])),
            rows,
            tirx.BufferStore(parts, greatest, [index(0)]),
        ]
    )
    return found, first
