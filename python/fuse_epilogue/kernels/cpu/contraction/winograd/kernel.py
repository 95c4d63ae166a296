"""Writes the loops of a convolution that is computed with transforms.

for block:                              of tiles, in parallel
    for tile: for vectors of channels: transformed[matrix, tile, channels] = windows
    for matrix: products[tile, filters] = transformed[tile, channels] * weights[channels, filters]
    for tile: for vectors of filters: y[...] = epilogue(the products of a tile)

Transformed tiles and products of a block stay in the second cache. The tiles at the borders of the
image have code of their own: zeros are not loaded, and results outside of it are not computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from tvm import tirx

from ...costs import CLOCK_HZ, threads_for
from ...loops import FlatViews, index, loop, sequence
from ..kernel import Kernel
from ..operands import value_at
from ..plan import Machine
from ..vectors import at, lanes_loop, pieces_of
from .layer import Dimension
from .plan import WinogradPlan, tiles_of

#: First and last value, the latter excluded.
Range = tuple[int, int]
#: Registers beside those of the rows of a transform that are made together.
TEMPORARIES = 5


class WinogradKernel:
    """The loops of one plan.

    - `views`: for the buffers.
    - `packed` (Buffer): the transformed and packed weights.
    """

    def __init__(self, plan: WinogradPlan, views: FlatViews, packed: Any, machine: Machine) -> None:
        """Read off what all tiles share."""
        self.plan, self.layer, self.transform = plan, plan.layer, plan.transform
        self.contraction = plan.layer.contraction
        self.views, self.packed = views, packed
        self.machine, self.lanes = machine, machine.lanes

    def loops(self) -> Any:
        """Return the loops over all blocks."""
        threads = threads_for(self.plan.cycles / CLOCK_HZ, self.machine.threads)
        parallel = threads > 1 and self.plan.blocks >= threads
        kind = tirx.ForKind.PARALLEL if parallel else tirx.ForKind.SERIAL
        return loop("block", 0, self.plan.blocks, self._block, kind)

    def _block(self, block: Any) -> Any:
        products = self.plan.products.contraction
        image, sums = products.a.loads[0].source, products.out
        allocated = [self.views.allocate(image), self.views.allocate(sums)]
        first = block * index(self.plan.tiles)
        steps = [
            loop("tile", 0, self.plan.tiles, lambda tile: self._window(first, tile)),
            *Kernel(self.plan.products, self.views, self.packed, 1).loops(),
            loop("tile", 0, self.plan.tiles, lambda tile: self._results(first, tile)),
        ]
        return sequence([*allocated, *steps])

    def _of_tile(self, first: Any, tile: Any, body: Callable[[Any, Any, Any], Any]) -> Any:
        """Return statements that are made for a tile's image, row and column."""
        last = tiles_of(self.layer, self.transform) - 1
        rows, columns = (self._count(d) for d in (self.layer.rows, self.layer.columns))
        number = tirx.Var("number", "int64")
        image, row, column = (tirx.Var(name, "int64") for name in ("image", "row", "column"))
        by_rows = tirx.floordiv(number, index(columns))
        return sequence(
            [
                # The last block has the last tile as often as it has tiles left.
                tirx.Bind(number, tirx.min(first + tile, index(last))),
                tirx.Bind(image, tirx.floordiv(by_rows, index(rows))),
                tirx.Bind(row, tirx.floormod(by_rows, index(rows))),
                tirx.Bind(column, tirx.floormod(number, index(columns))),
                body(image, row, column),
            ]
        )

    def _count(self, dimension: Dimension) -> int:
        """Return the number of tiles along a dimension."""
        return -(-dimension.results // self.transform.outputs)

    def _window(self, first: Any, tile: Any) -> Any:
        """Return the statements that transform the image under a tile."""
        return self._of_tile(first, tile, lambda *place: self._window_at(tile, place[0], place[1:]))

    def _window_at(self, tile: Any, number: Any, place: tuple[Any, Any]) -> Any:
        image, dimensions = self.layer.image, (self.layer.rows, self.layer.columns)
        steps = [image.factors[dimension.axis] for dimension in dimensions]
        starts: dict[int, Any] = dict.fromkeys(range(len(image.factors)), 0)
        starts[self.layer.images] = number
        for dimension, value in zip(dimensions, place, strict=True):
            starts[dimension.axis] = value * index(self.transform.outputs)
        source = self.views.of(self.contraction.a.loads[0].source)
        base = tirx.Var("base", "int64")

        def inside(rows: Range, columns: Range) -> Any:
            def vector(part: tuple[int, ...], start: Any, lanes: int) -> Any:
                def value(i: int, j: int) -> Any:
                    if not (rows[0] <= i < rows[1] and columns[0] <= j < columns[1]):
                        return None
                    offset = index(i * steps[0] + j * steps[1])
                    return _load(source, base + offset + start, lanes)

                return self._transform_window(tile, part, start, lanes, value)

            return self._in_parts(self.transform.image_parts, self.layer.channels, vector)

        chosen = self._by_place(place, self._loaded, inside)
        return sequence([tirx.Bind(base, at(image, starts)), chosen])

    def _by_place(
        self,
        place: tuple[Any, Any],
        kind: Callable[[Dimension, int], Range],
        body: Callable[[Range, Range], Any],
    ) -> Any:
        """Return the code for each kind of rows and of columns, of which one runs."""
        rows, columns = (
            list(_runs(self._count(d), partial(kind, d)))
            for d in (self.layer.rows, self.layer.columns)
        )

        def of_row(kind_of_row: Range) -> Any:
            return _choice(place[1], columns, lambda column: body(kind_of_row, column))

        return _choice(place[0], rows, of_row)

    def _made(self, dimension: Dimension, number: int) -> Range:
        """Return which results of a tile along a dimension exist."""
        start = number * self.transform.outputs
        return 0, min(self.transform.outputs, dimension.results - start)

    def _loaded(self, dimension: Dimension, number: int) -> Range:
        """Return which values of a tile's window along a dimension are in the image."""
        start = number * self.transform.outputs
        begin = max(0, dimension.begin - start)
        end = min(self.transform.window, dimension.end - start)
        return begin, max(begin, end)

    def _in_parts(
        self,
        parts: Iterable[tuple[int, ...]],
        place: int,
        body: Callable[[tuple[int, ...], Any, int], Any],
    ) -> Any:
        """Return a loop over the vectors along an axis for each part of a transform.

        In one loop, LLVM would load what several parts need only once, and spill it.
        """
        if 2 * self.transform.window + TEMPORARIES > self.machine.registers:
            parts = ((row,) for part in parts for row in part)
        return sequence([self._vectors(place, partial(body, part)) for part in parts])

    def _vectors(self, place: int, body: Callable[[Any, int], Any]) -> Any:
        """Return the vectors along an axis: a loop over whole ones, and the rest."""
        extent = self.layer.extent(place)
        whole = extent // self.lanes
        statements = []
        if whole:
            statements.append(
                loop("vector", 0, whole, lambda v: body(v * index(self.lanes), self.lanes))
            )
        for start, lanes in pieces_of(extent - whole * self.lanes, self.lanes):
            statements.append(body(index(whole * self.lanes + start), lanes))
        return sequence(statements)

    def _transform_window(
        self,
        tile: Any,
        part: tuple[int, ...],
        start: Any,
        lanes: int,
        value: Callable[[int, int], Any],
    ) -> Any:
        """Return the statements that make some rows of a transformed window, for one vector."""
        transform, window = self.transform, self.transform.window
        products = self.plan.products.contraction
        target = self.views.of(products.a.loads[0].source)
        (access,) = products.a.accesses.values()
        statements: list[Any] = []
        lines = [_Line(window, lanes) for _ in part]
        statements += [line.allocated() for line in lines]
        for j in range(window):
            column = [value(i, j) for i in range(window)]
            for place, line in zip(part, lines, strict=True):
                statements.append(line.store(j, transform.image(column, [place])[0]))
        for i, line in zip(part, lines, strict=True):
            for j in range(window):
                made = transform.image(line.values(), [j])[0]
                made = _zero(lanes) if made is None else made
                place = at(access, {0: i * window + j, 1: tile, 3: start})
                statements.append(_store(target, place, lanes, made))
        return sequence(statements)

    def _results(self, first: Any, tile: Any) -> Any:
        """Return the statements that make a tile's results of its products."""
        return self._of_tile(
            first, tile, lambda *place: self._results_at(tile, place[0], place[1:])
        )

    def _results_at(self, tile: Any, number: Any, place: tuple[Any, Any]) -> Any:
        env = {self.layer.images: number}

        def inside(rows: Range, columns: Range) -> Any:
            def vector(part: tuple[int, ...], start: Any, lanes: int) -> Any:
                return self._transform_products(tile, part, columns[1], start, lanes, env, place)

            made = (
                tuple(row for row in part if row < rows[1]) for part in self.transform.output_parts
            )
            return self._in_parts(filter(None, made), self.layer.filters, vector)

        return self._by_place(place, self._made, inside)

    def _transform_products(
        self,
        tile: Any,
        rows: tuple[int, ...],
        columns: int,
        start: Any,
        lanes: int,
        env: dict[int, Any],
        place: tuple[Any, Any],
    ) -> Any:
        """Return the statements that make some rows of a tile's results, for one vector."""
        transform, window = self.transform, self.transform.window
        products = self.plan.products.contraction
        source = self.views.of(products.out)
        statements: list[Any] = []

        def load(i: int, j: int) -> Any:
            place = at(products.stored, {0: i * window + j, 1: tile, 2: start})
            return _load(source, place, lanes)

        lines = [_Line(window, lanes) for _ in rows]
        statements += [line.allocated() for line in lines]
        for j in range(window):
            column = [load(i, j) for i in range(window)]
            for i, line in zip(rows, lines, strict=True):
                statements.append(line.store(j, transform.output(column, [i])[0]))
        for i, line in zip(rows, lines, strict=True):
            results = _Line(columns, lanes)
            statements.append(results.allocated())
            for j in range(columns):
                made = transform.output(line.values(), [j])[0]
                statements.append(results.store(j, made))
            for j in range(columns):
                statements.append(self._store(results, (i, j), start, lanes, env, place))
        return sequence(statements)

    def _store(
        self,
        results: _Line,
        at_tile: tuple[int, int],
        start: Any,
        lanes: int,
        env: dict[int, Any],
        place: tuple[Any, Any],
    ) -> Any:
        """Return the statement that stores a vector of results after the epilogue."""
        contraction, outputs = self.contraction, index(self.transform.outputs)
        out = self.views.of(contraction.out)
        rows, columns = self.layer.rows.axis, self.layer.columns.axis

        def store(lane: Any) -> Any:
            full = {
                **env,
                rows: place[0] * outputs + index(at_tile[0]),
                columns: place[1] * outputs + index(at_tile[1]),
                self.layer.filters: start + lane,
            }
            total = results.element(at_tile[1], lane)
            value = value_at(contraction, contraction.epilogue, full, self.views, total)
            return tirx.BufferStore(out, value, [at(contraction.stored, full)])

        return lanes_loop(lanes, store)


class _Line:
    """Some vectors that LLVM keeps in registers."""

    def __init__(self, count: int, lanes: int) -> None:
        self.buffer = tirx.decl_buffer((index(count * lanes),), "float32", "line")
        self.count, self.lanes = count, lanes
        self._is_set: set[int] = set()

    def allocated(self) -> Any:
        """Return the statement that allocates the buffer."""
        return tirx.AllocBuffer(self.buffer)

    def element(self, place: int, lane: Any) -> Any:
        """Return an element of a vector."""
        return tirx.BufferLoad(self.buffer, [lane + index(place * self.lanes)])

    def store(self, place: int, value: Any) -> Any:
        """Return the statement that sets a vector, None for one that is 0."""
        if value is None:
            return None
        self._is_set.add(place)
        return _store(self.buffer, index(place * self.lanes), self.lanes, value)

    def values(self) -> list[Any]:
        """Return the vectors, None for those that are 0."""
        return [
            _load(self.buffer, index(place * self.lanes), self.lanes)
            if place in self._is_set
            else None
            for place in range(self.count)
        ]


def _load(buffer: Any, start: Any, lanes: int) -> Any:
    """Return a vector of a buffer. As loops over lanes, TVM's passes would take seconds for all."""
    return tirx.BufferLoad(buffer, [_span(start, lanes)])


def _store(buffer: Any, start: Any, lanes: int, value: Any) -> Any:
    """Return the statement that stores a vector."""
    return tirx.BufferStore(buffer, value, [_span(start, lanes)])


def _zero(lanes: int) -> Any:
    zero = tirx.const(0, "float32")
    return zero if lanes == 1 else tirx.Broadcast(zero, lanes)


def _span(start: Any, lanes: int) -> Any:
    return start if lanes == 1 else tirx.Ramp(start, index(1), lanes)


def _runs(count: int, kind: Callable[[int], Range]) -> Iterator[tuple[int, Range]]:
    """Yield the runs of numbers of the same kind: the number after the last, and the kind."""
    for number in range(count):
        if number + 1 == count or kind(number + 1) != kind(number):
            yield number + 1, kind(number)


def _choice(number: Any, ranges: list[tuple[int, Range]], body: Callable[[Range], Any]) -> Any:
    (end, kind), rest = ranges[0], ranges[1:]
    if not rest:
        return body(kind)
    return tirx.IfThenElse(number < index(end), body(kind), _choice(number, rest, body))
