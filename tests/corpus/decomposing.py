"""A fused block decomposes, and the schedule's records are those of a new schedule throughout."""

from __future__ import annotations

from tvm import tirx
from tvm.s_tir import Schedule
from tvm.s_tir.analysis import get_sblock_read_write_region, verify_well_formed

from fused_block import blocks

from .subject import Steps, Subject

DECOMPOSING = Steps()


def flags(sch: Schedule) -> dict[str, str]:
    """What a schedule has on record about each block of its function."""
    names = ["root", *blocks(sch.mod["main"])]
    return {n: str(sch.state._get_cached_flags(sch.get_sref(sch.get_sblock(n)))) for n in names}


@DECOMPOSING.step()
def cached_flags_are_those_of_a_new_schedule(subject: Subject) -> None:
    # On a copy: finding blocks by name is recorded on the trace, which other steps look at.
    sch = subject.fused.sch.copy()
    assert flags(sch) == flags(Schedule(sch.mod))


@DECOMPOSING.step()
def state_after_decomposing(subject: Subject) -> None:
    """Declared regions are the accessed ones, and the flags those of a new schedule."""
    case = subject.case
    for position, sch in subject.decomposed.items():
        after = sch.mod["main"]
        verify_well_formed(after)
        assert flags(sch) == flags(Schedule(sch.mod))
        inner = blocks(after)
        buffers = [param for param in after.params if isinstance(param.ty, tirx.BufferType)]
        for block in (after.body.block, *inner.values()):
            buffers.extend(block.alloc_buffers)
        for suffix in ("_init", "_update"):
            block = inner[case.reduction + suffix]
            reads, writes = get_sblock_read_write_region(block, {b: b for b in buffers})
            what = f"{block.name_hint} at loop {position}"
            assert sorted(map(str, block.reads)) == sorted(map(str, reads)), what
            assert sorted(map(str, block.writes)) == sorted(map(str, writes)), what
