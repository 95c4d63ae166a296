"""Exact costs of a few promising points, where one takes long and what is cheap is a bound below.

Points are taken in the order of an estimate: those that a rule would try or the first few of all,
then those that differ from the best one in one variable, then others. One whose bound is above the
best cost cannot be better and is left out for good; where more remain than are costed, the best
bound among those says how much better the best of them could be.

Where one exact cost alone would take too long, all costs are the estimates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..problems.problem import LONGEST, ExactCosts
from ..problems.space import Points

#: Steps for the points of the way to fuse whose most promising point is best, and of each other
#: way. One point of each way is costed in any case. A step is about 50 us on one core of a server:
#: with two ways that is 0.45 s, and what else there is to do takes about 0.1 s.
FIRST, OTHERS = 6_500, 2_500
#: Steps for what a problem allows beyond its plain points.
BEYOND = 4_500
#: Where all points of a way whose exact cost may be computed are estimated to cost this many times
#: as much as its best one, none is computed.
NEAR = 1.1
#: Points of a way that are costed before those beside the best one, where no rule says which.
ALONG = 4


@dataclass(frozen=True)
class Costed:
    """Points, some of them with their exact costs.

    - `costs`: seconds; infinite for a point that is impossible or was left out.
    - `count`: how many were costed.
    - `gap`: seconds that a point that was left out may cost less than the best one, at most.
    - `complete`: whether there is none.
    - `estimated`: whether the costs are estimates, of all points, as exact ones would take too
      long. `gap` is then from the least estimate to the least bound.
    """

    costs: np.ndarray
    count: int
    gap: float
    complete: bool
    estimated: bool = False


def costed(problem: ExactCosts, points: Points, bounds: np.ndarray) -> Costed:
    """Return the exact costs of the most promising points.

    - `problem`: see :class:`.problems.problem.Problem`.
    - `points`: feasible ones.
    - `bounds`: seconds that each costs at least.
    """
    search = _Search(problem, points, bounds)
    ways = list(dict.fromkeys(search.ways[search.order].tolist()))
    if any(search.is_too_long(way) for way in ways):
        return _estimated(search, ways)
    search.within(search.plain)
    first = {way: search.look(way, 0) for way in ways}
    ways.sort(key=first.__getitem__)
    for place, way in enumerate(ways):
        search.look(way, OTHERS if place else FIRST)
    if not search.plain.all():
        # The plain points were searched as if there were no others: these can only add to them.
        search.within(~search.known)
        search.look(ways[0], search.spent[ways[0]] + BEYOND)
    left = ~search.known & (bounds < search.best)
    gap = search.best - float(bounds[left].min()) if left.any() else 0.0
    return Costed(search.costs, int(search.known.sum()), gap, not left.any())


def _estimated(search: _Search, ways: list[int]) -> Costed:
    """Return estimates as costs; the best point of each way is possible."""
    costs, bounds = np.maximum(search.estimates, search.bounds), search.bounds
    for way in ways:
        for index in search.order[search.ways[search.order] == way].tolist():
            if search.is_possible(index):
                break
            costs[index] = np.inf
    gap = float(costs.min() - bounds[np.isfinite(costs)].min()) if np.isfinite(costs).any() else 0.0
    return Costed(costs, search.points.size, gap, False, True)


class _Search:
    def __init__(self, problem: ExactCosts, points: Points, bounds: np.ndarray) -> None:
        self.problem, self.points, self.bounds = problem, points, bounds
        size = points.size
        estimates = problem.estimate(points)
        self.estimates = bounds if estimates is None else estimates
        self.order = np.argsort(self.estimates, kind="stable")
        self.ways = points.values.get("fusion", np.zeros(size, np.int64))
        self.steps = problem.steps(points)
        self.usual = problem.is_usual(points)
        self.plain = np.broadcast_to(problem.is_plain(points), (size,))
        self.costs, self.known = np.full(size, np.inf), np.zeros(size, bool)
        self.possible: set[int] = set()
        self.spent = dict.fromkeys(self.ways.tolist(), 0.0)
        self.within(np.ones(size, bool))

    def within(self, points: np.ndarray) -> None:
        """Let the next points be some of these: of them, those that do not take too long."""
        self.allowed = points & (self.steps <= LONGEST)

    def is_too_long(self, way: int) -> bool:
        """Whether the exact costs of the promising plain points of a way would take too long."""
        mine = self.plain & (self.ways == way)
        if not mine.any():
            return False
        short = mine & (self.steps <= LONGEST)
        least = float(self.estimates[mine].min())
        return not short.any() or float(self.estimates[short].min()) > NEAR * least

    @property
    def best(self) -> float:
        """The least of the costs."""
        return float(self.costs.min())

    def look(self, way: int, most: float) -> float:
        """Cost points of one way to fuse, in n steps, but at least one that is possible.

        The steps are those of the way from the beginning. Returns the least cost, infinite if none
        is possible.
        """
        mine = self.order[self.ways[self.order] == way]
        while True:
            index = self.following(mine)
            some = np.isfinite(self.costs[mine]).any()
            if index is not None and (not some or self.spent[way] + self.steps[index] <= most):
                self.known[index] = True
                self.costs[index] = self.problem.exact(self.points.at(index))
                # Where no kernel can be made, that is soon known.
                if np.isfinite(self.costs[index]):
                    self.spent[way] += float(self.steps[index])
                continue
            winner = int(mine[np.argmin(self.costs[mine])])
            if not some or self.is_possible(winner):
                return float(self.costs[winner])
            self.costs[winner] = np.inf

    def following(self, mine: np.ndarray) -> int | None:
        """Return the next point that may be better, or any while none of this way is known."""
        costs = self.costs[mine]
        best = self.best if np.isfinite(costs).any() else np.inf
        left = mine[~self.known[mine] & self.allowed[mine] & (self.bounds[mine] < best)]
        if self.usual is not None and self.usual[left].any():
            left = left[self.usual[left]]
        elif left.size and np.isfinite(costs).sum() >= ALONG:
            nearest = self.points.at(int(mine[np.argmin(costs)]))
            values = self.points.take(left)
            changed = sum(values[name] != value for name, value in nearest.items())
            left = np.concatenate([left[changed == 1], left[changed != 1]])
        return int(left[0]) if left.size else None

    def is_possible(self, index: int) -> bool:
        """Return whether a point with a known cost is possible."""
        if index not in self.possible and self.problem.is_possible(self.points.at(index)):
            self.possible.add(index)
        return index in self.possible
