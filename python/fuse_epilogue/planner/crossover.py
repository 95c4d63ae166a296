"""What another size would change.

The same problem is solved anew for sizes that are 2, 4, 8 and 16 times as large or as small. The
sentences say what was found at sizes that were solved, and of no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, groupby

import numpy as np

from .compare import differs, indifferent, label, us
from .cost import Weights
from .problems.problem import Problem
from .search import Candidate, Found, search
from .space import Point, Points, Space, Variable

#: Powers of two that a size is multiplied with, in the order of what is asked first.
_STEPS = (1, -1, 2, -2, 3, -3, 4, -4)
#: Points that all searches in full together may look at: about half a second on a core.
_IN_FULL = 200_000
#: Sizes for which a problem is solved at most.
_MOST = 24
#: Points from all over that a search in part begins with.
_SPREAD = 2000
#: Rounds of a search in part.
_ROUNDS = 8
#: What stands for the value that a variable has.
_KEEP = np.iinfo(np.int64).min
#: The variable of which the best of each value is kept.
_FUSION = "fusion"


@dataclass(frozen=True)
class Solved:
    """A problem with one size changed, and what was found.

    Attributes
    ----------
    size : int
    found : Found or None
        None where no point is feasible.
    """

    size: int
    found: Found | None

    def close(self, resolution: float) -> tuple[str, ...]:
        """Return the ways to fuse that cost as little as the best, as far as one can tell."""
        if self.found is None:
            return ()
        ways, best = self.found.by_fusion, self.found.best
        return tuple(name for name in ways if indifferent(ways[name], best, resolution))


def solve(problem: Problem, weights: Weights, here: Found) -> dict[str, list[Solved]]:
    """Solve a problem for other sizes.

    Parameters
    ----------
    problem : Problem
        Where it has an exact cost, nothing is solved: that takes too long.
    weights : Weights
    here : Found
        What was found for it as it is.

    Returns
    -------
    dict[str, list[Solved]]
        By the name of the size that is another one, from the smallest on, the present one among
        them; sizes of which the problem cannot tell are left out.
    """
    found: dict[str, dict[int, Solved]] = {}
    if hasattr(problem, "exact"):
        return {}
    asked = list(dict.fromkeys(_others(problem.sizes)))[:_MOST]
    whole = here.size * len(asked) <= _IN_FULL
    for name, size in asked:
        changed = problem.resized(name, size)
        if changed is None:
            continue
        try:
            # What was found on the way there is another start.
            known = [here, *(each.found for each in found.get(name, {}).values() if each.found)]
            other = None if whole else nearby(changed, weights, known)
            solved = Solved(size, other or search(changed, weights))
        except ValueError:
            solved = Solved(size, None)
        now = problem.sizes[name]
        found.setdefault(name, {now: Solved(now, here)})[size] = solved
    return {name: [each[size] for size in sorted(each)] for name, each in found.items()}


def _others(sizes: dict[str, int]) -> Iterator[tuple[str, int]]:
    for step in _STEPS:
        for name, size in sizes.items():
            other = size << step if step > 0 else size >> -step
            if other > 0:
                yield name, other


# ---- A search in part ----------------------------------------------------------------------------


def nearby(problem: Problem, weights: Weights, starts: list[Found]) -> Found | None:
    """Return what a descent finds from the best points of similar problems.

    From the best of each way to fuse, any two variables are changed at a time, as long as that
    makes it cheaper.

    Returns
    -------
    Found or None
        With the best point alone; None where nothing feasible was met.
    """
    space = problem.space
    begin = [each for start in starts for each in (start.by_fusion or {"": start.best}).values()]
    best: dict[int, Candidate] = {}
    going = list({tuple(p.values()): p for p in (_moved(space, e.point) for e in begin)}.values())
    changes, evaluated = _changes(space), 0
    for _ in range(_ROUNDS):
        points, _ = space.feasible(_around(space, changes, going))
        if not best:
            more, _ = space.feasible(_spread(space))
            both = ((name, (points[name], more[name])) for name in space.by_name)
            points = Points({name: np.concatenate(each) for name, each in both})
        if not points.size:
            break
        terms = problem.cost(points)
        costs = weights.cost(terms)
        evaluated += points.size
        going = []
        ways = points[_FUSION] if _FUSION in points.values else np.zeros(points.size, np.int64)
        for way in map(int, np.unique(ways)):
            at = int(np.argmin(np.where(ways == way, costs, np.inf)))
            if way not in best or costs[at] < best[way].cost:
                parts = weights.parts(terms, at)
                best[way] = Candidate(points.at(at), float(costs[at]), parts)
                going.append(best[way].point)
        if not going:
            break
        # What is good in one way to fuse may be so in another.
        lead = min(going, key=lambda each: best[each.get(_FUSION, 0)].cost)
        going += [{**lead, _FUSION: way} for way in best if way != lead.get(_FUSION, 0)]
    if not best:
        return None
    least = min(best.values(), key=lambda each: each.cost)
    by_fusion = {}
    if _FUSION in space.by_name:
        named = space.by_name[_FUSION]
        by_fusion = {named.label(way): best[way] for way in named.choices if way in best}
    return Found(space.size, {}, evaluated, False, None, (least,), by_fusion)


def _moved(space: Space, point: Point) -> Point:
    """Return the point of a space that is nearest to one of another space."""

    def nearest(variable: Variable) -> int:
        return min(variable.choices, key=lambda value: abs(value - point[variable.name]))

    return {variable.name: nearest(variable) for variable in space.variables}


def _spread(space: Space) -> Points:
    """Return points from all over a space, by a fixed sequence."""
    rng = np.random.default_rng(0)
    return Points(
        {
            v.name: np.array(v.choices, np.int64)[rng.integers(len(v.choices), size=_SPREAD)]
            for v in space.variables
        }
    )


def _changes(space: Space) -> np.ndarray:
    """Return values for up to two variables, and _KEEP for the others: a row for each point."""
    free = [at for at, v in enumerate(space.variables) if v.name != _FUSION and len(v.choices) > 1]
    rows = [np.full((1, len(space.variables)), _KEEP)]
    for pair in combinations(free, 2) if len(free) > 1 else [tuple(free)]:
        choices = [np.array(space.variables[at].choices, np.int64) for at in pair]
        values = [each.ravel() for each in np.meshgrid(*choices, indexing="ij")]
        made = np.full((len(values[0]) if values else 0, len(space.variables)), _KEEP)
        for at, each in zip(pair, values, strict=True):
            made[:, at] = each
        rows.append(made)
    return np.concatenate(rows)


def _around(space: Space, changes: np.ndarray, points: list[Point]) -> Points:
    """Return the points that have up to two variables otherwise, but fuse in the same way."""
    names = [variable.name for variable in space.variables]
    centres = np.array([[point[name] for name in names] for point in points], np.int64)
    values = np.where(changes == _KEEP, centres[:, None, :], changes).reshape(-1, len(names))
    return Points({name: values[:, at] for at, name in enumerate(names)})


# ---- In words ------------------------------------------------------------------------------------


def lines(problem: Problem, weights: Weights, here: Found, resolution: float) -> list[str]:
    """Return what another size would change, in words."""
    solved = solve(problem, weights, here)
    if not solved:
        return ["what another size would change: not known, another size is another function here"]
    full = all(o.found is None or o.found.exhaustive for each in solved.values() for o in each)
    how = "anew" if full else "anew, two variables at a time"
    made = [f"what another size would change (each size solved {how}; predicted):"]
    for name, each in solved.items():
        near = problem.sizes[name]
        made += [
            f"  {name} = {one.size}: {_moves(problem, here, one)}"
            for one in each
            if one.size in (2 * near, near // 2) and one.size != near
        ]
        made += [f"  {line}" for line in _ranges(name, each, resolution)]
    return made


def _moves(problem: Problem, here: Found, one: Solved) -> str:
    """Return which variables have another value than here."""
    if one.found is None:
        return "no point is feasible"
    before = here.best.point
    moved = [
        f"{name} {label(problem, name, before[name])} -> {label(problem, name, value)}"
        for name, value in one.found.best.point.items()
        if before[name] != value
    ]
    return f"{', '.join(moved) or 'the same choice'} ({us(one.found.best.cost)})"


def _ranges(name: str, each: list[Solved], resolution: float) -> Iterator[str]:
    """Return where the way to fuse changes, and what each way costs there."""
    if not any(one.found is not None and len(one.found.by_fusion) > 1 for one in each):
        return
    yield f"fusion for {name} = {', '.join(str(one.size) for one in each)}:"
    for close, group in groupby(each, lambda one: one.close(resolution)):
        run = list(group)
        ends = run if len(run) < 2 else [run[0], run[-1]]
        told = " or ".join(close) + ", too close to call" * (len(close) > 1)
        yield f"  {' to '.join(str(one.size) for one in ends)}: {told or 'no point is feasible'}"
        for one in ends:
            if one.found is None:
                continue
            yield f"    at {one.size}: {_ways(one.found)}"
            if one is run[0]:
                yield from (f"      {told}" for told in _declined(one.found))


def _ways(found: Found) -> str:
    """Return what each way to fuse costs."""
    return ", ".join(
        f"{name} {us(each.cost)}"
        + f" (+{100 * (each.cost / found.best.cost - 1):.2f} %)" * (each.cost > found.best.cost)
        for name, each in sorted(found.by_fusion.items(), key=lambda item: item[1].cost)
    )


def _declined(found: Found) -> Iterator[str]:
    """Return which ways to fuse have less of a term and are not taken all the same."""
    for name, each in found.by_fusion.items():
        told = differs(found.best, each)
        if told.endswith("not taken"):
            yield f"{name} has {told}"
