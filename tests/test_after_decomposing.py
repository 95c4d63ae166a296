"""Every place to which a block may be moved, after decompose_reduction among others."""

from __future__ import annotations

import pytest
from tvm import s_tir
from tvm.s_tir import Schedule

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
)


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


@pytest.mark.full
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
