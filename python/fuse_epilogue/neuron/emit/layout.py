"""The layout of a buffer on the chip: the dimension that counts partitions.

(512, 3), read at [c * 128 + p, f]   becomes   (128, 4, 3), at [p, c, f]      tiles
(512, 3), read at [p * 4 + c, f]     becomes   (128, 4, 3), at [p, c, f]      every 4th
(1, 96, 2050), read at [0, p, w]     becomes   (96, 2050),  at [p, w]         whole
(512,), read at [n]                  becomes   (1, 512),    at [0, n]         a row
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..language.grammar import TILE_SIZE
from .linear import Interval, Linear
from .program import Axis, Tensor

PARTITIONS = TILE_SIZE["pmax"]


@dataclass(frozen=True)
class Layout:
    """Layout of a buffer.

    - `dim`: the dimension that counts partitions; None for a buffer in one partition.
    - `step`: indices from one partition to the next; more than 1 where it is "outer".
    - `size`: number of partitions.
    - `rest`: what remains of the dimension: its indices are ``partition * step + r`` with ``r <
      rest = step``, or ``r * size + partition`` with ``r < rest``.
    """

    dim: int | None
    step: int
    size: int
    rest: int

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        """Return the shape on the chip, without free dimensions of size 1."""
        free = [self.rest if d == self.dim else n for d, n in enumerate(tensor.shape)]
        return (self.size, *([n for n in free if n > 1] or [1]))

    def index(
        self, tensor: Tensor, index: tuple[Linear, ...], ranges: Mapping[str, Interval]
    ) -> tuple[Linear, ...] | None:
        """Return an element's index on the chip; None if it is not of the layout's form."""
        partition, free = Linear(), list(index)
        if self.dim is not None:
            split = _split(index[self.dim], self, ranges)
            if split is None:
                return None
            partition, free[self.dim] = split
        sizes = [self.rest if d == self.dim else n for d, n in enumerate(tensor.shape)]
        kept = [each for each, size in zip(free, sizes, strict=True) if size > 1]
        return (partition, *(kept or [Linear()]))

    def __str__(self) -> str:
        """Say it in a message."""
        if self.dim is None:
            return "it in one partition"
        step = f", every {self.step}th" if self.step > 1 else ""
        return f"dimension {self.dim} on {self.size} partitions{step}"


def _split(
    value: Linear, layout: Layout, ranges: Mapping[str, Interval]
) -> tuple[Linear, Linear] | None:
    """Split an index into the partition and the rest."""
    if layout.rest == 1:
        return value, Linear()
    by = layout.step if layout.step > 1 else layout.size
    whole = Linear(
        {k: n // by for k, n in value.terms.items() if n % by == 0}, value.constant // by
    )
    part = Linear({k: n for k, n in value.terms.items() if n % by}, value.constant % by)
    low, high = part.bounds(ranges)
    if low < 0 or high >= by:
        return None
    return (whole, part) if layout.step > 1 else (part, whole)


def layout_of(
    tensor: Tensor, dim: int, index: Linear, axis: Axis, ranges: Mapping[str, Interval]
) -> Layout | None:
    """Return the layout in which a loop counts the partitions of a dimension."""
    size = tensor.shape[dim]
    step = index.of(axis.name)
    rest = index.without(axis.name)
    low, high = rest.bounds(ranges)
    if step > 1:
        if low < 0 or high >= step:
            return None
        return Layout(dim, step, math.ceil(size / step), step)
    if step < 1:
        return None
    # Tiles: the largest number of partitions that divides everything else in the index.
    jump = math.gcd(rest.constant, *rest.terms.values())
    tiles = axis.extent <= jump <= PARTITIONS
    if size <= PARTITIONS and not (tiles and _misplaced(jump, axis.extent)):
        return Layout(dim, 1, size, 1)
    return Layout(dim, 1, jump, math.ceil(size / jump)) if tiles else None


def _misplaced(jump: int, count: int) -> bool:
    """Whether operands of that many partitions must not start at multiples of a partition."""
    return jump % (32 if count <= 32 else 64 if count <= 64 else PARTITIONS) != 0
