"""The cost of rows that are reduced to a number each, on a processor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ....rewrites.epilogue import ABSORBED, NONE
from ..cost import Terms, overlapped, traffic_seconds, usable_cores
from ..nest import Access, Nest
from ..space import Points

if TYPE_CHECKING:
    from .row_reduction import RowsProblem

#: Rows that LLVM makes a vector of, where steps are written out and where they are not, and clocks
#: for each of its elements: measured, on znver5.
_LANES, _LANES_UNROLLED, _GATHERED = 4, 8, 1.4
#: Steps that LLVM unrolls, with or without a mark.
_WRITTEN = 8
#: Columns of rows that LLVM writes out.
_SHORT = 16
#: Instructions that wait for one another after a row's sum: to add the last partial results, what
#: follows, to store.
_AFTER_SUM = 4


def cost(problem: RowsProblem, p: Points) -> Terms:
    """Return the terms of the cost of points."""
    machine, core = problem.machine, problem.machine.core
    tiles, rows = problem.sizes["m"] // p["rows"], p["rows"]
    steps = problem.sizes["n"] // width(p)
    several = p["threads"] > 1
    # In loops of its own, what follows is not on the row.
    apart = (p["fusion"] == NONE) & (problem.epilogue.blocks > 0)
    usable = np.where(several, usable_cores(tiles, p["threads"]), 1.0)
    unforeseen = core.branch * (steps // _WRITTEN > core.predicted)
    step, follows = _step(problem, p, steps), _follows(problem, p, apart)
    finish = _finish(problem, p, steps, apart)
    tile = steps * step + rows * (follows + finish) + unforeseen + 4 / core.issue
    latency = tiles * tile / machine.clock_hz
    converts = _converts(problem, p)
    over = np.maximum(0, rows * p["vectors"] + 1 + (converts > 0) - machine.registers)
    spill = over * (1 / core.store + 1 / core.load) * steps * tiles / machine.clock_hz
    # What follows has a loop that is not parallel.
    started = machine.call_s + several * machine.launch_s
    return overlapped(latency, _traffic(problem, p, apart, usable), spill, started, usable)


def width(p: Points) -> Any:
    """Return the columns of a step."""
    return p["vectors"] * p["lanes"]


def _converts(problem: RowsProblem, p: Points) -> Any:
    """Return the conversions of a step: each element is converted to the type of the sum."""
    return p["rows"] * p["vectors"] if problem.dtype not in ("float32", "float64") else 0


def _issued(problem: RowsProblem, p: Points) -> Any:
    """Return the instructions of a step: loads, sums and conversions, and the loop's own."""
    return 2 * (p["rows"] * p["vectors"]) + _converts(problem, p) + 3 / _WRITTEN


def _step(problem: RowsProblem, p: Points, steps: Any) -> Any:
    """Return the clocks of a step: those of the unit that takes the longest."""
    core, sums, issued = problem.machine.core, p["rows"] * p["vectors"], _issued(problem, p)
    waits = core.add_latency / np.maximum(1.0, core.window / (steps * issued))
    # LLVM makes vectors of rows that are one after the other, element by element.
    lanes = np.where(p["unroll"] == 1, _LANES, _LANES_UNROLLED)
    gathered = np.where(p["lanes"] == 1, p["rows"] // lanes * lanes, 0)
    return np.maximum.reduce(
        np.broadcast_arrays(
            (sums + _converts(problem, p)) / core.add,
            sums / core.load,
            issued / core.issue,
            waits,
            gathered * _GATHERED,
        )
    )


def _follows(problem: RowsProblem, p: Points, apart: Any) -> Any:
    """Return the clocks of what follows a row's sum."""
    core, epilogue = problem.machine.core, problem.epilogue
    absorbed = p["fusion"] == ABSORBED
    clocks = (epilogue.operations - epilogue.absorbed * absorbed) / core.add
    clocks = clocks + len(epilogue.loads) / core.load + 1 / core.store
    # LLVM makes vectors of neighbouring rows where each is written out, with what follows.
    rolled = (p["lanes"] > 1) | (problem.sizes["n"] > _SHORT)
    return clocks / np.where(apart | ~rolled, problem.machine.lanes(problem.bits), 1)


def _finish(problem: RowsProblem, p: Points, steps: Any, apart: Any) -> Any:
    """Return the clocks from the partial results of a row to its sum, and waiting for that."""
    core = problem.machine.core
    # The partial results are added one after the other; consecutive rows overlap.
    partial = np.where(p["lanes"] > 1, width(p), 0)
    issued = steps * _issued(problem, p) + 2 * partial
    overlap = np.maximum(1.0, core.window / issued)
    clocks = partial * core.add_latency / overlap + partial / core.load
    # In loops of its own what follows is computed in vectors; on a row it waits for its sum.
    waits = ~apart & (problem.epilogue.blocks > 0) & (p["lanes"] > 1)
    return clocks + waits * _AFTER_SUM * core.latency / overlap


def _traffic(problem: RowsProblem, p: Points, apart: Any, cores: Any) -> Any:
    """Return the seconds that moving data takes, where some cores share the rows."""
    m, n = problem.sizes["m"], problem.sizes["n"]
    row, column = (("m0", p["rows"]), ("m1", 1)), (("n", 1),)
    y_bytes = np.where(apart, 2, 1) * problem.bits // 8
    nest = Nest(
        (("m0", m // p["rows"] / cores), ("n", n), ("m1", p["rows"])),
        (
            Access("x", (row, column), problem.bytes, row=n * problem.bytes),
            Access("y", (row,), y_bytes, True, behind="n"),
        ),
    )
    return traffic_seconds(nest, problem.machine, cores)
