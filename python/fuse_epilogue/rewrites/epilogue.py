"""The epilogue of a reduction: the ways to fuse it, and its cost for an element."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import Call, prim

from .._printed import last_line
from ..tir.walk import handle, loads, parts_of, uses

#: The ways to fuse, as the values of the planner's variable "fusion".
NONE, TAIL, ABSORBED = 0, 1, 2
LABELS = ("none", "tail", "absorbed")

#: Arithmetic that is one instruction, and instructions of an exp, sigmoid or another function, as
#: :mod:`fuse_epilogue.kernels.cpu.vector_math` writes them out.
_ONE = (prim.Add, prim.Sub, prim.Mul, prim.Div, prim.Max, prim.Min, prim.Cast, prim.Select)
_FUNCTION = 22


@dataclass(frozen=True)
class Epilogue:
    """The work after a reduction.

    - `modes`: ways to fuse that there are, of :data:`NONE`, :data:`TAIL` and :data:`ABSORBED`; only
      the first where nothing follows.
    - `blocks`: number of blocks that follow.
    - `operations`: instructions for an element of the result, of all blocks.
    - `absorbed`: number of them that are no longer needed where the reduction absorbs.
    - `left`: whether anything follows the reduction that has absorbed.
    - `loads`: for each load of something else than the sum, the axes of the result that it depends
      on, by place.
    - `why`: why a way is missing; "" if none is.
    """

    modes: tuple[int, ...]
    blocks: int
    operations: int
    absorbed: int
    left: bool
    loads: tuple[frozenset[int], ...]
    why: str

    def is_split(self, mode: int) -> bool:
        """Whether something is computed on finished sums inside of the reduction's loops."""
        return mode == TAIL or mode == ABSORBED and self.left


def find_epilogue(sch: s_tir.Schedule, reduction: Any) -> Epilogue | None:
    """Return what follows a reduction, None where it is not known.

    That is so of readers in no order that is known, and of a block that is more than one store.

    - `sch`: prepared, see :mod:`fuse_epilogue.rewrites.prepare`. It stays as it is.
    - `reduction` (SBlockRV): its only reduction.
    """
    blocks = [sch.get(rv) for rv in sch.get_child_blocks(sch.get_sblock("root"))]
    name = sch.get(reduction).name_hint
    if not blocks or blocks[0].name_hint != name:
        return None
    followers = blocks[1:]
    if not all(isinstance(block.body, tirx.BufferStore) for block in followers):
        return None
    operations, others = _count(sch, followers)
    if not followers:
        return Epilogue((NONE,), 0, 0, 0, False, (), "nothing follows the reduction")
    modes, why, absorbed, left = [NONE], [], 0, False
    reports = {}
    for mode, numerics in ((TAIL, "exact"), (ABSORBED, "reassociate")):
        copy = sch.copy()
        try:
            report = copy.fuse_reduction_epilogue(name, numerics=numerics)
        except s_tir.ScheduleError as error:
            why.append(f"no {LABELS[mode]}: {last_line(error)}")
            continue
        if report.stopped is not None or report.kept:
            why.append(f"no {LABELS[mode]}: {report}")
            continue
        reports[mode] = report
        took = sum(bool(step.absorbed) for step in report.steps)
        if took and mode == TAIL:
            continue  # of integers: the same as what the other way gives
        if mode == ABSORBED and not took:
            why.append("absorbed is left out: the reduction cannot start from any part of it")
            continue
        if mode == ABSORBED:
            absorbed = took
            left = len(copy.get_child_blocks(copy.get_sblock("root"))) > 1
        modes.append(mode)
    return Epilogue(
        tuple(modes), len(followers), operations, absorbed, left, others, "; ".join(why)
    )


def fuse(sch: s_tir.Schedule, reduction: Any, mode: int) -> None:
    """Fuse all that follows a reduction, in one of the ways of :class:`Epilogue`."""
    if mode != NONE:
        sch.fuse_reduction_epilogue(reduction, numerics="exact" if mode == TAIL else "reassociate")


def unfused(sch: s_tir.Schedule, names: Sequence[str]) -> Any:
    """Make one block, the last, of all that follows a reduction; return it, None without any.

    - `names`: names of the blocks that follow, in order.
    """
    *before, last = names or (None,)
    for name in before:
        # One that cannot be inlined stays as it is, in loops of its own.
        with contextlib.suppress(s_tir.ScheduleError):
            sch.compute_inline(name)
    return None if last is None else sch.get_sblock(last)


def in_vectors(sch: s_tir.Schedule, block: Any, lanes: int, parallel: bool) -> None:
    """Schedule a block without sums: its last loop in vectors, those around it in parallel.

    Blocks after a reduction may have any rank, and so any number of loops. A single loop is both.

    - `block` (SBlockRV): not scheduled.
    - `lanes`: elements of a vector; where the last loop is not a multiple, it stays as it is.
    - `parallel`: whether several threads compute it.
    """
    loops = sch.get_loops(block)
    if not loops:
        return
    *rows, columns = loops
    if lanes > 1 and int(sch.get(columns).extent) % lanes == 0:
        columns, lane = sch.split(columns, [None, lanes])
        sch.vectorize(lane)
    if parallel:
        outer = rows or [columns]
        sch.parallel(sch.fuse(*outer) if len(outer) > 1 else outer[0])


def _count(sch: s_tir.Schedule, blocks: Sequence[Any]) -> tuple[int, tuple[frozenset[int], ...]]:
    """Return the operations of blocks, and on which of their axes their other loads depend."""
    inner = {handle(buffer) for buffer in sch.get(sch.get_sblock("root")).alloc_buffers}
    operations, others = 0, []
    for block in blocks:
        found = parts_of(block.body.value, *_ONE)
        calls = parts_of(block.body.value, Call)
        operations += len(found) + _FUNCTION * len(calls)
        for load in loads(block.body.value):
            if handle(load.source) not in inner:
                axes = enumerate(axis.var for axis in block.iter_vars)
                others.append(frozenset(at for at, var in axes if uses(load, var)))
    return operations, tuple(others)
