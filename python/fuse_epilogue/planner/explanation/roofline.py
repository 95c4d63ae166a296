"""The roofline of a machine, and the places of a plan's candidates below it, in numbers.

A machine offers ``roofs(bits)``, operations and bytes in a second by name; and, if bytes come from
several levels of memory, ``only(name)``: itself with a second for each byte out of one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm.s_tir.analysis import estimate_tir_flops

from ...tir.types import bits_of
from ..plan_record import PlanRecord
from ..problems.problem import Problem
from ..problems.space import Points
from ..search.search import Candidate


@dataclass(frozen=True)
class Roofline:
    """Candidates as points below roofs; operations are those that the function as written has.

    - `flops`: operations in a second at most, by what executes them.
    - `bandwidths`: bytes in a second at most, by the level of memory that they come from.
    - `level`: name of the level that the intensity is about: the one whose bytes take longest.
    - `intensity`: for each candidate, operations for each byte out of that level; infinite if it
      moves no bytes.
    - `speed`: for each candidate, operations in a second, as predicted.
    """

    flops: dict[str, float]
    bandwidths: dict[str, float]
    level: str
    intensity: tuple[float, ...]
    speed: tuple[float, ...]


def roofline(plan: PlanRecord, problem: Problem, candidates: list[Candidate]) -> Roofline | None:
    """Return the roofline of a plan, None where the machine has no roofs.

    - `plan`: ``plan.machine.roofs(bits)`` are the roofs.
    - `problem`: the problem of the plan.
    - `candidates`: points of its space.
    """
    roofs = getattr(plan.machine, "roofs", None)
    if roofs is None:
        return None
    bits = getattr(problem, "bits", None) or bits_of(problem.dtype)
    flops, bandwidths = roofs(bits)
    operations = float(estimate_tir_flops(tvm.IRModule({"main": problem.func})))
    moved = _moved(plan.machine, problem, bandwidths, candidates)
    level = max(bandwidths, key=lambda name: moved[name].sum() / bandwidths[name])
    with np.errstate(divide="ignore"):
        intensity = operations / moved[level]
    speed = tuple(operations / each.cost for each in candidates)
    return Roofline(flops, bandwidths, level, tuple(map(float, intensity)), speed)


def _moved(
    machine: Any, problem: Any, bandwidths: dict[str, float], candidates: list[Candidate]
) -> dict[str, np.ndarray]:
    """Return the bytes that each candidate moves out of each level of memory."""
    points = Points.of([each.point for each in candidates])
    if len(bandwidths) == 1:
        ((name, rate),) = bandwidths.items()
        return {name: rate * problem.cost(points).traffic}
    return {
        name: np.asarray(replace(problem, machine=machine.only(name)).cost(points).traffic)
        for name in bandwidths
    }
