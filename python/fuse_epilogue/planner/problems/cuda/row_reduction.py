"""Rows of a matrix reduced to a number each, on a GPU.

    y[m] = epilogue(op_n x[m, n])

Each row has some threads, by the number of lanes:

    1 lane:   a thread reduces a row from its begin to its end
    several:  each reduces every n-th vector of the row; then they reduce what they have
              together, by TVM's cross-thread reduction: shuffles, and shared memory beyond a warp

A cross-thread reduction starts from the neutral element, in each thread: TVM refuses any other
T.init. It leaves a bias to the tail, which the first thread of a row computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tvm import s_tir

from ....kernels.cuda.depthwise.code import VECTOR_BYTES, has_vectors
from ....kernels.cuda.fusing import in_plain_loops
from ....kernels.cuda.row_reduction import scheduled
from ....rewrites.epilogue import ABSORBED, NONE
from ...machines.gpu import Gpu
from ..cost import Terms
from ..legal_modes import applicable
from ..patterns import Rows, match_rows
from ..problem import fusion_variable
from ..request import Request
from ..space import Constraint, Point, Points, Space, Variable
from .kernel import (
    ADDRESSES,
    LINE,
    SECTOR,
    Kernel,
    beyond_cache,
    element_threads,
    elementwise,
    limits,
    near_powers,
    terms,
)

_UNROLL = (1, 2, 4, 8)
#: Rows of a block, at most.
_ROWS = 256


@dataclass(frozen=True)
class CudaRows(Rows[Gpu]):
    """A reduction of rows and a GPU; see :class:`..problem.Problem`."""

    # ---- What is chosen from ---------------------------------------------------------------------

    @cached_property
    def space(self) -> Space:
        """The variables, and what forbids some of their values."""
        sch, reduction = self.request.scheduled()
        block = sch.get(reduction)
        accumulator = str(block.body.buffer.ty.dtype)
        constraints = (
            *self._across_threads(accumulator),
            Constraint(
                "whole steps",
                0,
                "columns",
                self._left_over,
                "steps of all lanes divide the columns",
                costed=False,
            ),
            *limits(self.machine, self.kernel),
        )
        return Space(self._variables(block), constraints)

    def _variables(self, block: Any) -> tuple[Variable, ...]:
        m, n = self.sizes["m"], self.sizes["n"]
        wide = all(has_vectors(region.source) for region in block.reads)
        most = max(1, VECTOR_BYTES // self.bytes) if wide else 1
        vectors = tuple(v for v in (1, 2, 4, 8, 16) if v <= most and n % v == 0)
        return (
            fusion_variable(self.epilogue),
            Variable(
                "lanes",
                near_powers(n, self.machine.block_threads),
                "threads",
                "threads that reduce a row together",
            ),
            Variable("rows", near_powers(m, _ROWS), "rows", "rows of a block"),
            Variable("vector", vectors, "elements", "elements of a load"),
            Variable("unroll", _UNROLL, "steps", "loads of a thread that are under way together"),
        )

    def _across_threads(self, accumulator: str) -> tuple[Constraint, ...]:
        """Return what TVM's cross-thread reduction forbids."""
        warp = self.machine.warp
        # What TVM's `LowerThreadAllreduce` shuffles, see `is_warp_reduction` there.
        shuffled = accumulator == "float16" or self.bits in (32, 64)
        return (
            Constraint(
                "start",
                0,
                "sums",
                lambda p: (p["lanes"] > 1) & (p["fusion"] == ABSORBED),
                "a cross-thread reduction starts from the neutral element in each thread: none "
                "can start from a bias",
            ),
            Constraint(
                "neutral element",
                1,
                "threads of a row",
                lambda p: np.where(self.splits, 1, p["lanes"]),
                "TVM must know the neutral element of T.init to reduce across threads",
            ),
            Constraint(
                "shuffles",
                1,
                "threads of a row",
                lambda p: np.where(shuffled, 1, p["lanes"]),
                f"TVM does not shuffle {accumulator}: it reduces across threads in shared memory, "
                "and counts on threads of a warp to be in step, which they need not be",
            ),
            Constraint(
                "whole warps",
                0,
                "threads",
                lambda p: (
                    np.where(p["rows"] == 1, np.maximum(0, p["lanes"] - warp), 0)
                    * (p["lanes"] % warp > 0)
                ),
                "a single row has whole warps beyond the first: TVM's code for others counts on "
                "threads of a warp to be in step, which they need not be",
            ),
        )

    def _left_over(self, p: Points) -> Any:
        return self.sizes["n"] % (p["lanes"] * p["vector"] * p["unroll"])

    # ---- What it costs ---------------------------------------------------------------------------

    def kernel(self, p: Points) -> Kernel:
        """Return what the kernel of the reduction does."""
        gpu, chip, epilogue = self.machine, self.machine.chip, self.epilogue
        m, n = self.sizes["m"], self.sizes["n"]
        lanes, vector, unroll = p["lanes"], p["vector"], p["unroll"]
        threads, blocks = p["rows"] * lanes, m // p["rows"]
        steps = n // (lanes * vector)
        # A load takes the unit a clock for each word, and for each line: short rows share some.
        row = n * self.bytes
        lines = gpu.warp / np.minimum(lanes, gpu.warp) * min(1.0, row / LINE)
        load = np.maximum(np.maximum(1.0, vector * self.bytes / 4), lines)
        fused = (p["fusion"] != NONE) & (epilogue.blocks > 0)
        absorbed = epilogue.absorbed * (p["fusion"] == ABSORBED)
        after = (epilogue.operations - absorbed) * fused
        shuffles, shared = self._across(p)
        converts = steps * vector * (self.dtype not in ("float32", "int32"))
        elements = steps * vector
        chain = steps / unroll * chip.memory_latency + elements * chip.latency
        chain = chain + shuffles * chip.shared_latency + after * chip.latency
        read = m * n * self.bytes
        # Where the lanes of a row take less than a sector, the rest of it is loaded again unless
        # the first cache still has it: it has room for a line of that many rows.
        whole = min(row, SECTOR)
        near = np.minimum(lanes * vector * self.bytes, whole)
        at_once = np.minimum(chip.threads // np.maximum(lanes, 1), m)
        again = np.where(at_once * LINE <= chip.shared, 1.0, whole / near)
        written = m * self.bits // 8
        return Kernel(
            threads=threads,
            blocks=blocks,
            live=ADDRESSES + unroll * np.maximum(1, vector * self.bytes // 4) + vector,
            shared=shared,
            fma=elements + shuffles + after,
            convert=converts,
            words=steps * load + shuffles + len(epilogue.loads) * fused + 1,
            others=(1.0 + 2.0 / unroll) * steps + shuffles + len(epilogue.loads) * fused + 1,
            chain=chain,
            held=steps / unroll,
            memory=beyond_cache(gpu, read, written),
            cached=read * again + written,
        )

    def _across(self, p: Points) -> tuple[Any, Any]:
        """Return what a thread does to reduce across threads, and the block's shared memory."""
        warp, lanes, rows = self.machine.warp, p["lanes"], p["rows"]
        rounds = np.ceil(np.log2(lanes))
        several = np.ceil(lanes / warp)
        # Halves by shuffles; warps leave what they have in shared memory, after a barrier.
        by_shuffles = rounds + np.where(several > 1, 4, 0)
        in_warps = np.where(lanes < warp, warp % lanes, lanes % warp) == 0
        in_warps |= (lanes < warp) & (rows == 1)
        size = self.bits // 8
        staged = np.where(several > 1, (several + 1) * rows * size, 0)
        # Otherwise halves go through shared memory, each after a barrier.
        return (
            np.where(in_warps, by_shuffles, 3 * rounds + 2),
            np.where(in_warps, staged, lanes * rows * size),
        )

    def cost(self, points: Points) -> Terms:
        """Return the terms of the cost of points, as predicted for the GPU."""
        epilogue, m, size = self.epilogue, self.sizes["m"], self.bits // 8
        after = elementwise(self.machine, m, epilogue.operations, len(epilogue.loads), size, size)
        apart = (points["fusion"] == NONE) & (epilogue.blocks > 0)
        return terms(self.machine, ((1, self.kernel(points)), (apart, after)), points.size)

    # ---- The schedule ----------------------------------------------------------------------------

    def apply(self, point: Point) -> s_tir.Schedule:
        """Return the function scheduled."""
        self.space.check(point)
        sch, reduction = self.request.scheduled()
        return scheduled(sch, reduction, self.epilogue, element_threads(self.machine), point)


def find_rows(request: Request) -> CudaRows | None:
    """Return the reduction of rows that a function is, None if it is something else.

    - Raises ValueError: TVM's primitives refuse every way to schedule the reduction of rows, or an
      axis has size 0.
    """
    found = match_rows(request, CudaRows)
    if found is None or not in_plain_loops(*found.request.scheduled()):
        return None
    return applicable(found, lambda p: p["lanes"] > 1)
