"""The rule for the next columns of streams on Trainium: states that are updated in place.

    load weights and bias                      channels on partitions, several on each
    for the streams:
        load the columns and the state         long pieces of contiguous memory
        total = sum of the taps
        y = f(total)
        store y and the state, one column on

NKI's kernels return what they compute: the state after the call is a result of its own. A pool of
states is changed where it is, as a kernel may do with its argument: other streams' states stay.

A circular state begins at a column that depends on data. It is rotated by 1, 2, 4, ... columns,
each time where that bit of the place is set: copies under masks, whatever the values are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import TensorLoad, prim
from tvm.script.ir_builder import tirx as T

from ...neuron.emit.values import MOST_DIVISOR
from ...neuron.machine import Machine
from ...recognize.stages import Axis, analyzer_of
from ...recognize.stream_elements import Element
from ...recognize.stream_update import Update, read_update
from ...recognize.streams import read_streams
from ...rewrites.step import NotRewritten, rewrite
from ...tir.build import replace
from ...tir.walk import handle, loads, parts_of, same, substitute, uses
from ..choice import Choice
from .quantised import in_float32, is_quantised, quantised
from .rule import NeuronRule
from .tile_writer import Span, TileWriter
from .tiles import PARTITIONS, best, is_fixed


class StreamUpdate(NeuronRule):
    """Schedules the next columns of a convolution, with a state for each stream.

    The states of a call are those of its streams, in order, or an array of indices picks them from
    a pool: indices outside of it, which the function's checks refuse on a processor, are refused by
    the transfers, and equal ones are not noticed; nor are negative positions. A circular state is
    loaded as a whole, rotated so that it begins with its oldest column, and rotated back.

    Example
    -------
    >>> from fuse_epilogue import neuron, schedules
    >>> from fuse_epilogue.workloads import depthwise_conv1d_update
    >>> func = depthwise_conv1d_update(1, 4096, 4, activation="silu")
    >>> kernel = neuron.emit(schedules.neuron.StreamUpdate().apply(func, "trn2"))
    >>> [name for name in kernel.inputs]
    ['x', 'weight', 'bias', 'state']
    """

    def _choose(self, func: tirx.PrimFunc, core: Machine) -> Choice:
        try:
            find_update(func)
        except NotRewritten as why:
            return Choice("", str(why))
        sch = s_tir.Schedule(func)
        rewrite(sch, sch.get_sblock("root"), "neuron_update")
        return best(core, [("all channels of a stream at once", sch)])


@dataclass(frozen=True)
class Operand:
    """A parameter, as a tile has it.

    - `buffer`: tvm.tirx.Buffer.
    - `places`: a letter for each dimension: "n" for streams, "c" for channels, "j" for a number,
      "r" for a place in a ring that begins at a position of the stream.
    - `indices` (tvm.tirx.Buffer or None): the states of the streams in a pool.
    """

    buffer: Any
    places: str
    indices: Any = None

    @property
    def dtype(self) -> str:
        """Type of its elements."""
        return str(self.buffer.dtype)

    def shape(self, channels: int) -> tuple[int, ...]:
        """Return the shape of a tile without its partitions, n channels on each."""
        sizes = zip(self.places, self.buffer.shape, strict=True)
        return tuple(
            channels if place == "c" else int(size) for place, size in sizes if place != "n"
        )


@dataclass
class ReadUpdate:
    """An update that can be scheduled.

    - `streams`: the axis of streams; None if it has none.
    - `operands`: parameters that are loaded or stored, by the handles of their buffers.
    - `tables`: the handles of parameters that indices are read of.
    - `positions` (tvm.tirx.Buffer or None): where the rings of the streams begin, modulo `length`.
    """

    func: tirx.PrimFunc
    update: Update
    streams: Axis | None
    channels: Axis
    operands: dict[int, Operand] = field(default_factory=dict)
    tables: frozenset[int] = frozenset()
    positions: Any = None
    length: int = 1

    def add(self, buffer: Any, indices: Any) -> None:
        """Note what is accessed at some indices."""
        if handle(buffer) in self.tables:
            return
        picks = [pick for index in indices if (pick := _pick(index)) is not None]
        places = "".join(map(self._place, indices))
        table = picks[0].source if picks else None
        known = self.operands.setdefault(handle(buffer), Operand(buffer, places, table))
        if known.places != places or places.count("c") != 1 or places.count("n") > 1:
            raise NotRewritten(f"'{buffer.name}' is not read by streams and channels")

    def _place(self, index: Any) -> str:
        if isinstance(index, prim.IntImm):
            return "j"
        ring = _ring(index)
        if ring is not None:
            table, stream, self.length, _ = ring
            if self.streams is not None and handle(stream) != handle(self.streams.var):
                raise NotRewritten("a position is not that of the stream")
            if self.length > MOST_DIVISOR:
                raise NotRewritten(
                    f"a circular state has at most {MOST_DIVISOR} columns here, for exact "
                    f"remainders in float32, not {self.length}: use circular=False"
                )
            self.positions = table
            return "r"
        pick = _pick(index)
        if pick is not None and len(pick.indices) == 1:
            index = pick.indices[0]
        for letter, axis in (("n", self.streams), ("c", self.channels)):
            if axis is not None and same(index, axis.var):
                return letter
        raise NotRewritten(
            "an address depends on data that is neither the state's place in a pool nor a position "
            "in a ring"
        )


def _pick(index: Any) -> Any:
    """Return the load of an index of a pool, cast to the type of indices, or None."""
    while isinstance(index, prim.Cast):
        index = index.value
    return index if isinstance(index, TensorLoad) else None


def _ring(index: Any) -> tuple[Any, Any, int, int] | None:
    """Return the table, its index, L and k of ``(table[n] mod L + k) mod L``, None for others."""
    if not isinstance(index, prim.FloorMod) or not isinstance(index.b, prim.IntImm):
        return None
    length, place, start = int(index.b), 0, index.a
    if isinstance(start, prim.Add) and isinstance(start.b, prim.IntImm):
        place, start = int(start.b), start.a
    inner = _pick(start.a if isinstance(start, prim.FloorMod) else start)
    same = not isinstance(start, prim.FloorMod) or int(start.b) == length
    if inner is None or len(inner.indices) != 1 or not same:
        return None
    return inner.source, inner.indices[0], length, place % length


def find_update(func: tirx.PrimFunc) -> ReadUpdate:
    """Return the update that a function computes.

    - `func`: not scheduled.
    - Raises NotRewritten: it computes something else, or its addresses depend on data.
    """
    streams = read_streams(func) if is_fixed(func, also=("int32", "int8")) else None
    update = None if streams is None else read_update(streams)
    if update is None:
        raise NotRewritten(
            "it updates no state in place, or one of a pool whose indices are not checked to differ"
        )
    *others, channels = update.axes
    if len(others) > 1:
        raise NotRewritten("its state has more dimensions than streams, channels and columns")
    tables = frozenset(_picking(update))
    found = ReadUpdate(func, update, others[0] if others else None, channels, tables=tables)
    analyzer = _analyzer()
    for element in update.elements:
        found.add(element.buffer, [analyzer.simplify(index) for index in element.indices])
        sums, value = _computed(element, analyzer)
        for expr in (*sums.values(), value):
            for load in loads(expr):
                found.add(load.source, load.indices)
    return found


def _picking(update: Update) -> Iterator[int]:
    """Yield the handles of buffers that indices of others are read of."""
    for element in update.elements:
        indices = [*element.indices]
        for expr in element.expressions:
            indices += [index for load in loads(expr) for index in load.indices]
        for load in (each for index in indices for each in loads(index)):
            yield handle(load.source)


def _computed(element: Element, analyzer: Any) -> tuple[dict[Any, Any], Any]:
    """Return the sums of an element, by their variables, and its value; all in float32.

    - Raises NotRewritten: it is of int8, and float32 does not have all its sums.
    """
    binds, value = element.computed(analyzer)
    sums = {bind.var: bind.value for bind in binds}
    if not sums or not is_quantised(element.buffer):
        return sums, value
    [(var, total)] = sums.items()
    by = tirx.Var(var.name, "float32")
    taps = len(parts_of(total, prim.Mul))
    return {by: in_float32(total)}, quantised(value, var, taps, by)


def _analyzer() -> Any:
    """Return an analyzer without axes: with them, the index of one channel would be a number."""
    return analyzer_of(())


def rewritten(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Write the function: what the step "neuron_update" does."""
    return _Writer(find_update(func)).write()


