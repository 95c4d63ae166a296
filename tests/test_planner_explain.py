"""What an explanation says is true: its numbers are those of the search, its sentences follow."""

from __future__ import annotations

import re
from dataclasses import replace
from math import log

import numpy as np
import pytest

import fuse_epilogue
from fuse_epilogue.planner import Plan, Profile
from fuse_epilogue.planner.explanation import sensitivity
from fuse_epilogue.planner.explanation.compare import differs, indifferent, most, terms, tips, us
from fuse_epilogue.planner.explanation.sensitivity import solve
from fuse_epilogue.planner.problems.cost import NAMES, Weights
from fuse_epilogue.planner.problems.cpu import find_product
from fuse_epilogue.planner.problems.request import Request
from fuse_epilogue.planner.problems.space import Points
from fuse_epilogue.planner.search.search import Candidate, search
from fuse_epilogue.workloads import depthwise_conv1d, matmul, row_reduce
from planner_problems import SMALL, machine

TARGET = {"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2}
GPU = {"kind": "cuda", "arch": "sm_90"}
LARGE = matmul(512, 512, 64, activation="relu")


def planned(func, apart=0.05):
    residuals = (("f: a", 0.0), ("f: b", log(1 + apart)))
    return fuse_epilogue.plan(func, TARGET, profile=Profile(machine(), Weights(), residuals))


def candidate(**parts):
    parts = {name: float(parts.get(name, 0)) for name in NAMES}
    return Candidate({}, sum(parts.values()), parts)


# ---- Sentences about two points ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (dict(traffic=4, latency=9), "50.0 % more latency"),
        (dict(traffic=3, latency=9), "25.0 % less traffic, but 50.0 % more latency: not taken"),
        (dict(traffic=5, latency=9), "25.0 % more traffic and 50.0 % more latency"),
        (dict(traffic=4, latency=6), ""),
        (dict(traffic=4.001, latency=6), ""),
        # What cores save is taken off: these two are as good as it is.
        (dict(traffic=4, latency=12, parallelism=-6), ""),
        (dict(traffic=4, latency=12, parallelism=-3), "50.0 % more latency after parallelism"),
        (
            dict(traffic=5, latency=12, parallelism=-7),
            "16.7 % less latency after parallelism, but 25.0 % more traffic: not taken",
        ),
    ],
)
def test_what_another_point_has_more_and_less_of(other, said):
    assert differs(candidate(traffic=4, latency=6), candidate(**other)) == said


def test_less_parallelism_is_a_loss():
    best = candidate(traffic=4, latency=6, parallelism=-4)
    assert differs(best, candidate(traffic=4, latency=6, parallelism=-2)) == (
        "100.0 % more latency after parallelism"
    )


def test_a_term_that_was_nothing_is_told_in_time():
    message = differs(candidate(latency=6e-6), candidate(latency=6e-6, spill=1e-6))
    assert message == "1.00 us more spill"


@pytest.mark.parametrize("seed", range(20))
def test_a_term_that_tips_the_choice_does_so(seed):
    rng = np.random.default_rng(seed)
    best, other = (
        candidate(**dict(zip(NAMES, rng.uniform(1, 2, 4), strict=True))) for _ in range(2)
    )
    best, other = sorted((best, other), key=lambda each: each.cost)
    message = tips(best, other)
    if not message:
        return
    term, factor = re.match(r"as good if (.*) weighed ([\d.]+) times", message).groups()
    one, two = terms(best, other)[term]
    gap = (other.cost - best.cost) + (float(factor) - 1) * (two - one)
    assert abs(gap) <= 0.0051 * abs(two - one)


def test_some_are_tipped_and_some_are_not():
    assert tips(candidate(traffic=4, latency=6), candidate(traffic=3, latency=9))
    assert not tips(candidate(traffic=4, latency=6), candidate(traffic=4, latency=6))
    assert not tips(candidate(traffic=4), candidate(traffic=40))
    # The terms are a bound, and not the cost.
    exact = replace(candidate(traffic=4, latency=6), cost=12.0)
    assert not tips(exact, candidate(traffic=3, latency=9))


