"""Why a plan is as it is: its cost and that of others, what binds, what would change it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .cost import NAMES, Weights
from .machine import Cpu
from .problems.problem import Problem
from .search import Candidate, search

if TYPE_CHECKING:
    from .plan import Plan

#: A constraint binds where a point uses more than this share of it.
_BINDS = 0.75


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
        f"{plan.kind} of {plan.dtype}, {sizes}, on {_machine(plan)}",
        f"chosen: {_point(best, problem)}",
        f"  predicted {_us(best.cost)} = {_parts(best)}",
        "",
        _fusion(plan),
        "",
        _searched(plan),
    ]
    if len(found.ranked) > 1:
        lines += ["", "runners-up:"]
        lines += [_runner_up(each, best) for each in found.ranked[1:]]
    if problem is not None:
        lines += ["", *_binding(problem, plan.weights, best), "", *_changes(plan, problem)]
    return "\n".join(lines)


def table(plan: Plan) -> str:
    """Return the candidates with each term of their cost in microseconds, in Markdown."""
    rows = [("chosen", plan.found.best)]
    rows += [(f"{name}, at best", each) for name, each in plan.found.by_fusion.items()]
    rows += [(f"runner-up {i}", c) for i, c in enumerate(plan.found.ranked[1:], 1)]
    head = ["", "cost", *NAMES, *plan.point]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, each in rows:
        numbers = [each.cost, *(each.parts[term] for term in NAMES)]
        cells = [name, *(f"{1e6 * v:.2f}" for v in numbers), *map(str, each.point.values())]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _machine(plan: Plan) -> str:
    machine = plan.machine
    if not isinstance(machine, Cpu):
        return f"{machine.name} ({machine.core})"
    return f"{machine.name} ({machine.cores} cores, vectors of {8 * machine.vector_bytes} bits)"


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:.2f} us"


def _point(candidate: Candidate, problem: Problem | None) -> str:
    if problem is not None:
        return problem.space.describe(candidate.point)
    return ", ".join(f"{name} {value}" for name, value in candidate.point.items())


def _parts(candidate: Candidate) -> str:
    signed = ((name, value) for name, value in candidate.parts.items())
    terms = " ".join(
        f"{'-' if value < 0 or name == 'parallelism' else '+'} {name} {_us(abs(value))}"
        for name, value in signed
    ).removeprefix("+ ")
    rest = candidate.cost - sum(candidate.parts.values())
    # Where the terms are a bound, the cost is that of the model of the machine.
    return (
        terms if abs(rest) < 1e-9 * candidate.cost else f"{terms} + beyond that bound {_us(rest)}"
    )


def _fusion(plan: Plan) -> str:
    """Return fused against unfused, whichever was chosen."""
    by = plan.found.by_fusion
    if not by:
        return "fused against unfused: this kind of problem is always written fused"
    if set(by) <= {"none"}:
        return "fused against unfused: nothing can be fused here"
    least = plan.cost
    lines = ["fused against unfused, each at its best:"]
    for name, each in by.items():
        more = each.cost - least
        verdict = "chosen" if each.point == plan.point else f"+{100 * more / least:.2f} %"
        where = max(NAMES, key=lambda term: each.parts[term] - plan.found.best.parts[term])
        because = "" if more <= 0 else f", most of it {where}"
        lines.append(f"  {name:9} {_us(each.cost):>12}  {verdict}{because}")
    return "\n".join(lines)


def _searched(plan: Plan) -> str:
    found = plan.found
    how = "in full" if found.exhaustive else "in part"
    pruned = ", ".join(f"{name} {count}" for name, count in found.pruned.items() if count)
    gap = "no better point exists" if found.gap == 0 else f"at most {_us(found.gap)} above the best"
    return (
        f"searched {how}: {found.size} points, pruned by {pruned or 'nothing'}, "
        f"{found.evaluated} evaluated; by this cost, {gap}"
    )


def _runner_up(each: Candidate, best: Candidate) -> str:
    changed = [f"{n} {v}" for n, v in each.point.items() if best.point.get(n) != v]
    more = 100 * (each.cost - best.cost) / best.cost
    return f"  +{more:.2f} %  {_us(each.cost)} = {_parts(each)}: {', '.join(changed) or 'the same'}"


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
    broken = problem.space.points()
    for constraint in problem.space.constraints:
        within = np.broadcast_to(constraint.used(broken) <= constraint.limit, (broken.size,))
        broken = broken.take(~within if constraint.name == name else within)
    least = float(weights.cost(problem.cost(broken)).min()) if broken.size else np.inf
    if least >= best.cost:
        return "no point beyond it costs less"
    return f"a point beyond it would cost {_us(least)}"


def _changes(plan: Plan, problem: Problem) -> list[str]:
    """Return what would be chosen if one size were another."""
    lines = ["with one size doubled or halved:"]
    for name, size in plan.sizes.items():
        for other in (2 * size, size // 2):
            changed = problem.resized(name, other) if other else None
            if changed is None:
                continue
            try:
                found = search(changed, plan.weights)
            except ValueError:
                lines.append(f"  {name} = {other}: no point is feasible")
                continue
            lines.append(f"  {name} = {other}: {_difference(plan, problem, found.best)}")
    return lines


def _difference(plan: Plan, problem: Problem, best: Candidate) -> str:
    names = problem.space.by_name
    moved = [
        f"{name} {names[name].label(plan.point[name])} -> {_label(names, name, value)}"
        for name, value in best.point.items()
        if plan.point[name] != value
    ]
    return f"{', '.join(moved) or 'the same choice'} ({_us(best.cost)})"


def _label(names: dict, name: str, value: int) -> str:
    known = value in names[name].choices
    return names[name].label(value) if known else str(value)
