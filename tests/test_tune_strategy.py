"""The search that draws what TVM draws, and measures the best of it fused as well."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

from fuse_epilogue import tune, workloads
from fuse_epilogue.tune.strategy import body, fused_like
from fused_block import PROGRAM
from test_tune_rule import wrong
from tuning import TARGET, evolution, is_fused, split, without_intrinsics

pytestmark = pytest.mark.usefixtures(without_intrinsics.__name__)
__all__ = ["without_intrinsics"]

MOD = tvm.IRModule(
    {"main": workloads.matmul(16, 32, 16, activation="relu").with_attr("global_symbol", "main")}
)
NOTHING_TO_FUSE = tvm.IRModule(
    {"main": workloads.matmul(16, 32, 16, bias=False).with_attr("global_symbol", "main")}
)


def decisions(sch: Schedule) -> str:
    return str([sch.trace.decisions[i] for i in body(sch.trace) if i in sch.trace.decisions])


def seconds_of(sch: Schedule) -> float:
    """A time for each schedule, another one for each decision; the same fused and unfused."""
    return 1e-3 + sum(ord(letter) * 1e-9 * n for n, letter in enumerate(decisions(sch)))


def searched(
    mod: Any, strategy: Any, trials: int, batch: int, database: Any = None, fuse: bool = True
) -> list[list[Schedule]]:
    """The batches that a search proposes, if they take :func:`seconds_of`."""
    context = ms.TuneContext(
        mod,
        target=TARGET,
        space_generator=tune.space(TARGET, fuse=fuse),
        search_strategy=strategy,
        num_threads=1,
        rand_state=7,
    )
    database = ms.database.MemoryDatabase() if database is None else database
    context.pre_tuning(
        trials,
        batch,
        context.generate_design_space(),
        database,
        ms.cost_model.RandomModel(seed=1),
    )
    batches = []
    while (candidates := context.generate_measure_candidates()) is not None:
        batches.append([candidate.sch for candidate in candidates])
        results = [ms.runner.RunnerResult([seconds_of(sch)], None) for sch in batches[-1]]
        context.notify_runner_results(candidates, results)
    context.post_tuning()
    return batches


def names(schedules: list[Schedule]) -> list[str]:
    return [str(sch.trace) for sch in schedules]


def test_all_but_a_sixteenth_is_what_tvm_draws_and_the_rest_the_best_of_it_fused() -> None:
    tvms = searched(MOD, evolution(96), 32, 32, fuse=False)[0]
    first, last = searched(MOD, tune.FuseBest(evolution(96)), 32, 32)
    assert len(first) == 30 and names(first) == names(tvms)[:30]
    assert all(is_fused(sch) for sch in last)
    best = sorted(first, key=seconds_of)[:2]
    assert [decisions(sch) for sch in last] == [decisions(sch) for sch in best]


def test_with_several_batches_each_has_its_share() -> None:
    batches = searched(MOD, tune.FuseBest(evolution()), 40, 16)
    counts = [tuple(map(len, split(batch))) for batch in batches]
    assert counts == [(0, 16), (1, 15), (1, 6), (1, 0)]
    every = names([sch for batch in batches for sch in batch])
    assert len(set(every)) == len(every)


@pytest.mark.parametrize("trials", [1, 2, 3])
def test_few_trials(trials: int) -> None:
    found = sum(searched(MOD, tune.FuseBest(evolution()), trials, 16), [])
    assert len(found) == trials
    assert len(split(found)[0]) == (trials > 1)


def test_where_nothing_can_be_fused_it_is_tvms_search() -> None:
    strategy = tune.FuseBest(evolution()).clone()
    tvms = searched(NOTHING_TO_FUSE, evolution(), 20, 8)
    assert [names(b) for b in searched(NOTHING_TO_FUSE, strategy, 20, 8)] == [
        names(b) for b in tvms
    ]


def test_what_was_fused_before_the_search_is_searched() -> None:
    sch = Schedule(MOD)
    sch.fuse_reduction_epilogue("matmul", "bias")
    assert len(sum(searched(sch.mod, tune.FuseBest(evolution()), 8, 8), [])) == 8


def test_a_run_that_goes_on_does_not_repeat_itself() -> None:
    database = ms.database.MemoryDatabase()
    first, last = searched(MOD, tune.FuseBest(evolution()), 16, 16)
    workload = database.commit_workload(MOD)
    for sch in [*first, *last]:
        database.commit_tuning_record(
            ms.database.TuningRecord(sch.trace, workload, [seconds_of(sch)], TARGET, None)
        )
    again = sum(searched(MOD, tune.FuseBest(evolution()), 16, 16, database), [])
    # What is the second best at once, since the best is in the database, fused.
    second = sorted(first, key=seconds_of)[1]
    assert is_fused(again[0]) and decisions(again[0]) == decisions(second)


def test_a_failed_schedule_is_not_the_best() -> None:
    strategy = tune.FuseBest(evolution())
    context = ms.TuneContext(
        MOD, target=TARGET, space_generator=tune.space(TARGET), search_strategy=strategy
    )
    context.pre_tuning(17, 16, context.generate_design_space())
    candidates = context.generate_measure_candidates()
    context.notify_runner_results(
        candidates, [ms.runner.RunnerResult(None, "died") for _ in candidates]
    )
    # All are TVM's: there is nothing to fuse.
    assert not any(is_fused(c.sch) for c in context.generate_measure_candidates())


@pytest.mark.parametrize("bias_only", [True, False], ids=["bias", "bias and relu"])
def test_every_structure_has_its_like(bias_only: bool) -> None:
    mod = workloads.matmul(16, 32, 16, activation=None if bias_only else "relu")
    mod = tvm.IRModule({"main": mod.with_attr("global_symbol", "main")})
    context = ms.TuneContext(mod, target=TARGET, space_generator=tune.space(TARGET))
    fused, plain = split(context.generate_design_space())
    found = set()
    for sch in plain:
        like = fused_like(sch.trace, fused)
        assert like is not None
        again = Schedule(mod)
        like.apply_to_schedule(again, remove_postproc=True)
        assert is_fused(again) and decisions(again) == decisions(sch)
        # What is written in a loop is written in the same one: the same loops around the sum.
        loops = [[int(s.get(loop).extent) for loop in s.get_loops("matmul")] for s in (sch, again)]
        assert loops[0] == loops[1]
        found.add(str(like))
    assert len(found) == len(plain) == 3


def test_what_is_fused_afterwards_is_right() -> None:
    mod = tvm.IRModule({"main": PROGRAM.func.with_attr("global_symbol", "main")})
    batches = searched(mod, tune.FuseBest(evolution()), 32, 16)
    fused, unfused = split(sum(batches, []))
    assert fused and unfused
    assert wrong(fused, PROGRAM) == 0
