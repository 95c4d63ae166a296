"""Blocks that reach buffers by views of them, as if they reached the buffers themselves."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad, prim

from ...tir.affine import as_constant
from ...tir.walk import handle, variables


def without_views(block: Any) -> Any:
    """Return a block whose loads and stores name buffers, where it had views of regions of them.

    - `block` (tvm.s_tir.SBlock): a block without blocks inside.
    - Returns: `block` itself, if it has no views, or uses more of one than its elements: its
      strides, its place, its address.
    """
    views = {handle(one.buffer): one for one in block.match_buffers}
    if not views or not all(map(_is_window, views.values())):
        return block

    def load(expr: Any) -> Any:
        view = views.get(handle(expr.source))
        if view is None:
            return expr
        return tirx.BufferLoad(view.source.source, _inside(view, expr.indices))

    def store(stmt: Any) -> Any:
        view = views.get(handle(stmt.buffer))
        if view is None:
            return stmt
        return tirx.BufferStore(view.source.source, stmt.value, _inside(view, stmt.indices))

    changes = [(TensorLoad, load), (tirx.BufferStore, store)]
    init, body = (
        None if part is None else tvm_ffi.structural_map(part, changes)
        for part in (block.init, block.body)
    )
    defined = {*views}
    for one in views.values():
        places = [*(one.buffer.ty.strides or ()), one.buffer.ty.elem_offset]
        defined |= {handle(var) for part in places if part is not None for var in variables(part)}
    for part in (init, body):
        if part is not None and any(handle(var) in defined for var in variables(part)):
            return block
    return s_tir.SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        body,
        init,
        block.alloc_buffers,
        [],
        block.annotations,
    )


def _is_window(view: Any) -> bool:
    """Whether a view has the elements of its region, without axes of the region that come first."""
    region, shape = view.source.region, view.buffer.ty.shape
    first = len(region) - len(shape)
    if first < 0 or any(as_constant(part.extent) != 1 for part in region[:first]):
        return False
    alike = all(
        prim.expr_deep_equal(part.extent, extent)
        for part, extent in zip(region[first:], shape, strict=True)
    )
    return alike and view.buffer.ty.dtype == view.source.source.ty.dtype


def _inside(view: Any, indices: Any) -> list[Any]:
    """Return the element of a buffer that is an element of a view of it."""
    region = view.source.region
    first = len(region) - len(indices)
    starts = [part.min for part in region]
    moved = [start + index for start, index in zip(starts[first:], indices, strict=True)]
    return [*starts[:first], *moved]
