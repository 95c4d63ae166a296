"""Writes attention in tiles, with a block for each step: see :mod:`.attention`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Range, TensorLoad, prim
from tvm.script.ir_builder import tirx as T
from tvm.sym import Analyzer

from ...neuron.trace import ITEMSIZE
from ...tir.build import replace as replace_nodes
from ...tir.walk import handle, substitute, uses
from .attention import Part, ReadAttention, Tiling
from .tile_writer import Span, TileWriter
from .tiles import BANK, PARTITIONS

BANK_BYTES = BANK * ITEMSIZE["float32"]

#: Tiles of queries up to which those under a condition are written one by one, each for the keys
#: that the condition leaves.
_WRITTEN_OUT = 32

At = Mapping[str, Any]


@dataclass(frozen=True)
class Tile:
    """Some queries, or keys.

    - `start`: the first one.
    - `rows`: how many there are.
    - `stride`: queries from one iteration of the loop over "t" to the next; 0 if it is in no loop.
    """

    start: int
    rows: int
    stride: int = 0


@dataclass
class Rows:
    """The buffers of a tile of queries; those not yet written are None.

    - `keys`: how many keys are computed.
    - `weights`: tvm.tirx.Buffer.
    - `others`: tiles of the operands that weights depend on besides scores, by the text of their
      loads.
    - `rest` (Expr or None): the weight of the keys that are left out.
    - `highest`, `shares`: tvm.tirx.Buffer or None.
    - `highs` (tvm.tirx.Buffer or None): the largest weight of each bank of scores, where that costs
      nothing.
    - `total` (tvm.tirx.Buffer or None): the sums of the shares.
    """

    tile: Tile
    keys: int
    weights: Any
    others: dict[str, Any]
    rest: Any
    shares: Any = None
    highs: Any = None
    highest: Any = None
    total: Any = None


def _at(tile: Tile, at: At, step: str) -> Any:
    """Return the query, or key, of a block's instance."""
    start = at["t"] * tile.stride + tile.start if tile.stride else tile.start
    return at[step] + start


def rewritten(found: ReadAttention, tiling: Tiling) -> tirx.PrimFunc:
    """Write the function: what the steps "neuron_attention", ... do."""
    return _Writer(found, tiling).write()


