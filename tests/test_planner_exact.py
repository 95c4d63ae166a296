"""The search among points whose exact costs take long: what is costed, left out or estimated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuse_epilogue.planner.problems.problem import LONGEST, ExactCosts
from fuse_epilogue.planner.problems.space import Points
from fuse_epilogue.planner.search.exact import costed


class Stub(ExactCosts):
    """A problem whose costs are given."""

    def __init__(self, costs: list[float], fusion: list[int], impossible: tuple[int, ...] = ()):
        self.costs, self.impossible = costs, impossible
        self.points = Points.of([{"fusion": f, "x": i} for i, f in enumerate(fusion)])
        self.asked: list[int] = []

    def exact(self, point: dict[str, int]) -> float:
        self.asked.append(point["x"])
        return self.costs[point["x"]]

    def is_possible(self, point: dict[str, int]) -> bool:
        return point["x"] not in self.impossible


def test_a_bound_above_the_best_leaves_a_point_out() -> None:
    stub = Stub([3.0, 2.0, 9.0, 9.0], [0, 0, 0, 0])
    found = costed(stub, stub.points, np.array([1.0, 1.5, 2.5, 1.9]))
    assert stub.asked == [0, 1, 3]
    assert found.complete and found.gap == 0 and found.costs.argmin() == 1


def test_what_was_left_out_is_the_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuse_epilogue.planner.search.exact.FIRST", 3_000)
    stub = Stub([3.0, 2.0, 1.9, 1.0], [0, 0, 0, 0])
    found = costed(stub, stub.points, np.array([0.5, 0.6, 0.7, 0.8]))
    assert not found.complete and found.count == 3
    assert found.gap == pytest.approx(1.9 - 0.8)


def test_each_way_to_fuse_is_costed() -> None:
    stub = Stub([1.0, 8.0, 9.0], [1, 0, 0])
    found = costed(stub, stub.points, np.array([0.5, 5.0, 6.0]))
    assert stub.asked == [0, 1] and found.complete
    assert np.isinf(found.costs[2])


def test_the_best_has_to_be_possible() -> None:
    stub = Stub([1.0, 2.0, 3.0], [0, 0, 0], impossible=(0,))
    found = costed(stub, stub.points, np.array([0.5, 0.6, 2.5]))
    assert found.costs.tolist() == [np.inf, 2.0, np.inf]
    none = Stub([1.0, np.inf], [0, 0], impossible=(0,))
    assert np.isinf(costed(none, none.points, np.zeros(2)).costs).all()


class Long(Stub):
    """A problem whose points take so many steps, with other estimates than bounds."""

    def __init__(self, costs: list[float], fusion: list[int], steps: list[int], **given: Any):
        super().__init__(costs, fusion, **given)
        self.all_steps, self.plain = np.array(steps), np.ones(len(costs), bool)

    def steps(self, points: Points) -> np.ndarray:
        return self.all_steps

    def estimate(self, points: Points) -> np.ndarray:
        return np.array(self.costs) + 1

    def is_plain(self, points: Points) -> np.ndarray:
        return self.plain


def test_where_exact_costs_take_too_long_they_are_estimated() -> None:
    """None of one way can be costed: then nothing is, and what is cannot be written is no point."""
    too_long = LONGEST + 1
    stub = Long([5.0, 3.0, 4.0], [0, 1, 1], [10, too_long, too_long], impossible=(1,))
    found = costed(stub, stub.points, np.array([1.0, 1.5, 2.0]))
    assert stub.asked == []
    assert found.estimated and not found.complete and found.count == 3
    assert found.costs.tolist() == [6.0, np.inf, 5.0]
    assert found.gap == 4.0
    # A short point that is expected to be worse by far does not stand for the others.
    stub = Long([5.0, 3.0, 9.0], [0, 1, 1], [10, too_long, 10])
    assert costed(stub, stub.points, np.ones(3)).estimated
    stub = Long([5.0, 3.0, 3.1], [0, 1, 1], [10, too_long, 10])
    found = costed(stub, stub.points, np.ones(3))
    assert not found.estimated and stub.asked == [2, 0]
    assert found.costs.argmin() == 2 and found.gap == pytest.approx(2.1)


def test_more_points_do_not_displace_the_plain_ones() -> None:
    """However promising the others are, what is costed without them is costed with them, too."""
    costs, steps = [4.0, 3.0, 9.0, 1.0, 8.0], [LONGEST // 2] * 5
    stub = Long(costs, [0] * 5, steps)
    stub.plain = np.array([True, True, True, False, False])
    bounds = np.zeros(5)
    alone = Long(costs[:3], [0] * 3, steps[:3])
    costed(alone, alone.points, bounds[:3])
    found = costed(stub, stub.points, bounds)
    assert stub.asked == [*alone.asked, 3]
    assert found.costs.argmin() == 3
