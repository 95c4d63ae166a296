"""A depthwise convolution as tiles of loops, for LLVM: any layout, stride and size.

Where `rows` cannot be used: the columns are not the last axis, or not neighbours (a stride), or
their number is only known when the function runs:

    columns last:    for the rows, in parallel: for tiles of columns:
                         taps (unrolled), vectors of the tile (unrolled), lanes
    channels last:   for images and tiles of columns, in parallel: for vectors of channels:
                         columns (a few unrolled), taps (unrolled), lanes

The tail comes after the taps, in loops of its own; without a tail, the sums are stored there. Loops
in which only the first and the last steps meet a border are split, the rest has no conditions: see
`borders`. That is the rewriting "borders", the last step; the others are TVM's primitives.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from tvm import s_tir

from ....recognize.depthwise import DepthwiseConv
from ....rewrites.step import rewrite
from ....tir.affine import as_constant
from ....tir.walk import handle, loads, parts_of, uses
from .borders import Borders

# Columns of a tile where channels are the vectors, if not more are unrolled: for these the filter
# is loaded once.
COLUMNS = 32
# Taps times vectors that are unrolled, at most: LLVM takes minutes for thousands, and where each is
# under a condition of its own, near a border, for less than a hundred.
UNROLLED, UNROLLED_AT_BORDERS = 128, 16
# How the loops are marked that are split at borders.
_COLUMN, _CHANNEL = "columns", "channels"


def in_loops(
    sch: s_tir.Schedule,
    conv: Any,
    found: DepthwiseConv,
    lanes: int,
    unroll: int,
    parallel: bool,
    follow: Callable[[s_tir.Schedule, Any], None],
) -> s_tir.Schedule:
    """Schedule a convolution in tiles.

    - `sch`: prepared, see :mod:`fuse_epilogue.rewrites.prepare`; nothing is scheduled.
    - `conv` (SBlockRV): the reduction.
    - `found`: the convolution that it computes.
    - `lanes`: elements of a vector.
    - `unroll`: vectors of a tile.
    - `parallel`: whether rows run in parallel.
    - `follow`: treatment of the epilogue.
    - Returns: `sch`.
    - Raises tvm.s_tir.ScheduleError: the epilogue is not fusable.
    """
    axes = [axis.var for axis in found.block.iter_vars]
    loops = dict(zip(map(handle, axes), sch.get_loops(conv), strict=True))
    column = loops[handle(found.column.var)]
    taps = [loops[handle(axis.var)] for axis in found.block.iter_vars if _is_summed(axis)]
    outer = [loops[handle(axis.var)] for axis in found.outer]
    last = found.out.indices[-1]
    if last.same_as(found.column.var) or not outer:
        tile, vectors, lane = sch.split(column, [None, unroll, lanes])
        rows = outer
        sch.reorder(*outer, tile, *taps, vectors, lane)
        unrolled = [*taps, vectors]
        marked, store_in = [(tile, _COLUMN)], tile
    else:
        channel = loops[handle(_channel(found).var)]
        size = as_constant(_channel(found).dom.extent)
        while isinstance(size, int) and lanes > size:
            lanes //= 2
        others = [loop for loop in outer if not loop.same_as(channel)]
        _turn_filter(sch, conv, found, last)
        steps, unroll = _steps(as_constant(found.column.dom.extent), unroll)
        tile, some, each = sch.split(column, [None, steps, unroll])
        vectors, lane = sch.split(channel, [None, lanes])
        sch.reorder(*others, tile, some, vectors, *taps, each, lane)
        rows = [*others, tile]
        unrolled = [*taps, each]
        marked, store_in = [(some, _COLUMN), (vectors, _CHANNEL)], vectors
    for loop, name in marked:
        sch.annotate(loop, name, 1)
    short = found.taps * unroll <= UNROLLED
    for loop in unrolled if short else ():
        sch.unroll(loop)
    sch.vectorize(lane)
    follow(sch, conv)
    _store_once(sch, conv, store_in, lanes, unrolled=short)
    # Last: what the fused loop does to indices of a symbolic size can hide that all are covered.
    if rows and parallel:
        sch.parallel(sch.fuse(*rows) if len(rows) > 1 else rows[0])
    rolled = found.taps * unroll > UNROLLED_AT_BORDERS
    rewrite(sch, conv, "borders", channel=_place(found, _channel(found)), rolled=rolled)
    return sch


def _steps(columns: Any, unroll: int) -> tuple[int, int]:
    """Return how many steps a tile of columns has, and the columns of a step.

    No more than there are. The index of a single column is 0 in every step: those after the first
    would compute nothing, and store sums in which nothing is.
    """
    if not isinstance(columns, int):
        return max(1, COLUMNS // unroll), unroll
    each = min(unroll, columns)
    return min(max(1, COLUMNS // each), -(-columns // each)), each


def borders_of(found: DepthwiseConv, channel: int, rolled: bool) -> dict[str, Borders]:
    """Return where columns and channels have no border near them, by the marks of their loops.

    - `found`: the loops around it are scheduled.
    - `channel`: the place of the channels' axis in the block, -1 if there is none.
    - `rolled`: whether loops that are to be unrolled stay loops near a border.
    """
    name = found.block.name_hint
    inside = [(1, 1 - found.column.dom.extent)]
    if found.outside is not None:
        reach = (found.taps - 1) * found.dilation
        inside.append((-found.stride, -found.start))
        inside.append((found.stride, reach + found.start + 1 - found.width))
    borders = {_COLUMN: Borders(name, _place(found, found.column), inside, rolled)}
    if channel >= 0:
        ends = [(1, 1 - found.block.iter_vars[channel].dom.extent)]
        borders[_CHANNEL] = Borders(name, channel, ends, rolled)
    return borders


def _place(found: DepthwiseConv, axis: Any) -> int:
    """Return the place of an axis in the block, -1 for None."""
    axes = [handle(each.var) for each in found.block.iter_vars]
    return -1 if axis is None else axes.index(handle(axis.var))


def _channel(found: DepthwiseConv) -> Any:
    """Return the axis along which memory goes, the innermost other one if columns do, or None."""
    axis = channel_axis(found)
    return (found.outer or (None,))[-1] if axis is None else axis


def channel_axis(found: DepthwiseConv) -> Any:
    """Return the axis along which memory goes, None if it is that of the columns."""
    last = found.out.indices[-1]
    return next((axis for axis in found.outer if axis.var.same_as(last)), None)


def one_by_one(
    sch: s_tir.Schedule,
    conv: Any,
    found: DepthwiseConv,
    parallel: bool,
    follow: Callable[[s_tir.Schedule, Any], None],
) -> s_tir.Schedule:
    """Schedule a convolution element by element, the tail after each sum.

    For symbolic sizes such as ``(w + 1) // 3``, of which it is not proved that tiles cover them.

    - `sch`: prepared, see :mod:`fuse_epilogue.rewrites.prepare`; nothing is scheduled.
    - `conv` (SBlockRV): the reduction.
    - `found`: the convolution that it computes.
    - `parallel`, `follow`: as of :func:`in_loops`.
    - Returns: `sch`.
    - Raises tvm.s_tir.ScheduleError: the epilogue is not fusable.
    """
    follow(sch, conv)
    rows = []
    for axis, loop in zip(found.block.iter_vars, sch.get_loops(conv), strict=True):
        if axis.var.same_as(found.column.var) or _is_summed(axis):
            break
        rows.append(loop)
    # TVM does not run in parallel what updates its result in place: that stays serial.
    with contextlib.suppress(s_tir.ScheduleError):
        if rows and parallel:
            sch.parallel(sch.fuse(*rows) if len(rows) > 1 else rows[0])
    return sch


def _store_once(sch: s_tir.Schedule, conv: Any, tile: Any, lanes: int, unrolled: bool) -> None:
    """Let the sums of a tile be stored after it where no tail does so.

    Sums in the result are stored and loaded with each tap wherever a condition keeps LLVM from
    seeing that it is the same element.
    """
    blocks = parts_of(sch.get(tile), s_tir.SBlock)
    if len(blocks) > 1:  # the convolution, and a tail
        return
    copy = sch.cache_write(conv, 0, "global")
    sch.reverse_compute_at(copy, tile, preserve_unit_loops=True)
    loops = sch.get_loops(copy)
    depth = [bool(sch.get(loop).same_as(sch.get(tile))) for loop in loops].index(True)
    *others, last = loops[depth + 1 :]
    vectors, lane = sch.split(last, [None, lanes])
    for loop in (*others, vectors) if unrolled else ():
        sch.unroll(loop)
    sch.vectorize(lane)


def _turn_filter(sch: s_tir.Schedule, conv: Any, found: DepthwiseConv, channel: Any) -> None:
    """Copy the filter once, so that the channels, which make the vectors, are neighbours in it."""
    taps = [
        load
        for load in loads(found.term)
        if uses(load, found.tap.var) and not uses(load, found.column.var)
    ]
    if len(taps) != 1:
        return
    places = [at for at, index in enumerate(taps[0].indices) if index.same_as(channel)]
    if not places or places[0] == len(taps[0].indices) - 1:
        return
    [place] = places
    sources = [region.source for region in sch.get(conv).reads]
    filter_at = next(at for at, source in enumerate(sources) if source.same_as(taps[0].source))
    copy = sch.cache_read(conv, filter_at, "global")
    sch.transform_layout(
        copy, ("write", 0), lambda *axes: [*axes[:place], *axes[place + 1 :], axes[place]]
    )


def _is_summed(axis: Any) -> bool:
    return int(axis.iter_type) == 2
