"""A product of two matrices on a processor: blocks of register tiles.

y[m, n] = epilogue(sum_k a[m, k] * b[k, n])

for blocks of rows, for blocks of columns            in parallel
  for tiles of rows, for tiles of columns            or the other way round
    for k                                            unrolled by some
      for rows of the tile, for vectors of it        all unrolled: the sums stay in registers
    the tail, on the finished tile
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tvm import s_tir

from ....kernels.cpu.product import scheduled
from ...machines.cpu import Cpu
from ..cost import Terms
from ..legal_modes import applicable
from ..patterns import Product, match_product
from ..problem import fusion_variable
from ..request import Request
from ..space import Constraint, Point, Points, Space, Variable, divisors
from .product_cost import terms

#: Rows and vectors of a register tile, and steps of k that are written out, at most. More of them
#: than there are registers in any machine would only make LLVM slow.
_ROWS, _VECTORS, _UNROLL = 16, 8, (1, 2, 4)
#: About how many rows or columns the blocks have that are tried, besides one tile and all.
_BLOCKS = (16, 64, 256)


@dataclass(frozen=True)
class ProductProblem(Product[Cpu]):
    """A product of matrices and a processor; see :class:`.problem.Problem`."""

    # ---- What is chosen from ---------------------------------------------------------------------

    @cached_property
    def space(self) -> Space:
        """The variables, and what registers and caches forbid."""
        return Space(self._variables(), (*self._divisibility(), *self._limits()))

    def _variables(self) -> tuple[Variable, ...]:
        m, n, k = (self.sizes[letter] for letter in "mnk")
        widest = self.machine.lanes(self.bits)
        lanes = tuple(each for each in (widest // 2, widest) if each > 1 and n % each == 0) or (1,)
        rows, vectors = divisors(m, _ROWS), divisors(n, _VECTORS)
        threads = tuple(dict.fromkeys((1, self.machine.cores)))
        return (
            fusion_variable(self.epilogue),
            Variable("rows", rows, "rows", "rows of a register tile"),
            Variable("vectors", vectors, "vectors", "vectors of columns of a register tile"),
            Variable("lanes", lanes, "elements", "elements of a vector"),
            Variable("unroll", _dividing(_UNROLL, k), "steps", "steps of k that are written out"),
            Variable("block_rows", _blocks(m), "rows", "rows of a block"),
            Variable("block_columns", _blocks(n, min(lanes)), "columns", "columns of a block"),
            Variable(
                "order",
                (0, 1),
                "",
                "which tiles of a block come after one another",
                ("columns innermost", "rows innermost"),
            ),
            Variable(
                "pack", (0, 1), "", "whether b is copied first, tile after tile", ("no", "yes")
            ),
            Variable("threads", threads, "cores", "cores that compute blocks"),
        )

    def _divisibility(self) -> tuple[Constraint, ...]:
        return (
            Constraint(
                "whole vectors",
                0,
                "columns",
                lambda p: self.sizes["n"] % self.width(p),
                "tiles of columns divide the columns",
                costed=False,
            ),
            Constraint(
                "whole blocks",
                0,
                "elements",
                _outside_of_blocks,
                "tiles divide blocks",
                costed=False,
            ),
        )

    def _limits(self) -> tuple[Constraint, ...]:
        l1, l2 = self.machine.cache("L1"), self.machine.cache("L2")
        return (
            Constraint(
                "registers",
                self.machine.registers,
                "registers",
                lambda p: p["rows"] * p["vectors"],
                "each sum of a tile has a register",
            ),
            Constraint(
                "L1",
                l1.bytes,
                "bytes",
                lambda p: self._step_bytes(p, l1.line),
                "what one step of a tile touches stays in the first cache",
            ),
            Constraint(
                "L2",
                l2.bytes,
                "bytes",
                self._panel_bytes,
                "the columns of b of a block stay in the second cache, unless a block is "
                "one tile wide",
            ),
            Constraint(
                "tasks",
                0,
                "cores",
                lambda p: (p["threads"] > 1) & (self.tasks(p) < 2),
                "several cores need several blocks",
            ),
        )

    def _step_bytes(self, p: Points, line: int) -> Any:
        width = self.width(p) * self.b.bytes
        per_row = self.b.bytes * p["unroll"] if not self.a.transposed else line
        a = p["rows"] * -(-per_row // line) * line
        b = p["unroll"] * -(-width // line) * line
        return a + b + p["rows"] * self.width(p) * self.bits // 8

    def _panel_bytes(self, p: Points) -> Any:
        block = np.maximum(p["block_columns"], self.width(p))
        panel = self.sizes["k"] * block * self.b.bytes
        return np.where(p["block_columns"] <= self.width(p), 0, panel)

    def width(self, p: Points) -> Any:
        """Return the columns of a register tile."""
        return p["vectors"] * p["lanes"]

    def tasks(self, p: Points) -> Any:
        """Return how many blocks there are."""
        block_rows = self.sizes["m"] // p["block_rows"]
        return block_rows * (self.sizes["n"] // p["block_columns"])

    # ---- What it costs, and the schedule ---------------------------------------------------------

    def cost(self, points: Points) -> Terms:
        """Return the terms of the cost of points."""
        return terms(self, points)

    def apply(self, point: Point) -> s_tir.Schedule:
        """Return the function scheduled."""
        self.space.check(point)
        sch, reduction = self.request.scheduled()
        return scheduled(sch, reduction, self.epilogue, self.b, point)


def find_product(request: Request) -> ProductProblem | None:
    """Return the product of matrices that a function is, None if it is something else.

    - Raises ValueError: TVM's primitives refuse every way to schedule the product; or the function
      has a reduction, and an axis of size 0.
    """
    return applicable(match_product(request, ProductProblem))


def _outside_of_blocks(p: Points) -> Any:
    return p["block_rows"] % p["rows"] + p["block_columns"] % (p["vectors"] * p["lanes"])


def _dividing(sizes: tuple[int, ...], size: int) -> tuple[int, ...]:
    return tuple(each for each in sizes if size % each == 0)


def _blocks(size: int, unit: int = 1) -> tuple[int, ...]:
    """Return how many rows or columns a block may have: all, and divisors near some sizes.

    Tiles are multiples of a unit, which divides the size; one of them is as small as any tile.
    """
    found = [unit * max(divisors(size // unit, max(1, near // unit))) for near in _BLOCKS]
    return tuple(dict.fromkeys([*found, size]))
