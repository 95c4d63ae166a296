"""Loops over the reduced axes of a contraction: order, limits at borders, written-out steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

from ....recognize.accesses import Bound
from ..loops import index, loop, sequence
from .plan import Plan

#: Values of the axes of a contraction, by their places.
Env = dict[int, Any]


def tap_order(plan: Plan) -> tuple[int, ...]:
    """Return the reduced axes, outermost first: those of windows, then channels.

    Innermost is the axis along which the rows' operand is contiguous.
    """
    contraction = plan.contraction
    bounds = contraction.a.bounds
    outer = {bound.tap for bound in bounds if bound.axis not in plan.rows}
    inner = {bound.tap for bound in bounds if bound.axis in plan.rows}
    count = len(contraction.axes)
    reduced = range(count, len(contraction.extents))

    def key(axis: int) -> tuple[int, int]:
        if axis in outer:
            return (0, axis)
        if axis in inner:
            return (1, axis)
        largest = max((abs(f) for f in contraction.a.factors(axis)), default=0)
        return (2, -largest)

    return tuple(sorted(reduced, key=key))


def limits(bounds: Sequence[Bound], extent: int, env: Env) -> tuple[Any, Any]:
    """Return the first value of a tap inside of bounds, and the one after the last."""
    begin: Any = index(0)
    end: Any = index(extent)
    for bound in bounds:
        step = bound.index.factors[bound.tap]
        base: Any = index(bound.index.constant)
        if bound.axis >= 0:
            base = base + env[bound.axis] * index(bound.index.factors[bound.axis])
        low = tirx.floordiv(index(step - 1) - base, index(step))
        high = tirx.floordiv(index(bound.size - 1) - base, index(step)) + index(1)
        begin = tirx.max(begin, low)
        end = tirx.min(end, high)
    return begin, tirx.max(begin, end)


def unrolled(extent: int, body: Callable[[Any], Any], by: int) -> Any:
    """Return a loop with n steps written out, and those that are left."""
    whole, rest = divmod(extent, by)
    statements = []
    unroll = tirx.ForKind.UNROLLED
    if whole:
        statements.append(
            loop(
                "k", 0, whole, lambda k: loop("u", 0, by, lambda u: body(k * index(by) + u), unroll)
            )
        )
    if rest:
        statements.append(loop("u", 0, rest, lambda u: body(u + index(whole * by)), unroll))
    return sequence(statements)
