"""Writes a 2-D convolution in tiles, with a block for each step: see :mod:`.conv2d`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script.ir_builder import tirx as T

from ...tir.build import replace
from ...tir.walk import substitute, uses
from .conv2d import Tiling
from .read_conv2d import Convolution2d
from .tile_writer import Span, TileWriter
from .tiles import BANK, PARTITIONS

#: Transpositions of 128 x 128 that are copied from PSUM together.
_TOGETHER = BANK // PARTITIONS

At = Mapping[str, Any]


def rewritten(found: Convolution2d, tiling: Tiling) -> tirx.PrimFunc:
    """Write the function: what the steps "neuron_conv2d" and "neuron_conv2d_tiles" do."""
    return _Writer(found, tiling).write()


class _Writer:
    def __init__(self, found: Convolution2d, tiling: Tiling) -> None:
        self.found = found
        self.writer = TileWriter(found.func, str(found.row.var.ty.dtype))
        self.taps = found.tap_row.extent * found.tap_column.extent
        self.tiles = math.ceil(found.channel.extent / PARTITIONS)
        self.partitions = min(PARTITIONS, found.channel.extent)
        self.rows, self.whole = tiling.rows, tiling.whole
        self.engine = "scalar" if tiling.by_scalar else ""

    def write(self) -> tirx.PrimFunc:
        """Write everything."""
        found, writer = self.found, self.writer
        with writer.function():
            self.weights = self._weights()
            self.columns = {
                text: self._column(load)
                for text, load in found.others.items()
                if not uses(load, found.column.var)
            }
            with writer.loop("n", found.image.extent):
                image = self._image(0, found.shape[2], "image") if self.whole else None
                blocks, rest = divmod(found.row.extent, self.rows)
                if blocks:
                    with writer.loop("block", blocks):
                        self._block(0, self.rows, image)
                if rest:
                    self._block(blocks * self.rows, rest, image)
        return writer.written()

    # ---- What stays --------------------------------------------------------------------------

    def _weights(self) -> Any:
        """Write the weights with the channels that are summed over on partitions."""
        found, writer = self.found, self.writer
        count = found.out_channel.extent
        shape = (self.partitions, self.tiles, self.taps, count)
        made = writer.tile("weights", shape, found.dtype)
        for first in range(0, count, PARTITIONS):
            rows = min(PARTITIONS, count - first)
            shape = (rows, found.channel.extent, found.tap_row.extent, found.tap_column.extent)
            natural = writer.tile("weight_rows", shape, found.dtype)
            names = ("o", "c", "kh", "kw")
            axes = (found.out_channel, found.channel, found.tap_row, found.tap_column)
            spans = {name: Span(size) for name, size in zip(names, shape, strict=True)}
            with writer.block("weight_load", {**spans, "o": Span(rows, "P")}) as at:
                index = [at[name] for name in names]
                table = {axis.var: value for axis, value in zip(axes, index, strict=True)}
                table[found.out_channel.var] = first + at["o"]
                value = substitute(substitute(found.weight, table), writer.parameters)
                T.buffer_store(natural, value, index)
            for tile in range(self.tiles):
                self._transposed(made, natural, first, tile)
        return made

    def _transposed(self, made: Any, natural: Any, first: int, tile: int) -> None:
        """Write the transpositions of some weights, tap by tap."""
        writer, rows = self.writer, int(natural.shape[0])
        start = tile * PARTITIONS
        count = min(PARTITIONS, self.found.channel.extent - start)
        for begin in range(0, self.taps, _TOGETHER):
            taps = min(_TOGETHER, self.taps - begin)
            psum = writer.tile("weight_psum", (count, taps, rows), self.found.dtype, "trn.psum")
            for tap in range(taps):
                spans = {"c": Span(count, "P"), "o": Span(rows)}
                with writer.block("weight_transpose", spans) as at:
                    row, column = divmod(begin + tap, self.found.tap_column.extent)
                    value = natural[at["o"], start + at["c"], row, column]
                    T.buffer_store(psum, value, (at["c"], tap, at["o"]))
            spans = {"c": Span(count, "P"), "k": Span(taps), "o": Span(rows)}
            with writer.block("weight_copy", spans) as at:
                place = (at["c"], tile, begin + at["k"], first + at["o"])
                T.buffer_store(made, psum[at["c"], at["k"], at["o"]], place)

    def _column(self, load: Any) -> Any:
        """Write what has a value for each channel of the result, such as a bias."""
        found, count = self.found, self.found.out_channel.extent
        tiles, rows = math.ceil(count / PARTITIONS), min(PARTITIONS, count)
        made = self.writer.tile(
            f"{load.source.name}_tile", (rows, tiles), str(load.source.ty.dtype)
        )
        for tile in range(tiles):
            size = min(PARTITIONS, count - tile * PARTITIONS)
            with self.writer.block(f"{load.source.name}_load", {"o": Span(size, "P")}) as at:
                table = {found.out_channel.var: tile * PARTITIONS + at["o"]}
                value = substitute(substitute(load, table), self.writer.parameters)
                T.buffer_store(made, value, (at["o"], tile))
        return made

    # ---- An image ----------------------------------------------------------------------------

    def _image(self, start: Any, rows: int, name: str) -> Any:
        """Write how rows of an image come on the chip, with their zeros."""
        found, writer = self.found, self.writer
        made = writer.tile(name, (self.partitions, self.tiles, rows, found.shape[3]), found.dtype)
        for tile in range(self.tiles):
            size = min(PARTITIONS, found.channel.extent - tile * PARTITIONS)
            spans = {"c": Span(size, "P"), "h": Span(rows), "w": Span(found.shape[3])}
            with writer.block(f"{name}_load", spans) as at:
                row = at["h"] + (start(at) if callable(start) else start)
                place = at["n"], tile * PARTITIONS + at["c"], row, at["w"]
                value = substitute(found.padded, dict(zip(found.places, place, strict=True)))
                value = substitute(value, writer.parameters)
                T.buffer_store(made, value, (at["c"], tile, at["h"], at["w"]))
        return made

    def _block(self, start: int, rows: int, image: Any) -> None:
        """Write some rows of the result; they begin at `start`, of the first of many in a loop."""
        found = self.found
        stride = found.strides[0]

        def first(at: At) -> Any:
            return at["block"] * self.rows + start if "block" in at else start

        if image is None:
            image = self._image(lambda at: first(at) * stride, found.rows_for(rows), "rows")

            def top(at: At) -> Any:
                return 0
        else:

            def top(at: At) -> Any:
                return first(at) * stride

        for channel in range(0, found.out_channel.extent, PARTITIONS):
            size = min(PARTITIONS, found.out_channel.extent - channel)
            sums = self._sums(image, top, channel, size, rows)
            self._result(sums, first, channel, size, rows)

    def _sums(self, image: Any, top: Any, channel: int, size: int, rows: int) -> Any:
        """Write the products of all taps."""
        found, writer = self.found, self.writer
        sums = writer.tile("sums", (size, rows, found.column.extent), "float32", "trn.psum")
        spans = {
            "tile": Span(self.tiles, "", summed=True),
            "kh": Span(found.tap_row.extent, "", summed=True),
            "kw": Span(found.tap_column.extent, "", summed=True),
            "o": Span(size, "lhs_F"),
            "h": Span(rows, "rhs_F"),
            "w": Span(found.column.extent, "rhs_F"),
            "c": Span(self.partitions, "P", summed=True),
        }
        with writer.block("product", spans) as at:
            if found.channel.extent % PARTITIONS and self.tiles > 1:
                T.where(at.loops["tile"] * PARTITIONS + at.loops["c"] < found.channel.extent)
            index = at["o"], at["h"], at["w"]
            with T.init():
                T.buffer_store(sums, tirx.const(0, "float32"), index)
            tap = at["kh"] * found.tap_column.extent + at["kw"]
            a = self.weights[at["c"], at["tile"], tap, channel + at["o"]]
            row = top(at) + at["h"] * found.strides[0] + at["kh"] * found.dilations[0]
            column = at["w"] * found.strides[1] + at["kw"] * found.dilations[1]
            b = image[at["c"], at["tile"], row, column]
            a, b = (T.cast(each, "float32") for each in (a, b))
            T.buffer_store(sums, sums[index] + a * b, index)
        return sums

    def _result(self, sums: Any, first: Any, channel: int, size: int, rows: int) -> None:
        """Write what follows the sums, and store it."""
        found, writer = self.found, self.writer
        spans = {"o": Span(size, "P"), "h": Span(rows), "w": Span(found.column.extent)}

        def place(at: At) -> tuple[Any, ...]:
            return at["n"], channel + at["o"], first(at) + at["h"], at["w"]

        def own(load: Any, at: At) -> Any:
            table = {axis.var: value for axis, value in zip(found.axes, place(at), strict=True)}
            return substitute(substitute(load, table), writer.parameters)

        tiles = {}
        for text, load in found.others.items():
            if text in self.columns:
                continue
            shape = (size, rows, found.column.extent)
            tiles[text] = writer.tile(f"{load.source.name}_tile", shape, str(load.source.ty.dtype))
            with writer.block(f"{load.source.name}_load", spans) as at:
                T.buffer_store(tiles[text], own(load, at), (at["o"], at["h"], at["w"]))
        shape = (size, rows, found.column.extent)
        made = writer.tile("result", shape, str(found.output.dtype))
        with writer.block("out", spans, self.engine) as at:
            index = at["o"], at["h"], at["w"]

            def load(node: Any) -> Any:
                if str(node) in self.columns:
                    return self.columns[str(node)][at["o"], channel // PARTITIONS]
                return tiles[str(node)][index]

            value = replace(found.result, TensorLoad, load)
            T.buffer_store(made, substitute(value, {found.sum: sums[index]}), index)
        with writer.block("store", spans) as at:
            target = writer.parameters[found.output]
            T.buffer_store(target, made[at["o"], at["h"], at["w"]], place(at))
