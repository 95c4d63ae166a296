"""Accesses that are linear in axes, and the bounds outside of which an operand is 0."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Call, TensorLoad, prim
from tvm.sym import Analyzer

from ..tir.affine import affine_of, at_least_zero
from ..tir.expressions import is_guard
from ..tir.types import bits_of
from ..tir.walk import handle, loads, parts_of, same, substitute
from .defined import may_be_discarded
from .inlining import simplified_indices
from .stages import Axis, analyzer_of


@dataclass(frozen=True)
class Linear:
    """An integer that is linear in the axes of a contraction.

    - `factors`: one for each axis, those of the result first.
    """

    factors: tuple[int, ...]
    constant: int

    def merged(self, place: int, extent: int) -> Linear | None:
        """Return it with an axis and the next one as one, None if it is not linear in that."""
        outer, inner = self.factors[place : place + 2]
        if outer != inner * extent:
            return None
        return Linear((*self.factors[:place], *self.factors[place + 1 :]), self.constant)

    def without(self, place: int) -> Linear:
        """Return it without an axis, which is always 0."""
        return Linear((*self.factors[:place], *self.factors[place + 1 :]), self.constant)


@dataclass(frozen=True)
class Bound:
    """A range in which an index has to be: ``0 <= index < size``.

    - `axis`: place of the axis of the result that is in the index, with a positive factor.
    - `tap`: place of the reduced axis that is in the index, with a positive factor.
    """

    index: Linear
    size: int
    axis: int
    tap: int


@dataclass(frozen=True)
class Operand:
    """A factor of the products.

    - `value` (Expr): with loads, which are the keys of `accesses`.
    - `accesses`: offset in elements, by the handle of the load.
    - `bounds`: outside of them, the factor is 0 and nothing is loaded.
    """

    value: Any
    accesses: dict[int, Linear]
    bounds: tuple[Bound, ...] = ()

    @property
    def loads(self) -> list[Any]:
        """The loads of the value."""
        return loads(self.value)

    @property
    def elements(self) -> int:
        """Number of elements of the largest array that it reads, 1 if it reads none."""
        sizes = (math.prod(map(int, load.source.shape)) for load in self.loads)
        return max(sizes, default=1)

    @property
    def bytes(self) -> int:
        """Bytes of the largest array that it reads."""
        return (
            max(
                (
                    math.prod(map(int, load.source.shape)) * bits_of(load.source.dtype)
                    for load in self.loads
                ),
                default=8,
            )
            // 8
        )

    def factors(self, place: int) -> tuple[int, ...]:
        """Return the factor of an axis in each access and bound."""
        linears = (*self.accesses.values(), *(bound.index for bound in self.bounds))
        return tuple(linear.factors[place] for linear in linears)

    def has(self, place: int) -> bool:
        """Whether it depends on an axis."""
        return any(self.factors(place))

    def only_load(self) -> Any:
        """Return its load if it is nothing else, but for casts; None otherwise."""
        value = self.value
        while isinstance(value, prim.Cast):
            value = value.value
        return value if isinstance(value, TensorLoad) else None


def has_guard(value: Any) -> bool:
    """Return whether a part of a value is computed under a condition only."""
    return any(map(is_guard, parts_of(value, Call)))


class Reader:
    """Reads accesses in the axes, some of which it splits so that all are linear."""

    def __init__(self, axes: list[Axis], reduced: list[Axis], values: list[Any]) -> None:
        self.axes, self.reduced = axes, reduced
        self.values = values

    def split(self) -> None:
        """Make two axes of each one whose quotient or remainder is in an index."""
        for _ in range(8):
            self._simplify()
            found = self._first_split()
            if found is None:
                return
            axis, by = found
            inner = Axis(tirx.Var(f"{axis.var.name}_i", str(axis.var.ty.dtype)), by)
            outer = Axis(tirx.Var(f"{axis.var.name}_o", str(axis.var.ty.dtype)), axis.extent // by)
            whole = outer.var * prim.IntImm(str(axis.var.ty.dtype), by) + inner.var
            self.values = [substitute(value, {axis.var: whole}) for value in self.values]
            for group in (self.axes, self.reduced):
                if axis in group:
                    at = group.index(axis)
                    group[at : at + 1] = [outer, inner]

    def _first_split(self) -> tuple[Axis, int] | None:
        by_var = {handle(axis.var): axis for axis in (*self.axes, *self.reduced)}
        for value in self.values:
            for load in loads(value):
                nodes = [
                    node
                    for index in load.indices
                    for kind in (prim.FloorDiv, prim.FloorMod)
                    for node in parts_of(index, kind)
                ]
                for node in nodes:
                    axis = by_var.get(handle(node.a))
                    if axis is None or not isinstance(node.b, prim.IntImm):
                        continue
                    by = int(node.b)
                    if 1 < by < axis.extent and axis.extent % by == 0:
                        return axis, by
        return None

    def _simplify(self) -> None:
        analyzer = analyzer_of((*self.axes, *self.reduced))
        self.values = [simplified_indices(value, analyzer) for value in self.values]

    def may_be_vectors(self, value: Any) -> bool:
        """Return whether a value may be computed for several elements together."""
        return not parts_of(value, prim.Select) or may_be_discarded(
            value, analyzer_of((*self.axes, *self.reduced))
        )

    def operand(self, value: Any, guarded: bool = False, skip: Any = None) -> Operand | None:
        """Return a value with its accesses, None if one is not linear."""
        analyzer = analyzer_of((*self.axes, *self.reduced))
        bounds: tuple[Bound, ...] = ()
        if guarded:
            inside = value
            casts = []
            while isinstance(inside, prim.Cast):
                casts.append(str(inside.ty.dtype))
                inside = inside.value
            if is_guard(inside):
                found = self._bounds(inside, analyzer)
                if found is None:
                    return None
                bounds, value = found
                for dtype in reversed(casts):
                    value = prim.Cast(dtype, value)
        if has_guard(value) and guarded:
            return None
        accesses: dict[int, Linear] = {}
        for load in loads(value):
            if skip is not None and same(load.source, skip):
                continue
            total: Any = 0
            for index, size in zip(load.indices, load.source.shape, strict=True):
                total = total * int(size) + index
            linear = self._linear(total, analyzer)
            if linear is None:
                return None
            accesses[handle(load)] = linear
        return Operand(value, accesses, bounds)

    def _linear(self, value: Any, analyzer: Analyzer) -> Linear | None:
        if isinstance(value, int):
            value = prim.IntImm("int64", value)
        variables = [axis.var for axis in (*self.axes, *self.reduced)]
        found = affine_of(analyzer.simplify(value), variables)
        if found is None or found.constant is None:
            return None
        return Linear(found.factors, found.constant)

    def _bounds(self, guard: Any, analyzer: Analyzer) -> tuple[tuple[Bound, ...], Any] | None:
        """Return the bounds of ``if_then_else(condition, value, 0)`` and the value."""
        condition, value, otherwise = guard.args
        if not isinstance(otherwise, prim.IntImm | prim.FloatImm) or otherwise.value != 0:
            return None
        found = loads(value)
        if len(found) != 1:
            return None
        linear = [self._linear(index, analyzer) for index in found[0].indices]
        indices = [index for index in linear if index is not None]
        if len(indices) != len(linear):
            return None
        sizes = [int(size) for size in found[0].source.shape]
        ends: dict[int, set[bool]] = {place: set() for place in range(len(sizes))}
        for term in _terms(condition):
            inequality = self._inequality(term, analyzer)
            if inequality is None:
                return None
            if all(factor == 0 for factor in inequality.factors) and inequality.constant >= 0:
                continue
            for place, (index, size) in enumerate(zip(indices, sizes, strict=True)):
                above = index == inequality
                below = inequality == Linear(
                    tuple(-each for each in index.factors), size - 1 - index.constant
                )
                if above or below:
                    ends[place].add(above)
                    break
            else:
                return None
        bounds = []
        for place, (index, size) in enumerate(zip(indices, sizes, strict=True)):
            if not ends[place]:
                continue
            bound = self._bound(index, size)
            if bound is None:
                return None
            bounds.append(bound)
        return tuple(bounds), value

    def _bound(self, index: Linear, size: int) -> Bound | None:
        """Return a bound; one end that is not tested holds anyway, as the load is in its buffer."""
        in_result = [p for p in range(len(self.axes)) if index.factors[p]]
        count = len(index.factors)
        in_sum = [p for p in range(len(self.axes), count) if index.factors[p]]
        if len(in_result) != 1 or len(in_sum) > 1:
            return None
        if any(factor < 0 for factor in index.factors):
            return None
        return Bound(index, size, in_result[0], in_sum[0] if in_sum else -1)

    def _inequality(self, term: Any, analyzer: Analyzer) -> Linear | None:
        """Return what has to be at least 0."""
        value = at_least_zero(term)
        return None if value is None else self._linear(value, analyzer)


def _terms(condition: Any) -> Iterable[Any]:
    if isinstance(condition, prim.And):
        yield from _terms(condition.a)
        yield from _terms(condition.b)
    else:
        yield condition
