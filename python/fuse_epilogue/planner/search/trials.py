"""Times the most promising points of a processor, and lets the clock choose among them.

What a compiler makes of a kernel is not all foreseen: some numbers of steps are unrolled badly,
some rows are gathered that need not be. A third of the points that are timed are the best by the
cost, a third are the best of as many other register tiles, and the rest are the best of those that
have the tile that was the fastest. Those that may be the fastest are timed more often in the end.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import tvm_ffi
from tvm.target import Target
from tvm.tirx import BufferStore

from ...targets import host
from ...tir.walk import loads, parts_of
from ..measurement.measure import arguments, compiled, places, seconds, shares
from ..problems.cost import Weights
from ..problems.problem import Problem
from .search import Candidate, Found, search

#: Variables that make the innermost loops of a kernel, in all kinds of problems.
TILE = ("form", "rows", "vectors", "lanes")
#: Number of times that all points are timed in turn, whenever some are added. The shortest of these
#: counts, and no earlier one: what else the machine does changes from second to second, and those
#: that were timed more often would have had more luck.
_TURNS = 2
#: How many may be the fastest, besides the best of each way to fuse, and the turns of these, which
#: are compared turn by turn.
_LAST, _LAST_TURNS = 8, 16
#: Places in memory where the arrays are, in turns: see :func:`.measure.places`.
_PLACES = 8
#: Candidates by the cost of which those to be timed are taken.
_KEPT = 5_000


def trials(
    problem: Problem,
    weights: Weights,
    target: Target,
    count: int,
    limit: int,
    on_trial: Callable[[int, int], Any] | None = None,
) -> Found:
    """Return what a search finds, with the points that it timed in front, the fastest first.

    - `problem`: for a processor.
    - `target`: this machine.
    - `count`: points that are timed; at least the best of each way to fuse are.
    - `limit`: as of :func:`.search.search`.
    - `on_trial`: as of :func:`.choose.plan`.
    - Raises ValueError: the target is not this machine, the function reads or writes where its data
      say (with data that are made up it would do so anywhere), or no point is feasible.
    """
    check_here(target)
    _check_arguments(problem)
    found = search(problem, weights, limit, keep=_KEPT)
    ways = list(found.by_fusion.values())
    most = max(count, len(ways))
    timed = _Timed(problem, target, lambda done: on_trial and on_trial(done, most))
    timed.add([*ways, *found.ranked], max(count // 3, len(ways)))
    timed.add(_each_tile(found.ranked), 2 * count // 3)
    fastest = timed.ranked()[0]
    near = [each for each in found.ranked if _tile(each) == _tile(fastest)]
    timed.add([*near, *found.ranked], count)  # any, where too few have that tile
    timed.decide()
    if on_trial is not None:
        on_trial(len(timed.candidates), len(timed.candidates))
    measured = timed.ranked()
    by_fusion = {
        name: next(c for c in measured if c.point["fusion"] == each.point["fusion"])
        for name, each in found.by_fusion.items()
    }
    return replace(found, ranked=measured, by_fusion=by_fusion)


class _Timed:
    """Points that were timed, each function once."""

    def __init__(self, problem: Problem, target: Target, on_next: Callable[[int], Any]) -> None:
        self.problem, self.target, self.on_next = problem, target, on_next
        self.places = places(arguments(problem.func), _PLACES)
        #: By what tells functions apart: points may come to the same one, where nothing is left to
        #: fuse, for one.
        self.candidates: dict[int, list[Candidate]] = {}
        self.built: dict[int, Any] = {}
        self.seconds: dict[int, float] = {}

    def add(self, candidates: Iterable[Candidate], most: int) -> None:
        """Add points, until there are n functions, and time all of them again."""
        for each in candidates:
            if len(self.candidates) >= most:
                break
            sch = self.problem.apply(each.point)
            key = tvm_ffi.structural_hash(sch.mod["main"])
            if key not in self.candidates:
                self.on_next(len(self.candidates))
                self.built[key] = compiled(sch, self.target)
            same = self.candidates.setdefault(key, [])
            same += [each] * (each not in same)
        self.seconds.clear()
        for turn in range(_TURNS):
            for key in self.built:
                took = seconds(self.built[key], self.places[turn % len(self.places)])
                self.seconds[key] = min(took, self.seconds.get(key, took))

    def decide(self) -> None:
        """Time those again that may be the fastest, or the fastest of a way to fuse."""
        order = sorted(self.candidates, key=lambda key: self.seconds[key])
        ways: dict[int, int] = {}
        for key in order:
            for each in self.candidates[key]:
                ways.setdefault(each.point["fusion"], key)
        keys = list(dict.fromkeys([*order[:_LAST], *ways.values()]))
        turns: dict[int, list[float]] = {key: [] for key in keys}
        for turn in range(_LAST_TURNS):
            for key in keys:
                turns[key].append(seconds(self.built[key], self.places[turn % len(self.places)]))
        # The shortest time is that of the fastest: the others stay after it, whatever the clock
        # did before.
        taken = shares(turns)
        least = min(min(self.seconds[key], *turns[key]) for key in keys) / min(taken.values())
        self.seconds |= {key: share * least for key, share in taken.items()}

    def ranked(self) -> tuple[Candidate, ...]:
        """Return all points that were timed, the fastest first."""
        order = sorted(self.candidates, key=lambda key: self.seconds[key])
        return tuple(
            replace(each, measured=self.seconds[key])
            for key in order
            for each in self.candidates[key]
        )


def check_here(target: Target) -> None:
    """Do nothing for a target of the processor at hand.

    - Raises ValueError: the machine is another one.
    """
    here = host()
    triple = str(target.attrs.get("mtriple", ""))
    own = target.kind.name == "llvm" and triple.partition("-")[0] in ("", platform.machine())
    if not own or target.attrs.get("mcpu", "") not in ("", here.attrs.get("mcpu", "")):
        raise ValueError(
            f"kernels for {target} cannot be timed on this machine: plan without measuring, or for "
            "fuse_epilogue.schedules.host()"
        )


def _check_arguments(problem: Problem) -> None:
    """Do nothing where a function can be called with arrays that are made up."""
    func = problem.func
    for param in func.params:
        if getattr(param.ty, "strides", None):
            raise ValueError(
                f"'{param.name}' has strides, and points are timed with arrays that have none; "
                "plan without measuring"
            )
    for each in (*loads(func.body), *parts_of(func.body, BufferStore)):
        if any(loads(index) for index in each.indices):
            raise ValueError(
                f"an index of '{_name(each)}' is read from memory: points are timed with made-up "
                "data, which is not valid as indices; plan without measuring"
            )


def _name(access: Any) -> str:
    return str((access.buffer if isinstance(access, BufferStore) else access.source).name)


def _each_tile(ranked: Sequence[Candidate]) -> Iterator[Candidate]:
    """Return the best of each register tile, by the cost."""
    seen: set[tuple[int, ...]] = set()
    for each in ranked:
        if _tile(each) not in seen:
            seen.add(_tile(each))
            yield each


def _tile(candidate: Candidate) -> tuple[int, ...]:
    return tuple(candidate.point[name] for name in TILE if name in candidate.point)
