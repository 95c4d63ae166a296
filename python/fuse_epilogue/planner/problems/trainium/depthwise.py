"""A depthwise convolution on Trainium as an optimisation problem: channels are on partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from tvm import s_tir

from ....kernels.trainium.depthwise import MOST_ON_SCALAR, PART, channels_of_a_tile, tilings
from ....kernels.trainium.depthwise_blocks import ChannelConv, find_channel_conv
from ....kernels.trainium.depthwise_tiles import IMAGE, IMAGES, TILE, Tiling, cut, write
from ....neuron.costs import FLOAT32_PASSES
from ....neuron.trace import ITEMSIZE
from ..problem import Problem
from ..request import Request
from ..space import Constraint, Point, Points, Space, Variable
from .buffers import buffers, in_flight, in_turns
from .fusion_modes import OnTrainium, find_ways
from .refused import check_sizes
from .work import Work, cycle, rate, start, stretched


@dataclass(frozen=True)
class TrainiumConv(OnTrainium):
    """A depthwise convolution and what follows it, on one NeuronCore.

    - `ways`, `core`: as of :class:`.fusion_modes.OnTrainium`.
    - `finite`: whether data and weights are finite: then the tensor engine may compute taps.
    """

    finite: bool = False

    kind = "conv"
    written_by = (*OnTrainium.written_by, "on_tensor", "on_scalar")

    @property
    def conv(self) -> ChannelConv:
        """The convolution."""
        found: ChannelConv = self.ways.any
        return found

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

    @property
    def _takes_tensor(self) -> bool:
        """Whether the tensor engine can compute taps of finite data: of full tiles."""
        return self.conv.channels % self.partitions == 0

    def permitted(self) -> Mapping[str, Problem]:
        """Return the same with finite data, where the tensor engine could then compute taps."""
        if self.finite or not self._takes_tensor:
            return {}
        return {"finite": replace(self, finite=True)}

    @cached_property
    def space(self) -> Space:
        """The space of choices, and the limits of SBUF and PSUM."""
        return Space(self._variables(), (*self.constraints, *self._limits()))

    def _variables(self) -> tuple[Variable, ...]:
        sizes = self.sizes
        taps = sizes["taps"] + 1 if self.finite and self._takes_tensor else 1
        # What the rule takes is a choice, too.
        by_rule = next(tilings(self.conv, self.core, False))
        columns = _with(_pieces(sizes["columns"], 8), by_rule.columns)
        parts = [1, 2, 4]
        if any(PART < c and PART not in (-(-c // 2), -(-c // 4)) for c in columns):
            parts.append(0)
        labels = tuple(str(count) if count else f"of {PART} columns" for count in parts)
        return (
            *self.fusion,
            Variable("columns", columns, "columns", "columns of the result in a tile"),
            Variable(
                "images",
                _with(_powers(sizes["images"]), by_rule.images),
                "images",
                "images in a tile",
            ),
            Variable(
                "parts",
                tuple(parts),
                "parts",
                "pieces of a tile that are computed one by one",
                labels,
            ),
            Variable("on_tensor", tuple(range(taps)), "taps", "taps on the tensor engine"),
            Variable(
                "on_scalar",
                tuple(range(min(sizes["taps"] - 1, MOST_ON_SCALAR) + 1)),
                "taps",
                "taps that the scalar engine multiplies, besides the first",
            ),
            Variable(
                "load",
                (TILE, IMAGE, IMAGES),
                "",
                "what is loaded together",
                ("a tile", "all channels", "all images"),
            ),
            buffers(),
        )

    def _limits(self) -> tuple[Constraint, ...]:
        return (
            Constraint(
                "whole images",
                0,
                "",
                self._mixed,
                "several images are in a tile only with all of their columns, and without "
                "taps on the tensor engine or all channels at once; no part is a whole tile "
                "under another name",
            ),
            Constraint(
                "products",
                0,
                "",
                lambda p: (p["on_tensor"] > 0) & (self._part(p) == 1),
                "the tensor engine multiplies by more than one column",
            ),
            Constraint(
                "taps",
                max(0, self.sizes["taps"] - 1),
                "taps",
                lambda p: np.where(p["on_scalar"] > 0, p["on_tensor"] + p["on_scalar"], 0),
                "one tap begins the sum",
            ),
            *in_flight(self.core, self._tile_bytes, self._staying_bytes),
            Constraint(
                "PSUM",
                self.core.psum_bytes,
                "bytes of a partition",
                self._psum,
                "two parts of sums, while one is computed and one is read",
            ),
        )

    def _mixed(self, points: Points) -> np.ndarray:
        several = points["images"] > 1
        cut = points["columns"] < self.sizes["columns"]
        other = (points["on_tensor"] > 0) | (points["load"] != TILE)
        alone = (points["load"] != TILE) & (cut | (self.sizes["images"] == 1))
        same = (points["parts"] == 0) & (points["columns"] <= PART)
        wrong: np.ndarray = (several & (cut | other)) | alone | same
        return wrong.astype(np.int64)

    def _tile_bytes(self, points: Points) -> np.ndarray:
        """Return the bytes of a partition for what is loaded, summed and stored of a tile."""
        tiles = np.where(points["load"] == TILE, points["images"], self._tiles_of_an_image)
        tiles = np.where(points["load"] == IMAGES, 0, tiles)
        elements = points["images"] * self._part(points)
        size = ITEMSIZE[self.dtype]
        used: np.ndarray = tiles * self._reach(points) * size + elements * (4 + size)
        return used

    def _staying_bytes(self, points: Points) -> np.ndarray:
        """Return the bytes of a partition for all images, where they are loaded together."""
        tiles = self.sizes["images"] * self._tiles_of_an_image
        used: np.ndarray = tiles * self._reach(points) * ITEMSIZE[self.dtype]
        return np.where(points["load"] == IMAGES, used, 0)

    def _reach(self, points: Points) -> Any:
        """Return the columns that a tile reads."""
        conv = self.conv.conv
        return (points["columns"] - 1) * conv.stride + (conv.taps - 1) * conv.dilation + 1

    @property
    def _tiles_of_an_image(self) -> int:
        """Tiles of channels."""
        return -(-self.conv.channels // self.partitions)

    def _psum(self, points: Points) -> np.ndarray:
        part = self._part(points)
        sums = (points["on_tensor"] > 0) + points["on_scalar"]
        used: np.ndarray = sums * (2 * 4) * part * points["images"]
        return used

    def _part(self, points: Points | Point) -> Any:
        """Return the columns of a part."""
        columns, parts = points["columns"], points["parts"]
        return np.where(
            np.equal(parts, 0), np.minimum(columns, PART), -(-columns // np.maximum(parts, 1))
        )

    def work(self, points: Points) -> Work:
        """Return what the kernels of points ask of the machine."""
        conv, core, sizes = self.conv, self.core, self.sizes
        taps, size, bandwidth = sizes["taps"], ITEMSIZE[self.dtype], rate(core)
        on_scalar = points["on_scalar"]
        together, rest = points["load"] != TILE, self._tiles_of_an_image
        images = sizes["images"] * int(np.prod([int(a.dom.extent) for a in conv.images[:-1]]))
        elements = images * rest * sizes["columns"]
        read = images * conv.channels * self._read * size
        written = np.where(self.is_apart(points), 4, self._out) * images * conv.channels
        columns, several, on_tensor = points["columns"], points["images"], points["on_tensor"]
        part = self._part(points)
        tiles = images // sizes["images"] * -(-sizes["images"] // several) * rest
        tiles = tiles * -(-sizes["columns"] // columns)
        parts = tiles * -(-columns // part)
        passes = FLOAT32_PASSES if self.dtype == "float32" else 1
        banks = -(-part * 4 // core.psum_bank_bytes)
        added, steps = self._additions(points)
        reach = self._reach(points)
        # What the engines wait for: the first tile, and the last one on its way back.
        tile = self.partitions * several * size
        waits = np.where(together, rest, 1) * tile * reach + tile * part
        waits = waits / bandwidth + 2 * start(core)
        # What the DMA engines wait for: the sums of the last tile; before the first one, the
        # matrices with weights on their diagonals.
        chain = (added * cycle(core, "vector") + cycle(core, "scalar")) * several * part
        made = np.where((on_tensor > 0) & ~together, 2 * start(core), 0.0)
        wide = np.where(self.is_apart(points), 4, self._out)
        short = read / bandwidth * (stretched(core, columns * size) - 1)
        short = short + written * sizes["columns"] / bandwidth * (stretched(core, part * wide) - 1)
        at_once = np.where(together, rest, 1)
        moved = tile * reach + self.partitions * several * columns * wide
        one = at_once * (moved / bandwidth + chain * columns / part) + 2 * start(core)
        work = Work(
            (read + written * sizes["columns"]) / bandwidth,
            {
                "vector": elements * added * cycle(core, "vector"),
                "tensor": elements * passes * on_tensor * cycle(core, "tensor"),
                "scalar": elements * (on_scalar + (on_tensor < taps)) * cycle(core, "scalar"),
            },
            {
                "dma": short + chain + start(core) + made,
                "vector": parts * steps * core.access_cycles * cycle(core, "vector") + waits + made,
                "scalar": parts * (1 + on_scalar) * core.access_cycles * cycle(core, "scalar")
                + waits,
                "tensor": parts * banks * on_tensor * core.access_cycles * cycle(core, "tensor")
                + waits
                + made,
            },
            self._scheduling(points, tiles, parts, banks),
            in_turns(points, tiles / at_once, one),
        )
        return self.with_rest(points, work)

    def _additions(self, points: Points) -> tuple[Any, Any]:
        """Return the cycles of an element on the vector engine, and its instructions of a part."""
        on_tensor, on_scalar = points["on_tensor"], points["on_scalar"]
        # One tap begins the sum on the scalar engine; each further one takes two cycles an element,
        # or one if it is in PSUM.
        steps = np.maximum(self.sizes["taps"] - on_tensor - on_scalar - 1, 0)
        added = steps * 2.0 + on_scalar + np.where(on_tensor > 0, 1.0, 0.0)
        return added, steps + on_scalar + (on_tensor > 0)

    def _scheduling(self, points: Points, tiles: Any, parts: Any, banks: Any) -> Any:
        """Return the steps that it takes to schedule and emit the kernels of points.

        Measured on convolutions of 50 to 3000 columns: 13 ms for a kernel, 65 us for an
        instruction; with the tensor engine 9 ms, and 3 ms for each tap on it; where sums go to HBM,
        175 us for a part of them, as each of its rows is a piece of memory for itself.
        """
        on_tensor = points["on_tensor"]
        instructions = tiles + parts * (2 + self.sizes["taps"] - on_tensor + on_tensor * banks)
        with_tensor = np.where(on_tensor > 0, 180 + 60 * on_tensor, 0)
        return (
            250 + 1.3 * instructions + with_tensor + np.where(self.is_apart(points), 3.5 * parts, 0)
        )

    def is_usual(self, points: Points) -> np.ndarray:
        """Return which points the rule looks at."""
        usual = set(tilings(self.conv, self.core, self.finite))
        mine = np.array([self.tiling(points.at(i)) in usual for i in range(points.size)], bool)
        found: np.ndarray = mine & ~self.is_apart(points)
        return found

    def is_plain(self, points: Points) -> np.ndarray:
        """Return which points there are whatever the data are."""
        found: np.ndarray = points["on_tensor"] == 0
        return found

    @property
    def _read(self) -> int:
        """Columns of x that are read; zeros beside it are made on the chip."""
        conv = self.conv.conv
        first = int(conv.start)
        if conv.outside is None:
            return self.conv.reach
        return max(0, min(int(conv.width), first + self.conv.reach) - max(0, first))

    @property
    def _out(self) -> int:
        """Bytes of an element of the result."""
        return ITEMSIZE[str(self.ways.func.params[-1].ty.dtype)]

    def write(self, sch: s_tir.Schedule, found: ChannelConv, point: Point, alone: bool) -> None:
        """Write a convolution again, with taps on the engines that a point says."""
        taps = (self.partitions, point["on_tensor"], point["on_scalar"])
        write(sch, found, taps, alone)

    def cut(self, sch: s_tir.Schedule, found: ChannelConv, point: Point, alone: bool) -> None:
        """Cut a convolution into tiles as a point says."""
        cut(sch, found, self.tiling(point))

    def tiling(self, point: Point) -> Tiling:
        """Return a point as the schedule takes it."""
        part = int(self._part(point))
        return Tiling(
            self.partitions,
            point["images"],
            point["columns"],
            part,
            point["on_tensor"],
            point["load"],
            point["on_scalar"],
        )


def find_conv(request: Request) -> TrainiumConv | None:
    """Return a convolution as a problem, None if the function is something else.

    - Raises ValueError: the sizes are more than is counted; or as of
      :func:`.fusion_modes.find_ways`.
    """
    ways: Any = find_ways(request, find_channel_conv)
    if ways is None:
        return None
    problem = TrainiumConv(ways, request.machine, request.finite)
    images = prod(int(axis.dom.extent) for axis in problem.conv.images)
    check_sizes({**problem.sizes, "images": images})
    return problem


def _with(choices: tuple[int, ...], one: int) -> tuple[int, ...]:
    """Return some choices and one more, if it is not one of them."""
    return tuple(dict.fromkeys([*choices, one]))


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
