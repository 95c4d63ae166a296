"""The cost: traffic of loop nests, and that terms grow with what they measure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fuse_epilogue.planner.machines.cpu import Level
from fuse_epilogue.planner.problems.cost import (
    Terms,
    Weights,
    overlapped,
    traffic_seconds,
    usable_cores,
)
from fuse_epilogue.planner.problems.nest import Access, Nest
from fuse_epilogue.planner.problems.request import Request
from fuse_epilogue.planner.problems.space import Points
from planner_problems import SMALL, machine, problem

LINE = 64


def cache(size: int, ways: int = 0) -> Level:
    return Level("L", size, LINE, ways, False, 1e9, 1e9)


def of_rows(*loops, row=0, write=False):
    """Return a nest that touches x[i, j] of float32."""
    return Nest(loops, (Access("x", ((("i", 1),), (("j", 1),)), 4, write, row),))


def test_what_fits_is_loaded_never_again():
    nest = of_rows(("again", 8), ("i", 16), ("j", 64))
    size = 16 * 64 * 4
    assert nest.traffic(cache(size)) == 0
    assert nest.traffic(cache(size - 1)) == 8 * size


def test_a_row_is_reused_where_only_a_row_fits():
    nest = of_rows(("i", 16), ("again", 8), ("j", 64))
    assert nest.traffic(cache(256)) == 16 * 256
    assert nest.traffic(cache(128)) == 16 * 8 * 256


def test_what_is_written_comes_and_goes():
    loops = (("again", 2), ("i", 16), ("j", 64))
    read, written = (of_rows(*loops, write=w).traffic(cache(512)) for w in (False, True))
    assert written == 2 * read


def test_a_column_takes_a_line_for_each_element():
    nest = of_rows(("j", 16), ("i", 64))
    assert nest.traffic(cache(1024)) == 16 * 64 * LINE
    assert nest.traffic(cache(64 * LINE)) == 0


def test_rows_a_large_power_of_two_apart_fall_into_one_set():
    loops = (("j", 16), ("again", 4), ("i", 64))
    size = 64 * LINE
    apart, close = (of_rows(*loops, row=row) for row in (size, LINE))
    assert close.traffic(cache(size, ways=8)) == 0
    assert apart.traffic(cache(size, ways=8)) == 16 * 4 * size


def test_lines_are_shared_by_short_rows():
    assert of_rows(("i", 64), ("j", 4), row=16).footprint(0, cache(1 << 20)) == 64 * 16


def two_levels(at_once=1.0, shared=True):
    """Return a machine of a cache of 1 KiB, a large level behind it, and no time for pages."""
    first = Level("L1", 1024, LINE, 0, False, 0.0, 0.0)
    behind = Level("L2", 0, LINE, 0, shared, 1e9, 1e8, at_once)
    made = machine()
    return replace(made, levels=(first, behind), core=replace(made.core, page=1e-9))


def test_a_level_serves_so_many_cores_at_once():
    nest = of_rows(("again", 2), ("i", 16), ("j", 64))
    one = traffic_seconds(nest, two_levels())
    assert one == pytest.approx(2 * 16 * 256 / 1e9)
    for at_once, shared, times in ((1.0, True, 2), (1.6, True, 1.25), (1.0, False, 1)):
        both = traffic_seconds(nest, two_levels(at_once, shared), cores=2)
        assert both == pytest.approx(times * one)


def test_lines_on_which_instructions_take_turns_are_waited_for():
    nest = of_rows(("again", 2), ("i", 16), ("j", 64))
    (access,) = nest.accesses
    slow = replace(nest, accesses=(replace(access, turns=True),))
    seconds = [traffic_seconds(each, two_levels()) for each in (nest, slow)]
    assert seconds[1] == pytest.approx(10 * seconds[0])


def test_stores_of_rows_that_share_few_sets_are_waited_for():
    machine = two_levels()
    machine = replace(machine, levels=(replace(machine.levels[0], ways=2), machine.levels[1]))

    def seconds(row, write=True):
        # A line of each of 64 rows, of as many pages as are not at hand; then the next ones.
        return traffic_seconds(of_rows(("c", 16), ("i", 64), row=row, write=write), machine)

    assert seconds(4096) > 4 * seconds(4096 + LINE)
    assert seconds(4096, write=False) == pytest.approx(seconds(4096 + LINE, write=False))


def test_traffic_counts_where_computing_takes_less():
    ones = np.ones(3)
    traffic = np.array([0.5, 1.0, 3.0])
    terms = overlapped(ones, traffic, 0 * ones, 0 * ones, ones)
    assert terms.traffic.tolist() == [0, 0, 2] and terms.parallelism.tolist() == [0, 0, 0]
    # Two cores compute in half of the time: less of the traffic goes on meanwhile.
    both = overlapped(ones, traffic, 0 * ones, 0 * ones, 2 * ones)
    assert both.traffic.tolist() == [0, 0.5, 2.5] and both.parallelism.tolist() == [0.5] * 3


def test_cores_are_idle_in_the_last_round():
    assert usable_cores(np.array([1, 2, 3, 4]), 2).tolist() == [1, 2, 1.5, 2]


def test_a_cost_is_the_weighted_sum():
    terms = Terms(*(np.array([float(x)]) for x in (1, 10, 100, 1000)))
    assert Weights(1, 2, 3, 0.1).cost(terms).tolist() == [1 + 20 + 300 - 100]
    parts = Weights(1, 2, 3, 0.1).parts(terms, 0)
    assert parts == {"traffic": 1, "latency": 20, "spill": 300, "parallelism": -100}


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_weights_are_no_less_than_zero(value):
    with pytest.raises(ValueError, match="gamma must be a number of at least 0"):
        Weights(gamma=value)


@pytest.mark.parametrize("name", SMALL)
def test_terms_are_seconds_for_every_point(name):
    found = problem(name)
    points, _ = found.space.feasible()
    terms = found.cost(points)
    assert terms.matrix().shape == (points.size, 4)
    for term in (terms.traffic, terms.latency, terms.spill, terms.parallelism):
        assert np.all(np.isfinite(term)) and np.all(term >= 0)
    assert np.all(terms.latency > 0) and np.all(Weights().cost(terms) > 0)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("product", "mnk"), ("rows", "mn"), ("conv", ("rows", "columns", "taps"))],
)
def test_twice_the_work_takes_longer(name, sizes):
    found = problem(name)
    points, _ = found.space.feasible()
    before = found.cost(points)
    for size in sizes:
        after = found.resized(size, 2 * found.sizes[size]).cost(points)
        # A tile that is longer than a row takes as long for a row twice as long.
        assert np.all(after.latency >= before.latency)
        assert np.mean(after.latency > before.latency) > 0.8
        assert np.all(after.traffic >= before.traffic)


@pytest.mark.parametrize("name", ["product", "rows", "conv"])
def test_a_slower_machine_takes_longer(name):
    fast = machine()
    slow = replace(fast, clock_hz=fast.clock_hz / 2)
    points, _ = problem(name).space.feasible()
    a, b = (problem(name, each).cost(points) for each in (fast, slow))
    assert np.all(b.latency > a.latency)
    levels = tuple(replace(level, bytes_per_s=level.bytes_per_s / 2) for level in fast.levels)
    small = problem(name, replace(fast, levels=levels)).cost(points)
    assert np.all(small.traffic >= a.traffic)


def test_a_lone_sum_waits_for_itself():
    """Of many sums, the others are added to while one is on its way."""
    fast = machine()
    slow = replace(fast, core=replace(fast.core, latency=4 * fast.core.latency, window=1))
    fast = replace(fast, core=replace(fast.core, window=1))
    points, _ = problem("product").space.feasible()
    a, b = (problem("product", each).cost(points).latency for each in (fast, slow))
    sums = points["rows"] * points["vectors"]
    # The vectors of a row of a tile that is not vectorized are those of its neighbours.
    whole = points["lanes"] > 1
    assert np.all(b[(sums == 1) & whole] > a[(sums == 1) & whole])
    assert np.allclose(b[sums >= 32], a[sums >= 32]) and np.any(sums >= 32)


def test_sums_beyond_the_registers_spill():
    plain, few = problem("product"), problem("product", machine(registers=4))
    points, _ = plain.space.feasible()
    more = points["rows"] * points["vectors"] > 4
    assert np.any(more)
    assert np.all(few.cost(points).spill[more] > plain.cost(points).spill[more])


def test_one_core_saves_nothing():
    found = problem("product")
    points, _ = found.space.feasible()
    one = points["threads"] == 1
    saved = found.cost(points).parallelism
    assert np.all(saved[one] == 0) and np.all(saved[~one] > 0)


def test_fusing_moves_no_more():
    from fuse_epilogue.planner.problems.cpu import find_product
    from fuse_epilogue.workloads import matmul

    found = find_product(Request(matmul(512, 512, 8, activation="relu"), machine()))
    points, _ = found.space.feasible()
    apart = points.take(points["fusion"] == 0)
    tail = Points({**apart.values, "fusion": np.full(apart.size, 1)})
    none, fused = found.cost(apart), found.cost(tail)
    assert np.all(fused.traffic < none.traffic)