class _Writer:
    def __init__(self, found: ReadAttention, tiling: Tiling) -> None:
        self.found, self.pattern, self.tiling = found, found.pattern, tiling
        self.writer = TileWriter(found.func, str(self.pattern.query.var.ty.dtype))
        self.queries, self.keys = self.pattern.query.extent, self.pattern.key.extent
        self.depth, self.columns = self.pattern.depth.extent, self.pattern.column.extent
        self.rows: dict[str, Any] = {}
        self.share_dtype = found.v.dtype if tiling.round_shares else "float32"

    def write(self) -> tirx.PrimFunc:
        """Write everything."""
        with self.writer.function():
            self._batch(0)
        return self.writer.written()

    def _batch(self, place: int) -> None:
        """Write the loops over heads, and what is inside."""
        if place < len(self.pattern.batch):
            with self.writer.loop(f"b{place}", self.pattern.batch[place].extent):
                self._batch(place + 1)
            return
        self.k = self._transposed(
            "k", self.found.k, self.pattern.key.var, Tile(0, self.keys), self.keys, "key"
        )
        self.v = self._values()
        self._rows()
        many = self.tiling.pipelined
        tiles, rest = divmod(self.queries, PARTITIONS)
        all_tiles = [Tile(tile * PARTITIONS, PARTITIONS) for tile in range(tiles)]
        if not self._depends_on_place() or tiles > _WRITTEN_OUT:
            pairs = tiles // many
            if pairs:
                with self.writer.loop("t", pairs):
                    stride = PARTITIONS * many
                    self._tiles([replace(each, stride=stride) for each in all_tiles[:many]])
            all_tiles = all_tiles[pairs * many :]
        if rest:
            all_tiles.append(Tile(tiles * PARTITIONS, rest))
        for first in range(0, len(all_tiles), many):
            self._tiles(all_tiles[first : first + many])

    def _depends_on_place(self) -> bool:
        """Whether a condition of queries and keys decides about weights."""
        query, key = self.pattern.query.var, self.pattern.key.var
        return any(uses(c, query) and uses(c, key) for c in self._conditions())

    def _conditions(self) -> list[Any]:
        found: list[Any] = []
        for expr in (self.pattern.weight, self.pattern.share):
            tvm_ffi.structural_walk(expr, (prim.Select, lambda s: found.append(s.condition)))
        return found

    # ---- What stays for a head ---------------------------------------------------------------

    def _transposed(
        self, name: str, part: Part, own: Any, tile: Tile, count: int, step: str
    ) -> Any:
        """Load an operand as [feature, tile of features, query or key]; return its tile in SBUF.

        Where features are its last axis, the tensor engine transposes it.
        """
        writer = self.writer
        parts = _cut(self.depth, PARTITIONS)
        made = writer.tile(f"{name}_tile", (parts[0], len(parts), count), part.dtype)
        if not part.transposed:
            for tile_of_depth, size in enumerate(parts):
                spans = {"d": Span(size, "P"), step: Span(count)}
                with writer.block(f"{name}_load", spans) as at:
                    feature = tile_of_depth * PARTITIONS + at["d"]
                    value = self._loaded(part.load, at, {own: _at(tile, at, step)}, feature)
                    T.buffer_store(made, value, (at["d"], tile_of_depth, at[step]))
            return made
        together = min(self.tiling.together * PARTITIONS, BANK_BYTES // ITEMSIZE[part.dtype])
        for first in range(0, count, together):
            size = min(together, count - first)
            natural = []
            for place in range(0, size, PARTITIONS):
                rows = min(PARTITIONS, size - place)
                here = replace(tile, start=tile.start + first + place)
                natural.append(writer.tile(f"{name}_rows", (rows, self.depth), part.dtype))
                spans = {step: Span(rows, "P"), "d": Span(self.depth)}
                with writer.block(f"{name}_load", spans) as at:
                    value = self._loaded(part.load, at, {own: _at(here, at, step)}, at["d"])
                    T.buffer_store(natural[-1], value, (at[step], at["d"]))
            for tile_of_depth, depth in enumerate(parts):
                transposed = writer.tile(f"{name}_psum", (depth, size), part.dtype, "trn.psum")
                for place, rows in enumerate(natural):
                    spans = {"d": Span(depth, "P"), step: Span(int(rows.shape[0]))}
                    with writer.block(f"{name}_transpose", spans) as at:
                        value = rows[at[step], tile_of_depth * PARTITIONS + at["d"]]
                        T.buffer_store(transposed, value, (at["d"], place * PARTITIONS + at[step]))
                spans = {"d": Span(depth, "P"), step: Span(size)}
                with writer.block(f"{name}_copy", spans) as at:
                    value = transposed[at["d"], at[step]]
                    T.buffer_store(made, value, (at["d"], tile_of_depth, first + at[step]))
        return made

    def _values(self) -> Any:
        """Load the values as [key, tile of keys, column]; return their tile in SBUF."""
        writer, part = self.writer, self.found.v
        tiles = math.ceil(self.keys / PARTITIONS)
        rows = min(PARTITIONS, self.keys)
        made = loaded = writer.tile("v_tile", (rows, tiles, self.columns), part.dtype)
        if part.dtype != self.share_dtype:
            made = writer.tile("v_wide", (rows, tiles, self.columns), "float32")
        whole, together = self.keys // PARTITIONS, self.tiling.together
        pieces = [
            (tile, min(together, whole - tile), PARTITIONS) for tile in range(0, whole, together)
        ]
        if self.keys % PARTITIONS:
            pieces.append((whole, 1, self.keys % PARTITIONS))
        for tile, count, size in pieces:
            spans = {"key": Span(size, "P"), "tile": Span(count), "c": Span(self.columns)}
            with writer.block("v_load", spans) as at:
                key = (tile + at["tile"]) * PARTITIONS + at["key"]
                own = {self.pattern.key.var: key, self.pattern.column.var: at["c"]}
                value = self._loaded(part.load, at, own)
                T.buffer_store(loaded, value, (at["key"], tile + at["tile"], at["c"]))
            if made is not loaded:
                with writer.block("v_widen", spans) as at:
                    place = (at["key"], tile + at["tile"], at["c"])
                    T.buffer_store(made, T.cast(loaded[place], "float32"), place)
        return made

    def _rows(self) -> None:
        """Load the operands that do not depend on queries, such as a mask of keys."""
        for load in self.found.others:
            if uses(load, self.pattern.query.var):
                continue
            rows = min(PARTITIONS, self.queries)
            self.rows[str(load)] = self._other(load, rows, Tile(0, rows))

    def _other(self, load: Any, rows: int, tile: Tile) -> Any:
        """Load an operand of the weights for a tile of queries; return its tile in SBUF."""
        along = uses(load, self.pattern.key.var)
        count = self.keys if along else 1
        made = self.writer.tile(
            f"{load.source.name}_tile", (rows, count), str(load.source.ty.dtype)
        )
        spans = {"q": Span(rows, "P"), **({"key": Span(count)} if along else {})}
        with self.writer.block(f"{load.source.name}_load", spans) as at:
            own = {self.pattern.key.var: at["key"]} if along else {}
            if uses(load, self.pattern.query.var):
                own[self.pattern.query.var] = _at(tile, at, "q")
            value = self._loaded(load, at, own)
            T.buffer_store(made, value, (at["q"], at["key"] if along else 0))
        return made

    def _loaded(self, load: Any, at: At, own: dict[Any, Any], feature: Any = None) -> Any:
        """Return an element of a parameter at some place."""
        table = {**self._heads(at), **own}
        if feature is not None:
            table[self.pattern.depth.var] = feature
        return substitute(substitute(load, table), self.writer.parameters)

    def _heads(self, at: At) -> dict[Any, Any]:
        return {axis.var: at[f"b{place}"] for place, axis in enumerate(self.pattern.batch)}

    # ---- A tile of queries -------------------------------------------------------------------

    def _tiles(self, tiles: list[Tile]) -> None:
        """Write everything for tiles of queries.

        The scores of a tile, and their maximum, come before the result of the one before: the
        tensor engine has something to do while the others compute the softmax of that, and no
        exponential waits for the vector engine to divide that result.
        """
        before: Rows | None = None
        for tile in tiles:
            now = self._weights(tile)
            if before is not None:
                self._result(before)
            self._softmax(now)
            before = now
        if before is not None:
            self._result(before)

    def _weights(self, tile: Tile) -> Rows:
        """Write the weights of some queries."""
        keys, rest = self._keys(tile)
        q = self._transposed("q", self.found.q, self.pattern.query.var, tile, tile.rows, "q")
        others = dict(self.rows)
        for load in self.found.others:
            if str(load) not in others:
                others[str(load)] = self._other(load, tile.rows, tile)
        weights = self.writer.tile("weights", (tile.rows, keys), "float32")
        own = Rows(tile, keys, weights, others, rest)
        if keys > BANK and self._is_scaled():
            own.highs = self.writer.tile("highs", (tile.rows, math.ceil(keys / BANK)), "float32")
        for first in range(0, keys, BANK):
            self._scores(q, own, first, min(BANK, keys - first))
        own.highest = self._highest(own)
        return own

    def _softmax(self, own: Rows) -> None:
        """Write the shares of some queries, not yet divided."""
        writer, highest = self.writer, own.highest
        own.shares = writer.tile("shares", (own.tile.rows, own.keys), self.share_dtype)
        own.total = writer.tile("total", (own.tile.rows,), "float32")
        spans = {"q": Span(own.tile.rows, "P"), "key": Span(own.keys)}
        with writer.block("exponentials", spans) as at:
            value = self._expression(self.pattern.share, at, own, 0, highest)
            value = value if self.share_dtype == "float32" else T.cast(value, self.share_dtype)
            T.buffer_store(own.shares, value, (at["q"], at["key"]))
        # Without a mask the instruction before sums them, too. With one the vector engine does:
        # after the scores of the next tile, which then do not wait for it.
        if own.rest is None:
            self._total(own)

    def _total(self, own: Rows) -> None:
        """Write the sums of the shares."""
        writer, highest = self.writer, own.highest
        # The shares are summed before they are rounded.
        spans = {"q": Span(own.tile.rows, "P"), "key": Span(own.keys, summed=True)}
        with writer.block("sums", spans) as at:
            with T.init():
                T.buffer_store(own.total, tirx.const(0, "float32"), (at["q"],))
            value = self._expression(self.pattern.share, at, own, 0, highest)
            if self.share_dtype == "float32":
                value = own.shares[at["q"], at["key"]]
            T.buffer_store(own.total, own.total[at["q"]] + value, (at["q"],))

    def _is_scaled(self) -> bool:
        """Whether a weight is a score and a constant: the vector engine finds maxima on the way."""
        weight = self.pattern.weight
        if not isinstance(weight, prim.Mul | prim.Add | prim.Sub):
            return False
        sides = {handle(weight.a): weight.b, handle(weight.b): weight.a}
        return isinstance(sides.get(handle(self.pattern.score)), prim.FloatImm)

    def _keys(self, tile: Tile) -> tuple[int, Any]:
        """Return how many keys some queries need, and the weight of the others or None.

        The others are at the end; a condition must leave them out, for all of the queries.
        """
        weight, share = self.pattern.weight, self.pattern.share
        if tile.stride or not isinstance(weight, prim.Select) or not isinstance(share, prim.Select):
            return self.keys, None
        constant = isinstance(weight.false_value, prim.FloatImm)
        if not constant or not tvm_ffi.structural_equal(weight.condition, share.condition):
            return self.keys, None
        analyzer = Analyzer()
        for axis in self.pattern.batch:
            analyzer.bind(axis.var, self._range(0, axis.extent))
        keys = self.keys
        while keys > PARTITIONS:
            first = (keys - 1) // PARTITIONS * PARTITIONS
            analyzer.bind(self.pattern.query.var, self._range(tile.start, tile.rows), True)
            analyzer.bind(self.pattern.key.var, self._range(first, keys - first), True)
            if not analyzer.can_prove(tirx.Not(weight.condition)):
                break
            keys = first
        return keys, weight.false_value if keys < self.keys else None

    def _range(self, start: int, count: int) -> Any:
        return Range.from_min_extent(self.writer.number(start), self.writer.number(count))

    def _scores(self, q: Any, own: Rows, first: int, count: int) -> None:
        """Write the products of queries with some keys, and the weights made of these scores."""
        writer, rows = self.writer, own.tile.rows
        scores = writer.tile("scores", (rows, count), "float32", "trn.psum")
        parts = _cut(self.depth, PARTITIONS)
        spans = {
            "tile": Span(len(parts), "", summed=True),
            "q": Span(rows, "lhs_F"),
            "key": Span(count, "rhs_F"),
            "d": Span(parts[0], "P", summed=True),
        }
        with writer.block("product", spans) as at:
            if parts[-1] < parts[0]:
                T.where(at.loops["tile"] * PARTITIONS + at.loops["d"] < self.depth)
            place = at["q"], at["key"]
            with T.init():
                T.buffer_store(scores, tirx.const(0, "float32"), place)
            factors = [
                q[at["d"], at["tile"], at["q"]],
                self.k[at["d"], at["tile"], first + at["key"]],
            ]
            a, b = (T.cast(each, "float32") for each in factors)
            T.buffer_store(scores, scores[place] + a * b, place)
        with writer.block("weigh", {"q": Span(rows, "P"), "key": Span(count)}) as at:
            value = self._expression(self.pattern.weight, at, own, first)
            value = substitute(value, {self.pattern.score: scores[at["q"], at["key"]]})
            T.buffer_store(own.weights, value, (at["q"], first + at["key"]))
        if own.highs is None:
            return
        with writer.block("highs", {"q": Span(rows, "P"), "key": Span(count, summed=True)}) as at:
            place = at["q"], self.writer.number(first // BANK)
            with T.init():
                T.buffer_store(own.highs, tirx.const(-math.inf, "float32"), place)
            value = T.max(own.highs[place], own.weights[at["q"], first + at["key"]])
            T.buffer_store(own.highs, value, place)

    def _expression(self, expr: Any, at: At, own: Rows, first: int, highest: Any = None) -> Any:
        """Return an expression of the pattern for a block, over tiles, from the key `first` on."""
        table = {**self._heads(at)}
        table[self.pattern.query.var] = _at(own.tile, at, "q")
        table[self.pattern.key.var] = first + at["key"]
        if highest is not None:
            table[self.pattern.weighed] = own.weights[at["q"], first + at["key"]]
            table[self.pattern.highest] = highest[at["q"]]

        def load(node: Any) -> Any:
            known = own.others.get(str(node))
            if known is None:
                return node
            column = first + at["key"] if uses(node, self.pattern.key.var) else 0
            return known[at["q"], column]

        return substitute(replace_nodes(expr, TensorLoad, load), table)

    def _highest(self, own: Rows) -> Any:
        """Write the maximum of the weights, that of left out keys included."""
        writer, rows, keys = self.writer, own.tile.rows, own.keys
        highest = writer.tile("highest", (rows,), "float32")
        start = self.pattern.lowest if own.rest is None else T.max(self.pattern.lowest, own.rest)
        source, count = own.weights, keys
        if own.highs is not None:
            source, count = own.highs, math.ceil(keys / BANK)
        spans = {"q": Span(rows, "P"), "key": Span(count, summed=True)}
        with writer.block("maximum", spans) as at:
            with T.init():
                T.buffer_store(highest, start, (at["q"],))
            value = T.max(highest[at["q"]], source[at["q"], at["key"]])
            T.buffer_store(highest, value, (at["q"],))
        return highest

    def _result(self, own: Rows) -> None:
        """Write the product of shares and values, divided by the sums of the shares."""
        writer, tile, rows, keys = self.writer, own.tile, own.tile.rows, own.keys
        if own.rest is not None:
            self._total(own)
        shares, total = own.shares, own.total
        made = writer.tile("out", (rows, self.columns), "float32", "trn.psum")
        tiles = math.ceil(keys / PARTITIONS)
        size = min(PARTITIONS, keys)
        copied = writer.tile("shares_tile", (size, tiles, rows), self.share_dtype)
        together = self.tiling.together
        for first in range(0, tiles, together):
            parts = range(first, min(first + together, tiles))
            counts = [min(PARTITIONS, keys - part * PARTITIONS) for part in parts]
            shape = (size, len(parts), rows)
            psum = writer.tile("shares_psum", shape, self.share_dtype, "trn.psum")
            for place, (part, count) in enumerate(zip(parts, counts, strict=True)):
                with writer.block("transpose", {"key": Span(count, "P"), "q": Span(rows)}) as at:
                    value = shares[at["q"], part * PARTITIONS + at["key"]]
                    T.buffer_store(psum, value, (at["key"], place, at["q"]))
            for place, many, count in _pieces(counts):
                spans = {"key": Span(count, "P"), "tile": Span(many), "q": Span(rows)}
                # The vector engine is busier than the scalar one, mostly.
                engine = "vector" if self.tiling.by_vector else "scalar"
                with writer.block("copy", spans, engine=engine) as at:
                    part = place + at["tile"]
                    value = psum[at["key"], part, at["q"]]
                    T.buffer_store(copied, value, (at["key"], first + part, at["q"]))
        self._sum(made, copied, rows, keys)
        dtype = str(self.pattern.output.dtype)
        stored = writer.tile("result", (rows, self.columns), dtype)
        with writer.block("divide", {"q": Span(rows, "P"), "c": Span(self.columns)}) as at:
            value = made[at["q"], at["c"]] / total[at["q"]]
            value = substitute(self.pattern.result, {self.pattern.element: value})
            T.buffer_store(stored, value, (at["q"], at["c"]))
        with writer.block("store", {"q": Span(rows, "P"), "c": Span(self.columns)}) as at:
            table = {**self._heads(at), self.pattern.query.var: _at(tile, at, "q")}
            table[self.pattern.column.var] = at["c"]
            places = [substitute(self._simple(index), table) for index in self.pattern.place]
            target = writer.parameters[self.pattern.output]
            T.buffer_store(target, stored[at["q"], at["c"]], places)

    def _sum(self, made: Any, shares: Any, rows: int, keys: int) -> None:
        """Write the products that add up to a tile of the result."""
        spans = {
            "tile": Span(math.ceil(keys / PARTITIONS), "", summed=True),
            "q": Span(rows, "lhs_F"),
            "c": Span(self.columns, "rhs_F"),
            "key": Span(min(PARTITIONS, keys), "P", summed=True),
        }
        with self.writer.block("weighted", spans) as at:
            if keys > PARTITIONS and keys % PARTITIONS:
                T.where(at.loops["tile"] * PARTITIONS + at.loops["key"] < keys)
            index = at["q"], at["c"]
            with T.init():
                T.buffer_store(made, tirx.const(0, "float32"), index)
            a, b = shares[at["key"], at["tile"], at["q"]], self.v[at["key"], at["tile"], at["c"]]
            if self.share_dtype != "float32":
                a, b = T.cast(a, "float32"), T.cast(b, "float32")
            T.buffer_store(made, made[index] + a * b, index)

    def _simple(self, index: Any) -> Any:
        """Return an index of the output, simplified by the ranges of its axes."""
        analyzer = Analyzer()
        pattern = self.pattern
        for axis in (*pattern.batch, pattern.query, pattern.column):
            analyzer.bind(axis.var, self._range(0, axis.extent))
        return analyzer.simplify(index)


def _cut(size: int, most: int) -> list[int]:
    """Return a size cut into pieces, of which the last one may be smaller."""
    return [min(most, size - start) for start in range(0, size, most)]


def _pieces(sizes: list[int]) -> list[tuple[int, int, int]]:
    """Return runs of equal numbers: the place of the first, how many there are, the number.

    >>> _pieces([128, 128, 5])
    [(0, 2, 128), (2, 1, 5)]
    """
    runs: list[tuple[int, int, int]] = []
    for place, size in enumerate(sizes):
        if runs and runs[-1][2] == size:
            first, count, _ = runs.pop()
            runs.append((first, count + 1, size))
        else:
            runs.append((place, 1, size))
    return runs
