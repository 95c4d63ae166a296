"""TIR's integers and conditions as sums, and as Python where they are not sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm.ir import Call, TensorLoad, Var, prim

from .linear import Interval, Linear, named_term
from .refusals import EmitError

_WRITTEN = {
    prim.Add: "+",
    prim.Sub: "-",
    prim.Mul: "*",
    prim.FloorDiv: "//",
    prim.FloorMod: "%",
}
_CHOSEN = {prim.Min: "min", prim.Max: "max"}


class Integers:
    """Reads integers of loop variables.

    - `names` (dict[int, str]): names of loop variables, by handle.
    - `ranges` (dict[str, Interval]): the values of all terms.
    - `axes` (set[str]): variables that instructions cover: they occur in sums only.
    - `look_up` (Callable): returns an element of a table of integers as a sum, of a load and a
      subject for messages.
    """

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.values: dict[int, Linear] = {}
        self.ranges: dict[str, Interval] = {}
        self.axes: set[str] = set()
        self.look_up: Callable[[Any, str], Linear] = self._opaque

    def linear(self, expr: Any, subject: str) -> Linear:
        """Return an integer as a sum.

        - Raises EmitError: the index is not a sum of what an instruction covers.
        """
        match expr:
            case prim.IntImm():
                return Linear({}, int(expr.value))
            case Var():
                return self._variable(expr, subject)
            case prim.Add():
                return self.linear(expr.a, subject) + self.linear(expr.b, subject)
            case prim.Sub():
                return self.linear(expr.a, subject) - self.linear(expr.b, subject)
            case prim.Cast():
                return self._cast(expr, subject)
            case TensorLoad():
                return self.look_up(expr, subject)
            case prim.Mul():
                a, b = self.linear(expr.a, subject), self.linear(expr.b, subject)
                if a.fixed is not None or b.fixed is not None:
                    return b * a.fixed if a.fixed is not None else a * (b.fixed or 0)
            case prim.FloorDiv() | prim.FloorMod():
                a, b = self.linear(expr.a, subject), self.linear(expr.b, subject)
                simple = self._divided(a, b, isinstance(expr, prim.FloorDiv))
                if simple is not None:
                    return simple
            case Call() if getattr(expr.op, "name", "").endswith("likely"):
                return self.linear(expr.args[0], subject)
        return self._opaque(expr, subject)

    def _variable(self, var: Any, subject: str) -> Linear:
        value = self.values.get(var.__chandle__())
        if value is None:
            raise EmitError("statement", subject, f"'{var.name}' is not a loop's variable")
        return value

    def _cast(self, expr: Any, subject: str) -> Linear:
        """Return a cast integer: the integer itself, as no type may cut anything off."""
        value = self.linear(expr.value, subject)
        dtype = tvm.DataType(str(expr.ty.dtype))
        signed = str(dtype).startswith("int")
        least = -(2 ** (dtype.bits - 1)) if signed else 0
        low, high = value.bounds(self.ranges)
        if low < least or high >= least + 2**dtype.bits:
            reason = f"'{expr}' does not hold all values from {low} to {high}"
            raise EmitError("not-affine", subject, reason)
        return value

    def _divided(self, a: Linear, b: Linear, quotient: bool) -> Linear | None:
        """Divide a sum by a number, if that gives a sum."""
        by = b.fixed
        if not by or by < 0:
            return None
        whole = {name: n for name, n in a.terms.items() if n % by == 0}
        rest = Linear({k: n for k, n in a.terms.items() if k not in whole}, a.constant % by)
        low, high = rest.bounds(self.ranges)
        if low < 0 or high >= by:
            return None
        if not quotient:
            return rest
        return Linear({name: n // by for name, n in whole.items()}, a.constant // by)

    def _opaque(self, expr: Any, subject: str) -> Linear:
        """Return an expression of outer variables as one term."""
        kind = type(expr)
        if kind not in _WRITTEN and kind not in _CHOSEN:
            raise EmitError("not-affine", subject, f"'{expr}' is not a sum of loop variables")
        a, b = self.linear(expr.a, subject), self.linear(expr.b, subject)
        if self.axes.intersection((*a.terms, *b.terms)):
            raise EmitError(
                "not-affine", subject, f"'{expr}' is not a sum of the loops that are marked"
            )
        ends = [(x, y) for x in a.bounds(self.ranges) for y in b.bounds(self.ranges)]
        if kind in _CHOSEN:
            text = f"{_CHOSEN[kind]}({a}, {b})"
            values = [(min if kind is prim.Min else max)(x, y) for x, y in ends]
        elif kind is prim.Mul:
            text = f"{_factor(a)} * {_factor(b)}"
            values = [x * y for x, y in ends]
        elif b.bounds(self.ranges)[0] <= 0:
            raise EmitError("not-affine", subject, f"'{expr}' divides by what may be 0")
        elif kind is prim.FloorDiv:
            text = f"{_factor(a)} // {_factor(b)}"
            values = [x // y for x, y in ends]
        else:
            text = f"{_factor(a)} % {_factor(b)}"
            values = [0, b.bounds(self.ranges)[1] - 1]
        return self.term(text, (min(values), max(values)))

    def term(self, text: str, values: Interval) -> Linear:
        """Return a term that is not a variable."""
        return named_term(self.ranges, text, values)

    def conditions(self, expr: Any, subject: str) -> list[Linear] | None:
        """Return a condition as sums that are all at least 0; None if it never holds.

        Conditions that always hold are left out.

        - Raises EmitError: the condition is not a conjunction of comparisons.
        """
        match expr:
            case prim.And():
                a, b = self.conditions(expr.a, subject), self.conditions(expr.b, subject)
                return None if a is None or b is None else a + b
            case prim.IntImm():
                return [] if int(expr.value) else None
            case Call() if getattr(expr.op, "name", "").endswith("likely"):
                return self.conditions(expr.args[0], subject)
            case prim.Not():
                opposite = _OPPOSITE.get(type(expr.a))
                if opposite is not None:
                    return self.conditions(opposite(expr.a.a, expr.a.b), subject)
        if type(expr) not in _COMPARED:
            raise EmitError("not-affine", subject, f"'{expr}' is not a comparison of sums")
        difference = self.linear(expr.a, subject) - self.linear(expr.b, subject)
        found = []
        for factor, added in _COMPARED[type(expr)]:
            each = difference * factor + added
            low, high = each.bounds(self.ranges)
            if high < 0:
                return None
            if low < 0:
                found.append(each)
        return found


#: A comparison of a and b as what has to be at least 0: (a - b) * factor + added.
_COMPARED = {
    prim.LT: ((-1, -1),),
    prim.LE: ((-1, 0),),
    prim.GT: ((1, -1),),
    prim.GE: ((1, 0),),
    prim.EQ: ((1, 0), (-1, 0)),
}
_OPPOSITE = {prim.LT: prim.GE, prim.LE: prim.GT, prim.GT: prim.LE, prim.GE: prim.LT}


def _factor(value: Linear) -> str:
    text = str(value)
    return text if text.isidentifier() or text.isdigit() else f"({text})"
