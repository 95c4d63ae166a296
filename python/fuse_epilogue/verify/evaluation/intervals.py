"""Intervals that hold whatever a program may compute, in any order of its additions.

A value is an interval of real numbers that holds the exact result and every result that rounding
may give, one operation at a time (a running error bound). Where the machine is exact, the interval
is a single number. `NAN` stands for what is NaN in any case, `ANYTHING` for what may be NaN or
depends on more than rounding (the maximum of a NaN and a number).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from .abstract import Arithmetic
from .data import numpy_type
from .functions import q_multiply_shift
from .rounding import (
    ANYTHING,
    FORMATS,
    NAN,
    Interval,
    add,
    corners,
    function,
    is_nan,
    is_unknown,
    rounded,
)
from .scalars import POISON, ScalarType, UnsupportedError, WorkLimit, truncdiv, truncmod

_TRUE, _FALSE, _EITHER = (True, True), (False, False), (False, True)


class IntervalArithmetic(Arithmetic):
    """Operations on intervals.

    - `limit`: how many operations may be done before `WorkLimit` is raised.
    """

    def __init__(self, limit: int = 1 << 62) -> None:
        self._left = limit

    def literal(self, value: float, type: ScalarType) -> Interval:
        """Return a literal, rounded to its type."""
        rounded = float(np.float64(value).astype(FORMATS[type.name].dtype))
        return (rounded, rounded)

    def integer(self, value: int, type: ScalarType) -> Interval:
        """Return a known integer or bool."""
        return (value, value)

    def _binary(self, name: str, type: ScalarType, a: Interval, b: Interval) -> Interval:
        self._left -= 1
        if self._left < 0:
            raise WorkLimit("too many operations for intervals")
        if type.kind != "f":
            return _integer_binary(name, type, a, b)
        if name in ("max", "min"):
            if a[1] != a[1] or b[1] != b[1]:
                return ANYTHING
            pick = max if name == "max" else min
            return (pick(a[0], b[0]), pick(a[1], b[1]))
        if is_nan(a) or is_nan(b):
            return NAN
        if a[1] != a[1] or b[1] != b[1]:
            return ANYTHING
        form = FORMATS[type.name]
        if name == "add":
            return add(form, a, b)
        if name == "sub":
            return add(form, a, (-b[1], -b[0]))
        if name == "mul":
            return corners(form, lambda x, y: x * y, Fraction.__mul__, a, b)
        if name == "div":
            if b[0] <= 0 <= b[1]:
                return NAN if a == b == (0, 0) else ANYTHING
            return corners(form, lambda x, y: x / y, Fraction.__truediv__, a, b)
        return ANYTHING

    def _compare(self, name: str, type: ScalarType, a: Interval, b: Interval) -> Interval:
        if a[1] != a[1] or b[1] != b[1]:
            return _FALSE if is_nan(a) or is_nan(b) else _EITHER
        if name in ("gt", "ge"):
            return self._compare("lt" if name == "gt" else "le", type, b, a)
        if name == "ne":
            equal = self._compare("eq", type, a, b)
            return (not equal[1], not equal[0])
        if name == "eq":
            if a[0] == a[1] == b[0] == b[1]:
                return _TRUE
            return _FALSE if a[1] < b[0] or b[1] < a[0] else _EITHER
        if name == "lt":
            return _TRUE if a[1] < b[0] else _FALSE if a[0] >= b[1] else _EITHER
        return _TRUE if a[1] <= b[0] else _FALSE if a[0] > b[1] else _EITHER

    def _logical(self, name: str, operands: Sequence[Interval]) -> Interval:
        a = operands[0]
        if name == "not":
            return (not a[1], not a[0])
        b = operands[1]
        if name == "and":
            return (a[0] and b[0], a[1] and b[1])
        return (a[0] or b[0], a[1] or b[1])

    def _cast(self, a: Interval, source: ScalarType, target: ScalarType) -> Interval:
        if source.kind == "f":
            if target.kind == "f":
                if a[1] != a[1]:
                    return a
                return rounded(FORMATS[target.name], a[0], a[1], a[0] == a[1])
            if target.kind == "b":
                return _nonzero(a) if not is_nan(a) else _TRUE
            return _float_to_int(a, target)
        if target.kind == "f":
            low, high = float(a[0]), float(a[1])
            exact = a[0] == a[1] and int(low) == a[0]
            return rounded(FORMATS[target.name], low, high, exact)
        if target.kind == "b":
            return _nonzero(a)
        return _wrap(target, int(a[0]), int(a[1]))

    def _choose(self, type: ScalarType, condition: Interval, a: Any, b: Any) -> Any:
        if condition[0] == condition[1]:
            return a if condition[0] else b
        if a is POISON or b is POISON:
            return POISON
        if a[1] != a[1] or b[1] != b[1]:
            return ANYTHING
        return (min(a[0], b[0]), max(a[1], b[1]))

    def _call(
        self, name: str, type: ScalarType, sources: Sequence[ScalarType], args: Sequence[Interval]
    ) -> Interval:
        if name == "q_multiply_shift":
            x, *rest = args
            if any(low != high for low, high in rest) or rest[0][0] < 0:
                return (type.low, type.high)
            fixed = [low for low, _ in rest]
            return _wrap(type, q_multiply_shift(x[0], *fixed), q_multiply_shift(x[1], *fixed))
        if name == "isnan":
            return _TRUE if is_nan(args[0]) else _EITHER if is_unknown(args[0]) else _FALSE
        if name == "fma" and type.kind == "f":
            return self._binary("add", type, self._binary("mul", type, *args[:2]), args[2])
        if name == "reinterpret":
            return _reinterpreted(args[0], sources[0], type)
        if type.kind != "f":
            return (type.low, type.high)
        return function(name, FORMATS[type.name], args)

    def _gather(self, buffer: list[Any], type: ScalarType, name: str, axes: Sequence[Any]) -> Any:
        spans = []
        for given, is_data, _type, extent, stride in axes:
            low, high = given if is_data else (given, given)
            if low < 0 or high >= extent:
                return _anything(type)
            spans.append([position * stride for position in range(low, high + 1)])
        found = [buffer[sum(place)] for place in itertools.product(*spans)]
        if any(value is POISON for value in found):
            return POISON
        result = found[0]
        for value in found[1:]:
            result = self._choose(type, _EITHER, result, value)
        return result


def _anything(type: ScalarType) -> Interval:
    """Return what holds every value: of what is not defined, and had better not be chosen."""
    return ANYTHING if type.kind == "f" else (type.low, type.high)


def _nonzero(a: Interval) -> Interval:
    if a[1] != a[1] or (a[0] <= 0 <= a[1] and a[0] != a[1]):
        return _EITHER
    return _FALSE if a[0] == a[1] == 0 else _TRUE


def _float_to_int(a: Interval, target: ScalarType) -> Interval:
    if a[1] == a[1] and target.low - 1 < a[0] and a[1] < target.high + 1:
        return (int(a[0]), int(a[1]))
    return (target.low, target.high)


def _reinterpreted(a: Interval, source: ScalarType, target: ScalarType) -> Interval:
    """Bound the bits of numbers: in the order of the numbers, or of negative floats reversed."""
    if source.kind in "iu" and target.kind in "iu":
        return _wrap(target, int(a[0]), int(a[1]))
    if source.kind == "f" and target.kind in "iu" and (a[0] > 0 or a[1] < 0):
        ends = sorted(int(_bits(float(end), source, target)) for end in a)
        return (ends[0], ends[1])
    if source.kind in "iu" and target.kind == "f" and a[0] == a[1]:
        value = float(_bits(int(a[0]), source, target))
        return (value, value)
    # The sign of a zero, and all of a NaN, depend on the order of operations.
    return _anything(target)


def _bits(number: float, source: ScalarType, target: ScalarType) -> Any:
    """Return what another type makes of the bits of a number that is rounded to its own."""
    with np.errstate(over="ignore"):
        return np.array(number).astype(numpy_type(source)).view(numpy_type(target))


def _wrap(type: ScalarType, low: int, high: int) -> Interval:
    if type.low <= low and high <= type.high:
        return (low, high)
    if low == high:
        low = (low - type.low) % (1 << type.bits) + type.low
        return (low, low)
    return (type.low, type.high)


_POINTWISE: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": truncdiv,
    "truncmod": truncmod,
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "max": max,
    "min": min,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
}
_DIVISIONS = {"div", "truncmod", "floordiv", "floormod"}
_MONOTONE = {"add", "sub", "mul", "max", "min"}
# Monotone in the first operand where the second is a positive constant.
_MONOTONE_FIRST = {"div", "floordiv", "shr"}


def _integer_binary(name: str, type: ScalarType, a: Interval, b: Interval) -> Interval:
    operation = _POINTWISE.get(name)
    if operation is None:
        raise UnsupportedError(f"{name} of {type.name}")
    points = b[0] == b[1]
    if name in ("shl", "shr") and not 0 <= b[0] <= b[1] < type.bits:
        return _anything(type)
    if name in _DIVISIONS and b[0] <= 0 <= b[1]:
        return _anything(type)
    if a[0] == a[1] and points:
        result = operation(a[0], b[0])
        return _wrap(type, result, result) if type.kind != "b" else (result, result)
    if name in _MONOTONE or (name in _MONOTONE_FIRST and points and b[0] >= 0):
        ends = [operation(x, y) for x in a for y in b]
        return _wrap(type, min(ends), max(ends))
    return (type.low, type.high)