class _Writer:
    def __init__(self, found: ReadUpdate) -> None:
        self.found = found
        self.writer = TileWriter(found.func, str(found.channels.var.ty.dtype))
        count = found.channels.extent
        self.rows = max(p for p in range(1, min(PARTITIONS, count) + 1) if count % p == 0)
        self.columns = count // self.rows
        self.tiles: dict[int, Any] = {}
        self.bits: list[Any] = []

    def write(self) -> tirx.PrimFunc:
        """Write everything."""
        found, writer = self.found, self.writer
        stored = {handle(element.buffer) for element in found.update.elements}
        state = handle(found.update.state)
        inputs = [o for key, o in found.operands.items() if key not in stored or key == state]
        weights = [operand for operand in inputs if "n" not in operand.places]
        states = [operand for operand in inputs if operand not in weights]
        with writer.function():
            if found.positions is not None:
                self._positions()
            if found.streams is None or found.streams.extent == 1:
                # A state is rotated while the weights come.
                states, weights = [*states, *weights], []
            for operand in weights:
                self._load(operand)
            if found.streams is None:
                self._stream(states)
            else:
                with writer.loop("n", found.streams.extent):
                    self._stream(states)
        return writer.written()

    def _stream(self, inputs: list[Operand]) -> None:
        """Write what is done for a stream, after loading operands."""
        for operand in inputs:
            self._load(operand)
        results: dict[int, Any] = {}
        masks, state = [], self.found.operands[handle(self.found.update.state)]
        if self.found.positions is not None:
            # The oldest column first, so that every column has a place that is known.
            masks = self._masks(state)
            key = handle(state.buffer)
            self.tiles[key] = self._rotated(state, self.tiles[key], masks, 1)
            results[key] = self._copied(state, self.tiles[key])
        for element in self.found.update.elements:
            key = handle(element.buffer)
            if key not in results:
                operand = self.found.operands[key]
                shape = (self.rows, *operand.shape(self.columns))
                name = f"{operand.buffer.name}_result"
                results[key] = self.writer.tile(name, shape, str(operand.buffer.dtype))
            self._compute(element, results[key])
        if masks:
            key = handle(state.buffer)
            results[key] = self._rotated(state, results.pop(key), masks, -1)
        for key, tile in results.items():
            self._store(self.found.operands[key], tile)

    def _spans(self, operand: Operand) -> dict[str, Span]:
        """Return the loops over a tile."""
        sizes = enumerate(operand.shape(self.columns))
        return {"p": Span(self.rows, "P"), **{f"f{place}": Span(size) for place, size in sizes}}

    def _places(self, operand: Operand, at: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
        """Return the indices of an element in a tile, and in memory."""
        inner = [at[name] for name in at if name.startswith("f")]
        outer, rest = [], list(inner)
        for place in operand.places:
            index = at["n"] if place == "n" else rest.pop(0)
            if place == "n" and operand.indices is not None:
                table = self.writer.parameters[operand.indices]
                index = T.cast(table[index], str(at["n"].ty.dtype))
            outer.append(at["p"] * self.columns + index if place == "c" else index)
        return [at["p"], *inner], outer

    def _load(self, operand: Operand) -> None:
        """Write a block that loads a tile."""
        buffer = operand.buffer
        shape = (self.rows, *operand.shape(self.columns))
        tile = self.writer.tile(f"{buffer.name}_tile", shape, str(buffer.dtype))
        with self.writer.block(f"{buffer.name}_tile", self._spans(operand)) as at:
            inner, outer = self._places(operand, at)
            T.buffer_store(tile, self.writer.parameters[buffer][tuple(outer)], inner)
        self.tiles[handle(buffer)] = tile

    def _store(self, operand: Operand, tile: Any) -> None:
        """Write a block that stores a tile."""
        buffer, picked = operand.buffer, operand.indices is not None
        spans = self._spans(operand)
        with self.writer.block(f"{buffer.name}_stored", spans, distinct=picked) as at:
            inner, outer = self._places(operand, at)
            T.buffer_store(self.writer.parameters[buffer], tile[tuple(inner)], outer)

    def _compute(self, element: Element, result: Any) -> None:
        """Write the blocks that compute an element of each channel: its sums, then its value."""
        analyzer = _analyzer()
        exprs, value = _computed(element, analyzer)
        sums: dict[Any, Any] = {}
        for var, expr in exprs.items():
            total = self.writer.tile("total", (self.rows, self.columns), str(var.ty.dtype))
            with self._block("total") as at:
                T.buffer_store(total, self._at(expr, at, sums), [at["p"], at["f"]])
            sums[var] = total
        operand = self.found.operands[handle(element.buffer)]
        indices = [analyzer.simplify(index) for index in element.indices]
        with self._block(f"{operand.buffer.name}_part") as at:
            T.buffer_store(result, self._at(value, at, sums), self._in_tile(operand, indices, at))

    # ---- Rings ---------------------------------------------------------------------------------

    def _positions(self) -> None:
        """Write the bits of the place at which the ring of each stream begins."""
        found, writer = self.found, self.writer
        spans = {"p": Span(self.rows, "P"), "f": Span(int(found.positions.shape[0]))}
        shape = (self.rows, spans["f"].extent)
        loaded = writer.tile("positions_tile", shape, "int32")
        with writer.block("positions_tile", spans) as at:
            value = writer.parameters[found.positions][at["f"]]
            T.buffer_store(loaded, value, [at["p"], at["f"]])
        place = writer.tile("place", shape, "float32")
        with writer.block("place", spans) as at:
            value = prim.FloorMod(loaded[at["p"], at["f"]], tirx.const(found.length, "int32"))
            T.buffer_store(place, prim.Cast("float32", value), [at["p"], at["f"]])
        for step in reversed(self._steps()):
            bit = writer.tile("bit", shape, "float32")
            with writer.block("bit", spans) as at:
                value = place[at["p"], at["f"]] >= tirx.const(float(step), "float32")
                T.buffer_store(bit, T.cast(value, "float32"), [at["p"], at["f"]])
            self.bits.insert(0, bit)
            if step == 1:
                return
            rest = writer.tile("place", shape, "float32")
            with writer.block("place", spans) as at:
                value = bit[at["p"], at["f"]] * tirx.const(-float(step), "float32")
                value = value + place[at["p"], at["f"]]
                T.buffer_store(rest, value, [at["p"], at["f"]])
            place = rest

    def _steps(self) -> list[int]:
        """Return the rotations by whose combinations a ring may begin anywhere."""
        return [1 << bit for bit in range((self.found.length - 1).bit_length())]

    def _masks(self, state: Operand) -> list[Any]:
        """Write for all columns of a state whether each of the bits is set."""
        writer, spans = self.writer, self._spans(state)
        masks = []
        for bit in self.bits:
            mask = writer.tile("rotates", (self.rows, *state.shape(self.columns)), "uint8")
            with writer.block("rotates", spans) as at:
                set_ = bit[at["p"], at.get("n", 0)] >= tirx.const(0.5, "float32")
                T.buffer_store(mask, T.cast(set_, "uint8"), self._places(state, at)[0])
            masks.append(mask)
        return masks

    def _rotated(self, state: Operand, tile: Any, masks: list[Any], sign: int) -> Any:
        """Write the columns of a ring from its beginning on, or back again."""
        length, spans = self.found.length, self._spans(state)
        ring = state.places.replace("n", "").index("r") + 1
        for step, mask in zip(self._steps(), masks, strict=True):
            by = sign * step % length
            made = self.writer.tile("ring", (self.rows, *state.shape(self.columns)), state.dtype)
            with self.writer.block("ring", spans) as at:
                place = self._places(state, at)[0]
                before, after = list(place), list(place)
                before[ring], after[ring] = place[ring] + by, place[ring] + (by - length)
                inside = place[ring] < length - by
                moved = T.if_then_else(inside, tile[tuple(before)], tile[tuple(after)])
                set_ = prim.NE(mask[tuple(place)], tirx.const(0, "uint8"))
                T.buffer_store(made, T.if_then_else(set_, moved, tile[tuple(place)]), place)
            tile = made
        return tile

    def _copied(self, state: Operand, tile: Any) -> Any:
        """Write a copy of a state."""
        made = self.writer.tile("ring", (self.rows, *state.shape(self.columns)), state.dtype)
        with self.writer.block("ring", self._spans(state)) as at:
            place = tuple(self._places(state, at)[0])
            T.buffer_store(made, tile[place], place)
        return made

    # ---- Blocks --------------------------------------------------------------------------------

    def _block(self, name: str) -> Any:
        """Open a block over all channels."""
        return self.writer.block(name, {"p": Span(self.rows, "P"), "f": Span(self.columns)})

    def _in_tile(self, operand: Operand, indices: Any, at: Mapping[str, Any]) -> list[Any]:
        """Return the indices of an element in a tile, for channels of a block over all."""
        made = [at["p"]]
        for place, index in zip(operand.places, indices, strict=True):
            ring = _ring(index) if place == "r" else None
            if ring is not None:
                index = self.writer.number(ring[-1])
            made += [] if place == "n" else [at["f"] if place == "c" else index]
        return made

    def _at(self, expr: Any, at: Mapping[str, Any], sums: Mapping[Any, Any]) -> Any:
        """Return an expression of tiles."""

        def load(node: Any) -> Any:
            if handle(node.source) in self.found.tables:
                return node  # part of an index, which the tile does not have
            operand = self.found.operands[handle(node.source)]
            return self.tiles[handle(node.source)][tuple(self._in_tile(operand, node.indices, at))]

        totals = {var: total[at["p"], at["f"]] for var, total in sums.items() if uses(expr, var)}
        return substitute(replace(expr, TensorLoad, load), totals)
