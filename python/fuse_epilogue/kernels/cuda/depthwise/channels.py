"""A depthwise convolution whose channels lie side by side in memory, for CUDA.

A thread computes some columns of one vector of channels. It loads each column of x that its windows
have, once, as a vector, and keeps them in registers; the filters of its channels too.

    x[a : a + 10, c : c + 4]      ->      y[b : b + 8, c : c + 4]         (3 taps)

Neighbouring threads have neighbouring channels. A column outside of x has the padding's value.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx import BufferStore, IfThenElse

from ....rewrites.fused_conv import FusedConv
from ....tir.affine import as_constant
from ....tir.types import bytes_of
from ....tir.walk import uses
from ..launch import THREADS, axis, ceil_div, enough, in_threads, product
from .code import computed, copied, is_compact, lanes_of, outside, unrolled

# Columns of a thread, at most.
_COLUMNS = 8
# Bytes of x, and of the filters as float32, that a thread holds.
_MOST_BYTES = 4 * 112


def find_channels(fused: FusedConv) -> Any:
    """Return the axis of the channels, None if they do not lie side by side."""
    conv = fused.conv
    last = fused.indices[-1]
    for each in conv.outer:
        alone = not any(uses(index, each.var) for index in conv.data.indices[:-1])
        alone = alone and not any(uses(index, each.var) for index in fused.indices[:-1])
        if last.same_as(each.var) and conv.data.indices[-1].same_as(each.var) and alone:
            compact = is_compact(fused.buffer) and is_compact(conv.data.source)
            known = isinstance(as_constant(each.dom.extent), int)
            once = sum(bool(index.same_as(conv.column.var)) for index in fused.indices)
            return each if compact and known and once == 1 else None
    return None


def in_channels(
    func: tirx.PrimFunc,
    fused: FusedConv,
    channels: Any,
    tile: int | None = None,
    most: int = THREADS,
) -> tirx.PrimFunc | None:
    """Return a function that computes a fused convolution, channels side by side.

    - `func`: the function with the convolution and nothing else.
    - `channels` (tvm.tirx.IterVar): from :func:`find_channels`.
    - `tile`: columns of a thread; chosen by the size of the result if None.
    - `most`: threads of a block, at most.
    - Returns: None if the windows have more columns than a thread can hold.
    """
    code = _Channels(fused, channels, tile)
    return code.function(func, most) if code.held() <= _MOST_BYTES else None


def tile_of(fused: FusedConv, channels: Any, tile: int) -> tuple[int, int] | None:
    """Return the lanes of a vector and the bytes that a thread holds for n columns.

    None if it cannot hold them.
    """
    code = _Channels(fused, channels, tile)
    return (code.lanes, code.held()) if code.held() <= _MOST_BYTES else None


class _Channels:
    """Writes the code of a thread."""

    def __init__(self, fused: FusedConv, channels: Any, tile: int | None) -> None:
        conv = fused.conv
        self.fused, self.conv, self.channels = fused, conv, channels
        self.dtype = str(conv.column.var.ty.dtype)
        size = as_constant(channels.dom.extent)
        self.lanes, self.tile = lanes_of(fused), tile or _COLUMNS
        while size % self.lanes:
            self.lanes //= 2
        if tile is None:
            while isinstance(conv.columns, int) and self.tile >= 2 * conv.columns:
                self.tile //= 2
        while self.held() > _MOST_BYTES and self.lanes * bytes_of(conv.data.source.ty.dtype) > 4:
            self.lanes //= 2
        if tile is None:
            while self.tile > 1 and (self.held() > _MOST_BYTES or not enough(self.threads())):
                self.tile //= 2
        self.others = [each for each in conv.outer if each is not channels]
        self.tiles = axis("tile", ceil_div(conv.columns, self.tile), self.dtype)
        self.vectors = axis("vector", size // self.lanes, self.dtype)
        self.x = tirx.decl_buffer(
            (self.columns() * self.lanes,), conv.data.source.ty.dtype, "columns", scope="local"
        )
        self.sums = tirx.decl_buffer((self.lanes,), conv.out.ty.dtype, "sums", scope="local")
        self.out = tirx.decl_buffer((self.lanes,), fused.buffer.ty.dtype, "out", scope="local")

    def columns(self) -> int:
        """Return from how many columns of x on windows are taken, those between them included."""
        conv = self.conv
        return (self.tile - 1) * conv.stride + (conv.taps - 1) * conv.dilation + 1

    def held(self) -> int:
        """Return the bytes that a thread holds in registers."""
        return self.lanes * (
            self.columns() * bytes_of(self.conv.data.source.ty.dtype) + 4 * self.conv.taps
        )

    def threads(self) -> Any:
        """Return the number of threads."""
        outer = product([each.dom.extent for each in self.conv.outer])
        return outer * ceil_div(self.conv.columns, self.tile) // self.lanes

    def function(self, func: tirx.PrimFunc, most: int) -> tirx.PrimFunc:
        """Return the function, with at most n threads in a block."""
        first = self.tiles.var * self.tile
        used = {
            column * self.conv.stride + tap * self.conv.dilation
            for column in range(self.tile)
            for tap in range(self.conv.taps)
        }
        code = [
            self._load(place, first * self.conv.stride + self.conv.start) for place in sorted(used)
        ]
        each = unrolled("column", self.tile, self.dtype, lambda at: self._column(at, first + at))
        axes = [*self.others, self.tiles, self.vectors]
        local = [self.x, self.sums, self.out]
        return in_threads(func, self.fused, axes, tirx.SeqStmt([*code, each]), local, most)

    def _channel(self, lane: Any) -> Any:
        return self.vectors.var * self.lanes + lane

    def _load(self, place: int, start: Any) -> Any:
        """Return the code that loads a column of x."""
        data, column = self.conv.data, start + place

        def element(lane: Any) -> Any:
            indices = [*data.indices[:-1], self._channel(lane)]
            indices[self.conv.axis] = column
            return self.x, [place * self.lanes + lane], data.source[tuple(indices)]

        nothing = unrolled(
            "lane",
            self.lanes,
            self.dtype,
            lambda lane: BufferStore(self.x, outside(self.conv), [place * self.lanes + lane]),
        )
        inside = tirx.all(column >= 0, column < self.conv.width)
        return IfThenElse(inside, copied(self.lanes, self.dtype, element), nothing)

    def _column(self, at: Any, column: Any) -> Any:
        """Return the code of a vector of the result."""
        conv, fused = self.conv, self.fused

        def x(tap: Any, lane: Any) -> Any:
            return self.x[(at * conv.stride + tap * conv.dilation) * self.lanes + lane]

        def values(lane: Any) -> dict[Any, Any]:
            return {conv.column.var: column, self.channels.var: self._channel(lane)}

        def element(lane: Any) -> Any:
            indices = [
                column if index.same_as(conv.column.var) else index for index in fused.indices[:-1]
            ]
            return fused.buffer, [*indices, self._channel(lane)], self.out[lane]

        code = computed(fused, self.lanes, self.sums, self.out, x, values)
        code.append(copied(self.lanes, self.dtype, element))
        return IfThenElse(column < conv.columns, tirx.SeqStmt(code), None)
