"""Intervals that hold whatever a program may compute, in any order of its additions.

A value is an interval of real numbers that holds the exact result and every result that rounding
may give, one operation at a time (a running error bound). Where the machine is exact, the interval
is a single number. `NAN` stands for what is NaN in any case, `ANYTHING` for what may be NaN or
depends on more than rounding (the maximum of a NaN and a number).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from .abstract import Arithmetic
from .functions import FLOAT_FUNCTIONS, q_multiply_shift
from .scalars import POISON, EvaluationError, ScalarType, UnsupportedError, truncdiv, truncmod

#: An interval: its ends.
Interval = tuple[Any, Any]

NAN: Interval = (math.nan, math.nan)
ANYTHING: Interval = (-math.inf, math.nan)

_TRUE, _FALSE, _EITHER = (True, True), (False, False), (False, True)


class WorkLimit(EvaluationError):
    """The program takes more operations than were allowed."""


class _Format:
    """How a float type rounds: unit roundoff, half the smallest number, the largest number."""

    def __init__(self, unit: float, tiny: float, largest: float, dtype: Any) -> None:
        self.unit = unit
        self.tiny = tiny
        self.largest = largest
        self.dtype = np.dtype(dtype)
        # What float64 adds while it computes the ends.
        self.relative = unit + 2.0**-51


_FORMATS = {
    "float16": _Format(2.0**-11, 2.0**-25, 65504.0, np.float16),
    "float32": _Format(2.0**-24, 2.0**-150, float(np.finfo("float32").max), np.float32),
    "float64": _Format(2.0**-53, 5e-324, float(np.finfo("float64").max), np.float64),
    "bfloat16": _Format(2.0**-8, 2.0**-134, float(np.finfo("float32").max), ml_dtypes.bfloat16),
}
_LIBRARY_ERROR = 8

_INCREASING = {
    "exp", "exp2", "log", "log2", "log10", "log1p", "sqrt", "sigmoid", "tanh", "erf", "atan",
    "sinh", "asinh", "asin", "atanh", "acosh", "floor", "ceil", "trunc", "round", "nearbyint",
}  # fmt: skip
_DECREASING = {"acos", "rsqrt"}
_EXACT_FUNCTIONS = {"floor", "ceil", "trunc", "round", "nearbyint"}
_DOMAINS = {
    "log": (0.0, math.inf),
    "log2": (0.0, math.inf),
    "log10": (0.0, math.inf),
    "log1p": (-1.0, math.inf),
    "sqrt": (0.0, math.inf),
    "rsqrt": (0.0, math.inf),
    "asin": (-1.0, 1.0),
    "acos": (-1.0, 1.0),
    "atanh": (-1.0, 1.0),
    "acosh": (1.0, math.inf),
}


def is_nan(value: Interval) -> bool:
    """Whether a value is NaN in any case."""
    return bool(value[0] != value[0])


def is_unknown(value: Interval) -> bool:
    """Whether nothing is known of a value."""
    return bool(value[1] != value[1] and value[0] == value[0])


class IntervalArithmetic(Arithmetic):
    """Operations on intervals.

    Parameters
    ----------
    limit : int
        How many operations may be done before `WorkLimit` is raised.

    Example
    -------
    >>> from fuse_epilogue.verify.scalars import scalar_type
    >>> IntervalArithmetic().binary("add", scalar_type("int8"), (100, 100), (27, 28))
    (-128, 127)
    """

    def __init__(self, limit: int = 1 << 62) -> None:
        self._left = limit

    def literal(self, value: float, type: ScalarType) -> Interval:
        """Return a literal, rounded to its type."""
        rounded = float(np.float64(value).astype(_FORMATS[type.name].dtype))
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
        form = _FORMATS[type.name]
        if name == "add":
            return _add(form, a, b)
        if name == "sub":
            return _add(form, a, (-b[1], -b[0]))
        if name == "mul":
            return _corners(form, lambda x, y: x * y, Fraction.__mul__, a, b)
        if name == "div":
            if b[0] <= 0 <= b[1]:
                return NAN if a == b == (0, 0) else ANYTHING
            return _corners(form, lambda x, y: x / y, Fraction.__truediv__, a, b)
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
                return _rounded(_FORMATS[target.name], a[0], a[1], a[0] == a[1])
            if target.kind == "b":
                return _nonzero(a) if not is_nan(a) else _TRUE
            return _float_to_int(a, target)
        if target.kind == "f":
            low, high = float(a[0]), float(a[1])
            exact = a[0] == a[1] and int(low) == a[0]
            return _rounded(_FORMATS[target.name], low, high, exact)
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
        if type.kind != "f":
            return (type.low, type.high)
        return _function(name, _FORMATS[type.name], args)

    def _gather(self, buffer: list[Any], type: ScalarType, name: str, axes: Sequence[Any]) -> Any:
        spans = []
        for given, is_data, _type, extent, stride in axes:
            low, high = given if is_data else (given, given)
            if low < 0 or high >= extent:
                raise EvaluationError(f"'{name}' is accessed out of bounds: {low} to {high}")
            spans.append([position * stride for position in range(low, high + 1)])
        found = [buffer[sum(place)] for place in itertools.product(*spans)]
        if any(value is POISON for value in found):
            return POISON
        result = found[0]
        for value in found[1:]:
            result = self._choose(type, _EITHER, result, value)
        return result


def _rounded(form: _Format, low: float, high: float, exact: bool) -> Interval:
    """Widen an interval by one rounding; none where the one value in it can be represented."""
    if exact and low == high and (math.isinf(low) or float(np.array(low, form.dtype)) == low):
        return (low, high)
    if math.isfinite(low):
        low -= abs(low) * form.relative + form.tiny
    if math.isfinite(high):
        high += abs(high) * form.relative + form.tiny
    return (low if low >= -form.largest else -math.inf, high if high <= form.largest else math.inf)


def _add(form: _Format, a: Interval, b: Interval) -> Interval:
    if (a[1] == math.inf and b[0] == -math.inf) or (a[0] == -math.inf and b[1] == math.inf):
        return NAN if a[0] == a[1] and b[0] == b[1] else ANYTHING
    low, high = a[0] + b[0], a[1] + b[1]
    exact = False
    if a[0] == a[1] and b[0] == b[1]:
        # The error of a float64 addition, which is a float64 itself.
        part = low - a[0]
        exact = math.isinf(low) or (a[0] - (low - part)) + (b[0] - part) == 0
    return _rounded(form, low, high, exact)


def _corners(
    form: _Format,
    operation: Callable[[float, float], float],
    exactly: Callable[[Fraction, Fraction], Fraction],
    a: Interval,
    b: Interval,
) -> Interval:
    ends = [operation(x, y) for x in {*a} for y in {*b}]
    if any(end != end for end in ends) or _zero_times_infinity(a, b):
        return NAN if len(ends) == 1 else ANYTHING
    low, high = min(ends), max(ends)
    exact = len(ends) == 1
    if exact and math.isfinite(low) and math.isfinite(a[0]) and math.isfinite(b[0]):
        exact = exactly(Fraction(a[0]), Fraction(b[0])) == Fraction(low)
    return _rounded(form, low, high, exact)


def _zero_times_infinity(a: Interval, b: Interval) -> bool:
    for x, y in ((a, b), (b, a)):
        if x[0] <= 0 <= x[1] and math.inf in (abs(y[0]), abs(y[1])):
            return True
    return False


def _nonzero(a: Interval) -> Interval:
    if a[1] != a[1] or (a[0] <= 0 <= a[1] and a[0] != a[1]):
        return _EITHER
    return _FALSE if a[0] == a[1] == 0 else _TRUE


def _float_to_int(a: Interval, target: ScalarType) -> Interval:
    if a[1] == a[1] and target.low - 1 < a[0] and a[1] < target.high + 1:
        return (int(a[0]), int(a[1]))
    return (target.low, target.high)


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
_MONOTONE = {"add", "sub", "mul", "max", "min"}
# Monotone in the first operand where the second is a positive constant.
_MONOTONE_FIRST = {"div", "floordiv", "shr"}


def _integer_binary(name: str, type: ScalarType, a: Interval, b: Interval) -> Interval:
    operation = _POINTWISE.get(name)
    if operation is None:
        raise UnsupportedError(f"{name} of {type.name}")
    points = b[0] == b[1]
    if name in ("shl", "shr") and points and not 0 <= b[0] < type.bits:
        raise EvaluationError(f"a {type.bits}-bit value is shifted by {b[0]}")
    if a[0] == a[1] and points:
        result = operation(a[0], b[0])
        return _wrap(type, result, result) if type.kind != "b" else (result, result)
    if name in _MONOTONE or (name in _MONOTONE_FIRST and points and b[0] >= 0):
        ends = [operation(x, y) for x in a for y in b]
        return _wrap(type, min(ends), max(ends))
    return (type.low, type.high)


def _function(name: str, form: _Format, args: Sequence[Interval]) -> Interval:
    """Bound a function of floats; the libraries that compute them are off by a few units."""
    if any(is_nan(arg) for arg in args):
        return NAN
    if any(arg[1] != arg[1] for arg in args):
        return ANYTHING
    low, high = args[0]
    domain = _DOMAINS.get(name)
    if domain is not None and not (domain[0] <= low and high <= domain[1]):
        return NAN if high < domain[0] or low > domain[1] else ANYTHING
    if name == "fabs":
        ends = sorted((abs(low), abs(high)))
        return (0.0 if low <= 0 <= high else ends[0], ends[1])
    if name in _INCREASING or name in _DECREASING:
        with np.errstate(all="ignore"):
            ends = sorted(float(FLOAT_FUNCTIONS[name](np.float64(end))) for end in (low, high))
    elif name in ("sin", "cos"):
        centre = getattr(math, name)((low + high) / 2) if math.isfinite(high - low) else 0.0
        reach = (high - low) / 2 if math.isfinite(high - low) else 1.0
        ends = [max(centre - reach, -1.0), min(centre + reach, 1.0)]
    elif name == "pow" and low > 0:
        with np.errstate(all="ignore"):
            corners = [float(np.power(np.float64(x), y)) for x in args[0] for y in args[1]]
        ends = [min(corners), max(corners)]
    else:
        return ANYTHING
    if any(end != end for end in ends):
        return ANYTHING
    if name in _EXACT_FUNCTIONS:
        return (ends[0], ends[1])
    # tanh is lowered to a quotient of differences, whose error is relative to 1.
    scale = [max(abs(end), 1.0) if name == "tanh" else abs(end) for end in ends]
    slack = _LIBRARY_ERROR * (form.tiny + 1 / form.largest)
    error = _LIBRARY_ERROR * form.relative
    low = ends[0] - (error * scale[0] + slack if math.isfinite(ends[0]) else 0.0)
    high = ends[1] + (error * scale[1] + slack if math.isfinite(ends[1]) else 0.0)
    return (low if low >= -form.largest else -math.inf, high if high <= form.largest else math.inf)
