"""The explanation of a plan: its cost and that of others, what binds, what would change it.

Every sentence is computed from what the search found. All times are predictions, but those that
are said to be measured.
"""

from __future__ import annotations

from ..plan_record import PlanRecord
from ..problems.cost import NAMES
from ..problems.problem import Problem
from ..search.search import Candidate
from . import glossary, permissions, sensitivity
from .binding import Limit, cheapest, limits
from .compare import differs, indifferent, label, most, point, tips, us, whole

#: Said where no kernel was timed by the model that the costs are taken from elsewhere.
_ESTIMATED = (
    "the costs are only estimates: the latency model would take too long for a kernel of this "
    "size, so what is fused may be chosen wrongly; kernel.check and kernel.predict tell"
)


def head(plan: PlanRecord) -> str:
    """Return the line that names what a plan is for."""
    sizes = ", ".join(f"{name} = {size}" for name, size in plan.sizes.items())
    return f"{plan.kind} of {plan.dtype}, {sizes}, on {plan.machine}"


def summary(plan: PlanRecord) -> str:
    """Return what was chosen and what it costs, in a few lines."""
    best = plan.found.best
    lines = [
        head(plan),
        f"chosen: {point(best, plan.known)}",
        f"  predicted {us(best.cost)}, {'fused' if plan.fused else 'not fused'}",
        *_measured(plan),
        "explain() says why",
    ]
    return "\n".join(lines)


def text(plan: PlanRecord, problem: Problem | None) -> str:
    """Return the explanation of a plan with every term; :mod:`.brief` has the short one.

    - `problem`: the problem of the plan. None: everything that depends on the function is left out.
    """
    found, best = plan.found, plan.found.best
    lines = [
        head(plan),
        f"all times are predicted{', unless said to be measured' * is_timed(plan)}; costs less "
        f"than {100 * plan.resolution:.3g} % apart are too close to call",
        *([_ESTIMATED] if found.estimated else []),
        "",
        f"chosen: {point(best, problem)}",
        f"  predicted {us(best.cost)} = {_parts(plan, best, every=True)}",
        *range_of(best, problem),
        *_measured(plan),
        *(f"  {line}" for line in permissions.lines(plan, problem)),
        "",
        *_fusion(plan, problem),
        "",
        _searched(plan),
        *_pruning(plan, problem),
    ]
    if len(found.ranked) > 1:
        lines += ["", f"runners-up ({_how(plan)}), and their differences from the chosen:"]
        lines += [_runner_up(plan, each, problem) for each in found.runners_up]
    if problem is None:
        sentence = "what binds, what another size would change, and what the words mean"
        lines += ["", f"pass the function, explain(func, verbose=True), to read {sentence}"]
        return "\n".join(lines)
    lines += ["", *_binding(plan, problem), ""]
    if is_timed(plan):
        lines.append(
            "what another size would change is not shown: points were timed for these only"
        )
    else:
        lines += sensitivity.lines(problem, plan.weights, found, plan.resolution)
    lines += ["", *glossary.lines(plan.machine, problem)]
    return "\n".join(lines)


def table(plan: PlanRecord, problem: Problem | None = None) -> str:
    """Return the candidates with each term of their cost in microseconds, in Markdown."""
    rows = [("chosen", plan.found.best)]
    rows += [(f"{name}, at best", each) for name, each in plan.found.by_fusion.items()]
    rows += [(f"runner-up {i}", c) for i, c in enumerate(plan.found.runners_up, 1)]
    measured = ["measured"] * is_timed(plan)
    head = [f"{_how(plan)}, us", *measured, "cost", *NAMES, *plan.point]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, each in rows:
        numbers = [each.seconds] * is_timed(plan)
        numbers += [each.cost, *(each.parts[term] for term in NAMES)]
        values = [label(problem, key, value) for key, value in each.point.items()]
        lines.append(
            # Of what is saved, nothing is 0.00, and not -0.00.
            "| "
            + " | ".join([name, *(f"{round(1e6 * v, 2) + 0.0:.2f}" for v in numbers), *values])
            + " |"
        )
    return "\n".join(lines)


def range_of(best: Candidate, problem: Problem | None) -> list[str]:
    """Return the ends of a predicted latency, where the machine's documents leave it open."""
    costs = None if problem is None else problem.exact_costs
    found = None if costs is None else costs.range_of(best.point)
    if found is None:
        return []
    least, most = map(us, found)
    return [f"  {least} to {most} by what the documents of the machine leave open"]


def is_timed(plan: PlanRecord) -> bool:
    """Return whether the plan is the fastest of some that were timed."""
    return plan.found.best.measured is not None


def _how(plan: PlanRecord) -> str:
    return "measured, predicted" if is_timed(plan) else "predicted"


def _measured(plan: PlanRecord) -> list[str]:
    """Return what the clock said of the plan."""
    if not is_timed(plan):
        return []
    ranked = plan.found.ranked
    first = cheapest(plan)
    sentence = f"  measured {us(plan.found.best.seconds)}, the least of {len(ranked)} points timed"
    if first is not plan.found.best:
        sentence += f"; the cheapest, predicted {us(first.cost)}, took {us(first.seconds)}"
    return [sentence]


def _parts(plan: PlanRecord, candidate: Candidate, every: bool = False) -> str:
    """Return what the terms add up to; if not `every`, without those that add nothing."""
    terms = " ".join(
        f"{'-' if name == 'parallelism' else '+'} {name} {us(abs(candidate.parts[name]))}"
        for name in glossary.terms(plan.machine)
        if candidate.parts[name] or every
    ).removeprefix("+ ")
    if whole(candidate):
        return terms
    more = us(candidate.cost - sum(candidate.parts.values()))
    return f"{terms} + {more} more" + f", {_source(plan)}" * every


