"""Scalars as the machine has them: the types, and the operations Python has no operator for.

Values while a program runs: integers are Python integers kept inside the range of their type,
booleans are booleans, float64 is a Python float, float16 and float32 are numpy scalars. bfloat16 is
a numpy float32, because TVM computes bfloat16 expressions in float32 and rounds only what it stores
into a parameter. Memory that was not written yet holds `POISON`, which every operation hands on.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


class EvaluationError(Exception):
    """The program does something that has no defined result, or that is not supported."""


class UnsupportedError(EvaluationError):
    """The program contains a node that cannot be evaluated; the message names it."""


class WorkLimit(EvaluationError):
    """The program takes more operations than were allowed."""


@dataclass(frozen=True)
class ScalarType:
    """A scalar type.

    - `name`: as TVM writes it.
    - `kind`: ``f`` float, ``i`` signed and ``u`` unsigned integer, ``b`` bool.
    - `bits`: width of the value.
    - `low`, `high`: range of an integer or a bool; 0 for a float.
    """

    name: str
    kind: str
    bits: int
    low: int
    high: int


def _types() -> dict[str, ScalarType]:
    found = [ScalarType("bool", "b", 1, 0, 1)]
    for bits in (8, 16, 32, 64):
        found.append(ScalarType(f"int{bits}", "i", bits, -(1 << (bits - 1)), (1 << (bits - 1)) - 1))
        found.append(ScalarType(f"uint{bits}", "u", bits, 0, (1 << bits) - 1))
    for bits in (16, 32, 64):
        found.append(ScalarType(f"float{bits}", "f", bits, 0, 0))
    found.append(ScalarType("bfloat16", "f", 16, 0, 0))
    return {entry.name: entry for entry in found}


#: Every scalar type that can be evaluated, by name.
SCALAR_TYPES = _types()


#: Types that are converted from and to, and not computed with: proofs know them, runs do not.
STORED_TYPES = {
    **{
        name: ScalarType(name, "f", 8, 0, 0)
        for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
    },
    "int4": ScalarType("int4", "i", 4, -8, 7),
    "uint4": ScalarType("uint4", "u", 4, 0, 15),
}


def stored_type(name: str) -> ScalarType:
    """Look up a scalar type that memory may hold.

    - `name`: for example ``"float8_e4m3fn"``, or that of a type that can be evaluated.
    - Raises UnsupportedError: for others.
    """
    return STORED_TYPES[name] if name in STORED_TYPES else scalar_type(name)


def scalar_type(name: str) -> ScalarType:
    """Look up a scalar type.

    - `name`: for example ``"int32"``.
    - Raises UnsupportedError: for vectors, handles and types of other widths.
    """
    found = SCALAR_TYPES.get(name)
    if found is None:
        raise UnsupportedError(f"values of type {name} cannot be evaluated")
    return found


def largest_of(type: ScalarType) -> float:
    """Return the largest finite number of a floating type."""
    return float(ml_dtypes.finfo(_numpy_type(type)).max)


def rounded(value: float, type: ScalarType) -> float:
    """Return the number of a floating type that is nearest to a value."""
    with np.errstate(over="ignore"):
        return float(np.float64(value).astype(_numpy_type(type)))


def _numpy_type(type: ScalarType) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, type.name, type.name))


class _Poison:
    """The value of memory that was never written: any operation on it gives it again."""

    # Makes numpy scalars leave the operation to the reflected operators below.
    __array_ufunc__ = None

    def _again(self, *_others: object) -> _Poison:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _again
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _again
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _again
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _again
    __neg__ = __invert__ = __abs__ = _again
    __lt__ = __le__ = __gt__ = __ge__ = _again
    __eq__ = __ne__ = _again  # type: ignore[assignment]
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise EvaluationError("a condition depends on memory that was never written")

    def __index__(self) -> int:
        raise EvaluationError("an index depends on memory that was never written")

    def __repr__(self) -> str:
        return "POISON"


#: The value of memory that was never written.
POISON: Any = _Poison()


def _strict(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function give poison where an argument is poison."""

    def wrapped(*args: Any) -> Any:
        for arg in args:
            if arg is POISON:
                return POISON
        return function(*args)

    return wrapped


# ---------------------------------------------------------------------------------------------
# Operators that Python does not spell the same way
# ---------------------------------------------------------------------------------------------


def maximum(a: Any, b: Any) -> Any:
    """Return ``a > b ? a : b``, NaN and signed zeros included."""
    if a is POISON or b is POISON:
        return POISON
    return a if a > b else b


def minimum(a: Any, b: Any) -> Any:
    """Return ``a < b ? a : b``."""
    if a is POISON or b is POISON:
        return POISON
    return a if a < b else b


def select(condition: Any, true_value: Any, false_value: Any) -> Any:
    """Both values are computed, one is taken."""
    return true_value if condition else false_value


@_strict
def ordered_not_equal(a: Any, b: Any) -> bool:
    """``!=`` of floats, which TVM makes an ordered comparison: false if one of them is NaN."""
    return bool(a < b or a > b)


