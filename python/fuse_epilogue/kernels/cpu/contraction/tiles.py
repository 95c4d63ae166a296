"""Cuts the rows of a contraction into register tiles.

A row is a value of the row axes, the axes of the result along which a tile has several values (a
row of a matrix, a pixel of an image). Several axes count as one, the last one fastest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ....recognize.accesses import Bound
from ....recognize.contraction import Contraction

#: Border tiles, each of which is written out; with more, the operand is padded instead.
MOST_BORDERS = 12


@dataclass(frozen=True)
class Group:
    """Tiles of one size, one after the other.

    - `start`: the first row.
    - `rows`: rows of a tile.
    - `count`: number of tiles.
    - `border`: whether some products are left out, because an operand is 0 there; then `count` is
      1.
    """

    start: int
    rows: int
    count: int
    border: bool = False


def inside(bound: Bound, axis: int, tap: int) -> bool:
    """Return whether a bound holds at a value of its axis and of its tap."""
    index = bound.index.constant
    index += bound.index.factors[bound.axis] * axis if bound.axis >= 0 else 0
    index += bound.index.factors[bound.tap] * tap if bound.tap >= 0 else 0
    return 0 <= index < bound.size


def groups(contraction: Contraction, row_axes: Sequence[int], most: int) -> list[Group] | None:
    """Return the tiles of all rows, as even as possible.

    - `most`: rows of a tile.
    - Returns: None if too many tiles touch a border.
    """
    extents = contraction.extents
    total = math.prod(extents[axis] for axis in row_axes)
    count = -(-total // most)
    base, larger = divmod(total, count)
    bounds = [bound for bound in contraction.a.bounds if bound.axis in row_axes]
    if not bounds:
        both = [Group(0, base + 1, larger), Group(larger * (base + 1), base, count - larger)]
        return [each for each in both if each.count]
    found: list[Group] = []
    start = 0
    for number in range(count):
        rows = base + (number < larger)
        border = any(
            not complete(bounds, extents, row_axes, row) for row in range(start, start + rows)
        )
        last = found[-1] if found else None
        if last and not border and not last.border and last.rows == rows:
            found[-1] = Group(last.start, rows, last.count + 1)
        else:
            found.append(Group(start, rows, 1, border))
        start += rows
    return found if sum(each.border for each in found) <= MOST_BORDERS else None


def complete(
    bounds: Sequence[Bound], extents: Sequence[int], row_axes: Sequence[int], row: int
) -> bool:
    """Return whether all products of a row are inside of the bounds."""
    values = row_values(extents, row_axes, row)
    return all(
        inside(bound, values[bound.axis], tap)
        for bound in bounds
        for tap in range(extents[bound.tap])
    )


def row_values(extents: Sequence[int], row_axes: Sequence[int], row: int) -> dict[int, int]:
    """Return the value of each row axis in a row."""
    values = {}
    for axis in reversed(row_axes):
        row, values[axis] = divmod(row, extents[axis])
    return values


def share_inside(bound: Bound, extents: Sequence[int], values: Sequence[int]) -> float:
    """Return the share of the products that are inside of a bound.

    - `values`: values of the bound's axis.
    """
    taps = extents[bound.tap] if bound.tap >= 0 else 1
    return _count_inside(bound, tuple(values), taps) / (len(values) * taps)


@lru_cache(maxsize=1024)
def _count_inside(bound: Bound, values: tuple[int, ...], taps: int) -> int:
    return sum(inside(bound, value, tap) for value in values for tap in range(taps))
