"""Whether a depthwise convolution can be computed along the rows of memory, and should be."""

from __future__ import annotations

from ....recognize.defined import analyzer_of, guarded, is_inside
from ....recognize.depthwise import DepthwiseConv
from ....rewrites.fused_conv import FusedConv
from ....tir.expressions import is_zero
from ....tir.walk import uses

# Loads and taps that the code for a row consists of, at most: LLVM takes minutes for thousands.
_WRITTEN = 800


def why_not_rows(fused: FusedConv, lanes: int) -> str | None:
    """Return why a convolution is not computed along rows of memory, None if it can be.

    - `fused`: the convolution that it computes.
    - `lanes`: elements of a vector, at most; a power of two.
    """
    if lanes < 2:
        return "vectors of this target have one lane"
    conv, column = fused.conv, fused.conv.column.var
    *others, last = fused.indices
    if conv.stride != 1:
        return f"its stride is {conv.stride}, not 1"
    if not isinstance(conv.width, int) or not isinstance(conv.columns, int):
        return "the length of its rows is not known before it runs"
    if min(conv.width, conv.columns) < 2:
        return "a row of one element is not a vector"
    if conv.axis != len(conv.data.indices) - 1:
        return "the columns of its input are not neighbours in memory"
    if not last.same_as(column) or any(uses(index, column) for index in others):
        return "the columns of its result are not neighbours in memory"
    if conv.outside is not None and not is_zero(conv.outside):
        return "its padding is not zero"
    if any(load.source.same_as(fused.buffer) for load in fused.reads):
        # The last vector of a row computes some elements again.
        return "it reads what it writes"
    if guarded(conv.window, conv.term) and not is_inside(
        conv.data, analyzer_of(conv.block.iter_vars), but=conv.axis
    ):
        # Rows are loaded whole, whatever the guard is.
        return "a guard may keep it from reading outside of its input"
    if _written(conv, at_most(lanes, conv)) > _WRITTEN:
        return "written out, its borders and taps would be too long for LLVM"
    return None


def at_most(lanes: int, conv: DepthwiseConv) -> int:
    """Return how many elements of a vector a row has."""
    while lanes > min(conv.width, conv.columns):
        lanes //= 2
    return lanes


def _written(conv: DepthwiseConv, lanes: int) -> int:
    """Return how many loads and taps are written out: for each vector at a border, and for one."""
    first = conv.start // lanes
    last = -(-(conv.start + (conv.taps - 1) * conv.dilation) // lanes)
    inside = min(conv.columns // lanes, conv.width // lanes - last) - max(0, -first)
    vectors = conv.columns // lanes - max(0, inside) + 2
    return int(vectors * (last - first + 1 + conv.taps))
