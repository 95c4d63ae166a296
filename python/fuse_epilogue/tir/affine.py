"""Index expressions as sums of variables times constant factors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Range, Var, prim
from tvm.sym import Analyzer, detect_iter_map, detect_linear_equation
from tvm.sym.iter_affine_map import IterMapLevel

from .walk import loads, substitute, uses


@dataclass(frozen=True)
class Affine:
    """An expression that is linear in some variables.

    - `factors`: one for each variable.
    - `rest` (Expr): the summand in which none of the variables occurs.
    """

    factors: tuple[int, ...]
    rest: Any

    @property
    def constant(self) -> int | None:
        """The rest as an int, None if it is not constant."""
        return int(self.rest) if isinstance(self.rest, prim.IntImm) else None


def affine_of(
    expr: Any, variables: Sequence[Any], analyzer: Analyzer | None = None
) -> Affine | None:
    """Return an expression as a sum of variables times factors, None if it is no such sum.

    - `expr` (Expr or int): expression of integers. One with a load is not affine, wherever the load
      is.
    - `variables`: all of one type with `expr`.
    - `analyzer`: simplifies the factors and the rest.
    """
    if isinstance(expr, int):
        expr = tirx.const(expr, variables[0].ty.dtype if variables else "int32")
    if loads(expr):
        return None
    found = list(detect_linear_equation(expr, list(variables)))
    if analyzer is not None:
        found = [analyzer.simplify(each) for each in found]
    if not found or not all(isinstance(each, prim.IntImm) for each in found[:-1]):
        return None
    if uses(found[-1], *variables):
        return None
    return Affine(tuple(int(each) for each in found[:-1]), found[-1])


def at_least_zero(inequality: Any) -> Any:
    """Return what is at least 0 where an inequality of integers holds, None for another."""
    if isinstance(inequality, prim.LE):
        return inequality.b - inequality.a
    if isinstance(inequality, prim.LT):
        return inequality.b - inequality.a - 1
    if isinstance(inequality, prim.GE):
        return inequality.a - inequality.b
    if isinstance(inequality, prim.GT):
        return inequality.a - inequality.b - 1
    return None


def as_constant(value: Any) -> Any:
    """Return an int for an integer that is constant, else the expression itself.

    - `value`: Expr or int.
    """
    return int(value) if isinstance(value, int | prim.IntImm) else value


def is_constant(value: Any, number: int) -> bool:
    """Whether an expression or an int is a certain integer."""
    return isinstance(value, int | prim.IntImm) and int(value) == number


def unit_axes(block: Any) -> dict[Any, Any]:
    """Return the values of the axes of a block that have one value."""
    return {axis.var: axis.dom.min for axis in block.iter_vars if is_constant(axis.dom.extent, 1)}


def is_one_to_one(indices: Any, axes: Any) -> bool:
    """Whether different values of some axes are different elements of a buffer.

    - `indices` (Sequence[Expr]): indices of the element.
    - `axes` (Sequence[tvm.tirx.IterVar]): from 0; those with one value do not matter.
    """
    one = {axis.var: axis.dom.min for axis in axes if as_constant(axis.dom.extent) == 1}
    moving = {
        axis.var: Range.from_min_extent(axis.dom.min, axis.dom.extent)
        for axis in axes
        if axis.var not in one
    }
    places = [substitute(index, one) for index in indices]
    places = [place for place in places if uses(place, *moving)]
    if not all(any(uses(place, var) for place in places) for var in moving):
        return False
    if len(places) == len(moving) and all(isinstance(place, Var) for place in places):
        return True
    return len(detect_iter_map(places, moving, check_level=IterMapLevel.Bijective).indices) > 0
