"""The corpus after decompose_reduction, and every place to which a block may then be moved."""

from __future__ import annotations

import pytest
from tvm import s_tir, tirx
from tvm.s_tir import Schedule
from tvm.s_tir.analysis import get_sblock_read_write_region, verify_well_formed

import fuse_epilogue  # noqa: F401 - adds the primitive to schedules
from fused_block import (
    PROGRAM,
    Steps,
    assert_right,
    blocks,
    decompose,
    fused,
    loops,
    move,
    reduction_outermost,
    relu_in_the_row,
    tile,
)
from oracles import (
    Builds,
    assert_same_bits,
    assert_within_rounding,
    expected,
    fuse,
    make_inputs,
    run,
)
from programs import ACCEPT, Case

# ---------------------------------------------------------------------------------------------
# Every program of the corpus
# ---------------------------------------------------------------------------------------------


def flags(sch: Schedule) -> dict[str, str]:
    """What a schedule has on record about each block of its function."""
    names = ["root", *blocks(sch.mod["main"])]
    return {n: str(sch.state._get_cached_flags(sch.get_sref(sch.get_sblock(n)))) for n in names}


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in ACCEPT])
def test_cached_flags_are_those_of_a_new_schedule(case: Case) -> None:
    sch, _ = fuse(case)
    assert flags(sch) == flags(Schedule(sch.mod))


def decompositions(case: Case) -> dict[int, Schedule]:
    """`case` fused and decomposed at each loop that allows it, by the loop's number.

    Without debug_mask: TVM's decompose_reduction does not pass its own verification of the flags
    where it cannot prove that the init covers what the update reads. Afterwards they are right.
    """
    sch = Schedule(fuse(case)[0].mod)
    found = {}
    for position in range(len(loops(sch, case.reduction))):
        copy = sch.copy()
        loop = loops(copy, case.reduction)[position]
        try:
            copy.decompose_reduction(copy.get_sblock(case.reduction), loop)
        except s_tir.ScheduleError:
            continue
        found[position] = copy
    return found


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in ACCEPT])
def test_state_after_decomposing(case: Case) -> None:
    """Declared regions are the accessed ones, and the flags those of a new schedule."""
    for position, sch in decompositions(case).items():
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


@pytest.mark.slow
def test_every_program_is_right_after_decomposing() -> None:
    """At one loop each: the loops take turns from program to program."""
    decomposed = {}
    for number, case in enumerate(ACCEPT):
        schedules = list(decompositions(case).values())
        if schedules:
            decomposed[case.name] = schedules[number % len(schedules)].mod["main"]
    assert len(decomposed) > len(ACCEPT) * 0.9
    together = Builds(decomposed)
    for case in ACCEPT:
        if case.name not in decomposed:
            continue
        for sizes in case.sizes:
            inputs = make_inputs(case, "exact", sizes)
            result = run(together[case.name], case, inputs, sizes)
            if case.approximate:
                assert_within_rounding(case, result, inputs, sizes)
                continue
            for output, value in expected(case, inputs).items():
                assert_same_bits(result[output], value, f"{case.name} {dict(sizes)}, {output}")


# ---------------------------------------------------------------------------------------------
# Every move of every block
# ---------------------------------------------------------------------------------------------


def cached_bias(sch: Schedule) -> None:
    sch.cache_read("mm", 0, "global")


PREPARED: dict[str, list[Steps]] = {
    "as fused": [],
    "decomposed at 0": [lambda s: decompose(s, 0)],
    "decomposed at 1": [lambda s: decompose(s, 1)],
    "decomposed at 2": [lambda s: decompose(s, 2)],
    "tiled": [tile],
    "tiled, decomposed at 1": [tile, lambda s: decompose(s, 1)],
    "tiled, decomposed at 2": [tile, lambda s: decompose(s, 2)],
    "reduction outermost": [reduction_outermost, lambda s: decompose(s, 0)],
    "fused loops": [
        lambda s: s.fuse(*loops(s, "mm")[:2]),
        lambda s: decompose(s, 1),
    ],
    "bias cached, decomposed": [cached_bias, lambda s: decompose(s, 2)],
    "decomposed, bias cached": [
        lambda s: decompose(s, 1),
        lambda s: s.cache_read("mm_init", 0, "global"),
    ],
    "bias in the row, decomposed": [
        lambda s: move(s, "bias", "mm", 0),
        lambda s: decompose(s, 2),
    ],
    "relu in the row, decomposed": [relu_in_the_row, lambda s: decompose(s, 1)],
    "output cached, decomposed": [
        lambda s: s.cache_write("mm", 0, "global"),
        lambda s: decompose(s, 2),
    ],
}
# What comes before the product is moved with compute_at, what comes after it with the reverse:
# TVM does not stop reverse_compute_at from moving a block behind its readers.
COMPUTE_AT = ("bias", "C_global", "mm", "mm_init", "mm_update", "biased_global")
REVERSE_COMPUTE_AT = ("mm", "mm_init", "mm_update", "biased_global", "relu")


@pytest.mark.slow
@pytest.mark.parametrize("name", PREPARED)
def test_every_move_is_right_or_refused(name: str) -> None:
    start = fused()
    for steps in PREPARED[name]:
        steps(start)
    names = list(blocks(start.mod["main"]))
    moves = [("compute_at", block) for block in COMPUTE_AT if block in names]
    moves += [("reverse_compute_at", block) for block in REVERSE_COMPUTE_AT if block in names]
    functions, refused = {}, 0
    for primitive, block in moves:
        for to in names:
            for position in range(len(loops(start, to))):
                sch = start.copy()
                module = sch.mod
                loop = loops(sch, to)[position]
                try:
                    getattr(sch, primitive)(sch.get_sblock(block), loop)
                except s_tir.ScheduleError:
                    assert sch.mod.same_as(module)
                    refused += 1
                else:
                    functions[f"{primitive}_{block}_{to}_{position}"] = sch.mod["main"]
    assert functions
    assert refused
    together = Builds(functions)
    for move_name in functions:
        assert_right(together[move_name], PROGRAM, f"{name}: {move_name}")
