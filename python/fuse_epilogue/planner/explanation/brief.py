"""The explanation of a plan on one screen: what was chosen, what it is worth, what limits it.

:mod:`.explain` has every term and every sentence. Times have the digits that the resolution of the
cost allows, and costs closer than that are called a tie.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..plan_record import PlanRecord
from ..problems.problem import Problem
from ..search.search import Candidate
from . import permissions
from .binding import cheapest, limits
from .compare import indifferent, point
from .explain import head, is_timed, range_of
from .glossary import terms

#: Runners-up and limits that are shown.
_RUNNERS_UP, _LIMITS = 3, 3


def text(plan: PlanRecord, problem: Problem | None) -> str:
    """Return the explanation of a plan in at most 20 lines.

    - `problem`: the problem of the plan. None: the limits that bind are left out.
    """
    best = plan.found.best
    lines = [head(plan), "", f"chosen: {point(best, problem)}", f"  {_cost(plan)}"]
    lines += range_of(best, problem)
    if is_timed(plan):
        lines.append(
            f"  measured {_time(plan, best.seconds)}, the least of {len(plan.found.ranked)} points"
        )
    lines += [f"  {line}" for line in permissions.lines(plan, problem)]
    lines += ["", *_fusion(plan, problem), _searched(plan), *_runners_up(plan, problem)]
    if problem is not None:
        lines += _limits(plan, problem)
    needs = "" if problem is not None else ", for which it needs the function"
    return "\n".join(
        [
            *lines,
            "",
            f"verbose: each term, every limit, other sizes, and what the words mean{needs}",
        ]
    )


def _time(plan: PlanRecord, seconds: float) -> str:
    """Return a time with the digits that the resolution of the cost allows."""
    digits = max(2, math.ceil(-math.log10(plan.resolution))) if plan.resolution > 0 else 4
    unit, scale = ("us", 1e6) if seconds < 1e-3 else ("ms", 1e3) if seconds < 1 else ("s", 1.0)
    scaled = seconds * scale
    places = max(0, digits - 1 - math.floor(math.log10(scaled))) if scaled > 0 else 0
    return f"{scaled:,.{places}f} {unit}"


def _cost(plan: PlanRecord) -> str:
    """Return the predicted time and what most of it is."""
    best, names = plan.found.best, terms(plan.machine)
    whole = max(best.cost, sum(max(0.0, best.parts[name]) for name in names))
    shares = {name: best.parts[name] / whole for name in names}
    shares["waiting"] = (best.cost - sum(best.parts[name] for name in names)) / whole
    parts = ", ".join(
        f"{name} {100 * share:.0f} %"
        for name, share in sorted(shares.items(), key=lambda item: -item[1])
        if share > 0.005
    )
    saved = -best.parts["parallelism"]
    by_threads = f"; {_time(plan, saved)} saved by parallelism" if saved > 0 else ""
    estimated = ", a rough estimate" if plan.found.estimated else ""
    return (
        f"predicted {_time(plan, best.cost)}{estimated} ({parts}{by_threads}); "
        f"differences below {100 * plan.resolution:.2g} % are ties"
    )


def _fusion(plan: PlanRecord, problem: Problem | None) -> Iterator[str]:
    """Yield fused against unfused, each at its best."""
    ways = sorted(plan.found.by_fusion.items(), key=lambda item: item[1].seconds)
    if ways and {name for name, _ in ways} != {"none"}:
        costs = (f"{name} {_time(plan, each.seconds)}{_verdict(plan, each)}" for name, each in ways)
        yield f"fusion: {', '.join(costs)}"
    elif ways:
        yield "fusion: nothing can be fused here"
    why = getattr(getattr(problem, "epilogue", None), "why", "")
    if why:
        yield f"  {why}"


def _verdict(plan: PlanRecord, each: Candidate) -> str:
    """Return how a candidate compares with the chosen one."""
    best = plan.found.best
    if each.point == plan.point:
        return " (chosen)"
    if not is_timed(plan) and indifferent(each, best, plan.resolution):
        return " (a tie)"
    return f" (+{100 * (each.seconds / best.seconds - 1):.0f} %)"


def _searched(plan: PlanRecord) -> str:
    found = plan.found
    ruled_out = {name: count for name, count in found.pruned.items() if count}
    how = "all" if found.exhaustive else "a part"
    text = f"searched {how} of {found.size:,} points"
    if ruled_out:
        by = ", ".join(f"{name} {count:,}" for name, count in ruled_out.items())
        text += f"; {sum(ruled_out.values()):,} ruled out ({by})"
    return text


def _runners_up(plan: PlanRecord, problem: Problem | None) -> Iterator[str]:
    """Yield the next best points, by what differs from the chosen one."""
    others = plan.found.runners_up[:_RUNNERS_UP]
    if others:
        yield "next best:"
    for each in others:
        changed = point(each, problem, plan.found.best) or "the same"
        yield f"  {_time(plan, each.seconds)}{_verdict(plan, each)}: {changed}"


def _limits(plan: PlanRecord, problem: Problem) -> Iterator[str]:
    """Yield the limits that bind."""
    binding = [limit for limit in limits(plan, problem) if limit.binds]
    if not binding:
        yield "no limit binds"
        return
    yield "limits that bind:"
    for limit in binding[:_LIMITS]:
        constraint = limit.constraint
        amount = f" ({limit.used:,} of {constraint.limit:,} {constraint.unit})"
        line = f"  {constraint.name}{amount * (constraint.limit > 1)}: {constraint.meaning}"
        if limit.saves and limit.beyond is not None:
            gain = 100 * (1 - limit.beyond.cost / cheapest(plan).cost)
            if gain >= 100 * plan.resolution:
                line += f"; beyond it {gain:.0f} % less"
        yield line
    if len(binding) > _LIMITS:
        yield f"  and {len(binding) - _LIMITS} more"
