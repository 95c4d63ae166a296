"""Integers of a fixed width as Python integers: wrapping, and bounds that save it."""

from __future__ import annotations

from .scalars import ScalarType, UnsupportedError
from .values import Value


def static_int(value: int, type: ScalarType) -> Value:
    """Return a literal integer or bool."""
    if type.kind == "b":
        return Value("True" if value else "False", type, True, value, value)
    return Value(str(value) if value >= 0 else f"({value})", type, True, value, value)


def wrapped(code: str, type: ScalarType, low: int, high: int) -> Value:
    """Return a static integer whose bounds before wrapping are known."""
    return Value(wrap(code, type, low, high), type, True, *clamp(type, low, high))


def wrap(code: str, type: ScalarType, low: int, high: int) -> str:
    """Return `code` brought into the range of `type`; nothing to do if its bounds are inside."""
    if type.low <= low and high <= type.high:
        return code
    mask = (1 << type.bits) - 1
    if type.kind == "u":
        return f"({code} & {mask})"
    return f"((({code} + {-type.low}) & {mask}) - {-type.low})"


def clamp(type: ScalarType, low: int, high: int) -> tuple[int, int]:
    """Return the bounds of a value after `wrap`."""
    return (low, high) if type.low <= low and high <= type.high else (type.low, type.high)


def without_overflow(name: str, code: str, type: ScalarType) -> str:
    """Return `code`, which raises where LLVM takes the overflow of an operation for impossible."""
    if name in ("add", "sub", "mul") and type.kind in "iu" and type.bits > 16:
        return f"in_range({code}, {type.low}, {type.high})"
    return code


def static_binary(name: str, a: Value, b: Value, checked: bool = False) -> Value:
    """Write an operation on Python integers, of one integer type (or bools, bit-wise)."""
    code, low, high = integer_operation(name, a, b)
    if checked and not (a.type.low <= low and high <= a.type.high):
        code = without_overflow(name, code, a.type)
    if a.type.kind == "b":
        return Value(code, a.type, True)
    return wrapped(code, a.type, low, high)


def integer_operation(name: str, a: Value, b: Value) -> tuple[str, int, int]:
    """Return source and bounds, before wrapping, of an operation on integers.

    - Raises UnsupportedError: for an operation that integers do not have.
    """
    widest = a.type.low, a.type.high
    if name in ("add", "sub", "mul"):
        corners = _corners(name, a, b)
        return f"({a.code} {_OPERATORS[name]} {b.code})", min(corners), max(corners)
    if name in ("max", "min"):
        pick = max if name == "max" else min
        return f"{name}imum({a.code}, {b.code})", pick(a.low, b.low), pick(a.high, b.high)
    if name in ("and", "or", "xor"):
        return f"({a.code} {_OPERATORS[name]} {b.code})", *widest
    if name in _DIVISIONS and a.type.kind == "i" and a.low == a.type.low and b.low <= -1 <= b.high:
        # The quotient of the lowest integer by -1 is none of the type.
        return f"checked_{name}({a.code}, {b.code}, {a.low})", widest[0], widest[1]
    if name == "floordiv" or (name == "div" and a.low >= 0 and b.low >= 0):
        if b.low > 0:
            return (
                f"({a.code} // {b.code})",
                min(a.low // b.low, a.low // b.high),
                max(a.high // b.low, a.high // b.high),
            )
        return f"({a.code} // {b.code})", widest[0], widest[1] + 1
    if name == "floormod" or (name == "truncmod" and a.low >= 0 and b.low >= 0):
        bounds = (0, b.high - 1) if b.low > 0 else widest
        return f"({a.code} % {b.code})", *bounds
    if name == "div":
        return f"truncdiv({a.code}, {b.code})", widest[0], widest[1] + 1
    if name == "truncmod":
        return f"truncmod({a.code}, {b.code})", *widest
    if name in ("shl", "shr"):
        amount = b.code
        if b.low < 0 or b.high >= a.type.bits:
            amount = f"shift_amount({b.code}, {a.type.bits})"
        if name == "shr":
            return f"({a.code} >> {amount})", min(a.low, 0), max(a.high, 0)
        return f"({a.code} << {amount})", a.type.low - 1, a.type.high + 1
    raise UnsupportedError(f"{name} of {a.type.name}")


_DIVISIONS = ("div", "truncmod", "floordiv", "floormod")
_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}


def _corners(name: str, a: Value, b: Value) -> list[int]:
    pairs = [(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    if name == "add":
        return [x + y for x, y in pairs]
    if name == "sub":
        return [x - y for x, y in pairs]
    return [x * y for x, y in pairs]
