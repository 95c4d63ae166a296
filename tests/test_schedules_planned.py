"""`schedules.apply` by a plan: what it computes, what goes to the rules, and what a plan can be."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import s_tir
from tvm.s_tir import Schedule
from tvm.script import tirx as T
from tvm.target import Target

import fuse_epilogue
import test_schedules_cpu_elements as elements
import test_schedules_cpu_reads as reads
import test_schedules_cpu_sums as sums
import test_schedules_cpu_tails as tails
import test_schedules_left_alone as left_alone
import test_workloads_relax as relax
from depthwise import Options
from fuse_epilogue import schedules
from fuse_epilogue.planner import Plan
from fuse_epilogue.planner.machines.cpu import cpu as machine_of
from fuse_epilogue.planner.problems.cpu import find_conv
from fuse_epilogue.planner.problems.cpu.depthwise_problem import ELEMENTS, ROWS, STREAMED, TILES
from fuse_epilogue.planner.problems.request import Request
from fuse_epilogue.planner.problems.space import Points
from fuse_epilogue.schedules.cpu import DepthwiseConv1d, for_llvm
from fuse_epilogue.workloads import depthwise_conv1d, elementwise, matmul, row_reduce
from oracles import assert_same_bits, assert_same_special_values, compile_together, make
from test_schedules_apply import LARGER_TAIL
from test_schedules_cpu_sizes import BASE
from test_workloads import workload

#: Vectors of 128 bits: any x86 or Arm can run them.
LLVM = Target({"kind": "llvm", "num-cores": 2})
WIDE = Target({"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2})

# ---- What a plan computes ------------------------------------------------------------------------

CORPORA = (elements, reads, sums, tails, left_alone)
PROGRAMS = {name: pair for corpus in CORPORA for name, pair in corpus.PROGRAMS.items()}
#: Of each program that the planner knows, besides the plan.
POINTS = 5


def known(func: Any) -> Any:
    return find_conv(Request(func, machine_of(LLVM)))


def some_points(problem: Any) -> list[Any]:
    """The plan's neighbours: at least one point of each form and way to fuse, on several cores."""
    points, _ = problem.space.feasible()
    rng = np.random.default_rng(0)
    order = rng.permutation(points.size)
    chosen, seen = [], set()
    for index in order:
        point = points.at(int(index))
        kind = (point["fusion"], point["form"])
        if kind not in seen or len(chosen) < POINTS:
            seen.add(kind)
            chosen.append(point)
    return chosen


def applied(func: Any) -> Any:
    try:
        return schedules.apply(func, LLVM)["main"]
    except ValueError:
        return None


@pytest.fixture(scope="module")
def built() -> Any:
    """All programs: as they are, as `apply` schedules them, and at other points."""
    functions = {}
    for name, (func, _) in PROGRAMS.items():
        after = applied(func)
        if after is None:
            continue
        functions[name] = func
        functions[f"{name}/apply"] = after
        problem = known(func)
        for place, point in enumerate(some_points(problem) if problem is not None else ()):
            main = for_llvm(problem.apply(point).mod["main"])
            functions[f"{name}/{place}"] = main
    return compile_together(functions, opt_level=0)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_by_hand(built: Any, name: str) -> None:
    func, form = PROGRAMS[name]
    others = [each for each in built if each.startswith(f"{name}/")]
    # What a rule knows is scheduled.
    assert others or form is None
    for kind in ("exact", "nasty"):
        rng = np.random.default_rng(zlib.crc32(f"{name}/{kind}".encode()))
        shapes = [(str(p.ty.dtype), tuple(map(int, p.ty.shape))) for p in func.params]
        inputs = [make(kind, dtype, shape, rng) for dtype, shape in shapes]
        before = [tvm.runtime.tensor(a) for a in inputs] if others else []
        if others:
            built[name](*before)
        for other in others:
            after = [tvm.runtime.tensor(a) for a in inputs]
            built[other](*after)
            for param, one, two in zip(func.params, before, after, strict=True):
                same = assert_same_bits if kind == "exact" else assert_same_special_values
                same(two.numpy(), one.numpy(), f"{other}, {kind} data, {param.name}")


def test_the_planner_knows_most_of_them() -> None:
    planned = [name for name, (func, _) in PROGRAMS.items() if known(func) is not None]
    ruled = [name for name, (_, form) in PROGRAMS.items() if form is not None]
    assert set(planned) & set(ruled) and len(set(planned) & set(ruled)) > 0.6 * len(ruled)


# ---- Which way is taken --------------------------------------------------------------------------

PLANNED = {
    "conv": depthwise_conv1d(2, 5, 64, 3, activation="silu"),
    "product": matmul(16, 32, 8, activation="silu"),
    "rows": row_reduce(12, 64, bias=True, activation="relu"),
}
RULED = {
    "symbolic columns": depthwise_conv1d(1, 2, "w", 3, activation="silu"),
    "symbolic images": depthwise_conv1d("n", 2, 9, 3),
    "larger result": left_alone.symbolic_images_of_a_large_result,
    # A result that others read stays: only a part of what follows can be fused.
    "a result on the way": tvm.script.from_source(LARGER_TAIL, {"T": T}),
}


