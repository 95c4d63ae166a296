"""Drawing the value of an epilogue: a few operations on top of each other, from tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .monoids import ROWS
from .partial import apply_partial
from .spec import FLOATS, SIGNED, UNSIGNED, Expr, bits, is_float

if TYPE_CHECKING:
    from .strategy import Source

# Literals that floating arithmetic multiplies exactly.
DYADIC = (1.0, 2.0, 0.5, 3.0, -1.0, -2.0, 0.25, 4.0)
# Types whose sums wrap around, though what they are widened to holds their sums.
NARROW = ("int8", "uint8", "int16")
# Of the values of epilogues, those with an operand that is undefined on some data.
PERCENT_PARTIAL = 55


class Drawing:
    """The value so far, its type, the extent of the last axis, and how many inputs it has."""

    def __init__(self, source: Source, x: str, y: str, last: int) -> None:
        self.source = source
        self.expr: Expr = ("x",)
        self.dtype = x
        self.y = y
        self.last = last
        self._inputs = 0

    def input(self, dtype: str) -> Expr:
        """Return a new input buffer of a type."""
        kind = self.source.pick(("elem", "elem", "row", "row", "scalar"))
        return (kind, dtype, self.number_of_input())

    def number_of_input(self) -> int:
        """Return the number of a new input."""
        self._inputs += 1
        return self._inputs

    def other(self) -> Expr:
        """Return an operand of the value's type that does not contain x."""
        source, dtype = self.source, self.dtype
        kind = source.number(0, 11)
        if kind < 6:
            return self.input(dtype)
        if kind < 9 or dtype == "bool":
            return ("lit", dtype, self.number())
        if kind == 9:
            return ("axis", dtype)
        if kind == 10:
            family = FLOATS if is_float(dtype) else SIGNED if dtype in SIGNED else UNSIGNED
            narrower = [t for t in family if bits(t) < bits(dtype)]
            if narrower:
                return ("cast", dtype, self.wrapped(source.pick(narrower)))
            return self.input(dtype)
        return ("mul", ("lit", dtype, self.number()), self.input(dtype))

    def wrapped(self, dtype: str) -> Expr:
        """Return an operand to be widened, which may have wrapped around in its narrow type."""
        operand = self.input(dtype)
        wraps = dtype in NARROW and self.source.chance(50)
        return (self.source.pick(("add", "sub")), operand, ("lit", dtype, 1)) if wraps else operand

    def number(self, positive: bool = False) -> float:
        """Return a literal of the value's type."""
        source, dtype = self.source, self.dtype
        if dtype == "bool":
            return source.number(0, 1)
        if is_float(dtype):
            return abs(source.pick(DYADIC)) if positive else source.pick(DYADIC)
        if positive:
            return source.number(1, 7)
        if bits(dtype) >= 32 and source.chance(6):
            return (1 << (bits(dtype) - 2)) + source.number(0, 5)
        return source.number(0 if dtype in UNSIGNED else -3, 7)

    def literal(self, value: float) -> Expr:
        """Return a literal of the value's type."""
        return ("lit", self.dtype, value)


# ---- Operations ----------------------------------------------------------------------------------

Operation = Callable[[Drawing], None]


def _binary(name: str, swapped: bool = False) -> Operation:
    def apply(d: Drawing) -> None:
        other = d.other()
        d.expr = (name, other, d.expr) if swapped else (name, d.expr, other)

    return apply


def _scale(d: Drawing) -> None:
    d.expr = ("mul", d.expr, d.literal(d.number()))


def _shifted(d: Drawing) -> None:
    d.expr = ("add", d.expr, d.literal(d.number()))


def _divide(d: Drawing) -> None:
    if is_float(d.dtype):
        d.expr = ("div", d.expr, d.literal(d.source.pick((2.0, 4.0, -2.0, 0.5))))
    else:
        d.expr = ("floordiv", d.expr, d.literal(d.number(positive=True)))


def _relu(d: Drawing) -> None:
    d.expr = ("max", d.expr, d.literal(0))


