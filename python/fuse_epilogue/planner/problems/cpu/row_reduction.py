"""Rows of a matrix reduced to a number each, on a processor.

    y[m] = epilogue(op_n x[m, n])

A sum is taken in one of two ways, by the number of lanes:

    1 lane:   for tiles of rows, in parallel: for n, unrolled by some: for rows of the tile
    vectors:  for rows, in parallel: for steps of n: for vectors: one partial result for each lane;
              then the partial results are reduced, one by one

Partial results start from the neutral element: the second way leaves a bias to the tail.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tvm import s_tir

from ....kernels.cpu.row_reduction import scheduled
from ....rewrites.epilogue import ABSORBED, NONE
from ...machines.cpu import Cpu
from ..cost import Terms, overlapped, traffic_seconds, usable_cores
from ..legal_modes import applicable
from ..nest import Access, Nest
from ..patterns import Rows, match_rows
from ..problem import fusion_variable
from ..request import Request
from ..space import Constraint, Point, Points, Space, Variable, divisors

_ROWS, _VECTORS, _UNROLL = 16, 8, (1, 2, 4, 8)
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
#: Partial results that are reduced one by one, at most: more make LLVM slow.
_PARTIAL = 128


@dataclass(frozen=True)
class RowsProblem(Rows[Cpu]):
    """A reduction of rows and a processor; see :class:`.problem.Problem`."""

    @cached_property
    def space(self) -> Space:
        """The variables, and what forbids some of their values."""
        return Space(self._variables(), self._constraints())

    def _variables(self) -> tuple[Variable, ...]:
        m, n = self.sizes["m"], self.sizes["n"]
        widest = self.machine.lanes(self.bits)
        lanes = tuple(dict.fromkeys((1, *(max(1, widest // part) for part in (4, 2, 1)))))
        unroll = tuple(each for each in _UNROLL if n % each == 0)
        threads = tuple(dict.fromkeys((1, self.machine.cores)))
        return (
            fusion_variable(self.epilogue),
            Variable("rows", divisors(m, _ROWS), "rows", "rows that are reduced together"),
            Variable("vectors", divisors(n, _VECTORS), "vectors", "vectors of a step of n"),
            Variable("lanes", lanes if self.splits else (1,), "elements", "elements of a vector"),
            Variable("unroll", unroll, "steps", "steps of n that are written out"),
            Variable("threads", threads, "cores", "cores that reduce rows"),
        )

    def _constraints(self) -> tuple[Constraint, ...]:
        m, n = self.sizes["m"], self.sizes["n"]
        return (
            Constraint(
                "whole steps",
                0,
                "columns",
                lambda p: n % (_width(p) * p["unroll"]),
                "steps divide the columns",
                costed=False,
            ),
            Constraint(
                "one way",
                1,
                "",
                lambda p: np.where(p["lanes"] == 1, p["vectors"], p["rows"]),
                "rows are reduced together without vectors, or one by one in vectors",
                costed=False,
            ),
            Constraint(
                "start",
                0,
                "sums",
                lambda p: (p["lanes"] > 1) & (p["fusion"] == ABSORBED),
                "partial results start from the neutral element: none can start from a bias",
            ),
            Constraint(
                "registers",
                self.machine.registers,
                "registers",
                lambda p: p["rows"] * p["vectors"],
                "each partial result has a register",
            ),
            Constraint(
                "partial results",
                _PARTIAL,
                "elements",
                _width,
                "they are reduced one by one at the end of a row",
            ),
            Constraint(
                "tasks",
                0,
                "cores",
                lambda p: (p["threads"] > 1) & (m // p["rows"] < 2),
                "several cores need several tiles",
            ),
        )

    def cost(self, points: Points) -> Terms:
        """Return the terms of the cost of points."""
        p, machine, core, epilogue = points, self.machine, self.machine.core, self.epilogue
        m, n = self.sizes["m"], self.sizes["n"]
        apart = (p["fusion"] == NONE) & (epilogue.blocks > 0)
        row, column = (("m0", p["rows"]), ("m1", 1)), (("n", 1),)
        usable = np.where(p["threads"] > 1, usable_cores(m // p["rows"], p["threads"]), 1.0)

        def traffic(cores: Any) -> Any:
            nest = Nest(
                (("m0", m // p["rows"] / cores), ("n", n), ("m1", p["rows"])),
                (
                    Access("x", (row, column), self.bytes, row=n * self.bytes),
                    Access("y", (row,), np.where(apart, 2, 1) * self.bits // 8, True, behind="n"),
                ),
            )
            return traffic_seconds(nest, machine, cores)

        rows, vectors, unroll = p["rows"], p["vectors"], p["unroll"]
        sums = rows * vectors
        converts = sums if self.dtype not in ("float32", "float64") else 0
        steps = n // _width(p)
        issued = 2 * sums + converts + 3 / _WRITTEN
        waits = core.add_latency / np.maximum(1.0, core.window / (steps * issued))
        # LLVM makes vectors of rows that are one after the other, element by element.
        lanes = np.where(unroll == 1, _LANES, _LANES_UNROLLED)
        gathered = np.where(p["lanes"] == 1, rows // lanes * lanes, 0)
        step = np.maximum.reduce(
            np.broadcast_arrays(
                (sums + converts) / core.add,
                sums / core.load,
                issued / core.issue,
                waits,
                gathered * _GATHERED,
            )
        )
        absorbed = p["fusion"] == ABSORBED
        after = (epilogue.operations - epilogue.absorbed * absorbed) / core.add
        after = after + len(epilogue.loads) / core.load + 1 / core.store
        # LLVM makes vectors of neighbouring rows where each is written out, with what follows.
        rolled = (p["lanes"] > 1) | (n > _SHORT)
        vector = np.where(apart | ~rolled, machine.lanes(self.bits), 1)
        # The partial results are added one after the other; consecutive rows overlap.
        width = np.where(p["lanes"] > 1, _width(p), 0)
        whole = np.maximum(1.0, core.window / (steps * issued + 2 * width))
        finish = width * core.add_latency / whole + width / core.load
        # In loops of its own what follows is computed in vectors; on a row it waits for its sum.
        follows = ~apart & (epilogue.blocks > 0) & (p["lanes"] > 1)
        finish = finish + follows * _AFTER_SUM * core.latency / whole
        unforeseen = core.branch * (steps // _WRITTEN > core.predicted)
        tile = steps * step + rows * (after / vector + finish) + unforeseen + 4 / core.issue
        several = p["threads"] > 1
        latency = m // rows * tile / machine.clock_hz
        live = sums + 1 + (converts > 0)
        over = np.maximum(0, live - machine.registers)
        spill = over * (1 / core.store + 1 / core.load) * steps * (m // rows) / machine.clock_hz
        # What follows has a loop that is not parallel.
        started = machine.call_s + several * machine.launch_s
        return overlapped(latency, traffic(usable), spill, started, usable)

    def apply(self, point: Point) -> s_tir.Schedule:
        """Return the function scheduled."""
        self.space.check(point)
        sch, _ = self.request.scheduled()
        return scheduled(sch, self.machine.lanes(self.bits), point)


def find_rows(request: Request) -> RowsProblem | None:
    """Return the reduction of rows that a function is, None if it is something else.

    Raises
    ------
    ValueError
        TVM's primitives refuse every way to schedule the reduction of rows, or an axis has size 0.
    """
    return applicable(match_rows(request, RowsProblem), lambda p: p["lanes"] > 1)


def _width(p: Points) -> Any:
    """Return the columns of a step."""
    return p["vectors"] * p["lanes"]
