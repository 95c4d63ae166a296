"""The values of epilogues: small typed expression trees, and the TIR for them.

Leaves
    ``("x",)`` the stage that the epilogue reads, ``("y",)`` the other one, ``("next",)`` the stage
    one element further; ``("elem", dtype, n)``, ``("row", dtype, n)``, ``("scalar", dtype, n)`` the
    n-th input of the epilogue, with an element for each point, for each value of the last axis, or
    with one element; ``("short", dtype, n, extent, offset)`` the n-th input, which has only
    ``extent`` elements, at the last axis less ``offset``; ``("lit", dtype, value)``;
    ``("axis", dtype)`` the last axis.
Operations
    ``(name, a)`` and ``(name, a, b)`` with a name of `UNARY`, `BINARY` or `COMPARISONS`;
    ``("cast", dtype, a)``, ``("ite", condition, a, b)`` (which computes only the value that it
    takes), ``("select", condition, a, b)`` (the same if it `is_lazy`), ``("lookup", dtype, n, a)``
    (a table of `TABLE` elements at ``a & (TABLE - 1)``), ``("table", dtype, n, a)`` (the same at
    ``a``), ``("impure", a)`` (an external function).

Undefined are the quotient and the remainder of a division by zero, the one quotient that does not
fit, a table or a short input outside of its elements, a shift by the width or more, an integer that
a float does not fit into, and a product of 32 bits or more that overflows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tvm import tirx

from .literals import literal
from .monoids import ROWS
from .spec import Expr, bits

TABLE = 16


UNARY: Mapping[str, Callable[[Any], Any]] = {
    "sigmoid": tirx.sigmoid,
    "tanh": tirx.tanh,
    "exp": tirx.exp,
    "not": tirx.Not,
    "bitnot": tirx.bitwise_not,
}
BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": tirx.Add,
    "sub": tirx.Sub,
    "mul": tirx.Mul,
    "div": tirx.Div,
    "floordiv": tirx.FloorDiv,
    "floormod": tirx.FloorMod,
    "truncdiv": tirx.Div,
    "truncmod": tirx.Mod,
    "max": tirx.Max,
    "min": tirx.Min,
    "and": tirx.And,
    "or": tirx.Or,
    "bitand": tirx.BitwiseAnd,
    "bitor": tirx.BitwiseOr,
    "bitxor": tirx.BitwiseXor,
    "shl": tirx.LShift,
    "shr": tirx.RShift,
    **{row.operation: row.spelled for row in ROWS.values() if row.spelled is not None},
}
COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "gt": tirx.GT,
    "ge": tirx.GE,
    "lt": tirx.LT,
    "le": tirx.LE,
    "eq": tirx.EQ,
    "ne": tirx.NE,
}
LEAVES = ("x", "y", "next", "elem", "row", "scalar", "short", "lit", "axis")
CHOICES = ("ite", "select")
DIVISIONS = ("truncdiv", "truncmod", "floordiv", "floormod")
SHIFTS = ("shl", "shr")


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the operands that are expressions."""
    return tuple(part for part in expr[1:] if isinstance(part, tuple))


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield every node, the root first."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def uses(expr: Expr, *names: str) -> bool:
    """Whether a node with one of these names occurs."""
    return any(node[0] in names for node in walk(expr))


def is_lazy(expr: Expr) -> bool:
    """Whether a choice computes only the value that it takes.

    TVM makes an if_then_else of a select that has a load in an arm; but it looks into the
    condition only of a choice in that arm, however lazy that one is.
    """
    return expr[0] == "ite" or any(_loads(arm) for arm in expr[2:])


def _loads(expr: Expr) -> bool:
    if expr[0] in LEAVES:
        return expr[0] not in ("lit", "axis")
    if expr[0] in ("table", "lookup"):
        return True
    return any(_loads(child) for child in children(expr)[: 1 if expr[0] in CHOICES else None])


def type_of(expr: Expr, x: str, y: str = "") -> str:
    """Return the type of an expression.

    Parameters
    ----------
    expr : Expr
    x, y : str
        The types of the leaves ``x`` and ``y``.
    """
    name = expr[0]
    if name in ("x", "next"):
        return x
    if name == "y":
        return y
    if name in ("elem", "row", "scalar", "short", "lit", "axis", "cast", "lookup", "table"):
        return str(expr[1])
    if name in COMPARISONS or name == "not":
        return "bool"
    return type_of(expr[2] if name in CHOICES else expr[1], x, y)


def build(expr: Expr, leaf: Callable[[Expr], Any]) -> Any:
    """Return the TIR of an expression; nothing is folded.

    Parameters
    ----------
    expr : Expr
    leaf : Callable
        Gives the TIR of a leaf other than a literal; for ``("lookup", dtype, n)``, and the same
        with "table", a function from the index to the load.
    """
    name = expr[0]
    if name == "lit":
        return literal(expr[1], expr[2])
    if name in LEAVES:
        return leaf(expr)
    if name == "cast":
        return tirx.Cast(expr[1], build(expr[2], leaf))
    if name == "lookup":
        value = build(expr[3], leaf)
        mask = tirx.IntImm(str(value.ty.dtype), TABLE - 1)
        return leaf(expr[:3])(tirx.Cast("int32", tirx.BitwiseAnd(value, mask)))
    if name == "table":
        value = build(expr[3], leaf)
        narrow = bits(str(value.ty.dtype)) < 32
        return leaf(expr[:3])(tirx.Cast("int32", value) if narrow else value)
    operands = [build(operand, leaf) for operand in expr[1:]]
    if name == "ite":
        return tirx.if_then_else(*operands)
    if name == "select":
        return tirx.Select(*operands)
    if name == "impure":
        return tirx.call_extern(str(operands[0].ty.dtype), "not_a_function", *operands)
    if name in UNARY:
        return UNARY[name](*operands)
    return (BINARY.get(name) or COMPARISONS[name])(*operands)
