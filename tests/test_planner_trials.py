"""Plans of which the clock had a say: which points are timed, and that the fastest is taken."""

from __future__ import annotations

import platform

import pytest
import tvm_ffi
from tvm.script import from_source
from tvm.script import tirx as T
from tvm.target import Target

import fuse_epilogue
from fuse_epilogue import schedules, workloads
from fuse_epilogue.planner import Plan
from fuse_epilogue.planner.measurement.measure import arguments
from fuse_epilogue.planner.search import trials
from fuse_epilogue.planner.search.trials import TILE

COUNT = 9


def function(point):
    """Return what tells the function of a point from others, of the product below."""
    return tvm_ffi.structural_hash(PREDICTED.problem(FUNC).apply(point).mod["main"])


FUNC = workloads.matmul(32, 64, 24, activation="relu")
PREDICTED = fuse_epilogue.plan(FUNC, schedules.host(2))


@pytest.fixture
def timed(monkeypatch):
    """Make a clock of which each function takes a microsecond less than the one built before it."""
    built, runs = {}, []

    def compiled(sch, target):
        return tvm_ffi.structural_hash(sch.mod["main"])

    def seconds(key, arrays):
        runs.append(key)
        return 1e-3 - 1e-6 * built.setdefault(key, len(built)) + 1e-7 * (runs.count(key) == 1)

    monkeypatch.setattr(trials, "compiled", compiled)
    monkeypatch.setattr(trials, "seconds", seconds)
    return fuse_epilogue.plan(FUNC, schedules.host(2), measure=COUNT), built, runs


def test_the_fastest_is_the_plan_and_its_time_the_shortest(timed):
    chosen, built, runs = timed
    last = max(built, key=built.__getitem__)
    assert function(chosen.point) == last
    assert chosen.found.best.measured == pytest.approx(1e-3 - 1e-6 * built[last], rel=1e-9)
    took = [each.measured for each in chosen.found.ranked]
    assert took == sorted(took)


def test_functions_take_turns_and_one_slow_turn_is_forgiven(timed):
    _, built, runs = timed
    assert len(built) == COUNT
    assert min(runs.count(key) for key in built) > 1
    # The last turns are of those that may be the fastest, of this clock the last ones, and of the
    # best of each way to fuse; the turns before are of all, in the order they were added in.
    period = 1 + runs[-2::-1].index(runs[-1])
    last = period * trials._LAST_TURNS
    assert runs[-last:] == trials._LAST_TURNS * runs[-period:]
    assert runs[-period:][: trials._LAST] == list(built)[: -trials._LAST - 1 : -1]
    assert runs[-last - 2 * COUNT : -last] == 2 * list(built)


def test_the_best_of_each_way_to_fuse_is_timed_as_often_as_the_best(timed):
    chosen, _, runs = timed
    best = runs.count(function(chosen.point))
    for each in chosen.found.by_fusion.values():
        assert runs.count(function(each.point)) >= best


def test_the_last_turns_decide(monkeypatch):
    """The second function is the fastest until the third is, in the last turns of both."""
    runs = []

    def seconds(key, arrays):
        runs.append(key)
        order = list(dict.fromkeys(runs))
        late = runs.count(key) > 3 * trials._TURNS
        return 1e-4 if late and key == order[2] else 9e-4 if key in order[1:2] else 1e-3

    monkeypatch.setattr(trials, "compiled", lambda sch, target: tvm_ffi.structural_hash(sch.mod))
    monkeypatch.setattr(trials, "seconds", seconds)
    chosen = fuse_epilogue.plan(FUNC, schedules.host(2), measure=COUNT)
    assert chosen.found.best.measured == pytest.approx(1e-4)


def test_neither_a_lucky_moment_nor_the_clock_decides(monkeypatch):
    """The second function is faster than the first, but for one of the last turns."""
    runs = []

    def seconds(key, arrays):
        runs.append(key)
        at = list(dict.fromkeys(runs)).index(key)
        turn = runs.count(key) - 3 * trials._TURNS
        usual = (1e-3, 9e-4)[at] if at < 2 else 2e-3
        # From turn to turn the machine is slower, and comes to itself for one function.
        return 4e-4 if at == 0 and turn == 3 else usual * (1 + 0.3 * max(turn, 0))

    monkeypatch.setattr(trials, "compiled", lambda sch, target: tvm_ffi.structural_hash(sch.mod))
    monkeypatch.setattr(trials, "seconds", seconds)
    chosen = fuse_epilogue.plan(FUNC, schedules.host(2), measure=COUNT)
    second = list(dict.fromkeys(runs))[1]
    main = chosen.problem(FUNC).apply(chosen.point).mod
    assert tvm_ffi.structural_hash(main) == second
    taken = {each.measured for each in chosen.found.ranked}
    assert min(taken) == chosen.found.best.measured


def test_what_was_timed_more_often_is_not_luckier(monkeypatch):
    """The first function takes as long as the others, but for one lucky turn at the beginning."""
    runs = []

    def seconds(key, arrays):
        runs.append(key)
        return 1e-6 if len(runs) == 1 else 1e-3

    monkeypatch.setattr(trials, "compiled", lambda sch, target: tvm_ffi.structural_hash(sch.mod))
    monkeypatch.setattr(trials, "seconds", seconds)
    chosen = fuse_epilogue.plan(FUNC, schedules.host(2), measure=COUNT)
    assert chosen.found.best.measured == pytest.approx(1e-3)


def test_among_those_timed_are_the_cheapest_and_the_best_of_each_way_to_fuse(timed):
    chosen, built, _ = timed
    assert function(PREDICTED.point) in built
    for each in PREDICTED.found.by_fusion.values():
        assert function(each.point) in built
    assert all(each.measured for each in chosen.found.by_fusion.values())


