"""A depthwise convolution one element at a time, for CUDA: any stride, dilation and layout.

Neighbouring threads have neighbouring elements of the result, so that what they load for a tap is
contiguous, or at a distance of `stride`; elements that several threads load come from the cache.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx import BufferStore

from ....rewrites.fused_conv import FusedConv
from ..launch import THREADS, in_threads
from .code import computed, outside


def in_elements(func: tirx.PrimFunc, fused: FusedConv, most: int = THREADS) -> tirx.PrimFunc:
    """Return a function that computes each element of a fused convolution in a thread of its own.

    - `func`: the function with the convolution and nothing else.
    - `most`: threads of a block, at most.
    """
    conv = fused.conv
    sums = tirx.decl_buffer((1,), conv.out.ty.dtype, "sums", scope="local")
    out = tirx.decl_buffer((1,), fused.buffer.ty.dtype, "out", scope="local")

    def x(tap: Any, lane: Any) -> Any:
        column = conv.column.var * conv.stride + tap * conv.dilation + conv.start
        indices = list(conv.data.indices)
        indices[conv.axis] = column
        inside = tirx.all(column >= 0, column < conv.width)
        return tirx.if_then_else(inside, conv.data.source[tuple(indices)], outside(conv))

    code = computed(fused, 1, sums, out, x, lambda lane: {})
    code.append(BufferStore(fused.buffer, out[0], list(fused.indices)))
    # In the order of the block's axes, which is that of the loops and, as a rule, of memory.
    spatial = [*conv.outer, conv.column]
    axes = [axis for axis in conv.block.iter_vars if any(axis.same_as(each) for each in spatial)]
    return in_threads(func, fused, axes, tirx.SeqStmt(code), [sums, out], most)
