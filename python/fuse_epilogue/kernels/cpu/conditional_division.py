"""Divisions of integers that a choice protects from a zero divisor.

``Select(c, a // Select(c, b, 1), d)`` divides by 1 where c is false. TVM knows that c is true in
the first arm, and simplifies it to ``a // b``; but a Select computes both arms, and processors trap
where b is 0. In a program whose blocks are not inlined, the two choices are in different
statements, and nothing is simplified: what inlines them has to keep what is protected.

Where a place is a number, as in what is left of a row after its vectors, a guarded quotient
``a // (j - 2)`` divides by a literal 0. It is never evaluated, but TVM does not compile it.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, Var, prim
from tvm.sym import Analyzer

from ...recognize.defined import DIVISIONS
from ...tir.walk import parts_of

__all__ = ["with_conditional_divisions"]


def with_conditional_divisions(node: Any) -> Any:
    """Return a node in which an arm that divides integers is computed only where it is chosen.

    - `node`: Expr or Stmt.
    - Returns: with ``if_then_else`` in place of such a ``Select``, and 0 for quotients of literals
      that are 0, which have no value. Other divisors that are literals never trap.
    """
    node = tvm_ffi.structural_map(node, [(kind, _not_by_zero) for kind in DIVISIONS])
    return tvm_ffi.structural_map(node, (prim.Select, _conditional))


def _not_by_zero(division: Any) -> Any:
    divisor = division.b
    if "int" not in str(division.ty.dtype) or parts_of(divisor, Var, TensorLoad):
        return division
    literal = Analyzer().simplify(divisor)
    if not isinstance(literal, prim.IntImm) or literal.value != 0:
        return division
    return tirx.const(0, division.ty.dtype)


def _conditional(select: Any) -> Any:
    if not any(_divides(arm) for arm in (select.true_value, select.false_value)):
        return select
    return tirx.if_then_else(select.condition, select.true_value, select.false_value)


def _divides(arm: Any) -> bool:
    divisions = (each for kind in DIVISIONS for each in parts_of(arm, kind))
    return any(
        "int" in str(each.ty.dtype) and not isinstance(each.b, prim.IntImm) for each in divisions
    )
