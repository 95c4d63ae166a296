"""Attention of one or two queries, as in decoding: keys and values are read once, from memory.

    for heads and queries, in parallel:
        for eight keys: eight dot products along the depth, transposed, are a vector of scores
        maximum of `f` of the scores; shares and their sum, in vectors of keys
        for keys: result += share * value, in vectors of columns
        store result / sum

The lanes of the other kernel, which are queries, would be idle here. Where threads are more than
heads and queries, each takes a part of the keys. The maximum, the sum and the result of a part are
then merged: each is corrected for the maximum of all parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad

from ....recognize.attention import Attention, is_proved_in_parts
from ....tir.walk import substitute
from ..loops import index, loop, sequence, wide
from ..transposition import EDGE, transposed_block
from ..vector_math import exp_up_to_zero
from .kernel import count_of
from .key_block import buffer_of, first_of_vector, is_share_of_maximum, zero_at
from .tiling import known_length

#: Queries up to which this kernel is chosen.
MOST_QUERIES = 2
#: Vectors of columns that are summed together: as many as hide the latency of a multiply-add.
COLUMNS = 8
#: Vectors of the depth up to which they are written out.
WRITTEN_OUT = 16
#: Keys of a part at least: merging parts takes as long as some tens of keys.
KEYS_OF_PART = 256


def fits(found: Attention) -> bool:
    """Return whether attention has few queries, and vectors along its depth and columns."""
    whole = min(found.depth.extent, found.column.extent) >= EDGE
    queries, keys = found.query.extent, found.key.extent
    few = isinstance(queries, int) and queries <= MOST_QUERIES
    return whole and few and (not isinstance(keys, int) or keys >= EDGE)


@dataclass(frozen=True)
class _Keys:
    """Some keys: whole vectors of them, and those that are left.

    - `first`, `count` (Expr): the first key, and the number of keys.
    """

    first: Any
    count: Any

    @property
    def whole(self) -> Any:
        """The number of whole vectors."""
        return tirx.floordiv(self.count, index(EDGE))

    @property
    def left(self) -> Any:
        """The number of keys after them."""
        return tirx.floormod(self.count, index(EDGE))


@dataclass(frozen=True)
class _Parts:
    """Buffers of the states of all parts: the maximum, the sum, and the result before division."""

    highest: Any
    total: Any
    result: Any

    def all(self) -> tuple[Any, ...]:
        """Return the buffers."""
        return self.highest, self.total, self.result


class FewQueries:
    """Writes the loops of one function.

    - `threads`: number of threads that the loop over heads, and over parts of the keys, is made
      for.
    """

    def __init__(self, found: Attention, threads: int) -> None:
        self.threads = threads
        self.axes = (*found.batch, found.query)
        self.parts = self.number_of_parts(found)
        keys = wide(found.key.extent)
        # Parts begin at whole vectors.
        step = index(self.parts * EDGE)
        length = tirx.floordiv(keys + step - index(1), step) * index(EDGE)
        self.keys_of_part = keys if self.parts == 1 else length
        self.query = buffer_of("query", found.depth.extent)
        self.scores = buffer_of("scores", self.keys_of_part)
        # The last vector ends with the last column: others are in two vectors.
        self.vectors = -(-found.column.extent // EDGE)
        self.result = buffer_of("result", self.vectors * EDGE)
        self.highest = buffer_of("highest", EDGE)
        self.total = buffer_of("total", EDGE)
        self.q = None if isinstance(found.q, TensorLoad) else found.q
        if self.q is not None:
            # What is computed of a query is computed once.
            found = replace(found, q=tirx.BufferLoad(self.query, [found.depth.var]))
        self.found = found
        self.of_maximum = is_share_of_maximum(found)

    def number_of_parts(self, found: Attention) -> int:
        """Return the number of parts of the keys: 1 unless threads would be idle."""
        rows = 1
        for axis in self.axes:
            rows *= axis.extent if isinstance(axis.extent, int) else 1
        most = min(-(-self.threads // rows), known_length(found.key) // KEYS_OF_PART)
        return most if most > 1 and is_proved_in_parts(found, most) else 1

    def body(self) -> Any:
        """Return all loops."""
        count = count_of(self.axes)
        kind = tirx.ForKind.PARALLEL if self.threads > 1 else tirx.ForKind.SERIAL
        if self.parts == 1:
            keys = wide(self.found.key.extent)
            return loop("row", 0, count, lambda n: self.row(self.own(n), index(0), keys), kind)
        states = count * index(self.parts)
        parts = _Parts(
            buffer_of("highest_of_part", states),
            buffer_of("total_of_part", states),
            buffer_of("result_of_part", states, self.vectors * EDGE),
        )

        def part(number: Any) -> Any:
            own = self.own(tirx.floordiv(number, index(self.parts)))
            first = tirx.floormod(number, index(self.parts)) * self.keys_of_part
            keys = wide(self.found.key.extent)
            there = tirx.max(index(0), tirx.min(self.keys_of_part, keys - first))
            return self.row(own, first, there, lambda: self.keep(parts, number))

        return sequence(
            [
                *map(tirx.AllocBuffer, parts.all()),
                loop("part", 0, states, part, kind),
                loop("row", 0, count, lambda number: self.merged(parts, number)),
            ]
        )

    def own(self, number: Any) -> dict[Any, Any]:
        """Return the value of each axis of heads and queries."""
        own = {}
        for axis in reversed(self.axes):
            own[axis] = tirx.floormod(number, wide(axis.extent))
            number = tirx.floordiv(number, wide(axis.extent))
        return own

    def row(
        self, own: dict[Any, Any], first: Any, count: Any, end: Callable[[], Any] | None = None
    ) -> Any:
        """Return what is computed for a query of a head and some keys.

        - `own`: values of the axes of heads and queries.
        - `first`, `count` (Expr): the first key, and the number of keys.
        - `end`: returns what is done with the maximum, the sum and the result. They are divided and
          stored if None.
        """
        buffers = (self.scores, self.result, self.highest, self.total)
        keys = _Keys(first, count)
        return sequence(
            [
                *map(tirx.AllocBuffer, buffers),
                *self.packed(own),
                self.dot_products(own, keys),
                self.maximum(own, keys),
                self.shares(own, keys),
                self.products(own, keys),
                self.finish(own, self.highest, self.total, self.result) if end is None else end(),
            ]
        )

    def packed(self, own: dict[Any, Any]) -> list[Any]:
        """Return statements that compute the query, where it is more than a load."""
        if self.q is None:
            return []
        depth = self.found.depth

        def store(place: Any) -> Any:
            value = self.at(self.q, {**own, depth: place})
            return tirx.BufferStore(self.query, value, [place])

        def vector(number: Any) -> Any:
            first = first_of_vector(number, EDGE, depth.extent)
            return self.lanes(lambda lane: store(first + lane))

        return [tirx.AllocBuffer(self.query), loop("depth", 0, -(-depth.extent // EDGE), vector)]

    # ---- parts of the keys ------------------------------------------------------------------

    def keep(self, parts: _Parts, number: Any) -> Any:
        """Return the stores of the state of a part."""
        first = index(0)

        def column(place: Any) -> Any:
            value = tirx.BufferLoad(self.result, [place])
            return tirx.BufferStore(parts.result, value, [number, place])

        return sequence(
            [
                tirx.BufferStore(parts.highest, tirx.BufferLoad(self.highest, [first]), [number]),
                tirx.BufferStore(parts.total, tirx.BufferLoad(self.total, [first]), [number]),
                self.columns(column),
            ]
        )

    def merged(self, parts: _Parts, row: Any) -> Any:
        """Return the loops that merge the states of a row, divide and store it."""
        found, first = self.found, index(0)
        names = ("highest", "total", "change")
        own = [buffer_of(f"merged_{name}", 1) for name in names]
        result = buffer_of("merged_result", self.vectors * EDGE)
        highest, total, change = (tirx.BufferLoad(buffer, [first]) for buffer in own)

        def number(part: Any) -> Any:
            return row * index(self.parts) + part

        def largest(part: Any) -> Any:
            value = tirx.max(highest, tirx.BufferLoad(parts.highest, [number(part)]))
            return tirx.BufferStore(own[0], value, [first])

        def add(part: Any) -> Any:
            at = number(part)

            def column(place: Any) -> Any:
                more = tirx.BufferLoad(parts.result, [at, place]) * change
                known = tirx.BufferLoad(result, [place])
                return tirx.BufferStore(result, known + more, [place])

            factor = found.factor(tirx.BufferLoad(parts.highest, [at]), highest)
            more = tirx.BufferLoad(parts.total, [at]) * change
            return sequence(
                [
                    tirx.BufferStore(own[2], factor, [first]),
                    tirx.BufferStore(own[1], total + more, [first]),
                    self.columns(column),
                ]
            )

        return sequence(
            [
                *map(tirx.AllocBuffer, (*own, result)),
                tirx.BufferStore(own[0], found.lowest, [first]),
                zero_at(own[1], first),
                self.columns(lambda place: zero_at(result, place)),
                loop("part", 0, self.parts, largest),
                loop("part", 0, self.parts, add),
                self.finish(self.own(row), own[0], own[1], result),
            ]
        )

    # ---- statements -------------------------------------------------------------------------

    def at(self, value: Any, axes: dict[Any, Any]) -> Any:
        """Return an expression at some values of the axes, in the types that it has them in."""
        table = {axis.var: number.astype(str(axis.var.ty.dtype)) for axis, number in axes.items()}
        return substitute(value, table)

    def lanes(self, store: Callable[[Any], Any]) -> Any:
        """Return a loop over the lanes of a vector."""
        return loop("lane", 0, EDGE, store, tirx.ForKind.VECTORIZED)

    def columns(self, store: Callable[[Any], Any]) -> Any:
        """Return a loop over the vectors of the result."""
        return loop(
            "columns",
            0,
            self.vectors,
            lambda v: self.lanes(lambda lane: store(v * index(EDGE) + lane)),
        )

    def dot_products(self, own: dict[Any, Any], keys: _Keys) -> Any:
        """Return the loops that compute the scores before `f`."""
        found = self.found
        depth, rest = divmod(found.depth.extent, EDGE)
        written = tirx.ForKind.UNROLLED if depth <= WRITTEN_OUT else tirx.ForKind.SERIAL

        def add(sums: Any, key: Any, row: int, first: Any, counted: int = 0) -> Any:
            def one(lane: Any) -> Any:
                axes = {**own, found.key: key, found.depth: first + lane}
                product = self.at(found.q, axes) * self.at(found.k, axes)
                if counted:
                    fresh = lane >= index(counted)
                    product = tirx.Select(fresh, product, tirx.const(0.0, "float32"))
                at = [lane + index(row * EDGE)]
                return tirx.BufferStore(sums, tirx.BufferLoad(sums, at) + product, at)

            return self.lanes(one)

        def of_keys(sums: Any, place: Any, count: int) -> list[Any]:
            def zero(row: int) -> Any:
                return self.lanes(lambda lane: zero_at(sums, lane + index(row * EDGE)))

            def row(r: int) -> Any:
                # A row is read from its begin to its end, as it lies in memory.
                key = keys.first + place + index(r)
                parts = [
                    loop("depth", 0, depth, lambda d: add(sums, key, r, d * index(EDGE)), written)
                ]
                if rest:
                    # The last vector begins with products that are counted already.
                    last = index(found.depth.extent - EDGE)
                    parts.append(add(sums, key, r, last, EDGE - rest))
                return sequence(parts)

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

        def single(number: Any) -> Any:
            sums, place = buffer_of("sums", EDGE), keys.whole * index(EDGE) + number
            lanes = [tirx.BufferLoad(sums, [index(lane)]) for lane in range(EDGE)]
            store = tirx.BufferStore(self.scores, _sum(lanes), [place])
            return sequence([*of_keys(sums, place, 1), store])

        parts = [loop("keys", 0, keys.whole, eight), loop("left", 0, keys.left, single)]
        return sequence(parts)

    def over_keys(self, keys: _Keys, store: Callable[[Any, Any], Any]) -> Any:
        """Return loops over vectors of keys; `store` is called with the place and its lane."""

        def vector(number: Any) -> Any:
            return self.lanes(lambda lane: store(number * index(EDGE) + lane, lane))

        def single(number: Any) -> Any:
            # In a lane that is known: only such a buffer is kept in registers.
            return store(keys.whole * index(EDGE) + number, index(0))

        return sequence([loop("keys", 0, keys.whole, vector), loop("left", 0, keys.left, single)])

    def maximum(self, own: dict[Any, Any], keys: _Keys) -> Any:
        """Return the loops that put `f` in place of scores, and its maximum in the first lane."""
        found = self.found

        def store(key: Any, lane: Any) -> Any:
            weight = substitute(
                self.at(found.weight, {**own, found.key: keys.first + key}),
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
                self.over_keys(keys, store),
                tirx.BufferStore(self.highest, reduce(tirx.max, lanes), [index(0)]),
            ]
        )

    def shares(self, own: dict[Any, Any], keys: _Keys) -> Any:
        """Return the loops that put the shares in place of scores, and their sum in a lane."""
        found = self.found

        def store(key: Any, lane: Any) -> Any:
            score = tirx.BufferLoad(self.scores, [key])
            highest = tirx.BufferLoad(self.highest, [index(0)])
            if self.of_maximum:
                value = exp_up_to_zero(score - highest)
            else:
                value = substitute(
                    self.at(found.share, {**own, found.key: keys.first + key}),
                    {found.weighed: score, found.highest: highest},
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
                self.over_keys(keys, store),
                tirx.BufferStore(self.total, _sum(lanes), [index(0)]),
            ]
        )

    def products(self, own: dict[Any, Any], keys: _Keys) -> Any:
        """Return the loops that add up the values by their shares."""
        found = self.found

        def some(begin: Any, vectors: int) -> Any:
            """Return the sums of some vectors of the result."""
            sums = buffer_of("sums", vectors * EDGE)

            def add(key: Any, vector: int) -> Any:
                first = first_of_vector(begin + index(vector), EDGE, found.column.extent)

                def one(lane: Any) -> Any:
                    place = lane + index(vector * EDGE)
                    axes = {**own, found.key: keys.first + key, found.column: first + lane}
                    share = tirx.BufferLoad(self.scores, [key])
                    known = tirx.BufferLoad(sums, [place])
                    return tirx.BufferStore(sums, known + share * self.at(found.v, axes), [place])

                return self.lanes(one)

            def each(body: Callable[[Any], Any]) -> list[Any]:
                def vector(number: int) -> Any:
                    return self.lanes(lambda lane: body(lane + index(number * EDGE)))

                return list(map(vector, range(vectors)))

            def store(place: Any) -> Any:
                at = begin * index(EDGE) + place
                return tirx.BufferStore(self.result, tirx.BufferLoad(sums, [place]), [at])

            return sequence(
                [
                    tirx.AllocBuffer(sums),
                    *each(lambda place: zero_at(sums, place)),
                    loop(
                        "key",
                        0,
                        keys.count,
                        lambda key: sequence([add(key, v) for v in range(vectors)]),
                    ),
                    *each(store),
                ]
            )

        whole, rest = divmod(self.vectors, COLUMNS)
        parts = []
        if whole:
            parts.append(loop("column", 0, whole, lambda c: some(c * index(COLUMNS), COLUMNS)))
        if rest:
            parts.append(some(index(whole * COLUMNS), rest))
        return sequence(parts)

    def finish(self, own: dict[Any, Any], highest: Any, total: Any, result: Any) -> Any:
        """Return the loops that divide a row and store it.

        - `highest`, `total`, `result` (tvm.tirx.Buffer): the maximum and the sum as first elements,
          and the result.
        """
        found = self.found
        known = {
            found.highest: tirx.BufferLoad(highest, [index(0)]),
            found.total: tirx.BufferLoad(total, [index(0)]),
        }

        def of_row(value: Any, axes: dict[Any, Any]) -> Any:
            return substitute(self.at(value, axes), known)

        divisor = buffer_of("divisor", 1)
        statements: list[Any] = []
        if found.divisor is not None:
            value = of_row(found.divisor, own)
            if not isinstance(found.key.extent, int):
                # Without any key, the result is a sum of nothing.
                some = wide(found.key.extent) > index(0)
                value = tirx.Select(some, value, tirx.const(1.0, "float32"))
            statements = [
                tirx.AllocBuffer(divisor),
                tirx.BufferStore(divisor, value, [index(0)]),
            ]

        def store(vector: Any, lane: Any) -> Any:
            column = first_of_vector(vector, EDGE, found.column.extent) + lane
            axes = {**own, found.column: column}
            value = tirx.BufferLoad(result, [vector * index(EDGE) + lane])
            if found.divisor is not None:
                value = value / tirx.BufferLoad(divisor, [index(0)])
            element = substitute(of_row(found.result, axes), {found.element: value})
            return tirx.BufferStore(
                found.output, element, [self.at(each, axes) for each in found.place]
            )

        for each in found.of_rows:
            place = [self.at(index_of, own) for index_of in each.place]
            statements.append(tirx.BufferStore(each.output, of_row(each.value, own), place))
        columns = loop(
            "columns", 0, self.vectors, lambda v: self.lanes(lambda lane: store(v, lane))
        )
        return sequence([*statements, columns])


def _sum(values: list[Any]) -> Any:
    """Return a sum by a tree of additions."""
    while len(values) > 1:
        values = [a + b for a, b in zip(values[::2], values[1::2], strict=True)]
    return values[0]
