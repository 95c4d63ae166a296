"""Packed operands: panels in which a kernel reads one vector after the other.

    [outer axes][panel][reduced axes][elements of the panel]

The last panel of a row is narrower, and its width is rounded up to whole vectors with zeros. Where
sums do not begin with 0, these beginnings are after the panels, a row for each value of the
outer axes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....recognize.contraction import Contraction
from ...scheduled import Packing
from .dot_products import WORD
from .plan import Plan


@dataclass(frozen=True)
class Panel:
    """Panels of one width.

    - `start`: the first element along the vector.
    - `width`: columns of a panel, rounded up to vectors.
    - `valid`: elements of a panel that exist.
    """

    start: int
    width: int
    valid: int
    count: int


def panels_of(plan: Plan) -> list[Panel]:
    """Return the panels along the vector's axis."""
    extent = plan.contraction.extents[plan.vector]
    full, rest = divmod(extent, plan.width)
    found = [Panel(0, plan.width, plan.width, full)] if full else []
    if rest:
        rounded = -(-rest // plan.lanes) * plan.lanes
        found.append(Panel(full * plan.width, rounded, rest, 1))
    return found


@dataclass(frozen=True)
class Layout:
    """Places of elements in the packed operand.

    - `outer`: axes outside of the panels.
    - `taps`: reduced axes, in the order of the kernel's loops.
    - `row`: elements along the vector with the zeros.
    - `corrected`: whether beginnings of sums are after the panels.
    """

    contraction: Contraction
    outer: tuple[int, ...]
    taps: tuple[int, ...]
    row: int
    corrected: bool = False

    @staticmethod
    def of(plan: Plan, taps: tuple[int, ...]) -> Layout:
        """Return the layout for a plan."""
        contraction = plan.contraction
        outer = tuple(
            axis
            for axis in range(len(contraction.axes))
            if axis != plan.vector and contraction.b.has(axis)
        )
        row = sum(panel.width * panel.count for panel in panels_of(plan))
        corrected = plan.words is not None and plan.words.shift != 0
        return Layout(contraction, outer, taps, row, corrected)

    @property
    def depth(self) -> int:
        """Number of vectors of a panel that are one vector wide."""
        return math.prod(self.contraction.extents[tap] for tap in self.taps)

    @property
    def size(self) -> int:
        """Number of elements of the panels, with zeros."""
        return self._rows * self.depth * self.row

    @property
    def allocated(self) -> int:
        """Number of all elements."""
        return self.size + (self._rows * self.row if self.corrected else 0)

    @property
    def _rows(self) -> int:
        return math.prod(self.contraction.extents[axis] for axis in self.outer)

    def step(self, env: dict[int, Any]) -> Any:
        """Return the number of the reduced axes' values."""
        total: Any = 0
        for tap in self.taps:
            total = total * self.contraction.extents[tap] + env[tap]
        return total

    def offset(self, env: dict[int, Any], panel: Panel, number: Any) -> Any:
        """Return where the vectors of a panel begin, for some values of the axes."""
        total = self._row(env) * (self.depth * self.row) + panel.start * self.depth
        return total + number * (panel.width * self.depth) + self.step(env) * panel.width

    def correction(self, env: dict[int, Any], panel: Panel, number: Any) -> Any:
        """Return where the beginnings of a panel's sums are; None if they begin with 0."""
        if not self.corrected:
            return None
        return self._row(env) * self.row + number * panel.width + (self.size + panel.start)

    def _row(self, env: dict[int, Any]) -> Any:
        total: Any = 0
        for axis in self.outer:
            total = total * self.contraction.extents[axis] + env[axis]
        return total


@dataclass(frozen=True)
class PanelPacker:
    """Packs a constant operand when the module is compiled.

    - `start`: element of the operand where the packed part begins.
    - `extents`, `factors`: for each axis of the packed operand, the vector's last: how many values,
      and elements of the operand from one value to the next.
    - `depth`: as :attr:`Layout.depth`.
    - `panels`: each a :class:`Panel`.
    - `axis`: axis of which several neighbours are one word of the packed array; -1 if there is
      none.
    - `count`: values of a word.
    - `shift`: what is added to the other operand: sums begin with the products of its opposite.
    """

    start: int
    extents: tuple[int, ...]
    factors: tuple[int, ...]
    depth: int
    panels: tuple[tuple[int, int, int, int], ...]
    axis: int = -1
    count: int = 1
    shift: int = 0

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """Return the packed array."""
        flat = np.ascontiguousarray(array).reshape(-1)[self.start :]
        strides = [factor * flat.itemsize for factor in self.factors]
        view = np.lib.stride_tricks.as_strided(flat, self.extents, strides)
        words = view if self.axis < 0 else in_words_of(view, self.axis, self.count)
        rows = words.reshape(-1, self.depth, self.extents[-1])
        parts = []
        for panel in (Panel(*each) for each in self.panels):
            for number in range(panel.count):
                start = panel.start + number * panel.width
                part = rows[:, :, start : start + panel.valid]
                parts.append(_wider(part, panel.width).reshape(len(rows), -1))
        packed = np.concatenate(parts, axis=1)
        if not self.shift:
            return packed.reshape(-1)
        sums = view.reshape(len(rows), -1, self.extents[-1]).sum(axis=1, dtype="int32")
        width = sum(Panel(*each).width * Panel(*each).count for each in self.panels)
        begins = _wider(-self.shift * sums, width)
        return np.concatenate([packed.reshape(-1), begins.reshape(-1)])


def _wider(array: np.ndarray, width: int) -> np.ndarray:
    """Return an array with zeros after its last axis."""
    missing = width - array.shape[-1]
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)]) if missing else array