def _clip(d: Drawing) -> None:
    low, high = (0, 6) if d.dtype in UNSIGNED else d.source.pick(((-3, 6), (0, 6), (-100, 100)))
    inner = ("max", d.expr, d.literal(low))
    d.expr = ("min", inner, d.literal(high))


def _at_edge(d: Drawing) -> None:
    """Clip or compare at the end of a narrow range; what is of a narrow type is widened first."""
    source = d.source
    narrow = d.dtype if d.dtype in NARROW else source.pick(NARROW)
    if d.dtype in NARROW:
        d.dtype = "int32"
        d.expr = ("cast", d.dtype, d.expr)
    if d.dtype in UNSIGNED:
        _clip(d)
        return
    half = 1 << (bits(narrow) - 1)
    low, high = (0, 2 * half - 1) if narrow in UNSIGNED else (-half, half - 1)
    edge = d.literal(source.pick((low, low + 1, high - 1, high)))
    if source.chance(70):
        d.expr = (source.pick(("max", "min")), d.expr, edge)
    else:
        inside = (source.pick(("gt", "ge", "lt", "le")), d.expr, edge)
        d.expr = ("select", inside, d.literal(1), d.literal(2))


def _negate(d: Drawing) -> None:
    d.expr = ("sub", d.literal(0), d.expr)


def _leaky(d: Drawing) -> None:
    positive = ("gt", d.expr, d.literal(0))
    small: Expr = (
        ("mul", d.expr, d.literal(0.125))
        if is_float(d.dtype)
        else ("floordiv", d.expr, d.literal(4))
    )
    d.expr = ("select", positive, d.expr, small)


def _choose(d: Drawing) -> None:
    d.expr = ("select", (d.source.pick(("gt", "ge", "ne")), d.expr, d.other()), d.expr, d.other())


def _square(d: Drawing) -> None:
    d.expr = ("mul", d.expr, d.expr)


def _twice(d: Drawing) -> None:
    d.expr = ("add", d.expr, d.expr)


def _gated(d: Drawing) -> None:
    d.expr = ("mul", d.expr, (d.source.pick(("sigmoid", "tanh")), d.expr))


def _transcendental(d: Drawing) -> None:
    name = d.source.pick(("sigmoid", "tanh", "exp"))
    inner = ("min", d.expr, d.literal(4)) if name == "exp" else d.expr
    d.expr = (name, inner)


def _shift(d: Drawing) -> None:
    name = d.source.pick(("shr", "shr", "shl"))
    d.expr = (name, d.expr, d.literal(d.source.number(0, min(5, bits(d.dtype) - 1))))


def _requantize(d: Drawing) -> None:
    rounded = ("shr", ("add", d.expr, d.literal(4)), d.literal(3))
    low, high = (0, 255) if d.dtype in UNSIGNED else (-128, 127)
    target = "uint8" if d.dtype in UNSIGNED else "int8"
    d.expr = ("cast", target, ("min", ("max", rounded, d.literal(low)), d.literal(high)))
    d.dtype = target


def _look_up(d: Drawing) -> None:
    table = d.source.pick((d.dtype, "float32", "int32"))
    d.expr = ("lookup", table, d.number_of_input(), d.expr)
    d.dtype = table


def _cast(d: Drawing) -> None:
    if d.dtype == "bool":
        target = d.source.pick(("int8", "int32", "float32"))
    elif is_float(d.dtype):
        target = d.source.pick([t for t in FLOATS if t != d.dtype] + ["int8"])
    else:
        target = d.source.pick((*SIGNED, *UNSIGNED, "float32", "float64"))
    if target == "int8" and is_float(d.dtype):
        # Outside of the range, and of NaN, there is no result; this order maps NaN to a bound.
        d.expr = ("min", ("max", d.literal(-100), d.expr), d.literal(100))
    d.expr = ("cast", target, d.expr)
    d.dtype = target


def _compare(d: Drawing) -> None:
    d.expr = (d.source.pick(("gt", "eq", "ge")), d.expr, d.other())
    d.dtype = "bool"


