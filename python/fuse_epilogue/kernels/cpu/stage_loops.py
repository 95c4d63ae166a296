"""The loops of an elementwise stage: over rows in vectors, or over tiles where it transposes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx

from ...recognize.stages import Axis, Stage
from ...tir.affine import affine_of
from ...tir.types import bytes_of
from ...tir.walk import handle, substitute
from .loops import FlatViews, flat_index, index, loop, sequence, with_loads
from .transposition import EDGE, transposed_block
from .windows import (
    analyzer_with,
    guards,
    segments,
    switches,
    with_decided_guards,
    without_proved_guards,
)

#: Rows and columns of a tile, where an input is transposed.
TILE = 16
#: Parts of a row, each with loops of its own, that guards along it make.
MOST_SEGMENTS = 64


@dataclass(frozen=True)
class Access:
    """Place of a load or a store of a stage, for each axis.

    - `strides`: elements from one value of an axis to the next; None if that is not constant.
    """

    strides: tuple[int, ...] | None


def access_of(load: Any, stage: Stage) -> Access:
    """Return the place of a load, for each axis of its stage."""
    found = affine_of(load.indices[0], [axis.var for axis in stage.axes])
    return Access(None if found is None else found.factors)


def rows_of(stage: Stage, views: FlatViews, lanes: int, threads: int) -> Any:
    """Return loops over the outer axes, and over vectors of the last one.

    - `stage`: with flat loads, and at least one axis.
    - `lanes`: number of elements of a vector.
    - `threads`: number of threads that the loops are made for.
    """
    *outer, last = stage.axes
    parts = segments_of(stage) if lanes > 1 else [(0, last.extent, stage)]
    if len(parts) == 1:
        row = _Segment(0, last.extent, stage, views, lanes)
        return _outer(outer, row.loops, threads) if outer or threads == 1 else row.shared(threads)
    segments = [
        _Segment(begin, end, part, views, 1 if guards([part.value], last.var) else lanes)
        for begin, end, part in parts
    ]
    return _outer(outer, lambda at: sequence([each.loops(at) for each in segments]), threads)


def segments_of(stage: Stage) -> list[tuple[int, int, Stage]]:
    """Return the parts of a row in which its guards hold, or do not, without these guards.

    Where guards have other variables than the row's, one part is without guards, and what is around
    it has them. One part, the whole row, if there are no guards along the row, if more than the
    borders fail, or if there would be too many parts.

    - `stage`: with flat loads, and at least one axis.
    - Returns: begin and end of each part, and the stage as it is there.
    """
    *outer, last = stage.axes
    conditions = guards([stage.value], last.var)
    known = switches(conditions, last.var)
    if known:
        places = {each.place for each in known.values()}
        ends = [0, *sorted(each for each in places if 0 < each < last.extent), last.extent]
        if len(ends) > MOST_SEGMENTS + 1:
            return [(0, last.extent, stage)]
        values = [with_decided_guards(stage.value, known, begin) for begin in ends[:-1]]
        parts = zip(ends[:-1], ends[1:], values, strict=True)
        return [(begin, end, _with_value(stage, value)) for begin, end, value in parts]
    found = segments(conditions, outer, last.var, last.extent)
    if len(found) == 1:
        return [(0, last.extent, stage)]
    made = []
    for begin, end in found:
        analyzer = analyzer_with(outer, last.var, begin, end)
        value = without_proved_guards(stage.value, analyzer)
        made.append((begin, end, _with_value(stage, value)))
    return made


class _Segment:
    """A part of a row: vectors, and the elements that are left."""

    def __init__(self, begin: int, end: int, stage: Stage, views: FlatViews, lanes: int) -> None:
        while lanes > 1 and lanes > end - begin:
            lanes //= 2
        self.begin, self.lanes = begin, lanes
        self.vectors, self.left = divmod(end - begin, lanes)
        self.stage, self.views = stage, views

    def loops(self, values: dict[Any, Any]) -> Any:
        """Return the loops over all of it; the outer axes have some values."""
        return sequence([self._vectors(values, 0, self.vectors), self._left(values)])

    def shared(self, threads: int) -> Any:
        """Return loops in which each thread has a part of the vectors, of a stage of one axis."""
        most = index(-(-self.vectors // threads))

        def part(number: Any) -> Any:
            first = number * most
            count = tirx.max(index(0), tirx.min(most, index(self.vectors) - first))
            return self._vectors({}, first, count)

        parts = loop("part", 0, threads, part, tirx.ForKind.PARALLEL)
        return sequence([parts, self._left({})])

    def _vectors(self, values: dict[Any, Any], first: Any, count: Any) -> Any:
        def vector(number: Any) -> Any:
            at = number * index(self.lanes) + index(self.begin)
            kind = tirx.ForKind.VECTORIZED
            return loop("lane", 0, self.lanes, lambda lane: self._store(values, at + lane), kind)

        return loop("vector", first, count, vector)

    def _left(self, values: dict[Any, Any]) -> Any:
        if not self.left:
            return None
        first = index(self.begin + self.vectors * self.lanes)
        return loop("left", 0, self.left, lambda i: self._store(values, first + i))

    def _store(self, values: dict[Any, Any], at: Any) -> Any:
        return _store(self.stage, self.views, {**values, self.stage.axes[-1].var: at})


def _with_value(stage: Stage, value: Any) -> Stage:
    return replace(stage, stores=(replace(stage.stores[0], value=value),))


def _outer(axes: Sequence[Axis], body: Any, threads: int) -> Any:
    """Return loops over axes, the first two of which run in parallel as one if need be."""

    def visit(rest: Sequence[Axis], values: dict[Any, Any]) -> Any:
        if not rest:
            return body(values)
        first, *others = rest
        return loop(
            str(first.var.name), 0, first.extent, lambda i: visit(others, {**values, first.var: i})
        )

    if threads == 1 or not axes:
        return visit(axes, {})
    count = 1
    together = 0
    while together < len(axes) and count < 4 * threads:
        count *= axes[together].extent
        together += 1

    def parallel(number: Any) -> Any:
        values: dict[Any, Any] = {}
        left = number
        for place in range(together - 1, -1, -1):
            extent = index(axes[place].extent)
            values[axes[place].var] = tirx.floormod(left, extent) if place else left
            left = tirx.floordiv(left, extent)
        return visit(axes[together:], values)

    return loop("parallel", 0, count, parallel, tirx.ForKind.PARALLEL)


def tiles_of(stage: Stage, views: FlatViews, across: int, lanes: int, threads: int) -> Any:
    """Return loops over tiles of the last axis and of the one that an input is contiguous in.

    - `stage`, `views`, `lanes`, `threads`: as for :func:`rows_of`.
    - `across`: place of the other axis.
    """
    tiles = _Tiles(stage, views, across, lanes)
    axes = (tiles.other, tiles.last)
    outer = [axis for axis in stage.axes if axis not in axes]
    # The shorter axis inside: what is read and what is written of it stay in the cache.
    first, second = axes if tiles.other.extent >= tiles.last.extent else axes[::-1]
    parts = _parts(first.extent, tiles.edge)
    return sequence([tiles.bands(outer, first, second, part, threads) for part in parts])


def _parts(extent: int, edge: int) -> list[tuple[int, int, int]]:
    """Return begin, number and size of the whole tiles of an axis, and of what is left."""
    whole, rest = divmod(extent, edge)
    parts = [(0, whole, edge), (whole * edge, 1, rest)]
    return [(begin, count, size) for begin, count, size in parts if count and size]


class _Tiles:
    """The tiles of a stage with a transposed input."""

    def __init__(self, stage: Stage, views: FlatViews, across: int, lanes: int) -> None:
        self.stage, self.views = stage, views
        self.last, self.other = stage.axes[-1], stage.axes[across]
        self.lanes = min(lanes, TILE)
        pairs = [(load, access_of(load, stage).strides) for load in stage.loads]
        self.transposed = [
            load for load, strides in pairs if strides and strides[across] == 1 < strides[-1]
        ]
        # Shuffles are of 32 bits; of more inputs than two, the vectors do not fit into registers.
        in_registers = lanes >= EDGE and 0 < len(self.transposed) <= 2
        self.in_registers = in_registers and all(
            bytes_of(load.source.dtype) == 4 for load in self.transposed
        )
        self.edge = EDGE if self.in_registers else TILE

    def bands(
        self,
        outer: Sequence[Axis],
        first: Axis,
        second: Axis,
        part: tuple[int, int, int],
        threads: int,
    ) -> Any:
        """Return the loops over a part of the first axis, each with all of the second."""
        begin, count, size = part
        band = Axis(tirx.Var("band", "int64"), count)

        def tile(values: dict[Any, Any], start: int, wide: int) -> Callable[[Any], Any]:
            at = (values[band.var] * index(size) + index(begin), size)
            return lambda i: self.tile(
                values, {first: at, second: (i * index(wide) + index(start), wide)}
            )

        def body(values: dict[Any, Any]) -> Any:
            parts = _parts(second.extent, self.edge)
            return sequence(
                [loop("tile", 0, many, tile(values, start, wide)) for start, many, wide in parts]
            )

        return _outer([*outer, band], body, threads)

    def tile(self, values: dict[Any, Any], at: dict[Axis, tuple[Any, int]]) -> Any:
        """Return a tile that begins somewhere, and has some size, along each of its axes."""
        (row, rows), (column, columns) = at[self.other], at[self.last]
        if self.in_registers and (rows, columns) == (EDGE, EDGE):
            return self.block(values, row, column)
        return self.elements(values, row, rows, column, columns)

    def elements(self, values: dict[Any, Any], at: Any, rows: int, begin: Any, columns: int) -> Any:
        """Return the loops over a tile whose elements are loaded one by one."""
        whole, rest = divmod(columns, self.lanes)

        def row(i: Any) -> Any:
            own = {**values, self.other.var: at + i}

            def vector(v: Any) -> Any:
                def store(lane: Any) -> Any:
                    at = {**own, self.last.var: begin + v * index(self.lanes) + lane}
                    return _store(self.stage, self.views, at)

                return loop("lane", 0, self.lanes, store, tirx.ForKind.VECTORIZED)

            def element(j: Any) -> Any:
                at = {**own, self.last.var: begin + index(whole * self.lanes) + j}
                return _store(self.stage, self.views, at)

            body = [loop("vector", 0, whole, vector)] if whole else []
            return sequence([*body, loop("left", 0, rest, element)] if rest else body)

        return loop("row", 0, rows, row)

    def block(self, values: dict[Any, Any], at: Any, begin: Any) -> Any:
        """Return a tile that is loaded along one axis, transposed in registers, and stored."""
        statements: list[Any] = []
        table: dict[int, Any] = {}
        for load in self.transposed:
            kept = tirx.decl_buffer(
                (index(EDGE * EDGE),), str(load.source.dtype), "tile", layout=None
            )
            statements.append(tirx.AllocBuffer(kept))
            table[handle(load)] = kept
            rows = []
            for lane in range(EDGE):
                own = {**values, self.other.var: at, self.last.var: begin + index(lane)}
                first = substitute(load.indices[0], own)
                rows.append(tirx.BufferLoad(load.source, [tirx.Ramp(first, index(1), EDGE)]))
            moves, columns = transposed_block(rows)
            statements += moves
            for place, column in enumerate(columns):
                ramp = tirx.Ramp(index(place * EDGE), index(1), EDGE)
                statements.append(tirx.BufferStore(kept, column, [ramp]))

        def row(i: int) -> Any:
            def store(lane: Any) -> Any:
                def kept(load: Any) -> Any:
                    buffer = table.get(handle(load))
                    if buffer is None:
                        return load
                    return tirx.BufferLoad(buffer, [index(i * EDGE) + lane])

                value = with_loads(self.stage.value, kept)
                stage = _with_value(self.stage, value)
                own = {**values, self.other.var: at + index(i), self.last.var: begin + lane}
                return _store(stage, self.views, own)

            return loop("lane", 0, EDGE, store, tirx.ForKind.VECTORIZED)

        return sequence([*statements, *map(row, range(EDGE))])


def _store(stage: Stage, views: FlatViews, values: dict[Any, Any]) -> Any:
    at = substitute(flat_index([axis.var for axis in stage.axes], stage.shape), values)
    return tirx.BufferStore(views.of(stage.output), substitute(stage.value, values), [at])
