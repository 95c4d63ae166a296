"""Schedules a depthwise convolution for Trainium, tile by tile, with TVM's primitives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import s_tir

from ...rewrites.step import rewrite
from ...tir.nest import child_names
from .depthwise_blocks import ChannelConv
from .tiles import BANK, mark

#: What is loaded together: a tile, all channels of an image, or all images.
TILE, IMAGE, IMAGES = 0, 1, 2


@dataclass(frozen=True)
class Tiling:
    """Tiles of a convolution.

    - `partitions`: channels of a tile, at most 128.
    - `images`, `columns`: images and columns of the result in a tile.
    - `part`: columns that are computed and stored together.
    - `on_tensor`: taps that the tensor engine computes, as products with diagonal matrices; for
      finite data and weights only.
    - `loads`: what is loaded together: `TILE`, `IMAGE` or `IMAGES`. All images are loaded before
      anything is stored: at the end only results are still to be moved.
    - `on_scalar`: taps that the scalar engine multiplies, besides the one that begins the sum.
    """

    partitions: int
    images: int
    columns: int
    part: int
    on_tensor: int = 0
    loads: int = TILE
    on_scalar: int = 0

    def said(self) -> str:
        """Say it in a few words."""
        images = f", {self.images} images" if self.images > 1 else ""
        parts = f" in parts of {self.part}" if self.part < self.columns else ""
        taps = "tap" if self.on_tensor == 1 else "taps"
        tensor = f"; {self.on_tensor} {taps} on the tensor engine" if self.on_tensor else ""
        if self.on_scalar:
            taps = "tap" if self.on_scalar == 1 else "taps"
            tensor += f"; {self.on_scalar} {taps} on the scalar engine"
        return f"tiles of {self.partitions} channels{images}, {self.columns} columns{parts}{tensor}"


def scheduled(conv: ChannelConv, tiling: Tiling) -> s_tir.Schedule:
    """Schedule a convolution.

    Tiles of channels on partitions, and along them images and columns. Each tile is loaded once,
    with its zeros; the sum begins on the scalar engine, with the bias, and goes on on the vector
    engine; what follows is computed before the tile is stored.

    - `conv`: the convolution to schedule.
    - `tiling`: how.
    - Returns: for :func:`fuse_epilogue.neuron.emit`.
    """
    sch = conv.sch.copy()
    write(sch, conv, (tiling.partitions, tiling.on_tensor, tiling.on_scalar))
    cut(sch, conv, tiling)
    return sch


def write(
    sch: s_tir.Schedule, conv: ChannelConv, taps: tuple[int, int, int], alone: bool = False
) -> None:
    """Rewrite a convolution.

    - `sch`: as that of `conv`; or, if it is `alone`, one that has its block and others.
    - `taps`: `partitions`, `on_tensor` and `on_scalar` of :class:`Tiling`.
    - `alone`: whether the other blocks stay as they are.
    """
    partitions, on_tensor, on_scalar = taps
    own = {"on_scalar": on_scalar} if on_scalar else {}
    rewrite(
        sch,
        sch.get_sblock(conv.block),
        "neuron_conv_taps" if on_scalar else "neuron_conv",
        partitions=partitions,
        on_tensor=on_tensor,
        **own,
        loops=conv.loops(partitions),
        alone=alone,
    )


def cut(sch: s_tir.Schedule, conv: ChannelConv, tiling: Tiling) -> None:
    """Cut a convolution into tiles, in a schedule as `write` left it."""
    images, columns, part = _cut(sch, conv, tiling)
    blocks = [sch.get_sblock("stored")]
    if "out" in child_names(sch.mod["main"]):
        blocks.append(_elementwise(sch, "out", part, conv))
    if tiling.on_tensor < conv.conv.taps:
        blocks.append(_elementwise(sch, "conv", part, conv))
    if tiling.on_scalar:
        blocks.append(_scaled(sch, part, conv))
    if tiling.on_tensor:
        blocks.append(_products(sch, part))
        for name in ("identity", "diagonal"):
            sch.set_scope(sch.get_sblock(name), 0, "trn.sbuf")
            if tiling.loads != TILE:
                sch.annotate(sch.get_sblock(name), "nki_late", 1)
        blocks.append(sch.get_sblock("diagonal"))
    loaded = sch.get_sblock("loaded")
    sch.set_scope(loaded, 0, "trn.sbuf")
    sch.annotate(loaded, "nki_engine", "gpsimd")
    if tiling.loads == TILE or not images:
        sch.compute_at(loaded, columns)
    elif tiling.loads == IMAGE:
        sch.compute_at(loaded, images[-1])
    elif len(images) > 1:
        sch.compute_at(loaded, images[-2])
    _bring(sch, blocks)


def _cut(sch: s_tir.Schedule, conv: ChannelConv, tiling: Tiling) -> tuple[list[Any], Any, Any]:
    """Cut up the block that stores; return the loops over images, tiles and parts of a tile."""
    stored, count = sch.get_sblock("stored"), len(conv.images)
    *rest, columns = sch.get_loops(stored)
    images, channel = rest[:count], rest[count:]
    if len(channel) == 1:
        channel = list(sch.split(channel[0], [None, tiling.partitions]))
    inner = []
    if images and tiling.images > 1:
        images[-1], several = sch.split(images[-1], [None, tiling.images])
        inner = [several]
    tile, part, column = sch.split(columns, [None, -(-tiling.columns // tiling.part), tiling.part])
    sch.reorder(*images, channel[0], tile, part, channel[1], *inner, column)
    mark(sch, channel[1], *inner, column)
    return images, tile, part


def _elementwise(sch: s_tir.Schedule, name: str, part: Any, conv: ChannelConv) -> Any:
    """Place a block that computes an element of the result from the same one, or sums taps."""
    block = sch.get_sblock(name)
    sch.set_scope(block, 0, "trn.sbuf")
    sch.compute_at(block, part, preserve_unit_loops=True)
    loops = _own(sch, block, part)
    taps = [loops.pop()] if name == "conv" else []
    count = len(conv.images)
    images, channel, columns = loops[:count], loops[count:-1], loops[-1]
    sch.reorder(*channel[:-1], *taps, channel[-1], *images, columns)
    mark(sch, channel[-1], *images, columns)
    return block


def _scaled(sch: s_tir.Schedule, part: Any, conv: ChannelConv) -> Any:
    """Place the taps that the scalar engine multiplies."""
    block = sch.get_sblock("scaled")
    sch.set_scope(block, 0, "trn.psum")
    sch.annotate(block, "nki_engine", "scalar")
    sch.compute_at(block, part, preserve_unit_loops=True)
    tap, *loops = _own(sch, block, part)
    count = len(conv.images)
    images, channel, columns = loops[:count], loops[count:-1], loops[-1]
    sch.reorder(*channel[:-1], tap, channel[-1], *images, columns)
    mark(sch, channel[-1], *images, columns)
    return block


def _products(sch: s_tir.Schedule, part: Any) -> Any:
    """Place the taps that are products of matrices."""
    block = sch.get_sblock("products")
    sch.set_scope(block, 0, "trn.psum")
    sch.compute_at(block, part, preserve_unit_loops=True)
    *outer, rows, columns, tap, depth = _own(sch, block, part)
    bank, column = sch.split(columns, [None, BANK])
    sch.reorder(*outer, bank, tap, depth, rows, column)
    for loop, role in ((depth, "P"), (rows, "lhs_F"), (column, "rhs_F")):
        sch.annotate(loop, "nki_dim", role)
    return block


def _own(sch: s_tir.Schedule, block: Any, tile: Any) -> list[Any]:
    """Return the loops of a block inside of the loop over tiles."""
    loops = list(sch.get_loops(block))
    depth = next(i for i, loop in enumerate(loops) if sch.get(loop).same_as(sch.get(tile)))
    return loops[depth + 1 :]


def _bring(sch: s_tir.Schedule, blocks: list[Any]) -> None:
    """Read what blocks need of HBM through SBUF."""
    for block in blocks[1:]:
        for at, region in enumerate(sch.get(block).reads):
            if region.source.scope() in ("", "global"):
                sch.cache_read(block, at, "trn.sbuf")
