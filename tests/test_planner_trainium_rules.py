"""Plans for Trainium against the rules written by hand, by what the latency model predicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuse_epilogue
from fuse_epilogue import neuron, workloads
from fuse_epilogue.kernels.trainium.depthwise import tilings as tilings_of_conv
from fuse_epilogue.kernels.trainium.depthwise_blocks import find_channel_conv
from fuse_epilogue.kernels.trainium.product import tilings as tilings_of_product
from fuse_epilogue.kernels.trainium.read_product import find_product as product_of
from fuse_epilogue.kernels.trainium.row_reduction import WIDTHS
from fuse_epilogue.neuron.machine import MACHINES
from fuse_epilogue.planner.problems.problem import LONGEST
from fuse_epilogue.planner.problems.request import Request
from fuse_epilogue.planner.problems.space import Points
from fuse_epilogue.planner.problems.trainium import find_conv, find_product, find_rows
from fuse_epilogue.planner.problems.trainium.fusion_modes import OnTrainium
from fuse_epilogue.planner.search.exact import BEYOND, FIRST, OTHERS
from fuse_epilogue.schedules.neuron import DepthwiseConv1d, Elementwise, Matmul, RowReduce
from tiers import crossed

# With sanitizers this would take long, and hardly any of it is the library's own code.
pytestmark = pytest.mark.slow

DTYPES = ("float32", "bfloat16")


def assert_no_worse(func: Any, rule: Any, machine: str, **given: Any) -> None:
    plan = fuse_epilogue.plan(func, machine, **given)
    kernel = neuron.emit(plan.apply(func))
    kernel.check(machine)
    by_hand = neuron.emit(rule.apply(func, machine)).predict(machine).latency_ms
    latency = kernel.predict(machine).latency_ms
    assert plan.cost == pytest.approx(latency * 1e-3)
    # The model adds up microseconds in another order.
    assert latency <= by_hand * (1 + 1e-9), plan.explain(func, verbose=True)
    assert set(plan.found.by_fusion) == {"none", "fused"}


@pytest.mark.full
@crossed(finite=[False, True], dtype=DTYPES, machine=list(MACHINES))
def test_the_convolution_of_the_study(machine: str, dtype: str, finite: bool) -> None:
    """From the unscheduled conv1d and no hint, a plan no worse than the schedule by hand."""
    func = workloads.depthwise_conv1d(8, 512, 2048, 3, dtype=dtype)
    assert_no_worse(func, DepthwiseConv1d(finite), machine, finite=finite)


@crossed(finite=[False, True], machine=list(MACHINES))
def test_a_convolution_of_one_row(machine: str, finite: bool) -> None:
    """So small that what is expected of a point says little: the rule's are tried first."""
    func = workloads.depthwise_conv1d(1, 1, 300, 3, stride=3)
    assert_no_worse(func, DepthwiseConv1d(finite), machine, finite=finite)


@pytest.mark.full
@crossed(
    dtype=DTYPES,
    machine=list(MACHINES),
    shape=[(8, 512, 2048, 3), (1, 1, 300, 3), (2, 128, 256, 4)],
)
def test_finite_data_make_no_plan_worse(
    shape: tuple[int, int, int, int], machine: str, dtype: str
) -> None:
    func = workloads.depthwise_conv1d(*shape, dtype=dtype)
    plain, finite = (fuse_epilogue.plan(func, machine, finite=f) for f in (False, True))
    assert finite.cost <= plain.cost
    assert finite.found.evaluated >= plain.found.evaluated


@crossed(shape=[(256, 256, 256), (512, 1024, 512), (200, 700, 300)], machine=list(MACHINES))
def test_products(machine: str, shape: tuple[int, int, int]) -> None:
    for turned in (False, True):
        func = workloads.matmul(*shape, activation="relu", transpose_b=turned)
        assert_no_worse(func, Matmul(), machine)


@crossed(shape=[(512, 8192), (4096, 512), (128, 100)], machine=list(MACHINES))
def test_rows(machine: str, shape: tuple[int, int]) -> None:
    func = workloads.row_reduce(*shape, bias=True, activation="relu")
    assert_no_worse(func, RowReduce(), machine)


