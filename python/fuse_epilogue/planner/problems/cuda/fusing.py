"""Fusing what follows a reduction as one block: between two, a thread would use memory."""

from __future__ import annotations

from typing import Any

from tvm import s_tir

from ....schedules.trees import child_names
from ..epilogue import TAIL, fuse, unfused


def fuse_as_one(sch: s_tir.Schedule, name: str, mode: int) -> Any:
    """Fuse all that follows a reduction; return the block that is left of it, None without any.

    Parameters
    ----------
    sch : tvm.s_tir.Schedule
    name : str
        Of the reduction.
    mode : int
        How: one of :data:`..epilogue.NONE` (nothing is fused), TAIL and ABSORBED.
    """
    if mode == TAIL:
        unfused(sch, _behind(sch, name))
    fuse(sch, name, mode)
    # What the reduction has absorbed is no block any more.
    return unfused(sch, _behind(sch, name))


def _behind(sch: s_tir.Schedule, name: str) -> list[str]:
    blocks = child_names(sch.mod["main"])
    return blocks[blocks.index(name) + 1 :]
