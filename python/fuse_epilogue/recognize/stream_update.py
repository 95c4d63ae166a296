"""Reads a function that updates the states of streams in place, stream by stream.

All that one channel of a stream reads and writes is written out. It is proved that no other stream
or channel touches the same elements of the state, so that channels may be computed in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, prim

from ..tir.walk import handle, loads, same, substitute, uses
from .stages import Axis
from .stream_elements import Element, read_element
from .streams import Streams

#: Elements that are written out for one channel of a stream, at most.
ELEMENTS = 64


@dataclass(frozen=True)
class Update:
    """A function that updates one parameter in place.

    - `state` (tvm.tirx.Buffer): the parameter.
    - `axes`: streams and channels, in the order of the state's dimensions.
    - `elements`: all that one channel of a stream writes, in `axes` alone. Those of the state may
      be stored only after all of them are computed.
    """

    state: Any
    axes: tuple[Axis, ...]
    elements: tuple[Element, ...]

    def is_of_state(self, element: Element) -> bool:
        """Whether an element is one of the state."""
        return _is(element, self.state)


def read_update(streams: Streams) -> Update | None:
    """Read a function whose result is a parameter that it reads, too.

    - Returns: None if not exactly one parameter is updated, if one stream or channel may touch an
      element of another one, or if there is too much to write out.
    """
    updated = streams.updated()
    if len(updated) != 1:
        return None
    elements = [read_element(streams, result) for result in streams.results]
    if any(element is None for element in elements):
        return None
    known = [element for element in elements if element is not None]
    own = next(each for each in known if same(each.buffer, updated[0]))
    shared = _shared_axes(streams, own)
    if shared is None:
        return None
    outer = {axis.var: tirx.Var(axis.var.name, axis.var.ty) for axis in shared.values()}
    axes = tuple(Axis(outer[axis.var], axis.extent) for axis in shared.values())
    written: list[Element] = []
    for element in known:
        moved = _in_axes_of(own, shared, outer, element)
        if moved is None:
            return None
        inner = [axis for axis in moved.axes if handle(axis.var) not in map(handle, outer.values())]
        if prod(axis.extent for axis in inner) * max(1, len(written)) > ELEMENTS:
            return None
        for numbers in product(*(range(axis.extent) for axis in inner)):
            place = {
                axis.var: prim.IntImm(str(axis.var.ty.dtype), number)
                for axis, number in zip(inner, numbers, strict=True)
            }
            written.append(moved.at(place))
    return Update(updated[0], axes, tuple(written))


def _shared_axes(streams: Streams, own: Element) -> dict[int, Axis] | None:
    """Return the axes of a state that say whose it is, streams and channels, by their index.

    All but one index of the state's elements are the same wherever a stream's channel is read or
    written, and others for another stream or channel.
    """
    state = [load for each in own.expressions for load in loads(each) if _is(load, own.buffer)]
    places = [
        at
        for at, index in enumerate(own.indices)
        if all(tvm_ffi.structural_equal(load.indices[at], index) for load in state)
        # A state of one column has it at a constant place.
        and any(uses(index, axis.var) for axis in own.axes)
    ]
    if len(places) != len(own.indices) - 1:
        return None
    found: dict[int, Axis] = {}
    for at in places:
        used = [axis for axis in own.axes if uses(own.indices[at], axis.var)]
        if len(used) != 1 or any(used[0] is each for each in found.values()):
            return None
        if not _differs(streams, own.indices[at], used[0]):
            return None
        found[at] = used[0]
    return found


def _is(access: Any, buffer: Any) -> bool:
    source = access.buffer if isinstance(access, Element) else access.source
    return same(source, buffer)


def _differs(streams: Streams, index: Any, axis: Axis) -> bool:
    """Whether an index differs for different values of its only axis."""
    while isinstance(index, prim.Cast):
        index = index.value
    if same(index, axis.var):
        return True
    if not isinstance(index, TensorLoad) or len(index.indices) != 1:
        return False
    if not same(index.indices[0], axis.var):
        return False
    return any(_checks_distinct(each.block, index.source) for each in streams.checks)


def _checks_distinct(block: Any, buffer: Any) -> bool:
    """Whether a check asserts that a <= b or buffer[a] != buffer[b], for all a and b."""
    condition = block.body.condition
    size = int(buffer.shape[0])
    if not isinstance(condition, prim.Or) or len(block.iter_vars) != 2:
        return False
    if any(int(axis.dom.min) or int(axis.dom.extent) != size for axis in block.iter_vars):
        return False
    order, differ = condition.a, condition.b
    if not isinstance(order, prim.LE) or not isinstance(differ, prim.NE):
        return False
    first, second = (axis.var for axis in block.iter_vars)
    if not same(order.a, first) or not same(order.b, second):
        return False
    ends = (differ.a, differ.b)
    return all(isinstance(end, TensorLoad) and _is(end, buffer) for end in ends) and all(
        same(end.indices[0], var) for end, var in zip(ends, (first, second), strict=True)
    )


def _in_axes_of(
    own: Element, shared: dict[int, Axis], outer: dict[Any, Any], element: Element
) -> Element | None:
    """Return an element in the axes of the state; None if it reads another stream's channel."""
    if element is own:
        return element.at({}).renamed({axis.var: outer[axis.var] for axis in shared.values()})
    table: dict[Any, Any] = {}
    for place, axis in shared.items():
        for load in (each for e in element.expressions for each in loads(e)):
            if not _is(load, own.buffer):
                continue
            there = [each for each in element.axes if uses(load.indices[place], each.var)]
            if len(there) != 1 or there[0].extent != axis.extent:
                return None
            if table.setdefault(there[0].var, axis.var) is not axis.var:
                return None
            moved = substitute(load.indices[place], {there[0].var: axis.var})
            if not tvm_ffi.structural_equal(moved, own.indices[place]):
                return None
    if len(table) != len(shared):
        return None
    return element.renamed({var: outer[to] for var, to in table.items()})