@_strict
def truncdiv(a: int, b: int) -> int:
    """Quotient of integers, rounded to zero."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


@_strict
def truncmod(a: int, b: int) -> int:
    """Remainder that goes with `truncdiv`."""
    remainder = abs(a) % abs(b)
    return -remainder if a < 0 else remainder


def _checked(divide: Callable[[int, int], int]) -> Callable[[Any, Any, int], Any]:
    """Make a division raise where the quotient of signed integers overflows."""

    def checked(a: Any, b: Any, lowest: int) -> Any:
        if a is POISON or b is POISON:
            return POISON
        if a == lowest and b == -1:
            raise EvaluationError(f"{a} is divided by -1, and the quotient overflows")
        return divide(a, b)

    return checked


checked_div, checked_truncmod = _checked(truncdiv), _checked(truncmod)
checked_floordiv = _checked(operator.floordiv)
checked_floormod = _checked(operator.mod)


@_strict
def in_range(value: int, low: int, high: int) -> int:
    """Return `value`, which must lie in ``[low, high]``."""
    if not low <= value <= high:
        raise EvaluationError(f"{value} overflows [{low}, {high}]")
    return value


@_strict
def divide64(a: float, b: float) -> float:
    """Quotient of float64: Python's own raises for a zero divisor."""
    return float(np.float64(a) / np.float64(b))


@_strict
def float_remainder(a: Any, b: Any) -> Any:
    """Remainder of floats with the sign of `a`, in the type of `a`."""
    return type(a)(np.fmod(a, b))


def shift_amount(amount: Any, bits: int) -> Any:
    """Return `amount`; shifting by the width of the type or more has no defined result."""
    if amount is not POISON and not 0 <= amount < bits:
        raise EvaluationError(f"a {bits}-bit value is shifted by {amount}")
    return amount


def index(value: Any, extent: int, buffer: str, axis: int) -> int:
    """Return `value`, which must lie in ``[0, extent)``."""
    if value is POISON:
        raise EvaluationError(f"an index into '{buffer}' was never written")
    if not 0 <= value < extent:
        raise EvaluationError(
            f"'{buffer}' is accessed out of bounds: index {value} of axis {axis}, extent {extent}"
        )
    return int(value)


# ---------------------------------------------------------------------------------------------
# Conversions
# ---------------------------------------------------------------------------------------------


@_strict
def bool_to_int(value: Any) -> int:
    """Return 0 or 1."""
    return int(value)


@_strict
def to_bool(value: Any) -> bool:
    """Whether a number is not 0; NaN is not 0."""
    return bool(value != 0)


@_strict
def to_float16(value: Any) -> np.float16:
    """Round to float16."""
    return np.float16(value)


@_strict
def to_float32(value: Any) -> np.float32:
    """Round to float32; an integer must have at most 53 bits."""
    return np.float32(value)


@_strict
def to_float64(value: Any) -> float:
    """As a float64."""
    return float(value)


@_strict
def wide_to_float32(value: int) -> np.float32:
    """Convert a 64-bit integer to float32, rounding once (not first to float64)."""
    wide = np.uint64(value) if value >= 0 else np.int64(value)
    return wide.astype(np.float32)


@_strict
def wide_to_float16(value: int) -> np.float16:
    """Convert a 64-bit integer to float16, by way of float32 as compiled code does."""
    return np.float16(wide_to_float32(value))


@_strict
def round_bfloat16(value: np.float32) -> np.float32:
    """Round a float32 to the nearest bfloat16, ties to even; the result is a float32 again."""
    bits = int(value.view(np.uint32))
    if value != value:
        # Quieten, so that cutting the low half off cannot leave an infinity.
        bits |= 0x0040_0000
    else:
        bits += 0x7FFF + ((bits >> 16) & 1)
    return np.uint32(bits & 0xFFFF_0000).view(np.float32)


def float_to_int(value: Any, bits: int, signed: bool) -> Any:
    """Convert a float to an integer, rounding to zero, as x86 does where it does not fit.

    The instruction converts to 32 or 64 bits and gives the smallest integer for what does not
    fit; narrower types take the low bits.
    """
    if value is POISON:
        return POISON
    width = 64 if bits == 64 or (bits == 32 and not signed) else 32
    smallest = -(1 << (width - 1))
    number = float(value)
    if not signed and bits == 64 and 2.0**63 <= number < 2.0**64:
        return int(number)
    whole = int(number) if math.isfinite(number) else smallest
    if not smallest <= whole < -smallest:
        whole = smallest
    whole &= (1 << bits) - 1
    return whole - (1 << bits) if signed and whole >> (bits - 1) else whole


@_strict
def reinterpret(value: Any, source: str, target: str) -> Any:
    """Read the bits of `value` as another type of the same width."""
    seen = np.array([value], source).view(target)[0]
    return seen if target in ("float16", "float32") else seen.item()