@pytest.mark.parametrize("name", PLANNED)
def test_a_plan_is_applied(name: str) -> None:
    func = PLANNED[name]
    plan = fuse_epilogue.plan(func, LLVM)
    main = schedules.apply(func, LLVM)["main"]
    assert bool(main.attrs["tirx.is_scheduled"])
    # In vectors, once: as `compile` does.
    expected = for_llvm(plan.apply(func).mod["main"])
    tvm.ir.assert_structural_equal(main.without_attr("tirx.is_scheduled"), expected)
    assert "sigmoid" not in main.script()
    said = schedules.explain(func, LLVM).splitlines()
    assert said[0].startswith(f"plan: {plan.kind}: ")
    assert plan.problem(func).space.describe(plan.point) in said[0]
    assert [line.strip() for line in said[1:]] == [
        line.strip() for line in plan.explain(func).splitlines()
    ]


@pytest.mark.parametrize("name", RULED)
def test_what_a_plan_does_not_know_goes_to_the_rules(name: str) -> None:
    func, rule = RULED[name], DepthwiseConv1d()
    by_rule = rule.apply(func, LLVM)
    assert by_rule is not None
    main = schedules.apply(func, LLVM)["main"].without_attr("tirx.is_scheduled")
    tvm.ir.assert_structural_equal(main, by_rule.mod["main"])
    first, *_, last = schedules.explain(func, LLVM).splitlines()
    assert first.startswith("no plan: the planner does not know this function; it knows ")
    assert last == f"DepthwiseConv1d: {rule.choose(func, LLVM)}"


def test_the_way_out_is_not_what_was_called() -> None:
    with pytest.raises(ValueError, match=r"by hand .*, or search with fuse_epilogue\.tune"):
        schedules.apply(elementwise(64, 64), LLVM)


