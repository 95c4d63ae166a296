"""A block of keys of attention: scores, their shares, and the product of shares and values.

Register tiles are buffers of the default scope, of at most 1,024 bytes, which LLVM keeps in
registers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx

from ....recognize.attention import Attention
from ....tir.walk import substitute
from ..contraction.kernel import Sums
from ..loops import index, loop, sequence, wide
from ..vector_math import exp_up_to_zero
from .tiling import Queries, Tiling, tiles, widths


@dataclass
class Block:
    """The buffers of a block of queries.

    - `queries`, `scores`, `result`, `highest`, `total`, `change`, `divisor` (tvm.tirx.Buffer):
      packed queries [depth][query], scores [key][query], result [query][column], and by query the
      maximum, the sum, the factor by which both were rescaled last, and what the result is divided
      by, or multiplied with.
    """

    size: Queries
    queries: Any
    scores: Any
    result: Any
    highest: Any
    total: Any
    change: Any
    divisor: Any

    def all(self) -> tuple[Any, ...]:
        """Return the buffers."""
        return (
            *(self.queries, self.scores, self.result),
            *(self.highest, self.total, self.change, self.divisor),
        )


@dataclass(frozen=True)
class Keys:
    """A block of keys.

    - `first` (Expr): the first key.
    - `most`: number of keys that register tiles are for.
    - `count` (Expr): number of keys that there are, up to `most`.
    - `last` (Expr or None): the last key that there is, if `count` may be less than `most`.
    """

    first: Any
    most: int
    count: Any
    last: Any = None

    def at(self, place: Any) -> Any:
        """Return a key by its place; after the last one, that one again."""
        key = self.first + place
        return key if self.last is None else tirx.min(key, self.last)


def buffer_of(name: str, *shape: Any, dtype: str = "float32") -> Any:
    """Return a buffer of the default scope."""
    return tirx.decl_buffer([wide(size) for size in shape], dtype, name, layout=None)


def is_share_of_maximum(found: Attention) -> bool:
    """Return whether each share is exp(weighed - maximum), so that none is above 1 and one is 1.

    The sum of a row is at least 1 then, 0 if all keys weigh -inf, or NaN: its reciprocal neither
    overflows nor underflows. A mask may leave out the keys with large shares.
    """
    plain = tirx.exp(found.weighed - found.highest)
    return bool(tvm_ffi.structural_equal(found.share, plain))


class KeyBlock:
    """Writes the loops over a block of keys."""

    def __init__(self, found: Attention, tiling: Tiling) -> None:
        self.found, self.tiling = found, tiling
        self.lanes, self.rolling = tiling.sizes.lanes, tiling.rolling
        # Vectors of a row of the result.
        self.columns = tiling.sizes.vectors
        self.of_maximum = is_share_of_maximum(found)
        # Whether rows are multiplied with the reciprocal of what they are divided by.
        self.multiplies = self.of_maximum and found.divides_by_total

    def at(self, value: Any, axes: dict[Any, Any]) -> Any:
        """Return an expression at some values of the axes, in the types that it has them in."""
        table = {
            axis.var: number.astype(axis.var.ty.dtype)
            if str(axis.var.ty.dtype) != str(number.ty.dtype)
            else number
            for axis, number in axes.items()
        }
        return substitute(value, table)

    def column(self, vector: Any) -> Any:
        """Return the first column of a vector, by its number (int or Expr).

        The last vector ends with the last column: others may be in two vectors, and each vector has
        a place of its own in the result of a block.
        """
        return first_of_vector(vector, self.lanes, self.found.column.extent)

    def query(self, own: Block, begin: Any, lane: Any) -> Any:
        """Return a query of a block; lanes after the last one compute the last one again."""
        if own.size.queries == own.size.vectors * self.lanes and not own.size.open:
            return begin + lane
        return tirx.min(begin + lane, wide(self.found.query.extent) - index(1))

    # ---- statements -------------------------------------------------------------------------

    def lane(self, store: Callable[[Any], Any]) -> Any:
        """Return a loop over the lanes of a vector."""
        return loop("lane", 0, self.lanes, store, tirx.ForKind.VECTORIZED)

    def vectors(self, count: int, store: Callable[[Any], Any]) -> Any:
        """Return a loop over vectors; `store` is called with the place of an element."""

        def vector(number: Any) -> Any:
            return self.lane(lambda lane: store(number * index(self.lanes) + lane))

        return loop("vector", 0, count, vector)

    def step(
        self,
        own: Block,
        heads: dict[Any, Any],
        begin: Any,
        keys: Keys,
        last: bool,
    ) -> Any:
        """Return what is computed for a block of keys; after the last one, results are stored."""
        return sequence(
            [
                self.copy(own, own.change, own.highest) if self.rolling else None,
                self.scores(own, heads, begin, keys),
                self.shares(own, heads, begin, keys, last),
                self.products(own, heads, begin, keys, last),
            ]
        )

    def copy(self, own: Block, target: Any, source: Any) -> Any:
        """Return the loop that copies a buffer by query."""
        return self.vectors(
            own.size.vectors,
            lambda lane: tirx.BufferStore(target, tirx.BufferLoad(source, [lane]), [lane]),
        )

    def tiles(
        self, rows: int, vectors: int, steps: int, body: Callable[[Any, int, int, Sums], Any]
    ) -> Any:
        """Return loops over the register tiles of a product.

        - `rows`, `vectors`: number of rows of the product, and of vectors of each.
        - `steps`: number of products of a sum.
        - `body`: returns the statements of a tile for its first row, its rows, its first vector of
          each row, and its sums.
        """
        registers = self.tiling.sizes.registers
        parts, begin = [], 0
        for width in widths(vectors, rows, steps, registers):
            for each in tiles(rows, width, registers):
                sums = Sums("float32", each.rows, width * self.lanes, self.lanes)

                def tile(
                    number: Any, each: Any = each, begin: int = begin, sums: Sums = sums
                ) -> Any:
                    row = number * index(each.rows) + index(each.start)
                    statements = body(row, each.rows, begin, sums)
                    return sequence([*sums.allocated(), statements])

                parts.append(loop("tile", 0, each.count, tile))
            begin += width
        return sequence(parts)

    def each(self, rows: int, sums: Sums, store: Callable[[int, int, Any, Any, Any], Any]) -> Any:
        """Return the statements for each vector of a register tile, written out.

        `store` is called with the row, the vector, the lane, and the buffer and the place of the
        sum.
        """

        def vector(row: int, number: int) -> Any:
            buffer, first = sums.at(row, number * self.lanes)
            return self.lane(lambda lane: store(row, number, lane, buffer, index(first) + lane))

        numbers = range(len(sums.buffers))
        return sequence([vector(row, number) for row in range(rows) for number in numbers])

    def scores(self, own: Block, heads: dict[Any, Any], begin: Any, keys: Keys) -> Any:
        """Return the product of keys and queries, `f`, and the maximum."""
        found = self.found

        def tile(key: Any, rows: int, begins: int, sums: Sums) -> Any:
            def add(depth: Any) -> Any:
                def one(row: int, vector: int, lane: Any, buffer: Any, at: Any) -> Any:
                    at_key = keys.at(key + index(row))
                    k = self.at(found.k, {**heads, found.key: at_key, found.depth: depth})
                    place = index((begins + vector) * self.lanes) + lane
                    q = tirx.BufferLoad(own.queries, [depth, place])
                    return tirx.BufferStore(buffer, tirx.BufferLoad(buffer, [at]) + k * q, [at])

                return self.each(rows, sums, one)

            def finish(row: int, vector: int, lane: Any, buffer: Any, at: Any) -> Any:
                place = index((begins + vector) * self.lanes) + lane
                axes = {
                    **heads,
                    found.query: self.query(own, begin, place),
                    found.key: keys.at(key + index(row)),
                }
                score = tirx.BufferLoad(buffer, [at])
                weight = substitute(self.at(found.weight, axes), {found.score: score})
                place_of = [key + index(row), place]
                known = tirx.BufferLoad(own.highest, [place])
                highest = tirx.max(known, tirx.BufferLoad(own.scores, place_of))
                return sequence(
                    [
                        tirx.BufferStore(own.scores, weight, place_of),
                        tirx.BufferStore(own.highest, highest, [place]),
                    ]
                )

            return sequence(
                [
                    self.each(
                        rows, sums, lambda _row, _vector, _lane, buffer, at: zero_at(buffer, at)
                    ),
                    loop("depth", 0, found.depth.extent, add),
                    self.each(rows, sums, finish),
                ]
            )

        return self.tiles(keys.most, own.size.vectors, found.depth.extent, tile)

    def share(self, score: Any, highest: Any, axes: dict[Any, Any]) -> Any:
        """Return the share of a key."""
        if self.of_maximum:
            return exp_up_to_zero(score - highest)
        found = self.found
        return substitute(
            self.at(found.share, axes), {found.weighed: score, found.highest: highest}
        )

    def shares(
        self,
        own: Block,
        heads: dict[Any, Any],
        begin: Any,
        keys: Keys,
        last: bool,
    ) -> Any:
        """Return the shares of a block in place of its scores, and their sum."""
        found, lanes = self.found, self.lanes

        def vector(v: Any) -> Any:
            parts = buffer_of("part", lanes)

            def share(key: Any, lane: Any) -> Any:
                at = v * index(lanes) + lane
                axes = {**heads, found.query: self.query(own, begin, at), found.key: keys.at(key)}
                stored = tirx.BufferLoad(own.scores, [key, at])
                value = self.share(stored, tirx.BufferLoad(own.highest, [at]), axes)
                known = tirx.BufferLoad(parts, [lane])
                return sequence(
                    [
                        tirx.BufferStore(own.scores, value, [key, at]),
                        tirx.BufferStore(parts, known + stored, [lane]),
                    ]
                )

            def rescale(lane: Any) -> Any:
                at = v * index(lanes) + lane
                store_change = None
                total = tirx.BufferLoad(parts, [lane])
                if self.rolling:
                    # The maximum before this block, then the factor that corrects what is known.
                    change = tirx.BufferLoad(own.change, [at])
                    factor = found.factor(change, tirx.BufferLoad(own.highest, [at]))
                    store_change = tirx.BufferStore(own.change, factor, [at])
                    total = tirx.BufferLoad(own.total, [at]) * change + total
                store_total = tirx.BufferStore(own.total, total, [at])
                divisor = self.divisor(own, heads, begin, at) if last else None
                return sequence([store_change, store_total, divisor])

            return sequence(
                [
                    tirx.AllocBuffer(parts),
                    self.lane(lambda lane: zero_at(parts, lane)),
                    loop(
                        "key", 0, keys.count, lambda key: self.lane(lambda lane: share(key, lane))
                    ),
                    self.lane(rescale),
                ]
            )

        return loop("vector", 0, own.size.vectors, vector)

    def of_row(self, own: Block, value: Any, row: Any, axes: dict[Any, Any]) -> Any:
        """Return a value of the maximum and the sum of a row."""
        known = {
            self.found.highest: tirx.BufferLoad(own.highest, [row]),
            self.found.total: tirx.BufferLoad(own.total, [row]),
        }
        return substitute(self.at(value, axes), known)

    def divisor(self, own: Block, heads: dict[Any, Any], begin: Any, row: Any) -> Any:
        """Return the store of what a row is divided by, or multiplied with, if it is either."""
        found = self.found
        if found.divisor is None:
            return None
        axes = {**heads, found.query: self.query(own, begin, row)}
        value = self.of_row(own, found.divisor, row, axes)
        if not isinstance(found.key.extent, int):
            # Without any key, the result is a sum of nothing.
            some = wide(found.key.extent) > index(0)
            value = tirx.Select(some, value, tirx.const(1.0, "float32"))
        if self.multiplies:
            value = tirx.const(1.0, "float32") / value
        return tirx.BufferStore(own.divisor, value, [row])

    def rows(self, own: Block, heads: dict[Any, Any], begin: Any) -> Any:
        """Return the stores of the results that have one element for each row."""

        def stores(row: Any) -> Any:
            axes = {**heads, self.found.query: self.query(own, begin, row)}
            return sequence(
                [
                    tirx.BufferStore(
                        each.output,
                        self.of_row(own, each.value, row, axes),
                        [self.at(place, axes) for place in each.place],
                    )
                    for each in self.found.of_rows
                ]
            )

        return loop("query", 0, own.size.queries, stores) if self.found.of_rows else None

    def output(
        self, own: Block, heads: dict[Any, Any], begin: Any, row: Any, column: Any, value: Any
    ) -> Any:
        """Return the store of an element of the result, whose divisor is known."""
        found = self.found
        query = self.query(own, begin, row) if own.size.open else begin + row
        axes = {**heads, found.query: query, found.column: column}
        if found.divisor is not None:
            divisor = tirx.BufferLoad(own.divisor, [row])
            value = value * divisor if self.multiplies else value / divisor
        element = substitute(self.of_row(own, found.result, row, axes), {found.element: value})
        return tirx.BufferStore(
            found.output, element, [self.at(each, axes) for each in found.place]
        )

    def products(
        self,
        own: Block,
        heads: dict[Any, Any],
        begin: Any,
        keys: Keys,
        last: bool,
    ) -> Any:
        """Return the product of shares and values, added to the result so far.

        The last one is stored at once: what LLVM knows of sums in memory it keeps in registers.
        """
        found = self.found

        def tile(query: Any, rows: int, begins: int, sums: Sums) -> Any:
            def place(row: int, vector: int, lane: Any) -> list[Any]:
                return [query + index(row), index((begins + vector) * self.lanes) + lane]

            def start(row: int, vector: int, lane: Any, buffer: Any, at: Any) -> Any:
                if not self.rolling:
                    return zero_at(buffer, at)
                known = tirx.BufferLoad(own.result, place(row, vector, lane))
                change = tirx.BufferLoad(own.change, [query + index(row)])
                return tirx.BufferStore(buffer, known * change, [at])

            def add(key: Any) -> Any:
                def one(row: int, vector: int, lane: Any, buffer: Any, at: Any) -> Any:
                    share = tirx.BufferLoad(own.scores, [key, query + index(row)])
                    column = self.column(begins + vector) + lane
                    axes = {**heads, found.key: keys.first + key, found.column: column}
                    known = tirx.BufferLoad(buffer, [at])
                    return tirx.BufferStore(buffer, known + share * self.at(found.v, axes), [at])

                return self.each(rows, sums, one)

            def store(row: int, vector: int, lane: Any, buffer: Any, at: Any) -> Any:
                value = tirx.BufferLoad(buffer, [at])
                if not last:
                    return tirx.BufferStore(own.result, value, place(row, vector, lane))
                column = self.column(begins + vector) + lane
                return self.output(own, heads, begin, query + index(row), column, value)

            return sequence(
                [
                    self.each(rows, sums, start),
                    loop("key", 0, keys.count, add),
                    self.each(rows, sums, store),
                ]
            )

        return self.tiles(own.size.queries, self.columns, keys.most, tile)


def first_of_vector(vector: Any, lanes: int, extent: Any) -> Any:
    """Return the first element of a vector of a row, by its number (int or Expr).

    - `extent` (int): elements of the row, at least those of a vector: the last one ends there.
    """
    first = vector * index(lanes)
    return tirx.min(first, index(extent - lanes)) if extent % lanes else first


def zero_at(buffer: Any, at: Any) -> Any:
    """Return the store of a zero."""
    return tirx.BufferStore(buffer, tirx.const(0.0, "float32"), [at])
