"""A product of two matrices on a GPU: tiles in shared memory, and tiles in registers.

y[m, n] = epilogue(sum_k a[m, k] * b[k, n])

for tiles of rows and columns                      a block each
  for a thread's rows and columns of them          a thread each
    for steps of k
      the tiles of a and b of that step, or of one to come, into shared memory, all threads together
      for k of the step
        for rows, for columns of the thread        unrolled by nvcc: sums in registers
    the tail, on the finished tile of the thread

With one buffer, all threads wait for the tiles of a step before they use them. With two, those of
the next step are loaded while those of this one are used. That hides a wait only where no thread
has to wait for its own loads, to store them: so they are asynchronous copies ("cp.async", from
sm_80 on), in TVM's software pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tvm import s_tir

from ....kernels.cuda import copies
from ....kernels.cuda.depthwise.code import VECTOR_BYTES, has_vectors, is_compact
from ....kernels.cuda.fusing import in_plain_loops
from ....kernels.cuda.product import scheduled
from ....tir.affine import as_constant
from ...machines.gpu import Gpu
from ..cost import Terms
from ..legal_modes import applicable
from ..patterns import Product, match_product
from ..problem import fusion_variable
from ..request import Request
from ..space import Constraint, Point, Points, Space, Variable
from .kernel import element_threads, limits, near_powers
from .product_cost import costs, kernel

#: Rows and columns of a thread, threads along each axis, steps of k: powers of two up to these, and
#: where a size is not divided by one, the largest divisor below it. More results of a thread than
#: this have no registers in any machine.
_TILE, _THREADS, _STEP = 8, 32, 32
#: Buffers of a tile, where there are asynchronous copies. More of them hide more only if a step is
#: shorter than the wait of one load, and would make the largest space larger than is searched in
#: the time that planning may take.
_BUFFERS = (1, 2)


@dataclass(frozen=True)
class CudaProduct(Product[Gpu]):
    """A product of matrices and a GPU; see :class:`..problem.Problem`."""

    @cached_property
    def space(self) -> Space:
        """The variables, and what a multiprocessor forbids."""
        m, n, k = (self.sizes[letter] for letter in "mnk")
        most = VECTOR_BYTES // max(self.a.bytes, self.b.bytes) if self._has_vectors else 1
        vectors = tuple(v for v in (1, 2, 4, 8, 16) if v <= most)
        variables = (
            fusion_variable(self.epilogue),
            Variable("rows", near_powers(m, _TILE), "rows", "rows of a thread"),
            Variable("columns", near_powers(n, _TILE), "columns", "columns of a thread"),
            Variable("threads_m", near_powers(m, _THREADS), "threads", "threads along the rows"),
            Variable("threads_n", near_powers(n, _THREADS), "threads", "threads along the columns"),
            Variable(
                "step", near_powers(k, _STEP), "steps", "steps of k in shared memory at a time"
            ),
            Variable("vector", vectors, "elements", "elements of a load into shared memory"),
            Variable(
                "buffers",
                _BUFFERS if self._has_copies else (1,),
                "buffers",
                "buffers of a tile; all but one are loaded while that one is used",
            ),
        )
        constraints = (
            Constraint(
                "whole tiles",
                0,
                "elements",
                lambda p: m % self.block_rows(p) + n % self.block_columns(p),
                "tiles of blocks divide the rows and the columns",
                costed=False,
            ),
            Constraint(
                "whole vectors",
                0,
                "elements",
                self._cut_vectors,
                "vectors divide the rows of both matrices and of their tiles, and all threads load "
                "as many",
                costed=False,
            ),
            Constraint(
                "asynchronous copies",
                0,
                "bytes",
                self._not_copied,
                "where a tile has several buffers, its elements come by instructions that no "
                "thread waits for, which copy 4, 8 or 16 bytes",
                costed=False,
            ),
            Constraint(
                "buffers",
                0,
                "buffers",
                lambda p: np.maximum(p["buffers"] - k // p["step"], 0) * (p["buffers"] > 1),
                "there are at least as many steps of k as buffers to load",
                costed=False,
            ),
            *limits(self.machine, lambda p: kernel(self, p)),
        )
        return Space(variables, constraints)

    def block_rows(self, p: Points) -> Any:
        """Return the rows of a block's tile."""
        return p["rows"] * p["threads_m"]

    def block_columns(self, p: Points) -> Any:
        """Return the columns of a block's tile."""
        return p["columns"] * p["threads_n"]

    def _cut_vectors(self, p: Points) -> Any:
        m, n, k = (self.sizes[letter] for letter in "mnk")
        vector, all_at_once = p["vector"], p["threads_m"] * p["threads_n"] * p["vector"]
        cut = 0
        for tile, size, transposed in (
            (self.block_rows(p), m, self.a.transposed),
            (self.block_columns(p), n, not self.b.transposed),
        ):
            along = tile if transposed else p["step"]
            cut = cut + along % vector + (size if transposed else k) % vector
            cut = cut + tile * p["step"] % all_at_once
        # Single elements need not be as many for each thread: TVM puts a condition there.
        return np.where(vector > 1, cut, 0)

    def _not_copied(self, p: Points) -> Any:
        sizes = [p["vector"] * operand.bytes for operand in (self.a, self.b)]
        return sum(np.where((p["buffers"] > 1) & ~np.isin(s, copies.BYTES), s, 0) for s in sizes)

    @cached_property
    def _has_vectors(self) -> bool:
        """Whether there are vectors of all that is loaded and stored."""
        sch, _ = self.request.scheduled()
        blocks = map(sch.get, sch.get_child_blocks(sch.get_sblock("root")))
        regions = (region for block in blocks for region in (*block.reads, *block.writes))
        return all(has_vectors(region.source) for region in regions)

    @cached_property
    def _has_copies(self) -> bool:
        """Whether the machine copies asynchronously, and TVM sees where vectors of it begin."""
        sch, reduction = self.request.scheduled()
        read = sch.get(reduction).reads
        sources = [read[operand.place].source for operand in (self.a, self.b)]
        begins = all(is_compact(each) and as_constant(each.ty.elem_offset) == 0 for each in sources)
        return begins and copies.has_copies(self.machine.chip.arch)

    def stored(self, point: Point) -> int:
        """Return the elements of a vector that a thread stores."""
        most = VECTOR_BYTES // max(self.out_bytes, self.bits // 8) if self._has_vectors else 1
        return max(v for v in (1, 2, 4) if v <= most and point["columns"] % v == 0)

    def cost(self, points: Points) -> Terms:
        """Return the terms of the cost of points, as predicted for the GPU."""
        return costs(self, points)

    def apply(self, point: Point) -> s_tir.Schedule:
        """Return the function scheduled."""
        self.space.check(point)
        return self.scheduled(point)

    def scheduled(self, point: Point) -> s_tir.Schedule:
        """Return the function scheduled, for any point."""
        sch, reduction = self.request.scheduled()
        threads = element_threads(self.machine)
        operands, lanes = (self.a, self.b), self.stored(point)
        return scheduled(sch, reduction, self.epilogue, operands, lanes, threads, point)


def find_product(request: Request) -> CudaProduct | None:
    """Return the product of matrices that a function is, None if it is something else.

    - Raises ValueError: TVM's primitives refuse every way to schedule the product; or the function
      has a reduction, and an axis of size 0.
    """
    found = match_product(request, CudaProduct)
    # Of a matrix times itself there is one read, and the tiles of two are wanted.
    if (
        found is None
        or found.a.place == found.b.place
        or not in_plain_loops(*found.request.scheduled())
    ):
        return None
    return applicable(found)
