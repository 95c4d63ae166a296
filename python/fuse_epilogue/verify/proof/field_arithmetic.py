"""Functions run over a field: floats are real numbers, and exponentials multiply."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ..evaluation.abstract import Arithmetic
from ..evaluation.rounding import FORMATS
from ..evaluation.scalars import ScalarType, WorkLimit
from .field import Field, Ratio

#: Name of the atom of an exponential that is not multiplied with others.
EXPONENTIAL = "one exponential"

_COMPARISONS = {
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
}


def _has(type: ScalarType, value: int) -> bool:
    """Return whether an integer is a value of a type; of floats, those below the first gap."""
    if type.kind == "f":
        return abs(value) * FORMATS[type.name].unit <= 1
    return type.low <= value <= type.high


def _wraps(type: ScalarType) -> bool:
    """Return whether sums may wrap around: of wide signed integers TVM takes them not to."""
    return type.kind == "u" or (type.kind == "i" and type.bits < 32)


def _wrapped(field: Field, type: ScalarType, a: Ratio) -> Ratio:
    """Return a number of a type; an integer that is known, inside of its range."""
    known = a.constant
    if type.kind not in "iu" or known is None or type.low <= known <= type.high:
        return a
    return field.literal(Fraction((int(known) - type.low) % (1 << type.bits) + type.low))


class FieldArithmetic(Arithmetic):
    """Operations on numbers of a field.

    Integers are whole numbers in it: sums, differences and products that are equal here are equal
    modulo 2**n too. What else is done to them (comparing, converting, dividing) depends on where
    they wrap around: literals do so here, and operands made of conditions, which are the same in
    every type, are named by theirs. Numbers are equal wherever no divisor is zero.

    - `limit`: how many operations may be done before `WorkLimit` is raised.
    - `exact`: whether floats must be the same bit for bit: then nothing is known of sums, products
      and functions of them but that those of the same operands are the same.
    - `apart` (bool): whether each exponential is an atom of its own: of ``exp(x) * exp(y)`` and
      ``exp(x + y)``, which are the same number, only one may overflow.
    """

    def __init__(self, limit: int, exact: bool = False) -> None:
        self.field = Field()
        self._left = limit
        self._exact = exact
        self.apart = False

    def unknown(self, name: str, element: int) -> Ratio:
        """Return the unknown that stands for an element of a buffer, or for a number (-1)."""
        return self.field.atom((name, element))

    def literal(self, value: float, type: ScalarType) -> Ratio:
        """Return a literal."""
        return self.field.literal(value)

    def integer(self, value: int, type: ScalarType) -> Ratio:
        """Return a known integer or bool."""
        return self.field.literal(Fraction(int(value)))

    def _binary(self, name: str, type: ScalarType, a: Ratio, b: Ratio) -> Ratio:
        self._left -= 1
        if self._left < 0:
            raise WorkLimit("too many operations in a field")
        field = self.field
        ring = name in ("add", "sub", "mul", "div") and not (self._exact and type.kind == "f")
        if ring and name != "div":
            return _wrapped(field, type, getattr(field, name)(a, b))
        if ring and type.kind == "f":
            return field.div(a, b)
        a, b = (self._of_type(type, each) for each in (a, b))
        if name in ("max", "min"):
            known, other = a.constant, b.constant
            if known is not None and other is not None:
                return field.literal(max(known, other) if name == "max" else min(known, other))
            return field.extremum(name, [a, b])
        return field.atom((name, type.name), (a, b))

    def _compare(self, name: str, type: ScalarType, a: Ratio, b: Ratio) -> Ratio:
        field = self.field
        if name in ("gt", "ge"):
            return self._compare("lt" if name == "gt" else "le", type, b, a)
        if name == "ne":
            return self._logical("not", [self._compare("eq", type, a, b)])
        apart = field.sub(a, b).constant
        a, b = (self._of_type(type, each) for each in (a, b))
        known = a.constant is not None and b.constant is not None
        if apart is not None and name == "eq" and type.kind in "iu":
            return field.literal(Fraction(int(apart % (1 << type.bits) == 0)))
        # Integers wrap around: x < x + 1 need not hold.
        if apart is not None and (known or apart == 0 or type.kind == "f"):
            return field.literal(Fraction(int(_COMPARISONS[name](apart, 0))))
        # A float may be a NaN, of which neither holds: x <= y is not what is left of y < x.
        if name == "le" and type.kind != "f":
            return self._logical("not", [self._compare("lt", type, b, a)])
        if name == "eq":
            return field.equality(a, b)
        return field.condition(name, (a, b))

    def _of_type(self, type: ScalarType, a: Ratio) -> Ratio:
        """Return an operand that is not the same as one of another type, where it may wrap."""
        if not _wraps(type) or a.constant is not None or not self.field.conditions(a):
            return a
        return self.field.atom(("value", type.name), (a,))

    def _logical(self, name: str, operands: Sequence[Ratio]) -> Ratio:
        field, a = self.field, operands[0]
        if name == "not":
            return field.sub(field.one, a)
        both = field.mul(a, operands[1])
        return both if name == "and" else field.sub(field.add(a, operands[1]), both)

    def _cast(self, a: Ratio, source: ScalarType, target: ScalarType) -> Ratio:
        wider = source.kind == target.kind and target.bits > source.bits
        if source.name == target.name or (wider and source.kind == "f") or source.kind == "b":
            return a
        a = self._of_type(source, a)
        known = a.constant
        if known is not None and known.denominator == 1 and _has(target, int(known)):
            return a
        return self.field.atom(("cast", source.name, target.name), (a,))

    def _choose(self, type: ScalarType, condition: Ratio, a: Any, b: Any) -> Any:
        known = condition.constant
        if known is not None:
            return a if known else b
        return self.field.choose(condition, a, b)

    def _call(
        self, name: str, type: ScalarType, sources: Sequence[ScalarType], args: Sequence[Ratio]
    ) -> Ratio:
        field = self.field
        if self._exact or any(each.kind != "f" for each in (type, *sources)):
            return field.atom((name, type.name, *(each.name for each in sources)), args)
        if name in ("exp", "exp2"):
            two = name == "exp2"
            power = field.mul(args[0], field.atom("log of 2")) if two else args[0]
            return field.atom(EXPONENTIAL, (power,)) if self.apart else field.exp(power)
        if name == "rsqrt":
            return field.div(field.one, field.atom("sqrt", args))
        if name == "fma":
            return field.add(field.mul(args[0], args[1]), args[2])
        if name == "pow":
            exponent = args[1].constant
            if exponent is not None and exponent.denominator == 1 and abs(exponent) <= 8:
                return field.power(args[0], int(exponent))
        return field.atom(name, args)
