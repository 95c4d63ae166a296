"""Forms of expressions: casts, zeros, additions to an element."""

from __future__ import annotations

import math
from typing import Any

import tvm_ffi
from tvm.ir import TensorLoad, prim

from .walk import uses


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
    return isinstance(value, prim.IntImm) and int(value) == 0


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