def packing_of(plan: Plan, layout: Layout) -> Packing:
    """Return how a constant operand is packed when the module is compiled."""
    contraction, words = plan.contraction, plan.words
    (access,) = contraction.b.accesses.values()
    order = (*layout.outer, *layout.taps, plan.vector)
    whole = contraction if words is None else words.original
    of_words = () if words is None else (order.index(words.axis), words.count, words.shift)
    levels = [(whole.extents[axis], access.factors[axis]) for axis in order]
    if words is None:
        levels = [*_merged(levels[:-1]), levels[-1]]
    extents, factors = zip(*levels, strict=True)
    pack = PanelPacker(
        access.constant,
        extents,
        factors,
        layout.depth,
        tuple((panel.start, panel.width, panel.valid, panel.count) for panel in panels_of(plan)),
        *of_words,
    )
    return Packing((layout.allocated,), packed_type(plan), pack)


def _merged(levels: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return extents and factors with one in place of those that go on where the next one ends.

    Kernels for several rows and for one then say in the same way how they are packed.

    >>> _merged([(3, 192), (192, 1), (1, 7), (4, 576)])
    [(576, 1), (4, 576)]
    """
    found: list[tuple[int, int]] = []
    for extent, factor in levels:
        if extent == 1:
            continue
        if found and found[-1][1] == extent * factor:
            found[-1] = found[-1][0] * extent, factor
        else:
            found.append((extent, factor))
    return found


def packed_type(plan: Plan) -> str:
    """Return the type of a packed operand: words are integers of 32 bits."""
    if plan.words is not None:
        return f"int{WORD}"
    return str(plan.contraction.b.only_load().source.dtype)


def in_words_of(array: np.ndarray, axis: int, count: int) -> np.ndarray:
    """Return an array of 32 bits with neighbours along an axis in each element.

    >>> in_words_of(np.array([[1, 2], [3, -1], [5, 6]]), 0, 2).tolist()
    [[196609, -65534], [5, 6]]
    """
    ends = [(0, 0)] * array.ndim
    ends[axis] = (0, -array.shape[axis] % count)
    array = np.pad(array.astype(f"<i{WORD // 8 // count}"), ends)
    shape = (*array.shape[:axis], array.shape[axis] // count, count, *array.shape[axis + 1 :])
    words = np.moveaxis(array.reshape(shape), axis + 1, -1)
    return np.ascontiguousarray(words).view("<i4")[..., 0]
