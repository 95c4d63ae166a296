"""The next columns of streams: one pass over the states, which are updated in place.

    for the streams, in parallel:
        for the channels:
            totals and columns of the state, from the state and x
            y[...] = f(total)
            state[...] = columns

All loads of one stream's channel come before its stores, and no other stream or channel has its
elements. Loops over channels are left to LLVM, which loads states of a few columns in vectors and
takes them to pieces.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, prim

from ....recognize.stages import Axis, analyzer_of
from ....recognize.stream_elements import Element, read_element
from ....recognize.streams import Streams
from ....tir.build import in_root
from ....tir.walk import handle, loads, substitute, uses
from ...scheduled import Scheduled
from ..loops import sequence
from .repairs import PARALLEL_FROM

#: Elements that are written out for one channel of a stream, at most.
ELEMENTS = 64
#: Bytes per second that one core moves.
BYTES_PER_S = 1e10


def update(streams: Streams, threads: int) -> Scheduled | None:
    """Schedule a function that updates a parameter in place.

    Parameters
    ----------
    streams : Streams
        At least one of its results is read, too.
    threads : int
        Number of threads that parallel loops are made for.

    Returns
    -------
    Scheduled or None
        None if several parameters are updated, if one stream or channel may touch what is another
        one's, or if there is too much to write out.
    """
    updated = streams.updated()
    if len(updated) != 1:
        return None
    elements = [read_element(streams, result) for result in streams.results]
    if any(element is None for element in elements):
        return None
    known = [element for element in elements if element is not None]
    own = next(each for each in known if handle(each.buffer) == handle(updated[0]))
    shared = _shared_axes(streams, own)
    if shared is None:
        return None
    outer = {axis.var: tirx.Var(axis.var.name, axis.var.ty) for axis in shared.values()}
    axes = [Axis(outer[axis.var], axis.extent) for axis in shared.values()]
    written: list[Element] = []
    for element in known:
        same = _in_axes_of(own, shared, outer, element)
        if same is None:
            return None
        inner = [axis for axis in same.axes if handle(axis.var) not in map(handle, outer.values())]
        if prod(axis.extent for axis in inner) * max(1, len(written)) > ELEMENTS:
            return None
        for numbers in product(*(range(axis.extent) for axis in inner)):
            place = {
                axis.var: prim.IntImm(str(axis.var.ty.dtype), number)
                for axis, number in zip(inner, numbers, strict=True)
            }
            written.append(same.at(place))
    body = [each.statement for each in streams.checks]
    body.append(_pass(axes, own.buffer, written, threads))
    func = streams.func.with_body(in_root(sequence(body), []))
    touched = sum(prod(map(int, buffer.shape)) for buffer in streams.func.params) * 4
    return Scheduled(func, "stream update", "tail", touched / BYTES_PER_S)


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
    return handle(source) == handle(buffer)


def _differs(streams: Streams, index: Any, axis: Axis) -> bool:
    """Whether an index differs for different values of its only axis."""
    while isinstance(index, prim.Cast):
        index = index.value
    if handle(index) == handle(axis.var):
        return True
    if not isinstance(index, TensorLoad) or len(index.indices) != 1:
        return False
    if handle(index.indices[0]) != handle(axis.var):
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
    if handle(order.a) != handle(first) or handle(order.b) != handle(second):
        return False
    ends = (differ.a, differ.b)
    return all(isinstance(end, TensorLoad) and _is(end, buffer) for end in ends) and all(
        handle(end.indices[0]) == handle(var)
        for end, var in zip(ends, (first, second), strict=True)
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


def _pass(axes: list[Axis], state: Any, written: list[Element], threads: int) -> Any:
    """Return the loops over streams and channels."""
    analyzer = analyzer_of(axes)
    results: list[Any] = []
    columns: list[Any] = []
    stores: list[Any] = []
    for element in written:
        binds, value = element.computed(analyzer)
        results += binds
        indices = [analyzer.simplify(index) for index in element.indices]
        if not _is(element, state):
            results.append(tirx.BufferStore(element.buffer, value, indices))
            continue
        # The columns of a state are stored when all of them are loaded. As bits: TVM turns a
        # bfloat16 into a float32 wherever it is bound.
        dtype = str(element.buffer.dtype)
        bits = f"uint{element.buffer.dtype.bits}" if dtype == "bfloat16" else dtype
        var = tirx.Var("column", bits)
        columns.append(tirx.Bind(var, value if bits == dtype else tirx.reinterpret(bits, value)))
        back = var if bits == dtype else tirx.reinterpret(dtype, var)
        stores.append(tirx.BufferStore(element.buffer, back, indices))
    body: Any = tirx.SeqStmt([*results, *columns, *stores])
    parallel = threads > 1 and prod(a.extent for a in axes) * len(written) >= PARALLEL_FROM
    channels = axes[-1]
    parts = 1
    if parallel and prod(axis.extent for axis in axes[:-1]) < threads:
        parts = next(k for k in range(threads, 0, -1) if channels.extent % k == 0)
    index = str(channels.var.ty.dtype)

    def const(value: int) -> Any:
        return prim.IntImm(index, value)

    serial = tirx.ForKind.SERIAL
    inner = tirx.Var("channel", index)
    rest = tirx.Var("part", index)
    size = channels.extent // parts
    body = substitute(body, {channels.var: rest * size + inner if parts > 1 else inner})
    body = tirx.For(inner, const(0), const(size), serial, body)
    outer = [(axis.var, axis.extent) for axis in axes[:-1]] + [(rest, parts)] * (parts > 1)
    if not outer:
        return body
    together = tirx.Var("stream", index)
    left: Any = together
    values: dict[Any, Any] = {}
    for var, extent in reversed(outer):
        whole = len(values) == len(outer) - 1
        values[var] = left if whole else tirx.floormod(left, extent)
        left = tirx.floordiv(left, extent)
    kind = tirx.ForKind.PARALLEL if parallel else serial
    total = prod(extent for _, extent in outer)
    return tirx.For(together, const(0), const(total), kind, substitute(body, values))
