"""Index expressions as sums of variables times constant factors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import prim
from tvm.sym import Analyzer, detect_linear_equation

from .walk import loads, uses


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
