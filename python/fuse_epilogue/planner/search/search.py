"""Finds the point that costs least, and says what was looked at on the way.

A small space is searched in full: infeasible points are pruned, the rest is costed at once. Where a
problem has an exact cost that is expensive, the vectorised cost is a lower bound of it, and only
the most promising points are costed: see :mod:`.exact`. A larger space is searched in part,
variable by variable from several starts. All of it is deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from ..json_schema import Count, Must, Name, Natural, NotNegative, Positive
from ..problems.cost import NAMES, Weights
from ..problems.problem import Problem
from ..problems.space import Point, Points, Space
from .exact import costed

#: Points of a space that is searched in full.
EXHAUSTIVE = 400_000
#: Number of points shown after the best one.
RUNNERS_UP = 4
#: Starts of a partial search, and rounds over the variables from each at most.
_STARTS, _ROUNDS = 12, 20
#: Among the values of points: which descent they belong to.
_DESCENT = " descent"
#: What JSON must have of the terms of a candidate, and of candidates.
_EACH = Must(f"of {', '.join(NAMES)}", lambda parts: {*parts} == {*NAMES})
_SOME = Must("at least one candidate", lambda ranked: len(ranked) > 0)


@dataclass(frozen=True)
class Candidate:
    """A point and what it costs.

    - `cost`: seconds.
    - `parts`: contribution of each term.
    - `measured`: seconds that it took, where it was timed: see :mod:`.trials`.
    """

    point: dict[Name, Natural]
    cost: Positive
    parts: Annotated[dict[str, float], _EACH]
    measured: Positive | None = None

    @property
    def seconds(self) -> float:
        """The time it took where it was timed, else its cost."""
        return self.cost if self.measured is None else self.measured


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Attributes
    ----------
    size : int
        Points of the space.
    pruned : dict[str, int]
        How many of those looked at each constraint pruned.
    evaluated : int
        Points whose cost was computed; where there is an exact cost, those of which that was, or
        all whose cost was estimated.
    exhaustive : bool
        Whether no point was left out.
    gap : float or None
        Seconds that the best may cost more than the best point there is, at most: 0 where no point
        was left out. Where points were left out, this part of the bound is not proved: see
        :mod:`.exact`. None where only a part of the space was looked at: nothing is known of the
        others.
    ranked : tuple[Candidate, ...]
        The best, and the runners-up: by what they took where points were timed, else by the cost.
    by_fusion : dict[str, Candidate]
        The best of each way to fuse, by its label; empty where fusion is not a variable.
    estimated : bool
        Whether all costs are estimates, where there is an exact cost that would take too long: on
        Trainium, formulas of the planner, not what the latency model predicts. That a kernel can be
        written is known of the best of each way, not that it keeps the rules of the machine.
    """

    size: Count
    pruned: dict[Name, Natural]
    evaluated: Natural
    exhaustive: bool
    gap: NotNegative | None
    ranked: Annotated[tuple[Candidate, ...], _SOME]
    by_fusion: dict[str, Candidate]
    estimated: bool = False

    @property
    def best(self) -> Candidate:
        """The best point."""
        return self.ranked[0]

    @property
    def runners_up(self) -> tuple[Candidate, ...]:
        """The next best, a few."""
        return self.ranked[1 : 1 + RUNNERS_UP]


def search(
    problem: Problem, weights: Weights, limit: int = EXHAUSTIVE, keep: int = 1 + RUNNERS_UP
) -> Found:
    """Return the best point of a problem.

    - `weights`: weights of the machine.
    - `limit`: points up to which a space is searched in full.
    - `keep`: candidates that are ranked.
    - Raises ValueError: no point is feasible, or no kernel of those that were tried is possible;
      the message names the constraints, or says why not of the first one.
    """
    space, exhaustive = problem.space, problem.space.size <= limit
    points, pruned = space.feasible() if exhaustive else _partial(problem, weights)
    if not points.size:
        counts = ", ".join(f"{name} {count}" for name, count in pruned.items() if count)
        raise ValueError(
            f"none of the {space.size} points is feasible for this {problem.kind} on this machine; "
            f"the constraints pruned: {counts}"
        )
    terms = problem.cost(points)
    costs = weights.cost(terms)
    evaluated, left, estimated = points.size, False, False
    gap: float | None = 0.0
    if problem.exact_costs is not None:
        exact = costed(problem.exact_costs, points, costs)
        costs, evaluated, gap, left = exact.costs, exact.count, exact.gap, not exact.complete
        estimated = exact.estimated
    order = np.argsort(costs, kind="stable")
    if np.isinf(costs[order[0]]):
        why = "" if problem.exact_costs is None else problem.exact_costs.why_impossible
        raise ValueError(
            f"none of the {evaluated} kernels that were tried is possible for this {problem.kind}: "
            f"{why and why + '; '}schedule it by hand, or plan for another target"
        )
    if not exhaustive:
        gap = None

    def candidate(index: int) -> Candidate:
        return Candidate(points.at(index), float(costs[index]), weights.parts(terms, index))

    found = order[np.isfinite(costs[order])][:keep]
    by_fusion = {}
    if "fusion" in space.by_name:
        fusion = space.by_name["fusion"]
        for choice in fusion.choices:
            among = order[points["fusion"][order] == choice]
            if len(among) and np.isfinite(costs[among[0]]):
                by_fusion[fusion.label(choice)] = candidate(int(among[0]))
    ranked = tuple(candidate(int(index)) for index in found)
    full = exhaustive and not left
    return Found(space.size, pruned, evaluated, full, gap, ranked, by_fusion, estimated)


def _partial(problem: Problem, weights: Weights) -> tuple[Points, dict[str, int]]:
    """Return the feasible points that descents along the variables came across, each once."""
    space = problem.space
    seen: dict[tuple[int, ...], Point] = {}
    pruned = dict.fromkeys((constraint.name for constraint in space.constraints), 0)
    here = list(_starts(space))
    costs = np.full(len(here), np.inf)
    for _ in range(_ROUNDS):
        before = costs.copy()
        for variable in space.variables:
            # All descents take this step at once.
            choices = len(variable.choices)
            lines = [{**each, variable.name: value} for each in here for value in variable.choices]
            points = Points.of(lines)
            points = Points({**points.values, _DESCENT: np.repeat(np.arange(len(here)), choices)})
            left, counts = space.feasible(points)
            for name, count in counts.items():
                pruned[name] += count
            if not left.size:
                continue
            mine = left.values.pop(_DESCENT)
            found = weights.cost(problem.cost(left))
            for index in range(left.size):
                point, descent = left.at(index), int(mine[index])
                seen.setdefault(tuple(point.values()), point)
                if found[index] < costs[descent]:
                    here[descent], costs[descent] = point, float(found[index])
        if np.array_equal(costs, before):
            break
    return Points.of(list(seen.values())), pruned


def _starts(space: Space) -> Iterator[Point]:
    """Return points spread evenly over the space: all first choices, then by a fixed sequence."""
    rng = np.random.default_rng(0)
    yield {variable.name: variable.choices[0] for variable in space.variables}
    for _ in range(_STARTS - 1):
        yield {v.name: int(v.choices[rng.integers(len(v.choices))]) for v in space.variables}
