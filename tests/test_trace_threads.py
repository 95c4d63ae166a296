"""Traces replayed from several threads, also from those of MetaSchedule."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import s_tir
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.tirx import PrimFunc

import fuse_epilogue
from traced import (
    FLOATS,
    PROGRAM,
    SCALED,
    WITH_MIRROR,
    WITH_RELU,
    names_of_blocks,
    schedule,
    scheduled_on,
)

pytestmark = pytest.mark.cpp


def test_replay_from_several_threads() -> None:
    sch = scheduled_on(PROGRAM)
    refused = schedule()
    refused.fuse_reduction_epilogue("mm", "add")
    refused.fuse_reduction_epilogue("mm", "residual")

    def replay(number: int) -> str | None:
        if number % 3:
            fresh = schedule()
            sch.trace.apply_to_schedule(fresh, remove_postproc=False)
            tvm.ir.assert_structural_equal(fresh.mod, sch.mod)
            return None
        try:
            refused.trace.apply_to_schedule(schedule(WITH_MIRROR), remove_postproc=False)
        except s_tir.ScheduleError as error:
            return fuse_epilogue.refusal_code(error)
        return "not refused"

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(replay, range(48)))
    assert results == ["index-map" if number % 3 == 0 else None for number in range(48)]


def fused_then_tiled(sch: Schedule) -> None:
    sch.fuse_reduction_epilogue("mm")
    block = sch.get_sblock("mm")
    i, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, sch.sample_perfect_tile(j, 2))
    sch.reorder(i, j0, k, j1)
    sch.compute_at(sch.get_sblock("bias"), j0)
    sch.decompose_reduction(block, k)


def tiled_then_fused(**options: Any) -> Callable[[Schedule], None]:
    """The same tiles, of the reduction and of its tails."""

    def space(sch: Schedule) -> None:
        block = sch.get_sblock("mm")
        i, j, k = sch.get_loops(block)
        j0, j1 = sch.split(j, sch.sample_perfect_tile(j, 2))
        sch.reorder(i, j0, k, j1)
        sch.fuse_reduction_epilogue(block, **options)
        sch.compute_at(sch.get_sblock("bias"), j0)
        sch.decompose_reduction(block, k)

    return space


# The program, its search space, and whether the residual is left as a tail.
SPACES: dict[str, tuple[PrimFunc, Callable[[Schedule], None], bool]] = {
    "fused, then tiled": (PROGRAM, fused_then_tiled, False),
    "tiled, then fused": (PROGRAM, tiled_then_fused(), False),
    "tail": (WITH_RELU, tiled_then_fused(), True),
    "exact": (FLOATS, tiled_then_fused(numerics="exact"), True),
    "distribute": (SCALED, tiled_then_fused(distribute=True), False),
    "not distribute": (SCALED, tiled_then_fused(), True),
}


@pytest.mark.parametrize("name", SPACES)
def test_search_and_database_of_meta_schedule(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MetaSchedule replays the trace from threads of its own, with other decisions each time."""
    func, space, tail = SPACES[name]
    # A context imports all of TVM's tensor intrinsics, which takes seconds; none is used here.
    intrinsics = "tvm.s_tir.tensor_intrin"
    if intrinsics not in sys.modules:
        monkeypatch.setitem(sys.modules, intrinsics, types.ModuleType(intrinsics))

    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    context = ms.TuneContext(
        mod=mod,
        target=tvm.target.Target({"kind": "llvm", "num-cores": 2}),
        space_generator=ms.space_generator.ScheduleFn(
            space, sch_rules=[], postprocs=[], mutator_probs={}
        ),
        search_strategy=ms.search_strategy.ReplayTrace(max_fail_count=1),
        task_name="fused",
        num_threads=2,
        rand_state=1,
    )
    context.pre_tuning(16, 16, context.generate_design_space())
    candidates = context.generate_measure_candidates()
    assert len(candidates) == 16
    modules = [candidate.sch.mod for candidate in candidates]
    assert len({mod.script() for mod in modules}) > 1
    for candidate in candidates:
        fresh = Schedule(mod, debug_mask="all")
        candidate.sch.trace.apply_to_schedule(fresh, remove_postproc=False)
        tvm.ir.assert_structural_equal(fresh.mod, candidate.sch.mod)
        assert ("residual" in names_of_blocks(fresh)) == tail

    files = {"path_workload": str(tmp_path / "w"), "path_tuning_record": str(tmp_path / "r")}
    stored = ms.database.JSONDatabase(**files)
    stored.commit_tuning_record(
        ms.database.TuningRecord(
            candidates[-1].sch.trace, stored.commit_workload(mod), [1.0], context.target, None
        )
    )
    found = ms.database.JSONDatabase(**files).query_schedule(mod, context.target, "main")
    tvm.ir.assert_structural_equal(found.mod, candidates[-1].sch.mod)
