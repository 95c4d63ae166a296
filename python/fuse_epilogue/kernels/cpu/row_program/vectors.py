"""The loops of one pass: vectors of elements, accumulators, and what is left of a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.ir import Call, prim

from ....recognize.stages import Axis
from ....tir.types import bits_of
from ....tir.walk import handle, loads, parts_of, substitute
from ..loops import fetch, index, loop, sequence
from ..windows import has_stride, strided_vector
from .accumulators import Accumulators, Values, in_lanes, pieces
from .passes import Lanes, Pass

#: Accumulators of a cheap reduction, and of one with functions, whose constants need registers.
CHEAP_ACCUMULATORS, DEAR_ACCUMULATORS = 8, 2
#: Bytes of the accumulators of one store: more would not stay in registers.
ACCUMULATOR_BYTES = 1024
#: Elements that are written out.
MOST_TAPS = 8
#: Bytes of a line of the caches.
LINE_BYTES = 64


def element_bits(one: Pass) -> int:
    """Return the bits of the widest type that a pass computes with."""
    types = {str(buffer.dtype) for work in one.works for buffer, _ in work.targets}
    types |= {str(x.ty.dtype) for work in one.works for v in work.values for x in loads(v)}
    return max(8, *map(bits_of, types))


def is_dear(one: Pass) -> bool:
    """Whether a pass computes a function of its elements."""
    return any(parts_of(value, Call, prim.Let) for work in one.works for value in work.values)


class PassWriter:
    """Writes the loops of a pass.

    - `lanes`: number of elements of a vector, a power of two.
    - `rows`: the axis along which lanes are rows; if None, they are elements of one row.
    - `ahead`: elements of the next row by the place in this one, which are brought into the first
      cache.
    """

    def __init__(self, one: Pass, lanes: int, rows: Lanes | None = None) -> None:
        self.one, self.rows = one, rows
        self.ahead: list[Any] = []
        self.inner = None if rows is not None or not one.domain else one.domain[-1]
        self.serial = one.domain if rows is not None else one.domain[:-1]
        extent = rows.width if rows is not None else self.inner.extent if self.inner else 1
        while lanes > extent:
            lanes //= 2
        self.lanes, self.extent = lanes, extent
        self.slots = self._slots()
        size = rows.width if rows is not None else self.slots * lanes
        self.sums = {
            place: Accumulators(work, work.reduction, size)
            for place, work in enumerate(one.works)
            if work.reduction is not None
        }

    def _slots(self) -> int:
        """Return the number of accumulators, a power of two."""
        if self.rows is not None or self.inner is None:
            return 1
        most = DEAR_ACCUMULATORS if is_dear(self.one) else CHEAP_ACCUMULATORS
        slots = 1
        bytes_of_lane = self.lanes * element_bits(self.one) // 8
        while slots * 2 <= min(most, self.extent // self.lanes):
            if slots * 2 * bytes_of_lane > ACCUMULATOR_BYTES:
                break
            slots *= 2
        return slots

    def body(self, values: Values) -> Any:
        """Return the statements of the pass, for some values of the outer axes."""
        return _loops(self.one.kept, values, self.row)

    def row(self, values: Values) -> Any:
        """Return the statements for one result of each reduction."""
        statements: list[Any] = []
        for sums in self.sums.values():
            statements += [*sums.allocate(), *sums.start(self.lanes)]
        if self.rows is not None:
            statements.append(self.taps(values))
        else:
            statements.append(_loops(self.serial, values, self.along))
        for sums in self.sums.values():
            if self.rows is None:
                statements += [*sums.halve(self.lanes), sums.store(index(0), values)]
            else:
                statements += self.vectors(self.storing(sums), values)
        return sequence(statements)

    def storing(self, sums: Accumulators) -> Callable[[Values, Any], Any]:
        """Return what stores the result of a row, by its place among the rows of a block."""
        return lambda values, at: sums.store(at, values)

    # ---- lanes are elements of a row --------------------------------------------------------

    def along(self, values: Values) -> Any:
        """Return the statements for all elements of the innermost axis."""
        if self.inner is None:
            return self.statements(values, index(0), None)
        lanes, slots = self.lanes, self.slots
        whole, rest = divmod(self.extent, lanes)
        groups, left = divmod(whole, slots)

        def group(number: Any) -> Any:
            begin = number * index(slots * lanes)
            vectors = [
                self.vector(values, begin + index(slot * lanes), slot) for slot in range(slots)
            ]
            return sequence([*self.fetches(values, begin), *vectors])

        parts = [loop("vector", 0, groups, group)] if groups else []
        for slot in range(left):
            parts.append(self.vector(values, index((groups * slots + slot) * lanes), slot))
        if rest and self.one.in_place:
            for begin, width in pieces(self.extent - rest, rest, lanes):
                parts.append(self.vector(values, index(begin), 0, width=width))
        elif rest:
            # The last vector begins with elements that are counted already.
            last = index(self.extent - lanes)
            parts.append(self.vector(values, last, 0, lanes - rest))
        return sequence(parts)

    def fetches(self, values: Values, begin: Any) -> list[Any]:
        """Return the statements that fetch the next row's part that is as long as a group."""
        assert self.inner is not None
        values = {**values, self.inner.var: begin}
        found = []
        for load in self.ahead:
            size = bits_of(load.ty.dtype) // 8
            (at,) = (substitute(each, values) for each in load.indices)
            for first in range(0, self.slots * self.lanes, LINE_BYTES // size):
                found.append(fetch(tirx.BufferLoad(load.source, [at + index(first)]), cache=1))
        return found

    def vector(
        self, values: Values, begin: Any, slot: int, counted: int = 0, width: int = 0
    ) -> Any:
        """Return the statements for one vector of elements, the first of which may be counted."""
        assert self.inner is not None
        var = self.inner.var

        def element(lane: Any) -> Any:
            fresh = None
            if counted:
                fresh = lane >= index(counted)
            own = {**values, var: begin + lane}
            return self.statements(own, index(slot * self.lanes) + lane, fresh)

        return in_lanes(width or self.lanes, element)

    # ---- lanes are rows ---------------------------------------------------------------------

    def taps(self, values: Values) -> Any:
        """Return the statements for all elements of as many rows as there are in a block.

        Taps that lie beside each other are written out, where vectors of them are shuffled.
        """
        rows = self.rows
        assert rows is not None
        strided = [value for value in self.ready_values() if has_stride(value, rows.at)]
        if not strided or not self.serial or self.serial[-1].extent > MOST_TAPS:
            return _loops(self.serial, values, self.across)
        last = self.serial[-1]

        def beside(own: Values) -> Any:
            numbers = range(last.extent)
            return sequence([self.across({**own, last.var: index(n)}, last) for n in numbers])

        return _loops(self.serial[:-1], values, beside)

    def ready_values(self) -> list[Any]:
        """Return the values that may be loaded before the statements of an element.

        Results of the pass itself are not there yet.
        """
        stored = {
            handle(buffer)
            for work in self.one.works
            if work.reduction is None
            for buffer, _ in work.targets
        }
        return [
            value
            for work in self.one.works
            for value in work.values
            if not any(handle(load.source) in stored for load in loads(value))
        ]

    def across(self, values: Values, tap: Axis | None = None) -> Any:
        """Return the statements for one element of as many rows as there are in a block.

        If there is a `tap`, its elements are written out, and the number of this one is known.
        """
        rows = self.rows
        assert rows is not None
        parts = []
        for first, count in pieces(0, rows.width, self.lanes):
            table = {**values, rows.at: values[rows.at] + index(first)}
            ready: dict[int, Any] = {}
            for value in self.ready_values():
                vector = strided_vector(value, rows.at, table, count, tap)
                if vector is not None:
                    dtype = str(value.ty.dtype)
                    kept = tirx.decl_buffer([index(count)], dtype, "strided", layout=None)
                    ready[handle(value)] = kept
                    ramp = tirx.Ramp(index(0), index(1), count)
                    parts += [tirx.AllocBuffer(kept), tirx.BufferStore(kept, vector, [ramp])]
            parts.append(self.rows_of(first, count, values, self.element(ready, first)))
        return sequence(parts)

    def element(self, ready: dict[int, Any], first: int) -> Callable[[Values, Any], Any]:
        """Return what computes an element of a row of a vector, some values of which are ready."""

        def statements(values: Values, at: Any) -> Any:
            known = {
                key: tirx.BufferLoad(buffer, [at - index(first) if first else at])
                for key, buffer in ready.items()
            }
            return self.statements(values, at, None, known)

        return statements

    def vectors(self, body: Callable[[Values, Any], Any], values: Values) -> list[Any]:
        """Return the statements for each vector of a block of rows."""
        assert self.rows is not None
        return [
            self.rows_of(first, count, values, body)
            for first, count in pieces(0, self.rows.width, self.lanes)
        ]

    def rows_of(
        self, first: int, count: int, values: Values, body: Callable[[Values, Any], Any]
    ) -> Any:
        """Return the statements for some rows of a block, as a vector."""
        rows = self.rows
        assert rows is not None
        begin = values[rows.at]

        def row(lane: Any) -> Any:
            place = index(first) + lane
            return body({**values, rows.at: begin + place, rows.place: place}, place)

        return in_lanes(count, row)

    # ---- elements ---------------------------------------------------------------------------

    def statements(
        self, values: Values, at: Any, fresh: Any, ready: dict[int, Any] | None = None
    ) -> Any:
        """Return what the stages do for an element; accumulators are those at a place.

        If `fresh` is false, the element is counted already. Some values may be ready.
        """
        known = ready or {}
        made = []
        for place, work in enumerate(self.one.works):
            elements = [
                known[handle(v)] if handle(v) in known else substitute(v, values)
                for v in work.values
            ]
            if work.reduction is None:
                ((buffer, target),) = work.targets
                made.append(tirx.BufferStore(buffer, elements[0], [substitute(target, values)]))
                continue
            if fresh is not None:
                elements = [
                    element if repeatable else prim.Select(fresh, element, neutral)
                    for element, repeatable, neutral in zip(
                        elements, work.reduction.repeatable, work.reduction.neutral, strict=True
                    )
                ]
            made.append(self.sums[place].add(at, elements))
        return sequence(made)


def _loops(axes: Sequence[Axis], values: Values, body: Callable[[Values], Any]) -> Any:
    """Return loops over axes, outermost first."""
    if not axes:
        return body(values)
    first, *rest = axes
    return loop(
        str(first.var.name),
        0,
        first.extent,
        lambda i: _loops(rest, {**values, first.var: i}, body),
    )
