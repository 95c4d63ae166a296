"""Windows of each channel on Trainium: see :mod:`....kernels.trainium.windows` for the loops."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from tvm import s_tir, tirx

from ....kernels.trainium.read_windows import Windows
from ....kernels.trainium.tiles import PARTITIONS
from ....kernels.trainium.windows import (
    BLOCK_BYTES,
    Tiling,
    block_bytes,
    match_windows,
    most_rows,
    scheduled,
    tilings,
)
from ....neuron.machine import Machine
from ....neuron.trace import ITEMSIZE
from ..request import Request
from ..space import Constraint, Point, Points, Space, Variable
from .predicted import Predicted, matched_problem
from .work import Work, cycle, rate, size_of, start


@dataclass(frozen=True)
class TrainiumWindows(Predicted):
    """A 2-D depthwise convolution or a pooling and what follows it, on one NeuronCore.

    - `found`: the match.
    """

    found: Windows
    core: Machine

    kind = "windows"

    @property
    def func(self) -> tirx.PrimFunc:
        """The function, not scheduled."""
        return self.found.func

    @property
    def dtype(self) -> str:
        """Type of the images."""
        return self.found.dtype

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Images, channels, rows and columns of the result, elements of a window."""
        found = self.found
        return {
            "images": found.image.extent,
            "channels": found.out_channel.extent,
            "rows": found.row.extent,
            "columns": found.column.extent,
            "taps": found.tap_row.extent * found.tap_column.extent,
        }

    @cached_property
    def space(self) -> Space:
        """The space of choices, and the limit of SBUF for what a block of rows takes."""
        most = most_rows(self.found)
        rows = tuple(dict.fromkeys(-(-most // count) for count in (1, 2, 3, 4, 6, 8)))
        engines = Variable(
            "first",
            (0, 1),
            "",
            "what computes the first tap",
            ("the scalar engine", "the vector engine"),
        )
        return Space(
            (
                Variable("block", rows, "rows", "rows of the result that are computed together"),
                *(() if self.found.weight is None else (engines,)),
            ),
            (
                Constraint(
                    "SBUF",
                    BLOCK_BYTES,
                    "bytes of a partition",
                    lambda points: block_bytes(self.found, points["block"]),
                    "images, sums, results and operands of a block of rows",
                ),
            ),
        )

    def work(self, points: Points) -> Work:
        """Return what the kernels of points ask of the machine."""
        core, found = self.core, self.found
        images, channels, rows, columns, taps = self.sizes.values()
        tiles, blocks = images * -(-channels // PARTITIONS), -(-rows // points["block"])
        loaded = blocks * found.rows_for(points["block"])
        image = images * channels * loaded * found.shape[3] * ITEMSIZE[self.dtype]
        sums = tiles * rows * columns
        if found.weight is None:
            weights, least = 0, sums * (found.tap_row.extent + found.tap_column.extent - 2)
            across = tiles * loaded * columns * found.tap_column.extent
            vector, scalar = across + sums * (found.tap_row.extent + 1), 0 * blocks
        else:
            weights, least = size_of(found.weight.source), sums * (taps - 1)
            by_vector = points["first"]
            vector, scalar = sums * (2 * (taps - 1) + by_vector), sums * (1 - by_vector)
        count = tiles * blocks * (taps + 4)
        waits = 3 * start(core) + image / blocks / images / rate(core)
        return Work(
            (size_of(found.output) + weights) / rate(core),
            {"vector": least * cycle(core, "vector")},
            {
                "dma": image / rate(core) + waits,
                "vector": (vector - least + count * core.access_cycles) * cycle(core, "vector")
                + waits,
                "scalar": scalar * cycle(core, "scalar") + waits,
            },
            300 + count,
        )

    def is_usual(self, points: Points) -> np.ndarray:
        """Return which points the rule looks at."""
        found: np.ndarray = np.isin(points["block"], [each.rows for each in tilings(self.found)])
        return found

    def _scheduled(self, point: Point) -> s_tir.Schedule:
        return scheduled(self.found, Tiling(point["block"], bool(point.get("first", 0))))


def find_windows(request: Request) -> TrainiumWindows | None:
    """Return windows of each channel as a problem, None if the function is something else.

    - Raises ValueError: as for :func:`.predicted.matched_problem`.
    """
    return matched_problem(request, match_windows, TrainiumWindows, transposes=False)
