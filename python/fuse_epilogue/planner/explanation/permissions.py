"""Gains of a plan by options that its caller did not give, such as ``finite``."""

from __future__ import annotations

from collections.abc import Iterator

from ..plan_record import PlanRecord
from ..problems.problem import Problem
from ..search.search import search
from .binding import cheapest
from .compare import us


def lines(plan: PlanRecord, problem: Problem | None) -> Iterator[str]:
    """Yield a line for each option by which the plan would cost less; each is planned.

    - `problem`: the problem of the plan; without it nothing is known.
    """
    costs = None if problem is None else problem.exact_costs
    if costs is None:
        return
    for option, other in costs.permitted().items():
        found = search(other, plan.weights)
        # An estimate is not compared with a prediction.
        if found.estimated != plan.found.estimated:
            continue
        saved = 1 - found.best.cost / cheapest(plan).cost
        if saved > plan.resolution:
            yield f"with {option}=True {us(found.best.cost)} predicted, {100 * saved:.0f} % less"
