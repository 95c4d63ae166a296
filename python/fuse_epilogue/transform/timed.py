"""Chooses kernels by the clock: a budget of seconds, spent where a module's time is.

Each function is offered the ways that its kinds yield, and TVM's own loops. They run in turns on
arrays that are made up; what is not faster than the best prediction by more than the clock's noise
does not replace it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import prim

from .._interrupts import raise_interrupt
from ..kernels.cpu.for_llvm import for_llvm
from ..kernels.scheduled import Scheduled, Way
from ..planner.measurement.measure import arguments, seconds, shares
from ..tir.walk import loads, parts_of
from .chosen import Group, Outcome
from .kinds import DEFAULT, VIEW, candidates

#: Turns of which the median counts.
TURNS = 5
#: The least that a way must be faster by to replace the one that is predicted to be the fastest.
GAIN = 0.02
#: How much slower than the fastest a way may be at first, to be timed again.
_NEAR = 1.5
#: Reason of a function that keeps TVM's loops because they were measured to be faster.
FASTER = "TVM's own loops are faster by the clock"


@dataclass
class Choice:
    """A function and what is chosen for it.

    - `outcome`: by prediction at first.
    """

    group: Group
    outcome: Outcome
    was_timed: bool = False

    @property
    def predicted_s(self) -> float:
        """Seconds of all calls in a run; 0 if nothing is there to choose from."""
        if isinstance(self.outcome, str) or self.outcome.kind == VIEW:
            return 0.0
        return self.outcome.predicted_s * max(1, self.group.calls)


def by_the_clock(
    choices: Sequence[Choice], budget_s: float, on_progress: Callable[[float], Any]
) -> None:
    """Time ways to compute functions, and choose among them.

    - `choices`: changed in place, those first that are predicted to take the most time.
    - `budget_s`: seconds, of which each function gets the share of the remaining time that it is
      predicted to take. The rest is left to the others.
    - `on_progress`: called with the share of the budget that is spent.
    """
    begin = perf_counter()
    order = sorted(choices, key=lambda each: -each.predicted_s)
    order = [each for each in order if each.predicted_s > 0]
    total = sum(each.predicted_s for each in order)
    for each in order:
        left = budget_s - (perf_counter() - begin)
        if left <= 0:
            return
        _time(each, left * each.predicted_s / total)
        total -= each.predicted_s
        on_progress(min(1.0, (perf_counter() - begin) / budget_s))


@dataclass(frozen=True)
class _Built:
    """A way that is compiled, with arguments to call it with."""

    way: Scheduled
    run: Any
    arguments: list[Any]


def _time(choice: Choice, budget_s: float) -> None:
    built = _near_the_fastest(choice, perf_counter() + budget_s)
    if len(built) < 2:
        return
    turns: dict[int, list[float]] = {place: [] for place in range(len(built))}
    for _ in range(TURNS):
        for place in turns:
            turns[place].append(seconds(built[place].run, built[place].arguments))
    part = shares(turns)
    best = min(part, key=lambda place: part[place])
    if part[best] > (1 - GAIN) * part[0]:
        best = 0
    order = sorted(turns, key=lambda place: (place != best, part[place]))
    timed = tuple(_described(built[place].way, min(turns[place])) for place in order)
    way = replace(built[best].way, predicted_s=min(turns[best]), trials=len(built), ways=timed)
    choice.was_timed = True
    choice.outcome = FASTER if way.kind == DEFAULT else way


def _near_the_fastest(choice: Choice, end: float) -> list[_Built]:
    """Return the predicted way, and others that took about as long or less in one call.

    - `end`: when no other way is begun.
    - Returns: nothing if the predicted way fails.
    """
    found: list[_Built] = []
    least = float("inf")
    for way in _ways(choice):
        if found and perf_counter() >= end:
            break
        try:
            made = tvm.compile(_main(way.func), target=choice.group.work.target)
            given = _arrays(choice.group.work.func, way.func)
            took = _once(made, given)
        except Exception as error:  # noqa: BLE001 - a way that fails is not chosen
            raise_interrupt(error)
            if not found:
                return []
            continue
        if took <= _NEAR * least:
            found.append(_Built(way, made, given))
            least = min(least, took)
    return found


def _described(way: Scheduled, seconds: float) -> Way:
    """Return the description of a way that was timed."""
    text = "TVM's own loops" if way.kind == DEFAULT else way.kind
    return Way(f"{text}: {way.ways[0].text}" if way.ways else text, seconds)


def _ways(choice: Choice) -> Iterator[Scheduled]:
    """Yield the predicted way, TVM's own loops, and the others, each function once."""
    first, work = choice.outcome, choice.group.work
    assert isinstance(first, Scheduled)
    yield first
    yield Scheduled(work.func, DEFAULT)
    seen = {tvm_ffi.structural_hash(first.func)}
    for way in candidates(work):
        key = tvm_ffi.structural_hash(way.func)
        if key not in seen and way.kind != VIEW:
            yield way
        seen.add(key)


def _main(func: Any) -> Any:
    return for_llvm(func).with_attr("global_symbol", "main")


def _once(built: Any, arrays: list[Any]) -> float:
    """Return the seconds of the second call."""
    run = built["main"]
    run(*arrays)
    begin = perf_counter()
    run(*arrays)
    return perf_counter() - begin


def _arrays(original: Any, func: Any) -> list[Any]:
    """Return a tensor for each parameter of a way to compute a function: small whole numbers.

    All are 0 where an index is read from memory: that is inside of any array.

    - Raises ValueError: nothing is: such a function divides by what it reads.
    """
    made = arguments(func)
    accesses = (*loads(original.body), *parts_of(original.body, tirx.BufferStore))
    if not any(loads(index) for access in accesses for index in access.indices):
        return made
    quotients = parts_of(original.body, prim.Div, prim.Mod, prim.FloorDiv, prim.FloorMod)
    if any(loads(quotient.b) for quotient in quotients):
        raise ValueError("it reads indices or divisors, for which made-up data is not valid")
    for each in made:
        if isinstance(each, tvm.runtime.Tensor):
            each.copyfrom(np.zeros_like(each.numpy()))
    return made
