"""Whether the parts of a plan that was read fit together.

What a plan says is written from what it holds: a plan whose parts contradict each other would say
something untrue. That a cost is the one that the planner computes is not checked here, nor anything
else that needs the function or a search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tvm_ffi

from .cost import NAMES
from .gpu import Gpu
from .machine import Cpu
from .problems.epilogue import LABELS
from .problems.trainium.ways import LABELS as ON_TRAINIUM
from .search import Candidate

if TYPE_CHECKING:
    from .plans import Plan

#: The share of a cost that the sum of its terms may be off by: what rounding makes of it.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Rule:
    """Something that holds of every plan.

    Attributes
    ----------
    told : str
        What is wrong where it does not hold.
    holds : Callable[[Plan], bool]
    """

    told: str
    holds: Callable[[Plan], bool]


def check(plan: Plan) -> None:
    """Do nothing for a plan whose parts fit together.

    Raises
    ------
    ValueError
        They do not; the message says which.
    """
    for rule in RULES:
        if not rule.holds(plan):
            raise ValueError(rule.told)


def _candidates(plan: Plan) -> Iterator[Candidate]:
    yield from plan.found.ranked
    yield from plan.found.by_fusion.values()


def _labels(plan: Plan) -> tuple[str, ...]:
    """Return what the ways to fuse are called on a machine, by the value of "fusion"."""
    return LABELS if isinstance(plan.machine, Cpu | Gpu) else ON_TRAINIUM


# ---- What it is for ------------------------------------------------------------------------------


def _has_type(plan: Plan) -> bool:
    try:
        return str(tvm_ffi.dtype(plan.dtype)) == plan.dtype != ""
    except (TypeError, ValueError):
        return False


# ---- Points --------------------------------------------------------------------------------------


def _same_variables(plan: Plan) -> bool:
    return len({tuple(each.point) for each in _candidates(plan)}) == 1


def _different_points(plan: Plan) -> bool:
    points = [tuple(each.point.values()) for each in plan.found.ranked]
    return len(set(points)) == len(points)


# ---- Costs ---------------------------------------------------------------------------------------


def _signs(plan: Plan) -> bool:
    """Return whether each term costs something, and parallelism saves something."""
    return all(
        value <= 0 if name == NAMES[-1] else value >= 0
        for each in _candidates(plan)
        for name, value in each.parts.items()
    )


def _sums(plan: Plan) -> bool:
    """Return whether terms add up to a cost, or to less where they are a bound of it."""
    for each in _candidates(plan):
        total, slack = math.fsum(each.parts.values()), _ROUNDING * each.cost
        if total > each.cost + slack:
            return False
        if isinstance(plan.machine, Cpu | Gpu) and total < each.cost - slack:
            return False
    return True


def _all_or_none_timed(plan: Plan) -> bool:
    timed = {each.measured is not None for each in _candidates(plan)}
    return timed == {False} or (timed == {True} and isinstance(plan.machine, Cpu))


def _in_order(plan: Plan) -> bool:
    seconds = [each.seconds for each in plan.found.ranked]
    return seconds == sorted(seconds)


# ---- Ways to fuse --------------------------------------------------------------------------------


def _known_ways(plan: Plan) -> bool:
    """Return whether the labels are those of the points, and all points have a way or none."""
    labels, ways = _labels(plan), plan.found.by_fusion
    if "fusion" not in plan.point:
        return not ways
    return all(
        name in labels and labels.index(name) == each.point["fusion"] for name, each in ways.items()
    )


def _best_of_ways(plan: Plan) -> bool:
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


# ---- The search ----------------------------------------------------------------------------------


def _counts(plan: Plan) -> bool:
    """Return whether the points that were looked at are no more than there are."""
    found = plan.found
    looked = found.evaluated + (sum(found.pruned.values()) if found.exhaustive else 0)
    return len(found.ranked) <= found.evaluated and looked <= found.size


def _all_points(plan: Plan) -> bool:
    """Return whether a search in full, where all costs are exact, has looked at all points."""
    found = plan.found
    looked = found.evaluated + sum(found.pruned.values())
    return looked == found.size or not (found.exhaustive and isinstance(plan.machine, Cpu | Gpu))


def _gap(plan: Plan) -> bool:
    return plan.found.gap == 0 or not plan.found.exhaustive


def _estimated(plan: Plan) -> bool:
    return not plan.found.estimated or not (
        plan.found.exhaustive or isinstance(plan.machine, Cpu | Gpu)
    )


#: What holds of every plan; points and ways come before what is asked about them.
RULES = (
    Rule("its dtype is no type of TVM", _has_type),
    Rule("it has no sizes", lambda plan: bool(plan.sizes)),
    Rule("its points are not all of the same variables", _same_variables),
    Rule("two of the points in found.ranked are the same", _different_points),
    Rule("the terms of a cost are not above 0, or parallelism is", _signs),
    Rule("the terms of a cost do not add up to it", _sums),
    Rule(
        "some of its points were measured and some not, or on another machine", _all_or_none_timed
    ),
    Rule("found.ranked is not in the order of what the points cost", _in_order),
    Rule("a label in found.by_fusion is not that of its point", _known_ways),
    Rule("found.by_fusion does not have the best point of each way", _best_of_ways),
    Rule("found.evaluated does not fit its size and what was pruned", _counts),
    Rule("found.exhaustive says that no point was left out, and found.gap is not 0", _gap),
    Rule("found.exhaustive says so, and found.evaluated and found.pruned are fewer", _all_points),
    Rule("found.estimated is of Trainium, where points were left out", _estimated),
)
