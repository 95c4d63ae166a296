"""Sensitivity of a plan to the sizes of the problem.

The same problem is solved again, in full, for sizes that are 2 times as large or as small, and for
16, 4 and 8 times as long as that does not take too long. The sentences say what was found at sizes
that were solved, and of no other. Which forms a convolution has depends on its columns and taps:
they are left out, and other rows are solved with the forms that there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType

from ..problems.cost import Weights
from ..problems.problem import Problem
from ..search.search import Found, search
from .compare import differs, indifferent, label, us

#: Powers of two that a size is multiplied with, in the order of what is asked first.
_STEPS = (1, -1, 4, -4, 2, -2, 3, -3)
#: Of each kind the sizes that other forms may come with: which ones, only a function of them tells.
_NOT_TOLD = MappingProxyType({"conv": ("columns", "taps")})
#: Points that all searches together look at, unless two steps are more: about a second on a core.
_POINTS = 600_000


@dataclass(frozen=True)
class Solved:
    """A problem with one size changed, and what was found.

    - `found`: None where no point is feasible.
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

    - `problem`: where it has an exact cost, nothing is solved: that takes too long.
    - `here`: the result for the problem as it is.
    - Returns: by the name of the size that is another one, from the smallest on, the present one
      among them; sizes of which the problem cannot tell are left out, and those that may have other
      forms.
    """
    found: dict[str, dict[int, Solved]] = {}
    if problem.exact_costs is not None:
        return {}
    steps = max(2, _POINTS // (here.size * len(problem.sizes)))
    hidden = _NOT_TOLD.get(problem.kind, ())
    sizes = {name: size for name, size in problem.sizes.items() if name not in hidden}
    for name, size in dict.fromkeys(_others(sizes, steps)):
        changed = problem.resized(name, size)
        if changed is None:
            continue
        try:
            solved = Solved(size, search(changed, weights))
        except ValueError:
            solved = Solved(size, None)
        if solved.found is not None and solved.found.best.cost <= 0:
            continue  # such weights say nothing of it
        now = problem.sizes[name]
        found.setdefault(name, {now: Solved(now, here)})[size] = solved
    return {name: [each[size] for size in sorted(each)] for name, each in found.items()}


def _others(sizes: dict[str, int], steps: int) -> Iterator[tuple[str, int]]:
    for step in _STEPS[:steps]:
        for name, size in sizes.items():
            other = size << step if step > 0 else size >> -step
            if other > 0:
                yield name, other


# ---- In words ------------------------------------------------------------------------------------


def lines(problem: Problem, weights: Weights, here: Found, resolution: float) -> list[str]:
    """Return what another size would change, in words."""
    solved = solve(problem, weights, here)
    if not solved:
        return ["what another size would change is not shown here: plan for that size"]
    others = [one.found for each in solved.values() for one in each if one.found is not here]
    full = all(found is None or found.exhaustive for found in others)
    hidden = _NOT_TOLD.get(problem.kind, ())
    how = "each size solved separately" + ", with the forms that there are here" * bool(hidden)
    how += ", in part: a point may cost less" * (not full)
    made = [f"what another size would change ({how}; predicted):"]
    for name, each in solved.items():
        near = problem.sizes[name]
        made += [
            f"  {name} = {one.size}: {_moves(problem, here, one)}"
            for one in each
            if one.size in (2 * near, near // 2) and one.size != near
        ]
        made += [f"  {line}" for line in _ranges(name, each, resolution)]
    if hidden:
        sentence = "not shown, as the forms depend on them: plan for that size"
        made.append(f"  {', '.join(hidden)}: {sentence}")
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
        which = " or ".join(close) + ", too close to call" * (len(close) > 1)
        yield f"  {' to '.join(str(one.size) for one in ends)}: {which or 'no point is feasible'}"
        for one in ends:
            if one.found is None:
                continue
            yield f"    at {one.size}: {_ways(one.found)}"
            if one is run[0]:
                yield from (f"      {sentence}" for sentence in _declined(one.found))


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
        sentence = differs(found.best, each)
        if sentence.endswith("not taken"):
            yield f"{name} has {sentence}"
