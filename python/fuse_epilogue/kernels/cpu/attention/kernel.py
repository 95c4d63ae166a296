"""Writes the loops of attention: over heads, blocks of queries, and blocks of keys."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tvm import tirx

from ....recognize.attention import Attention
from ....tir.walk import substitute
from ..loops import index, loop, sequence
from .causal import causal_of, greatest_exponent
from .key_block import VECTORS, Block, KeyBlock, buffer_of

#: Keys of a block where the scores of a row do not fit, and queries of a block.
KEYS, QUERIES = 64, 32
#: Bytes of scores that stay in the first cache, for which all keys are one block.
SCORES_BYTES = 32 << 10


class Kernel(KeyBlock):
    """Writes the loops of one function."""

    def __init__(self, found: Attention, lanes: int, threads: int) -> None:
        super().__init__(found, lanes)
        self.threads = threads
        width = VECTORS * lanes
        least = -(-found.query.extent // width) * width
        self.queries = min(QUERIES if lanes <= QUERIES // VECTORS else width, least)
        keys = found.key.extent
        whole_row = self.queries * keys * 4 <= SCORES_BYTES
        # Where blocks of keys are skipped, there are several.
        self.causal = causal_of(found) if keys > KEYS else None
        self.keys = keys if whole_row and self.causal is None else KEYS
        self.rolling = self.keys < keys

    def body(self) -> Any:
        """Return all loops."""
        found = self.found
        blocks = -(-found.query.extent // self.queries)
        heads = math.prod(axis.extent for axis in found.batch)
        # Keys and values of a head are copied once for all of its blocks: rows that lie as far
        # apart as all heads are long would fall into a few sets of the cache.
        packs = blocks > 1 and (self.threads == 1 or heads >= self.threads)
        each = 1 if packs else blocks

        def one(number: Any) -> Any:
            left = tirx.floordiv(number, index(each))
            own = {}
            for axis in reversed(found.batch):
                own[axis] = tirx.floormod(left, index(axis.extent))
                left = tirx.floordiv(left, index(axis.extent))
            if packs:
                return self.head(own, blocks)
            return self.block(own, tirx.floormod(number, index(each)) * index(self.queries))

        parallel = self.threads > 1 and heads * each > 1
        kind = tirx.ForKind.PARALLEL if parallel else tirx.ForKind.SERIAL
        return loop("block", 0, heads * each, one, kind)

    def head(self, heads: dict[Any, Any], blocks: int) -> Any:
        """Return the copies of a head's keys and values, and the loop over blocks of queries."""
        found = self.found
        keys = buffer_of("head_keys", found.key.extent, found.depth.extent)
        values = buffer_of("head_values", found.key.extent, found.column.extent)
        statements: list[Any] = [tirx.AllocBuffer(keys), tirx.AllocBuffer(values)]
        sources = ((keys, found.k, found.depth), (values, found.v, found.column))
        for buffer, source, axis in sources:
            statements.append(self.copied(buffer, source, heads, axis))
        packed = replace(
            found,
            k=tirx.BufferLoad(keys, [found.key.var, found.depth.var]),
            v=tirx.BufferLoad(values, [found.key.var, found.column.var]),
        )
        inner = Kernel(packed, self.lanes, self.threads)
        greatest = None
        if self.causal is not None:
            find, greatest = greatest_exponent(values, self.lanes)
            statements.append(find)
        blocks_of = loop(
            "queries", 0, blocks, lambda i: inner.block(heads, i * index(self.queries), greatest)
        )
        return sequence([*statements, blocks_of])

    def copied(self, buffer: Any, source: Any, heads: dict[Any, Any], axis: Any) -> Any:
        """Return the loops that copy an operand of a head."""
        found = self.found

        def store(key: Any, place: Any) -> Any:
            value = self.at(source, {**heads, found.key: key, axis: place})
            return tirx.BufferStore(buffer, value, [key, place])

        def row(key: Any) -> Any:
            vectors, rest = divmod(axis.extent, self.lanes)
            left = index(vectors * self.lanes)
            parts = []
            if vectors:
                parts.append(self.vectors(vectors * self.lanes, lambda place: store(key, place)))
            if rest:
                parts.append(loop("left", 0, rest, lambda place: store(key, left + place)))
            return sequence(parts)

        return loop("key", 0, found.key.extent, row)

    def block(self, heads: dict[Any, Any], begin: Any, greatest: Any = None) -> Any:
        """Return what is computed for a block of queries.

        With the greatest exponent of the values, hidden blocks of keys are skipped.
        """
        found = self.found
        own = Block(
            buffer_of("queries", found.depth.extent, self.queries),
            buffer_of("scores", self.keys, self.queries),
            buffer_of("result", self.queries, found.column.extent),
            *(buffer_of(name, self.queries) for name in ("highest", "total", "change")),
        )
        whole, rest = divmod(found.key.extent, self.keys)
        count = whole + (rest > 0)
        needed: Any = None
        chosen = []
        if greatest is not None and self.causal is not None:
            number = buffer_of("needed", 1, dtype="int64")
            value = self.causal.needed(begin, self.queries, self.keys, count, greatest)
            needed = tirx.BufferLoad(number, [index(0)])
            chosen = [tirx.AllocBuffer(number), tirx.BufferStore(number, value, [index(0)])]

        def step(first: Any, keys: int) -> Any:
            return self.step(own, heads, begin, first, keys)

        steps = [
            loop(
                "keys",
                0,
                index(whole) if needed is None else tirx.min(needed, index(whole)),
                lambda i: step(i * index(self.keys), self.keys),
            )
        ]
        if rest:
            last = step(index(whole * self.keys), rest)
            steps.append(
                last if needed is None else tirx.IfThenElse(needed > index(whole), last, None)
            )
        return sequence(
            [
                *map(tirx.AllocBuffer, own.all()),
                *chosen,
                self.pack(own, heads, begin),
                self.start(own, None if needed is None else needed < index(count)),
                *steps,
                self.finish(own, heads, begin),
            ]
        )

    def pack(self, own: Block, heads: dict[Any, Any], begin: Any) -> Any:
        """Return the loops that transpose the queries of a block."""
        found = self.found

        def store(depth: Any, lane: Any) -> Any:
            axes = {**heads, found.query: self.query(begin, lane), found.depth: depth}
            return tirx.BufferStore(own.queries, self.at(found.q, axes), [depth, lane])

        return loop(
            "query",
            0,
            self.queries,
            lambda lane: loop("depth", 0, found.depth.extent, lambda d: store(d, lane)),
        )

    def start(self, own: Block, skips: Any) -> Any:
        """Return the stores of the starts; `skips` is whether any block of keys is skipped."""
        zero = tirx.const(0.0, "float32")
        found = self.found
        lowest = found.lowest
        if skips is not None and self.causal is not None:
            lowest = tirx.Select(skips, tirx.max(lowest, self.causal.hidden), lowest)

        def store(lane: Any) -> Any:
            return sequence(
                [
                    tirx.BufferStore(own.highest, lowest, [lane]),
                    tirx.BufferStore(own.total, zero, [lane]),
                ]
            )

        stores = [self.vectors(self.queries, store)]
        if self.rolling:
            stores.append(
                loop(
                    "query",
                    0,
                    self.queries,
                    lambda i: self.vectors(
                        found.column.extent, lambda d: tirx.BufferStore(own.result, zero, [i, d])
                    ),
                )
            )
        return sequence(stores)

    def finish(self, own: Block, heads: dict[Any, Any], begin: Any) -> Any:
        """Return the loops that divide by the sums and store the queries that there are."""
        found = self.found

        def store(row: Any, column: Any) -> Any:
            axes = {**heads, found.query: begin + row, found.column: column}
            total = tirx.BufferLoad(own.total, [row])
            value = tirx.BufferLoad(own.result, [row, column]) / total
            element = substitute(self.at(found.result, axes), {found.element: value})
            place = [self.at(each, axes) for each in found.place]
            return tirx.BufferStore(found.output, element, place)

        count = tirx.min(index(self.queries), index(found.query.extent) - begin)
        if found.query.extent % self.queries == 0:
            count = index(self.queries)
        return loop(
            "query",
            0,
            count,
            lambda row: self.vectors(found.column.extent, lambda column: store(row, column)),
        )
