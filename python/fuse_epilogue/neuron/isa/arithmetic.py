"""The engines' arithmetic, on numpy: operands become float32, results are rounded when stored."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import Refused

Binary = Callable[[Any, Any], Any]
Unary = Callable[[Any], Any]

_ERF = np.frompyfunc(math.erf, 1, 1)


def _first(function: Unary) -> Binary:
    """Return a function of two operands that looks at the first only."""
    return lambda x, y: function(x)


def _sigmoid(x: Any) -> Any:
    return np.float32(1) / (np.float32(1) + np.exp(-x))


def _gelu(x: Any) -> Any:
    wide = np.asarray(x, np.float64)
    erf = np.asarray(_ERF(wide / math.sqrt(2.0)), np.float64)
    return (0.5 * wide * (1.0 + erf)).astype(np.float32)


def _silu_dx(x: Any) -> Any:
    s = _sigmoid(x)
    return s * (np.float32(1) + x * (np.float32(1) - s))


def _gelu_sigmoid_dx(x: Any) -> Any:
    s = _sigmoid(np.float32(1.702) * x)
    return s + np.float32(1.702) * x * s * (np.float32(1) - s)


def _gelu_tanh(x: Any) -> Any:
    inner = np.float32(math.sqrt(2.0 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (np.float32(1) + np.tanh(inner))


def _erf(x: Any) -> Any:
    return np.asarray(_ERF(np.asarray(x, np.float64)), np.float64).astype(np.float32)


def _gelu_dx(x: Any) -> Any:
    wide = np.asarray(x, np.float64)
    erf = np.asarray(_ERF(wide / math.sqrt(2.0)), np.float64)
    density = np.exp(-0.5 * wide * wide) / math.sqrt(2.0 * math.pi)
    return (0.5 * (1.0 + erf) + wide * density).astype(np.float32)


#: Elementwise operations of two operands, by their name in ``nl``.
BINARY: dict[str, Binary] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "power": np.power,
    "mod": np.mod,
    "abs_max": lambda x, y: np.maximum(np.abs(x), np.abs(y)),
    "abs_min": lambda x, y: np.minimum(np.abs(x), np.abs(y)),
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift,
    "right_shift": np.right_shift,
    "bypass": lambda x, y: x,
}

#: Operations on bits: operands stay integers, all of one type.
BITWISE = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"})

#: Operations of integers of 32 bits that GpSimd computes as such.
NATIVE = frozenset(
    {
        "add",
        "subtract",
        "multiply",
        "maximum",
        "minimum",
        "equal",
        "not_equal",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
    }
)

#: Reductions, by the elementwise operation they repeat.
REDUCERS: dict[str, Any] = {
    "add": np.add.reduce,
    "maximum": np.maximum.reduce,
    "minimum": np.minimum.reduce,
    "multiply": np.multiply.reduce,
    "abs_max": lambda x, axis: np.maximum.reduce(np.abs(x), axis=axis),
}

#: Activation functions by their name in ``nl``. The scalar engine approximates; these are exact up
#: to the rounding of float32.
FUNCTIONS: dict[str, Unary] = {
    "copy": lambda x: x,
    "relu": lambda x: np.maximum(x, np.float32(0)),
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "tanh": np.tanh,
    "exp": np.exp,
    "gelu": _gelu,
    "gelu_apprx_tanh": _gelu_tanh,
    "gelu_apprx_sigmoid": lambda x: x * _sigmoid(np.float32(1.702) * x),
    "erf": _erf,
    "softplus": lambda x: np.logaddexp(x, np.float32(0)),
    "log": np.log,
    "sin": np.sin,
    "arctan": np.arctan,
    "abs": np.abs,
    "mish": lambda x: x * np.tanh(np.logaddexp(x, np.float32(0))),
    "silu_dx": _silu_dx,
    "gelu_dx": _gelu_dx,
    "erf_dx": lambda x: np.float32(2 / math.sqrt(math.pi)) * np.exp(-x * x),
    "gelu_apprx_sigmoid_dx": _gelu_sigmoid_dx,
    "sign": np.sign,
    "reciprocal": lambda x: np.float32(1) / x,
    "square": np.square,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: np.float32(1) / np.sqrt(x),
}


#: Operations that take no second operand: None or 0 where one is given.
UNARY = frozenset({"abs", "square", "relu", "rsqrt", "reciprocal"})
BINARY |= {name: _first(FUNCTIONS[name]) for name in UNARY}


def widened(value: Any) -> Any:
    """Return an operand as the engines see it: float32."""
    if isinstance(value, np.ndarray):
        return value.astype(np.float32, copy=False)
    return np.float32(value)


def holds(dtype: str, value: float) -> bool:
    """Tell whether a type of integers has this value: infinities, NaN and fractions are in none."""
    limits = np.iinfo(dtype)
    return bool(limits.min <= value <= limits.max and value == int(value))


def combine(name: str, left: Any, right: Any) -> Any:
    """Return ``left op right``.

    - Raises Refused: bits of something that is not an integer.
    """
    if name not in BITWISE:
        return BINARY[name](widened(left), widened(right))
    types = {value.dtype for value in (left, right) if isinstance(value, np.ndarray)}
    if len(types) != 1 or any(t.kind not in "iu" for t in types):
        raise Refused("operand-types", f"nl.{name} takes integers of one type")
    if not all(isinstance(value, (int, np.ndarray)) for value in (left, right)):
        raise Refused("operand-types", f"nl.{name} takes integers")
    return BINARY[name](left, right)


def native(name: str, left: np.ndarray, right: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return ``left op right`` of integers of 32 bits, not rounded.

    - Raises Refused: the documents do not say what the result is.
    """
    if name not in NATIVE:
        raise Refused("operand-types", f"nl.{name} of {dtype.name} on GpSimd: not supported here")
    value = np.asarray(BINARY[name](left.astype(np.int64), right.astype(np.int64)))
    limits = np.iinfo(dtype)
    if value.dtype != np.bool_ and ((value < limits.min) | (value > limits.max)).any():
        raise Refused("operand-types", f"the result of nl.{name} does not fit in {dtype.name}")
    return value


def store(dst: np.ndarray, value: Any) -> None:
    """Round to the type of the destination: to nearest even, integers saturating.

    - Raises Refused: a NaN that would become an integer.
    """
    kind = np.asarray(value).dtype.kind
    if dst.dtype.kind not in "iu" or kind in "iub":
        if dst.dtype.kind in "iu" and kind in "iu":
            limits = np.iinfo(dst.dtype)
            value = np.clip(value, limits.min, limits.max)
        dst[...] = value
        return
    if np.isnan(value).any():
        raise Refused("operand-types", f"a NaN is stored as {dst.dtype.name}")
    limits = np.iinfo(dst.dtype)
    whole = np.clip(np.rint(np.asarray(value, np.float64)), limits.min, limits.max)
    dst[...] = whole.astype(dst.dtype)
