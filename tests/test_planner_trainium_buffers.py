"""Tiles in flight on Trainium: what the latency model makes of them, and what the planner does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fuse_epilogue import workloads
from fuse_epilogue.neuron.machine import TRN1, Machine
from fuse_epilogue.planner.problems.cost import Weights
from fuse_epilogue.planner.problems.request import Request
from fuse_epilogue.planner.problems.trainium import find_conv, find_product, find_rows
from fuse_epilogue.planner.problems.trainium.buffers import IN_FLIGHT
from fuse_epilogue.planner.search.search import search

KIB = 1024
#: name -> what finds the problem, and the function.
PROBLEMS: dict[str, tuple[Any, Any]] = {
    "conv": (find_conv, workloads.depthwise_conv1d(2, 128, 4096, 4, activation="relu")),
    "product": (find_product, workloads.matmul(256, 2048, 512, activation="relu")),
    "rows": (find_rows, workloads.row_reduce(256, 16384, bias=True, activation="relu")),
}


def problem(name: str, core: Machine = TRN1) -> Any:
    find, func = PROBLEMS[name]
    found = find(Request(func, core))
    assert found is not None
    return found


def sbuf(size: int) -> Machine:
    """Return a machine with so many bytes of SBUF in a partition."""
    return replace(TRN1, sbuf_bytes=size)


def tiling(point: dict[str, int]) -> tuple[int, ...]:
    return tuple(value for name, value in point.items() if name != "buffers")


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("size", [TRN1.sbuf_bytes, 48 * KIB])
def test_each_tiling_has_one_number_of_buffers(name: str, size: int) -> None:
    """As many as SBUF has room for: the number and the tiling say the same kernel only once."""
    found = problem(name, sbuf(size))
    points, _ = found.space.feasible()
    kinds: dict[tuple[int, ...], int] = {}
    for point in map(points.at, range(points.size)):
        assert tiling(point) not in kinds
        kinds[tiling(point)] = point["buffers"]
    # Of the same tiling, the constraint is broken by one more, unless there are enough.
    for point in map(points.at, range(points.size)):
        used = found.space.used(point)["SBUF"]
        more = found.space.used({**point, "buffers": point["buffers"] + 1})["SBUF"]
        assert used <= size and (point["buffers"] == IN_FLIGHT or more > size)


@pytest.mark.parametrize("name", PROBLEMS)
def test_more_room_lets_more_tiles_be_in_flight_and_is_no_loss(name: str) -> None:
    found = problem(name)
    points, _ = found.space.feasible()
    fused = points.take((points["fusion"] == 1) & (points["buffers"] == IN_FLIGHT))
    # Tiles that make a difference are large: of those of one kind, the largest.
    tiles = found.space.constraints[-2 if name == "conv" else -1]
    assert tiles.name in ("buffers", "SBUF")
    used = np.array([found.space.used(fused.at(i))["SBUF"] for i in range(fused.size)])
    point = fused.at(int(used.argmax()))
    kernel = found.kernel(point)
    least = kernel.check(TRN1).sbuf_bytes
    latencies = [
        kernel.predict(sbuf(size)).latency_ms for size in (least, 2 * least, 3 * least, 6 * least)
    ]
    assert latencies == sorted(latencies, reverse=True)
    assert latencies[0] > 1.02 * latencies[-1]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "size"), [("conv", 48 * KIB), ("product", 20 * KIB), ("rows", 12 * KIB)]
)
def test_where_sbuf_is_small_few_large_tiles_may_be_better_than_none(name: str, size: int) -> None:
    core = sbuf(size)
    found = problem(name, core)
    points, _ = found.space.feasible()
    assert {1, 2} & set(points["buffers"].tolist())
    result = search(found, Weights())
    assert found.is_possible(result.best.point)
    fused = points.take(points["fusion"] == 1)
    exact = np.array([found.exact(fused.at(i)) for i in range(fused.size)])
    assert result.best.cost <= 1.03 * exact.min()


def test_what_waits_for_a_buffer_is_expected_to_take_longer() -> None:
    """Of the same tiles, where SBUF has room for fewer of them."""
    expected = []
    for size in (TRN1.sbuf_bytes, 80 * KIB, 48 * KIB):
        found = problem("rows", sbuf(size))
        points, _ = found.space.feasible()
        one = points.take((points["columns"] == 8192) & (points["fusion"] == 1))
        assert one.size == 1
        expected.append((int(one["buffers"][0]), float(found.estimate(one)[0])))
    assert [count for count, _ in expected] == [3, 2, 1]
    seconds = [each for _, each in expected]
    assert seconds == sorted(seconds) and seconds[-1] > 1.2 * seconds[0]