@pytest.mark.parametrize(
    "error, says",
    [
        (
            ValueError("none of the 7 points is feasible"),
            "no plan: none of the 7 points is feasible",
        ),
        (s_tir.ScheduleError("no\nit is not"), "no plan: TVM refuses its loops: it is not"),
    ],
)
def test_where_planning_fails_the_rules_remain(monkeypatch: Any, error: Any, says: str) -> None:
    func = PLANNED["conv"]

    def fails(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(Plan, "apply", fails)
    by_rule = DepthwiseConv1d().apply(func, LLVM).mod["main"]
    main = schedules.apply(func, LLVM)["main"].without_attr("tirx.is_scheduled")
    tvm.ir.assert_structural_equal(main, by_rule)
    assert schedules.explain(func, LLVM).startswith(says)
    # Of what no rule knows, the message has the reason.
    with pytest.raises(ValueError, match=says.removeprefix("no plan: ")):
        schedules.apply(PLANNED["product"], LLVM)


def test_other_errors_are_not_hidden(monkeypatch: Any) -> None:
    def fails(*_: Any) -> Any:
        raise AssertionError("a mistake of ours")

    monkeypatch.setattr(schedules, "plan", fails)
    with pytest.raises(AssertionError, match="a mistake of ours"):
        schedules.apply(PLANNED["conv"], LLVM)


def test_what_nobody_knows_is_refused_with_what_is_known() -> None:
    says = "'llvm' knows this function .*exactly one reduction.*it knows product, rows, conv"
    with pytest.raises(ValueError, match=says):
        schedules.apply(elementwise(8, 8), LLVM)


@pytest.mark.parametrize("name", PLANNED)
def test_a_scheduled_function_is_refused(name: str) -> None:
    main = schedules.apply(PLANNED[name], LLVM)["main"]
    for call in (schedules.apply, schedules.explain):
        with pytest.raises(ValueError, match="func is already scheduled .'tirx.is_scheduled'"):
            call(main, LLVM)


# ---- What the rule chooses is a point ------------------------------------------------------------

RULE: dict[str, tuple[Any, dict[str, int]]] = {
    "rows": (workload(BASE), {"form": ROWS}),
    "rows of 16 bits": (
        relax.layer({**relax.BASE, "dtype": "float16", "w": 70}),
        {"form": ROWS},
    ),
    "streamed": (
        depthwise_conv1d(8, 512, 2048, 3, activation="relu"),
        {"form": ROWS, "stores": STREAMED},
    ),
    "many taps": (workload({**BASE, "w": 200, "f": 40}), {"form": ROWS}),
    "stride": (workload({**BASE, "w": 70, "stride": 2}), {"form": TILES, "vectors": 2}),
    "rolled": (
        workload({**BASE, "w": 300, "f": 150, "stride": 2}),
        {"form": TILES, "vectors": 2},
    ),
    "channels": (workload({**BASE, "c": 32, "layout": "NWC"}), {"form": TILES, "vectors": 2}),
    "one column": (workload({**BASE, "w": 1}), {"form": TILES, "vectors": 2}),
    "alone": (
        depthwise_conv1d(2, 3, 64, 3, bias=False),
        {"form": ROWS, "fusion": 0},
    ),
}


@pytest.mark.parametrize("name", RULE)
def test_the_rule_chooses_a_point_of_the_space(name: str) -> None:
    func, changed = RULE[name]
    problem = find_conv(Request(func, machine_of(WIDE)))
    modes = problem.epilogue.modes
    point = {"fusion": modes[-1], "vectors": 1, "stores": 0, "threads": 2} | changed
    point["lanes"] = max(problem.space.by_name["lanes"].choices)
    by_rule = DepthwiseConv1d().apply(func, WIDE).mod["main"]
    tvm.ir.assert_structural_equal(for_llvm(problem.apply(point).mod["main"]), by_rule)
    # By its own cost, the plan is at least as good.
    plan = fuse_epilogue.plan(func, WIDE)
    again = find_conv(Request(func, plan.machine))
    costs = plan.weights.cost(again.cost(Points.of([plan.point, point])))
    assert costs[0] <= costs[1]


def test_elements_are_what_the_rule_writes_one_by_one() -> None:
    func = workload({**BASE, "stride": 2})
    problem = find_conv(Request(func, machine_of(LLVM)))
    lanes = max(problem.space.by_name["lanes"].choices)
    point = {"fusion": problem.epilogue.modes[-1], "form": ELEMENTS, "vectors": 1}
    text = problem.apply(point | {"lanes": lanes, "stores": 0, "threads": 2}).mod.script()
    assert "T.vectorized" not in text and "T.unroll" not in text and "T.parallel(6)" in text
    serial = problem.apply(point | {"lanes": lanes, "stores": 0, "threads": 1}).mod.script()
    assert "T.parallel" not in serial


@pytest.mark.parametrize("form", [ROWS, TILES, ELEMENTS])
def test_one_core_has_no_parallel_loop(form: int) -> None:
    problem = find_conv(Request(workload({**BASE, "w": 70}), machine_of(LLVM)))
    points, _ = problem.space.feasible()
    for threads in (1, 2):
        some = points.take((points["form"] == form) & (points["threads"] == threads))
        for index in range(some.size):
            text = problem.apply(some.at(index)).mod.script()
            assert ("T.parallel" in text) == (threads == 2), some.at(index)


DOUBLE = """
@T.prim_func(s_tir=True)
def f(x: T.Buffer((3, 22), "float64"), w: T.Buffer((3, 3), "float64"),
      y: T.Buffer((3, 20), "float64")):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float64(0)
            y[vc, vi] = y[vc, vi] + x[vc, vi + vk] * w[vc, vk]
"""


def test_rows_have_at_least_two_lanes() -> None:
    """Of 64 bits two fit into a vector of 128: half of them is none."""
    problem = find_conv(Request(tvm.script.from_source(DOUBLE, {"T": T}), machine_of(LLVM)))
    points, _ = problem.space.feasible()
    rows = points.take(points["form"] == ROWS)
    assert rows.size and set(rows["lanes"].tolist()) == {2}
    assert set(problem.space.by_name["lanes"].choices) == {1, 2}


# ---- Streaming -----------------------------------------------------------------------------------


def streamed_points(func: Any, target: Any) -> tuple[int, dict[str, int]]:
    problem = find_conv(Request(func, machine_of(target)))
    points, pruned = problem.space.feasible()
    return int(np.count_nonzero(points["stores"] == STREAMED)), pruned


def test_only_a_result_that_no_cache_holds_is_streamed() -> None:
    last = machine_of(WIDE).caches[-1].bytes
    rows = last // 4 // 2048
    assert streamed_points(depthwise_conv1d(1, rows, 2048, 3), WIDE)[0]
    count, pruned = streamed_points(depthwise_conv1d(1, rows - 1, 2048, 3), WIDE)
    assert count == 0 and pruned["kept"]
    # Not in whole vectors.
    assert not streamed_points(depthwise_conv1d(1, 2 * rows, 2044, 3), WIDE)[0]


def test_only_x86_streams() -> None:
    large = depthwise_conv1d(8, 512, 2048, 3)
    arm = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "num-cores": 2}
    assert machine_of(WIDE).streams and not machine_of(arm).streams
    problem = find_conv(Request(large, machine_of(arm)))
    assert problem.space.by_name["stores"].choices == (0,)
    assert "T.call_extern" not in schedules.apply(large, arm)["main"].script()


def test_cores_are_those_that_run_loops_where_a_target_does_not_say() -> None:
    threads = int(tvm.get_global_func("runtime.NumThreads")())
    assert machine_of("llvm").cores == threads
    assert machine_of({"kind": "llvm", "num-cores": 1}).cores == 1


# ---- Data ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"layout": "NWC"}], ids=str)
def test_a_plan_as_json_gives_the_same_schedule(options: Options) -> None:
    func = depthwise_conv1d(2, 8, 70, 3, activation="relu", **options)
    plan = fuse_epilogue.plan(func, LLVM)
    again = Plan.from_json(plan.to_json())
    first, second = plan.apply(func), again.apply(Schedule(func))
    tvm.ir.assert_structural_equal(first.mod, second.mod)
