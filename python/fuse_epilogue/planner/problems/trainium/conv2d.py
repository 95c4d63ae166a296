"""A 2-D convolution on Trainium: see :mod:`....kernels.trainium.conv2d` for the loops."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from tvm import s_tir, tirx

from ....kernels.trainium.conv2d import Tiling, scheduled, usual_tiling
from ....kernels.trainium.read_conv2d import Convolution2d
from ....kernels.trainium.read_conv2d import find_conv2d as match_conv2d
from ....kernels.trainium.tiles import PARTITIONS
from ....neuron.costs import FLOAT32_PASSES
from ....neuron.machine import Machine
from ....neuron.trace import ITEMSIZE
from ..request import Request
from ..space import Constraint, Point, Points, Space, Variable
from .predicted import Predicted, matched_problem
from .work import Work, cycle, rate, size_of, start


@dataclass(frozen=True)
class TrainiumConv2d(Predicted):
    """A 2-D convolution and what follows it, on one NeuronCore.

    - `found`: the match.
    """

    found: Convolution2d
    core: Machine

    kind = "conv2d"

    @property
    def func(self) -> tirx.PrimFunc:
        """The function, not scheduled."""
        return self.found.func

    @property
    def dtype(self) -> str:
        """Type of images and weights."""
        return self.found.dtype

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Images, channels of the result, rows, columns, channels that are summed over, taps."""
        found = self.found
        return {
            "images": found.image.extent,
            "out_channels": found.out_channel.extent,
            "rows": found.row.extent,
            "columns": found.column.extent,
            "channels": found.channel.extent,
            "taps": found.tap_row.extent * found.tap_column.extent,
        }

    @cached_property
    def space(self) -> Space:
        """The space of choices, and the limit of SBUF for images."""
        most = usual_tiling(self.found).rows
        rows = tuple(dict.fromkeys(-(-most // count) for count in (1, 2, 4)))
        return Space(
            (
                Variable("block", rows, "rows", "rows of the result with sums in one bank of PSUM"),
                Variable(
                    "load", (1, 0), "", "what is loaded of an image", ("all", "a block's rows")
                ),
                Variable(
                    "engine",
                    (0, 1),
                    "",
                    "what computes the results of the sums",
                    ("the usual one", "the scalar engine"),
                ),
            ),
            (
                Constraint(
                    "SBUF",
                    self.core.sbuf_bytes,
                    "bytes of a partition",
                    self._image_bytes,
                    "an image that is loaded as a whole, and the weights",
                ),
            ),
        )

    @property
    def _tiles(self) -> int:
        """Tiles of channels that are summed over."""
        return -(-self.sizes["channels"] // PARTITIONS)

    def _image_bytes(self, points: Points) -> np.ndarray:
        found, size = self.found, ITEMSIZE[self.dtype]
        weights = self._tiles * self.sizes["taps"] * self.sizes["out_channels"] * size
        row = self._tiles * found.shape[3] * size
        window = found.rows_for(points["block"])
        used: np.ndarray = weights + row * np.where(points["load"] > 0, found.shape[2], window)
        return used

    def work(self, points: Points) -> Work:
        """Return what the kernels of points ask of the machine."""
        core, found = self.core, self.found
        images, out_channels, rows, columns, _, taps = self.sizes.values()
        down, blocks = -(-out_channels // PARTITIONS), -(-rows // points["block"])
        weights = size_of(found.weight.source)
        moved = size_of(found.output) + weights
        window = found.rows_for(points["block"])
        loaded = np.where(points["load"] > 0, found.shape[2], blocks * window)
        image = images * found.shape[1] * loaded * found.shape[3] * ITEMSIZE[self.dtype]
        passes = FLOAT32_PASSES if self.dtype == "float32" else 1
        sums = images * down * rows * columns
        products = sums * taps * self._tiles * passes
        count = images * down * blocks
        results = (sums + count * core.access_cycles) * np.where(
            points["engine"] > 0, cycle(core, "scalar"), cycle(core, "vector")
        )
        waits = 3 * start(core) + weights / rate(core)
        tensor = products + count * taps * self._tiles * core.access_cycles
        steps = 600 + down * self._tiles * taps * 2 + count * (taps * self._tiles + 4)
        return Work(
            moved / rate(core),
            {"tensor": products * cycle(core, "tensor")},
            {
                "dma": image / rate(core) + waits,
                "tensor": (tensor - products) * cycle(core, "tensor") + waits,
                "vector": np.where(points["engine"] > 0, 0.0, results) + waits,
                "scalar": np.where(points["engine"] > 0, results, 0.0) + waits,
            },
            steps,
        )

    def is_usual(self, points: Points) -> np.ndarray:
        """Return which points the rule looks at."""
        usual = usual_tiling(self.found)
        found: np.ndarray = (
            (points["block"] == usual.rows)
            & (points["load"] == usual.whole)
            & (points["engine"] == usual.by_scalar)
        )
        return found

    def _scheduled(self, point: Point) -> s_tir.Schedule:
        tiling = Tiling(point["block"], bool(point["load"]), bool(point["engine"]))
        return scheduled(self.found, tiling)


def find_conv2d(request: Request) -> TrainiumConv2d | None:
    """Return a 2-D convolution as a problem, None if the function is something else.

    - Raises ValueError: as for :func:`.predicted.matched_problem`.
    """
    return matched_problem(request, match_conv2d, TrainiumConv2d)
