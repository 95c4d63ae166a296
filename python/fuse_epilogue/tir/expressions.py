"""Forms of expressions: casts, zeros, additions to an element."""

from __future__ import annotations

import math
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad, prim

from .affine import is_constant
from .walk import operator_name, parts_of, uses


def uncast(value: Any) -> Any:
    """Return an expression without the casts around it."""
    while isinstance(value, prim.Cast):
        value = value.value
    return value


def is_zero(value: Any) -> bool:
    """Whether an expression is the constant 0, perhaps cast; a negative zero is not."""
    value = uncast(value)
    if isinstance(value, prim.FloatImm):
        return value.value == 0.0 and math.copysign(1.0, value.value) > 0
    return is_constant(value, 0)


def is_guard(value: Any) -> bool:
    """Whether a value is an ``if_then_else``, which computes only one of its sides."""
    return operator_name(value) == "prim.if_then_else"


def node_count(value: Any) -> int:
    """Return how many nodes an expression has; a call, as of exp, counts as some twenty."""
    return len(parts_of(value, tirx.Expr)) + 20 * len(parts_of(value, Call))


def without_loads(value: Any) -> Any:
    """Return an expression with a zero in the place of every load."""
    zero = (TensorLoad, lambda load: tirx.const(0, str(load.ty.dtype)))
    return tvm_ffi.structural_map(value, zero)


def added_term(update: Any) -> Any:
    """Return t of ``out[e] = out[e] + t``, None if the store is something else.

    - `update` (tvm.tirx.BufferStore): its value is a sum.
    """
    for own, other in ((update.value.a, update.value.b), (update.value.b, update.value.a)):
        if not isinstance(own, TensorLoad) or not own.source.same_as(update.buffer):
            continue
        same = tvm_ffi.structural_equal(own.indices, update.indices)
        if same and not uses(other, update.buffer):
            return other
    return None
