"""Statements about all points of an iteration domain.

Domains with constant extents are enumerated, which proves the statement. Others are proved by TVM's
analyzer, after trying the statement at a few sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from tvm import sym
from tvm.error import InternalError
from tvm.ir import Call, Range, Var, prim
from tvm.sym.analyzer import ProofStrength

from ...tir.walk import handle, substitute, variables
from ..evaluation.scalars import scalar_type

# Points up to which a domain is enumerated.
_POINTS = 200_000
_SIZES = ((1, 1, 1, 1), (2, 3, 5, 4), (7, 4, 3, 6), (16, 8, 12, 5))

#: A variable with the start and the extent of its range.
Axis = tuple[Any, Any, Any]

_OPERATIONS: dict[type, Callable[..., Any]] = {
    prim.Add: np.add,
    prim.Sub: np.subtract,
    prim.Mul: np.multiply,
    prim.FloorDiv: np.floor_divide,
    prim.FloorMod: np.mod,
    prim.Max: np.maximum,
    prim.Min: np.minimum,
    prim.LT: np.less,
    prim.LE: np.less_equal,
    prim.GT: np.greater,
    prim.GE: np.greater_equal,
    prim.EQ: np.equal,
    prim.NE: np.not_equal,
    prim.And: np.logical_and,
    prim.Or: np.logical_or,
    prim.BitwiseAnd: np.bitwise_and,
    prim.LShift: np.left_shift,
    prim.RShift: np.right_shift,
}


_DIVISIONS = (prim.Div, prim.Mod, prim.FloorDiv, prim.FloorMod)

# What the analyzer raises for literals that divide by zero or leave their type.
_NOT_FOLDED = (ValueError, InternalError)


class NotIndex(Exception):
    """An expression is not one of loop variables and sizes alone."""


def evaluate_index(expr: Any, values: Mapping[int, Any]) -> Any:
    """Evaluate an integer expression at many points.

    - `expr` (tvm.ir.Expr): bounds of the variables in `values`.
    - `values` (mapping of int to numpy.ndarray or int): by handle.
    - Raises NotIndex: if there is something else in it.
    """
    if isinstance(expr, prim.IntImm):
        return int(expr.value)
    if isinstance(expr, Var):
        if handle(expr) not in values:
            raise NotIndex(f"'{expr.name}'")
        return values[handle(expr)]
    operation = _OPERATIONS.get(type(expr))
    if operation is not None or isinstance(expr, (prim.Div, prim.Mod)):
        a, b = evaluate_index(expr.a, values), evaluate_index(expr.b, values)
        if isinstance(expr, _DIVISIONS) and np.any(np.equal(b, 0)):
            raise NotIndex("a division by zero")
        if operation is not None:
            return operation(a, b)
        quotient = np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))
        return quotient if isinstance(expr, prim.Div) else a - b * quotient
    if isinstance(expr, prim.Not):
        return np.logical_not(evaluate_index(expr.a, values))
    if isinstance(expr, prim.Cast):
        if scalar_type(expr.ty.dtype).kind not in "iu":
            raise NotIndex(f"a conversion to {expr.ty.dtype}")
        value = np.asarray(evaluate_index(expr.value, values))
        return value.astype(str(expr.ty.dtype)).astype(np.int64)
    if isinstance(expr, prim.Select):
        parts = (expr.condition, expr.true_value, expr.false_value)
        return np.where(*(evaluate_index(part, values) for part in parts))
    if isinstance(expr, Call) and str(getattr(expr.op, "name", "")) == "tirx.likely":
        return evaluate_index(expr.args[0], values)
    raise NotIndex(type(expr).__name__)


class Domain:
    """Points: all values of some axes for which a condition holds.

    - `axes`: variables with the start and the extent of their ranges.
    - `predicate` (tvm.ir.Expr, optional): the condition.
    - `sizes` (sequence of Var): symbolic dimensions: positive numbers. (Where one is zero there is
      nothing to prove.)
    """

    def __init__(
        self, axes: Sequence[Axis], predicate: Any = None, sizes: Sequence[Any] = ()
    ) -> None:
        self.axes = list(axes)
        if isinstance(predicate, prim.IntImm) and int(predicate.value):
            predicate = None
        self.predicate = predicate
        self._own = {handle(var) for var, _, _ in self.axes}
        self._points: dict[tuple[tuple[int, int], ...], dict[int, Any] | None] = {}
        self.analyzer = sym.Analyzer()
        self.sizes = tuple(sizes)
        for size in self.sizes:
            self.analyzer.bind(size, Range.from_min_extent(1, _largest(size)))
        for var, start, extent in self.axes:
            self.analyzer.bind(var, Range.from_min_extent(start, extent))

    @cached_property
    def free(self) -> dict[int, Any]:
        """Variables of the extents and the condition that are not axes: sizes, outer axes."""
        parts = [part for _, start, extent in self.axes for part in (start, extent)]
        if self.predicate is not None:
            parts.append(self.predicate)
        return self._free(parts)

    def _free(self, exprs: Sequence[Any]) -> dict[int, Any]:
        found = {handle(v): v for expr in exprs for v in variables(expr)}
        return {key: var for key, var in found.items() if key not in self._own}

    def points(self, sizes: Mapping[int, int]) -> dict[int, np.ndarray] | None:
        """Return all points for given values of free variables; None if there are too many."""
        # Of the variables that decide about them.
        key = tuple((var, int(sizes[var])) for var in self.free if var in sizes)
        if key not in self._points:
            self._points[key] = self._enumerate(sizes)
        return self._points[key]

    def _enumerate(self, sizes: Mapping[int, int]) -> dict[int, np.ndarray] | None:
        spans = []
        total = 1
        for _, start, extent in self.axes:
            first = int(evaluate_index(start, sizes))
            count = int(evaluate_index(extent, sizes))
            total *= count
            if total > _POINTS:
                return None
            spans.append(np.arange(first, first + count))
        grid = np.meshgrid(*spans, indexing="ij") if spans else []
        found: dict[int, Any] = {
            handle(var): values.ravel() for (var, _, _), values in zip(self.axes, grid, strict=True)
        }
        if self.predicate is not None:
            kept = np.broadcast_to(
                evaluate_index(self.predicate, {**sizes, **found}), (total,)
            ).astype(bool)
            found = {key: values[kept] for key, values in found.items()}
        return found

    def samples(self, free: Mapping[int, Any]) -> list[dict[int, int]]:
        """Return values for free variables to try: none needed, or several."""
        if not free:
            return [{}]
        return [dict(zip(free, itertools.cycle(sizes), strict=False)) for sizes in _SIZES]

    def holds(self, condition: Any) -> bool:
        """Whether a condition is proved for every point.

        - `condition` (tvm.ir.Expr): predicate on the axes and free variables, a bool.
        """
        free = {**self.free, **self._free([condition])}
        enumerated = self._enumerated(condition, free)
        if enumerated is False or (enumerated and not free):
            return bool(enumerated)
        if self.predicate is None:
            return self._proved(condition)
        with self.analyzer.constraint_scope(self.predicate):
            return self._proved(condition)

    def _proved(self, condition: Any) -> bool:
        if isinstance(condition, prim.And):
            return self._proved(condition.a) and self._proved(condition.b)
        try:
            return self._can_prove(condition)
        except _NOT_FOLDED:
            return False

    def _can_prove(self, condition: Any) -> bool:
        if isinstance(condition, prim.EQ) and self.analyzer.can_prove_equal(
            condition.a, condition.b
        ):
            return True
        return bool(self.analyzer.can_prove(condition, ProofStrength.SYMBOLIC_BOUND))

    def _enumerated(self, condition: Any, free: Mapping[int, Any]) -> bool | None:
        """Try a condition at every point; None if that is not possible."""
        try:
            for sizes in self.samples(free):
                points = self.points(sizes)
                if points is None:
                    return None
                values = {**sizes, **points}
                if not np.all(evaluate_index(condition, values) | self._empty(points)):
                    return False
        except (NotIndex, ZeroDivisionError, ValueError):
            return None
        return True

    def _empty(self, points: Mapping[int, np.ndarray]) -> bool:
        return any(values.size == 0 for values in points.values())

    def equal(self, a: Sequence[Any], b: Sequence[Any]) -> bool:
        """Whether index expressions are proved equal, one by one, at every point."""
        return len(a) == len(b) and all(
            prim.expr_deep_equal(x, y) or self.holds(prim.EQ(x, _as(y, x)))
            for x, y in zip(a, b, strict=True)
        )

    def simplify(self, expr: Any) -> Any:
        """Return an index expression simplified with what is known of the axes."""
        try:
            return self.analyzer.simplify(expr, steps=3)
        except _NOT_FOLDED:
            return expr


def _as(expr: Any, like: Any) -> Any:
    """Return `expr` in the type of `like`."""
    return expr if expr.ty.dtype == like.ty.dtype else prim.Cast(str(like.ty.dtype), expr)


def in_range(value: Any, start: Any, extent: Any) -> Any:
    """Return the condition that a value lies in a range."""
    start, extent = _as(start, value), _as(extent, value)
    return prim.And(prim.GE(value, start), prim.LT(value, prim.Add(start, extent)))


def one_to_one(
    source: Domain, images: Sequence[Any], target: Sequence[Axis], inverse: Sequence[Any]
) -> str:
    """Prove that a map takes the points of a domain one to one onto all values of axes.

    - `source`: domain of the map, for example the iterations of loops.
    - `images` (sequence of tvm.ir.Expr): the value of each target axis at a point of the source.
    - `target`: the target axes.
    - `inverse` (sequence of tvm.ir.Expr): the claimed inverse: each source axis in the target axes.
    - Returns: the claim that is not proved; empty if all are.
    """
    if len(images) != len(target) or len(inverse) != len(source.axes):
        return "the number of variables differs"
    forward = {handle(axis[0]): value for axis, value in zip(target, images, strict=True)}
    for (var, _, _), back in zip(source.axes, inverse, strict=True):
        again = substitute(back, forward)
        if not source.holds(prim.EQ(again, _as(var, again))):
            return f"'{var.name}' is not {back} at every iteration"
    for (var, start, extent), value in zip(target, images, strict=True):
        if not source.holds(in_range(value, start, extent)):
            return f"{value} leaves the domain of '{var.name}'"
    backward = {
        handle(axis[0]): _as(value, axis[0])
        for axis, value in zip(source.axes, inverse, strict=True)
    }
    onto = Domain(target, sizes=source.sizes)
    for (var, start, extent), back in zip(source.axes, inverse, strict=True):
        start, extent = substitute(start, backward), substitute(extent, backward)
        if not onto.holds(in_range(back, start, extent)):
            return f"{back} leaves the range of '{var.name}'"
    if source.predicate is not None and not onto.holds(substitute(source.predicate, backward)):
        return "the predicate leaves out a part of the domain"
    return ""


def loop_domain(loops: Sequence[Any], predicate: Any = None, sizes: Sequence[Any] = ()) -> Domain:
    """Return the iterations of loops."""
    return Domain([(loop.loop_var, loop.min, loop.extent) for loop in loops], predicate, sizes)


def block_axes(block: Any) -> list[Axis]:
    """Return the axes of a block with their ranges."""
    return [(axis.var, axis.dom.min, axis.dom.extent) for axis in block.iter_vars]


def _largest(size: Any) -> Any:
    """Return the number of positive values of a size."""
    dtype = str(size.ty.dtype)
    return prim.IntImm(dtype, (1 << 31) - 1 if dtype == "int32" else (1 << 62))