def _invert(d: Drawing) -> None:
    d.expr = ("not" if d.dtype == "bool" else "bitnot", d.expr)


def _with_y(d: Drawing) -> None:
    y: Expr = ("y",) if d.y == d.dtype else ("cast", d.dtype, ("y",))
    if d.dtype == "bool":
        # A number becomes a condition.
        y = ("y",) if d.y == "bool" else ("gt", ("y",), ("lit", d.y, 0))
        d.expr = (d.source.pick(("and", "or")), d.expr, y)
        return
    if is_float(d.y) and not is_float(d.dtype):
        y = ("lit", d.dtype, 1)
    d.expr = (d.source.pick(("mul", "add", "max")), d.expr, y)


_ADD = _binary("add")
_SUB = _binary("sub")
_FROM = _binary("sub", swapped=True)
_COMMON: Sequence[Operation] = (
    *[_ADD] * 5,
    _SUB,
    _SUB,
    _FROM,
    _FROM,
    _scale,
    _scale,
    _binary("mul"),
    _binary("mul", swapped=True),
    _binary("max"),
    _binary("min"),
    _binary("max", swapped=True),
    _relu,
    _relu,
    _clip,
    _clip,
    _negate,
    _leaky,
    _choose,
    _square,
    _twice,
    _divide,
    _cast,
    _cast,
)
_INTEGER: Sequence[Operation] = (
    *_COMMON,
    _at_edge,
    _at_edge,
    _shift,
    _shift,
    _requantize,
    _requantize,
    _look_up,
    _look_up,
    _binary("bitand"),
    _binary("bitor"),
    _binary("bitxor"),
    _invert,
    _compare,
)
_FLOAT: Sequence[Operation] = (*_COMMON, _transcendental, _transcendental, _gated, _compare)
_BOOL: Sequence[Operation] = (_binary("and"), _binary("or"), _invert, _cast, _cast)
# What may be absorbed, by the names of `monoids`.
_OWN: dict[str, Operation] = {
    **{row.operation: _binary(row.operation) for row in ROWS.values()},
    **{f"swapped {row.operation}": _binary(row.operation, swapped=True) for row in ROWS.values()},
    "add": _ADD,
    "sub": _SUB,
    "from": _FROM,
    "scale": _scale,
    "shifted": _shifted,
    "relu": _relu,
    "clip": _clip,
    "negate": _negate,
    "invert": _invert,
}
_BITS = ("bit-wise and", "bit-wise or", "bit-wise xor")


def draw_value(source: Source, monoid: str, x: str, y: str, last: int) -> tuple[Expr, str]:
    """Return the value of an epilogue and its type.

    Parameters
    ----------
    source : Source
        Makes the decisions.
    monoid : str
        The operations it absorbs are more likely; empty for none.
    x, y : str
        Types of the stages that it reads; ``y`` is empty where there is one only.
    last : int
        Extent of the last axis.
    """
    drawing = Drawing(source, x, y, last)
    own = [_OWN[name] for name in ROWS[monoid].likely] if monoid else []
    count = source.pick((1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 4, 0))
    partial_at = source.pick((0, 0, 1, count)) if source.chance(PERCENT_PARTIAL) else -1
    for number in range(count + 1):
        fits = (drawing.dtype == "bool") == monoid.startswith("logical") and not (
            monoid in _BITS and is_float(drawing.dtype)
        )
        if number == partial_at:
            apply_partial(drawing, monoid if own and fits else "")
        if number == count:
            break
        if number == 0 and x in NARROW and source.chance(20):
            _at_edge(drawing)
        elif own and fits and source.chance(55 if number == 0 else 30):
            source.pick(own)(drawing)
        elif drawing.dtype == "bool":
            source.pick(_BOOL)(drawing)
        else:
            source.pick(_FLOAT if is_float(drawing.dtype) else _INTEGER)(drawing)
    if y:
        _with_y(drawing)
    return drawing.expr, drawing.dtype
