"""A function with a convolution and blocks that do not become one with it, for CUDA.

By schedule primitives: each block gets a kernel, neighbouring threads have neighbouring elements,
and what is fusable is fused first: the tail comes after the taps, its operand in a register.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from tvm import s_tir
from tvm.tirx import IterVar

from ....rewrites.fused_conv import fuse_followers
from ....tir.affine import as_constant
from ....tir.nest import child_names
from ..launch import THREADS, threads_for

# Taps that are written out.
_UNROLLED_TAPS = 16


def in_loops(
    sch: s_tir.Schedule,
    conv: Any,
    follow: Callable[[s_tir.Schedule, Any], None] = fuse_followers,
    most: int = THREADS,
) -> None:
    """Schedule a convolution, fuse of its epilogue what is fusable, and schedule what is left.

    - `sch`: prepared, see :mod:`fuse_epilogue.rewrites.prepare`; nothing is scheduled.
    - `conv` (SBlockRV): the reduction.
    - `follow`: fuses what follows the convolution, or some of it; where it raises an error of TVM's
      schedules, nothing is fused.
    - `most`: threads of a block, at most.
    - Raises tvm.s_tir.ScheduleError: as of :func:`bind_elements`.
    """
    name = sch.get(conv).name_hint
    bind_elements(sch, conv, most)
    with contextlib.suppress(s_tir.ScheduleError):
        follow(sch, conv)
    for each in child_names(sch.mod["main"]):
        block = sch.get_sblock(each)
        if not _is_bound(sch, block) and each != name:
            bind_elements(sch, block, most)


def bind_elements(sch: s_tir.Schedule, block: Any, most: int = THREADS) -> None:
    """Give an element of a block to each thread.

    - `block` (SBlockRV): in a loop for each of its axes, none of which is bound.
    - `most`: threads of a block of the kernel, at most.
    - Raises tvm.s_tir.ScheduleError: the block is in other loops, because it was scheduled before,
      or they cannot be parallel.
    """
    axes, loops = sch.get(block).iter_vars, sch.get_loops(block)
    if len(axes) != len(loops):
        name = sch.get(block).name_hint
        raise s_tir.ScheduleError(
            f"'{name}' has axes for {len(axes)} loops and is in {len(loops)}: it is already "
            "scheduled; pass the unscheduled function"
        )
    around = list(zip(axes, loops, strict=True))
    elements = [loop for axis, loop in around if int(axis.iter_type) == IterVar.DataPar]
    taps = [loop for axis, loop in around if int(axis.iter_type) != IterVar.DataPar]
    if not elements:
        elements = [sch.add_unit_loop(taps[0] if taps else block)]
    sch.reorder(*elements, *taps)
    fused = sch.fuse(*elements)
    total = as_constant(sch.get(fused).extent)
    count = threads_for(total, str(sch.get(fused).loop_var.ty.dtype), most)
    blocks, threads = sch.split(fused, [None, count])
    sch.bind(blocks, "blockIdx.x")
    sch.bind(threads, "threadIdx.x")
    for loop in taps:
        if int(sch.get(loop).extent) <= _UNROLLED_TAPS:
            unroll(sch, loop)


def place_of(sch: s_tir.Schedule, block: Any, buffer: Any) -> int:
    """Return which of the reads of a block is that of a buffer."""
    reads = sch.get(block).reads
    return next(at for at, region in enumerate(reads) if region.source.same_as(buffer))


def unroll(sch: s_tir.Schedule, loop: Any) -> None:
    """Let nvcc unroll a loop: the text stays short, and arrays become registers all the same.

    TVM would fold 0 * weight, also where the weight is not finite.
    """
    sch.unroll(loop)
    sch.annotate(loop, "pragma_unroll_explicit", 0)


def _is_bound(sch: s_tir.Schedule, block: Any) -> bool:
    return any(sch.get(loop).thread_binding is not None for loop in sch.get_loops(block))
