"""Two points in words: their differences, and whether their costs differ."""

from __future__ import annotations

from ..problems.problem import Problem
from ..search.search import Candidate

#: A difference of a term below this share of the cost is not worth a word.
SMALL = 5e-4


def us(seconds: float) -> str:
    """Return a time in microseconds."""
    return f"{1e6 * seconds:.2f} us"


def label(problem: Problem | None, name: str, value: int) -> str:
    """Return how a value of a variable is written."""
    known = None if problem is None else problem.space.by_name.get(name)
    return known.label(value) if known is not None and value in known.choices else str(value)


def point(candidate: Candidate, problem: Problem | None, unlike: Candidate | None = None) -> str:
    """Return a point in words, of all variables or of those that another one has otherwise."""
    return ", ".join(
        f"{name} {label(problem, name, value)}"
        for name, value in candidate.point.items()
        if unlike is None or unlike.point.get(name) != value
    )


def indifferent(one: Candidate, other: Candidate, resolution: float) -> bool:
    """Return whether two costs differ by less than what the cost can tell apart.

    >>> a, b = Candidate({}, 100e-6, {}), Candidate({}, 104e-6, {})
    >>> indifferent(a, b, 0.05), indifferent(b, a, 0.03)
    (True, False)
    """
    return max(one.cost, other.cost) < (1 + resolution) * min(one.cost, other.cost)


def whole(candidate: Candidate) -> bool:
    """Return whether the terms are all of a cost; where it is that of a model, they are a bound."""
    return abs(candidate.cost - sum(candidate.parts.values())) <= 1e-9 * candidate.cost


def terms(best: Candidate, other: Candidate) -> dict[str, tuple[float, float]]:
    """Return what each term adds to the costs of two points, by name.

    What cores save is taken off the latency: the two grow together, and separately they say little.
    """
    name = "latency"
    if best.parts["parallelism"] or other.parts["parallelism"]:
        name = "latency after parallelism"

    def latency(each: Candidate) -> float:
        return each.parts["latency"] + each.parts["parallelism"]

    return {
        "traffic": (best.parts["traffic"], other.parts["traffic"]),
        name: (latency(best), latency(other)),
        "spill": (best.parts["spill"], other.parts["spill"]),
    }


def most(best: Candidate, other: Candidate) -> str:
    """Return the term that makes most of what another point costs more; "" if none does.

    Where the terms are not all of both costs, they say nothing of the difference.
    """
    if not (whole(best) and whole(other)):
        return ""
    more = {name: two - one for name, (one, two) in terms(best, other).items()}
    name = max(more, key=lambda each: more[each])
    return name if more[name] > 0 else ""


def differs(best: Candidate, other: Candidate) -> str:
    """Return which terms a point that costs more has less of, and of which more; "" if of none.

    Also "" where the terms are not all of both costs: the rest is not known.

    >>> a = Candidate({}, 10e-6, dict(traffic=4e-6, latency=6e-6, spill=0.0, parallelism=0.0))
    >>> b = Candidate({}, 12e-6, dict(traffic=3e-6, latency=9e-6, spill=0.0, parallelism=0.0))
    >>> differs(a, b)
    '25.0 % less traffic, but 50.0 % more latency: not taken'
    """
    if not (whole(best) and whole(other)):
        return ""
    good: list[str] = []
    bad: list[str] = []
    for term, (one, two) in terms(best, other).items():
        if abs(two - one) < SMALL * best.cost:
            continue
        share = us(abs(two - one)) if one <= 0 else f"{100 * abs(two / one - 1):.1f} %"
        if two < one:
            good.append(f"{share} less {term}")
        else:
            bad.append(f"{share} more {term}")
    if not good:
        return " and ".join(bad)
    return f"{' and '.join(good)}{', but ' * bool(bad)}{' and '.join(bad)}: not taken"


def tips(best: Candidate, other: Candidate) -> str:
    """Return how much one term would have to weigh for two points to cost the same.

    The result is "" where no term could do it within a factor of four, or where the terms are not
    all of the cost.

    >>> a = Candidate({}, 10e-6, dict(traffic=4e-6, latency=6e-6, spill=0.0, parallelism=0.0))
    >>> b = Candidate({}, 12e-6, dict(traffic=3e-6, latency=9e-6, spill=0.0, parallelism=0.0))
    >>> tips(a, b)
    'as good if traffic weighed 3.00 times as much'
    """
    more = other.cost - best.cost
    if not (whole(best) and whole(other)):
        return ""
    changes = {}
    for term, (one, two) in terms(best, other).items():
        if abs(two - one) > SMALL * best.cost and 0.25 < 1 - more / (two - one) < 4:
            changes[term] = 1 - more / (two - one)
    if not changes:
        return ""
    # Of two that change alone, one has to weigh more by what the other has to weigh less: the first
    # of them, whatever rounding makes of the two.
    term = min(changes, key=lambda name: round(max(changes[name], 1 / changes[name]), 6))
    return f"as good if {term} weighed {changes[term]:.2f} times as much"
