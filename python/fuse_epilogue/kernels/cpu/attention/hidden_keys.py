"""Masks that hide keys from queries: blocks of keys that are hidden from a whole block are skipped.

Causal masks are of this kind, with any offset, and windows on one side or on both, also with keys
that every query sees: whatever has a range of keys for a range of queries (`key_ranges.py`). So are
masks that the function reads, of bools or of numbers that are added.

A mask may hide with a finite number, such as -1e9, in place of a score or added to it. The share of
a hidden key is 0 then if the maximum of its row is far enough above: that is compared when all
other blocks are done. A block of queries with a row of which it does not hold, as one that sees no
key, is computed again with all keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import prim

from ....recognize.attention import Attention
from ....tir.expressions import is_zero
from ....tir.walk import loads, same, substitute, uses
from ..loops import index, loop, sequence, wide
from .key_block import buffer_of, first_of_vector, is_share_of_maximum
from .key_ranges import KeyRange, Loaded, key_range

#: Bits of the exponent of a float32, all of which are set in infinities and NaN only.
EXPONENT = 0x7F800000
#: The largest biased exponent, bits below it, and what two exponents together are biased by beside
#: that of their sum: a float is below 2 to its biased exponent - 126.
MOST_EXPONENT, FRACTION, BIAS = 255, 23, 2 * 126 - 127
#: The exponential of this number and of those below it is 0, also as a subnormal number.
NO_SHARE = -104.0
#: Numbers up to this one hide a key where a mask that the function reads is added: attention's
#: biases are far above it, and scores are seldom as large.
HIDDEN = -1e9


@dataclass(frozen=True)
class HiddenKeys:
    """A mask that hides the keys outside a range.

    - `keys`: the keys that any of some queries needs.
    - `weight` (Expr): weight of a hidden key in the maximum, or what is added to it.
    - `added` (Expr or None): what a finite bound of `score` makes a bound of the weight beside what
      is added to it, as an expression of `score`. None if hidden keys weigh `weight`.
    - `compared`: whether hidden keys have a share if the maximum of their row is not far above.
    """

    keys: KeyRange | Loaded
    weight: Any
    added: Any = None
    compared: bool = False

    def blocks(
        self, begin: Any, queries: int, size: int, count: Any, greatest: Any
    ) -> tuple[Any, Any, Any]:
        """Return the first block of keys that a block of queries needs, and the one after the last.

        - `begin` (Expr): the first query.
        - `queries`, `size`: number of queries and of keys in a block.
        - `count` (Expr): number of blocks of keys.
        - `greatest` (Expr): by :func:`greatest_exponent`, of the values. A hidden value that is
          infinite or NaN makes NaN of every query, as 0 times it: then all blocks are computed.
        - Returns: the last one is whether blocks between these may be skipped, as 0 or 1.
        """
        first, last = self.keys.bounds(begin, begin + index(queries - 1))
        finite = greatest < tirx.const(EXPONENT, "int32")
        begins, ends = index(0), count
        if first is not None:
            begins = tirx.min(count, tirx.max(index(0), tirx.floordiv(wide(first), index(size))))
        if last is not None:
            ends = tirx.min(count, tirx.floordiv(wide(last) + index(size), index(size)))
        ends = tirx.max(begins, ends)
        gaps = tirx.Select(finite, index(int(self.keys.has_gaps)), index(0))
        return tirx.Select(finite, begins, index(0)), tirx.Select(finite, ends, count), gaps

    def limit(self, score: Any, depth: int, exponents: Sequence[Any]) -> Any:
        """Return the greatest weight that a hidden key may have.

        - `score` (tvm.ir.Var): a score before `f`.
        - `depth`: number of products of a score.
        - `exponents`: of both operands, by :func:`greatest_exponent`. None are needed where nothing
          is added.
        """
        if self.added is None:
            return self.weight
        one, other = (tirx.shift_right(each, _int(FRACTION)) for each in exponents)
        # The sum of all products, and as much again for its rounding.
        both = one + other + _int(math.ceil(math.log2(depth)) + 1 - BIAS)
        both = tirx.min(_int(MOST_EXPONENT), tirx.max(_int(1), both))
        infinite = tirx.max(one, other) >= _int(MOST_EXPONENT)
        bits = tirx.shift_left(tirx.Select(infinite, _int(MOST_EXPONENT), both), _int(FRACTION))
        bound = tirx.reinterpret("float32", bits)
        return self.weight + substitute(self.added, {score: bound})


def _float(value: float) -> Any:
    return tirx.const(value, "float32")


def _int(value: int) -> Any:
    return tirx.const(value, "int32")


def hidden_keys(found: Attention) -> HiddenKeys | None:
    """Return the mask of attention, None if nothing is known of the keys that it hides.

    Hidden keys have the share 0, whatever their score, and count as a constant in the maximum: the
    mask is also that of the shares, or the constant is -inf, whose exponential is 0 since no
    maximum is below the finite number that it starts from. Or they have it where the maximum of
    their row is far above.
    """
    share, weight = found.share, found.weight
    condition, hidden = _shown(weight)
    added, compared = None, False
    if condition is None:
        condition, hidden, added = _added(weight, found.score)
        compared = True
    if condition is None or hidden.value != hidden.value:
        return None
    if isinstance(share, prim.Select) and added is None:
        condition = share.condition
        is_mask = tvm_ffi.structural_equal(condition, weight.condition)
        if not is_mask or not weight.false_value.same_as(hidden) or not is_zero(share.false_value):
            return None
    elif not is_share_of_maximum(found):
        return None
    elif not isinstance(found.lowest, prim.FloatImm) or not math.isfinite(found.lowest.value):
        return None
    else:
        compared = compared or hidden.value != -math.inf
    keys: KeyRange | Loaded | None = key_range(condition, found.query.var, found.key.var)
    if keys is None and loads(condition) and not uses(condition, found.score):
        keys = Loaded(condition)
    return None if keys is None else HiddenKeys(keys, hidden, added, compared)


def _added(weight: Any, score: Any) -> tuple[Any, Any, Any]:
    """Return the condition on which 0 is added to a weight, what is added else, and a bound.

    The bound is that of the rest of the weight, as an expression of one of `score`. (None, None,
    None) if there is no mask, or nothing bounds the rest.
    """
    if not isinstance(weight, prim.Add):
        return None, None, None
    for mask, rest in ((weight.a, weight.b), (weight.b, weight.a)):
        if loads(mask) and not uses(mask, score) and _bound(rest, score) is not None:
            return tirx.Not(mask <= _float(HIDDEN)), _float(HIDDEN), _bound(rest, score)
        if not isinstance(mask, prim.Select):
            continue
        condition, values = mask.condition, (mask.true_value, mask.false_value)
        if is_zero(values[1]):
            condition, values = tirx.Not(condition), values[::-1]
        bound = _bound(rest, score)
        if is_zero(values[0]) and isinstance(values[1], prim.FloatImm) and bound is not None:
            return condition, values[1], bound
    return None, None, None


def _bound(value: Any, score: Any) -> Any:
    """Return a bound of an absolute value as an expression of one of `score`, None if unknown."""
    if same(value, score):
        return score
    if isinstance(value, prim.Mul | prim.Div) and isinstance(value.b, prim.FloatImm):
        known = _bound(value.a, score)
        factor = tirx.const(abs(value.b.value), "float32")
        return None if known is None else type(value)(known, factor)
    return None


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
