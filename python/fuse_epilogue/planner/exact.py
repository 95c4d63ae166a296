"""Exact costs of a few promising points, where one takes long and what is cheap is a bound below.

Points are taken in the order of an estimate: those that a rule would try or the first few of all,
then those that differ from the best one in one variable, then others. One whose bound is above the
best cost cannot be better and is left out for good; where more remain than are costed, the best
bound among those says how much better the best of them could be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .space import Points

#: Steps for the points of the way to fuse whose most promising point is best, and of each other
#: way; a step is about 40 us. One point of each way is costed however many it takes.
FIRST, OTHERS = 10_000, 3_000
#: Points of a way that are costed before those beside the best one, where no rule says which.
ALONG = 4


@dataclass(frozen=True)
class Costed:
    """Points, some of them with their exact costs.

    Attributes
    ----------
    costs : numpy.ndarray
        Seconds; infinite for a point that is impossible or was left out.
    count : int
        How many were costed.
    gap : float
        Seconds that a point that was left out may cost less than the best one, at most.
    complete : bool
        Whether there is none.
    """

    costs: np.ndarray
    count: int
    gap: float
    complete: bool


def costed(problem: Any, points: Points, bounds: np.ndarray) -> Costed:
    """Return the exact costs of the most promising points.

    Parameters
    ----------
    problem : Problem
        With ``exact``; see :class:`.problems.problem.Problem`.
    points : Points
        Feasible ones.
    bounds : numpy.ndarray
        Seconds that each costs at least.
    """
    search = _Search(problem, points, bounds)
    ways = list(dict.fromkeys(search.ways[search.order].tolist()))
    first = {way: search.look(way, 0) for way in ways}
    for place, way in enumerate(sorted(ways, key=first.__getitem__)):
        search.look(way, OTHERS if place else FIRST)
    left = ~search.known & (bounds < search.best)
    gap = search.best - float(bounds[left].min()) if left.any() else 0.0
    return Costed(search.costs, int(search.known.sum()), gap, not left.any())


class _Search:
    def __init__(self, problem: Any, points: Points, bounds: np.ndarray) -> None:
        self.problem, self.points, self.bounds = problem, points, bounds
        size = points.size
        estimates = problem.estimate(points) if hasattr(problem, "estimate") else bounds
        self.order = np.argsort(estimates, kind="stable")
        self.ways = points.values.get("fusion", np.zeros(size, np.int64))
        self.steps = problem.steps(points) if hasattr(problem, "steps") else np.full(size, 1_000)
        self.usual = problem.is_usual(points) if hasattr(problem, "is_usual") else None
        self.costs, self.known = np.full(size, np.inf), np.zeros(size, bool)
        self.possible: set[int] = set()

    @property
    def best(self) -> float:
        """The least of the costs."""
        return float(self.costs.min())

    def look(self, way: int, most: int) -> float:
        """Cost points of one way to fuse, in so many steps, but at least one that is possible.

        Returns the least cost, infinite if none is possible.
        """
        mine, steps = self.order[self.ways[self.order] == way], 0.0
        while True:
            index = self.following(mine)
            some = np.isfinite(self.costs[mine]).any()
            if index is not None and (not some or steps + self.steps[index] <= most):
                steps += self.steps[index]
                self.known[index] = True
                self.costs[index] = self.problem.exact(self.points.at(index))
                continue
            winner = int(mine[np.argmin(self.costs[mine])])
            if not some or self.is_possible(winner):
                return float(self.costs[winner])
            self.costs[winner] = np.inf

    def following(self, mine: np.ndarray) -> int | None:
        """Return the next point that may be better, or any while none of this way is known."""
        costs = self.costs[mine]
        best = self.best if np.isfinite(costs).any() else np.inf
        left = mine[~self.known[mine] & (self.bounds[mine] < best)]
        if self.usual is not None and self.usual[left].any():
            left = left[self.usual[left]]
        elif left.size and np.isfinite(costs).sum() >= ALONG:
            nearest = self.points.at(int(mine[np.argmin(costs)]))
            values = self.points.take(left)
            changed = sum(values[name] != value for name, value in nearest.items())
            left = np.concatenate([left[changed == 1], left[changed != 1]])
        return int(left[0]) if left.size else None

    def is_possible(self, index: int) -> bool:
        """Whether a point whose cost is known can be had."""
        check = getattr(self.problem, "is_possible", None)
        if index not in self.possible and (check is None or check(self.points.at(index))):
            self.possible.add(index)
        return index in self.possible