def test_terms_add_up_to_the_cost():
    best = candidate(traffic=4, latency=6, parallelism=-4)
    other = candidate(traffic=5, latency=16, spill=1, parallelism=-8)
    found = terms(best, other)
    assert [sum(each) for each in zip(*found.values(), strict=True)] == [best.cost, other.cost]
    assert most(best, other) == "latency after parallelism"
    assert most(candidate(traffic=4), candidate(traffic=5, latency=0.5)) == "traffic"
    assert most(best, best) == ""


def test_what_is_too_close_to_call():
    a, b = candidate(latency=100), candidate(latency=104)
    assert indifferent(a, b, 0.05) and indifferent(b, a, 0.05)
    assert not indifferent(a, b, 0.03) and not indifferent(b, a, 0.03)


# ---- The resolution ------------------------------------------------------------------------------


def test_the_resolution_compares_kernels_of_one_function():
    apart = (("f: a", 0.0), ("f: b", 0.2), ("f: c", 0.1), ("g: a", 5.0))
    found = Profile(machine(), Weights(), apart).resolution
    assert found == pytest.approx(np.expm1(0.1))
    # One that is off by the same factor for all kernels still ranks them.
    shifted = tuple((name, value + 1) for name, value in apart)
    assert Profile(machine(), Weights(), shifted).resolution == pytest.approx(found)
    assert Profile(machine(), Weights()).resolution == 0.05


def test_indifference_follows_the_resolution():
    fine, coarse = planned(LARGE, 1e-9), planned(LARGE, 10.0)
    assert fine.point == coarse.point
    close = []
    for plan in (fine, coarse):
        others = [each for each in plan.found.by_fusion.values() if each.point != plan.point]
        close.append(sum(indifferent(each, plan.found.best, plan.resolution) for each in others))
        assert plan.explain(verbose=True).count("indifferent: too close to call") == close[-1]
    assert close[0] < close[1] == 2
    assert "apart are too close to call" in fine.explain(verbose=True)


