"""Why a plan is as it is: its cost and that of others, what binds, what would change it.

Every sentence is computed from what the search found. All times are predictions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import crossover
from .compare import differs, indifferent, label, most, point, tips, us
from .cost import NAMES, Weights
from .problems.problem import Problem
from .search import Candidate

if TYPE_CHECKING:
    from .plan import Plan

#: A constraint binds where a point uses more than this share of it.
_BINDS = 0.75
#: Points beyond a constraint whose costs are computed to say what it costs.
_PRICED = 100_000


def text(plan: Plan, problem: Problem | None) -> str:
    """Return the explanation of a plan.

    Parameters
    ----------
    plan : Plan
    problem : Problem or None
        What it is a plan for. None: what depends on the function is left out.
    """
    found, best = plan.found, plan.found.best
    sizes = ", ".join(f"{name} = {size}" for name, size in plan.sizes.items())
    lines = [
        f"{plan.kind} of {plan.dtype}, {sizes}, on {plan.machine}",
        "all times are predicted; costs less than "
        f"{100 * plan.resolution:.3g} % apart are too close to call",
        "",
        f"chosen: {point(best, problem)}",
        f"  predicted {us(best.cost)} = {_parts(best)}",
        "",
        *_fusion(plan),
        "",
        _searched(plan),
        *_pruning(plan, problem),
    ]
    if len(found.ranked) > 1:
        lines += ["", "runners-up (predicted):"]
        lines += [_runner_up(each, best, problem) for each in found.ranked[1:]]
    if problem is None:
        lines += ["", "pass the function to read what binds and what another size would change"]
    else:
        lines += ["", *_binding(problem, plan.weights, best), ""]
        lines += crossover.lines(problem, plan.weights, found, plan.resolution)
    return "\n".join(lines)


def table(plan: Plan, problem: Problem | None = None) -> str:
    """Return the candidates with each term of their cost in microseconds, in Markdown."""
    rows = [("chosen", plan.found.best)]
    rows += [(f"{name}, at best", each) for name, each in plan.found.by_fusion.items()]
    rows += [(f"runner-up {i}", c) for i, c in enumerate(plan.found.ranked[1:], 1)]
    head = ["predicted, us", "cost", *NAMES, *plan.point]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, each in rows:
        numbers = [each.cost, *(each.parts[term] for term in NAMES)]
        values = [label(problem, key, value) for key, value in each.point.items()]
        lines.append(
            "| " + " | ".join([name, *(f"{1e6 * v:.2f}" for v in numbers), *values]) + " |"
        )
    return "\n".join(lines)


def _parts(candidate: Candidate, every: bool = True) -> str:
    terms = " ".join(
        f"{'-' if name == 'parallelism' else '+'} {name} {us(abs(value))}"
        for name, value in candidate.parts.items()
        if value or every
    ).removeprefix("+ ")
    rest = candidate.cost - sum(candidate.parts.values())
    # Where the terms are a bound, the cost is that of the model of the machine.
    if abs(rest) < 1e-9 * candidate.cost:
        return terms
    return f"{terms} + {us(rest)} beyond that bound"


# ---- Fused against unfused -----------------------------------------------------------------------


def _fusion(plan: Plan) -> list[str]:
    """Return fused against unfused, whichever was chosen."""
    ways, best = plan.found.by_fusion, plan.found.best
    if not ways:
        return ["fused against unfused: this kind of problem is always written fused"]
    if set(ways) <= {"none"}:
        return ["fused against unfused: nothing can be fused here"]
    lines = ["fused against unfused, each at its best (predicted):"]
    for name, each in sorted(ways.items(), key=lambda item: item[1].cost):
        cost = f"  {name:9} {us(each.cost):>12}"
        if each.point == plan.point:
            lines.append(f"{cost}  chosen")
            continue
        lines.append(f"{cost}  {_more(best, each)}")
        if indifferent(each, best, plan.resolution):
            lines.append(f"{'':27}indifferent: too close to call")
        lines += [f"{'':27}{line}" for line in (differs(best, each), tips(best, each)) if line]
    return lines


def _more(best: Candidate, other: Candidate) -> str:
    more = f"+{100 * (other.cost - best.cost) / best.cost:.2f} %"
    where = most(best, other)
    return f"{more}, most of it {where}" if where else more


# ---- The search ----------------------------------------------------------------------------------


def _searched(plan: Plan) -> str:
    found = plan.found
    how = "in full" if found.exhaustive else "in part"
    pruned = ", ".join(f"{name} {count}" for name, count in found.pruned.items() if count)
    gap = "no better point exists" if found.gap == 0 else f"at most {us(found.gap)} above the best"
    return (
        f"searched {how}: {found.size} points, pruned by {pruned or 'nothing'}, "
        f"{found.evaluated} evaluated; by this cost, {gap}"
    )


def _pruning(plan: Plan, problem: Problem | None) -> list[str]:
    """Return why each constraint is there that pruned points."""
    constraints = () if problem is None else problem.space.constraints
    return [f"  {c.name}: {c.meaning}" for c in constraints if plan.found.pruned.get(c.name)]


def _runner_up(each: Candidate, best: Candidate, problem: Problem | None) -> str:
    more = 100 * (each.cost - best.cost) / best.cost
    changed = point(each, problem, best) or "the same"
    return f"  +{more:.2f} %  {us(each.cost)} = {_parts(each, False)}: {changed}"


# ---- What binds ----------------------------------------------------------------------------------


def _binding(problem: Problem, weights: Weights, best: Candidate) -> list[str]:
    """Return the constraints that the point comes close to."""
    lines = []
    used = problem.space.used(best.point)
    for constraint in problem.space.constraints:
        name = constraint.name
        if constraint.limit > 1 and used[name] > _BINDS * constraint.limit:
            lines.append(
                f"  {name}: {used[name]} of {constraint.limit} "
                f"{constraint.unit}; {constraint.meaning}; {_price(problem, weights, name, best)}"
            )
    return ["binding constraints:", *(lines or ["  none: every limit is far"])]


def _price(problem: Problem, weights: Weights, name: str, best: Candidate) -> str:
    """Return what a constraint costs: the least cost of the points that break it alone."""
    if problem.space.size > 10 * _PRICED:
        return "what it costs is not computed for so many points"
    broken = problem.space.points()
    for constraint in problem.space.constraints:
        within = np.broadcast_to(constraint.used(broken) <= constraint.limit, (broken.size,))
        broken = broken.take(~within if constraint.name == name else within)
    if broken.size > _PRICED:
        return "what it costs is not computed for so many points"
    if not broken.size:
        return "it forbids no point that the others allow"
    costs = weights.cost(problem.cost(broken))
    least = Candidate(broken.at(int(np.argmin(costs))), float(costs.min()), {})
    if least.cost >= best.cost:
        return "no point beyond it costs less"
    if hasattr(problem, "exact"):
        return f"whether one beyond it costs less is open, it takes at least {us(least.cost)}"
    less = 100 * (1 - least.cost / best.cost)
    return (
        f"a point beyond it would cost {us(least.cost)} (-{less:.2f} %): "
        f"{point(least, problem, best)}"
    )
