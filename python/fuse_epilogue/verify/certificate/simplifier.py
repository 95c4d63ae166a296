"""Expressions of which TVM's simplifier takes for granted what need not hold.

It takes floats for numbers: no NaN, no infinity, no negative zero. It bounds sums, differences and
products of integers as if they never wrapped around, and looks for these bounds through
conversions: of signed integers of 32 and 64 bits that is TVM's own rule, but those of 8 and 16 bits
and unsigned ones do wrap around.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm.ir import Call, TensorLoad, Var, is_prim_expr, prim

from ...tir.walk import parts_of
from ..evaluation.scalars import SCALAR_TYPES, ScalarType

# What gives one of its operands, or a bool.
_SELECTS = (prim.Max, prim.Min, prim.Select, prim.CmpExpr, prim.LogicalExpr, prim.Not)
_VALUES = (prim.IntImm, TensorLoad, Var)


def may_mistake(node: Any) -> bool:
    """Whether something in an expression or statement may be simplified to another value.

    - `node` (tvm.ir.Expr or tvm.tirx.Stmt)
    """
    return any(map(_mistakes, parts_of(node, prim.Expr, Call, TensorLoad, Var)))


def simplified_rightly(expr: Any, simplify: Callable[[Any], Any]) -> Any:
    """Return an expression of which only those parts are simplified that cannot be mistaken.

    - `expr` (tvm.ir.Expr)
    - `simplify` (Callable[[tvm.ir.Expr], tvm.ir.Expr]): TVM's simplifier, with what is known of the
      variables.
    """

    def rightly(part: Any) -> Any:
        is_value = isinstance(part, Var | TensorLoad) or not is_prim_expr(part)
        return part if is_value or may_mistake(part) else simplify(part)

    return tvm_ffi.structural_map(expr, (prim.Expr, rightly), order="pre")


def _mistakes(part: Any) -> bool:
    type = _type(part)
    if type is None or type.kind == "b":
        return False
    if type.kind == "f":
        return True
    if isinstance(part, prim.Cast):
        source = _type(part.value)
        return source is None or not _holds(type, source)
    wraps = type.kind == "u" or type.bits < 32
    return wraps and not isinstance(part, (*_SELECTS, *_VALUES))


def _type(part: Any) -> ScalarType | None:
    return SCALAR_TYPES.get(str(part.ty.dtype)) if is_prim_expr(part) else None


def _holds(type: ScalarType, source: ScalarType) -> bool:
    """Whether a type holds every value of another one."""
    return source.kind != "f" and type.low <= source.low and source.high <= type.high
