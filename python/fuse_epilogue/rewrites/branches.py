"""Keeps what a guard guards from being computed elsewhere, whatever a schedule does to its loops.

TVM compiles a Select with a load in it as a branch, unless it is in a vectorized loop: there both
values are computed for all lanes, and a guard guards nothing. TVM's vectorizer keeps an
``if_then_else``, by computing such a statement lane by lane.

    T.Select(d[vj] != 0, 100 // d[vj], 0)      becomes      T.if_then_else(d[vj] != 0, ...)

TVM also folds a division by what unrolling makes a constant, and hoists one that occurs several
times in front of its guards, unless there is a load in it. It folds one by padding as well, where
unrolling decides its condition.

    T.if_then_else(vj > 3, 100 // (vj - 3), 0)      divides by      1 where vj - 3 is 0

The one quotient that overflows, of the smallest number by -1, ends a program too. Where it is not
excluded, the divisor gets to the division by calls that change nothing, and that TVM does not move.

Which values may be computed where they are not used: :mod:`..recognize.defined`.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, prim

from ..recognize.defined import (
    DIVISIONS,
    analyzer_of,
    divides,
    is_integer,
    may_be_discarded,
    may_overflow,
)
from ..tir.expressions import is_guard
from ..tir.walk import handle, loads, parts_of, variables


def with_branches(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function whose guards hold in vectors and in loops that are unrolled.

    - `func`: not scheduled.
    - Returns: `func` itself if there is nothing to do.
    """
    if not parts_of(func.body, prim.Select, *DIVISIONS):
        return func
    # No function has anything to compute for sizes of zero.
    sizes = {
        handle(var)
        for param in func.params
        for extent in getattr(param.ty, "shape", ())
        for var in variables(extent)
    }
    changed = {}
    blocks = parts_of(func.body, s_tir.SBlock)
    for block in blocks[:-1]:  # The root is the last one, and has the others in it.
        made = _in_block(block, sizes)
        if not made.same_as(block):
            changed[handle(block)] = made
    if not changed:
        return func
    rule = (s_tir.SBlock, lambda block: changed.get(handle(block), block))
    return func.with_body(tvm_ffi.structural_map(func.body, rule, order="pre"))


def _in_block(block: Any, sizes: set[int]) -> Any:
    guards = parts_of(block, prim.Select, *DIVISIONS)
    selections = [each for each in guards if isinstance(each, prim.Select)]
    divisions = [each for each in guards if not isinstance(each, prim.Select)]
    divisions = [each for each in divisions if _is_movable(each, sizes)]
    if not selections and not divisions:
        return block
    analyzer = analyzer_of(block.iter_vars)

    def branch(select: Any) -> Any:
        values = (select.true_value, select.false_value)
        if all(may_be_discarded(value, analyzer, select.condition) for value in values):
            return select
        return tirx.if_then_else(select.condition, *values)

    def total(division: Any) -> Any:
        if not _is_movable(division, sizes) or divides(division, analyzer):
            return division
        safe = _through_calls if may_overflow(division, analyzer) else _not_zero
        return type(division)(division.a, safe(division.b))

    made = tvm_ffi.structural_map(block, (prim.Select, branch)) if selections else block
    for kind in DIVISIONS if divisions else ():
        made = tvm_ffi.structural_map(made, (kind, total))
    return made


def _not_zero(value: Any) -> Any:
    """Return a value, but 1 for 0: in bits, since TVM would leave a condition out in its guard."""
    dtype = tvm.DataType(str(value.ty.dtype))
    name, signed = str(dtype), str(dtype).removeprefix("u")
    # Half of the number, and not 0 for 1: its negative overflows for none. Without a sign, all
    # negatives would.
    half = prim.BitwiseOr(
        prim.RShift(value, tirx.const(1, name)), prim.BitwiseAnd(value, tirx.const(1, name))
    )
    half = half if name == signed else prim.Cast(signed, half)
    zero, one, last = (tirx.const(number, signed) for number in (0, 1, int(dtype.bits) - 1))
    # All ones, or 0 of 0.
    sign = prim.RShift(prim.BitwiseOr(half, zero - half), last)
    addend = one + sign
    return value + (addend if name == signed else prim.Cast(name, addend))


def _through_calls(value: Any) -> Any:
    """Return an integer with its bits taken for the other sign, and back: TVM moves no calls.

    The calls are of ``value ^ 0``: TVM prints no C for the bits of a literal, which a value may
    become.
    """
    dtype = str(value.ty.dtype)
    other = dtype.removeprefix("u") if dtype.startswith("u") else f"u{dtype}"
    number = prim.BitwiseXor(value, tirx.const(0, dtype))
    return tirx.reinterpret(dtype, tirx.reinterpret(other, number))


def _is_movable(division: Any, sizes: set[int]) -> bool:
    """Whether TVM may fold a division, or move it in front of its guard."""
    divisor = variables(division.b)
    if not is_integer(division) or all(handle(var) in sizes for var in divisor):
        return False
    return not (loads(division) or parts_of(division, Call)) or _may_become_a_number(division.b)


def _may_become_a_number(divisor: Any) -> bool:
    """Whether a condition in a divisor has a side without loads, as the zeros of padding."""
    choices = [
        (each.condition, each.true_value, each.false_value)
        if isinstance(each, prim.Select)
        else each.args
        for each in parts_of(divisor, prim.Select, Call)
        if isinstance(each, prim.Select) or is_guard(each)
    ]
    return any(
        not loads(condition) and not all(loads(side) for side in sides)
        for condition, *sides in choices
    )
