"""Attention in one pass: a block of queries against blocks of keys, scores kept in the cache.

    for heads and blocks of queries, in parallel:
        pack the block's queries, transposed
        for blocks of keys:
            scores = keys x queries, with `f`; their maximum over the block
            shares = exp(scores - maximum); their sum
            result = result * exp(change of the maximum) + shares x values
        store result / sum

Scores are transposed: queries are the lanes, so that the softmax needs no sum over lanes, and keys
and values are read as they lie. One block of keys, if a row of scores fits: then nothing is
rescaled. Register tiles are of 4 x 2 vectors; they are buffers of the default scope, of at most
1,024 bytes, which LLVM keeps in registers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.target import Target

from ...recognize.attention import Attention, attention_of
from ...recognize.stages import Program
from ...schedules.targets import vector_bits
from ...tir_tree import substitute
from ..scheduled import Scheduled
from .loops import index, loop, sequence

#: Rows of a register tile, and vectors of each.
ROWS, VECTORS = 4, 2
#: Keys of a block where the scores of a row do not fit, and queries of a block.
KEYS, QUERIES = 64, 32
#: Bytes of scores that stay in the first cache, for which all keys are one block.
SCORES_BYTES = 32 << 10
#: Elements of the shortest vector that the kernel is written in.
LEAST_LANES = 4
#: Multiply-adds per second of one core: a third of AVX2's peak at 3 GHz for short products.
FMA_S = 1 / 3e10


def schedule(
    program: Program,
    target: Target,
    threads: int = 1,
    constants: frozenset[int] = frozenset(),  # noqa: ARG001 - every kind has the same parameters
) -> Scheduled | None:
    """Schedule attention.

    Parameters
    ----------
    program : Program
    target : tvm.target.Target
        Of kind "llvm".
    threads : int
        Number of threads that the loop over heads and blocks of queries is made for.
    constants : frozenset[int]
        Unused here.

    Returns
    -------
    Scheduled or None
        None if the function is not attention in float32, or the columns of the result are not a
        multiple of four.
    """
    found = attention_of(program)
    lanes = vector_bits(target) // 32
    if found is None:
        return None
    # Short heads are computed in vectors that are half as wide as the processor's, or less.
    while lanes > LEAST_LANES and found.column.extent % lanes:
        lanes //= 2
    if lanes < LEAST_LANES or found.column.extent % lanes:
        return None
    body = _Kernel(found, lanes, threads).body()
    func = tirx.PrimFunc(program.func.params, body, program.func.ret_type, program.func.attrs)
    steps = found.query.extent * found.key.extent * (found.depth.extent + found.column.extent)
    for axis in found.batch:
        steps *= axis.extent
    return Scheduled(func, "attention", "tail", steps * FMA_S / max(1, threads))


@dataclass
class _Block:
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


def _buffer(name: str, *shape: int) -> Any:
    return tirx.decl_buffer([index(size) for size in shape], "float32", name, layout=None)


class _Kernel:
    """Writes the loops of one function."""

    def __init__(self, found: Attention, lanes: int, threads: int) -> None:
        self.found, self.lanes, self.threads = found, lanes, threads
        width = VECTORS * lanes
        least = -(-found.query.extent // width) * width
        self.queries = min(QUERIES if lanes <= QUERIES // VECTORS else width, least)
        keys = found.key.extent
        whole_row = self.queries * keys * 4 <= SCORES_BYTES or not found.rolls
        self.keys = keys if whole_row else KEYS
        self.rolling = self.keys < keys

    # ---- expressions ------------------------------------------------------------------------

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
        keys = _buffer("head_keys", found.key.extent, found.depth.extent)
        values = _buffer("head_values", found.key.extent, found.column.extent)
        statements: list[Any] = [tirx.AllocBuffer(keys), tirx.AllocBuffer(values)]
        sources = ((keys, found.k, found.depth), (values, found.v, found.column))
        for buffer, source, axis in sources:
            statements.append(self.copied(buffer, source, heads, axis))
        packed = replace(
            found,
            k=tirx.BufferLoad(keys, [found.key.var, found.depth.var]),
            v=tirx.BufferLoad(values, [found.key.var, found.column.var]),
        )
        inner = _Kernel(packed, self.lanes, self.threads)
        blocks_of = loop(
            "queries", 0, blocks, lambda i: inner.block(heads, i * index(self.queries))
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

    def block(self, heads: dict[Any, Any], begin: Any) -> Any:
        """Return what is computed for a block of queries."""
        found = self.found
        own = _Block(
            _buffer("queries", found.depth.extent, self.queries),
            _buffer("scores", self.keys, self.queries),
            _buffer("result", self.queries, found.column.extent),
            *(_buffer(name, self.queries) for name in ("highest", "total", "change")),
        )
        whole, rest = divmod(found.key.extent, self.keys)
        steps = [
            loop(
                "keys",
                0,
                whole,
                lambda i: self.step(own, heads, begin, i * index(self.keys), self.keys),
            )
        ]
        if rest:
            steps.append(self.step(own, heads, begin, index(whole * self.keys), rest))
        return sequence(
            [
                *map(tirx.AllocBuffer, own.all()),
                self.pack(own, heads, begin),
                self.start(own),
                *steps,
                self.finish(own, heads, begin),
            ]
        )

    def pack(self, own: _Block, heads: dict[Any, Any], begin: Any) -> Any:
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

    def start(self, own: _Block) -> Any:
        """Return the stores of the starts."""
        zero = tirx.const(0.0, "float32")
        found = self.found

        def store(lane: Any) -> Any:
            return sequence(
                [
                    tirx.BufferStore(own.highest, found.lowest, [lane]),
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

    def step(self, own: _Block, heads: dict[Any, Any], begin: Any, first: Any, keys: int) -> Any:
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

    def scores(self, own: _Block, heads: dict[Any, Any], begin: Any, first: Any, keys: int) -> Any:
        """Return the product of keys and queries, `f`, and the maximum."""
        found, width = self.found, VECTORS * self.lanes

        def tile(key: Any, rows: int, column: Any) -> Any:
            sums = _buffer("sums", rows * width)

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
                raw = tirx.BufferStore(own.scores, score, [key + index(row), column + lane])
                weight = substitute(self.at(found.weight, axes), {found.score: score})
                known = tirx.BufferLoad(own.highest, [column + lane])
                return sequence(
                    [raw, tirx.BufferStore(own.highest, tirx.max(known, weight), [column + lane])]
                )

            return sequence(
                [
                    tirx.AllocBuffer(sums),
                    self.each(rows, width, lambda _, __, at: _zero(sums, at)),
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

    def shares(self, own: _Block, heads: dict[Any, Any], begin: Any, first: Any, keys: int) -> Any:
        """Return the shares of a block in place of its scores, and their sum."""
        found, lanes = self.found, self.lanes

        def vector(v: Any) -> Any:
            parts = _buffer("part", lanes)

            def share(key: Any, lane: Any) -> Any:
                at = v * index(lanes) + lane
                axes = {**heads, found.query: self.query(begin, at), found.key: first + key}
                value = substitute(
                    self.at(found.share, axes),
                    {
                        found.score: tirx.BufferLoad(own.scores, [key, at]),
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
                change = tirx.exp(before - tirx.BufferLoad(own.highest, [at]))
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
                    self.lane(lambda lane: _zero(parts, lane)),
                    loop("key", 0, keys, lambda key: self.lane(lambda lane: share(key, lane))),
                    self.lane(rescale),
                ]
            )

        return loop("vector", 0, self.queries // lanes, vector)

    def lane(self, store: Callable[[Any], Any]) -> Any:
        """Return a loop over the lanes of a vector."""
        return loop("lane", 0, self.lanes, store, tirx.ForKind.VECTORIZED)

    def products(self, own: _Block, heads: dict[Any, Any], first: Any, keys: int) -> Any:
        """Return the product of shares and values, added to the result so far."""
        found = self.found

        def tile(query: Any, rows: int, begin: Any, width: int) -> Any:
            sums = _buffer("sums", rows * width)

            def start(row: int, lane: Any, at: Any) -> Any:
                if not self.rolling:
                    return _zero(sums, at)
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

    def finish(self, own: _Block, heads: dict[Any, Any], begin: Any) -> Any:
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


def _zero(buffer: Any, at: Any) -> Any:
    return tirx.BufferStore(buffer, tirx.const(0.0, "float32"), [at])
