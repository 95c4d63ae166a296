"""Keeps the zeros of a padding from being folded into products.

TVM's simplifier replaces ``0.0 * w`` by ``0.0``. Where a padded convolution is split at its
borders, that would turn the NaN of an infinite or undefined weight into a zero.
"""

from __future__ import annotations

import tvm
from tvm import tirx

from ..recognize.depthwise import DepthwiseConv, window_of
from ..tir.expressions import is_zero, uncast
from ..tir.walk import loads, substitute_part, uses

# The bits of 1.0.
_ONES = {
    "float16": 0x3C00,
    "bfloat16": 0x3F80,
    "float32": 0x3F800000,
    "float64": 0x3FF0000000000000,
}


def with_opaque_zeros(func: tirx.PrimFunc, found: DepthwiseConv) -> tirx.PrimFunc:
    """Return a function whose padding is zeros that the simplifier does not see.

    - `found`: the value that one of its blocks computes.
    - Returns: `func` itself if there is nothing to do: no padding, or integers.
    """
    dtype = tvm.DataType(str(found.window.ty.dtype))
    if found.outside is None or str(dtype) not in _ONES:
        return func
    # As it is in the block: `found` may be simpler, without axes of one value.
    update = found.block.body.value
    [data] = [
        load
        for load in loads(update)
        if load.source.same_as(found.data.source) and uses(load, found.column.var)
    ]
    whole, _ = window_of(update, data)
    guard = uncast(whole)
    # 1.0, bit by bit, minus 1.0: compilers after TVM fold that. (TVM cannot reinterpret a 0.)
    one = tirx.reinterpret(str(dtype), tirx.const(_ONES[str(dtype)], f"int{dtype.bits}"))
    zero = one - tirx.const(1, str(dtype))
    inside = substitute_part(whole, guard, guard.args[1])
    outside = substitute_part(whole, guard, guard.args[2])
    if not is_zero(outside):
        return func
    window = tirx.if_then_else(guard.args[0], inside, zero)
    return func.with_body(substitute_part(func.body, whole, window))