def _source(plan: PlanRecord) -> str:
    """Return what costs are taken from where they are more than their terms."""
    return "estimated" if plan.found.estimated else "by the latency model"


# ---- Fused against unfused -----------------------------------------------------------------------


def _fusion(plan: PlanRecord, problem: Problem | None) -> list[str]:
    """Return fused against unfused, whichever was chosen."""
    ways, best = plan.found.by_fusion, plan.found.best
    why = getattr(getattr(problem, "epilogue", None), "why", "")
    if not ways:
        return ["fused against unfused: this kind of problem is always written fused"]
    if set(ways) <= {"none"}:
        return ["fused against unfused: nothing can be fused here" + f": {why}" * bool(why)]
    how = "measured" if is_timed(plan) else "predicted"
    lines = [f"fused against unfused, each at its best ({how}):"]
    for name, each in sorted(ways.items(), key=lambda item: item[1].seconds):
        cost = f"  {name:9} {us(each.seconds):>12}"
        if each.point == plan.point:
            lines.append(f"{cost}  chosen")
            continue
        if is_timed(plan):
            lines.append(f"{cost}  +{100 * (each.seconds / best.seconds - 1):.2f} %")
            continue
        lines.append(f"{cost}  {_more(plan, each)}")
        if indifferent(each, best, plan.resolution):
            lines.append(f"{'':27}indifferent: too close to call")
        lines += [f"{'':27}{line}" for line in (differs(best, each), tips(best, each)) if line]
    return [*lines, *[f"  {why}"] * bool(why)]


def _more(plan: PlanRecord, other: Candidate) -> str:
    best = plan.found.best
    more = f"+{100 * (other.cost - best.cost) / best.cost:.2f} %"
    if not (whole(best) and whole(other)):
        return f"{more}, {_source(plan)}"
    where = most(best, other)
    return f"{more}, most of it {where}" if where else more


# ---- The search ----------------------------------------------------------------------------------


def _searched(plan: PlanRecord) -> str:
    found = plan.found
    counts = {name: count for name, count in found.pruned.items() if count}
    pruned = f" ({', '.join(f'{name} {count}' for name, count in counts.items())})" * bool(counts)
    how, which = "in part", ", {} of them"
    if found.exhaustive:
        how, gap = "in full", "no better point exists"
    elif found.gap is None:
        # A search that does not see the whole space meets some points again and again.
        which, gap = "; on the way {}", "nothing is known of the others"
    else:
        gap = f"a better one costs at most {us(found.gap)} less"
    if is_timed(plan):
        gap = "the best by it and others like it were timed"
    ruled_out = which.format(sum(counts.values())) + f" ruled out{pruned}"
    looked = f"{found.evaluated} {'estimated' if found.estimated else 'evaluated'}"
    return f"searched {how}: {found.size} points{ruled_out}, {looked}; by this cost, {gap}"


def _pruning(plan: PlanRecord, problem: Problem | None) -> list[str]:
    """Return the reason for each constraint that pruned points, and for invalid combinations."""
    if problem is None:
        return []
    constraints = [c for c in problem.space.constraints if plan.found.pruned.get(c.name)]
    sentences = [f"  {c.name}: {c.meaning}" for c in constraints]
    return sentences + [f"  {each}" for each in problem.missing]


def _runner_up(plan: PlanRecord, each: Candidate, problem: Problem | None) -> str:
    best = plan.found.best
    more = 100 * (each.seconds - best.seconds) / best.seconds
    changed = point(each, problem, best) or "the same"
    took = "" if each.measured is None else f"{us(each.measured)}, "
    return f"  +{more:.2f} %  {took}{us(each.cost)} = {_parts(plan, each)}: {changed}"


# ---- What binds ----------------------------------------------------------------------------------


def _binding(plan: PlanRecord, problem: Problem) -> list[str]:
    """Return the constraints that the point comes close to, and those that forbid a cheaper one."""
    lines, unknown = [], []
    for limit in limits(plan, problem):
        constraint = limit.constraint
        if limit.binds:
            amount = f"{limit.used} of {constraint.limit} {constraint.unit}; "
            rule = "" if constraint.limit > 1 else "if it could be written, "
            sentence = constraint.meaning if rule else amount + constraint.meaning
            lines.append(f"  {constraint.name}: {sentence}; {rule}{_price(plan, problem, limit)}")
        elif limit.saves is None:
            unknown.append(constraint.name)
    if unknown:
        sentence = ", ".join(unknown)
        lines.append(f"  whether a point beyond one of these would cost less is open: {sentence}")
    none = "  none: every limit is far, and to break one alone would save nothing"
    return ["binding constraints:", *(lines or [none])]


def _price(plan: PlanRecord, problem: Problem, limit: Limit) -> str:
    """Return what a point beyond a constraint would cost."""
    if limit.beyond is None:
        if limit.saves is None:
            return "its cost is not computed for that many points"
        return "it forbids no point that the others allow"
    best, least = cheapest(plan), limit.beyond
    if limit.saves is None:
        return f"whether one beyond it costs less is open, it takes at least {us(least.cost)}"
    if not limit.saves:
        return "no point beyond it costs less"
    less = 100 * (1 - least.cost / best.cost)
    return f"a point beyond it would cost {us(least.cost)} (-{less:.2f} %): " + point(
        least, problem, best
    )
