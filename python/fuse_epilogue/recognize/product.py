"""Products of matrices, read from the block of a reduction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad, prim

from ..tir.affine import as_constant
from ..tir.expressions import added_term, uncast
from ..tir.types import bits_of
from ..tir.walk import uses


@dataclass(frozen=True)
class Operand:
    """One of the two matrices.

    - `place`: which read of the reduction it is.
    - `bytes`: bytes of an element.
    - `transposed`: whether it is stored with the axes in the other order: a[k, m] or b[n, k].
    """

    name: str
    place: int
    bytes: int
    transposed: bool


@dataclass(frozen=True)
class MatrixProduct:
    """A product of matrices: y[m, n] = sum_k a[m, k] * b[k, n].

    - `sizes`: sizes of m, n and k.
    - `dtype`: type of a.
    - `bits`: bits of an element of the sum.
    """

    sizes: dict[str, int]
    dtype: str
    bits: int
    a: Operand
    b: Operand


def matrix_product(block: Any) -> MatrixProduct | None:
    """Return the product of matrices that a reduction computes, None if it is something else.

    - `block` (tvm.s_tir.SBlock): with the axes m, n and k, in this order.
    """
    axes = [axis.var for axis in block.iter_vars]
    extents = [as_constant(axis.dom.extent) for axis in block.iter_vars]
    if len(axes) != 3 or not all(isinstance(extent, int) for extent in extents):
        return None
    if int(block.iter_vars[2].iter_type) != tirx.IterVar.CommReduce:
        return None
    m, n, k = axes
    store = block.body
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, prim.Add):
        return None
    if len(store.indices) != 2 or not all(map(_is, store.indices, (m, n))):
        return None
    term = added_term(store)
    sides = [uncast(side) for side in (term.a, term.b)] if isinstance(term, prim.Mul) else []
    if not sides or not all(isinstance(side, TensorLoad) for side in sides):
        return None
    if uses(sides[0], n):
        sides.reverse()
    a, b = (_operand(side, x, k, block) for side, x in zip(sides, (m, n), strict=True))
    if a is None or b is None:
        return None
    return MatrixProduct(
        dict(zip("mnk", extents, strict=True)),
        str(sides[0].source.ty.dtype),
        bits_of(term.ty.dtype),
        a,
        Operand(b.name, b.place, b.bytes, not b.transposed),
    )


def _operand(side: Any, axis: Any, k: Any, block: Any) -> Operand | None:
    """Return a load of the axes `axis` and k, transposed if k comes first; None if of others."""
    order = next((o for o in ((axis, k), (k, axis)) if _all(side.indices, o)), None)
    reads = [region.source for region in block.reads]
    places = [at for at, source in enumerate(reads) if source.same_as(side.source)]
    if order is None or len(places) != 1:
        return None
    size = bits_of(side.source.ty.dtype) // 8
    return Operand(str(side.source.name), places[0], size, order[0] is k)


def _is(index: Any, var: Any) -> bool:
    return bool(index.same_as(var))


def _all(indices: Any, order: Any) -> bool:
    return len(indices) == len(order) and all(map(_is, indices, order))
