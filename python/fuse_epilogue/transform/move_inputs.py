"""Computes the inputs of a fused cascade in its loop, a block of keys at a time."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import prim
from tvm.s_tir import Schedule

from .._interrupts import raise_interrupt


def move_inputs(sch: Schedule, fused: str) -> tuple[str, ...]:
    """Move blocks that only the loop of a block reads into it, where that repeats no work.

    In attention these are the scores: then only those of one row and one block of keys are stored
    at a time. A reduction is the last block that moves: what it reads is computed before the loop.

    - `sch`: is changed.
    - `fused`: name of the block, whose innermost loop is that over blocks of keys.
    - Returns: names of the moved blocks, the last one first.
    """
    moved: list[str] = []
    refused: set[str] = set()
    while True:
        readers = [fused, *(name for name in moved if not _is_reduction(sch, name))]
        candidates = _producers(sch, readers) - refused - {fused, *moved}
        name = min(candidates, default=None)
        if name is None:
            return tuple(moved)
        # Of a copy first: whether work is repeated shows when it is done.
        if _moves(sch.copy(), name, fused) and _moves(sch, name, fused):
            moved.append(name)
            refused.clear()  # A block that two others read can move after both.
        else:
            refused.add(name)


def _is_reduction(sch: Schedule, name: str) -> bool:
    axes = sch.get(sch.get_sblock(name)).iter_vars
    return any(int(axis.iter_type) == tirx.IterVar.CommReduce for axis in axes)


def _producers(sch: Schedule, names: list[str]) -> set[str]:
    blocks = (block for name in names for block in sch.get_producers(sch.get_sblock(name)))
    return {str(sch.get(block).name_hint) for block in blocks}


def _moves(sch: Schedule, name: str, fused: str) -> bool:
    """Move a block; return whether TVM does that, and it runs as often as before."""
    before = _runs(sch, name)
    try:
        sch.compute_at(sch.get_sblock(name), sch.get_loops(sch.get_sblock(fused))[-1])
    except Exception as error:  # noqa: BLE001 - TVM refuses by errors of several types
        raise_interrupt(error)
        return False
    return before is not None and _runs(sch, name) == before


def _runs(sch: Schedule, name: str) -> int | None:
    """Return how often a block runs; None if that is a symbol."""
    runs = 1
    for loop in sch.get_loops(sch.get_sblock(name)):
        extent: Any = sch.get(loop).extent
        if not isinstance(extent, prim.IntImm):
            return None
        runs *= int(extent)
    return runs
