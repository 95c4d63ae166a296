"""Every point of a space computes what the function computes, bit for bit on whole numbers."""

from __future__ import annotations

import numpy as np
import pytest

from fuse_epilogue import schedules, workloads
from fuse_epilogue.planner.measurement.measure import arguments, build
from fuse_epilogue.planner.problems.cpu.depthwise_problem import TILES
from fuse_epilogue.planner.problems.request import Request
from fuse_epilogue.rewrites.epilogue import ABSORBED, NONE, TAIL
from fuse_epilogue.tir.nest import child_blocks
from planner_problems import SMALL, as_it_is, assert_traced, here, of_each_kind, problem

POINTS = 14


def sampled(found, count):
    """Return points with every value of every variable that is feasible, and some more."""
    points, _ = found.space.feasible()
    rng = np.random.default_rng(0)
    chosen = list(rng.choice(points.size, min(count, points.size), replace=False))
    for variable in found.space.variables:
        for value in variable.choices:
            (places,) = np.nonzero(points[variable.name] == value)
            if len(places) and not any(points[variable.name][i] == value for i in chosen):
                chosen.append(int(rng.choice(places)))
    return [points.at(int(index)) for index in chosen]


@pytest.mark.parametrize("name", of_each_kind(SMALL))
def test_every_kind_of_point_is_right(name):
    found = problem(name, here())
    arrays = arguments(found.func)
    right = as_it_is(found.func, arrays)
    assert np.any(right != 0)
    for point in sampled(found, POINTS):
        arrays[-1].copyfrom(np.full(right.shape, 99, right.dtype))
        build(found, point, schedules.host(2))(*arrays)
        np.testing.assert_array_equal(arrays[-1].numpy(), right, err_msg=str(point))


def test_a_sigmoid_is_close():
    func = workloads.matmul(16, 32, 8, activation="silu")
    from fuse_epilogue.planner.problems.cpu import find_product

    found = find_product(Request(func, here()))
    arrays = arguments(func)
    right = as_it_is(func, arrays)
    for point in sampled(found, 6):
        arrays[-1].copyfrom(np.full(right.shape, 99, right.dtype))
        build(found, point, schedules.host(2))(*arrays)
        # exp and sigmoid in vectors: within 19 units in the last place.
        np.testing.assert_array_max_ulp(arrays[-1].numpy(), right, 19)


@pytest.mark.parametrize("name", ["product", "rows"])
def test_a_schedule_is_traced_from_the_function_as_it_is(name):
    assert_traced(problem(name))


def test_a_point_decides_where_the_epilogue_is():
    found = problem("product")
    points, _ = found.space.feasible()
    blocks = {}
    fusion = found.space.by_name["fusion"]
    for value, label in zip(fusion.choices, fusion.labels, strict=True):
        first = points.take(points["fusion"] == value).at(0)
        blocks[label] = found.apply(first).mod["main"].script()
    assert 'T.sblock("bias")' not in blocks["absorbed"]
    assert "= bias[" in blocks["absorbed"] and "= bias[" not in blocks["tail"]
    assert blocks["none"].count('T.sblock("relu")') == 1
    assert "summed = T.sblock_alloc_buffer" in blocks["none"]


def test_threads_are_parallel_loops():
    found = problem("product")
    points, _ = found.space.feasible()
    for threads in (1, 2):
        for index in (0, -1):
            some = points.take(points["threads"] == threads)
            text = found.apply(some.at(index)).mod.script()
            assert ("T.parallel" in text) == (threads == 2)


@pytest.mark.parametrize("name", ["product", "rows", "rows of bytes", "conv"])
def test_a_point_has_the_vectors_that_it_says(name):
    found = problem(name)
    points, _ = found.space.feasible()
    tiles = points.take(points["form"] == 0) if name == "conv" else points
    vectors = sorted(set(tiles["lanes"].tolist()) - {1})
    assert vectors
    for lanes in vectors:
        some = tiles.take(tiles["lanes"] == lanes)
        for index in range(0, some.size, max(1, some.size // 6)):
            text = found.apply(some.at(index)).mod.script()
            assert f"T.vectorized({lanes})" in text, some.at(index)


def test_sums_of_rows_are_all_in_vectors():
    found = problem("rows")
    points, _ = found.space.feasible()
    several = np.nonzero(points["lanes"] > 1)[0]
    assert several.size
    for index in several[::7]:
        point = points.at(int(index))
        text = found.apply(point).mod.script()
        update = text[: text.index('T.sblock("reduce_rf_update")')]
        assert update.rindex(f"T.vectorized({point['lanes']})") > update.rindex("T.unroll(")
        assert "T.where(" not in text, point


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        ("conv", (NONE, TAIL)),
        ("conv, bias only", (NONE, ABSORBED)),
        ("conv, nothing follows", (NONE,)),
    ],
)
def test_tiles_of_a_convolution_are_summed_in_buffers_of_their_own(name, ways):
    # In what others read, each tap would store and load under the conditions of a border.
    found = problem(name)
    points, _ = found.space.feasible()
    for way in ways:
        some = points.take((points["fusion"] == way) & (points["form"] == TILES))
        for index in range(0, some.size, max(1, some.size // 5)):
            func = found.apply(some.at(index)).mod["main"]
            blocks = child_blocks(func)
            for at, block in enumerate(blocks):
                if block.init is None:
                    continue
                [sums] = [region.source for region in block.writes]
                readers = [
                    each
                    for each in blocks
                    if each is not block and any(r.source.same_as(sums) for r in each.reads)
                ]
                assert readers == [blocks[at + 1]], some.at(index)
                assert not any(sums.same_as(param) for param in func.params)
