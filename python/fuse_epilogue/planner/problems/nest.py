"""The bytes that a loop nest moves between two levels of memory, for all points at once.

The model is that of a cache that keeps what was used last, in sets of a few lines. The innermost
loops whose data fits into the cache together, and the loop right outside of them, load each line
once: by the time that loop comes back to a line, no more has been touched than fits. Every trip of
the loops further outside loads all of that again. So the traffic of a tensor into a cache is

    (lines that the loop right outside of those that fit touches)  x  (trips of the loops outside)

and nothing where everything fits, since the function is called again and again.

Rows of a matrix whose distance is a multiple of a large power of two fall into a few sets of the
cache: they fit only as far as those hold them, and count for as much of the cache as they spoil.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..machines.cpu import Level

#: A number for each point, or one for all.
Array = Any


@dataclass(frozen=True)
class Access:
    """The memory that one load or store of the innermost loop's body touches.

    - `dims`: the index of each dimension as a sum of loops times factors; the last one runs along
      memory.
    - `bytes`: bytes of an element.
    - `write`: whether it is stored: its lines are loaded, and written back later.
    - `row`: bytes from a row to the next one; 0 where that does not matter.
    - `turns`: whether several instructions take turns on its lines, so that none of them goes from
      line to line: the first cache then loads no line ahead.
    - `behind`: the loop after which it happens, for everything inside the loop, if it is not part
      of the innermost body.
    """

    tensor: str
    dims: tuple[tuple[tuple[str, Array], ...], ...]
    bytes: Array
    write: bool = False
    row: Array = 0
    turns: bool = False
    behind: str = ""


@dataclass(frozen=True)
class Nest:
    """Loops around accesses.

    - `loops`: name and number of trips, outermost first.

    A matrix of 64 x 1024 float32 is read row by row, twice; a cache of 32 KiB keeps no row for the
    second time, one of 1 MiB keeps them all:

    >>> x = Access("x", ((("i", 1),), (("j", 1),)), 4)
    >>> nest = Nest((("again", 2), ("i", 64), ("j", 1024)), (x,))
    >>> small, large = (Level("L", size, 64, 0, False, 1e11, 1e11) for size in (32768, 1 << 20))
    >>> int(nest.traffic(small)), int(nest.traffic(large))
    (524288, 0)
    """

    loops: tuple[tuple[str, Array], ...]
    accesses: tuple[Access, ...]

    def lines(self, access: Access, depth: int, line: int) -> tuple[Array, Array]:
        """Return rows that an access touches in the loops from a depth on, and lines of each."""
        extents = dict(self.loops[depth:])
        rows: Array = 1.0
        lines: Array = 1.0
        for place, terms in enumerate(access.dims):
            span: Array = 1.0
            touched: Array = 1.0
            for name, factor in terms:
                extent = np.asarray(extents.get(name, 1), float)
                span = span + factor * (extent - 1.0)
                touched = touched * extent
            if place == len(access.dims) - 1:
                lines = np.ceil(span * access.bytes / line)
            else:
                # Of rows that a factor skips, only those that are touched count.
                rows = rows * np.minimum(span, touched)
        # Short rows share lines.
        shared = (np.asarray(access.row) > 0) & (np.asarray(access.row) < line)
        return np.where(shared, np.ceil(rows * access.row / line), rows), lines

    def footprint(self, depth: int, level: Level) -> Array:
        """Return the bytes of a cache that all lines take which the loops from a depth on touch."""
        total: Array = 0.0
        for access in self.accesses:
            if depth > self._last(access):
                continue
            rows, lines = self.lines(access, depth, level.line)
            total = total + rows * lines * _spoiled(access.row, rows, lines, level)
        return level.line * total

    def trips(self, depth: int) -> Array:
        """Return how often the loops from a depth on are started."""
        count: Array = 1.0
        for _, extent in self.loops[:depth]:
            count = count * np.asarray(extent, float)
        return count

    def traffic(self, level: Level) -> Array:
        """Return the bytes that go into a cache, and back out of it."""
        return level.line * sum(
            (2.0 if access.write else 1.0) * lines
            for access, lines in zip(self.accesses, self.loads(level), strict=True)
        )

    def loads(self, level: Level, crowded: Level | None = None) -> list[Array]:
        """Return for each access how many lines go into a cache.

        With another level as `crowded`, lines count only as far as the rows that are touched
        together leave sets of that one unused: 0 where all lines have room in it.
        """
        loaded: list[Array] = [0.0 for _ in self.accesses]
        decided: Array = np.asarray(self.footprint(0, level) <= level.bytes)
        for depth in range(1, len(self.loops) + 1):
            fits = self.footprint(depth, level) <= level.bytes
            # Where not even the innermost trip fits, each trip loads all of its lines.
            here = ~decided & (fits | (depth == len(self.loops)))
            if np.any(here):
                for place, access in enumerate(self.accesses):
                    outside = min(depth - 1, self._last(access))
                    rows, lines = self.lines(access, outside, level.line)
                    count = rows * lines * self.trips(outside)
                    if crowded is not None:
                        count = count * self._unused(access, outside, crowded)
                    loaded[place] = loaded[place] + np.where(here, count, 0.0)
            decided = decided | here
        return loaded

    def _unused(self, access: Access, depth: int, level: Level) -> Array:
        """Return which part of a cache the rows touched from a depth on leave unused."""
        rows, lines = self.lines(access, depth, level.line)
        return 1.0 - 1.0 / _spoiled(access.row, rows, lines, level)

    def _last(self, access: Access) -> int:
        """Return the depth of the innermost loop whose body touches what an access does."""
        names = [name for name, _ in self.loops]
        return names.index(access.behind) if access.behind else len(names)


def _spoiled(row: Array, rows: Array, lines: Array, level: Level) -> Array:
    """Return how many lines of a cache each line takes, of rows that fall into a few sets."""
    if not level.ways:
        return 1.0
    way = level.bytes // level.ways
    places = way // np.gcd(np.asarray(row, np.int64), way)  # one, where the distance is 0
    sets = way // level.line
    reached = np.minimum(sets, places * np.maximum(lines, 1.0))
    several = (rows > places) & (np.asarray(row) > 0)
    return np.where(several, sets / reached, 1.0)
