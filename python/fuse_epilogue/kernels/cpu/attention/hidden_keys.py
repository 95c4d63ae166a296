"""Masks that hide keys from queries: blocks of keys that are hidden from a whole block are skipped.

Causal masks are of this kind, with any offset, and windows on one side or on both: whatever has a
range of keys for a range of queries (`key_ranges.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import prim

from ....recognize.attention import Attention
from ....tir.expressions import is_zero
from ..loops import index, loop, sequence, wide
from .key_block import buffer_of, first_of_vector, is_share_of_maximum
from .key_ranges import KeyRange, key_range

#: Bits of the exponent of a float32, all of which are set in infinities and NaN only.
EXPONENT = 0x7F800000


@dataclass(frozen=True)
class HiddenKeys:
    """A mask that hides the keys outside a range.

    - `keys`: the range of keys that any of some queries needs.
    - `weight` (Expr): weight of a hidden key in the maximum.
    """

    keys: KeyRange
    weight: Any

    def blocks(
        self, begin: Any, queries: int, size: int, count: Any, greatest: Any
    ) -> tuple[Any, Any]:
        """Return the first block of keys that a block of queries needs, and the one after the last.

        - `begin` (Expr): the first query.
        - `queries`, `size`: number of queries and of keys in a block.
        - `count` (Expr): number of blocks of keys.
        - `greatest` (Expr): by :func:`greatest_exponent`, of the values. A hidden value that is
          infinite or NaN makes NaN of every query, as 0 times it: then all blocks are computed.
        """
        first, last = self.keys(begin, begin + index(queries - 1))
        finite = greatest < tirx.const(EXPONENT, "int32")
        begins, ends = index(0), count
        if first is not None:
            begins = tirx.min(count, tirx.max(index(0), tirx.floordiv(wide(first), index(size))))
        if last is not None:
            ends = tirx.min(count, tirx.floordiv(wide(last) + index(size), index(size)))
        ends = tirx.max(begins, ends)
        return tirx.Select(finite, begins, index(0)), tirx.Select(finite, ends, count)


def hidden_keys(found: Attention) -> HiddenKeys | None:
    """Return the mask of attention, None if nothing is known of the keys that it hides.

    Hidden keys have the share 0, whatever their score, and count as a constant in the maximum: the
    mask is also that of the shares, or the constant is -inf, whose exponential is 0 since no
    maximum is below the finite number that it starts from.
    """
    share, weight = found.share, found.weight
    condition, hidden = _shown(weight)
    if condition is None or hidden.value != hidden.value:
        return None
    if isinstance(share, prim.Select):
        condition = share.condition
        same = tvm_ffi.structural_equal(condition, weight.condition)
        if not same or not weight.false_value.same_as(hidden) or not is_zero(share.false_value):
            return None
    elif hidden.value != -math.inf or not is_share_of_maximum(found):
        return None
    elif not isinstance(found.lowest, prim.FloatImm) or not math.isfinite(found.lowest.value):
        return None
    keys = key_range(condition, found.query.var, found.key.var)
    return None if keys is None else HiddenKeys(keys, hidden)


def _shown(weight: Any) -> tuple[Any, Any]:
    """Return the condition on which a weight is not a constant, and the constant.

    Masks on top of each other are one, if they hide with the same constant. (None, None) if there
    is no mask.
    """
    shown, hidden = None, None
    while isinstance(weight, prim.Select):
        if _is_constant(weight.false_value, hidden):
            condition, value, weight = weight.condition, weight.false_value, weight.true_value
        elif _is_constant(weight.true_value, hidden):
            condition, value = tirx.Not(weight.condition), weight.true_value
            weight = weight.false_value
        else:
            break
        shown = condition if shown is None else tirx.And(shown, condition)
        hidden = value if hidden is None else hidden
    return shown, hidden


def _is_constant(value: Any, hidden: Any) -> bool:
    """Return whether a value is a constant, and the one that is known already if there is one."""
    return isinstance(value, prim.FloatImm) and (hidden is None or value.value == hidden.value)


def greatest_exponent(
    value: Callable[[Any, Any], Any], keys: Any, columns: int, lanes: int
) -> tuple[Any, Any]:
    """Return statements that find the greatest exponent of a matrix, and a load of it.

    - `value`: returns an element of float32 by key and column.
    - `keys`: int or Expr.
    - `columns`: at least `lanes`.
    - Returns: the load is of the exponent's bits: those of an infinity or NaN if there is one.
    """
    parts = buffer_of("exponents", lanes, dtype="int32")
    mask = tirx.const(EXPONENT, "int32")

    def each(body: Any) -> Any:
        return loop("lane", 0, lanes, body, tirx.ForKind.VECTORIZED)

    def one(key: Any, vector: Any) -> Any:
        def store(lane: Any) -> Any:
            element = value(key, first_of_vector(vector, lanes, columns) + lane)
            bits = tirx.reinterpret("int32", element) & mask
            return tirx.BufferStore(parts, tirx.max(tirx.BufferLoad(parts, [lane]), bits), [lane])

        return each(store)

    rows = loop(
        "key",
        0,
        wide(keys),
        lambda key: loop("vector", 0, -(-columns // lanes), lambda vector: one(key, vector)),
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
