"""Plans as data, their reasons, and what the planner refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import tvm

import fuse_epilogue
from fuse_epilogue import schedules, workloads
from fuse_epilogue.planner import Plan, Profile, choose
from fuse_epilogue.planner.machines.cpu import Cpu
from fuse_epilogue.planner.measurement.calibrate import Sample, fitted
from fuse_epilogue.planner.measurement.measure import arguments
from fuse_epilogue.planner.plan_problem import identity_of
from fuse_epilogue.planner.problems.cost import Weights
from fuse_epilogue.planner.problems.problem import ExactCosts
from fuse_epilogue.planner.problems.request import Request
from fuse_epilogue.planner.search.search import search
from fuse_epilogue.rewrites.epilogue import ABSORBED, LABELS, NONE, TAIL
from planner_problems import SMALL, as_it_is, machine, problem

TARGET = {"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2}
GPU = {"kind": "cuda", "arch": "sm_90"}


def planned(func, **given):
    given.setdefault("profile", Profile(machine(), Weights()))
    return fuse_epilogue.plan(func, TARGET, **given)


@pytest.mark.parametrize("name", SMALL)
def test_a_plan_is_the_cheapest_feasible_point(name):
    plan = planned(SMALL[name][1])
    found = problem(name)
    points, _ = found.space.feasible()
    costs = plan.weights.cost(found.cost(points))
    assert plan.cost == costs.min()
    assert plan.found.evaluated == points.size and plan.found.gap == 0
    assert [c.cost for c in plan.found.ranked] == sorted(c.cost for c in plan.found.ranked)
    assert plan.cost == pytest.approx(sum(plan.found.best.parts.values()))


@pytest.mark.parametrize("name", ["product", "rows", "conv"])
def test_a_plan_survives_json(name):
    func = SMALL[name][1]
    plan = planned(func)
    again = Plan.from_json(plan.to_json())
    assert again == plan and again.to_json() == plan.to_json()
    tvm.ir.assert_structural_equal(again.apply(func).mod, plan.apply(func).mod)
    assert again.explain(func, verbose=True) == plan.explain(func, verbose=True)


def test_planning_twice_is_the_same():
    func = SMALL["product"][1]
    assert planned(func).to_json() == planned(func).to_json()
    assert planned(func, limit=1).to_json() == planned(func, limit=1).to_json()


@pytest.mark.parametrize("name", ["product", "rows", "conv"])
def test_a_search_in_part_comes_close_and_says_so(name):
    found = problem(name)
    whole, part = (search(found, Weights(), limit) for limit in (10**9, 1))
    assert whole.exhaustive and not part.exhaustive
    assert part.evaluated < whole.evaluated or part.evaluated == whole.evaluated
    assert whole.best.cost <= part.best.cost <= 1.1 * whole.best.cost
    assert part.gap is None and whole.gap == 0
    text = replace(planned(SMALL[name][1]), found=part).explain(verbose=True)
    assert "by this cost, nothing is known of the others" in text


def test_bounds_save_exact_costs():
    found = problem("product")
    points, _ = found.space.feasible()
    asked = []

    class Exact(ExactCosts):
        kind, space, cost = found.kind, found.space, staticmethod(found.cost)

        @property
        def exact_costs(self):
            return self

        def exact(self, point):
            asked.append(point)
            return 1.25 * float(Weights().cost(found.cost(_one(point)))[0])

    result = search(Exact(), Weights())
    plain = search(found, Weights())
    assert result.best.point == plain.best.point
    assert result.best.cost == pytest.approx(1.25 * plain.best.cost)
    assert len(asked) == result.evaluated < points.size
    costs = Weights().cost(found.cost(points))
    assert result.evaluated <= np.count_nonzero(costs <= result.best.cost) + 1


def _one(point):
    from fuse_epilogue.planner.problems.space import Points

    return Points.of([point])


@pytest.mark.parametrize("name", ["product", "rows", "conv"])
def test_compiled_by_a_plan_it_computes_the_same(name):
    func = SMALL[name][1]
    arrays = arguments(func)
    right = as_it_is(func, arrays)
    arrays[-1].copyfrom(np.full(right.shape, 99, right.dtype))
    fuse_epilogue.compile(func, schedules.host(2))(*arrays)
    np.testing.assert_array_equal(arrays[-1].numpy(), right)


def test_an_explanation_compares_fused_with_unfused():
    func = workloads.matmul(512, 512, 8, activation="relu")
    plan = planned(func)
    text = plan.explain(func, verbose=True)
    assert plan.fused
    for part in ("fused against unfused", "none", "tail", "absorbed", "chosen", "searched in full"):
        assert part in text
    assert f"m = {1024}: " in text and "k = 4: " in text
    none = plan.found.by_fusion["none"]
    assert f"+{100 * (none.cost - plan.cost) / plan.cost:.2f} %, most of it " in text
    for term in ("traffic", "latency", "spill", "parallelism"):
        assert term in text


def test_an_explanation_names_what_binds():
    from fuse_epilogue.planner.problems.cpu import find_product

    func = workloads.matmul(512, 512, 512, activation="relu")
    few, free = replace(machine(), registers=8), Weights(gamma=0.0)
    found = search(find_product(Request(func, few)), free)
    plan = Plan("product", planned(func).sizes, "float32", few, free, found)
    text = plan.explain(func, verbose=True)
    assert "registers: 8 of 8 registers" in text
    more = search(find_product(Request(func, replace(few, registers=16))), free)
    assert found.best.cost > more.best.cost
    assert "a point beyond it would cost" in text
    assert "none: every limit is far" in planned(SMALL["product"][1]).explain(verbose=True)


def test_where_nothing_follows_nothing_is_compared():
    func = SMALL["product, nothing follows"][1]
    assert "nothing can be fused here" in planned(func).explain(func, verbose=True)


def test_a_table_has_a_row_for_each_candidate():
    plan = planned(SMALL["product"][1])
    lines = plan.table().splitlines()
    assert len(lines) == 2 + 1 + len(plan.found.by_fusion) + len(plan.found.ranked) - 1
    assert len({line.count("|") for line in lines}) == 1
    assert "fusion" in lines[0] and f"{1e6 * plan.cost:.2f}" in lines[2]


def test_fusing_matters_less_the_longer_the_sums():
    gains = []
    for k in (8, 64, 512):
        by = planned(workloads.matmul(512, 512, k, activation="relu")).found.by_fusion
        gains.append(by["none"].cost / min(by["tail"].cost, by["absorbed"].cost) - 1)
    assert gains[0] > gains[1] > gains[2] >= 0
    assert gains[0] > 0.2 and gains[2] < 0.2


def test_vectors_of_a_row_are_worth_more_than_an_absorbed_bias():
    plan = planned(workloads.row_reduce(64, 4096, bias=True, activation="relu"))
    assert plan.point["lanes"] > 1
    assert plan.point["fusion"] != 2


@pytest.mark.parametrize(
    ("func", "target", "error", "message"),
    [
        (workloads.matmul("m", 8, 8), TARGET, ValueError, "does not know this function; it knows"),
        (workloads.elementwise(8, 8), TARGET, ValueError, "product, rows, conv"),
        (SMALL["product"][1], "c", ValueError, "kind 'c', only 'llvm'.* 'cuda'.* trn1"),
        (None, TARGET, TypeError, "func must be a PrimFunc or a Schedule, not NoneType"),
        (SMALL["product"][1], 7, TypeError, "target must be a tvm.target.Target, .* not int"),
        (SMALL["product"][1], "trn9", ValueError, "target 'trn9' is neither .* trn2, trn3, nor"),
        (SMALL["product"][1], {"kind": "llvm", "mcpu": "a\nb"}, ValueError, r"'mcpu' .* 'a\\nb'"),
        (workloads.elementwise(8, 8), "trn1", ValueError, "conv, product, products, rows"),
        *(
            (SMALL["product"][1], {**TARGET, "num-cores": cores}, ValueError, message)
            for cores, message in ((0, "'num-cores' .* not 0"), (-1, "'num-cores' .* not -1"))
        ),
        *(
            (SMALL["product"][1], {**GPU, "model": model}, ValueError, message)
            for model, message in (
                ("V100", "'V100', .* 'sm_70', .* 'sm_90' .*: state 'sm_70', or leave"),
                ("nope", "a GPU of model 'nope', only .*V100.*H200"),
                ("h100", "a GPU of model 'h100', only .*H100"),
            )
        ),
    ],
)
def test_what_is_unknown_is_named(func, target, error, message):
    with pytest.raises(error, match=message):
        fuse_epilogue.plan(func, target)


@pytest.mark.parametrize(
    ("model", "arch", "name"),
    [("unknown", "sm_90", "H100"), ("", "sm_80", "A100"), ("H200", "sm_90a", "H200")],
)
def test_a_gpu_is_that_of_its_model_or_its_architecture(model, arch, name):
    target = {"kind": "cuda", "arch": arch, "model": model}
    assert fuse_epilogue.plan(SMALL["product"][1], target).machine.name == name


def test_a_plan_is_for_its_sizes():
    plan = planned(workloads.matmul(16, 32, 8))
    with pytest.raises(ValueError, match="'k': 8.* of float32, not for .*'k': 16"):
        plan.apply(workloads.matmul(16, 32, 16))
    with pytest.raises(ValueError, match="of kind 'product'"):
        plan.apply(workloads.row_reduce(16, 32))


@pytest.mark.full
@pytest.mark.parametrize(
    ("func", "others"),
    [
        (
            workloads.matmul(16, 16, 16, activation="relu"),
            [
                workloads.matmul(16, 16, 16, activation="silu"),
                workloads.matmul(16, 16, 16, bias=False),
                workloads.matmul(16, 16, 16, activation="relu", transpose_b=True),
            ],
        ),
        (
            workloads.depthwise_conv1d(2, 3, 64, 3),
            [
                workloads.depthwise_conv1d(2, 3, 64, 3, padding="causal"),
                workloads.depthwise_conv1d(2, 3, 64, 3, dilation=2),
                workloads.depthwise_conv1d(2, 3, 64, 3, activation="relu"),
            ],
        ),
    ],
    ids=["product", "conv"],
)
@pytest.mark.parametrize("target", [TARGET, {"kind": "cuda", "arch": "sm_90"}, "trn1"], ids=str)
def test_a_plan_is_for_one_function(func, others, target):
    plan = fuse_epilogue.plan(func, target)
    read = Plan.from_json(plan.to_json())
    for other in others:
        # Of the same kind, sizes and type: nothing but the function itself tells them apart.
        found = fuse_epilogue.plan(other, target)
        assert (found.kind, found.sizes, found.dtype) == (plan.kind, plan.sizes, plan.dtype)
        for use in (plan.apply, plan.explain, read.apply, read.explain):
            with pytest.raises(ValueError, match="for another function .*; plan again"):
                use(other)


def test_names_and_attributes_are_not_the_function():
    func = SMALL["product"][1]
    read = Plan.from_json(planned(func).to_json())
    assert read.apply(func.with_attr("global_symbol", "other").with_attr("note", 1)).trace
    assert read.apply(tvm.s_tir.Schedule(func)).trace
    renamed = func.script().replace("summed", "product")
    assert renamed != func.script()
    assert read.apply(tvm.script.from_source(renamed)).trace


@pytest.mark.full
def test_an_identity_is_the_same_in_every_process():
    func = workloads.matmul(16, 16, 16, activation="relu")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            """if True:
        from fuse_epilogue import workloads
        from fuse_epilogue.planner.plan_problem import identity_of
        print(identity_of(workloads.matmul(16, 16, 16, activation="relu")))""",
        ],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "7"},
    )
    assert done.stdout.strip() == identity_of(func) == planned(func).identity


def test_a_schedule_is_planned_and_explained_as_its_function():
    func = SMALL["product"][1]
    sch = tvm.s_tir.Schedule(func)
    plan = planned(sch)
    assert plan == planned(func)
    assert plan.explain(sch) == plan.explain(func)
    assert plan.picture(func=sch) == plan.picture(func=func)
    assert schedules.explain(sch, TARGET) == schedules.explain(func, TARGET)


@pytest.mark.parametrize("other", [None, 3, tvm.IRModule({"main": SMALL["product"][1]})], ids=repr)
def test_what_is_no_function_has_no_plan(other):
    plan = planned(SMALL["product"][1])
    with pytest.raises(
        TypeError, match=f"must be a PrimFunc or a Schedule, not {type(other).__name__}"
    ):
        plan.apply(other)


@pytest.mark.parametrize(
    ("target", "given", "error", "message"),
    [
        (TARGET, {"profile": "x.json"}, TypeError, "not str: .*Profile.from_json"),
        ("trn1", {"profile": "x.json"}, TypeError, "not str: .*Profile.from_json"),
        ("trn1", {"profile": Profile(machine(), Weights())}, ValueError, "out for Trainium"),
        (TARGET, {"profile": Profile(machine(), None)}, TypeError, "profile must have"),
        (TARGET, {"profile": Profile(None, Weights())}, TypeError, "profile must have"),
        (TARGET, {"finite": True}, ValueError, "finite is for Trainium"),
        (TARGET, {"round_shares": True}, ValueError, "round_shares is for Trainium"),
        ({"kind": "cuda", "arch": "sm_90"}, {"finite": True}, ValueError, "is for Trainium"),
        ({"kind": "cuda", "arch": "sm_90"}, {"measure": 8}, ValueError, "processor at hand"),
        ("trn1", {"measure": 8}, ValueError, "processor at hand"),
        ({"kind": "llvm", "mcpu": "no-such-processor"}, {"measure": 8}, ValueError, "this machine"),
    ],
)
def test_what_would_change_nothing_is_refused(target, given, error, message):
    for use in (fuse_epilogue.plan, fuse_epilogue.compile):
        with pytest.raises(error, match=message):
            use(SMALL["product"][1], target, **given)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"limit": "a"}, TypeError, "limit must be an integer, not str"),
        ({"limit": None}, TypeError, "limit must be an integer, not NoneType"),
        ({"limit": True}, TypeError, "limit must be an integer, not bool"),
        ({"limit": 2.5}, TypeError, "limit must be an integer, not float"),
        ({"limit": 0}, ValueError, "limit must be 1 or above, not 0"),
        ({"limit": -1}, ValueError, "limit must be 1 or above, not -1"),
        ({"measure": "a"}, TypeError, "measure must be an integer, not str"),
        ({"measure": True}, TypeError, "measure must be an integer, not bool"),
        ({"measure": -1}, ValueError, "measure must be 0 or above, not -1"),
        ({"finite": 1}, TypeError, "finite must be True or False: 1"),
        ({"finite": None}, TypeError, "finite must be True or False: None"),
        ({"round_shares": 1}, TypeError, "round_shares must be True or False: 1"),
    ],
)
@pytest.mark.parametrize("target", [TARGET, "trn1"], ids=["cpu", "trn1"])
def test_an_argument_that_is_none_is_named(target, given, error, message):
    for use in (fuse_epilogue.plan, fuse_epilogue.compile):
        with pytest.raises(error, match=message):
            use(SMALL["product"][1], target, **given)


def test_a_bar_that_is_no_function_is_named():
    with pytest.raises(TypeError, match="on_trial must be a function, not int"):
        planned(SMALL["conv"][1], measure=1, on_trial=3)


def test_numbers_of_numpy_are_integers():
    assert not planned(SMALL["conv"][1], limit=np.int64(1)).found.exhaustive


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        (dict(alpha=0, beta=0, gamma=0, delta=0), ValueError, "alpha, beta and gamma are all 0"),
        (dict(alpha=0, beta=0, gamma=0), ValueError, "alpha, beta and gamma are all 0"),
        (dict(gamma=-1.0), ValueError, "gamma must be a number of at least 0, not -1.0"),
        (dict(delta=float("nan")), ValueError, "delta must be a number of at least 0, not nan"),
        (dict(delta=10**400), ValueError, "delta must be a number of at least 0"),
        (dict(beta="1"), TypeError, "beta must be a number, not str"),
        (dict(beta=True), TypeError, "beta must be a number, not bool"),
        (dict(beta=None), TypeError, "beta must be a number, not NoneType"),
    ],
)
def test_weights_by_which_nothing_costs_anything_are_none(weights, error, message):
    with pytest.raises(error, match=message):
        Weights(**weights)


@pytest.mark.parametrize("weights", [Weights(beta=0.0), Weights(delta=2.5)])
def test_a_point_that_costs_nothing_is_no_plan(weights):
    with pytest.raises(ValueError, match="every kernel takes some time: calibrate again"):
        planned(workloads.row_reduce(64, 512), profile=Profile(machine(), weights))


def test_sizes_that_cost_nothing_are_not_told_of():
    """By these weights two cores save more than all that one has to do, but for few rows."""
    profile = Profile(machine(), Weights(delta=2.5))
    text = planned(workloads.row_reduce(32, 512), profile=profile).explain(verbose=True)
    assert "m = 16: " in text and "m = 64: " not in text


def test_compiling_takes_what_planning_takes(monkeypatch):
    given = {}

    def stop(func, target, **options):
        given.update(options)
        raise RuntimeError("planned")

    monkeypatch.setattr(choose, "plan", stop)
    with pytest.raises(RuntimeError, match="planned"):
        fuse_epilogue.compile(
            SMALL["conv"][1], "trn1", limit=7, finite=True, round_shares=True, measure=3
        )
    permitted = {"finite": True, "round_shares": True}
    assert given == {"limit": 7, **permitted, "measure": 3}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("target", ["llvm", "cuda"])
def test_the_trace_of_a_fused_plan_names_the_package(name, target):
    given = TARGET if target == "llvm" else {"kind": "cuda", "arch": "sm_90"}
    plan = fuse_epilogue.plan(SMALL[name][1], given)
    steps = str(plan.apply(SMALL[name][1]).trace)
    assert ("needs the package fuse_epilogue" in steps) == plan.fused


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 1}', '{"version": 99}'])
def test_other_json_is_no_plan(text):
    with pytest.raises(ValueError, match="not the JSON of a plan|not of version"):
        Plan.from_json(text)


def test_a_machine_survives_json():
    assert Cpu.from_json(machine().to_json()) == machine()
    with pytest.raises(ValueError, match="not a description of a processor"):
        Cpu.from_json("{}")


def test_a_fit_finds_the_weights_that_made_the_times():
    rng = np.random.default_rng(0)
    terms = rng.uniform(1e-6, 1e-3, (40, 4)) * [1, 1, 1, -0.2]
    truth = np.array([0.5, 0.8, 1.5, 0.3])
    samples = [Sample(f"{i}", row, float(row @ truth)) for i, row in enumerate(terms)]
    pytest.importorskip("scipy")
    profile = fitted(machine(), samples)
    weights = profile.weights
    found = [weights.alpha, weights.beta, weights.gamma, weights.delta]
    np.testing.assert_allclose(found, truth, rtol=1e-6)
    assert np.abs([value for _, value in profile.residuals]).max() < 1e-6
    assert Profile.from_json(profile.to_json()) == profile
    with pytest.raises(ValueError, match="at least four samples"):
        fitted(machine(), samples[:3])


def test_a_profile_brings_what_was_measured():
    measured = machine(clock_hz=1e9, call_s=1e-3)
    profile = Profile(measured, Weights(alpha=2.0))
    plan = planned(SMALL["product"][1], profile=profile)
    assert plan.machine.clock_hz == 1e9 and plan.weights.alpha == 2.0
    assert plan.cost > 1e-3


def test_trainium_is_planned_by_the_same_call():
    func = workloads.depthwise_conv1d(1, 128, 64, 3, activation="relu")
    plan = fuse_epilogue.plan(func, "trn1")
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert "trn1 (NeuronCore-v2)" in plan.explain(func, verbose=True)
    assert plan.found.evaluated <= plan.found.size
    kernel = fuse_epilogue.compile(func, "trn1")
    assert kernel.predict(plan.machine).latency_ms * 1e-3 == pytest.approx(plan.cost)


def test_the_cost_of_a_way_to_fuse():
    """Each way has its own cost; a machine with one way to fuse fuses in that one."""
    plan, trainium = planned(func := SMALL["product"][1]), fuse_epilogue.plan(func, "trn1")
    for fusion, label in enumerate(LABELS):
        assert plan.cost_of(fusion) == plan.found.by_fusion[label].cost
    assert trainium.cost_of(ABSORBED) == trainium.cost_of(TAIL) != trainium.cost_of(NONE)
    assert trainium.cost_of(TAIL) == trainium.found.by_fusion["fused"].cost
    alone = planned(SMALL["product, nothing follows"][1])
    assert alone.cost_of(NONE) == alone.cost and alone.cost_of(TAIL) is None