FUNCTIONS = {
    "conv": lambda: workloads.depthwise_conv1d(8, 512, 2048, 3),
    "conv of 13 taps": lambda: workloads.depthwise_conv1d(2, 192, 800, 13),
    "product": lambda: workloads.matmul(512, 512, 512),
    "rows": lambda: workloads.row_reduce(720, 5040, bias=True),
}


@pytest.mark.parametrize(
    ("function", "finite"), [*((name, False) for name in FUNCTIONS), ("conv", True)]
)
def test_planning_keeps_to_its_steps(
    function: str, finite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as are allowed, where each way has one point at least; a step is some time."""
    steps: dict[int, list[float]] = {0: [], 1: []}
    compute = OnTrainium.exact

    def exact(problem: Any, point: Any) -> float:
        counted = float(problem.steps(Points.of([point]))[0])
        steps[point["fusion"]].append(counted)
        # An instruction takes a step or more.
        assert len(problem.kernel(point).trace().steps) <= counted
        return compute(problem, point)

    monkeypatch.setattr(OnTrainium, "exact", exact)
    plan = fuse_epilogue.plan(FUNCTIONS[function](), "trn1", finite=finite)
    assert not plan.found.estimated
    assert max(map(max, steps.values())) <= LONGEST
    small, large = sorted(sum(each) for each in steps.values())
    assert small <= max(OTHERS, LONGEST)
    assert large <= max(FIRST, LONGEST) + BEYOND * finite


# ---- What a rule chooses from is in the space ----------------------------------------------------


@crossed(machine=list(MACHINES), shape=[(8, 512, 2048, 3), (90, 200, 33, 3), (1, 96, 4200, 2)])
def test_every_tiling_of_a_convolution_is_a_point(
    shape: tuple[int, int, int, int], machine: str
) -> None:
    core, func = MACHINES[machine], workloads.depthwise_conv1d(*shape, activation="relu")
    found = find_conv(Request(func, core, True))
    conv = find_channel_conv(func)
    assert found is not None and conv is not None
    points, _ = found.space.feasible()
    mine = {found.tiling(points.at(i)) for i in range(points.size)}
    assert set(tilings_of_conv(conv, core, True)) <= mine


@crossed(
    machine=list(MACHINES), shape=[(256, 256, 256), (513, 1100, 650), (64, 4096, 512), (1, 5, 3)]
)
def test_every_tiling_of_a_product_is_a_point(shape: tuple[int, int, int], machine: str) -> None:
    core = MACHINES[machine]
    for turned in (False, True):
        func = workloads.matmul(*shape, activation="relu", transpose_b=turned)
        found, product = find_product(Request(func, core)), product_of(func)
        assert found is not None and product is not None
        points, _ = found.space.feasible()
        usual = points.take(found.is_usual(points) & (points["fusion"] == 1))
        mine = {(p["tiles"], p["width"], p["right"]) for p in map(usual.at, range(usual.size))}
        tilings = tilings_of_product(product, core)
        assert all(t.left_stays for t in tilings)
        assert {(t.tiles, t.width, int(t.right_stays)) for t in tilings} <= mine


@pytest.mark.parametrize("columns", [100, 3000, 9000])
def test_every_width_of_rows_is_a_point(columns: int) -> None:
    found = find_rows(Request(workloads.row_reduce(200, columns, bias=True), MACHINES["trn1"]))
    assert found is not None
    points, _ = found.space.feasible()
    assert {min(width, columns) for width in WIDTHS} <= set(points["columns"].tolist())


# ---- Elements of more than one matrix ------------------------------------------------------------


@pytest.mark.parametrize("machine", MACHINES)
def test_elements_of_many_matrices(machine: str) -> None:
    """An epilogue alone, of a convolution: the rule for elements takes axes outside of a matrix."""
    from fuse_epilogue.kernels.trainium.unfused import unfused_parts

    func = workloads.depthwise_conv1d(3, 140, 70, 3, activation="relu")
    parts = unfused_parts(func)
    assert parts is not None
    kernel = neuron.emit(Elementwise().apply(parts.rest, machine))
    kernel.check(machine)
    rng = np.random.default_rng(0)
    bias, sums = (
        rng.integers(-9, 10, [int(n) for n in param.ty.shape]).astype("float32")
        for param in parts.rest.params[:-1]
    )
    np.testing.assert_array_equal(kernel(bias, sums), np.maximum(sums + bias.reshape(-1, 1), 0))
