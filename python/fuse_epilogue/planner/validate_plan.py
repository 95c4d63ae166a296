"""Whether the parts of a plan that was read fit together, and fit the function it is for.

What a plan says is written from what it holds: a plan whose parts contradict each other would say
something untrue. That a cost is the one that the planner computes is not checked, nor anything else
that needs a search: of Trainium, and of a space that was searched in part, a way to fuse or a
runner-up may have been left out of the JSON.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator
from dataclasses import astuple, dataclass

import numpy as np
import tvm_ffi

from .backends import backend_of
from .plan_record import PlanRecord
from .problems.cost import NAMES
from .problems.problem import Problem
from .problems.space import Points, Space
from .search.search import RUNNERS_UP, Candidate

#: Beginnings of the names of types that are not handles.
_NUMBERS = ("bool", "int", "uint", "float", "bfloat")
#: The share of a cost that the sum of its terms may be off by: what rounding makes of it.
_ROUNDING = 1e-9
#: The coarsest resolution: what is 11 times as fast is better, however bad a profile is.
_COARSEST = 10.0


@dataclass(frozen=True)
class Rule:
    """Something that holds of every plan.

    - `message`: text of the error where it does not hold.
    """

    message: str
    holds: Callable[[PlanRecord], bool]


def check(plan: PlanRecord) -> None:
    """Do nothing for a plan whose parts fit together.

    - Raises ValueError: they do not; the message says which.
    """
    for rule in RULES:
        if not rule.holds(plan):
            raise ValueError(rule.message)


def check_for(plan: PlanRecord, problem: Problem) -> None:
    """Do nothing for a plan whose points and search are of a problem.

    - Raises ValueError: the candidates are of another space, or a way to fuse is missing that the
      problem has, or the counts of a search in full are not those of its constraints.
    """
    space, found = problem.space, plan.found
    for each in _candidates(plan):
        space.check(each.point)
    limits = {constraint.name for constraint in space.constraints}
    if found.size != space.size or {*found.pruned} != limits:
        raise ValueError("the search recorded in this plan is of another space; plan again")
    if not _has_all_points(plan):
        return
    points, pruned = space.feasible()
    if (found.evaluated, found.pruned) != (points.size, pruned):
        raise ValueError(
            "the points that this plan says were ruled out are not those that the constraints rule "
            "out; plan again"
        )
    if ways := _missing_ways(space, points, found.by_fusion):
        raise ValueError(
            f"the search recorded in this plan lacks '{ways[0]}', one of the ways to fuse; plan "
            "again"
        )


def _missing_ways(space: Space, feasible: Points, known: Container[str]) -> list[str]:
    """Return the ways to fuse that have a feasible point, but for those known."""
    if "fusion" not in space.by_name:
        return []
    fusion = space.by_name["fusion"]
    labels = (fusion.label(c) for c in fusion.choices if np.any(feasible["fusion"] == c))
    return [label for label in labels if label not in known]


def _has_all_points(plan: PlanRecord) -> bool:
    """Return whether a search has the exact costs of all feasible points."""
    return plan.found.exhaustive and backend_of(plan.machine).is_sum


def _candidates(plan: PlanRecord) -> Iterator[Candidate]:
    yield from plan.found.ranked
    yield from plan.found.by_fusion.values()


def _labels(plan: PlanRecord) -> tuple[str, ...]:
    """Return what the ways to fuse are called on a machine, by the value of "fusion"."""
    return backend_of(plan.machine).fusions


# ---- What it is for ------------------------------------------------------------------------------


def _has_type(plan: PlanRecord) -> bool:
    try:
        dtype = tvm_ffi.dtype(plan.dtype)
    except (TypeError, ValueError):
        return False
    return str(dtype) == plan.dtype and plan.dtype.startswith(_NUMBERS) and dtype.lanes == 1


def _has_resolution(plan: PlanRecord) -> bool:
    return plan.resolution <= _COARSEST


def _has_sizes(plan: PlanRecord) -> bool:
    """Return whether the sizes are those of the kind, and no others."""
    kind = backend_of(plan.machine).kind(plan.kind)
    return kind is not None and {*plan.sizes} == {*kind.sizes}


# ---- Points --------------------------------------------------------------------------------------


def _same_variables(plan: PlanRecord) -> bool:
    return len({tuple(each.point) for each in _candidates(plan)}) == 1


def _different_points(plan: PlanRecord) -> bool:
    points = [tuple(each.point.values()) for each in plan.found.ranked]
    return len(set(points)) == len(points)


# ---- Costs ---------------------------------------------------------------------------------------


def _signs(plan: PlanRecord) -> bool:
    """Return whether each term costs something, and parallelism saves something."""
    return all(
        value <= 0 if name == NAMES[-1] else value >= 0
        for each in _candidates(plan)
        for name, value in each.parts.items()
    )


def _sums(plan: PlanRecord) -> bool:
    """Return whether terms add up to a cost, or to less where they are a bound of it."""
    for each in _candidates(plan):
        total, slack = math.fsum(each.parts.values()), _ROUNDING * each.cost
        if total > each.cost + slack:
            return False
        if backend_of(plan.machine).is_sum and total < each.cost - slack:
            return False
    return True


def _weighed(plan: PlanRecord) -> bool:
    """Return whether every term of weight 0 adds 0."""
    weights = zip(NAMES, astuple(plan.weights), strict=True)
    none = [name for name, weight in weights if not weight]
    return not any(each.parts[name] for each in _candidates(plan) for name in none)


def _all_or_none_timed(plan: PlanRecord) -> bool:
    timed = {each.measured is not None for each in _candidates(plan)}
    return timed == {False} or (timed == {True} and backend_of(plan.machine).is_timed)


def _in_order(plan: PlanRecord) -> bool:
    seconds = [each.seconds for each in plan.found.ranked]
    return seconds == sorted(seconds)


# ---- Ways to fuse --------------------------------------------------------------------------------


def _known_ways(plan: PlanRecord) -> bool:
    """Return whether the labels are those of the points, and all points have a way or none."""
    labels, ways = _labels(plan), plan.found.by_fusion
    if "fusion" not in plan.point:
        return not ways
    return bool(ways) and all(
        name in labels and labels.index(name) == each.point["fusion"] for name, each in ways.items()
    )


def _best_of_ways(plan: PlanRecord) -> bool:
    """Return whether no point costs less than the best of its way, and the plan is one of these."""
    best = {each.point.get("fusion"): each for each in plan.found.by_fusion.values()}
    if not best:
        return True
    return best.get(plan.point.get("fusion")) == plan.found.best and all(
        each.point["fusion"] in best
        and best[each.point["fusion"]].seconds <= each.seconds
        and plan.found.best.seconds <= best[each.point["fusion"]].seconds
        for each in _candidates(plan)
    )


def _ways_ranked(plan: PlanRecord) -> bool:
    """Return whether the best of a way is the first of it that is ranked, or follows all ranked.

    All points that were timed are ranked.
    """
    ranked = plan.found.ranked
    timed = plan.found.best.measured is not None
    for each in plan.found.by_fusion.values():
        first = next((r for r in ranked if r.point["fusion"] == each.point["fusion"]), None)
        behind = first is None and not timed and each.seconds >= ranked[-1].seconds
        if first != each and not behind:
            return False
    return True


# ---- The search ----------------------------------------------------------------------------------


def _counts(plan: PlanRecord) -> bool:
    """Return whether the points that were looked at are no more than there are."""
    found = plan.found
    looked = found.evaluated + (sum(found.pruned.values()) if found.exhaustive else 0)
    return len(found.ranked) <= found.evaluated and looked <= found.size


def _all_points(plan: PlanRecord) -> bool:
    """Return whether a search in full, where all costs are exact, has looked at all points."""
    looked = plan.found.evaluated + sum(plan.found.pruned.values())
    return looked == plan.found.size or not _has_all_points(plan)


def _runners_up(plan: PlanRecord) -> bool:
    """Return whether as many points are ranked as are shown, where there are as many.

    How many were timed is not known, nor of how many Trainium's kernels are possible.
    """
    found = plan.found
    if found.best.measured is not None or not backend_of(plan.machine).is_sum:
        return True
    return len(found.ranked) >= min(1 + RUNNERS_UP, found.evaluated)


def _gap(plan: PlanRecord) -> bool:
    """Return whether nothing is better than the best of all, or what may be, where that is known.

    Only on Trainium there are bounds below the costs of points that were left out.
    """
    gap, least = plan.found.gap, min(each.cost for each in plan.found.ranked)
    if plan.found.exhaustive:
        return gap == 0
    if gap is None or backend_of(plan.machine).is_sum:
        return gap is None
    return gap <= least and (gap > 0 or plan.found.estimated)


def _estimated(plan: PlanRecord) -> bool:
    return not plan.found.estimated or not (
        plan.found.exhaustive or backend_of(plan.machine).is_sum
    )


#: What holds of every plan; points and ways come before what is asked about them.
RULES = (
    Rule("its dtype is not a type of numbers", _has_type),
    Rule("its sizes are not those of its kind", _has_sizes),
    Rule(f"its resolution is above {_COARSEST:g}: calibrate again", _has_resolution),
    Rule("its points are not all of the same variables", _same_variables),
    Rule("two of the points in found.ranked are the same", _different_points),
    Rule("the terms of a cost are not above 0, or parallelism is", _signs),
    Rule("the terms of a cost do not add up to it", _sums),
    Rule("a term costs something, and its weight is 0", _weighed),
    Rule(
        "some of its points were measured and some not, or on another machine", _all_or_none_timed
    ),
    Rule("found.ranked is not in the order of what the points cost", _in_order),
    Rule("a label in found.by_fusion is not that of its point, or there is none", _known_ways),
    Rule("found.by_fusion does not have the best point of each way", _best_of_ways),
    Rule("found.by_fusion and found.ranked do not agree on the best of a way", _ways_ranked),
    Rule("found.evaluated does not fit its size and what was pruned", _counts),
    Rule("found.ranked has fewer points than are shown, and more were evaluated", _runners_up),
    Rule("found.gap is not what a search in full, or in part, says of other points", _gap),
    Rule("found.exhaustive is true, but found.evaluated and found.pruned are fewer", _all_points),
    Rule("found.estimated is of Trainium, where points were left out", _estimated),
)