# ---- Other sizes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "func",
    [
        row_reduce(64, 256, bias=True, activation="relu"),
        depthwise_conv1d(2, 3, 64, 3, activation="relu"),
        LARGE,
    ],
    ids=["rows", "conv", "product"],
)
def test_what_another_size_would_change_is_what_a_search_finds(func):
    plan = planned(func)
    for name, each in solve(plan.known, plan.weights, plan.found).items():
        sizes = [one.size for one in each]
        assert sizes == sorted(sizes) and plan.sizes[name] in sizes
        assert max(sizes) == 16 * plan.sizes[name]
        assert min(sizes) == max(1, plan.sizes[name] // 16)
        for one in each[:: len(each) - 1]:
            changed = plan.known.resized(name, one.size)
            right = search(changed, plan.weights)
            assert set(one.found.by_fusion) == set(right.by_fusion)
            for way, found in one.found.by_fusion.items():
                changed.space.check(found.point)
                cost = float(plan.weights.cost(changed.cost(Points.of([found.point])))[0])
                assert found.cost == pytest.approx(cost)
                assert found.cost == right.by_fusion[way].cost


@pytest.mark.parametrize(
    ("sizes", "target", "name", "size"),
    [((96, 1024, 384), TARGET, "k", 6144), ((240, 480, 120), GPU, "n", 240)],
    ids=["cpu", "gpu"],
)
def test_another_size_is_solved_in_full(sizes, target, name, size):
    """Of these a search in part misses the best by a tenth and more."""
    plan = fuse_epilogue.plan(matmul(*sizes, activation="silu"), target)
    (one,) = (o for o in solve(plan.known, plan.weights, plan.found)[name] if o.size == size)
    changed = plan.known.resized(name, size)
    points, _ = changed.space.feasible()
    assert one.found.exhaustive
    assert one.found.best.cost == plan.weights.cost(changed.cost(points)).min()


def test_of_a_large_space_fewer_sizes_are_solved(monkeypatch):
    plan = planned(LARGE)
    solved = solve(plan.known, plan.weights, plan.found)
    looked = sum(each.found.size for one in solved.values() for each in one) - 3 * plan.found.size
    assert plan.found.size < looked <= 600_000
    monkeypatch.setattr(sensitivity, "_POINTS", 0)
    solved = solve(plan.known, plan.weights, plan.found)
    sizes = {name: [one.size for one in each] for name, each in solved.items()}
    assert sizes == {name: [n // 2, n, 2 * n] for name, n in plan.sizes.items()}
    text = plan.explain(verbose=True)
    assert "each size solved separately; predicted" in text
    assert "fusion for k = 32, 64, 128:" in text


def test_every_cost_in_the_text_is_one_of_a_search():
    plan = planned(row_reduce(64, 256, bias=True, activation="relu"))
    text, checked = plan.explain(verbose=True), 0
    for name in plan.sizes:
        part = text[text.index(f"fusion for {name} =") :].splitlines()[1:]
        for line in part:
            match = re.match(r" +at (\d+): (.*)", line)
            if line.startswith(f"  {name}") or not line.startswith("    "):
                break
            if match is None:
                continue
            ways = search(plan.known.resized(name, int(match[1])), plan.weights).by_fusion
            least = min(each.cost for each in ways.values())
            for way in match[2].split(", "):
                label, cost, *more = way.split()
                assert cost == f"{1e6 * ways[label].cost:.2f}"
                if len(more) > 1:
                    assert more[1] == f"(+{100 * (ways[label].cost / least - 1):.2f}"
                checked += 1
    assert checked >= 12


@pytest.mark.parametrize("target", [TARGET, GPU], ids=["cpu", "gpu"])
def test_of_a_convolution_no_size_is_told_that_may_have_other_forms(target):
    """Its columns are no whole vectors: twice as many may be, and half as many are none either."""

    def made(images):
        func = depthwise_conv1d(images, 512, 2048, 3, padding="valid")
        return fuse_epilogue.plan(func, target)

    plan = made(4)
    assert plan.sizes["columns"] == 2046
    assert {*solve(plan.known, plan.weights, plan.found)} == {"rows"}
    text = plan.explain(verbose=True)
    assert "each size solved separately, with the forms that there are here; predicted" in text
    assert "columns, taps: not shown, as the forms depend on them: plan for that size" in text
    assert "  columns = " not in text and "  taps = " not in text
    for images in (2, 8):
        match = re.search(rf"^  rows = {512 * images}: .* \((.*)\)$", text, re.M)
        assert match[1] == us(made(images).cost)


def test_what_is_too_expensive_to_solve_anew_is_said_not_to_be_known():
    plan = fuse_epilogue.plan(depthwise_conv1d(1, 128, 64, 3, activation="relu"), "trn1")
    assert "what another size would change is not shown here" in plan.explain(verbose=True)


# ---- What binds ----------------------------------------------------------------------------------


def test_the_price_of_a_constraint_is_what_lifting_it_saves():
    func, free = matmul(512, 512, 512, activation="relu"), Weights(gamma=0.0)
    few = replace(machine(), registers=8)
    found = search(find_product(Request(func, few)), free)
    text = Plan("product", {}, "float32", few, free, found).explain(func=None, verbose=True)
    assert "binding constraints" not in text and "pass the function" in text
    plan = Plan("product", planned(func).sizes, "float32", few, free, found)
    match = re.search(
        r"registers: .* cost ([\d.]+) us \(-([\d.]+) %\)", plan.explain(func, verbose=True)
    )
    space = find_product(Request(func, few)).space
    limits = [replace(c, limit=10**9) if c.name == "registers" else c for c in space.constraints]
    points, _ = replace(space, constraints=tuple(limits)).feasible()
    least = free.cost(find_product(Request(func, few)).cost(points)).min()
    assert match[1] == f"{1e6 * least:.2f}"
    assert match[2] == f"{100 * (1 - least / found.best.cost):.2f}"


PRICED = pytest.mark.parametrize(
    ("func", "target"),
    [
        (row_reduce(100, 1000, op="max", bias=True), GPU),
        (row_reduce(1000, 1000, bias=True), GPU),
        (matmul(192, 192, 192, activation="relu", transpose_b=True), GPU),
        (matmul(100, 300, 70, activation="relu"), GPU),
        (depthwise_conv1d(8, 64, 1000, 3, activation="relu"), GPU),
        (row_reduce(64, 256, bias=True), TARGET),
        (row_reduce(100, 1000, op="max", bias=True), TARGET),
        (matmul(512, 384, 96, activation="relu"), TARGET),
        (matmul(100, 300, 70, activation="relu"), TARGET),
        (depthwise_conv1d(2, 3, 64, 3, activation="relu"), TARGET),
    ],
    ids=[
        *(f"gpu, {name}" for name in ("largest", "rows", "product", "odd product", "conv")),
        *("rows", "largest", "product", "odd product", "conv"),
    ],
)


def beyond(plan, constraint):
    """Return the points that break a constraint and no other, and what they cost."""
    points = plan.known.space.points()
    for each in plan.known.space.constraints:
        within = np.broadcast_to(each.used(points) <= each.limit, (points.size,))
        points = points.take(~within if each is constraint else within)
    with np.errstate(all="ignore"):
        return points, plan.weights.cost(plan.known.cost(points)) if points.size else np.ones(0)


@PRICED
def test_what_forbids_a_cheaper_point_is_named_with_its_price(func, target):
    plan = fuse_epilogue.plan(func, target)
    text = plan.explain(verbose=True)
    said = text[text.index("binding constraints:") :].split("\n\n")[0]
    priced = set()
    for constraint in plan.known.space.constraints:
        _, costs = beyond(plan, constraint)
        costs = costs[np.isfinite(costs) & (costs > 0)]
        if constraint.costed and costs.size and costs.min() < plan.cost:
            priced.add(constraint.name)
            more = f"{1e6 * costs.min():.2f} us (-{100 * (1 - costs.min() / plan.cost):.2f} %)"
            assert re.search(f"  {constraint.name}: .*{re.escape(more)}", said)
    assert set(re.findall(r"^  ([\w ]+): .* a point beyond it would cost", said, re.M)) == priced


@PRICED
def test_a_price_is_that_of_all_the_work(func, target):
    """Points beyond a limit compute all results: none is faster than the arithmetic of them."""
    plan = fuse_epilogue.plan(func, target)
    flops, _ = plan.machine.roofs(32)
    operations = np.prod([float(size) for size in plan.sizes.values()]) * (
        1 + (plan.kind != "rows")
    )
    for constraint in plan.known.space.constraints:
        points, costs = beyond(plan, constraint)
        if constraint.costed and points.size:
            costs = costs[np.isfinite(costs) & (costs > 0)]
            assert costs.min() >= operations / max(flops.values()), constraint.name


def test_tiles_that_are_cut_have_no_price():
    """The cost counts whole tiles: where they do not divide the rest, it leaves out results."""
    plan = fuse_epilogue.plan(matmul(192, 192, 192, activation="relu"), GPU)
    constraint = next(c for c in plan.known.space.constraints if c.name == "whole tiles")
    points, costs = beyond(plan, constraint)
    assert not constraint.costed and costs.min() < plan.cost
    rows = points["rows"] * points["threads_m"]
    columns = points["columns"] * points["threads_n"]
    at = int(costs.argmin())
    assert (192 // rows[at]) * rows[at] * (192 // columns[at]) * columns[at] < 192 * 192
    text = plan.explain(verbose=True)
    assert "whole tiles" not in text[text.index("binding constraints:") :].split("\n\n")[0]


def test_what_is_not_computed_of_a_constraint_is_said_to_be_open():
    plan = fuse_epilogue.plan(matmul(512, 512, 512, activation="relu"), "trn2")
    text = plan.explain(verbose=True)
    assert "every limit is far" not in text
    assert re.search("whether a point beyond one of these would cost less is open: .*apart", text)


def test_bounds_are_not_compared_where_the_cost_is_a_model_s():
    plan = fuse_epilogue.plan(matmul(512, 512, 512, activation="relu"), "trn2")
    text = plan.explain(verbose=True)
    other = next(each for each in plan.found.by_fusion.values() if each.point != plan.point)
    more = f"+{100 * (other.cost / plan.cost - 1):.2f} %"
    assert f"{more}, by the latency model" in text
    assert "most of it" not in text and "not taken" not in text
    bound = replace(candidate(traffic=4, latency=6), cost=12.0)
    assert most(candidate(traffic=4), bound) == differs(candidate(traffic=4), bound) == ""


# ---- Other words -------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [TARGET, GPU, "trn1"], ids=["cpu", "gpu", "trn1"])
def test_every_word_of_a_cost_and_a_point_is_explained(target):
    plan = fuse_epilogue.plan(SMALL["product"][1], target)
    text = plan.explain(verbose=True)
    words = text[text.index("what the words mean:") :]
    for name in (*plan.point, *re.findall(r"[+=-] (traffic|latency|spill|parallelism) ", text)):
        assert f"\n  {name}: " in words
    assert ("us more" in text) == ("\n  more: " in words) == (target == "trn1")


def test_a_way_to_fuse_that_there_is_not_has_its_reason():
    largest = planned(SMALL["rows, largest"][1]).explain(verbose=True)
    assert "absorbed is left out: the reduction cannot start from any part of it" in largest
    nothing = planned(SMALL["rows, nothing follows"][1]).explain(verbose=True)
    assert "nothing can be fused here: nothing follows the reduction" in nothing
    assert "not in rows: its stride is 2, not 1" in planned(SMALL["conv, stride"][1]).explain(
        verbose=True
    )


def test_how_a_space_was_searched_is_told():
    full = planned(SMALL["rows"][1])
    counts = f"{full.found.size} points, {sum(full.found.pruned.values())} of them ruled out"
    assert f"searched in full: {counts}" in full.explain(verbose=True)
    part = fuse_epilogue.plan(SMALL["rows"][1], TARGET, limit=1).explain(verbose=True)
    assert f"searched in part: {full.found.size} points; on the way " in part
    # Other sizes are searched in full all the same.
    assert "each size solved separately; predicted" in part


def test_nothing_saved_has_no_sign():
    plan = fuse_epilogue.plan(SMALL["rows"][1], {**TARGET, "num-cores": 1})
    assert not plan.found.best.parts["parallelism"]
    assert "-0.00" not in plan.table()


# ---- What a plan remembers -----------------------------------------------------------------------


def test_a_plan_remembers_what_it_was_made_for():
    func = SMALL["rows"][1]
    plan = planned(func)
    assert plan.explain(verbose=True) == plan.explain(func, verbose=True)
    again = Plan.from_json(plan.to_json())
    assert again == plan and again.known is None
    assert "pass the function" in again.explain(verbose=True)
    assert "pass the function" not in plan.explain(verbose=True)
    assert again.explain(func, verbose=True) == plan.explain(verbose=True)
    with pytest.raises(ValueError, match="plan again"):
        plan.explain(SMALL["product"][1], verbose=True)


def test_every_way_that_was_measured_is_in_the_table():
    plan = planned(SMALL["product"][1])
    found = plan.found
    assert len(found.by_fusion) > 2
    by_fusion = {
        name: replace(each, measured=1e-6 * (1 + place))
        for place, (name, each) in enumerate(found.by_fusion.items())
    }
    ranked = (next(iter(by_fusion.values())), *found.ranked)
    timed = replace(plan, found=replace(found, by_fusion=by_fusion, ranked=ranked))
    text = timed.explain(verbose=True)
    assert "(measured)" in text
    assert all(re.search(rf"^  {name} +\S+ us", text, re.M) for name in by_fusion), text


def test_a_table_names_what_was_chosen():
    plan = planned(SMALL["product"][1])
    assert f"| {plan.known.space.by_name['fusion'].label(plan.point['fusion'])} |" in plan.table()
    assert plan.table().startswith("| predicted, us |")
