"""Writes a convolution of a piece of streams in tiles: see :mod:`.stream_conv`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad, prim
from tvm.script.ir_builder import tirx as T

from ...recognize.stages import Axis, Stage
from ...tir.build import replace
from ...tir.walk import handle, loads, substitute, uses
from .quantised import is_quantised, quantised
from .stream_conv import Found, State, from_first
from .tile_writer import Span, TileWriter
from .tiles import PARTITIONS

#: Columns of a tile at most, and bytes of a partition that its tiles may take.
_COLUMNS = 2048
_BYTES = 80 * 1024


@dataclass(frozen=True)
class Section:
    """A range of channels or columns in tiles of one size.

    - `start`: the first.
    - `size`, `count`: of a tile, and how many there are.
    """

    start: int
    size: int
    count: int


def sections(extent: int, size: int) -> Iterator[Section]:
    """Cut a range into tiles of a size, and a smaller one at the end.

    >>> [(s.start, s.size, s.count) for s in sections(300, 128)]
    [(0, 128, 2), (256, 44, 1)]
    """
    whole, rest = divmod(extent, size)
    if whole:
        yield Section(0, size, whole)
    if rest:
        yield Section(whole * size, rest, 1)


def rewritten(found: Found, by_vector: bool = False) -> tirx.PrimFunc:
    """Write the function: what the step "neuron_stream" does.

    - `by_vector`: whether the vector engine multiplies the first tap, too. The scalar engine, which
      does otherwise, begins no tile before it has finished what follows the sums of the last one.
    """
    return _Writer(found, "vector" if by_vector else "scalar").write()


class _Writer:
    def __init__(self, found: Found, first: str) -> None:
        self.found, conv = found, found.conv
        self.first = first
        self.writer = TileWriter(found.func, str(conv.column.var.ty.dtype))
        self.dtype = str(conv.data.source.ty.dtype)
        masks = conv.taps - 1 if found.mask else 0
        most = _BYTES // (4 * (masks + 6))
        width = int(conv.columns)
        self.columns = -(-width // -(-width // min(_COLUMNS, most)))
        count = -(-found.channels // PARTITIONS)
        self.rows = -(-found.channels // count)
        self.weights: dict[int, Any] = {}
        self.columns_of: dict[tuple[int, int], Any] = {}

    # ---- The whole -----------------------------------------------------------------------------

    def write(self) -> tirx.PrimFunc:
        """Write everything."""
        found, writer = self.found, self.writer
        channels = list(sections(found.channels, self.rows))
        with writer.function():
            for each in channels:
                self._constants(each)
            with writer.loop("n", int(found.image.dom.extent)):
                for columns in sections(int(found.conv.columns), self.columns):
                    with writer.loop("t", columns.count):
                        masks = self._masks(columns)
                        for each in channels:
                            with writer.loop("q", each.count):
                                self._tile(each, columns, masks)
                for state in found.states:
                    mask = self._state_mask(state)
                    for each in channels:
                        with writer.loop("q", each.count):
                            self._state(state, each, mask)
        return writer.written()

    def _placed(self, expr: Any, values: dict[Any, Any]) -> Any:
        """Return an expression at some values of its axes, over the new parameters."""
        return substitute(substitute(expr, values), dict(self.writer.parameters))

    def _channel(self, section: Section, at: Any) -> Any:
        return at["p"] * section.count + at["q"] + section.start

    def _column(self, section: Section, at: Any) -> Any:
        return at["t"] * section.size + section.start + at["w"]

    # ---- Weights and bias ----------------------------------------------------------------------

    def _constants(self, section: Section) -> None:
        """Load what each channel has, for all tiles of a section."""
        conv, writer = self.found.conv, self.writer
        shape = (section.size, section.count, conv.taps)
        spans = {"p": Span(section.size, "P"), "q": Span(section.count), "f": Span(conv.taps)}
        tile = writer.tile("weight_tile", shape, str(self.found.weight.ty.dtype))
        with writer.block("weight_tile", spans) as at:
            values = {self.found.channel.var: self._channel(section, at), conv.tap.var: at["f"]}
            value = self._placed(self.found.weight, values)
            T.buffer_store(tile, value, [at["p"], at["q"], at["f"]])
        self.weights[section.start] = tile
        channel = self._axis(self.found.channel)
        for load in self._column_loads():
            tile = writer.tile(f"{load.source.name}_tile", shape[:2], str(load.ty.dtype))
            inner = {key: spans[key] for key in ("p", "q")}
            with writer.block(f"{load.source.name}_tile", inner) as at:
                value = self._placed(load, {channel.var: self._channel(section, at)})
                T.buffer_store(tile, value, [at["p"], at["q"]])
            self.columns_of[section.start, handle(load.source)] = tile

    def _axis(self, own: Any) -> Axis:
        """Return the axis of y that is one of the convolution's."""
        stage = self.program_stage()
        at = next(i for i, axis in enumerate(stage.axes) if handle(axis.var) == handle(own.var))
        return self.found.result.axes[at]

    def program_stage(self) -> Stage:
        """Return the stage of the sum, whose axes are in the order of those of y."""
        stage = self.found.program.stage_of(self.found.conv.out.source)
        assert stage is not None
        return stage

    def _loads(self) -> list[Any]:
        """Return what an element of y is made of besides its sum, each buffer once."""
        found: dict[int, Any] = {}
        for load in loads(self.found.result.value):
            found.setdefault(handle(load.source), load)
        return list(found.values())

    def _column_loads(self) -> list[Any]:
        """Return those with an element for each channel."""
        column, image = self._axis(self.found.conv.column), self._axis(self.found.image)
        return [load for load in self._loads() if not uses(load, column.var, image.var)]

    # ---- Masks ---------------------------------------------------------------------------------

    def _numbers(self, name: str, numbers: Any, columns: int, column: Any) -> Any:
        """Load sequence numbers onto all partitions.

        - `column`: returns the column of an index of the tile; below 0, the first one counts.
        """
        writer, source = self.writer, self.writer.parameters[numbers]
        tile = writer.tile(name, (self.rows, columns), "int32")
        spans = {"p": Span(self.rows, "P"), "w": Span(columns)}
        with writer.block(name, spans) as at:
            place = column(at)
            first = source[at["n"], writer.number(0)]
            value = T.if_then_else(place >= 0, source[at["n"], place], first)
            T.buffer_store(tile, value, [at["p"], at["w"]])
        return tile

    def _masks(self, section: Section) -> dict[int, Any]:
        """Write which columns of each tap count, for all channels."""
        mask, writer = self.found.mask, self.writer
        if mask is None:
            return {}
        offsets = self.found.offsets
        low, high = min(0, *offsets), max(0, *offsets)
        size = section.size + high - low
        tile = self._numbers(
            "numbers_tile", mask.numbers, size, lambda at: self._column(section, at) + low
        )
        found = {}
        for tap, offset in enumerate(offsets):
            if offset == 0:
                continue
            same = writer.tile("same", (self.rows, section.size), "uint32")
            with writer.block("same", {"p": Span(self.rows, "P"), "w": Span(section.size)}) as at:
                pair = [tile[at["p"], at["w"] + (place - low)] for place in (offset, 0)]
                T.buffer_store(same, T.cast(prim.EQ(*pair), "uint32"), [at["p"], at["w"]])
            found[tap] = same
        return found

    # ---- Tiles ---------------------------------------------------------------------------------

    def _tile(self, channels: Section, columns: Section, masks: dict[int, Any]) -> None:
        """Write y for a tile."""
        found, conv, writer = self.found, self.found.conv, self.writer
        rows, size = channels.size, columns.size
        reach = (size - 1) * conv.stride + (conv.taps - 1) * conv.dilation + 1
        x = writer.tile("x_tile", (rows, reach), self.dtype)
        with writer.block("x_tile", {"p": Span(rows, "P"), "w": Span(reach)}, "gpsimd") as at:
            first = (at["t"] * size + columns.start) * conv.stride + conv.start
            values = {found.image.var: at["n"], found.channel.var: self._channel(channels, at)}
            places = [substitute(index, values) for index in conv.data.indices]
            places[conv.axis] = first + at["w"]
            T.buffer_store(x, self._data(places), [at["p"], at["w"]])
        total = writer.tile("total", (rows, size), "float32")
        for tap in range(conv.taps):
            self._tap(channels, size, tap, x, total, masks.get(tap))
        tiles = {
            handle(load.source): self._operand(load, channels, columns)
            for load in self._loads()
            if (channels.start, handle(load.source)) not in self.columns_of
        }
        result = found.result.buffer
        y = writer.tile("y_tile", (rows, size), str(result.dtype))
        with writer.block("y_tile", {"p": Span(rows, "P"), "w": Span(size)}) as at:
            T.buffer_store(y, self._value(at, channels, total, tiles), [at["p"], at["w"]])
        with writer.block("stored", {"p": Span(rows, "P"), "w": Span(size)}) as at:
            values = self._at(channels, columns, at)
            indices = [substitute(index, values) for index in found.result.indices]
            T.buffer_store(writer.parameters[result], y[at["p"], at["w"]], indices)

    def _at(self, channels: Section, columns: Section, at: Any) -> dict[Any, Any]:
        """Return the values of the axes of y."""
        return {
            self._axis(self.found.image).var: at["n"],
            self._axis(self.found.channel).var: self._channel(channels, at),
            self._axis(self.found.conv.column).var: self._column(columns, at),
        }

    def _data(self, places: list[Any]) -> Any:
        """Return a column, one of the state, or a zero."""
        source = self.found.source
        if source is None:
            return self.writer.parameters[self.found.conv.data.source][tuple(places)]
        values = {axis.var: place for axis, place in zip(source.axes, places, strict=True)}
        return self._placed(source.value, values)

    def _operand(self, load: Any, channels: Section, columns: Section) -> Any:
        """Load a tile of what an element of y needs besides its sum."""
        writer, name = self.writer, f"{load.source.name}_tile"
        tile = writer.tile(name, (channels.size, columns.size), str(load.ty.dtype))
        spans = {"p": Span(channels.size, "P"), "w": Span(columns.size)}
        with writer.block(name, spans) as at:
            value = self._placed(load, self._at(channels, columns, at))
            T.buffer_store(tile, value, [at["p"], at["w"]])
        return tile

    def _tap(self, channels: Section, size: int, tap: int, x: Any, total: Any, same: Any) -> None:
        """Write the term of a tap, added to the sum so far."""
        conv, writer = self.found.conv, self.writer
        spans = {"p": Span(channels.size, "P"), "w": Span(size)}

        def column(at: Any) -> Any:
            return x[at["p"], at["w"] * conv.stride + tap * conv.dilation]

        kept = None if same is None else self._kept("kept", spans, column, same)
        with writer.block("total", spans, self.first if tap == 0 else "") as at:
            value = column(at) if kept is None else kept[at["p"], at["w"]]
            weight = self.weights[channels.start][at["p"], at["q"], tap]
            term = T.cast(value, "float32") * T.cast(weight, "float32")
            place = [at["p"], at["w"]]
            T.buffer_store(total, term if tap == 0 else total[tuple(place)] + term, place)

    def _kept(self, name: str, spans: dict[str, Span], column: Any, same: Any) -> Any:
        """Write columns that count, and zeros for the others; integers as float32.

        - `column`: returns the column of an index.
        - `same`: which columns count.
        """
        dtype = "float32" if self.dtype == "int8" else self.dtype
        tile = self.writer.tile(name, tuple(span.extent for span in spans.values()), dtype)
        with self.writer.block(name, spans) as at:
            counts = prim.NE(same[at["p"], at["w"]], tirx.const(0, "uint32"))
            value = T.if_then_else(counts, T.cast(column(at), dtype), tirx.const(0, dtype))
            T.buffer_store(tile, value, [at["p"], at["w"]])
        return tile

    def _value(self, at: Any, channels: Section, total: Any, tiles: dict[int, Any]) -> Any:
        """Return an element of y, over tiles."""
        result, by = self.found.result, total[at["p"], at["w"]]
        [(var, _)] = result.sums
        if is_quantised(result.buffer):
            value = quantised(result.value, var, self.found.conv.taps, by)
        else:
            value = substitute(result.value, {var: by})

        def load(node: Any) -> Any:
            key = handle(node.source)
            if key == handle(total):
                return node
            column = self.columns_of.get((channels.start, key))
            return tiles[key][at["p"], at["w"]] if column is None else column[at["p"], at["q"]]

        return replace(value, TensorLoad, load)

    # ---- States --------------------------------------------------------------------------------

    def _state_mask(self, state: State) -> Any:
        """Write which columns of a state count; None if all do."""
        mask, writer = state.mask, self.writer
        if mask is None:
            return None
        size = int(state.column.extent)

        def place(column: Any) -> Any:
            index = from_first(column)
            return lambda at: substitute(index, {state.column.var: at["w"]})

        own, other = (
            self._numbers("state_numbers", mask.numbers, size, place(column))
            for column in (mask.own, mask.other)
        )
        same = writer.tile("state_same", (self.rows, size), "uint32")
        with writer.block("state_same", {"p": Span(self.rows, "P"), "w": Span(size)}) as at:
            place_ = (at["p"], at["w"])
            T.buffer_store(same, T.cast(prim.EQ(own[place_], other[place_]), "uint32"), place_)
        return same

    def _state(self, state: State, channels: Section, same: Any) -> None:
        """Write a final state."""
        writer, stage = self.writer, state.stage
        size = int(state.column.extent)
        spans = {"p": Span(channels.size, "P"), "w": Span(size)}
        tile = writer.tile("state_tile", (channels.size, size), self.dtype)
        with writer.block("state_tile", spans) as at:
            places = self._places(state, state.value.indices, channels, at)
            T.buffer_store(tile, self._data(places), [at["p"], at["w"]])
        if same is not None:
            loaded = tile
            tile = self._kept("state_kept", spans, lambda at: loaded[at["p"], at["w"]], same)
        if same is not None and self.dtype == "int8":
            kept, tile = tile, writer.tile("state_int8", (channels.size, size), "int8")
            with writer.block("state_int8", spans) as at:
                value = T.cast(T.nearbyint(kept[at["p"], at["w"]]), "int8")
                T.buffer_store(tile, value, [at["p"], at["w"]])
        with writer.block("state_stored", spans) as at:
            indices = [axis.var for axis in stage.axes]
            places = self._places(state, indices, channels, at)
            T.buffer_store(writer.parameters[stage.output], tile[at["p"], at["w"]], places)

    def _places(self, state: State, indices: Any, channels: Section, at: Any) -> list[Any]:
        """Return indices of an element of a state, or of what it is a copy of."""
        values = {
            state.image.var: at["n"],
            state.channel.var: self._channel(channels, at),
            state.column.var: at["w"],
        }
        return [substitute(index, values) for index in indices]
