"""Packed operands: panels in which a kernel reads one vector after the other.

    [outer axes][panel][reduced axes][elements of the panel]

The last panel of a row is narrower, and its width is rounded up to whole vectors with zeros.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from ....recognize.contraction import Contraction
from ...scheduled import Packing
from ..loops import FlatViews, loop, sequence
from .pairs import PAIR
from .plan import Plan
from .vectors import at

#: Elements that the kernel itself packs, from which it does that on all threads.
PARALLEL_FROM = 1 << 16


@dataclass(frozen=True)
class Panel:
    """Panels of one width.

    Attributes
    ----------
    start : int
        The first element along the vector.
    width : int
        Columns of a panel, rounded up to vectors.
    valid : int
        Elements of a panel that exist.
    count : int
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

    Attributes
    ----------
    outer : tuple[int, ...]
        Axes outside of the panels.
    taps : tuple[int, ...]
        Reduced axes, in the order of the kernel's loops.
    row : int
        Elements along the vector with the zeros.
    """

    contraction: Contraction
    outer: tuple[int, ...]
    taps: tuple[int, ...]
    row: int

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
        return Layout(contraction, outer, taps, row)

    @property
    def depth(self) -> int:
        """Number of vectors of a panel that are one vector wide."""
        return math.prod(self.contraction.extents[tap] for tap in self.taps)

    @property
    def size(self) -> int:
        """Number of elements, with zeros."""
        outer = math.prod(self.contraction.extents[axis] for axis in self.outer)
        return outer * self.depth * self.row

    def step(self, env: dict[int, Any]) -> Any:
        """Return the number of the reduced axes' values."""
        total: Any = 0
        for tap in self.taps:
            total = total * self.contraction.extents[tap] + env[tap]
        return total

    def offset(self, env: dict[int, Any], panel: Panel, number: Any) -> Any:
        """Return where the vectors of a panel begin, for some values of the axes."""
        total: Any = 0
        for axis in self.outer:
            total = total * self.contraction.extents[axis] + env[axis]
        total = total * (self.depth * self.row) + panel.start * self.depth
        return total + number * (panel.width * self.depth) + self.step(env) * panel.width


@dataclass(frozen=True)
class PanelPacker:
    """Packs a constant operand when the module is compiled.

    Attributes
    ----------
    start : int
        Element of the operand where the packed part begins.
    extents, factors : tuple[int, ...]
        For each axis of the packed operand, the vector's last: how many values, and elements of the
        operand from one value to the next.
    depth : int
        As :attr:`Layout.depth`.
    panels : tuple[tuple[int, int, int, int], ...]
        Each a :class:`Panel`.
    paired : int
        Axis of which two neighbours are one element of the packed array; -1 if there is none.
    """

    start: int
    extents: tuple[int, ...]
    factors: tuple[int, ...]
    depth: int
    panels: tuple[tuple[int, int, int, int], ...]
    paired: int = -1

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """Return the packed array."""
        flat = np.ascontiguousarray(array).reshape(-1)[self.start :]
        strides = [factor * flat.itemsize for factor in self.factors]
        view = np.lib.stride_tricks.as_strided(flat, self.extents, strides)
        if self.paired >= 0:
            view = in_pairs_of(view, self.paired)
        rows = view.reshape(-1, self.depth, self.extents[-1])
        parts = []
        for panel in (Panel(*each) for each in self.panels):
            for number in range(panel.count):
                start = panel.start + number * panel.width
                part = rows[:, :, start : start + panel.valid]
                missing = panel.width - panel.valid
                if missing:
                    part = np.pad(part, ((0, 0), (0, 0), (0, missing)))
                parts.append(part.reshape(len(rows), -1))
        return np.concatenate(parts, axis=1).reshape(-1)


def packing_of(plan: Plan, layout: Layout) -> Packing:
    """Return how a constant operand is packed when the module is compiled."""
    contraction = plan.contraction
    (access,) = contraction.b.accesses.values()
    order = (*layout.outer, *layout.taps, plan.vector)
    whole = contraction if plan.pairs is None else plan.pairs.original
    pack = PanelPacker(
        access.constant,
        tuple(whole.extents[axis] for axis in order),
        tuple(access.factors[axis] for axis in order),
        layout.depth,
        tuple((panel.start, panel.width, panel.valid, panel.count) for panel in panels_of(plan)),
        -1 if plan.pairs is None else order.index(plan.pairs.axis),
    )
    return Packing((layout.size,), packed_type(plan), pack)


