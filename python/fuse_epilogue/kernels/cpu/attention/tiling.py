"""The sizes of attention: blocks of queries and of keys, and the register tiles of both products.

Blocks of queries are whole vectors, all of one size but the last one. The sizes with the fewest
predicted cycles are chosen:

- register tiles: tall and narrow ones load more for a product, short ones wait for their sums;
- blocks of keys: long ones leave the first cache, short ones correct the result more often.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ....recognize.stages import Axis
from ..contraction.plan import (
    L1_BYTES,
    L2_BYTES_PER_CYCLE,
    LATENCY,
    LOADS_POWER,
    MOST_ROWS,
    NEAR_POWER,
    SUM_CYCLES,
    TILE_CYCLES,
)
from ..costs import added
from .key_ranges import KeyRange

#: Vectors of queries of the largest block, and vectors of the widest register tile.
MOST_VECTORS, WIDEST = 8, 4
#: Blocks of keys are of about as many, unless all are one block.
KEYS = (32, 48, 64, 96, 128)
#: Most keys of a block where blocks are skipped, of which there are several then.
SKIPPED_KEYS = 64
#: Blocks of queries, evenly spread, of which the keys that they need are looked at.
MOST_PLACES = 16
#: Queries and keys that sizes are chosen for where their number is not known.
LENGTH = 512
#: Vectors of queries of the largest block then; what is left of a length is in single ones.
OPEN_VECTORS = 4
#: Cycles of a vector of exponentials, more where scores are not in the first cache (on AMD's Zen 3,
#: rows of 2,048 scores take 1.1 to 1.2 times as long in one block as in blocks of 64, on Zen 5 as
#: long), and of a vector of the result that is loaded, multiplied and stored.
EXP_CYCLES, FAR_CYCLES, RESCALE_CYCLES = 5.0, 4.0, 2.0
#: Cycles in which an element of a query is packed.
PACK_CYCLES = 0.4


#: First and last keys, of some blocks of queries of each number of vectors.
Ranges = tuple[tuple[tuple[int, int], ...], ...]


@dataclass(frozen=True)
class Tiles:
    """Tiles of one height, one after the other.

    - `start`: the first row.
    - `rows`: rows of a tile.
    - `count`: number of tiles.
    """

    start: int
    rows: int
    count: int


@dataclass(frozen=True)
class Queries:
    """Blocks of queries of one size, one after the other.

    - `start` (int): the first query.
    - `vectors`: vectors of a block.
    - `queries`: number of queries in a block: the lanes of the last vector may be more.
    - `count` (int): number of blocks.
    - `open`: whether the last block may have fewer queries, by a length that is not known; then
      `start` and `count` are expressions.
    """

    start: Any
    vectors: int
    queries: int
    count: Any
    open: bool = False


@dataclass(frozen=True)
class Sizes:
    """Extents of attention, and what they are computed with.

    - `lanes`: elements of a vector, at most as many as `columns`.
    - `registers`: number of vector registers.
    """

    queries: int
    keys: int
    depth: int
    columns: int
    lanes: int
    registers: int

    @property
    def vectors(self) -> int:
        """Number of vectors of a row of the result: the last one may have columns of another."""
        return -(-self.columns // self.lanes)


@dataclass(frozen=True)
class Tiling:
    """Blocks of attention.

    - `keys`: keys of a block; the last one may have fewer.
    """

    sizes: Sizes
    queries: tuple[Queries, ...]
    keys: int

    @property
    def rolling(self) -> bool:
        """Whether there are several blocks of keys, so that what is known of one is corrected."""
        return self.keys < self.sizes.keys


def known_length(axis: Axis) -> int:
    """Return the extent of an axis, or what is taken for it where it is not known."""
    return axis.extent if isinstance(axis.extent, int) else LENGTH


def ranges(sizes: Sizes, needed: KeyRange | None) -> Ranges:
    """Return the first and the last key that some of the blocks of queries need.

    - `needed`: the range of keys of some queries; None for all keys. A bound that depends on
      lengths that are not known is taken for none.
    - Returns: pairs for each number of vectors of a block, of blocks that are evenly spread.
    """

    def of_blocks(vectors: int) -> tuple[tuple[int, int], ...]:
        size = vectors * sizes.lanes
        blocks = -(-sizes.queries // size)
        step = -(-blocks // MOST_PLACES)
        found = []
        for place in range((step - 1) // 2, blocks, step):
            first, last = (None, None)
            if needed is not None:
                first, last = needed.bounds(
                    place * size, min((place + 1) * size, sizes.queries) - 1
                )
            first = max(0, first) if isinstance(first, int) else 0
            last = min(sizes.keys - 1, last) if isinstance(last, int) else sizes.keys - 1
            found.append((first, max(first - 1, last)))
        return tuple(found)

    return tuple(map(of_blocks, range(1, MOST_VECTORS + 1)))


@lru_cache(maxsize=256)
def choose(sizes: Sizes, needed: Ranges | None = None) -> Tiling:
    """Return the blocks that are predicted to be the fastest.

    - `needed`: keys that blocks of queries need, by :func:`ranges`, if blocks of keys are skipped;
      then there are more than `SKIPPED_KEYS` keys.
    """
    found = []
    for vectors in range(1, MOST_VECTORS + 1):
        blocks = blocks_of_queries(sizes, vectors)
        for most in (*KEYS, sizes.keys):
            if most > sizes.keys or (needed and most > SKIPPED_KEYS):
                continue
            keys = -(-sizes.keys // -(-sizes.keys // most))
            found.append(Tiling(sizes, blocks, keys))
    return min(found, key=lambda tiling: cycles(tiling, needed))


def blocks_of_queries(sizes: Sizes, vectors: int) -> tuple[Queries, ...]:
    """Return the blocks of queries of at most a number of vectors."""
    size = vectors * sizes.lanes
    whole, rest = divmod(sizes.queries, size)
    parts = [Queries(0, vectors, size, whole)] if whole else []
    if rest:
        parts.append(Queries(whole * size, -(-rest // sizes.lanes), rest, 1))
    return tuple(parts)


def tallest(vectors: int, registers: int) -> int:
    """Return the rows of the tallest register tile of some vectors: one is for a broadcast."""
    return max(1, min(MOST_ROWS, (registers - 1 - vectors) // vectors))


def tiles(rows: int, vectors: int, registers: int) -> list[Tiles]:
    """Return the tiles of all rows, as even as possible.

    >>> tiles(64, 4, 32)
    [Tiles(start=0, rows=6, count=9), Tiles(start=54, rows=5, count=2)]
    """
    count = -(-rows // tallest(vectors, registers))
    base, larger = divmod(rows, count)
    both = [Tiles(0, base + 1, larger), Tiles(larger * (base + 1), base, count - larger)]
    return [each for each in both if each.count]


def widths(vectors: int, rows: int, steps: int, registers: int) -> list[int]:
    """Return the vectors of each column of register tiles, by the fewest cycles."""

    def even(most: int) -> list[int]:
        count = -(-vectors // most)
        base, larger = divmod(vectors, count)
        return [base + 1] * larger + [base] * (count - larger)

    ways = [even(most) for most in range(1, WIDEST + 1)]
    return min(
        ways, key=lambda way: sum(_column_cycles(each, rows, steps, registers) for each in way)
    )


def _column_cycles(vectors: int, rows: int, steps: int, registers: int, panel: int = 0) -> float:
    """Return the cycles of a column of tiles, each of which reads a panel of the second cache."""
    total = 0.0
    for each in tiles(rows, vectors, registers):
        products, loads = each.rows * vectors / 2, (each.rows + vectors) / 2
        step = max(LATENCY, added(products, loads, LOADS_POWER))
        of_tile = added(steps * step, panel / L2_BYTES_PER_CYCLE, NEAR_POWER)
        of_tile += TILE_CYCLES + SUM_CYCLES * each.rows * vectors
        total += each.count * of_tile
    return total


def cycles(tiling: Tiling, needed: Ranges | None = None) -> float:
    """Return the predicted cycles of a head; `needed` is as for :func:`choose`."""
    sizes = tiling.sizes
    whole, rest = divmod(sizes.keys, tiling.keys)
    columns = sizes.vectors
    total = 0.0
    for block in tiling.queries:
        of_block = PACK_CYCLES * block.vectors * sizes.lanes * sizes.depth
        of_block += RESCALE_CYCLES * block.queries * columns
        steps = [(tiling.keys, float(whole)), (rest, 1.0)]
        if needed:
            counts = [
                last // tiling.keys - first // tiling.keys + 1 if first <= last else 0
                for first, last in needed[block.vectors - 1]
            ]
            steps = [(tiling.keys, sum(counts) / len(counts))]
        for keys, count in steps:
            if keys:
                of_block += count * _step_cycles(tiling, block, keys, columns)
        total += block.count * of_block
    return total


def _step_cycles(tiling: Tiling, block: Queries, keys: int, columns: int) -> float:
    """Return the predicted cycles of a block of queries and one of keys."""
    sizes = tiling.sizes
    scores = 4 * keys * block.vectors * sizes.lanes
    total = block.vectors * keys * (EXP_CYCLES + (FAR_CYCLES if scores > L1_BYTES else 0.0))
    for width in widths(block.vectors, keys, sizes.depth, sizes.registers):
        total += _column_cycles(width, keys, sizes.depth, sizes.registers)
    near = scores + 4 * keys * sizes.columns > L1_BYTES
    for width in widths(columns, block.queries, keys, sizes.registers):
        panel = 4 * keys * width * sizes.lanes if near else 0
        total += _column_cycles(width, block.queries, keys, sizes.registers, panel)
    if tiling.rolling:
        total += RESCALE_CYCLES * block.queries * columns
    return total
