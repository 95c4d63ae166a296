"""The loops of a group of stages: over its rows, in parallel, and in each over its passes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.ir import Var

from ....recognize.row_program import Group
from ....recognize.row_stages import elements_of
from ....recognize.stages import Axis
from ..elementwise import PARALLEL_FROM
from ..loops import FlatViews, index, loop, sequence
from .merging import collapsed, has_divisions, may_be_vector
from .passes import Lanes, Pass, PassMaker
from .vectors import PassWriter, Values, element_bits

#: Vectors of rows that are computed together, where lanes are rows.
VECTORS_OF_ROWS = 4


class GroupKernel:
    """Writes the loops of a group.

    Parameters
    ----------
    group : Group
        With a reduction.
    stored : frozenset[int]
        Buffers that are stored whole.
    views : FlatViews
    bits : int
        Lanes of a vector.
    threads : int
    """

    def __init__(
        self, group: Group, stored: frozenset[int], views: FlatViews, bits: int, threads: int
    ) -> None:
        self.group, self.stored, self.views, self.bits = group, stored, views, bits
        self.axes = {
            key: Axis(Var(f"outer_{place}", "int64"), size)
            for place, (key, size) in enumerate(group.outer.items())
        }
        work = sum(elements_of(each.stage) for each in group.stages)
        self.threads = threads if work >= PARALLEL_FROM else 1
        self.keys: dict[int, int] = {}
        self.keys = self.keys_of_lanes()

    @property
    def outer(self) -> dict[int, Axis]:
        """The outer axes but those of the lanes."""
        return {key: axis for key, axis in self.axes.items() if key not in self.keys}

    def keys_of_lanes(self) -> dict[int, int]:
        """Return the axes that lanes are along: neighbours that every buffer has as one."""
        outer = self.group.outer
        if self.group.lane is None:
            return {}
        order = list(outer)
        first = order.index(self.group.lane)
        best = {self.group.lane: outer[self.group.lane]}
        while first > 0:
            first -= 1
            self.keys = {order[first]: outer[order[first]], **best}
            maker = self.passes(Lanes(self.keys, 1))
            if any(has_divisions(one) for one in maker.passes):
                break
            best = self.keys
        return best

    def body(self) -> Any:
        """Return all loops."""
        if not self.keys:
            return self.nest(list(self.outer.values()), None, None)
        extent = math.prod(self.keys.values())
        maker = self.passes(Lanes(self.keys, 1))
        lanes = max(1, self.bits // max(map(element_bits, maker.passes)))
        lanes = _power_of_two(min(lanes, extent))
        width = lanes * min(VECTORS_OF_ROWS, extent // lanes)
        blocks, rest = divmod(extent, width)
        nests = [self.rows(width, blocks, 0)]
        if rest:
            # Its first rows are computed twice rather than one by one.
            width = -(-rest // lanes) * lanes
            nests.append(self.rows(width, 1, extent - width))
        return sequence(nests)

    def rows(self, width: int, blocks: int, begin: int) -> Any:
        """Return the loops over blocks of rows, all of a width."""
        axis = Axis(Var("block", "int64"), blocks)
        return self.nest([*self.outer.values(), axis], Lanes(self.keys, width), (axis, begin))

    def passes(self, lanes: Lanes | None) -> PassMaker:
        """Return the passes over a row or a block of rows."""
        maker = PassMaker(self.group, self.outer, lanes, self.stored, self.views)
        maker.run()
        return maker

    def nest(
        self, axes: Sequence[Axis], lanes: Lanes | None, block: tuple[Axis, int] | None
    ) -> Any:
        """Return the loops over some axes, and in them the passes."""
        maker = self.passes(lanes)
        known = [*self.outer.values()]
        if lanes is not None:
            known += [Axis(lanes.at, lanes.extent), Axis(lanes.place, lanes.width)]
        writers = [self.writer(collapsed(one), lanes, known) for one in maker.passes]
        rows = [tirx.AllocBuffer(buffer) for buffer, _ in maker.rows.values()]

        def row(values: Values) -> Any:
            if lanes is not None and block is not None:
                begin = values[block[0].var] * index(lanes.width) + index(block[1])
                values = {**values, lanes.at: begin}
            return sequence([writer.body(values) for writer in writers])

        return _rows(axes, self.threads, rows, row)

    def writer(self, one: Pass, lanes: Lanes | None, known: Sequence[Axis]) -> PassWriter:
        """Return what writes the loops of a pass."""
        count = _power_of_two(max(1, self.bits // element_bits(one)))
        return PassWriter(one, count if may_be_vector(one, known) else 1, lanes)


def _power_of_two(most: int) -> int:
    return 1 << (most.bit_length() - 1)


def _rows(axes: Sequence[Axis], threads: int, allocations: Sequence[Any], body: Any) -> Any:
    """Return loops over axes, the first of which run in parallel as one, and allocations there."""

    def visit(rest: Sequence[Axis], values: Values) -> Any:
        if not rest:
            return body(values)
        first, *others = rest
        return loop(
            str(first.var.name), 0, first.extent, lambda i: visit(others, {**values, first.var: i})
        )

    if threads == 1 or math.prod(axis.extent for axis in axes) == 1:
        return sequence([*allocations, visit(axes, {})])
    count, together = 1, 0
    while together < len(axes) and count < 4 * threads:
        count *= axes[together].extent
        together += 1

    def parallel(number: Any) -> Any:
        values: Values = {}
        left = number
        for place in range(together - 1, -1, -1):
            extent = index(axes[place].extent)
            values[axes[place].var] = tirx.floormod(left, extent) if place else left
            left = tirx.floordiv(left, extent)
        return sequence([*allocations, visit(axes[together:], values)])

    return loop("parallel", 0, count, parallel, tirx.ForKind.PARALLEL)
