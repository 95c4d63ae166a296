"""What reductions run over: a row for each monoid, from which programs are drawn and judged."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from .literals import literal
from .spec import FLOATS, SIGNED, UNSIGNED, is_float

# The largest finite number of a floating type; TVM's own of bfloat16 is rounded to infinity.
LARGEST = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "float64": 1.7976931348623157e308,
}
_INTEGERS = ("int32", "int32", "int32", "int64", *SIGNED, *UNSIGNED)
_FLOATS = ("float32", "float32", "float32", "float32", *FLOATS, *FLOATS)
_NUMBERS = (*_INTEGERS, *_FLOATS)


@dataclass(frozen=True)
class Monoid:
    """A row of `ROWS`.

    Attributes
    ----------
    operation : str
        The combiner, an operation of ``expressions``.
    identity : Callable[[str], Any]
        Returns the identity of a type as a literal.
    accumulators : tuple[str, ...]
        Types that are drawn.
    likely : tuple[str, ...]
        Operations of ``values`` that are likely to be absorbed or distributed.
    operands : tuple[str, ...]
        Operations with an operand that are likely to be absorbed.
    rounds : bool
        Whether floats are rounded where they are combined.
    is_exact : bool
        Whether the order of exact floats makes no difference.
    clashes : bool
        Whether two infinities of the same sign may give NaN.
    spelled : Callable[[Any, Any], Any] or None
        Makes the combiner where it is not one node of TIR.
    """

    operation: str
    identity: Callable[[str], Any]
    accumulators: tuple[str, ...]
    likely: tuple[str, ...]
    operands: tuple[str, ...]
    rounds: bool = False
    is_exact: bool = True
    clashes: bool = False
    spelled: Callable[[Any, Any], Any] | None = None


def _number(value: float) -> Callable[[str], Any]:
    return lambda dtype: literal(dtype, value)


def _lowest(dtype: str) -> Any:
    return literal(dtype, -LARGEST[dtype]) if is_float(dtype) else tirx.min_value(dtype)


def _highest(dtype: str) -> Any:
    return literal(dtype, LARGEST[dtype]) if is_float(dtype) else tirx.max_value(dtype)


def _ones(dtype: str) -> Any:
    return tirx.max_value(dtype) if dtype.startswith("u") else literal(dtype, -1)


def _logaddexp(a: Any, b: Any) -> Any:
    """Return log(exp(a) + exp(b)), as it is written so that nothing overflows."""
    one = literal(str(a.ty.dtype), 1)
    distance = tirx.Sub(tirx.Min(a, b), tirx.Max(a, b))
    return tirx.Add(tirx.Max(a, b), tirx.log(tirx.Add(one, tirx.exp(distance))))


ROWS: dict[str, Monoid] = {
    "sum": Monoid(
        "add",
        _number(0),
        _NUMBERS,
        ("add", "swapped add", "sub", "from", "scale"),
        ("add", "add", "sub"),
        rounds=True,
    ),
    "product": Monoid(
        "mul", _number(1), _NUMBERS, ("mul", "swapped mul", "scale"), ("mul",), rounds=True
    ),
    "max": Monoid(
        "max",
        _lowest,
        _NUMBERS,
        ("max", "swapped max", "relu", "clip", "add", "scale", "from"),
        ("max", "add"),
    ),
    "min": Monoid(
        "min",
        _highest,
        _NUMBERS,
        ("min", "swapped min", "clip", "sub", "scale", "negate"),
        ("min", "sub"),
    ),
    "logical and": Monoid("and", _number(1), ("bool",), ("and", "or", "invert"), ("and",)),
    "logical or": Monoid("or", _number(0), ("bool",), ("or", "and", "invert"), ("or",)),
    "bit-wise and": Monoid("bitand", _ones, _INTEGERS, ("bitand", "bitor", "invert"), ("bitand",)),
    "bit-wise or": Monoid(
        "bitor", _number(0), _INTEGERS, ("bitor", "bitand", "invert"), ("bitor",)
    ),
    "bit-wise xor": Monoid(
        "bitxor", _number(0), _INTEGERS, ("bitxor", "bitand", "invert"), ("bitxor",)
    ),
    "logaddexp": Monoid(
        "logaddexp",
        _number(-math.inf),
        _FLOATS,
        ("logaddexp", "swapped logaddexp", "shifted", "add"),
        ("logaddexp", "logaddexp", "add"),
        rounds=True,
        is_exact=False,
        clashes=True,
        spelled=_logaddexp,
    ),
}
