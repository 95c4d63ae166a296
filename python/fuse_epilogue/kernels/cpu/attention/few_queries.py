"""Attention of one or two queries, as in decoding: keys and values are read once, from memory.

    for heads and queries, in parallel:
        for eight keys: eight dot products along the depth, transposed, are a vector of scores
        maximum of `f` of the scores; shares and their sum, in vectors of keys
        for keys: result += share * value, in vectors of columns
        store result / sum

The lanes of the other kernel, which are queries, would be idle here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad

from ....recognize.attention import Attention
from ....tir.walk import substitute
from ..loops import index, loop, sequence
from ..transposition import EDGE, transposed_block
from .key_block import buffer_of, zero_at

#: Queries up to which this kernel is chosen.
MOST_QUERIES = 2
#: Vectors of columns that are summed together: as many as hide the latency of a multiply-add.
COLUMNS = 8
#: Bytes of a head's keys from which rows are fetched ahead, how far ahead, and bytes of a line.
FETCH_FROM, AHEAD, LINE = 1 << 18, 4096, 64
#: Vectors of the depth up to which they are written out.
WRITTEN_OUT = 16


def fits(found: Attention) -> bool:
    """Return whether attention has few queries, and vectors along its depth and columns."""
    whole = found.depth.extent % EDGE == 0 and found.column.extent % EDGE == 0
    return whole and found.query.extent <= MOST_QUERIES and found.key.extent >= EDGE


class FewQueries:
    """Writes the loops of one function.

    Parameters
    ----------
    threads : int
        Number of threads that the loop over heads is made for.
    """

    def __init__(self, found: Attention, threads: int) -> None:
        self.found, self.threads = found, threads
        self.scores = buffer_of("scores", found.key.extent)
        self.result = buffer_of("result", found.column.extent)
        self.highest = buffer_of("highest", EDGE)
        self.total = buffer_of("total", EDGE)

    def body(self) -> Any:
        """Return all loops."""
        axes = (*self.found.batch, self.found.query)
        count = math.prod(axis.extent for axis in axes)

        def one(number: Any) -> Any:
            own, left = {}, number
            for axis in reversed(axes):
                own[axis] = tirx.floormod(left, index(axis.extent))
                left = tirx.floordiv(left, index(axis.extent))
            return self.row(own)

        parallel = self.threads > 1 and count > 1
        kind = tirx.ForKind.PARALLEL if parallel else tirx.ForKind.SERIAL
        return loop("row", 0, count, one, kind)

    def row(self, own: dict[Any, Any]) -> Any:
        """Return what is computed for a query of a head."""
        buffers = (self.scores, self.result, self.highest, self.total)
        return sequence(
            [
                *map(tirx.AllocBuffer, buffers),
                self.dot_products(own),
                self.maximum(own),
                self.shares(own),
                self.products(own),
                self.finish(own),
            ]
        )

    def at(self, value: Any, axes: dict[Any, Any]) -> Any:
        """Return an expression at some values of the axes, in the types that it has them in."""
        table = {axis.var: number.astype(str(axis.var.ty.dtype)) for axis, number in axes.items()}
        return substitute(value, table)

    def lanes(self, store: Callable[[Any], Any]) -> Any:
        """Return a loop over the lanes of a vector."""
        return loop("lane", 0, EDGE, store, tirx.ForKind.VECTORIZED)

    def fetch(self, value: Any, own: dict[Any, Any], key: Any, axis: Any) -> list[Any]:
        """Return statements that bring the row of a later key into the first cache.

        Processors do not read as far ahead by themselves as the memory is away.
        """
        found = self.found
        row_bytes = 4 * axis.extent
        if not isinstance(value, TensorLoad) or row_bytes * found.key.extent < FETCH_FROM:
            return []
        ahead = -(-AHEAD // row_bytes)
        later = tirx.min(key + index(ahead), index(found.key.extent - 1))
        read, near, of_data = (tirx.const(number, "int32") for number in (0, 3, 1))
        statements = []
        for place in range(0, axis.extent, LINE // 4):
            load = self.at(value, {**own, found.key: later, axis: index(place)})
            statements.append(
                tirx.Evaluate(
                    tirx.call_llvm_intrin(
                        "void", "llvm.prefetch", tirx.address_of(load), read, near, of_data
                    )
                )
            )
        return statements

    def dot_products(self, own: dict[Any, Any]) -> Any:
        """Return the loops that compute the scores before `f`."""
        found = self.found
        depth = found.depth.extent // EDGE
        written = tirx.ForKind.UNROLLED if depth <= WRITTEN_OUT else tirx.ForKind.SERIAL
        whole, rest = divmod(found.key.extent, EDGE)

        def add(sums: Any, key: Any, row: int, place: Any) -> Any:
            def one(lane: Any) -> Any:
                axes = {**own, found.key: key, found.depth: place * index(EDGE) + lane}
                q, k = self.at(found.q, axes), self.at(found.k, axes)
                at = [lane + index(row * EDGE)]
                return tirx.BufferStore(sums, tirx.BufferLoad(sums, at) + q * k, at)

            return self.lanes(one)

        def of_keys(sums: Any, first: Any, count: int) -> list[Any]:
            def zero(row: int) -> Any:
                return self.lanes(lambda lane: zero_at(sums, lane + index(row * EDGE)))

            def row(r: int) -> Any:
                # A row is read from its begin to its end, as it lies in memory.
                key = first + index(r)
                products = loop("depth", 0, depth, lambda d: add(sums, key, r, d), written)
                return sequence([*self.fetch(found.k, own, key, found.depth), products])

            return [tirx.AllocBuffer(sums), *map(zero, range(count)), *map(row, range(count))]

        def eight(number: Any) -> Any:
            sums = buffer_of("sums", EDGE * EDGE)
            first = number * index(EDGE)
            vectors = [
                tirx.BufferLoad(sums, [tirx.Ramp(index(row * EDGE), index(1), EDGE)])
                for row in range(EDGE)
            ]
            statements, columns = transposed_block(vectors)
            place = [tirx.Ramp(first, index(1), EDGE)]
            store = tirx.BufferStore(self.scores, _sum(columns), place)
            return sequence([*of_keys(sums, first, EDGE), *statements, store])

        parts = [loop("keys", 0, whole, eight)]
        if rest:
            sums = buffer_of("sums", EDGE * EDGE)
            parts += of_keys(sums, index(whole * EDGE), rest)
            for row in range(rest):
                lanes = [tirx.BufferLoad(sums, [index(row * EDGE + lane)]) for lane in range(EDGE)]
                place = [index(whole * EDGE + row)]
                parts.append(tirx.BufferStore(self.scores, _sum(lanes), place))
        return sequence(parts)

    def over_keys(self, store: Callable[[Any, Any], Any]) -> Any:
        """Return loops over vectors of keys; `store` is called with the key and its lane."""
        whole, rest = divmod(self.found.key.extent, EDGE)
        parts = [
            loop(
                "keys",
                0,
                whole,
                lambda n: self.lanes(lambda lane: store(n * index(EDGE) + lane, lane)),
            )
        ]
        parts += [store(index(whole * EDGE + lane), index(lane)) for lane in range(rest)]
        return sequence(parts)

    def maximum(self, own: dict[Any, Any]) -> Any:
        """Return the loops that put `f` in place of scores, and its maximum in the first lane."""
        found = self.found

        def store(key: Any, lane: Any) -> Any:
            weight = substitute(
                self.at(found.weight, {**own, found.key: key}),
                {found.score: tirx.BufferLoad(self.scores, [key])},
            )
            known = tirx.BufferLoad(self.highest, [lane])
            highest = tirx.max(known, tirx.BufferLoad(self.scores, [key]))
            return sequence(
                [
                    tirx.BufferStore(self.scores, weight, [key]),
                    tirx.BufferStore(self.highest, highest, [lane]),
                ]
            )

        lanes = [tirx.BufferLoad(self.highest, [index(lane)]) for lane in range(EDGE)]
        return sequence(
            [
                self.lanes(lambda lane: tirx.BufferStore(self.highest, found.lowest, [lane])),
                self.over_keys(store),
                tirx.BufferStore(self.highest, reduce(tirx.max, lanes), [index(0)]),
            ]
        )

    def shares(self, own: dict[Any, Any]) -> Any:
        """Return the loops that put the shares in place of scores, and their sum in a lane."""
        found = self.found

        def store(key: Any, lane: Any) -> Any:
            score = tirx.BufferLoad(self.scores, [key])
            value = substitute(
                self.at(found.share, {**own, found.key: key}),
                {
                    found.weighed: score,
                    found.highest: tirx.BufferLoad(self.highest, [index(0)]),
                },
            )
            total = tirx.BufferLoad(self.total, [lane])
            return sequence(
                [
                    tirx.BufferStore(self.scores, value, [key]),
                    tirx.BufferStore(self.total, total + score, [lane]),
                ]
            )

        lanes = [tirx.BufferLoad(self.total, [index(lane)]) for lane in range(EDGE)]
        return sequence(
            [
                self.lanes(lambda lane: zero_at(self.total, lane)),
                self.over_keys(store),
                tirx.BufferStore(self.total, _sum(lanes), [index(0)]),
            ]
        )

    def products(self, own: dict[Any, Any]) -> Any:
        """Return the loops that add up the values by their shares."""
        found = self.found

        def some(begin: Any, vectors: int) -> Any:
            sums = buffer_of("sums", vectors * EDGE)

            def add(key: Any, vector: int) -> Any:
                def one(lane: Any) -> Any:
                    place = lane + index(vector * EDGE)
                    axes = {**own, found.key: key, found.column: begin + place}
                    share = tirx.BufferLoad(self.scores, [key])
                    known = tirx.BufferLoad(sums, [place])
                    return tirx.BufferStore(sums, known + share * self.at(found.v, axes), [place])

                return self.lanes(one)

            def each(body: Callable[[Any], Any]) -> list[Any]:
                def vector(number: int) -> Any:
                    return self.lanes(lambda lane: body(lane + index(number * EDGE)))

                return list(map(vector, range(vectors)))

            def store(place: Any) -> Any:
                return tirx.BufferStore(
                    self.result, tirx.BufferLoad(sums, [place]), [begin + place]
                )

            return sequence(
                [
                    tirx.AllocBuffer(sums),
                    *each(lambda place: zero_at(sums, place)),
                    loop(
                        "key",
                        0,
                        found.key.extent,
                        lambda key: sequence(
                            [
                                *self.fetch(found.v, own, key, found.column),
                                *(add(key, v) for v in range(vectors)),
                            ]
                        ),
                    ),
                    *each(store),
                ]
            )

        whole, rest = divmod(found.column.extent // EDGE, COLUMNS)
        width = COLUMNS * EDGE
        parts = []
        if whole:
            parts.append(loop("column", 0, whole, lambda c: some(c * index(width), COLUMNS)))
        if rest:
            parts.append(some(index(whole * width), rest))
        return sequence(parts)

    def finish(self, own: dict[Any, Any]) -> Any:
        """Return the loops that divide by the sum and store the row."""
        found = self.found

        def store(column: Any) -> Any:
            axes = {**own, found.column: column}
            total = tirx.BufferLoad(self.total, [index(0)])
            value = tirx.BufferLoad(self.result, [column]) / total
            element = substitute(self.at(found.result, axes), {found.element: value})
            return tirx.BufferStore(
                found.output, element, [self.at(each, axes) for each in found.place]
            )

        return loop(
            "columns",
            0,
            found.column.extent // EDGE,
            lambda v: self.lanes(lambda lane: store(v * index(EDGE) + lane)),
        )


def _sum(values: list[Any]) -> Any:
    """Return a sum by a tree of additions."""
    while len(values) > 1:
        values = [a + b for a, b in zip(values[::2], values[1::2], strict=True)]
    return values[0]
