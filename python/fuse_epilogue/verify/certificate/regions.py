"""Whether blocks declare what they access, and whether elements are places of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import prim

from ...tir.affine import as_constant
from ...tir.walk import handle, loads, same
from ..evaluation.layouts import overlap
from ..proof.domain import Domain, block_axes, in_range
from .skeleton import differ


def is_own_memory(buffer: Any, like: Any) -> bool:
    """Whether a new buffer has no strides and no offset, or those of a buffer of the program.

    - `buffer`, `like` (Var): with as many dimensions.
    """
    strides, offset = buffer.ty.strides, buffer.ty.elem_offset
    compact = not len(strides) and (offset is None or as_constant(offset) == 0)
    return compact or not (differ(strides, like.ty.strides) or differ(offset, like.ty.elem_offset))


def places_differ(buffer: Any) -> bool:
    """Whether no two elements of a buffer are one place in memory, as far as it says so.

    Strides that are unknown are the caller's promise; an unknown extent counts as 2.
    """
    strides = [as_constant(stride) for stride in buffer.ty.strides or ()]
    extents = [as_constant(extent) for extent in buffer.ty.shape]
    if not strides or not all(isinstance(stride, int) for stride in strides):
        return True
    return not overlap(strides, [size if isinstance(size, int) else 2 for size in extents])


def undeclared(block: Any, sizes: Sequence[Any]) -> str:
    """Find an access of a block that its declared regions do not hold.

    A reduction need not declare that it reads what it accumulates in.

    - `block` (tvm.s_tir.SBlock): a block with stores, and no block inside.
    - `sizes` (sequence of Var): symbolic dimensions.
    - Returns: the access as text; empty if all are declared.
    """
    domain = Domain(block_axes(block), sizes=sizes)
    written = {handle(region.source) for region in block.writes}
    for part in (block.init, block.body):
        for load in loads(part):
            if block.init is not None and part is not block.init and handle(load.source) in written:
                continue
            if not _declared(domain, block.reads, load.source, load.indices):
                return str(load)
        for store in _stores(part):
            if not _declared(domain, block.writes, store.buffer, store.indices):
                return f"{store.buffer.name}{list(store.indices)}"
    return ""


def _stores(stmt: Any) -> list[Any]:
    found: list[Any] = []
    if stmt is not None:
        tvm_ffi.structural_walk(stmt, (tirx.BufferStore, found.append))
    return found


def _declared(domain: Domain, regions: Any, buffer: Any, indices: Any) -> bool:
    """Whether an element lies in one of several regions, whatever the axes are."""
    return any(
        same(region.source, buffer)
        and all(
            _is_all(part, size) or _inside(domain, index, part.min, part.extent)
            for index, part, size in zip(indices, region.region, buffer.ty.shape, strict=True)
        )
        for region in regions
    )


def _is_all(part: Any, size: Any) -> bool:
    """Whether a range is all of an axis: an index into that may be anything."""
    first = isinstance(part.min, prim.IntImm) and int(part.min.value) == 0
    return first and bool(prim.expr_deep_equal(part.extent, size))


def _inside(domain: Domain, index: Any, start: Any, extent: Any) -> bool:
    single = isinstance(extent, prim.IntImm) and int(extent.value) == 1
    if single and prim.expr_deep_equal(index, start):
        return True
    return domain.holds(in_range(index, start, extent))
