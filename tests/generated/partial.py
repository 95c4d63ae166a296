"""Drawing operands that are undefined on some data, mostly behind a guard that keeps them from it.

Guards and operands need not fit: data is chosen so that an operand is defined wherever its guard
lets it be evaluated, see ``reached``. Only a short input needs a guard of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .expressions import TABLE, is_lazy
from .monoids import ROWS
from .reached import FACTOR
from .spec import SIGNED, Expr, bits, is_float

if TYPE_CHECKING:
    from .values import Drawing

# An operand, and the condition under which it is defined.
Partial = tuple[Expr, Expr]


def apply_partial(d: Drawing, monoid: str) -> None:
    """Put an operand that may be undefined into the value; its type stays.

    Parameters
    ----------
    d : Drawing
    monoid : str
        The reduction's, where it may absorb something of the value; else empty.
    """
    shapes: Sequence[Callable[[Drawing, str], None]]
    shapes = _BOOL_SHAPES if d.dtype == "bool" else _SHAPES
    d.source.pick(shapes)(d, monoid)


# ---- Operands ------------------------------------------------------------------------------------


def _draw_operand(d: Drawing) -> Partial:
    """Return an operand of the value's type."""
    if is_float(d.dtype):
        kinds = (_division, _division, _gather, _gather, _short, _short, _shift, _conversion)
    elif d.dtype == "bool":
        kinds = (_division, _gather, _short, _shift)
    else:
        kinds = (_division,) * 3 + (_gather, _gather, _short, _short, _shift, _conversion, _product)
    operand, guard, dtype = d.source.pick(kinds)(d)
    if d.dtype == "bool" and dtype != "bool":
        operand = ("gt", operand, ("lit", dtype, d.source.number(0, 3)))
    elif dtype != d.dtype:
        operand = ("cast", d.dtype, operand)
    return operand, guard


def _integer_type(d: Drawing) -> str:
    if is_float(d.dtype) or d.dtype == "bool" or d.source.chance(15):
        return d.source.pick(("int32", "int32", "int16", "uint8", "int64"))
    return d.dtype


def _division(d: Drawing) -> tuple[Expr, Expr, str]:
    dtype = _integer_type(d)
    name = d.source.pick(("truncdiv", "truncdiv", "truncdiv", "truncmod", "floordiv", "floormod"))
    divisor = d.input(dtype)
    dividend: Expr = ("lit", dtype, d.source.pick((100, 7, 1)))
    if d.source.chance(35):
        dividend = d.input(dtype)
    guard: Expr = ("ne", divisor, ("lit", dtype, 0))
    if d.source.chance(20):
        guard = ("gt", divisor, ("lit", dtype, 0))
    return (name, dividend, divisor), guard, dtype


def _gather(d: Drawing) -> tuple[Expr, Expr, str]:
    index = d.input(d.source.pick(("int32", "int32", "int32", "int16", "int64", "uint8")))
    dtype = index[1]
    below: Expr = ("lt", index, ("lit", dtype, TABLE))
    above: Expr = ("ge", index, ("lit", dtype, 0))
    guard = d.source.pick((("and", above, below), ("and", above, below), above, below))
    content = "int32" if d.dtype == "bool" else d.dtype
    return ("table", content, d.number_of_input(), index), guard, content


def _shift(d: Drawing) -> tuple[Expr, Expr, str]:
    dtype = _integer_type(d)
    amount = d.input(dtype)
    value: Expr = d.input(dtype) if d.source.chance(40) else ("lit", dtype, 1)
    below: Expr = ("lt", amount, ("lit", dtype, bits(dtype)))
    above: Expr = ("ge", amount, ("lit", dtype, 0))
    guard = d.source.pick((("and", above, below), below))
    return (d.source.pick(("shl", "shr")), value, amount), guard, dtype


def _conversion(d: Drawing) -> tuple[Expr, Expr, str]:
    source = d.source.pick(("float32", "float32", "float64", "float16"))
    value = d.input(source)
    dtype = _integer_type(d)
    guard: Expr = (
        "and",
        ("ge", value, ("lit", source, 0.0)),
        ("le", value, ("lit", source, 100.0)),
    )
    return ("cast", dtype, value), guard, dtype


