"""Compute again the columns that a convolution without states and sequences has wrong.

for the channels:                             for the columns:
    for the first columns, written out:           if a tap is in another sequence:
        y[...] = element                              for the channels: y[...] = element
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad, prim

from ....recognize.stages import Axis, analyzer_of
from ....recognize.stream_elements import Element
from ....recognize.streams import is_choice
from ....tir.walk import loads, substitute, uses
from ...stream.elements import stored

#: First columns that are written out one by one, at most.
FIRST = 64
#: Elements below which a second thread does not pay.
PARALLEL_FROM = 1 << 15


def repairs(element: Element, threads: int) -> list[Any] | None:
    """Return the statements that repair a result.

    Parameters
    ----------
    element : Element
        The right one, by states and sequences.
    threads : int
        Number of threads that parallel loops are made for.

    Returns
    -------
    list[tvm.tirx.Stmt] or None
        None if it cannot be said where the result is to be repaired.
    """
    masks, states = conditions(element)
    made: list[Any] = []
    if states:
        found = first_columns(element, states)
        if found is None:
            return None
        column, count = found
        elements = [
            stored(element.at({column.var: prim.IntImm(str(column.var.ty.dtype), place)}))
            for place in range(count)
        ]
        others = [axis for axis in element.axes if axis is not column]
        body = tirx.SeqStmt(elements) if count > 1 else elements[0]
        made.append(loops(others, body, threads))
    if masks:
        outer = [axis for axis in element.axes if any(uses(each, axis.var) for each in masks)]
        inner = [axis for axis in element.axes if not any(axis is each for each in outer)]
        wrong = reduce(prim.Or, [prim.Not(each) for each in masks])
        body = tirx.IfThenElse(wrong, loops(inner, stored(element), 1), None)
        made.append(loops(outer, body, threads))
    return made


def conditions(element: Element) -> tuple[list[Any], list[Any]]:
    """Return the conditions of an element: those that compare sequences, those before a state."""
    masks: list[Any] = []
    states: list[Any] = []

    def call(node: Any) -> None:
        if not is_choice(node):
            return
        condition, inside, outside = node.args
        if any(str(load.ty.dtype) == "int32" for load in loads(condition)):
            found = masks
        elif isinstance(inside, TensorLoad) and isinstance(outside, TensorLoad):
            found = states
        else:
            return
        if not any(tvm_ffi.structural_equal(condition, each) for each in found):
            found.append(condition)

    for each in element.expressions:
        tvm_ffi.structural_walk(each, (Call, call))
    return masks, states


def first_columns(element: Element, states: list[Any]) -> tuple[Axis, int] | None:
    """Return the axis of the columns, and how many of the first ones see the state."""
    axes = [axis for axis in element.axes if any(uses(each, axis.var) for each in states)]
    if len(axes) != 1:
        return None
    [column] = axes
    dtype = str(column.var.ty.dtype)
    for count in range(min(column.extent, FIRST) + 1):
        # Of the columns from `count` on, none sees it.
        later = tirx.Var("later", dtype)
        analyzer_later = analyzer_of([Axis(later, max(1, column.extent - count))])
        beyond = [substitute(each, {column.var: later + count}) for each in states]
        if count == column.extent or all(analyzer_later.can_prove(each) for each in beyond):
            return column, count
    return None


def loops(axes: list[Axis], body: Any, threads: int) -> Any:
    """Return loops over axes around a body; the longest is outermost, in parallel if it pays."""
    if not axes:
        return body
    longest = max(axes, key=lambda axis: axis.extent)
    ordered = [longest, *(axis for axis in axes if axis is not longest)]
    total = reduce(lambda a, b: a * b, (axis.extent for axis in axes))
    fresh = {axis.var: tirx.Var(axis.var.name, axis.var.ty) for axis in ordered}
    body = substitute(body, fresh)
    for axis in reversed(ordered):
        parallel = axis is longest and threads > 1 and total >= PARALLEL_FROM
        kind = tirx.ForKind.PARALLEL if parallel else tirx.ForKind.SERIAL
        var = fresh[axis.var]
        zero, extent = (prim.IntImm(str(var.ty.dtype), each) for each in (0, axis.extent))
        body = tirx.For(var, zero, extent, kind, body)
    return body
