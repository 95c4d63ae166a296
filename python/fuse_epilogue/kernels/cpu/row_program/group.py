"""The loops of a group of stages: over its rows, in parallel, and in each over its passes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Var

from ....recognize.row_program import Group
from ....recognize.stages import Axis
from ....tir.affine import affine_of
from ....tir.types import bytes_of
from ....tir.walk import handle, loads, substitute
from ..loops import FlatViews, index, loop, sequence
from ..windows import guards, segments
from .accumulators import Values
from .blocks import LEAST_ROW, BlockedRow, is_softmax
from .merging import collapsed, has_divisions, may_be_vector
from .passes import Lanes, Pass, PassMaker
from .vectors import PassWriter, element_bits, is_dear

#: Vectors of rows that are computed together, where lanes are rows.
VECTORS_OF_ROWS = 4
#: Elements of a short row: 1,000 sums of 7 take 0.58 us in vectors along the rows, and 0.35 if LLVM
#: makes the vectors.
SHORT = 8
#: Bytes of a row, at least and at most, whose next one is fetched meanwhile. Shorter ones come in
#: time without it; longer ones would displace the row that is computed from the first cache. A
#: softmax of 128 rows of 4,096 takes 0.84 of the time on AMD's Zen 5, of 64 rows of 6,000 0.93.
FETCHED = (1 << 13, 3 << 13)


@dataclass(frozen=True)
class _Part:
    """Blocks of rows of one size, or one row.

    - `buffers`: buffers that they keep for a block.
    """

    lanes: Lanes | None
    blocks: Axis
    writers: list[PassWriter | BlockedRow]
    buffers: list[Any]

    def body(self, values: Values) -> Any:
        """Return the statements of its blocks, or of one of them if that is given."""

        def block(number: Any) -> Any:
            own = values
            if self.lanes is not None:
                begin = number * index(self.lanes.width) + index(self.lanes.begin)
                own = {**values, self.lanes.at: begin}
            return sequence([writer.body(own) for writer in self.writers])

        if self.blocks.var in values:
            return block(values[self.blocks.var])
        return loop("block", 0, self.blocks.extent, block)


class GroupKernel:
    """Writes the loops of a group.

    - `group`: with a reduction.
    - `stored`: buffers that are stored whole.
    - `bits`: lanes of a vector.
    - `threads`: number of threads that its loops are made for.
    - `text` (str): description of the loops; empty before they are made.
    """

    text = ""

    def __init__(
        self, group: Group, stored: frozenset[int], views: FlatViews, bits: int, threads: int
    ) -> None:
        self.group, self.stored, self.views, self.bits = group, stored, views, bits
        self.axes = {
            key: Axis(Var(f"outer_{place}", "int64"), size)
            for place, (key, size) in enumerate(group.outer.items())
        }
        self.threads = threads
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
            maker = self.passes(self.all_rows())
            if any(has_divisions(one) for one in maker.passes):
                break
            best = self.keys
        return best

    def all_rows(self) -> Lanes:
        """Return the axes of the lanes with all of their rows, one by one."""
        return Lanes(self.keys, 1, 0, math.prod(self.keys.values()))

    def body(self) -> Any:
        """Return all loops."""
        outer = list(self.outer.values())
        if not self.keys:
            part = self.part(None)
            lanes = max(writer.lanes for writer in part.writers)
            how = f"vectors of {lanes}" if lanes > 1 else "one element after the other"
            blocks = isinstance(part.writers[0], BlockedRow)
            text = "in blocks" if blocks else _passes(len(part.writers))
            self.text = f"{text} over each row, {how}"
            return self.nest(outer, [part])
        every = self.all_rows()
        passes = self.passes(every).passes
        most = max(1, self.bits // max(map(element_bits, passes)))
        self.text = f"{_passes(len(passes))}, {most} rows in a vector"
        conditions, inner = [], []
        for one in passes:
            conditions += guards([v for work in one.works for v in work.values], every.at)
            inner += [*one.kept, *one.domain]
        parts = []
        for begin, end in segments(conditions, [*outer, *inner], every.at, every.end):
            parts += self.parts(begin, end, most)
        # All parts of a row after each other, unless threads need more of them.
        if self.threads == 1 or math.prod(axis.extent for axis in outer) >= self.threads:
            return self.nest(outer, parts)
        return sequence([self.nest([*outer, part.blocks], [part]) for part in parts])

    def parts(self, begin: int, end: int, most: int) -> list[_Part]:
        """Return the blocks of rows from one to another, of up to as many vectors as there may be.

        - `most`: number of elements of a vector.
        """
        count = end - begin
        lanes = _power_of_two(min(most, count))
        if count < most:
            return [self.part(Lanes(self.keys, count, begin, end))]
        width = lanes * min(VECTORS_OF_ROWS, count // lanes)
        blocks, rest = divmod(count, width)
        parts = [self.part(Lanes(self.keys, width, begin, end), blocks)]
        if rest:
            # Its first rows are computed twice rather than one by one.
            width = -(-rest // lanes) * lanes
            parts.append(self.part(Lanes(self.keys, width, end - width, end)))
        return parts

    def part(self, lanes: Lanes | None, blocks: int = 1) -> _Part:
        """Return what computes some blocks of rows, or one row."""
        maker = self.passes(lanes)
        known = [*self.outer.values()]
        if lanes is not None:
            known += [Axis(lanes.at, lanes.end), Axis(lanes.place, lanes.width)]
        passes = [collapsed(one) for one in maker.passes]
        scalar = lanes is None and all(map(_is_short, passes))
        written = [self.writer(one, lanes, known, scalar) for one in passes]
        writers: list[PassWriter | BlockedRow] = [*written]
        if lanes is None and self.is_in_blocks(passes, maker, written):
            row = BlockedRow(passes, maker.exponentials, [each.lanes for each in written])
            writers = [row]
        elif lanes is None:
            self.fetch_ahead(written)
        buffers = [buffer for buffer, _ in maker.rows.values()]
        return _Part(lanes, Axis(Var("block", "int64"), blocks), writers, buffers)

    def is_in_blocks(
        self, passes: Sequence[Pass], maker: PassMaker, writers: Sequence[PassWriter]
    ) -> bool:
        """Return whether a row is a softmax that is computed in blocks."""
        long = writers[0].inner is not None and writers[0].extent >= LEAST_ROW
        vectors = all(each.lanes > 1 for each in writers[:2])
        return long and vectors and is_softmax(passes, maker.exponentials)

    def fetch_ahead(self, writers: Sequence[PassWriter]) -> None:
        """Let a pass that computes a function fetch what the first pass reads of the next row.

        The first pass would wait for it: what it computes takes less than the loads.
        """
        first, *others = writers
        dear = next((each for each in others if is_dear(each.one)), None)
        rows = [axis for axis in self.outer.values() if axis.extent > 1]
        if dear is None or not rows or first.serial or first.inner is None:
            return
        if dear.serial or dear.inner is None or dear.extent != first.extent:
            return
        row = rows[-1]
        following = tirx.min(row.var + index(1), index(row.extent - 1))
        found = [load for work in first.one.works for v in work.values for load in loads(v)]
        for load in {handle(each.source): each for each in found}.values():
            linear = affine_of(load.indices[0], [first.inner.var, row.var])
            size = first.inner.extent * bytes_of(load.source.dtype)
            if linear is None or linear.factors != (1, first.inner.extent):
                continue
            if FETCHED[0] <= size <= FETCHED[1]:
                at = {first.inner.var: dear.inner.var, row.var: following}
                dear.ahead.append(substitute(load, at))

    def passes(self, lanes: Lanes | None) -> PassMaker:
        """Return the passes over a row or a block of rows."""
        maker = PassMaker(self.group, self.outer, lanes, self.stored, self.views)
        maker.run()
        return maker

    def nest(self, axes: Sequence[Axis], parts: Sequence[_Part]) -> Any:
        """Return the loops over some axes, and in them the parts of a row."""

        def row(values: Values) -> Any:
            return sequence([part.body(values) for part in parts])

        rows = [tirx.AllocBuffer(buffer) for part in parts for buffer in part.buffers]
        return _rows(axes, self.threads, rows, row)

    def writer(
        self, one: Pass, lanes: Lanes | None, known: Sequence[Axis], scalar: bool
    ) -> PassWriter:
        """Return what writes the loops of a pass."""
        count = _power_of_two(max(1, self.bits // element_bits(one)))
        vectors = not scalar and may_be_vector(one, known)
        return PassWriter(one, count if vectors else 1, lanes)


def _is_short(one: Pass) -> bool:
    """Return whether a row is so short that LLVM's vectors of several rows are better.

    It writes out the loop over the row, and shuffles neighbours of different rows.
    """
    return bool(math.prod(axis.extent for axis in one.domain) <= SHORT)


def _passes(count: int) -> str:
    return "1 pass" if count == 1 else f"{count} passes"


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
