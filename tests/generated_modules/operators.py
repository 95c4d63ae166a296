"""The operators that consume a reduction, drawn so that all of them are defined."""

from __future__ import annotations

import math
from collections.abc import Callable

from .draw import Drawing
from .spec import EXACT_LIMIT, FLOATS, INTEGERS, Value, is_float

Rule = Callable[[Drawing, int], "int | None"]

# ---- Elementwise ---------------------------------------------------------------------------------


def _operand(drawing: Drawing, x: Value, bound: int = 4, kind: str = "data") -> int:
    """Return a second operand: a value or a parameter whose shape is broadcast to that of `x`."""
    rng = drawing.rng
    shape = tuple(1 if rng.random() < 0.4 else extent for extent in x.shape)
    if rng.random() < 0.4:
        shape = x.shape
    elif x.shape and rng.random() < 0.5:
        shape = x.shape[-1:]
    if kind == "data" and rng.random() < 0.35:
        found = drawing.some_value(lambda v: v.dtype == x.dtype and v.shape in (x.shape, shape))
        if found is not None:
            return found
    return drawing.parameter(shape, x.dtype, bound, kind)


def binary(drawing: Drawing, number: int) -> int | None:
    """Combine with a bias, a residual, a scale or a literal, on either side."""
    rng = drawing.rng
    x = drawing.value(number)
    if x.dtype == "bool":
        return None
    op = rng.choice(("add", "add", "add", "subtract", "multiply", "multiply", "maximum", "minimum"))
    if rng.random() < 0.25:
        literal = rng.choice((0.5, 0.1, -1.5, 3)) if is_float(x.dtype) else rng.choice((-1, 2, 3))
        bound = {"multiply": x.bound * abs(literal)}.get(op, x.bound + abs(literal))
        exact = x.exact and literal == int(literal)
        left = rng.random() < 0.3
        return drawing.node(
            f"{op}_literal", (number,), x.shape, bound, exact=exact, literal=literal, left=left
        )
    other = _operand(drawing, x)
    y = drawing.value(other)
    args = (number, other) if rng.random() < 0.7 else (other, number)
    bound = {"add": x.bound + y.bound, "subtract": x.bound + y.bound, "multiply": x.bound * y.bound}
    return drawing.node(op, args, x.shape, bound.get(op, max(x.bound, y.bound)))


def divide(drawing: Drawing, number: int) -> int | None:
    """Divide a float by numbers that are not zero."""
    x = drawing.value(number)
    if not is_float(x.dtype):
        return None
    divisor = drawing.parameter(x.shape[-1:], x.dtype, 4, "positive")
    return drawing.node("divide", (number, divisor), x.shape, x.bound, exact=False)


def integer_divide(drawing: Drawing, number: int) -> int | None:
    """Divide integers where the divisor is not zero, by 1 where it is, and select the quotient."""
    x = drawing.value(number)
    if x.dtype not in ("int32", "int64"):
        return None
    divisor = _operand(drawing, x, 5, "divisors")
    other = _operand(drawing, x)
    bound = max(x.bound, drawing.value(other).bound)
    return drawing.node("guarded_where", (number, divisor, other), x.shape, bound)


def shift(drawing: Drawing, number: int) -> int | None:
    """Shift an integer to the right: the scale of a quantised chain."""
    x = drawing.value(number)
    if x.dtype not in ("int32", "int64"):
        return None
    return drawing.node("right_shift", (number,), x.shape, x.bound, bits=drawing.rng.randint(0, 7))


def unary(drawing: Drawing, number: int) -> int | None:
    """Apply an activation, a sign or a magnitude."""
    x = drawing.value(number)
    if x.dtype == "bool":
        return None
    ops = ["relu", "relu", "negative", "abs"]
    if is_float(x.dtype):
        ops += ["sigmoid", "tanh", "silu", "gelu"]
    op = drawing.rng.choice(ops)
    exact = x.exact and op in ("relu", "negative", "abs")
    bound = 1.0 if op in ("sigmoid", "tanh") else x.bound
    return drawing.node(op, (number,), x.shape, bound, exact=exact)


def clip(drawing: Drawing, number: int) -> int | None:
    """Clip to a range of whole numbers."""
    x = drawing.value(number)
    if x.dtype == "bool":
        return None
    low, high = drawing.rng.choice(((-8, 7), (0, 6), (-100, 100), (-1, 1)))
    return drawing.node(
        "clip", (number,), x.shape, min(x.bound, float(max(-low, high))), low=low, high=high
    )


