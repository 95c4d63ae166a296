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

from ....recognize.accesses import Linear
from ....recognize.contraction import Contraction
from ...scheduled import Packing
from ..loops import FlatViews, index, loop, sequence
from .plan import Plan

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
    """Where the elements of the packed operand are.

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


def at(linear: Linear, env: dict[int, Any]) -> Any:
    """Return an offset for values of the axes, numbers or expressions."""
    constant, total = linear.constant, None
    for place, factor in enumerate(linear.factors):
        if factor == 0:
            continue
        value = env[place]
        if isinstance(value, int):
            constant += factor * value
        else:
            term = value * index(factor) if factor != 1 else value
            total = term if total is None else total + term
    if total is None:
        return index(constant)
    return total + index(constant) if constant else total


def packing_of(plan: Plan, layout: Layout) -> Packing:
    """Return how a constant operand is packed when the module is compiled."""
    contraction = plan.contraction
    load = contraction.b.only_load()
    (access,) = contraction.b.accesses.values()
    order = (*layout.outer, *layout.taps, plan.vector)
    extents = [contraction.extents[axis] for axis in order]
    factors = [access.factors[axis] for axis in order]
    panels, depth = panels_of(plan), layout.depth

    def pack(array: np.ndarray) -> np.ndarray:
        flat = np.ascontiguousarray(array).reshape(-1)[access.constant :]
        strides = [factor * flat.itemsize for factor in factors]
        view = np.lib.stride_tricks.as_strided(flat, extents, strides)
        rows = view.reshape(-1, depth, extents[-1])
        parts = []
        for panel in panels:
            for number in range(panel.count):
                start = panel.start + number * panel.width
                part = rows[:, :, start : start + panel.valid]
                missing = panel.width - panel.valid
                part = np.pad(part, ((0, 0), (0, 0), (0, missing)))
                parts.append(part.reshape(len(rows), -1))
        return np.concatenate(parts, axis=1).reshape(-1)

    return Packing((layout.size,), str(load.source.dtype), pack)


def packing_loops(plan: Plan, layout: Layout, views: FlatViews, packed: Any, threads: int) -> Any:
    """Return loops that pack the operand."""
    contraction = plan.contraction
    load = contraction.b.only_load()
    (access,) = contraction.b.accesses.values()
    source = views.of(load.source)
    dtype = str(load.source.dtype)
    parallel = threads > 1 and layout.size >= PARALLEL_FROM
    todo: list[tuple[int | None, int, str]] = [
        (axis, contraction.extents[axis], contraction_name(contraction, axis))
        for axis in layout.outer
    ]

    def element(env: dict[int, Any], panel: Panel, number: Any, lane: Any) -> Any:
        env = {**env, plan.vector: number * panel.width + (panel.start + lane)}
        return tirx.BufferLoad(source, [at(access, env)])

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
        return loop(
            "p",
            0,
            contraction.extents[taps[0]],
            lambda tap: inner({**env, taps[0]: tap}, panel, number, taps[1:]),
        )

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
