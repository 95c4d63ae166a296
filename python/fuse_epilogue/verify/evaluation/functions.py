"""The functions that expressions call, on scalars of the machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .scalars import POISON


def _sigmoid(x: Any) -> Any:
    one = type(x)(1)
    return one / (one + np.exp(-x))


def _tanh(x: Any) -> Any:
    """Compute tanh as TVM lowers it for LLVM; of -0.0 it is 0.0."""
    one, two = type(x)(1), type(x)(2)
    if x >= 0:
        small = np.exp(-two * x)
        return (one - small) / (one + small)
    small = np.exp(two * x)
    return (small - one) / (small + one)


def _by_math(function: Callable[[float], float]) -> Callable[[Any], Any]:
    return lambda x: function(float(x))


def _rsqrt(x: Any) -> Any:
    return type(x)(1) / np.sqrt(x)


#: Functions of floats by the name of TVM's operator; the result is rounded to the operand's type.
FLOAT_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(type(x)(10), x),
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "erf": _by_math(math.erf),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "pow": np.power,
    "hypot": np.hypot,
    "copysign": np.copysign,
    "nextafter": np.nextafter,
    "fma": lambda a, b, c: a * b + c,
    "fabs": np.fabs,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    # TVM lowers both to the instruction that rounds halves to even.
    "round": np.rint,
    "nearbyint": np.rint,
}


def float_function(name: str, narrow: type | None) -> Callable[..., Any]:
    """Make a function of scalars from a row of `FLOAT_FUNCTIONS`.

    - `name`: the row.
    - `narrow`: numpy type of operands and result; None for float64, whose scalars are Python
      floats.
    - Returns: gives poison for poison.
    """
    function = FLOAT_FUNCTIONS[name]
    going_in: Callable[[Any], Any] = np.float64 if narrow is None else lambda x: x
    coming_out: Callable[[Any], Any] = float if narrow is None else narrow

    def call(*args: Any) -> Any:
        for arg in args:
            if arg is POISON:
                return POISON
        return coming_out(function(*map(going_in, args)))

    return call


def q_multiply_shift(x: Any, y: Any, q: Any, s: Any) -> Any:
    """Fixed-point multiplication of an int32, as TVM lowers ``tirx.q_multiply_shift``.

    - `x`, `y` (int): the value and the multiplier, a fixed-point number with `q` fractional bits.
    - `q` (int): fractional bits.
    - `s` (int): shift: to the left if positive.
    - Returns: ``round(x * y * 2**(s - q))``, halves up, modulo 2**32.
    """
    if any(arg is POISON for arg in (x, y, q, s)):
        return POISON
    if y == 1 << 30:
        exponent = s - 1
        result = x << exponent if exponent > 0 else _shift_right_rounding(x, -exponent)
    else:
        wide = (x << s if s > 0 else x) * y
        result = _shift_right_rounding(wide, q - min(s, 0))
    return ((result + (1 << 31)) & 0xFFFF_FFFF) - (1 << 31)


def _shift_right_rounding(value: int, amount: int) -> int:
    return (value + (1 << (amount - 1))) >> amount if amount else value
