"""Values of terms in rows whose keys are all the infinity that a maximum or minimum starts at.

exp(x - r) is NaN where x and r are both -inf. Over a field that is lost, which takes exp(-inf - r)
for 0: so it is read off the program's expressions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tvm.ir import Call, TensorLoad, prim

from ..proof.field import Ratio
from .terms import Program

_EXPONENTIALS = {"tirx.exp", "tirx.exp2"}


class Limits:
    """The values of a program's expressions at the start of a head.

    - `program`: the function before.
    - `start`: the infinity.
    - `at_start`: the numbers that are that infinity: the head's result, and what it is taken over.
    """

    def __init__(self, program: Program, start: float, at_start: list[Ratio]) -> None:
        self._program = program
        self._equal = program.arithmetic.field.equal
        self._start = start
        self._at_start = at_start

    def of(self, expr: Any, values: Mapping[int, Ratio]) -> float | None:
        """Return an infinity, NaN or a literal if that is what an expression is, else None.

        - `expr` (tvm.ir.Expr): an expression of the program; conditions in it are not known.
        - `values`: numbers that variables stand for, by handle.
        """
        terms = self._program.terms(values)
        if isinstance(expr, prim.FloatImm):
            return float(expr)
        number = terms.number(expr)
        if any(self._equal(number, known) for known in self._at_start):
            return self._start
        if isinstance(expr, TensorLoad):
            stored = self._program.stored(expr, [terms.number(each) for each in expr.indices])
            return None if stored is None else self.of(*stored)
        if isinstance(expr, Call) and str(getattr(expr.op, "name", "")) in _EXPONENTIALS:
            inner = self.of(expr.args[0], values)
            return inner if inner is not None and math.isnan(inner) else None
        combine = _OPERATIONS.get(type(expr))
        if combine is None:
            return None
        return combine(self.of(expr.a, values), self.of(expr.b, values))


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
