"""Intervals of real numbers, and how much rounding widens them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from .functions import FLOAT_FUNCTIONS

#: An interval: its ends.
Interval = tuple[Any, Any]

NAN: Interval = (math.nan, math.nan)
ANYTHING: Interval = (-math.inf, math.nan)


class Format:
    """Rounding of a float type: unit roundoff, half the smallest number, the largest number."""

    def __init__(self, unit: float, tiny: float, largest: float, dtype: Any) -> None:
        self.unit = unit
        self.tiny = tiny
        self.largest = largest
        self.dtype = np.dtype(dtype)
        # What float64 adds while it computes the ends.
        self.relative = unit + 2.0**-51


#: The float types.
FORMATS = {
    "float16": Format(2.0**-11, 2.0**-25, 65504.0, np.float16),
    "float32": Format(2.0**-24, 2.0**-150, float(np.finfo("float32").max), np.float32),
    "float64": Format(2.0**-53, 5e-324, float(np.finfo("float64").max), np.float64),
    "bfloat16": Format(2.0**-8, 2.0**-134, float(np.finfo("float32").max), ml_dtypes.bfloat16),
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


def rounded(form: Format, low: float, high: float, exact: bool) -> Interval:
    """Widen an interval by one rounding; none where the one value in it can be represented."""
    if exact and low == high and (math.isinf(low) or _is_in(form, low)):
        return (low, high)
    if math.isfinite(low):
        low -= abs(low) * form.relative + form.tiny
    if math.isfinite(high):
        high += abs(high) * form.relative + form.tiny
    return (low if low >= -form.largest else -math.inf, high if high <= form.largest else math.inf)


def _is_in(form: Format, value: float) -> bool:
    with np.errstate(over="ignore"):
        return float(np.array(value, form.dtype)) == value


def add(form: Format, a: Interval, b: Interval) -> Interval:
    """Bound a sum."""
    if (a[1] == math.inf and b[0] == -math.inf) or (a[0] == -math.inf and b[1] == math.inf):
        return NAN if a[0] == a[1] and b[0] == b[1] else ANYTHING
    low, high = a[0] + b[0], a[1] + b[1]
    exact = False
    if a[0] == a[1] and b[0] == b[1]:
        # The error of a float64 addition, which is a float64 itself.
        part = low - a[0]
        exact = math.isinf(low) or (a[0] - (low - part)) + (b[0] - part) == 0
    return rounded(form, low, high, exact)


def corners(
    form: Format,
    operation: Callable[[float, float], float],
    exactly: Callable[[Fraction, Fraction], Fraction],
    a: Interval,
    b: Interval,
) -> Interval:
    """Bound a product or quotient by those of the ends; `exactly` is the same on fractions."""
    ends = [operation(x, y) for x in {*a} for y in {*b}]
    if any(end != end for end in ends) or _zero_times_infinity(a, b):
        return NAN if len(ends) == 1 else ANYTHING
    low, high = min(ends), max(ends)
    exact = len(ends) == 1 or (0, 0) in (a, b)
    if exact and math.isfinite(low) and math.isfinite(a[0]) and math.isfinite(b[0]):
        exact = exactly(Fraction(a[0]), Fraction(b[0])) == Fraction(low)
    return rounded(form, low, high, exact)


def _zero_times_infinity(a: Interval, b: Interval) -> bool:
    for x, y in ((a, b), (b, a)):
        if x[0] <= 0 <= x[1] and math.inf in (abs(y[0]), abs(y[1])):
            return True
    return False


def function(name: str, form: Format, args: Sequence[Interval]) -> Interval:
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
