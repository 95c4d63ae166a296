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

import numpy as np
from tvm import s_tir

from ....kernels.cpu.row_reduction import scheduled
from ....rewrites.epilogue import ABSORBED
from ...machines.cpu import Cpu
from ..cost import Terms
from ..legal_modes import applicable
from ..patterns import Rows, match_rows
from ..problem import fusion_variable
from ..request import Request
from ..space import Constraint, Point, Points, Space, Variable, divisors
from .row_reduction_cost import cost, width

_ROWS, _VECTORS, _UNROLL = 16, 8, (1, 2, 4, 8)
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
                lambda p: n % (width(p) * p["unroll"]),
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
                width,
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
        return cost(self, points)

    def apply(self, point: Point) -> s_tir.Schedule:
        """Return the function scheduled."""
        self.space.check(point)
        sch, _ = self.request.scheduled()
        return scheduled(sch, self.machine.lanes(self.bits), point)


def find_rows(request: Request) -> RowsProblem | None:
    """Return the reduction of rows that a function is, None if it is something else.

    - Raises ValueError: TVM's primitives refuse every way to schedule the reduction of rows, or an
      axis has size 0.
    """
    return applicable(match_rows(request, RowsProblem), lambda p: p["lanes"] > 1)
