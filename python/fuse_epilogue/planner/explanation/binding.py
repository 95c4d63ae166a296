"""The limits of a problem that a chosen point comes close to, and what breaking one would save."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..plan_record import PlanRecord
from ..problems.problem import Problem
from ..problems.space import Constraint, Points, Space
from ..search.search import Candidate

#: A constraint binds where a point uses more than this share of it.
_BINDS = 0.75
#: Points beyond a constraint whose costs are computed to say what it costs.
_PRICED = 100_000


@dataclass(frozen=True)
class Limit:
    """A constraint, what a plan uses of it, and the best point that it alone forbids.

    - `used`: amount that the plan uses, in the unit of the constraint.
    - `beyond`: the cheapest point that breaks this constraint alone. None if there is none, or if
      they are too many to cost.
    - `saves`: whether that point costs less than the plan. None if that is not known.
    """

    constraint: Constraint
    used: int
    beyond: Candidate | None
    saves: bool | None

    @property
    def binds(self) -> bool:
        """Whether the plan comes close to the limit, or would be better without it."""
        # A limit of 0 or 1 is a rule that is kept or broken: no point is closer to it than others.
        close = self.constraint.limit > 1 and self.used > _BINDS * self.constraint.limit
        return close or bool(self.saves)


def limits(plan: PlanRecord, problem: Problem) -> Iterator[Limit]:
    """Yield the constraints of a problem whose cost is known beyond them."""
    used, beyond = problem.space.used(plan.point), _beyond(problem.space)
    for constraint in problem.space.constraints:
        if constraint.costed:
            broken = None if beyond is None else beyond[constraint.name]
            least, saves = _least(problem, plan, broken)
            yield Limit(constraint, used[constraint.name], least, saves)


def cheapest(plan: PlanRecord) -> Candidate:
    """Return the candidate with the least predicted cost: the plan, where nothing was timed."""
    return min(plan.found.ranked, key=lambda each: each.cost)


def _beyond(space: Space) -> dict[str, Points] | None:
    """Return the points that break each constraint alone; None for too large a space."""
    if space.size > 10 * _PRICED:
        return None
    left, alone = space.points(), dict[str, Points]()
    for constraint in space.constraints:
        # Each point is in one of these at most: all take no longer than the space once.
        for name, points in alone.items():
            alone[name] = points.take(_within(constraint, points))
        within = _within(constraint, left)
        left, alone[constraint.name] = left.take(within), left.take(~within)
    return alone


def _within(constraint: Constraint, points: Points) -> np.ndarray:
    return np.broadcast_to(constraint.used(points) <= constraint.limit, (points.size,))


def _least(
    problem: Problem, plan: PlanRecord, broken: Points | None
) -> tuple[Candidate | None, bool | None]:
    """Return the cheapest of some points, and whether it costs less than the plan."""
    if broken is None or broken.size > _PRICED:
        return None, None
    if not broken.size:
        return None, False
    # Beyond a limit of the machine a cost may be none: the model was made for what fits.
    with np.errstate(all="ignore"):
        costs = plan.weights.cost(problem.cost(broken))
    costs = np.where(np.isfinite(costs) & (costs > 0), costs, np.inf)
    least = Candidate(broken.at(int(np.argmin(costs))), float(costs.min()), {})
    if least.cost >= cheapest(plan).cost:
        return least, False
    # Where a problem has an exact cost, this one is only a lower bound of it.
    return least, True if problem.exact_costs is None else None
