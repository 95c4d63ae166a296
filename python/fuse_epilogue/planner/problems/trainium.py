"""A depthwise convolution on Trainium as an optimisation problem.

What a point costs is what the latency model predicts for its kernel. That takes tens of
milliseconds, so the vectorised cost is a bound below it: what the bytes take at the full rate of
the DMA engines, or the busiest engine for its instructions, if that is longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from tvm import s_tir, tirx

from ...neuron import CheckError, EmitError, emit
from ...neuron.costs import FLOAT32_PASSES
from ...neuron.machine import Machine
from ...neuron.trace import ITEMSIZE
from ...schedules.neuron.channel_conv import ChannelConv, find_channel_conv
from ...schedules.neuron.depthwise import channels_of_a_tile
from ...schedules.neuron.tiling import Tiling, scheduled
from ..cost import Terms
from ..space import Constraint, Point, Points, Space, Variable

#: Tiles of a kind that are in flight at least: one is loaded, one computed, one stored.
IN_FLIGHT = 3


@dataclass(frozen=True)
class TrainiumConv:
    """A depthwise convolution and what follows it, on one NeuronCore.

    Attributes
    ----------
    conv : ChannelConv
        What is computed.
    core : Machine
        Where.
    finite : bool
        Whether data and weights are finite: then the tensor engine may compute taps.
    """

    conv: ChannelConv
    core: Machine
    finite: bool = False

    kind = "conv"

    @property
    def func(self) -> tirx.PrimFunc:
        """The function, not scheduled."""
        return self.conv.func

    @property
    def dtype(self) -> str:
        """Type of x."""
        return self.conv.dtype

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Images (of the last axis of images), channels, columns of the result, taps."""
        images = int(self.conv.images[-1].dom.extent) if self.conv.images else 1
        conv = self.conv.conv
        return {
            "images": images,
            "channels": self.conv.channels,
            "columns": conv.columns,
            "taps": conv.taps,
        }

    @property
    def partitions(self) -> int:
        """Channels of a tile."""
        return channels_of_a_tile(self.conv.channels, self.core.partitions)

    @cached_property
    def space(self) -> Space:
        """What is chosen from, and what SBUF and PSUM have room for."""
        sizes = self.sizes
        whole = self.conv.channels % self.partitions == 0
        taps = sizes["taps"] + 1 if self.finite and whole else 1
        variables = (
            Variable(
                "columns",
                _pieces(sizes["columns"], 8),
                "columns",
                "columns of the result in a tile",
            ),
            Variable("images", _powers(sizes["images"]), "images", "images in a tile"),
            Variable("parts", (1, 2, 4), "parts", "pieces of a tile that are computed one by one"),
            Variable("on_tensor", tuple(range(taps)), "taps", "taps on the tensor engine"),
            Variable("load", (0, 1), "", "what one transfer loads", ("a tile", "all channels")),
        )
        return Space(
            variables,
            (
                Constraint(
                    "whole images",
                    0,
                    "",
                    self._mixed,
                    "several images are in a tile only with all of their columns, and without "
                    "taps on the tensor engine or all channels at once",
                ),
                Constraint(
                    "SBUF",
                    self.core.sbuf_bytes,
                    "bytes of a partition",
                    self._sbuf,
                    f"{IN_FLIGHT} tiles of what is loaded, summed and stored",
                ),
                Constraint(
                    "PSUM",
                    self.core.psum_bytes,
                    "bytes of a partition",
                    self._psum,
                    "two parts of sums, while one is computed and one is read",
                ),
            ),
        )

    def _mixed(self, points: Points) -> np.ndarray:
        several = points["images"] > 1
        cut = points["columns"] < self.sizes["columns"]
        other = (points["on_tensor"] > 0) | (points["load"] > 0)
        alone = (points["load"] > 0) & (cut | (self.sizes["images"] == 1))
        wrong = (several & (cut | other)) | alone
        return wrong.astype(np.int64)

    def _sbuf(self, points: Points) -> np.ndarray:
        conv = self.conv.conv
        reach = (points["columns"] - 1) * conv.stride + (conv.taps - 1) * conv.dilation + 1
        rest = -(-self.conv.channels // self.partitions)
        tiles = np.where(points["load"] > 0, rest, points["images"])
        elements = points["images"] * -(-points["columns"] // points["parts"])
        size = ITEMSIZE[self.dtype]
        used: np.ndarray = IN_FLIGHT * (tiles * reach * size + elements * (4 + size))
        return used

    def _psum(self, points: Points) -> np.ndarray:
        part = -(-points["columns"] // points["parts"])
        used: np.ndarray = np.where(points["on_tensor"] > 0, 2 * 4 * part, 0)
        return used

    # ---- Cost --------------------------------------------------------------------------------

    def cost(self, points: Points) -> Terms:
        """Return a bound below the latency: bytes at the full rate, or the busiest engine.

        The traffic is that of x and y; the latency is what the busiest engine takes longer.
        """
        conv, core, sizes = self.conv, self.core, self.sizes
        taps, size = sizes["taps"], ITEMSIZE[self.dtype]
        others = int(np.prod([int(axis.dom.extent) for axis in conv.images[:-1]]))
        rows = others * sizes["images"] * -(-conv.channels // self.partitions)
        elements = rows * sizes["columns"]
        moved = others * sizes["images"] * conv.channels * size * (sizes["columns"] + conv.reach)
        traffic = moved / (core.dma_gb_per_s * 1e9)
        clock = {name: ghz * 1e9 for name, ghz in core.clock_ghz.items()}
        on_tensor = points["on_tensor"]
        passes = FLOAT32_PASSES if self.dtype == "float32" else 1
        # One tap begins the sum on the scalar engine; each further one takes two cycles an element.
        added = np.maximum(taps - on_tensor - 1, 0) * 2.0 + np.where(on_tensor > 0, 1.0, 0.0)
        busy = np.maximum(
            np.maximum(elements * added / clock["vector"], elements / clock["scalar"]),
            elements * passes * on_tensor / clock["tensor"],
        )
        nothing = np.zeros(points.size)
        whole = np.full(points.size, traffic)
        return Terms(whole, np.maximum(busy - traffic, 0.0), nothing, nothing)

    def exact(self, point: Point) -> float:
        """Return the predicted latency in seconds; infinite if no kernel can be made."""
        try:
            kernel = emit(self.apply(point))
            kernel.check(self.core)
        except (EmitError, CheckError):
            return float("inf")
        return kernel.predict(self.core).latency_ms * 1e-3

    def tiling(self, point: Point) -> Tiling:
        """Return a point as the schedule takes it."""
        part = -(-point["columns"] // point["parts"])
        return Tiling(
            self.partitions,
            point["images"],
            point["columns"],
            part,
            point["on_tensor"],
            bool(point["load"]),
        )

    def apply(self, point: Point) -> s_tir.Schedule:
        """Return the scheduled function.

        Raises
        ------
        ValueError
            The point is not one of the space.
        """
        self.space.check(point)
        return scheduled(self.conv, self.tiling(point))

    def resized(self, name: str, size: int) -> TrainiumConv | None:
        """Return None: another size is another function."""
        return None


def find_conv(func: tirx.PrimFunc, core: Machine, finite: bool = False) -> TrainiumConv | None:
    """Return a convolution as a problem, None if the function is something else.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc
        Not scheduled.
    core : Machine
        Where it shall run.
    finite : bool
        Whether data and weights are finite.

    Raises
    ------
    tvm.s_tir.ScheduleError
        What follows the convolution cannot be fused.
    """
    conv = find_channel_conv(func)
    return None if conv is None else TrainiumConv(conv, core, finite)


def _pieces(size: int, most: int) -> tuple[int, ...]:
    """Return a size cut into 1, 2, 4, ... pieces, rounded up."""
    found = []
    count = 1
    while count <= most and size > 0:
        found.append(-(-size // count))
        count *= 2
    return tuple(dict.fromkeys(found))


def _powers(size: int) -> tuple[int, ...]:
    """Return 1, 2, 4, ... up to a size, and the size."""
    found = [1]
    while found[-1] * 2 <= size:
        found.append(found[-1] * 2)
    return tuple(dict.fromkeys([*found, size]))