def packed_type(plan: Plan) -> str:
    """Return the type of a packed operand: two values of 16 bits are one of 32."""
    return str(plan.contraction.b.only_load().source.dtype) if plan.pairs is None else "int32"


def in_pairs_of(array: np.ndarray, axis: int) -> np.ndarray:
    """Return an array of 32 bits with two neighbours along an axis in each element.

    Example
    -------
    >>> in_pairs_of(np.array([[1, 2], [3, -1], [5, 6]]), 0).tolist()
    [[196609, -65534], [5, 6]]
    """
    ends = [(0, 0)] * array.ndim
    ends[axis] = (0, array.shape[axis] % 2)
    array = np.pad(array.astype("<i2"), ends)
    shape = (*array.shape[:axis], array.shape[axis] // 2, 2, *array.shape[axis + 1 :])
    pairs = np.moveaxis(array.reshape(shape), axis + 1, -1)
    return np.ascontiguousarray(pairs).view("<i4")[..., 0]


def packing_loops(plan: Plan, layout: Layout, views: FlatViews, packed: Any, threads: int) -> Any:
    """Return loops that pack the operand."""
    contraction = plan.contraction
    load = contraction.b.only_load()
    (access,) = contraction.b.accesses.values()
    source = views.of(load.source)
    dtype = packed_type(plan)
    pairs = plan.pairs
    parallel = threads > 1 and layout.size >= PARALLEL_FROM
    todo: list[tuple[int | None, int, str]] = [
        (axis, contraction.extents[axis], contraction_name(contraction, axis))
        for axis in layout.outer
    ]

    def element(env: dict[int, Any], panel: Panel, number: Any, lane: Any) -> Any:
        env = {**env, plan.vector: number * panel.width + (panel.start + lane)}
        if pairs is None:
            return tirx.BufferLoad(source, [at(access, env)])
        first = env[pairs.axis] * PAIR
        both = [
            tirx.BufferLoad(source, [at(access, {**env, pairs.axis: first + k})]).astype(dtype)
            for k in range(PAIR)
            # The last pair of an odd number is made for a number, not for a variable.
            if not isinstance(first, int) or first + k < pairs.extent
        ]
        low = both[0] & tirx.const(0xFFFF, dtype)
        return low | (both[1] << tirx.const(16, dtype)) if len(both) == PAIR else low

    def vectors(env: dict[int, Any], panel: Panel, number: Any) -> Any:
        base = layout.offset(env, panel, number)
        statements = []
        whole = panel.valid // plan.lanes * plan.lanes
        if whole:
            statements.append(
                loop(
                    "lane",
                    0,
                    whole,
                    lambda lane: tirx.BufferStore(
                        packed, element(env, panel, number, lane), [base + lane]
                    ),
                    tirx.ForKind.VECTORIZED,
                )
            )
        for lane in range(whole, panel.width):
            value = (
                element(env, panel, number, lane) if lane < panel.valid else tirx.const(0, dtype)
            )
            statements.append(tirx.BufferStore(packed, value, [base + lane]))
        return sequence(statements)

    def inner(env: dict[int, Any], panel: Panel, number: Any, taps: tuple[int, ...]) -> Any:
        if not taps:
            return vectors(env, panel, number)

        def of(tap: Any) -> Any:
            return inner({**env, taps[0]: tap}, panel, number, taps[1:])

        extent = contraction.extents[taps[0]]
        if pairs is not None and taps[0] == pairs.axis and pairs.extent % PAIR:
            rest = of(extent - 1)
            return sequence([loop("p", 0, extent - 1, of), rest] if extent > 1 else [rest])
        return loop("p", 0, extent, of)

    def outer(env: dict[int, Any], left: list[Any], panel: Panel) -> Any:
        kind = tirx.ForKind.PARALLEL if parallel and len(left) == len(todo) else None
        kind = kind or tirx.ForKind.SERIAL
        if not left:
            kind = tirx.ForKind.PARALLEL if parallel and not todo else tirx.ForKind.SERIAL
            return loop(
                "panel",
                0,
                panel.count,
                lambda number: inner(env, panel, number, layout.taps),
                kind,
            )
        axis, extent, name = left[0]
        return loop(name, 0, extent, lambda var: outer({**env, axis: var}, left[1:], panel), kind)

    return sequence([outer({}, todo, panel) for panel in panels_of(plan)])


def contraction_name(contraction: Contraction, axis: int) -> str:
    """Return the name of an axis."""
    return str((*contraction.axes, *contraction.reduced)[axis].var.name)
