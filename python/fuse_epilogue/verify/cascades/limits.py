"""Values of terms where keys and the maximum or minimum so far are at the ends of their range.

exp(x - r) is NaN where x and r are both -inf, and so is exp(2 x - 2 r) where r is finite, but so
low that 2 r is not. Over a field that is lost, which takes exp(-inf - r) for 0: so it is read off
the program's expressions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tvm.ir import Call, TensorLoad, prim

from ...tir.walk import parts_of
from ..proof.field import Ratio
from .terms import Program

_EXPONENTIALS = {"tirx.exp", "tirx.exp2"}
#: The largest number of each type.
RANGES = {name: float(np.finfo(name).max) for name in ("float16", "float32", "float64")}


class Limits:
    """The values of a program's expressions where the result of a head and a key are known.

    - `program`: the function before.
    - `known`: numbers, such as the head's result and what it is taken over, and their values.
    """

    def __init__(self, program: Program, known: Sequence[tuple[Ratio, float]]) -> None:
        self._program = program
        self._equal = program.arithmetic.field.equal
        self._known = known

    def of(self, expr: Any, values: Mapping[int, Ratio]) -> float | None:
        """Return an infinity, NaN or a literal if that is what an expression is, else None.

        - `expr` (tvm.ir.Expr): an expression of the program; conditions in it are not known.
        - `values`: numbers that variables stand for, by handle.
        """
        if isinstance(expr, prim.FloatImm):
            return float(expr)
        combine = _OPERATIONS.get(type(expr))
        if combine is not None:
            found = combine(self.of(expr.a, values), self.of(expr.b, values))
            if found is not None:
                return _rounded(found, expr)
        if isinstance(expr, Call) and str(getattr(expr.op, "name", "")) in _EXPONENTIALS:
            inner = self.of(expr.args[0], values)
            return inner if inner is not None and math.isnan(inner) else None
        terms = self._program.terms(values)
        number = terms.number(expr)
        for known, value in self._known:
            if self._equal(number, known):
                return value
        if isinstance(expr, TensorLoad):
            stored = self._program.stored(expr, [terms.number(each) for each in expr.indices])
            return None if stored is None else self.of(*stored)
        return None

    def exponents(self, expr: Any, values: Mapping[int, Ratio]) -> Iterator[float | None]:
        """Yield the value of each exponent in an expression, as :meth:`of` does."""
        for part in parts_of(expr, Call, TensorLoad):
            if isinstance(part, TensorLoad):
                terms = self._program.terms(values)
                indices = [terms.number(each) for each in part.indices]
                stored = self._program.stored(part, indices)
                if stored is not None:
                    yield from self.exponents(*stored)
            elif str(getattr(part.op, "name", "")) in _EXPONENTIALS:
                yield self.of(part.args[0], values)


def _rounded(value: float | None, expr: Any) -> float | None:
    """Return a value as the type of an expression has it: what is too large is infinite."""
    if value is None or str(expr.ty.dtype) not in RANGES:
        return value
    with np.errstate(over="ignore"):
        return float(np.dtype(str(expr.ty.dtype)).type(value))


def _add(a: float | None, b: float | None) -> float | None:
    if _is_nan(a) or _is_nan(b):
        return math.nan
    return None if a is None or b is None else a + b


def _subtract(a: float | None, b: float | None) -> float | None:
    return _add(a, None if b is None else -b)


def _multiply(a: float | None, b: float | None) -> float | None:
    if _is_nan(a) or _is_nan(b):
        return math.nan
    return None if a is None or b is None else a * b


def _divide(a: float | None, b: float | None) -> float | None:
    if _is_nan(a) or _is_nan(b):
        return math.nan
    return None if a is None or not b else a / b


def _is_nan(a: float | None) -> bool:
    return a is not None and math.isnan(a)


_OPERATIONS: dict[type, Callable[[float | None, float | None], float | None]] = {
    prim.Add: _add,
    prim.Sub: _subtract,
    prim.Mul: _multiply,
    prim.Div: _divide,
}
