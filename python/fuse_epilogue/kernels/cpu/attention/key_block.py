"""A block of keys of attention: scores, their shares, and the product of shares and values.

Register tiles are buffers of the default scope, of at most 1,024 bytes, which LLVM keeps in
registers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from ....recognize.attention import Attention
from ....tir.walk import substitute
from ..loops import index, loop, sequence

#: Rows of a register tile, and vectors of each.
ROWS, VECTORS = 4, 2


@dataclass
class Block:
    """The buffers of a block of queries.

    Attributes
    ----------
    queries, scores, result, highest, total, change : tvm.tirx.Buffer
        Packed queries [depth][query], scores [key][query], result [query][column], and by query
        the maximum, the sum and the factor by which both were rescaled last.
    """

    queries: Any
    scores: Any
    result: Any
    highest: Any
    total: Any
    change: Any

    def all(self) -> tuple[Any, ...]:
        """Return the buffers."""
        return (
            *(self.queries, self.scores, self.result),
            *(self.highest, self.total, self.change),
        )


def buffer_of(name: str, *shape: int, dtype: str = "float32") -> Any:
    """Return a buffer of the default scope."""
    return tirx.decl_buffer([index(size) for size in shape], dtype, name, layout=None)


class KeyBlock:
    """Writes the loops over a block of keys.

    Parameters
    ----------
    found : Attention
    lanes : int
        Elements of a vector.
    """

    #: Whether there are several blocks of keys, so that what is known of one is rescaled.
    rolling: bool
    #: Queries of a block.
    queries: int

    def __init__(self, found: Attention, lanes: int) -> None:
        self.found, self.lanes = found, lanes

    def at(self, value: Any, axes: dict[Any, Any]) -> Any:
        """Return an expression at some values of the axes, in the types that it has them in."""
        table = {
            axis.var: number.astype(axis.var.ty.dtype)
            if str(axis.var.ty.dtype) != str(number.ty.dtype)
            else number
            for axis, number in axes.items()
        }
        return substitute(value, table)

    def query(self, begin: Any, lane: Any) -> Any:
        """Return a query of a block; lanes after the last one compute the last one again."""
        return tirx.min(begin + lane, index(self.found.query.extent - 1))

    # ---- statements -------------------------------------------------------------------------

    def vectors(self, count: int, store: Callable[[Any], Any]) -> Any:
        """Return a loop over vectors of a row, which is a multiple of them."""
        return loop(
            "vector",
            0,
            count // self.lanes,
            lambda v: loop(
                "lane",
                0,
                self.lanes,
                lambda lane: store(v * index(self.lanes) + lane),
                tirx.ForKind.VECTORIZED,
            ),
        )

    def step(self, own: Block, heads: dict[Any, Any], begin: Any, first: Any, keys: int) -> Any:
        """Return what is computed for a block of keys."""
        return sequence(
            [
                self.copy(own.change, own.highest) if self.rolling else None,
                self.scores(own, heads, begin, first, keys),
                self.shares(own, heads, begin, first, keys),
                self.products(own, heads, first, keys),
            ]
        )

    def copy(self, target: Any, source: Any) -> Any:
        """Return the loop that copies a buffer by query."""
        return self.vectors(
            self.queries,
            lambda lane: tirx.BufferStore(target, tirx.BufferLoad(source, [lane]), [lane]),
        )

    def tiles(self, count: int, body: Callable[[Any, int], Any]) -> Any:
        """Return a loop over tiles of rows, and the tile that is left."""
        whole, rest = divmod(count, ROWS)
        parts = [loop("tile", 0, whole, lambda t: body(t * index(ROWS), ROWS))] if whole else []
        return sequence([*parts, body(index(whole * ROWS), rest)] if rest else parts)

    def scores(self, own: Block, heads: dict[Any, Any], begin: Any, first: Any, keys: int) -> Any:
        """Return the product of keys and queries, `f`, and the maximum."""
        found, width = self.found, VECTORS * self.lanes

        def tile(key: Any, rows: int, column: Any) -> Any:
            sums = buffer_of("sums", rows * width)

            def add(depth: Any) -> Any:
                def one(row: int, lane: Any, at: Any) -> Any:
                    k = self.at(
                        found.k,
                        {**heads, found.key: first + key + index(row), found.depth: depth},
                    )
                    q = tirx.BufferLoad(own.queries, [depth, column + lane])
                    return tirx.BufferStore(sums, tirx.BufferLoad(sums, [at]) + k * q, [at])

                return self.each(rows, width, one)

            def finish(row: int, lane: Any, at: Any) -> Any:
                place = first + key + index(row)
                axes = {
                    **heads,
                    found.query: self.query(begin, column + lane),
                    found.key: place,
                }
                score = tirx.BufferLoad(sums, [at])
                weight = substitute(self.at(found.weight, axes), {found.score: score})
                place_of = [key + index(row), column + lane]
                known = tirx.BufferLoad(own.highest, [column + lane])
                highest = tirx.max(known, tirx.BufferLoad(own.scores, place_of))
                return sequence(
                    [
                        tirx.BufferStore(own.scores, weight, place_of),
                        tirx.BufferStore(own.highest, highest, [column + lane]),
                    ]
                )

            return sequence(
                [
                    tirx.AllocBuffer(sums),
                    self.each(rows, width, lambda _, __, at: zero_at(sums, at)),
                    loop("depth", 0, found.depth.extent, add),
                    self.each(rows, width, finish),
                ]
            )

        def keys_of(column: Any) -> Callable[[Any, int], Any]:
            return lambda key, rows: tile(key, rows, column)

        return loop(
            "column",
            0,
            self.queries // width,
            lambda c: self.tiles(keys, keys_of(c * index(width))),
        )

    def each(self, rows: int, width: int, store: Callable[[int, Any, Any], Any]) -> Any:
        """Return the statements for each vector of a register tile, written out.

        `store` is called with the row, the column, and the place in the tile.
        """

        def vector(row: int, begin: int) -> Any:
            return loop(
                "lane",
                0,
                self.lanes,
                lambda lane: store(row, index(begin) + lane, index(row * width + begin) + lane),
                tirx.ForKind.VECTORIZED,
            )

        return sequence(
            [vector(row, begin) for row in range(rows) for begin in range(0, width, self.lanes)]
        )

    def shares(self, own: Block, heads: dict[Any, Any], begin: Any, first: Any, keys: int) -> Any:
        """Return the shares of a block in place of its scores, and their sum."""
        found, lanes = self.found, self.lanes

        def vector(v: Any) -> Any:
            parts = buffer_of("part", lanes)

            def share(key: Any, lane: Any) -> Any:
                at = v * index(lanes) + lane
                axes = {**heads, found.query: self.query(begin, at), found.key: first + key}
                value = substitute(
                    self.at(found.share, axes),
                    {
                        found.weighed: tirx.BufferLoad(own.scores, [key, at]),
                        found.highest: tirx.BufferLoad(own.highest, [at]),
                    },
                )
                known = tirx.BufferLoad(parts, [lane])
                stored = tirx.BufferLoad(own.scores, [key, at])
                return sequence(
                    [
                        tirx.BufferStore(own.scores, value, [key, at]),
                        tirx.BufferStore(parts, known + stored, [lane]),
                    ]
                )

            def rescale(lane: Any) -> Any:
                at = v * index(lanes) + lane
                total = tirx.BufferLoad(own.total, [at])
                part = tirx.BufferLoad(parts, [lane])
                if not self.rolling:
                    return tirx.BufferStore(own.total, total + part, [at])
                before = tirx.BufferLoad(own.change, [at])
                change = found.factor(before, tirx.BufferLoad(own.highest, [at]))
                return sequence(
                    [
                        tirx.BufferStore(own.change, change, [at]),
                        tirx.BufferStore(
                            own.total, total * tirx.BufferLoad(own.change, [at]) + part, [at]
                        ),
                    ]
                )

            return sequence(
                [
                    tirx.AllocBuffer(parts),
                    self.lane(lambda lane: zero_at(parts, lane)),
                    loop("key", 0, keys, lambda key: self.lane(lambda lane: share(key, lane))),
                    self.lane(rescale),
                ]
            )

        return loop("vector", 0, self.queries // lanes, vector)

    def lane(self, store: Callable[[Any], Any]) -> Any:
        """Return a loop over the lanes of a vector."""
        return loop("lane", 0, self.lanes, store, tirx.ForKind.VECTORIZED)

    def products(self, own: Block, heads: dict[Any, Any], first: Any, keys: int) -> Any:
        """Return the product of shares and values, added to the result so far."""
        found = self.found

        def tile(query: Any, rows: int, begin: Any, width: int) -> Any:
            sums = buffer_of("sums", rows * width)

            def start(row: int, lane: Any, at: Any) -> Any:
                if not self.rolling:
                    return zero_at(sums, at)
                known = tirx.BufferLoad(own.result, [query + index(row), begin + lane])
                change = tirx.BufferLoad(own.change, [query + index(row)])
                return tirx.BufferStore(sums, known * change, [at])

            def add(key: Any) -> Any:
                def one(row: int, lane: Any, at: Any) -> Any:
                    share = tirx.BufferLoad(own.scores, [key, query + index(row)])
                    axes = {**heads, found.key: first + key, found.column: begin + lane}
                    known = tirx.BufferLoad(sums, [at])
                    return tirx.BufferStore(sums, known + share * self.at(found.v, axes), [at])

                return self.each(rows, width, one)

            def store(row: int, lane: Any, at: Any) -> Any:
                place = [query + index(row), begin + lane]
                return tirx.BufferStore(own.result, tirx.BufferLoad(sums, [at]), place)

            return sequence(
                [
                    tirx.AllocBuffer(sums),
                    self.each(rows, width, start),
                    loop("key", 0, keys, add),
                    self.each(rows, width, store),
                ]
            )

        def rows_of(begin: Any, width: int) -> Callable[[Any, int], Any]:
            return lambda query, rows: tile(query, rows, begin, width)

        width = VECTORS * self.lanes
        whole, rest = divmod(found.column.extent, width)
        parts = []
        if whole:
            parts.append(
                loop(
                    "column",
                    0,
                    whole,
                    lambda c: self.tiles(self.queries, rows_of(c * index(width), width)),
                )
            )
        if rest:
            parts.append(self.tiles(self.queries, rows_of(index(whole * width), rest)))
        return sequence(parts)


def zero_at(buffer: Any, at: Any) -> Any:
    """Return the store of a zero."""
    return tirx.BufferStore(buffer, tirx.const(0.0, "float32"), [at])
