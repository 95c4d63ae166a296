"""Operands that are defined under a guard only, as a table of TVMScript."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Array:
    """A parameter that an operand reads.

    - `suffix`: added to the name of the operand.
    - `shape`: in terms of ``n`` (the size of the operand's axis), ``m`` (that of another axis),
      ``short`` (less than n) and ``rest`` (``n - short``).
    - `dtype`: "sum" for the type of the sums.
    - `fill`: what is in it: see ``data``.
    """

    suffix: str
    shape: tuple[str, ...]
    dtype: str
    fill: str


@dataclass(frozen=True)
class Operand:
    """A row of the table.

    - `condition`: TVMScript that is true where `value` is defined. ``{p}`` is the name of the
      operand, ``{v}`` its axis, ``{u}`` another axis, ``{s}`` the sum.
    - `value`: TVMScript of the type of the sums, or of int32 if `dtype` says so.
    - `dtype`: "sum", or "int32" where the value is an integer whatever the sums are.
    - `affine`: whether the guard is about indices alone.
    - `divides`: whether `value` divides integers by something in memory: TVM then computes an arm
      of ``T.Select`` only where it is chosen.
    """

    arrays: tuple[Array, ...]
    condition: str
    value: str
    dtype: str = "sum"
    affine: bool = False
    divides: bool = False


def _divided(how: str) -> Operand:
    array = Array("", ("n",), "int32", "divisors")
    return Operand((array,), "{p}[{v}] != 0", how, "int32", divides=True)


#: By name.
OPERANDS: dict[str, Operand] = {
    # Divisors that are 0 where the guard is false.
    "quotient": _divided("T.truncdiv(840, {p}[{v}])"),
    "floor quotient": _divided("T.floordiv(-840, {p}[{v}])"),
    "remainder": _divided("T.truncmod(-77, {p}[{v}])"),
    "floor remainder": _divided("T.floormod(77, {p}[{v}])"),
    "quotient by index": Operand(
        (), "{v} != {short}", "T.floordiv(840, {v} - {short})", "int32", affine=True
    ),
    "quotient by index + 1": Operand(
        (), "{v} >= 0", "T.truncdiv(840, {v} + 1)", "int32", affine=True
    ),
    # Indices that lie outside of the table where the guard is false.
    "gather": Operand(
        (Array("i", ("n",), "int32", "negative"), Array("", ("short",), "sum", "small")),
        "{p}i[{v}] >= 0",
        "{p}[{p}i[{v}]]",
    ),
    "gather below": Operand(
        (Array("i", ("n",), "int32", "beyond"), Array("", ("short",), "sum", "small")),
        "{p}i[{v}] < {short}",
        "{p}[{p}i[{v}]]",
    ),
    # Operands that end, or begin, before the axis does.
    "short": Operand(
        (Array("", ("short",), "sum", "small"),), "{v} < {short}", "{p}[{v}]", affine=True
    ),
    "late": Operand(
        (Array("", ("rest",), "sum", "small"),),
        "{v} >= {short}",
        "{p}[{v} - {short}]",
        affine=True,
    ),
    "short rows": Operand(
        (Array("", ("short", "m"), "sum", "small"),), "{v} < {short}", "{p}[{v}, {u}]", affine=True
    ),
    "one element": Operand(
        (Array("", ("short",), "sum", "small"),), "{v} < 0", "{p}[{n}]", affine=True
    ),
    # Nothing is undefined without the guard: these should be scheduled.
    "all there": Operand(
        (Array("", ("n",), "sum", "small"),), "{v} < {short}", "{p}[{v}]", affine=True
    ),
    "plain": Operand((Array("", ("n",), "sum", "small"),), "{v} >= 0", "{p}[{v}]", affine=True),
    "chosen": Operand((Array("", ("n",), "sum", "small"),), "{p}[{v}] > 0", "{p}[{v}] + {one}"),
    # Arithmetic that is not defined for all values.
    "shift": Operand(
        (Array("", ("n",), "int32", "shifts"),),
        "T.And({p}[{v}] >= 0, {p}[{v}] < 32)",
        "T.shift_right(840, {p}[{v}])",
        "int32",
    ),
    "square": Operand(
        (Array("", ("n",), "int32", "large"),),
        "T.And({p}[{v}] > -100, {p}[{v}] < 100)",
        "{p}[{v}] * {p}[{v}]",
        "int32",
    ),
    "cast": Operand(
        (Array("", ("n",), "float32", "extreme"),),
        "T.fabs({p}[{v}]) < T.float32(1000)",
        'T.Cast("int32", {p}[{v}])',
        "int32",
    ),
    # Of the sum itself, which may be 0.
    "quotient by sum": Operand((), "{s} != {zero}", "{divide_by_sum}", divides=True),
}

#: How a guard is written, from a condition, a value, another value and a condition on the index.
GUARDS: dict[str, str] = {
    "if": "T.if_then_else({condition}, {value}, {other})",
    "unless": "T.if_then_else(T.Not({condition}), {other}, {value})",
    "nested": "T.if_then_else({v} != 1, T.if_then_else({condition}, {value}, {other}), {other})",
    "nested below": (
        "T.if_then_else({v} < {n} - 1, T.if_then_else({condition}, {value}, {other}), {zero})"
    ),
    "both": "T.if_then_else(T.And({v} < {n} - 1, {condition}), {value}, {other})",
    "select": "T.Select({condition}, {value}, {other})",
}

#: What a step computes of the sum and an operand.
STEPS: dict[str, str] = {
    "add": "{s} + {g}",
    "subtract": "{s} - {g}",
    "from": "{g} - {s}",
    "max": "T.max({s}, {g})",
    "min": "T.min({g}, {s})",
}
