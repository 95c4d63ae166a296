"""Writes the loops of attention: over heads, blocks of queries, and blocks of keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad, prim
from tvm.sym import detect_linear_equation

from ....recognize.attention import Attention
from ....recognize.stages import Axis
from ....tir.walk import uses
from ..loops import flat_index, index, loop, sequence, wide
from ..transposition import EDGE, transposed_block
from .hidden_keys import HiddenKeys, greatest_exponent, hidden_keys
from .key_block import Block, KeyBlock, Keys, buffer_of, first_of_vector
from .key_ranges import Loaded
from .skipped import Needed, Skipped
from .tiling import (
    OPEN_VECTORS,
    SKIPPED_KEYS,
    Queries,
    Sizes,
    choose,
    known_length,
    ranges,
)


class Kernel(KeyBlock):
    """Writes the loops of one function.

    - `lanes`, `registers`: elements of a vector, and number of vector registers.
    - `threads`: number of threads that the loops are made for.
    """

    def __init__(self, found: Attention, lanes: int, registers: int, threads: int) -> None:
        self.threads = threads
        # Whether the number of keys is known: then some of the blocks below may be the last one.
        self.known = isinstance(found.key.extent, int)
        several = not self.known or found.key.extent > SKIPPED_KEYS
        self.mask = hidden_keys(found) if several else None
        if self.mask is not None and self.mask.added is not None and found.depth.extent < lanes:
            # Exponents are compared in whole vectors.
            self.mask = None
        sizes = Sizes(
            known_length(found.query),
            known_length(found.key),
            found.depth.extent,
            found.column.extent,
            lanes,
            registers,
        )
        needed = None
        keys = None if self.mask is None else self.mask.keys
        of_places = None if isinstance(keys, Loaded) else keys
        if of_places is not None or not self.known:
            needed = ranges(sizes, of_places)
        super().__init__(found, choose(sizes, needed))
        if isinstance(keys, Loaded) and not self.rolling:
            # It may hide too little for blocks that are shorter than a row.
            self.mask = None
        self.blocks = self.tiling.queries
        if not isinstance(found.query.extent, int):
            self.blocks = open_blocks(wide(found.query.extent), self.blocks[0].vectors, lanes)
        self.several = len(self.blocks) > 1 or self.blocks[0].count > 1

    def body(self) -> Any:
        """Return all loops."""
        heads = count_of(self.found.batch)
        # The blocks of a head one after the other, unless threads need more of them.
        known = math.prod(a.extent for a in self.found.batch if isinstance(a.extent, int))
        whole = self.threads == 1 or known >= self.threads
        if whole and (self.several or self.mask is not None):
            return self.parallel(heads, lambda number: self.head(self.heads_of(number)))

        def nest(size: Queries) -> Any:
            count = wide(size.count)

            def one(number: Any) -> Any:
                head, place = tirx.floordiv(number, count), tirx.floormod(number, count)
                return self.block(size, self.heads_of(head), place)

            return self.parallel(heads * count, one)

        return sequence([nest(size) for size in self.blocks])

    def parallel(self, count: Any, body: Callable[[Any], Any]) -> Any:
        """Return a loop that is parallel if there are threads."""
        kind = tirx.ForKind.PARALLEL if self.threads > 1 else tirx.ForKind.SERIAL
        return loop("block", 0, count, body, kind)

    def heads_of(self, number: Any) -> dict[Any, Any]:
        """Return the value of each axis of heads."""
        own = {}
        for axis in reversed(self.found.batch):
            own[axis] = tirx.floormod(number, wide(axis.extent))
            number = tirx.floordiv(number, wide(axis.extent))
        return own

    def head(self, heads: dict[Any, Any]) -> Any:
        """Return the loops over the blocks of queries of a head.

        Rows of keys and values that do not follow one another are copied for all of them: a row of
        all heads after the other, they would fall into a few sets of the cache.
        """
        found = self.found
        statements: list[Any] = []
        packed = {}
        for name, source, axis in (("k", found.k, found.depth), ("v", found.v, found.column)):
            if self.several and not _is_compact(source, found.key, axis):
                buffer = buffer_of(f"head_{name}", found.key.extent, axis.extent)
                statements += [tirx.AllocBuffer(buffer), self.copied(buffer, source, heads, axis)]
                packed[name] = tirx.BufferLoad(buffer, [found.key.var, axis.var])
        sizes = self.tiling.sizes
        inner = Kernel(replace(found, **packed), sizes.lanes, sizes.registers, self.threads)
        skipped = None
        if self.mask is not None:
            find, skipped = inner.skipped(self.mask, heads)
            statements += find

        def blocks(size: Queries) -> Any:
            return loop(
                "queries", 0, size.count, lambda place: inner.block(size, heads, place, skipped)
            )

        return sequence([*statements, *map(blocks, self.blocks)])

    def skipped(self, mask: HiddenKeys, heads: dict[Any, Any]) -> tuple[list[Any], Skipped]:
        """Return statements that find what is known of a head's operands, and what that is."""
        found = self.found
        sources = [(found.v, found.key, found.column)]
        if mask.added is not None:
            sources += [(found.q, found.query, found.depth), (found.k, found.key, found.depth)]

        def greatest(source: Any, row: Axis, column: Axis) -> tuple[Any, Any]:
            def value(one: Any, other: Any) -> Any:
                return self.at(source, {**heads, row: one, column: other})

            return greatest_exponent(value, row.extent, column.extent, self.lanes)

        if isinstance(mask.keys, Loaded):
            mask = replace(mask, keys=Loaded(self.at(mask.keys.condition, heads)))
        statements, (values, *others) = zip(*(greatest(*each) for each in sources), strict=True)
        limit = mask.limit(found.score, found.depth.extent, others) if mask.compared else None
        return list(statements), Skipped(mask, values, limit)

    def copied(self, buffer: Any, source: Any, heads: dict[Any, Any], axis: Any) -> Any:
        """Return the loops that copy an operand of a head."""
        found = self.found

        def store(key: Any, place: Any) -> Any:
            value = self.at(source, {**heads, found.key: key, axis: place})
            return tirx.BufferStore(buffer, value, [key, place])

        def row(key: Any) -> Any:
            if axis.extent < self.lanes:
                return loop("place", 0, axis.extent, lambda place: store(key, place))

            def vector(number: Any) -> Any:
                first = first_of_vector(number, self.lanes, axis.extent)
                return self.lane(lambda lane: store(key, first + lane))

            return loop("vector", 0, -(-axis.extent // self.lanes), vector)

        return loop("key", 0, wide(found.key.extent), row)

    def block(
        self, size: Queries, heads: dict[Any, Any], place: Any, skipped: Skipped | None = None
    ) -> Any:
        """Return what is computed for a block of queries, by its place among those of its size.

        - `skipped`: what blocks of keys are skipped by; None to compute all.
        """
        found = self.found
        begin = wide(size.start) + place * index(size.queries)
        queries = size.vectors * self.lanes
        own = Block(
            size,
            buffer_of("queries", found.depth.extent, queries),
            buffer_of("scores", self.tiling.keys, queries),
            buffer_of("result", queries, self.columns * self.lanes),
            *(buffer_of(name, queries) for name in ("highest", "total", "change", "divisor")),
        )
        # Where blocks may be skipped or left out, it is not known which one is the last.
        rest = not self.known or found.key.extent % self.tiling.keys > 0
        at_once = self.known and skipped is None and (rest or not self.rolling)
        needed = None if skipped is None else Needed(skipped, own, begin, self.count_of_blocks())

        def computed() -> Any:
            return sequence(
                [self.start(own, needed), *self.steps(own, heads, begin, needed, at_once)]
            )

        return sequence(
            [
                *map(tirx.AllocBuffer, own.all()),
                self.pack(own, heads, begin),
                computed() if needed is None else needed.around(computed, self.tiling.keys),
                None if at_once else self.finish(own, heads, begin),
                self.rows(own, heads, begin),
            ]
        )

    def count_of_blocks(self) -> Any:
        """Return the number of blocks of keys."""
        last = wide(self.found.key.extent) + index(self.tiling.keys - 1)
        return tirx.floordiv(last, index(self.tiling.keys))

    def steps(
        self,
        own: Block,
        heads: dict[Any, Any],
        begin: Any,
        needed: Needed | None,
        at_once: bool,
    ) -> list[Any]:
        """Return the loops over the blocks of keys.

        - `needed`: the blocks that are computed; None for all.
        - `at_once`: whether the last block stores the results.
        """
        most, keys = index(self.tiling.keys), wide(self.found.key.extent)
        whole, left = tirx.floordiv(keys, most), tirx.floormod(keys, most)
        first, extent = index(0), whole
        if needed is not None:
            first, extent = (
                needed.first,
                tirx.max(index(0), tirx.min(needed.end, whole) - needed.first),
            )

        def full(number: Any) -> Any:
            block = Keys(number * most, self.tiling.keys, most)
            step = self.step(own, heads, begin, block, at_once and not self.rolling)
            if needed is None:
                return step
            return needed.unless_in_a_gap(step, block, partial(self.each_shown, own, begin, block))

        steps = [loop("keys", first, extent, full)]
        rest = self.found.key.extent % self.tiling.keys if self.known else self.tiling.keys
        if rest:
            last_key = None if self.known else keys - index(1)
            last = self.step(own, heads, begin, Keys(whole * most, rest, left, last_key), at_once)
            there = None if self.known else left > index(0)
            if needed is not None:
                there = needed.end > whole
            steps.append(last if there is None else tirx.IfThenElse(there, last, None))
        return steps

    def each_shown(
        self, own: Block, begin: Any, block: Keys, shown: Any, store: Callable[[Any], Any]
    ) -> Any:
        """Return a loop over the queries and keys of a block.

        - `shown` (Expr): of the query and the key, whether a mask shows it.
        - `store`: returns what is done with that.
        """
        found = self.found

        def one(query: Any, key: Any) -> Any:
            axes = {found.query: self.query(own, begin, query), found.key: block.first + key}
            return store(self.at(shown, axes))

        # A mask of keys is the same for all queries.
        rows = own.size.queries if uses(shown, found.query.var) else 1
        return loop("query", 0, rows, lambda query: loop("key", 0, block.most, partial(one, query)))

    def pack(self, own: Block, heads: dict[Any, Any], begin: Any) -> Any:
        """Return the loops that transpose the queries of a block, in blocks of 8 x 8."""
        found = self.found
        whole, rest = divmod(found.depth.extent, EDGE)
        queries = own.size.vectors * self.lanes
        if queries % EDGE:
            whole, rest = 0, found.depth.extent

        def element(depth: Any, lane: Any) -> Any:
            axes = {**heads, found.query: self.query(own, begin, lane), found.depth: depth}
            return self.at(found.q, axes)

        def square(first: Any, depth: Any) -> Any:
            rows = buffer_of("rows", EDGE * EDGE)

            def row(number: int) -> Any:
                def store(lane: Any) -> Any:
                    value = element(depth + lane, first + index(number))
                    return tirx.BufferStore(rows, value, [index(number * EDGE) + lane])

                return loop("lane", 0, EDGE, store, tirx.ForKind.VECTORIZED)

            vectors = [
                tirx.BufferLoad(rows, [tirx.Ramp(index(number * EDGE), index(1), EDGE)])
                for number in range(EDGE)
            ]
            statements, columns = transposed_block(vectors)
            stores = [
                tirx.BufferStore(
                    own.queries, column, [depth + index(d), tirx.Ramp(first, index(1), EDGE)]
                )
                for d, column in enumerate(columns)
            ]
            return sequence([tirx.AllocBuffer(rows), *map(row, range(EDGE)), *statements, *stores])

        def left(lane: Any) -> Any:
            def one(d: Any) -> Any:
                depth = index(whole * EDGE) + d
                return tirx.BufferStore(own.queries, element(depth, lane), [depth, lane])

            return loop("depth", 0, rest, one)

        parts = []
        if whole:
            parts.append(
                loop(
                    "query",
                    0,
                    queries // EDGE,
                    lambda q: loop(
                        "depth", 0, whole, lambda d: square(q * index(EDGE), d * index(EDGE))
                    ),
                )
            )
        if rest:
            parts.append(loop("query", 0, queries, left))
        return sequence(parts)

    def start(self, own: Block, needed: Needed | None) -> Any:
        """Return the stores of the starts; `needed` is as for :meth:`steps`."""
        zero = tirx.const(0.0, "float32")
        found = self.found
        lowest = found.lowest
        if needed is not None:
            hidden = tirx.max(lowest, needed.skipped.mask.weight)
            lowest = tirx.Select(needed.skips, hidden, lowest)

        def store(lane: Any) -> Any:
            return sequence(
                [
                    tirx.BufferStore(own.highest, lowest, [lane]),
                    tirx.BufferStore(own.total, zero, [lane]),
                ]
            )

        stores = [self.vectors(own.size.vectors, store)]
        if self.rolling:

            def zeros(row: Any) -> Any:
                return self.vectors(
                    self.columns, lambda place: tirx.BufferStore(own.result, zero, [row, place])
                )

            stores.append(loop("query", 0, own.size.queries, zeros))
        return sequence(stores)

    def finish(self, own: Block, heads: dict[Any, Any], begin: Any) -> Any:
        """Return the loops that divide by the sums and store the queries that there are."""

        def store(row: Any, vector: Any, lane: Any) -> Any:
            value = tirx.BufferLoad(own.result, [row, vector * index(self.lanes) + lane])
            return self.output(own, heads, begin, row, self.column(vector) + lane, value)

        def stores(row: Any) -> Any:
            return loop(
                "vector",
                0,
                self.columns,
                lambda vector: self.lane(lambda lane: store(row, vector, lane)),
            )

        return sequence(
            [
                None
                if self.found.divisor is None
                else self.vectors(
                    own.size.vectors, lambda lane: self.divisor(own, heads, begin, lane)
                ),
                loop("query", 0, own.size.queries, stores),
            ]
        )


def count_of(axes: Sequence[Axis]) -> Any:
    """Return how many combinations of values axes have, as an expression."""
    constant = math.prod(axis.extent for axis in axes if isinstance(axis.extent, int))
    count = index(constant)
    for axis in axes:
        if not isinstance(axis.extent, int):
            count = count * wide(axis.extent)
    return count


def open_blocks(queries: Any, vectors: int, lanes: int) -> tuple[Queries, ...]:
    """Return blocks of any number of queries: large ones, and what is left in single vectors."""
    vectors = min(vectors, OPEN_VECTORS)
    size = vectors * lanes
    whole = tirx.floordiv(queries, index(size))
    start = whole * index(size)
    rest = tirx.floordiv(queries - start + index(lanes - 1), index(lanes))
    return Queries(0, vectors, size, whole), Queries(start, 1, lanes, rest, open=True)


def _is_compact(source: Any, key: Any, axis: Any) -> bool:
    """Return whether an operand is loaded from rows that follow one another in memory."""
    if not isinstance(source, TensorLoad):
        return False
    flat = flat_index(source.indices, source.source.shape)
    linear = detect_linear_equation(flat, [key.var, axis.var])
    if len(linear) != 3 or not all(isinstance(each, prim.IntImm) for each in linear[:2]):
        return False
    return (int(linear[0]), int(linear[1])) == (axis.extent, 1)
