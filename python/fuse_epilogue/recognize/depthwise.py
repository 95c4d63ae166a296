"""Finds a depthwise convolution along one dimension in a reduction, by what it computes.

    out[.., i] = init (+) ... (+) g(x[.., i * stride + k * dilation - left], rest of k)

`g` is any expression without `i` but for that one window of `x`, or a constant where the window
leaves `x`. The other indices (images, channels, or a layout with columns before channels) make no
difference here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Call, TensorLoad, Var, prim
from tvm.sym import Analyzer, ProofStrength

from ..tir.affine import affine_of, as_constant, is_one_to_one
from ..tir.expressions import added_term, is_guard, uncast
from ..tir.walk import conjuncts, loads, parts_of, substitute, substitute_part, uses


@dataclass(frozen=True)
class DepthwiseConv:
    """A depthwise convolution.

    - `block` (tvm.s_tir.SBlock): the reduction: one store ``out[...] = out[...] (+) term``.
    - `column`, `tap` (tvm.tirx.IterVar): the axis of the result's columns, and the one that is
      summed over. Further axes of the sum have one value.
    - `outer`: the other axes of the result, in the block's order.
    - `out` (tvm.ir.TensorLoad): an element of the result, in the axes.
    - `term` (Expr): the term for a column and a tap.
    - `window` (Expr): the part of `term` that depends on the column: an element of x or, outside,
      `outside`; perhaps cast.
    - `data` (tvm.ir.TensorLoad): the load from x in it.
    - `axis`: which index of `data` goes along the columns.
    - `stride`, `dilation`, `start`: terms of the index ``column * stride + tap * dilation +
      start``.
    - `outside` (Expr or None): what `window` is where that index is not one of x, and nowhere else:
      a constant. None: it always is.
    """

    block: Any
    column: Any
    tap: Any
    outer: tuple[Any, ...]
    out: Any
    term: Any
    window: Any
    data: Any
    axis: int
    stride: int
    dilation: int
    start: int
    outside: Any

    @property
    def width(self) -> Any:
        """Columns of x: an int or an expression."""
        return as_constant(self.data.source.ty.shape[self.axis])

    @property
    def columns(self) -> Any:
        """Columns of the result: an int or an expression."""
        return as_constant(self.column.dom.extent)

    @property
    def taps(self) -> int:
        """Elements of a filter."""
        return int(self.tap.dom.extent)

    def cast(self, value: Any) -> Any:
        """Return a value with the casts that are around an element of x in `window`."""
        types: list[Any] = []
        window = self.window
        while isinstance(window, prim.Cast):
            types.append(window.ty.dtype)
            window = window.value
        for dtype in reversed(types):
            value = prim.Cast(dtype, value)
        return value


def find_depthwise_conv(block: Any) -> DepthwiseConv | None:
    """Return the depthwise convolution that a reduction block computes, None if it is no such.

    - `block` (tvm.s_tir.SBlock): with its padding inlined, see
      :func:`fuse_epilogue.rewrites.prepare.prepare`.
    """
    update = block.body
    if not isinstance(update, tirx.BufferStore) or not isinstance(update.value, prim.Add):
        return None
    term = added_term(update)
    if term is None:
        return None
    spatial = [axis for axis in block.iter_vars if int(axis.iter_type) == tirx.IterVar.DataPar]
    summed = [axis for axis in block.iter_vars if int(axis.iter_type) == tirx.IterVar.CommReduce]
    if len(spatial) + len(summed) != len(block.iter_vars):
        return None
    taps = [axis for axis in summed if as_constant(axis.dom.extent) != 1] or summed[-1:]
    if len(taps) != 1 or not isinstance(as_constant(taps[0].dom.extent), int):
        return None
    if any(as_constant(axis.dom.min) != 0 for axis in block.iter_vars):
        return None
    if not is_one_to_one(update.indices, spatial):
        return None
    once = {axis.var: axis.dom.min for axis in summed if axis is not taps[0]}
    term = Analyzer().simplify(substitute(term, once)) if once else term
    return _with_window(block, update, term, spatial, taps[0])


def _with_window(
    block: Any, update: Any, term: Any, spatial: list[Any], tap: Any
) -> DepthwiseConv | None:
    """Find the axis of the columns: the one that is summed with the taps in an index."""
    for column in spatial:
        found = [load for load in loads(term) if uses(load, column.var)]
        if len(found) != 1 or not uses(found[0], tap.var):
            continue
        [data] = found
        places = [at for at, index in enumerate(data.indices) if uses(index, column.var, tap.var)]
        if len(places) != 1 or not isinstance(data.source, Var):
            continue
        index = affine_of(data.indices[places[0]], [column.var, tap.var], Analyzer())
        if index is None or index.constant is None:
            return None
        (stride, dilation), start = index.factors, index.constant
        if stride < 1 or dilation < 1:
            return None
        window, outside = window_of(term, data)
        if not _is_exact(window, data, places[0], block.iter_vars):
            return None
        hole = tirx.Var("x", window.ty)
        if uses(substitute_part(term, window, hole), column.var):
            return None
        return DepthwiseConv(
            block=block,
            column=column,
            tap=tap,
            outer=tuple(axis for axis in spatial if axis is not column),
            out=update.value.a if _is_load_of(update.value.a, update.buffer) else update.value.b,
            term=term,
            window=window,
            data=data,
            axis=places[0],
            stride=stride,
            dilation=dilation,
            start=start,
            outside=outside,
        )
    return None


def _is_load_of(expr: Any, buffer: Any) -> bool:
    return isinstance(expr, TensorLoad) and bool(expr.source.same_as(buffer))


def window_of(term: Any, data: Any) -> tuple[Any, Any]:
    """Return a load in a term with its condition and the casts around it, and what is outside."""
    window, outside = data, None
    guards = parts_of(term, Call)
    for call in guards:
        if is_guard(call) and call.args[1].same_as(data):
            window, outside = call, call.args[2]
    casts = parts_of(term, prim.Cast)
    for cast in casts:  # From the inside: a walk is in post-order.
        if cast.value.same_as(window):
            window = cast
    return window, outside


def _is_exact(window: Any, data: Any, place: int, axes: Any) -> bool:
    """Whether x is read where an index of it is inside of x, and a constant is taken elsewhere."""
    window = uncast(window)
    index, size = data.indices[place], data.source.ty.shape[place]
    inside = [index >= 0, index < size]
    analyzer = Analyzer()
    for axis in axes:
        analyzer.bind(axis.var, axis.dom)

    def proved(claims: list[Any]) -> bool:
        return all(analyzer.can_prove(claim, ProofStrength.SYMBOLIC_BOUND) for claim in claims)

    if window.same_as(data):
        return proved(inside)
    condition, _, outside = window.args
    if not isinstance(outside, prim.IntImm | prim.FloatImm):
        return False
    with analyzer.constraint_scope(condition):
        if not proved(inside):
            return False
    with analyzer.constraint_scope(prim.And(*inside)):
        return proved(conjuncts(condition))
