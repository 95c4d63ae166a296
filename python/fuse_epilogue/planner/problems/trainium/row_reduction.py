"""Rows reduced to a number each, on Trainium: rows are on partitions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tvm import s_tir

from ....kernels.trainium.row_blocks import Rows
from ....kernels.trainium.row_reduction import WIDTHS, cut, find_reduced, write
from ....neuron.trace import ITEMSIZE
from ..request import Request
from ..space import Point, Points, Space, Variable
from .buffers import buffers, in_flight, in_turns
from .fusion_modes import OnTrainium, find_ways
from .refused import check_sizes
from .work import Work, cycle, rate, size_of, start, stretched


@dataclass(frozen=True)
class TrainiumRows(OnTrainium):
    """A reduction of rows and what follows it, on one NeuronCore."""

    kind = "rows"

    @property
    def rows(self) -> Rows:
        """The reduction."""
        found: Rows = self.ways.any
        return found

    @property
    def dtype(self) -> str:
        """Type of x."""
        return str(self.func.params[0].ty.dtype)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Rows and columns."""
        return {"m": self.rows.size("m"), "n": self.rows.size("n")}

    @cached_property
    def space(self) -> Space:
        """The space of choices, and the limit of SBUF."""
        return Space(
            (
                *self.fusion,
                Variable("columns", self._widths, "columns", "columns of a tile"),
                buffers(),
            ),
            (*self.constraints, *in_flight(self.core, lambda p: p["columns"] * self._column)),
        )

    @property
    def _widths(self) -> tuple[int, ...]:
        """All columns in up to 16 pieces, and what the rule takes."""
        n = self.sizes["n"]
        pieces = {-(-n // count) for count in range(1, 17)}
        usual = {min(width, n) for width in (*WIDTHS, 512, 8192, 16384)}
        return tuple(sorted(pieces | usual, reverse=True))

    @property
    def _column(self) -> int:
        """Bytes of a column of a tile: what is loaded, and what is computed before it is summed."""
        loaded = {
            str(param.name): ITEMSIZE[str(param.ty.dtype)]
            for param in self.func.params[:-1]
            if self.sizes["n"] in [int(extent) for extent in param.ty.shape]
        }
        return sum(loaded.values()) + 4 * (len(loaded) > 1 or self.dtype != "float32")

    def work(self, points: Points) -> Work:
        """Return what the kernels of points ask of the machine."""
        core, (m, n), width = self.core, self.sizes.values(), points["columns"]
        inputs: Any = sum(size_of(param) for param in self.ways.any.func.params[:-1])
        apart = self.is_apart(points)
        if self.ways.first is not None:
            inputs = np.where(
                apart, sum(size_of(param) for param in self.ways.first.func.params[:-1]), inputs
            )
        result = np.where(apart, 4 * m, size_of(self.func.params[-1]))
        size = ITEMSIZE[self.dtype]
        tiles = -(-m // core.partitions) * -(-n // width)
        elements = -(-m // core.partitions) * n
        first = min(m, core.partitions) * width * size / rate(core)
        # A tile is reduced, and its result is joined with that of those before it.
        last = (width + 2 * core.access_cycles) * cycle(core, "vector")
        work = Work(
            (inputs + result) / rate(core),
            {"vector": elements * cycle(core, "vector")},
            {
                "dma": m * n * size / rate(core) * (stretched(core, width * size) - 1)
                + tiles * core.dma_issue_us * 1e-6
                + last
                + 2 * start(core),
                "vector": tiles * 2 * core.access_cycles * cycle(core, "vector")
                + first
                + 2 * start(core),
            },
            self._fixed(width) + 3 * tiles + 2 * -(-m // core.partitions),
            in_turns(points, tiles, first + last + start(core)),
        )
        return self.with_rest(points, work)

    def _fixed(self, width: Any) -> Any:
        """Return the steps of a kernel however few tiles it has.

        Measured on 31 to 4096 rows: 10 ms, and where the last tiles of rows are smaller than the
        others 16 ms more, where those of columns are 7 ms more: TVM takes longer to schedule it.
        """
        m, n = self.sizes.values()
        rows = m > self.core.partitions and m % self.core.partitions > 0
        return 200 + 330 * rows + 140 * (n % width > 0)

    def is_usual(self, points: Points) -> np.ndarray:
        """Return which points the rule looks at."""
        widths = [min(width, self.sizes["n"]) for width in WIDTHS]
        found: np.ndarray = np.isin(points["columns"], widths) & ~self.is_apart(points)
        return found

    def write(self, sch: s_tir.Schedule, found: Rows, point: Point, alone: bool) -> None:
        """Write a reduction again."""
        write(sch, found, alone)

    def cut(self, sch: s_tir.Schedule, found: Rows, point: Point, alone: bool) -> None:
        """Cut a reduction into tiles as a point says."""
        cut(sch, found, point["columns"], alone)


def find_rows(request: Request) -> TrainiumRows | None:
    """Return a reduction of rows as a problem, None if the function is something else.

    - Raises ValueError: the sizes are more than is counted; or as of
      :func:`.fusion_modes.find_ways`.
    """
    ways = find_ways(request, find_reduced)
    if ways is None:
        return None
    problem = TrainiumRows(ways, request.machine)
    check_sizes(problem.sizes)
    return problem