def _product(d: Drawing) -> tuple[Expr, Expr, str]:
    dtype = d.source.pick(("int32", "int64", "uint32"))
    a, b = d.input(dtype), d.input(dtype)
    guard: Expr = ("le", a, ("lit", dtype, FACTOR))
    if dtype in SIGNED:
        guard = ("and", ("ge", a, ("lit", dtype, -FACTOR)), guard)
    return ("mul", a, b), guard, dtype


def _short(d: Drawing) -> tuple[Expr, Expr, str]:
    """Return an input with fewer elements than the last axis has points, mostly."""
    if not d.last:
        return _gather(d)
    content = "int32" if d.dtype == "bool" else d.dtype
    longest = min(d.last, 6)
    offset = d.source.number(0, longest - 1) if d.source.chance(40) else 0
    extent = d.source.number(1, longest - offset)
    axis: Expr = ("axis", "int32")
    below: Expr = ("lt", axis, ("lit", "int32", offset + extent))
    above: Expr = ("ge", axis, ("lit", "int32", offset))
    guard: Expr = below
    if offset:
        guard = ("and", above, below)
        if offset + extent == d.last and d.source.chance(50):
            guard = above
    return ("short", content, d.number_of_input(), extent, offset), guard, content


# ---- Guards --------------------------------------------------------------------------------------


def _draw_guard(d: Drawing, operand: Expr, own: Expr) -> Expr:
    """Return a condition around an operand; around a short input, one that keeps it inside."""
    source = d.source
    inner = operand[2] if operand[0] == "cast" else operand[1] if operand[0] == "gt" else operand
    kind = source.number(0, 19)
    if kind == 0:
        return ("lt", ("axis", "int32"), ("lit", "int32", 0))  # nowhere
    if inner[0] == "short":
        return ("and", _mask(d), own) if kind < 5 else own
    if kind == 1:
        return ("ge", ("axis", "int32"), ("lit", "int32", 0))  # everywhere
    if kind < 9:
        return own
    if kind < 13:
        return _mask(d)
    if kind < 15:
        name = source.pick(("lt", "ge", "ne"))
        return (name, ("axis", "int32"), ("lit", "int32", source.number(0, 3)))
    if kind < 17:
        return ("and", _mask(d), own)
    if kind == 17:
        return ("or", own, ("eq", ("axis", "int32"), ("lit", "int32", 0)))
    if kind == 18 and d.dtype != "bool":
        return ("and", own, ("gt", d.expr, d.literal(0)))
    return ("not", ("eq", d.input("int32"), ("lit", "int32", 0)))


def _mask(d: Drawing) -> Expr:
    dtype = d.source.pick(("int32", "int8", "bool"))
    mask = d.input(dtype)
    if dtype == "bool":
        return mask
    return (d.source.pick(("ne", "gt")), mask, ("lit", dtype, 0))


def _choose(d: Drawing, guard: Expr, yes: Expr, no: Expr) -> Expr:
    """Return one of two values, the first if the guard holds."""
    name = d.source.pick(("ite", "ite", "select"))
    if d.source.chance(20):
        return (name, ("not", guard), no, yes)
    return (name, guard, yes, no)


def _choose_lazily(d: Drawing, guard: Expr, yes: Expr, no: Expr) -> Expr:
    """Return one of two values, of which only that one is computed."""
    chosen = _choose(d, guard, yes, no)
    return chosen if is_lazy(chosen) else ("ite", *chosen[1:])


# ---- Where an operand goes -----------------------------------------------------------------------


def _combined(d: Drawing, monoid: str, value: Expr, operand: Expr) -> Expr:
    """Return an operation on the value and an operand, mostly one that is absorbed."""
    names = ROWS[monoid].operands if monoid else ()
    if not names or d.source.chance(15):
        names = ("and", "or") if d.dtype == "bool" else ("add", "sub", "max", "min")
    name = d.source.pick(names)
    return (name, operand, value) if d.source.chance(25) else (name, value, operand)


def _whole(d: Drawing, monoid: str) -> None:
    """Guard the operation on the value."""
    operand, own = _draw_operand(d)
    guard = _draw_guard(d, operand, own)
    value = d.expr
    no = d.source.pick((value, d.literal(0), d.literal(d.number()), d.literal(d.number())))
    if d.source.chance(10):
        no = _combined(d, monoid, value, d.literal(d.number()))
    d.expr = _choose(d, guard, _combined(d, monoid, value, operand), no)