def where(drawing: Drawing, number: int) -> int | None:
    """Select by a condition: a parameter, or a comparison of whole numbers."""
    rng = drawing.rng
    x = drawing.value(number)
    if x.dtype == "bool":
        return None
    if x.exact and rng.random() < 0.4:
        condition = drawing.node(
            rng.choice(("greater", "less_equal")), (number, _operand(drawing, x)), x.shape, 1.0,
            dtype="bool", exact=True,
        )  # fmt: skip
    else:
        condition = drawing.parameter(rng.choice((x.shape, x.shape[-1:])), "bool", 1)
    if condition is None:
        return None
    other = _operand(drawing, x)
    y = drawing.value(other)
    args = (condition, number, other) if rng.random() < 0.6 else (condition, other, number)
    exact = x.exact and y.exact
    return drawing.node("where", args, x.shape, max(x.bound, y.bound), dtype=x.dtype, exact=exact)


def cast(drawing: Drawing, number: int) -> int | None:
    """Convert to another type that holds every value; floats become integers if they are whole."""
    x = drawing.value(number)
    fits = [dtype for dtype in INTEGERS if x.exact and x.bound <= EXACT_LIMIT[dtype]]
    fits += [dtype for dtype in FLOATS if not x.exact or x.bound <= EXACT_LIMIT[dtype]]
    fits = [dtype for dtype in fits if dtype != x.dtype]
    if not fits:
        return None
    dtype = drawing.rng.choice(fits)
    return drawing.node("cast", (number,), x.shape, x.bound, dtype=dtype)


# ---- Guards inside of one operator ---------------------------------------------------------------

GUARDS = ("if_then_else", "select", "nested", "and")


def guarded(drawing: Drawing, number: int) -> int | None:
    """Combine with an operand that is undefined where a guard is false, in one operator.

    Relax knows no such operator: users write it in TE, and `FuseOps` groups it like any other.
    """
    rng = drawing.rng
    x = drawing.value(number)
    if x.dtype in ("bool", "int8") or not x.shape:
        return None
    axis = rng.choice((len(x.shape) - 1, rng.randrange(len(x.shape))))
    extent = x.shape[axis]
    attrs = {
        "axis": axis,
        "combine": rng.choice(("add", "add", "add", "subtract", "rsubtract", "max", "min")),
        "guard": rng.choice(GUARDS),
        "otherwise": rng.choice(("zero", "x")),
    }
    kind = rng.choice(("divide", "gather", "short"))
    bound = x.bound
    if kind == "divide":
        args = (number, drawing.parameter((extent,), "int32", 5, "divisors"))
        bound += 1000
    elif kind == "gather":
        length = rng.randint(1, 9)
        table = drawing.parameter((length,), x.dtype, 4)
        args = (number, drawing.parameter((extent,), "int32", length - 1, "wild"), table)
        bound += 4
    else:
        attrs["length"] = rng.randint(1, max(1, extent - 1))
        args = (number, drawing.parameter((attrs["length"],), x.dtype, 4))
        bound += 4
    return drawing.node(f"guarded_{kind}", args, x.shape, bound, dtype=x.dtype, **attrs)


# ---- Moves ---------------------------------------------------------------------------------------


def take(drawing: Drawing, number: int) -> int | None:
    """Gather along an axis with indices that are in range."""
    rng = drawing.rng
    x = drawing.value(number)
    if not x.shape or x.dtype == "bool":
        return None
    axis = rng.randrange(len(x.shape))
    count = rng.randint(1, 8)
    index = drawing.parameter((count,), rng.choice(("int32", "int64")), x.shape[axis] - 1, "index")
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return drawing.node("take", (number, index), shape, x.bound, dtype=x.dtype, axis=axis)


def embedding(drawing: Drawing, number: int) -> int | None:
    """Add rows of a table that indices select."""
    rng = drawing.rng
    x = drawing.value(number)
    if len(x.shape) != 2 or x.dtype == "bool":
        return None
    rows = rng.randint(1, 9)
    table = drawing.parameter((rows, x.shape[1]), x.dtype, 4)
    index = drawing.parameter((x.shape[0],), rng.choice(("int32", "int64")), rows - 1, "index")
    taken = drawing.node("take", (table, index), x.shape, 4.0, dtype=x.dtype, axis=0)
    return None if taken is None else drawing.node("add", (number, taken), x.shape, x.bound + 4)


