"""Writes reductions of windows in tiles, with a block for each step: see :mod:`.windows`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script.ir_builder import tirx as T

from ...tir.build import replace
from ...tir.walk import substitute
from .read_windows import Windows
from .stream_tiles import Section, sections
from .tile_writer import Span, TileWriter
from .tiles import PARTITIONS
from .windows import Tiling, uses_row

At = Mapping[str, Any]


def rewritten(found: Windows, tiling: Tiling) -> tirx.PrimFunc:
    """Write the function: what the step "neuron_windows" does."""
    return _Writer(found, tiling).write()


class _Writer:
    def __init__(self, found: Windows, tiling: Tiling) -> None:
        self.found = found
        self.writer = TileWriter(found.func, str(found.row.var.ty.dtype))
        self.rows = tiling.rows
        self.first = "" if tiling.by_vector else "scalar"
        count = found.out_channel.extent
        self.channels = list(sections(count, -(-count // -(-count // PARTITIONS))))
        self.weights: dict[int, Any] = {}
        self.columns: dict[tuple[int, str], Any] = {}

    def write(self) -> tirx.PrimFunc:
        """Write everything."""
        found, writer = self.found, self.writer
        with writer.function():
            for each in self.channels:
                self._constants(each)
            with writer.loop("n", found.image.extent):
                for rows in sections(found.row.extent, self.rows):
                    with writer.loop("b", rows.count):
                        for each in self.channels:
                            with writer.loop("q", each.count):
                                self._tile(each, rows)
        return writer.written()

    def _channel(self, section: Section, at: At) -> Any:
        return at["p"] * section.count + at["q"] + section.start

    def _row(self, section: Section, at: At) -> Any:
        return at["b"] * section.size + section.start

    def _placed(self, expr: Any, values: dict[Any, Any]) -> Any:
        """Return an expression at some values of its axes, over the new parameters."""
        return substitute(substitute(expr, values), dict(self.writer.parameters))

    def _constants(self, section: Section) -> None:
        """Load what each channel has, for all tiles of a section."""
        found, writer = self.found, self.writer
        spans = {"p": Span(section.size, "P"), "q": Span(section.count)}
        if found.weight is not None:
            axes = found.tap_row, found.tap_column
            sizes = tuple(axis.extent for axis in axes)
            shape = (section.size, section.count, *sizes)
            tile = writer.tile("weight_tile", shape, str(found.weight.source.ty.dtype))
            taps = {"kh": Span(sizes[0]), "kw": Span(sizes[1])}
            with writer.block("weight_tile", {**spans, **taps}) as at:
                values = {found.out_channel.var: self._channel(section, at)}
                values |= {axes[0].var: at["kh"], axes[1].var: at["kw"]}
                value = self._placed(found.weight, values)
                T.buffer_store(tile, value, [at["p"], at["q"], at["kh"], at["kw"]])
            self.weights[section.start] = tile
        for text, load in found.others.items():
            if uses_row(found, load):
                continue
            name = f"{load.source.name}_tile"
            tile = writer.tile(name, (section.size, section.count), str(load.ty.dtype))
            with writer.block(name, spans) as at:
                value = self._placed(load, {found.out_channel.var: self._channel(section, at)})
                T.buffer_store(tile, value, [at["p"], at["q"]])
            self.columns[section.start, text] = tile

    # ---- Tiles ---------------------------------------------------------------------------------

    def _tile(self, channels: Section, rows: Section) -> None:
        """Write a block of rows of the results."""
        image = self._image(channels, rows)
        if self.found.weight is not None:
            total = self._weighted(image, channels, rows.size)
        else:
            total = self._pooled(image, channels.size, rows.size)
        self._result(total, channels, rows)

    def _image(self, channels: Section, rows: Section) -> Any:
        """Write how rows of an image come on the chip, with what pads them."""
        found, writer = self.found, self.writer
        shape = (channels.size, found.rows_for(rows.size), found.shape[3])
        tile = writer.tile("x_tile", shape, found.dtype)
        spans = {"p": Span(shape[0], "P"), "h": Span(shape[1]), "w": Span(shape[2])}
        with writer.block("x_tile", spans, "gpsimd") as at:
            row = self._row(rows, at) * found.strides[0] + at["h"]
            place = at["n"], self._channel(channels, at), row, at["w"]
            value = self._placed(found.padded, dict(zip(found.places, place, strict=True)))
            T.buffer_store(tile, value, [at["p"], at["h"], at["w"]])
        return tile

    def _weighted(self, image: Any, channels: Section, rows: int) -> Any:
        """Write the sums of weighted windows, tap by tap."""
        found, writer = self.found, self.writer
        shape = (channels.size, rows, found.column.extent)
        total = writer.tile("total", shape, "float32")
        taps = [
            (kh, kw) for kh in range(found.tap_row.extent) for kw in range(found.tap_column.extent)
        ]
        for tap in taps:
            first = tap == taps[0]
            with self._block("total", shape, self.first if first else "") as at:
                row = at["h"] * found.strides[0] + tap[0] * found.dilations[0]
                column = at["w"] * found.strides[1] + tap[1] * found.dilations[1]
                weight = self.weights[channels.start][at["p"], at["q"], tap[0], tap[1]]
                value = image[at["p"], row, column]
                term = T.cast(value, "float32") * T.cast(weight, "float32")
                place = [at["p"], at["h"], at["w"]]
                T.buffer_store(total, term if first else total[tuple(place)] + term, place)
        return total

    def _pooled(self, image: Any, channels: int, rows: int) -> Any:
        """Write what windows are combined to: along columns first, then along rows."""
        found = self.found
        size = int(image.shape[1])
        across = self._combined(
            "across", (channels, size, found.column.extent), found.tap_column.extent,
            lambda at, tap: image[
                at["p"], at["h"], at["w"] * found.strides[1] + tap * found.dilations[1]
            ],
            None,
        )  # fmt: skip
        return self._combined(
            "total", (channels, rows, found.column.extent), found.tap_row.extent,
            lambda at, tap: across[
                at["p"], at["h"] * found.strides[0] + tap * found.dilations[0], at["w"]
            ],
            found.init,
        )  # fmt: skip

    def _combined(
        self, name: str, shape: tuple[int, ...], taps: int, element: Any, init: Any
    ) -> Any:
        """Write the combination of the elements of a line; of a constant, too, if there is one."""
        found = self.found
        dtype = str(found.sum.ty.dtype)
        total = self.writer.tile(name, shape, dtype)
        for tap in range(taps):
            with self._block(name, shape, "") as at:
                place = [at["p"], at["h"], at["w"]]
                value = T.cast(element(at, tap), dtype)
                before = total[tuple(place)] if tap else init
                T.buffer_store(
                    total, value if before is None else found.combine(before, value), place
                )
        return total

    def _block(self, name: str, shape: tuple[int, ...], engine: str) -> Any:
        spans = {"p": Span(shape[0], "P"), "h": Span(shape[1]), "w": Span(shape[2])}
        return self.writer.block(name, spans, engine)

    def _result(self, total: Any, channels: Section, rows: Section) -> None:
        """Compute what follows the windows, and store it."""
        found, writer = self.found, self.writer
        shape = (channels.size, rows.size, found.column.extent)

        def place(at: At) -> tuple[Any, ...]:
            row = self._row(rows, at) + at["h"]
            return at["n"], self._channel(channels, at), row, at["w"]

        tiles = {}
        for text, load in found.others.items():
            if (channels.start, text) in self.columns:
                continue
            name = f"{load.source.name}_tile"
            tiles[text] = writer.tile(name, shape, str(load.ty.dtype))
            with self._block(name, shape, "") as at:
                values = {axis.var: by for axis, by in zip(found.axes, place(at), strict=True)}
                value = self._placed(load, values)
                T.buffer_store(tiles[text], value, [at["p"], at["h"], at["w"]])
        made = total
        if not found.result.same_as(found.sum):
            made = self._followed(total, shape, channels, tiles)
        with self._block("store", shape, "") as at:
            target = writer.parameters[found.output]
            T.buffer_store(target, made[at["p"], at["h"], at["w"]], place(at))

    def _followed(
        self, total: Any, shape: tuple[int, ...], channels: Section, tiles: dict[str, Any]
    ) -> Any:
        """Write what follows the windows, over tiles."""
        found = self.found
        made = self.writer.tile("result", shape, str(found.output.dtype))
        with self._block("out", shape, "") as at:
            index = at["p"], at["h"], at["w"]

            def load_of(node: Any) -> Any:
                column = self.columns.get((channels.start, str(node)))
                return tiles[str(node)][index] if column is None else column[at["p"], at["q"]]

            value = replace(found.result, TensorLoad, load_of)
            T.buffer_store(made, substitute(value, {found.sum: total[index]}), index)
        return made
