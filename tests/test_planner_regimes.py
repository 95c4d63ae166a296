"""The regimes of fusion come out of the search; nobody tells it of them.

Each statement has a twin, in which the opposite is chosen. The machine is the same everywhere, and
so is what its cost tells apart; nothing here was measured.
"""

from __future__ import annotations

import re
from math import log

import pytest

import fuse_epilogue
from fuse_epilogue.planner import Profile
from fuse_epilogue.planner.explanation.compare import indifferent
from fuse_epilogue.planner.problems.cost import Weights
from fuse_epilogue.planner.problems.cpu import find_product
from fuse_epilogue.planner.problems.request import Request
from fuse_epilogue.planner.search.search import search
from fuse_epilogue.workloads import depthwise_conv1d, matmul, row_reduce
from planner_problems import machine

TARGET = {"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2}
#: As if two kernels of one function had been predicted 5 % from their ratio.
PROFILE = Profile(machine(), Weights(), (("f: a", 0.0), ("f: b", log(1.05))))


def planned(func):
    return fuse_epilogue.plan(func, TARGET, profile=PROFILE)


def gain(func):
    """Return by which share more it costs unfused, at best, than fused at best."""
    ways = planned(func).found.by_fusion
    return ways["none"].cost / min(each.cost for name, each in ways.items() if name != "none") - 1


def is_indifferent(func):
    plan = planned(func)
    ways = plan.found.by_fusion
    fused = min((ways[n] for n in ways if n != "none"), key=lambda each: each.cost)
    return indifferent(ways["none"], fused, plan.resolution)


def test_the_resolution_is_that_of_the_profile():
    assert planned(matmul(16, 32, 8, activation="relu")).resolution == pytest.approx(0.05)


@pytest.mark.parametrize("activation", ["relu", "silu"])
@pytest.mark.parametrize("k", [2, 8, 32])
def test_it_fuses_where_sums_are_short(k, activation):
    func = matmul(512, 512, k, activation=activation)
    plan = planned(func)
    assert plan.fused and gain(func) > 0.25 and not is_indifferent(func)


@pytest.mark.parametrize("k", [2048, 4096])
def test_it_is_indifferent_where_sums_are_long(k):
    assert is_indifferent(matmul(512, 512, k, activation="relu"))


def test_the_longer_the_sums_the_less_it_gains():
    gains = [gain(matmul(512, 512, k, activation="relu")) for k in (8, 64, 512, 4096)]
    assert all(more > less for more, less in zip(gains, gains[1:], strict=False))


@pytest.mark.parametrize("size", [512, 1024])
def test_it_fuses_where_the_result_is_large(size):
    func = matmul(size, size, 16, activation="relu")
    assert planned(func).fused and gain(func) > 0.25


@pytest.mark.parametrize("size", [8, 16])
def test_it_is_indifferent_where_the_result_is_small(size):
    assert is_indifferent(matmul(size, size, 16, activation="relu"))


def test_it_fuses_a_convolution_whose_result_is_large():
    func = depthwise_conv1d(8, 512, 2048, 3, activation="relu")
    assert planned(func).fused and gain(func) > 1


def test_it_is_indifferent_to_a_convolution_whose_result_is_small():
    assert is_indifferent(depthwise_conv1d(1, 4, 32, 3, activation="relu"))


def test_it_fuses_short_rows():
    plan = planned(row_reduce(65536, 4, bias=True, activation="relu"))
    ways = plan.found.by_fusion
    assert plan.fused and ways["none"].cost > 1.2 * plan.cost
    # What the sums of a tile start from costs as much as adding it later.
    assert indifferent(ways["tail"], ways["absorbed"], plan.resolution)


def test_it_leaves_the_bias_of_long_rows_to_the_tail():
    # Vectors of partial results start from the neutral element, and are worth more.
    plan = planned(row_reduce(2, 4096, bias=True, activation="relu"))
    ways = plan.found.by_fusion
    assert plan.point["fusion"] != 2 and plan.point["lanes"] > 1
    assert ways["absorbed"].cost > 1.5 * ways["tail"].cost


def test_where_a_pass_of_its_own_costs_nothing_it_gains_nothing():
    """The reason is the pass over the sums: without its traffic and clocks, nothing is left."""
    func = matmul(512, 512, 8, activation="relu")
    free = search(find_product(Request(func, machine())), Weights(0, 0, 1, 0))
    assert len({each.cost for each in free.by_fusion.values()}) == 1
    costly = fuse_epilogue.plan(func, TARGET, profile=Profile(machine(), Weights(1, 1, 0, 0)))
    assert costly.fused


def test_the_explanation_says_where_the_regime_ends():
    text = planned(matmul(512, 512, 256, activation="relu")).explain(verbose=True)
    part = text[text.index("fusion for k") :]
    fused = part.index("tail or absorbed, too close to call")
    either = part.index("none or tail or absorbed, too close to call")
    assert re.match("fusion for k = 16, (.*, )?128, 256, 512, (.*, )?4096:", part)
    assert fused < either
    assert part.splitlines()[1].startswith("    16 to ")
