"""Leaves out the ways to fuse that TVM's primitives refuse: one point of each is applied.

Whether a schedule can be made depends on what follows the reduction, and not on the sizes of tiles.
It is found out where the problem is, so that a plan that was read from JSON finds the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from tvm import s_tir, tirx

from ..._printed import last_line
from ...rewrites.epilogue import LABELS
from ...tir.nest import child_blocks
from ...tir.walk import same
from .space import Point, Points, Space

Same = TypeVar("Same")


def applicable(found: Same | None, apart: Callable[[Points], Any] | None = None) -> Same | None:
    """Return a problem without the ways to fuse that cannot be applied, and with the reasons.

    - `found`: the problem that was found; None stays None.
    - `apart`: returns for each point which of several forms it has: each is tried.
    - Raises ValueError: no way is left; the message says why.
    """
    if found is None:
        return None
    problem: Any = found
    space, refused = problem.space, dict[int, str]()
    for mode in problem.epilogue.modes:
        for point in _tried(space, mode, apart):
            try:
                problem.apply(point)
            except s_tir.ScheduleError as error:
                refused[mode] = _reason(problem.func, error)
                break
    if not refused:
        return found
    epilogue = problem.epilogue
    modes = tuple(mode for mode in epilogue.modes if mode not in refused)
    reasons = [epilogue.why] if epilogue.why else []
    for reason in dict.fromkeys(refused.values()):
        ways = (f"no {LABELS[mode]}" for mode, each in refused.items() if each == reason)
        reasons.append(f"{' and '.join(ways)}: {reason}")
    why = "; ".join(reasons)
    if not modes:
        raise ValueError(
            f"this function of kind '{problem.kind}' cannot be scheduled: {why}; "
            "schedule it by hand, or search with fuse_epilogue.tune"
        )
    made: Same = replace(problem, epilogue=replace(epilogue, modes=modes, why=why))
    return made


def _tried(space: Space, mode: int, apart: Callable[[Points], Any] | None) -> Iterator[Point]:
    """Return a feasible point of a way to fuse, of each form: the last one, which does most."""
    fusion = space.by_name["fusion"]
    only = replace(fusion, choices=(mode,), labels=(fusion.label(mode),))
    variables = tuple(only if each is fusion else each for each in space.variables)
    points, _ = replace(space, variables=variables).feasible()
    forms = np.zeros(points.size) if apart is None else np.asarray(apart(points))
    for form in np.unique(forms):
        yield points.at(int(np.nonzero(forms == form)[0][-1]))


def _reason(func: tirx.PrimFunc, error: s_tir.ScheduleError) -> str:
    """Return why TVM refuses a schedule."""
    for block in child_blocks(func):
        for region in block.reads:
            if block.init is None and any(same(region.source, w.source) for w in block.writes):
                name = str(region.source.name)
                return (
                    f"'{block.name_hint}' reads '{name}' and writes it, and TVM's primitives take "
                    "such a block for a reduction: let it write another buffer"
                )
    return f"TVM refuses its loops: {last_line(error)}"
