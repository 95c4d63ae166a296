"""Problems on Trainium: what their kernels compute, what limits them, what the search promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm

import fuse_epilogue
from depthwise import zeros
from fuse_epilogue import workloads
from fuse_epilogue.kernels.trainium.unfused import is_followed, unfused_parts
from fuse_epilogue.neuron.machine import TRN1, TRN2
from fuse_epilogue.planner import Plan
from fuse_epilogue.planner.problems.cost import Weights
from fuse_epilogue.planner.problems.request import Request
from fuse_epilogue.planner.problems.space import Points
from fuse_epilogue.planner.problems.trainium import find_conv, find_product, find_rows
from fuse_epilogue.planner.search.search import search
from fuse_epilogue.rewrites.prepare import prepare
from tiers import one_in

DTYPES: dict[str, Any] = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16}


def find_finite(request: Request) -> Any:
    return find_conv(replace(request, finite=True))


Reference = Callable[..., np.ndarray]


def convolved(x: np.ndarray, weight: np.ndarray, bias: Any = None) -> np.ndarray:
    taps, columns = weight.shape[-1], x.shape[2]
    padded = np.pad(x, ((0, 0), (0, 0), zeros("same", columns, taps, 1, 1)))
    terms = [
        padded[:, :, t : t + columns] * weight.reshape(-1, taps)[:, t, None] for t in range(taps)
    ]
    return sum(terms) + (0 if bias is None else bias.reshape(-1, 1))


def relu(reference: Reference) -> Reference:
    return lambda *arrays: np.maximum(reference(*arrays), 0)


#: name -> what finds the problem, the function, and what it computes.
SMALL: dict[str, tuple[Any, Any, Reference]] = {
    "conv": (
        find_conv,
        workloads.depthwise_conv1d(3, 64, 40, 3, activation="relu"),
        relu(convolved),
    ),
    "conv, finite": (
        find_finite,
        workloads.depthwise_conv1d(2, 128, 48, 3, activation="relu"),
        relu(convolved),
    ),
    "conv, bfloat16": (
        find_finite,
        workloads.depthwise_conv1d(2, 96, 30, 2, dtype="bfloat16", activation="relu"),
        relu(convolved),
    ),
    "conv, alone": (
        find_conv,
        workloads.depthwise_conv1d(2, 32, 20, 3, bias=False),
        convolved,
    ),
    "product": (
        find_product,
        workloads.matmul(256, 520, 256, activation="relu"),
        relu(lambda a, b, bias: a @ b + bias),
    ),
    "product, turned": (
        find_product,
        workloads.matmul(130, 70, 140, activation="relu", transpose_b=True, dtype="bfloat16"),
        relu(lambda a, b, bias: a @ b.T + bias),
    ),
    "product, bias of rows": (
        find_product,
        workloads.matmul(140, 40, 20, bias_axis="m"),
        lambda a, b, bias: a @ b + bias[:, None],
    ),
    "product, alone": (
        find_product,
        workloads.matmul(64, 64, 64, bias=False),
        lambda a, b: a @ b,
    ),
    "rows": (
        find_rows,
        workloads.row_reduce(140, 300, bias=True, activation="relu"),
        relu(lambda x, bias: x.sum(axis=1) + bias),
    ),
    "rows, largest": (
        find_rows,
        workloads.row_reduce(20, 70, op="max", scale=True, bias=True),
        lambda x, scale, bias: x.max(axis=1) * scale + bias,
    ),
    "rows, alone": (find_rows, workloads.row_reduce(20, 70), lambda x: x.sum(axis=1)),
}
FOLLOWED = [name for name in SMALL if "alone" not in name]
#: Of each kind one, for what takes longer.
KINDS = ("conv, finite", "product", "rows")


def problem(name: str, core: Any = TRN1) -> Any:
    find, func, _ = SMALL[name]
    found = find(Request(func, core))
    assert found is not None
    return found


def integers(func: Any) -> list[np.ndarray]:
    """Small integers for all parameters but the last."""
    rng = np.random.default_rng(1)
    return [
        rng.integers(-3, 4, [int(n) for n in param.ty.shape]).astype(DTYPES[str(param.ty.dtype)])
        for param in func.params[:-1]
    ]


def expected(name: str, arrays: list[np.ndarray]) -> np.ndarray:
    """What numpy says, in float64: every sum of these integers is exact."""
    _, func, reference = SMALL[name]
    out = func.params[-1]
    result = reference(*[array.astype(np.float64) for array in arrays])
    return result.reshape([int(n) for n in out.ty.shape]).astype(DTYPES[str(out.ty.dtype)])


def sampled(found: Any, count: int) -> Iterator[dict[str, int]]:
    """Some feasible points: both ways to fuse, and every value of every other variable."""
    points, _ = found.space.feasible()
    rng = np.random.default_rng(0)
    chosen = set(rng.choice(points.size, min(count, points.size), replace=False).tolist())
    for variable in found.space.variables:
        for value in variable.choices:
            (places,) = np.nonzero(points[variable.name] == value)
            if len(places) and not chosen & set(places.tolist()):
                chosen.add(int(rng.choice(places)))
    for index in sorted(chosen):
        yield points.at(index)


# ---- Kernels -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_every_kind_of_point_is_right(name: str) -> None:
    found = problem(name)
    arrays = integers(found.func)
    right = expected(name, arrays)
    assert np.any(right != 0)
    for point in sampled(found, 6):
        assert found.is_possible(point), point
        got = found.kernel(point)(*arrays)
        assert got.dtype == right.dtype
        np.testing.assert_array_equal(got, right, err_msg=found.space.describe(point))


@pytest.mark.parametrize("name", FOLLOWED)
def test_without_fusion_the_sums_go_through_memory(name: str) -> None:
    found = problem(name)
    points, _ = found.space.feasible()
    moved = {}
    for way in found.space.by_name["fusion"].choices:
        point = points.take(points["fusion"] == way).at(0)
        kernel = found.kernel(point)
        prediction = kernel.predict(found.core)
        moved[found.space.by_name["fusion"].label(way)] = prediction.hbm_written
    out = found.func.params[-1]
    elements = int(np.prod([int(n) for n in out.ty.shape]))
    assert moved["none"] == moved["fused"] + 4 * elements


def test_where_nothing_follows_there_is_one_way() -> None:
    for name in SMALL:
        alone = "alone" in name
        found = problem(name)
        assert is_followed(prepare(found.func)) is not alone
        assert (unfused_parts(found.func) is None) is alone
        assert found.space.by_name["fusion"].labels == (("none",) if alone else ("none", "fused"))


# ---- Limits --------------------------------------------------------------------------------------


#: Problem, constraint, and the size of the machine's memory that half of the points fit into.
LIMITS = [
    ("conv, finite", "SBUF", "sbuf_bytes"),
    ("conv, finite", "PSUM", "psum_bytes"),
    ("product", "SBUF", "sbuf_bytes"),
    ("product", "PSUM", "psum_bytes"),
    ("rows", "SBUF", "sbuf_bytes"),
    ("rows", "SBUF of what follows", "sbuf_bytes"),
]


@pytest.mark.parametrize(("name", "constraint", "memory"), LIMITS)
def test_what_does_not_fit_is_pruned(name: str, constraint: str, memory: str) -> None:
    """A machine with too little of it prunes; one with as much as the largest needs does not."""
    found = problem(name)
    everything, _ = found.space.feasible()
    limit = next(c for c in found.space.constraints if c.name == constraint)
    used = np.broadcast_to(limit.used(everything), (everything.size,))
    most, unit = int(used.max()), getattr(TRN1, memory) // limit.limit
    assert 0 < most <= limit.limit
    enough, less = (replace(TRN1, **{memory: size * unit}) for size in (most, most - 1))
    for core, pruned in ((enough, False), (less, True)):
        space = problem(name, core).space
        kept, counts = space.feasible()
        assert (counts[constraint] > 0) is pruned
        assert kept.size > 0
    if constraint != "SBUF of what follows":
        used = np.where(everything["rest"] == 0, used, 0)
    point = everything.at(int(used.argmax()))
    with pytest.raises(ValueError, match=f"of '{constraint}', which has {most - 1}"):
        problem(name, less).apply(point)


@pytest.mark.full
@pytest.mark.parametrize("name", SMALL)
def test_a_bound_is_below_the_latency(name: str) -> None:
    for core in (TRN1, TRN2):
        found = problem(name, core)
        points = Points.of(list(sampled(found, 4)))
        bounds = Weights().cost(found.cost(points))
        for index in range(points.size):
            assert 0 < bounds[index] <= found.exact(points.at(index)) * (1 + 1e-9)


# ---- Search --------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_a_search_comes_close_and_says_how_close(name: str) -> None:
    found = problem(name)
    points, _ = found.space.feasible()
    exact = np.array([found.exact(points.at(index)) for index in range(points.size)])
    result = search(found, Weights())
    assert exact.min() <= result.best.cost <= 1.03 * exact.min()
    assert result.evaluated < points.size and not result.exhaustive
    assert result.best.cost - result.gap <= exact.min()
    for label, candidate in result.by_fusion.items():
        variable = found.space.by_name["fusion"]
        mine = exact[points["fusion"] == variable.choices[variable.labels.index(label)]]
        assert mine.min() <= candidate.cost <= 1.1 * mine.min()


def test_a_plan_says_that_its_costs_are_estimates() -> None:
    """A size of which a single exact cost would take most of a minute."""
    plan = fuse_epilogue.plan(workloads.depthwise_conv1d(32, 4096, 8192, 4), "trn1")
    assert plan.found.estimated and not plan.found.exhaustive and plan.found.gap > 0
    assert '"estimated": true' in plan.to_json()
    small = fuse_epilogue.plan(workloads.depthwise_conv1d(1, 128, 64, 3), "trn1")
    said = "the costs are only estimates: the latency model would take too long"
    assert said in plan.explain(verbose=True) and said not in small.explain(verbose=True)
    small = workloads.depthwise_conv1d(1, 4096, 8192, 4)
    exact, known = fuse_epilogue.plan(small, "trn1"), find_conv(Request(small, TRN1))
    assert known is not None and not exact.found.estimated
    # The estimate of 32 images is about 32 times what is predicted of one.
    assert plan.cost == pytest.approx(32 * exact.cost, rel=0.1)


# ---- Plans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_a_plan_survives_json_and_is_the_same_again(name: str) -> None:
    func, finite = SMALL[name][1], "finite" in name
    plan = fuse_epilogue.plan(func, "trn2", finite=finite)
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert fuse_epilogue.plan(func, "trn2", finite=finite).to_json() == plan.to_json()
    tvm.ir.assert_structural_equal(again.apply(func).mod, plan.apply(func).mod)


@pytest.mark.parametrize("name", one_in(3, FOLLOWED))
def test_a_plan_compares_fused_with_unfused_and_its_kernel_is_right(name: str) -> None:
    func = SMALL[name][1]
    plan = fuse_epilogue.plan(func, "trn1")
    assert set(plan.found.by_fusion) == {"none", "fused"}
    assert plan.cost == min(each.cost for each in plan.found.by_fusion.values())
    text = plan.explain(func, verbose=True)
    assert "fused against unfused" in text and "none" in text
    kernel = fuse_epilogue.compile(func, "trn1")
    assert kernel.predict("trn1").latency_ms * 1e-3 == pytest.approx(plan.cost)
    arrays = integers(func)
    np.testing.assert_array_equal(kernel(*arrays), expected(name, arrays))