def test_several_tiles_are_timed_then_others_of_the_fastest(timed):
    chosen, _, _ = timed
    tiles = [tuple(c.point[n] for n in TILE if n in c.point) for c in chosen.found.ranked]
    assert len(set(tiles)) >= COUNT // 3
    assert tiles.count(tiles[0]) >= COUNT // 3


def test_what_was_measured_is_told_and_kept(timed):
    chosen, _, _ = timed
    text = chosen.explain(verbose=True)
    assert f"measured {1e6 * chosen.found.best.measured:.2f} us, the least of" in text
    assert "each at its best (measured)" in text
    assert "no better point exists" not in text
    assert "measured" in chosen.table().splitlines()[0]
    again = Plan.from_json(chosen.to_json())
    assert again == chosen
    assert again.found.best.measured == chosen.found.best.measured


def test_a_prediction_says_nothing_of_measuring():
    assert {each.measured for each in PREDICTED.found.ranked} == {None}
    assert "measured" not in PREDICTED.explain(verbose=True) + PREDICTED.table()


@pytest.mark.full
@pytest.mark.parametrize(
    "func",
    [
        FUNC,
        workloads.row_reduce(24, 40, op="max", bias=True),
        workloads.depthwise_conv1d(1, 8, 64, 3),
    ],
)
def test_really_measured_plans_compute_what_others_do(func):
    import numpy as np
    import tvm

    arrays = arguments(func)
    tvm.compile(func, target="llvm")(*arrays)
    right = arrays[-1].numpy().copy()
    arrays[-1].copyfrom(np.full_like(right, 99))
    fuse_epilogue.compile(func, schedules.host(2), measure=4)(*arrays)
    np.testing.assert_array_equal(arrays[-1].numpy(), right)


@T.prim_func(s_tir=True)
def GATHER(
    x: T.Buffer((8, 16), "float32"),
    table: T.Buffer((4, 8), "float32"),
    chosen: T.Buffer((8,), "int32"),
    y: T.Buffer((8,), "float32"),
):
    sums = T.sblock_alloc_buffer((8,))
    for i, j in T.grid(8, 16):
        with T.sblock("sums"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                sums[vi] = T.float32(0)
            sums[vi] = sums[vi] + x[vi, vj]
    for i in range(8):
        with T.sblock("y"):
            vi = T.axis.spatial(8, i)
            y[vi] = sums[vi] + table[chosen[vi], vi]


def test_data_that_would_be_indices_are_not_made_up():
    assert fuse_epilogue.plan(GATHER, schedules.host(2)).kind == "rows"
    with pytest.raises(ValueError, match="index of 'table' is read from memory"):
        fuse_epilogue.plan(GATHER, schedules.host(2), measure=3)


def test_no_function_is_timed_with_a_zero():
    made = arguments(FUNC)
    assert len(made) == len(FUNC.params) and all((array.numpy() != 0).all() for array in made)


@pytest.mark.parametrize("count", [1, 24])
def test_as_many_are_timed_as_asked_for_where_there_are_as_many(timed_count, count):
    func = workloads.row_reduce(64, 128, bias=True)
    ways = len(fuse_epilogue.plan(func, schedules.host(2)).found.by_fusion)
    assert timed_count(func, count) == max(count, ways)


@pytest.fixture
def timed_count(monkeypatch):
    """Return what counts the functions that are timed for a plan."""

    def count(func, measure):
        seen = set()

        def compiled(sch, target):
            key = tvm_ffi.structural_hash(sch.mod["main"])
            seen.add(key)
            return key

        monkeypatch.setattr(trials, "compiled", compiled)
        monkeypatch.setattr(trials, "seconds", lambda key, arrays: 1e-6 + key % 97 * 1e-9)
        fuse_epilogue.plan(func, schedules.host(2), measure=measure)
        return len(seen)

    return count


@pytest.mark.parametrize("spelled", [{}, {"mtriple": f"{platform.machine()}-unknown-linux-gnu"}])
def test_this_machine_may_be_spelled_otherwise(spelled):
    trials.check_here(Target({"kind": "llvm", **spelled}))


@pytest.mark.parametrize("other", [{"mtriple": "riscv64-unknown-linux-gnu"}, {"mcpu": "i486"}])
def test_another_machine_is_refused(other):
    with pytest.raises(ValueError, match="cannot be timed on this machine"):
        trials.check_here(Target({"kind": "llvm", **other}))


_SCALED = """@T.prim_func(s_tir=True)
def main(first: T.handle, b: T.Buffer((16, 16)), factor: T.float32, y: T.Buffer((16, 16))):
{matched}
    s = T.sblock_alloc_buffer((16, 16))
    for i, j, k in T.grid(16, 16, 16):
        with T.sblock("product"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                s[vi, vj] = T.float32(0)
            s[vi, vj] = s[vi, vj] + a[vi, vk] * b[vk, vj]
    for i, j in T.grid(16, 16):
        with T.sblock("scaled"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = s[vi, vj] * factor
"""


def test_numbers_are_arguments_and_strides_are_refused():
    plain = "a = T.match_buffer(first, (16, 16))"
    strided = "a = T.match_buffer(first, (16, 16), strides=[1, 16])"
    for matched, accepted in ((plain, True), (strided, False)):
        func = from_source(_SCALED.format(matched="    " + matched))
        assert fuse_epilogue.plan(func, schedules.host(2)).kind == "product"
        if accepted:
            chosen = fuse_epilogue.plan(func, schedules.host(2), measure=3)
            assert chosen.found.best.measured
            continue
        with pytest.raises(ValueError, match="has strides.*plan without measuring"):
            fuse_epilogue.plan(func, schedules.host(2), measure=3)
