"""Recomputes the columns that a convolution without states and sequences has wrong.

for the channels:                             for the columns:
    for the first columns, written out:           if a tap is in another sequence:
        y[...] = element                              for the channels: y[...] = element
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, prim

from ....recognize.stages import Axis, analyzer_of
from ....recognize.stream_elements import Element
from ....recognize.streams import is_mask, is_of_state
from ....tir.build import sequence
from ....tir.expressions import is_guard
from ....tir.walk import parts_of, substitute, uses
from ...stream.elements import stored
from ..costs import CLOCK_HZ, NODE_CYCLES, on_threads, threads_for, work

#: First columns that are written out one by one, at most.
FIRST = 64


@dataclass(frozen=True)
class Repairs:
    """Statements that repair a result, and the predicted seconds of those that always run."""

    statements: tuple[Any, ...] = ()
    seconds: float = 0.0


def repairs(element: Element, threads: int) -> Repairs | None:
    """Return what repairs a result.

    - `element`: the right one, by states and sequences.
    - `threads`: number of threads that parallel loops are made for.
    - Returns: None if it cannot be said where the result is to be repaired, or only after its sums.
    """
    wrong, states = conditions(element)
    if any(uses(each, var) for each in wrong for var, _ in element.sums):
        return None
    made: list[Any] = []
    seconds = 0.0
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
        body = sequence(elements)
        made.append(loops(others, body, threads))
        nodes = count * sum(work(each) for each in (*dict(element.sums).values(), element.value))
        seconds = nodes * math.prod(axis.extent for axis in others) * NODE_CYCLES / CLOCK_HZ
    if wrong:
        outer = [axis for axis in element.axes if any(uses(each, axis.var) for each in wrong)]
        inner = [axis for axis in element.axes if not any(axis is each for each in outer)]
        body = tirx.IfThenElse(reduce(prim.Or, wrong), loops(inner, stored(element), 1), None)
        made.append(loops(outer, body, threads))
    return Repairs(tuple(made), on_threads(seconds, threads))


def conditions(element: Element) -> tuple[list[Any], list[Any]]:
    """Return where an element is wrong by a mask, and the conditions that choose a state.

    A mask is evaluated only where the element evaluates it: the conditions around it come first.
    """
    wrong: list[Any] = []
    states: list[Any] = []

    def visit(expr: Any, around: tuple[Any, ...]) -> None:
        for node in outermost_choices(expr):
            condition, inside, outside = node.args
            visit(condition, around)
            if is_mask(condition):
                add(wrong, where(around, prim.Not(condition)))
            elif is_of_state(node):
                add(states, condition)
            visit(inside, (*around, condition))
            visit(outside, (*around, prim.Not(condition)))

    for each in element.expressions:
        visit(each, ())
    return wrong, states


def add(found: list[Any], condition: Any) -> None:
    """Append a condition that is not among those that were found."""
    if not any(tvm_ffi.structural_equal(condition, each) for each in found):
        found.append(condition)


def where(around: Sequence[Any], condition: Any) -> Any:
    """Return whether a condition holds where those around it do; it is not evaluated elsewhere.

    TVM evaluates both sides of an ``and``, hence the choices.
    """
    for each in reversed(around):
        condition = tirx.if_then_else(each, condition, tirx.const(False, "bool"))
    return condition


def outermost_choices(expr: Any) -> list[Any]:
    """Return the choices of an expression that are in no other choice."""
    found = []

    def choice(node: Any) -> Any:
        if not is_guard(node):
            return node
        found.append(node)
        return tirx.Var("chosen", node.ty)

    tvm_ffi.structural_map(expr, (Call, choice), order="pre")
    return found


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
    # Elements are computed one by one.
    nodes = len(parts_of(body, tirx.Expr)) * math.prod(axis.extent for axis in axes)
    used = threads_for(nodes * NODE_CYCLES / CLOCK_HZ, threads)
    fresh = {axis.var: tirx.Var(axis.var.name, axis.var.ty) for axis in ordered}
    body = substitute(body, fresh)
    for axis in reversed(ordered):
        parallel = axis is longest and used > 1
        kind = tirx.ForKind.PARALLEL if parallel else tirx.ForKind.SERIAL
        var = fresh[axis.var]
        zero, extent = (prim.IntImm(str(var.ty.dtype), each) for each in (0, axis.extent))
        body = tirx.For(var, zero, extent, kind, body)
    return body
