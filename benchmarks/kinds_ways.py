"""The ways to schedule a function that kinds.py compares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm_ffi
from kinds_workloads import Workload
from tvm.target import Target

from fuse_epilogue.kernels.cpu import contraction
from fuse_epilogue.kernels.cpu.contraction.plan import Plan, all_plans, choose
from fuse_epilogue.kernels.cpu.costs import CALL_S, CLOCK_HZ
from fuse_epilogue.kernels.scheduled import Scheduled
from fuse_epilogue.recognize.contraction import read_contraction
from fuse_epilogue.schedules import host
from fuse_epilogue.transform.kinds import Work, candidates

#: Ways of a contraction: the best of each choice of axes, those that follow by prediction, and
#: those at equal distances between these and the ones that are predicted to be some times slower.
BEST, NEXT, SPREAD, TIMES_SLOWER = 5, 4, 4, 4.0
#: Options of a target whose vectors have some bits, for ways that use shorter ones.
SHORTER = {256: ["-avx512f"], 128: ["-avx512f", "-avx"]}


@dataclass(frozen=True)
class Way:
    """A way to schedule a function.

    Attributes
    ----------
    name : str
    kind : str
    predicted_s : float
    schedule : callable
        Returns the function with its schedule.
    """

    name: str
    kind: str
    predicted_s: float
    schedule: Any


def ways(workload: Workload) -> list[Way]:
    """Return the ways that are compared, the one that is chosen by prediction first."""
    work = Work(workload.func, host(1), 1, workload.constants)
    found = list(candidates(work))
    if found[0].kind == "contraction":
        rest = [each for each in found if each.kind != "contraction"]
        return [*_of_contraction(work), *_named(rest, "")]
    # One function has one way in some kinds; others would do with shorter vectors.
    made = _named(found, "")
    for bits, features in SHORTER.items():
        made += _named(candidates(Work(work.func, _without(features), 1, work.constants)), bits)
    different: list[Way] = []
    for way in made:
        func = way.schedule().func
        if not any(tvm_ffi.structural_equal(func, each.schedule().func) for each in different):
            different.append(way)
    return different


def _without(features: list[str]) -> Target:
    target = host(1)
    options = {**dict(target.attrs), "kind": "llvm"}
    return Target({**options, "mattr": [*options.get("mattr", ()), *features]})


def _named(found: Any, bits: Any) -> list[Way]:
    def given(each: Scheduled) -> Scheduled:
        return each

    return [
        Way(
            f"{each.kind} {place}{f', {bits} bits' if bits else ''}",
            each.kind,
            each.predicted_s,
            partial(given, each),
        )
        for place, each in enumerate(found)
    ]


def _of_contraction(work: Work) -> list[Way]:
    """Return ways of a contraction, the best of each choice of axes first."""
    machine = contraction.machine_of(work.target, 1)
    best: dict[str, Plan] = {}
    every: dict[str, Plan] = {}
    for read in _readings(work):
        constant = contraction.constant_operands(read, work.constants)
        if read.a.bounds and not constant[1]:
            continue
        found = {name_of(plan, read): plan for plan in all_plans(read, machine, constant)}
        every = {**found, **every}
        chosen = [(name_of(plan, read), plan) for plan in choose(read, machine, constant)]
        best = {**dict(chosen), **best}
    first = sorted(best.items(), key=lambda pair: pair[1].cycles)[:BEST]
    kept = dict(first)
    left = sorted(every.items(), key=lambda pair: pair[1].cycles)
    left = [pair for pair in left if pair[0] not in kept]
    kept |= dict(left[:NEXT])
    most = TIMES_SLOWER * first[0][1].cycles
    left = [pair for pair in left[NEXT:] if pair[1].cycles <= most]
    count = min(SPREAD, len(left))
    kept |= dict(left[(place + 1) * len(left) // count - 1] for place in range(count))
    return [
        Way(
            name,
            "contraction",
            CALL_S + plan.cycles / CLOCK_HZ,
            partial(contraction.scheduled, plan, work.target, 1),
        )
        for name, plan in kept.items()
    ]


def _readings(work: Work) -> Iterator[Any]:
    """Yield the contraction as it is, and with padded copies where they are different."""
    if work.program is None:
        return
    plain, padded = (read_contraction(work.program, pad) for pad in (False, True))
    if plain is not None:
        yield plain
    if padded is not None and (plain is None or len(padded.before) != len(plain.before)):
        yield padded


def name_of(plan: Plan, read: Any) -> str:
    """Return a name of a plan that no other one of the function has."""
    vectors = "b" if plan.contraction.b is read.b else "a"
    padded = ", padded" if plan.contraction.before else ""
    words = "" if plan.words is None else f", {plan.words.instruction.name}"
    return (
        f"vector {vectors}{plan.vector}, rows {list(plan.rows)}: "
        f"{max(group.rows for group in plan.groups)} x {plan.vectors} x {plan.lanes}, "
        f"packing {plan.packing}{padded}{words}"
    )