def _operand_only(d: Drawing, monoid: str) -> None:
    """Guard the operand."""
    operand, own = _draw_operand(d)
    guarded = _choose(d, _draw_guard(d, operand, own), operand, d.literal(d.number()))
    d.expr = _combined(d, monoid, d.expr, guarded)


def _after_absorbed(d: Drawing, monoid: str) -> None:
    """Guard the operation after one that can be absorbed."""
    d.expr = _combined(d, monoid, d.expr, d.input(d.dtype))
    _whole(d, monoid)


def _nested(d: Drawing, monoid: str) -> None:
    """Guard the operation on the value twice."""
    operand, own = _draw_operand(d)
    guard = _draw_guard(d, operand, own)
    value = d.expr
    no = d.source.pick((value, d.literal(0), d.literal(d.number())))
    inner = _choose(d, guard, _combined(d, monoid, value, operand), no)
    outer = d.source.pick((_mask(d), ("ge", ("axis", "int32"), ("lit", "int32", 1))))
    d.expr = _choose(d, outer, inner, d.source.pick((value, d.literal(0), d.literal(1))))


def _unguarded(d: Drawing, monoid: str) -> None:
    """Evaluate the operand everywhere, on data on which it is defined."""
    operand, own = _draw_operand(d)
    if any(part[0] == "short" for part in (operand, *operand[1:]) if isinstance(part, tuple)):
        operand = _choose(d, own, operand, d.literal(1))
    d.expr = _combined(d, monoid, d.expr, operand)


def _in_condition(d: Drawing, monoid: str) -> None:
    """Let the operand decide."""
    operand, own = _draw_operand(d)
    other = d.literal(d.number())
    if any(part[0] == "short" for part in (operand, *operand[1:]) if isinstance(part, tuple)):
        operand = _choose(d, own, operand, other)
    condition = operand if d.dtype == "bool" else ("gt", operand, other)
    combined = _combined(d, monoid, d.expr, d.input(d.dtype))
    d.expr = _choose(d, condition, combined, d.expr)


def _of_value(d: Drawing, monoid: str) -> None:
    """Guard an operation that is undefined for some results of the reduction."""
    x, dtype = d.expr, d.dtype
    zero = d.literal(0)
    if is_float(dtype):
        inside: Expr = ("and", ("ge", x, d.literal(-FACTOR)), ("le", x, d.literal(FACTOR)))
        target = d.source.pick(("int8", "int32"))
        d.expr = _choose_lazily(d, inside, ("cast", dtype, ("cast", target, x)), zero)
        return
    kind = d.source.number(0, 3)
    above: Expr = ("ge", x, zero)
    # Not "less than": TVM fails to simplify 0 < 16 of an unsigned type.
    if kind == 0:
        name = d.source.pick(("truncdiv", "truncmod", "floordiv", "floormod"))
        d.expr = _choose_lazily(d, ("ne", x, zero), (name, d.literal(100), x), zero)
    elif kind == 1:
        inside = ("and", above, ("le", x, d.literal(bits(dtype) - 1)))
        d.expr = _choose_lazily(d, inside, (d.source.pick(("shl", "shr")), d.literal(1), x), x)
    elif kind == 2:
        inside = ("and", above, ("le", x, d.literal(TABLE - 1)))
        d.expr = _choose_lazily(d, inside, ("table", dtype, d.number_of_input(), x), x)
    else:
        divisor = d.input(dtype)
        name = d.source.pick(("truncdiv", "truncmod", "floordiv", "floormod"))
        guard: Expr = d.source.pick((("ne", divisor, zero), _mask(d)))
        d.expr = _choose_lazily(d, guard, (name, x, divisor), d.source.pick((x, zero)))


_SHAPES = (
    *[_whole] * 6,
    *[_operand_only] * 3,
    *[_after_absorbed] * 2,
    *[_nested] * 2,
    *[_unguarded] * 2,
    _in_condition,
    *[_of_value] * 2,
)
_BOOL_SHAPES = (_whole, _whole, _operand_only, _nested, _unguarded, _in_condition)
