"""Reductions of the rows of a matrix, read from the block of a reduction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad, prim

from ..tir.affine import as_constant
from ..tir.expressions import uncast
from ..tir.types import bits_of


@dataclass(frozen=True)
class RowReduction:
    """A reduction of rows: y[m] = op_n x[m, n], a sum or a maximum.

    - `sizes`: sizes of m and n.
    - `dtype`: type of x.
    - `bits`: bits of an element of y.
    """

    sizes: dict[str, int]
    dtype: str
    bits: int


def row_reduction(block: Any) -> RowReduction | None:
    """Return the reduction of rows that a block computes, None if it is something else.

    - `block` (tvm.s_tir.SBlock): with the axes m and n, in this order.
    """
    extents = [as_constant(axis.dom.extent) for axis in block.iter_vars]
    if len(extents) != 2 or not all(isinstance(extent, int) for extent in extents):
        return None
    m, n = (axis.var for axis in block.iter_vars)
    store = block.body
    if int(block.iter_vars[1].iter_type) != tirx.IterVar.CommReduce:
        return None
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, prim.Add | prim.Max):
        return None
    sides = [uncast(side) for side in (store.value.a, store.value.b)]
    if not all(isinstance(side, TensorLoad) for side in sides):
        return None
    others = [side for side in sides if not side.source.same_as(store.buffer)]
    if len(store.indices) != 1 or not store.indices[0].same_as(m) or len(others) != 1:
        return None
    x = others[0]
    if len(x.indices) != 2 or not x.indices[0].same_as(m) or not x.indices[1].same_as(n):
        return None
    return RowReduction(
        dict(zip("mn", extents, strict=True)), str(x.source.ty.dtype), bits_of(store.value.ty.dtype)
    )
