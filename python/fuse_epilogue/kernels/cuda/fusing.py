"""Fusing what follows a reduction as one block: between two, a thread would use memory."""

from __future__ import annotations

from typing import Any

from tvm import s_tir

from ...rewrites.epilogue import NONE, TAIL, fuse, unfused
from ...tir.nest import child_names


def fuse_as_one(sch: s_tir.Schedule, name: str, mode: int) -> Any:
    """Fuse all that follows a reduction; return the block that is left of it, None without any.

    - `name`: block of the reduction.
    - `mode`: how: one of :data:`..epilogue.NONE` (nothing is fused), TAIL and ABSORBED.
    """
    if mode == TAIL:
        unfused(sch, _behind(sch, name))
    fuse(sch, name, mode)
    # Epilogues that the reduction has absorbed are gone.
    return unfused(sch, _behind(sch, name))


def in_plain_loops(sch: s_tir.Schedule, reduction: Any) -> bool:
    """Whether each block is in a loop for each of its axes: else something was scheduled before.

    Threads are bound to the loops of what is left of the blocks that follow. A block that can be
    inlined into another loses its own loops, and may have any.

    - `sch`: prepared, see :mod:`fuse_epilogue.rewrites.prepare`. It stays as it is.
    - `reduction` (SBlockRV): its only reduction.
    """
    copy = sch.copy()
    fuse_as_one(copy, sch.get(reduction).name_hint, NONE)
    blocks = map(copy.get_sblock, child_names(copy.mod["main"]))
    return all(len(copy.get_loops(each)) == len(copy.get(each).iter_vars) for each in blocks)


def _behind(sch: s_tir.Schedule, name: str) -> list[str]:
    blocks = child_names(sch.mod["main"])
    return blocks[blocks.index(name) + 1 :]