def reshape(drawing: Drawing, number: int) -> int | None:
    """Merge two axes or split one."""
    rng = drawing.rng
    x = drawing.value(number)
    if not x.shape or x.dtype == "bool":
        return None
    axis = rng.randrange(len(x.shape))
    if len(x.shape) > 1 and rng.random() < 0.6:
        axis = min(axis, len(x.shape) - 2)
        shape = (*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :])
    else:
        extent = x.shape[axis]
        factor = rng.choice([f for f in range(1, extent + 1) if extent % f == 0])
        shape = (*x.shape[:axis], factor, extent // factor, *x.shape[axis + 1 :])
    if len(shape) > 4:
        return None
    return drawing.node("reshape", (number,), shape, x.bound, to=list(shape))


def permute(drawing: Drawing, number: int) -> int | None:
    """Permute the axes."""
    x = drawing.value(number)
    if len(x.shape) < 2 or x.dtype == "bool":
        return None
    order = drawing.rng.sample(range(len(x.shape)), len(x.shape))
    shape = tuple(x.shape[axis] for axis in order)
    return drawing.node("permute", (number,), shape, x.bound, order=order)


def concat(drawing: Drawing, number: int) -> int | None:
    """Put another value behind it along an axis."""
    rng = drawing.rng
    x = drawing.value(number)
    if not x.shape or x.dtype == "bool":
        return None
    axis = rng.randrange(len(x.shape))
    extent = rng.randint(1, 4)
    shape = (*x.shape[:axis], extent, *x.shape[axis + 1 :])
    other = drawing.parameter(shape, x.dtype, 4)
    args = (number, other) if rng.random() < 0.5 else (other, number)
    whole = (*x.shape[:axis], x.shape[axis] + extent, *x.shape[axis + 1 :])
    return drawing.node("concat", args, whole, max(x.bound, 4.0), axis=axis)


def split(drawing: Drawing, number: int) -> int | None:
    """Take one of the parts that an axis is split into."""
    rng = drawing.rng
    x = drawing.value(number)
    axes = [a for a, extent in enumerate(x.shape) if extent % 2 == 0 or extent % 3 == 0]
    if not axes or x.dtype == "bool":
        return None
    axis = rng.choice(axes)
    parts = 2 if x.shape[axis] % 2 == 0 else 3
    shape = (*x.shape[:axis], x.shape[axis] // parts, *x.shape[axis + 1 :])
    return drawing.node(
        "split", (number,), shape, x.bound, axis=axis, parts=parts, part=rng.randrange(parts)
    )


def gate(drawing: Drawing, number: int) -> int | None:
    """Multiply the two halves of an axis: both parts of one split are read."""
    x = drawing.value(number)
    if not x.shape or x.shape[-1] % 2 or x.dtype == "bool":
        return None
    axis = len(x.shape) - 1
    shape = (*x.shape[:-1], x.shape[-1] // 2)
    halves = [
        drawing.node("split", (number,), shape, x.bound, axis=axis, parts=2, part=part)
        for part in (0, 1)
    ]
    if None in halves:
        return None
    return drawing.node("multiply", (halves[0], halves[1]), shape, x.bound**2)


def strided_slice(drawing: Drawing, number: int) -> int | None:
    """Take a slice of an axis."""
    rng = drawing.rng
    x = drawing.value(number)
    if not x.shape or x.dtype == "bool":
        return None
    axis = rng.randrange(len(x.shape))
    extent = x.shape[axis]
    begin = rng.randint(0, extent - 1)
    end = rng.randint(begin + 1, extent)
    step = rng.choice((1, 1, 2))
    shape = (*x.shape[:axis], math.ceil((end - begin) / step), *x.shape[axis + 1 :])
    return drawing.node(
        "slice", (number,), shape, x.bound, axis=axis, begin=begin, end=end, step=step
    )


def pad(drawing: Drawing, number: int) -> int | None:
    """Pad an axis with zeros."""
    rng = drawing.rng
    x = drawing.value(number)
    if not x.shape or x.dtype == "bool":
        return None
    axis = rng.randrange(len(x.shape))
    before, after = rng.randint(0, 2), rng.randint(0, 2)
    shape = (*x.shape[:axis], x.shape[axis] + before + after, *x.shape[axis + 1 :])
    return drawing.node("pad", (number,), shape, x.bound, axis=axis, before=before, after=after)


#: The rules, with how often each is tried.
EPILOGUES: dict[str, tuple[Rule, float]] = {
    "binary": (binary, 9),
    "unary": (unary, 5),
    "clip": (clip, 2),
    "where": (where, 2),
    "cast": (cast, 3),
    "divide": (divide, 1.5),
    "integer_divide": (integer_divide, 2),
    "shift": (shift, 1.5),
    "guarded": (guarded, 3),
    "take": (take, 1),
    "embedding": (embedding, 1),
    "reshape": (reshape, 1),
    "permute": (permute, 1),
    "concat": (concat, 0.7),
    "split": (split, 0.7),
    "gate": (gate, 0.7),
    "slice": (strided_slice, 0.7),
    "pad": (pad, 0.7),
}
