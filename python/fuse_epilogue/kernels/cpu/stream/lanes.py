"""Sums along contiguous memory that other kernels do not know, such as the gradients of weights.

LLVM leaves them scalar, since it must not change the order of additions. Here each lane of a vector
has a sum of its own, kept across all other loops of the reduction, and the lanes are added last::

    lanes[c, f, 0:16] = sum_nw  ds[n, c, w:w+16] * padded[n, c, w+f:w+f+16]
    dweight[c, f]     = sum_lane  lanes[c, f, lane]

Columns that do not fill a vector are added one by one after the others.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import s_tir, tirx

from ....tir.types import bytes_of
from ....tir.walk import handle, loads, same, uses
from ...scheduled import Scheduled
from ..costs import (
    CLOCK_HZ,
    NODE_CYCLES,
    bytes_per_cycle,
    on_threads,
    threads_for,
    together,
    work,
)

LANES = 16
#: A reduction is long if it has at least `LONG` elements, and `TIMES` as many as there are results
#: side by side. Otherwise, as for the taps of a convolution, the results make better vectors.
#: `LONG` is four vectors: to add their lanes takes as long, two instructions for each halving.
#: `TIMES` is an assumption; any from 1 to 18 separates gradients of benchmarks/conv1d_streams.py,
#: which have 18 times as many columns as taps or more, from the convolutions there.
LONG, TIMES = 64, 4


def schedule(func: tirx.PrimFunc, threads: int, *, long: bool = False) -> Scheduled | None:
    """Schedule a function with one sum, whose last loop becomes the lanes of a vector.

    - `func`: not scheduled; elementwise statements beside its sum keep their loops.
    - `threads`: number of threads that parallel loops are made for.
    - `long`: only where the sum's last extent is long.
    - Returns: None if there is not one sum in float32 along contiguous memory, or if its last
      extent is not a constant of at least the lanes.
    """
    sch = s_tir.Schedule(func)
    sums = [
        block for block in sch.get_child_blocks(sch.get_sblock("root")) if _reduced(sch.get(block))
    ]
    if len(sums) != 1 or not _is_contiguous(sch.get(sums[0])):
        return None
    loops, kept = sch.get_loops(sums[0]), len(sch.get(sums[0]).iter_vars)
    kept -= _reduced(sch.get(sums[0]))
    extents = [sch.get(loop).extent for loop in loops]
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return None
    *others, columns = map(int, extents)
    beside = others[kept - 1] if kept else 1
    if columns < (max(LONG, TIMES * beside) if long else LANES):
        return None
    seconds = _seconds(sch.get(sums[0]), math.prod(others) * columns)
    try:
        _, lane = sch.split(loops[-1], [None, LANES])
        partial = sch.rfactor(lane, kept)
        *outer, lane = sch.get_loops(partial)
        sch.vectorize(lane)
        if columns % LANES:  # the whole vectors without the question whether they are whole
            sch.annotate(outer[-1], "pragma_loop_partition_hint", True)
        if kept and threads_for(seconds, threads) > 1:
            sch.parallel(outer[0])
        sch.decompose_reduction(partial, outer[kept])
    except s_tir.ScheduleError:
        return None
    return Scheduled(sch.mod["main"], "sum in lanes", predicted_s=on_threads(seconds, threads))


def _seconds(block: Any, elements: int) -> float:
    """Return the predicted seconds of a sum of some elements on one thread."""
    read = {handle(load.source): load.source for load in loads(block.body)}
    touched = sum(math.prod(map(int, each.shape)) * bytes_of(each.dtype) for each in read.values())
    computing = elements / LANES * work(block.body.value) * NODE_CYCLES
    return together(computing, touched / bytes_per_cycle(touched)) / CLOCK_HZ


def _reduced(block: Any) -> int:
    """Return the number of axes that a block reduces."""
    return sum(axis.iter_type == tirx.IterVar.CommReduce for axis in block.iter_vars)


def _is_contiguous(block: Any) -> bool:
    """Whether the last axis is a reduction in float32 along the last axis of all it reads."""
    if not isinstance(block.body, tirx.BufferStore):
        return False
    last, written = block.iter_vars[-1], block.body.buffer
    read = [load for load in loads(block.body) if not same(load.source, written)]
    return (
        last.iter_type == tirx.IterVar.CommReduce
        and str(written.dtype) == "float32"
        and all(
            uses(load.indices[-1], last.var)
            and not any(uses(index, last.var) for index in load.indices[:-1])
            for load in read
        )
    )
