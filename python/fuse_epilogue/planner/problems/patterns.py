"""Finds products of matrices and reductions of rows in functions, whatever machine they are for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import tvm
from tvm import s_tir, tirx
from tvm.ir import TensorLoad, prim

from ...schedules.convolution import added_term, plain, uncast
from ...schedules.prepare import prepare, why_empty
from ...schedules.trees import child_blocks
from ...tir_tree import uses
from .epilogue import Epilogue, find_epilogue

Found = TypeVar("Found")
On = TypeVar("On")
Same = TypeVar("Same", bound="Matched")


@dataclass(frozen=True)
class Operand:
    """One of the two matrices.

    Attributes
    ----------
    name : str
    place : int
        Which read of the reduction it is.
    bytes : int
        Bytes of an element.
    turned : bool
        Whether it is stored with the axes in the other order: a[k, m] or b[n, k].
    """

    name: str
    place: int
    bytes: int
    turned: bool


@dataclass(frozen=True)
class Matched(Generic[On]):
    """A function that was found to be of a kind, and a machine.

    Attributes
    ----------
    func : tvm.tirx.PrimFunc
        Not scheduled.
    machine : Cpu or Gpu
    sizes : dict[str, int]
        By the letters of the pattern.
    dtype : str
        Type of the inputs.
    bits : int
        Type of a result before the epilogue.
    epilogue : Epilogue
    """

    func: tirx.PrimFunc
    machine: On
    sizes: dict[str, int]
    dtype: str
    bits: int
    epilogue: Epilogue

    def resized(self: Same, name: str, size: int) -> Same | None:
        """Return the problem with another size; it costs points, but its function stays."""
        if name not in self.sizes or size < 1:
            return None
        return replace(self, sizes={**self.sizes, name: size})

    def prepared(self) -> tuple[s_tir.Schedule, Any]:
        """Return a schedule of the function, prepared, and its reduction."""
        made = prepare(self.func)
        assert made is not None, "it was when the problem was found"
        return made


@dataclass(frozen=True)
class Product(Matched[On]):
    """A product of matrices: y[m, n] = epilogue(sum_k a[m, k] * b[k, n]).

    Attributes
    ----------
    a, b : Operand
    out_bytes : int
        Bytes of an element of y.
    """

    a: Operand
    b: Operand
    out_bytes: int
    kind: str = "product"


@dataclass(frozen=True)
class Rows(Matched[On]):
    """A reduction of rows: y[m] = epilogue(op_n x[m, n]).

    Attributes
    ----------
    bytes : int
        Bytes of an element of x.
    splits : bool
        Whether TVM knows how to reduce partial results.
    """

    bytes: int
    splits: bool
    kind: str = "rows"


def refuse_empty(func: tirx.PrimFunc) -> None:
    """Do nothing for a function with a reduction in which each axis has some elements.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc
        Any function; nothing is said of one without a reduction.

    Raises
    ------
    ValueError
        An axis has none: there is nothing to divide into tiles.

    Example
    -------
    >>> from fuse_epilogue.workloads import matmul
    >>> refuse_empty(matmul(8, 8, 8))
    """
    why = why_empty(func)
    if why and any(block.init is not None for block in child_blocks(func)):
        raise ValueError(why)


def match_product(func: tirx.PrimFunc, machine: Any, make: Callable[..., Found]) -> Found | None:
    """Return a product of matrices as a problem for any machine, None for another function.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc
        Not scheduled.
    machine : Any
        Description of it for the problem.
    make : Callable
        Makes the problem; it takes what :class:`Product` takes.

    Raises
    ------
    ValueError
        The function has a reduction, and an axis of size 0: see :func:`refuse_empty`.
    """
    refuse_empty(func)
    prepared = prepare(func)
    if prepared is None:
        return None
    sch, reduction = prepared
    block = sch.get(reduction)
    axes = [axis.var for axis in block.iter_vars]
    extents = [plain(axis.dom.extent) for axis in block.iter_vars]
    if len(axes) != 3 or not all(isinstance(extent, int) for extent in extents):
        return None
    if not _starts_at_zero(sch, reduction):
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
    reads = [region.source for region in block.reads]
    operands = []
    for side, axis in zip(sides, (m, n), strict=True):
        order = next((o for o in ((axis, k), (k, axis)) if _all(side.indices, o)), None)
        places = [at for at, source in enumerate(reads) if source.same_as(side.source)]
        if order is None or len(places) != 1:
            return None
        turned = order[0] is not (m if axis is m else k)
        bits = tvm.DataType(str(side.source.ty.dtype)).bits
        operands.append(Operand(str(side.source.name), places[0], bits // 8, turned))
    epilogue = find_epilogue(sch, reduction)
    if epilogue is None:
        return None
    last = sch.get(sch.get_child_blocks(sch.get_sblock("root"))[-1])
    out = tvm.DataType(str(last.body.buffer.ty.dtype)).bits // 8
    return make(
        func,
        machine,
        dict(zip("mnk", extents, strict=True)),
        str(sides[0].source.ty.dtype),
        int(tvm.DataType(str(term.ty.dtype)).bits),
        epilogue,
        operands[0],
        operands[1],
        out,
    )


def _starts_at_zero(sch: s_tir.Schedule, reduction: Any) -> bool:
    """Whether the loops of a reduction run from 0 over all of its axes; others TVM cannot split."""
    return all(
        plain(axis.dom.min) == plain(loop.min) == 0 and plain(axis.dom.extent) == plain(loop.extent)
        for axis, loop in zip(
            sch.get(reduction).iter_vars, map(sch.get, sch.get_loops(reduction)), strict=True
        )
    )


def _is(index: Any, var: Any) -> bool:
    return bool(index.same_as(var))


def _all(indices: Any, order: Any) -> bool:
    return len(indices) == len(order) and all(map(_is, indices, order))


def match_rows(func: tirx.PrimFunc, machine: Any, make: Callable[..., Found]) -> Found | None:
    """Return a reduction of rows as a problem for any machine, None for another function.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc
        Not scheduled.
    machine : Any
        Description of it for the problem.
    make : Callable
        Makes the problem; it takes what :class:`Rows` takes.

    Raises
    ------
    ValueError
        The function has a reduction, and an axis of size 0: see :func:`refuse_empty`.
    """
    refuse_empty(func)
    prepared = prepare(func)
    if prepared is None:
        return None
    sch, reduction = prepared
    block = sch.get(reduction)
    extents = [plain(axis.dom.extent) for axis in block.iter_vars]
    if len(extents) != 2 or not all(isinstance(extent, int) for extent in extents):
        return None
    if not _starts_at_zero(sch, reduction):
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
    epilogue = find_epilogue(sch, reduction)
    if epilogue is None:
        return None
    dtype = str(x.source.ty.dtype)
    return make(
        func,
        machine,
        dict(zip("mn", extents, strict=True)),
        dtype,
        int(tvm.DataType(str(store.value.ty.dtype)).bits),
        epilogue,
        int(tvm.DataType(dtype).bits) // 8,
        _splits(sch, reduction),
    )


def _splits(sch: s_tir.Schedule, reduction: Any) -> bool:
    """Return whether TVM knows the neutral element; of a max in floats it wants another one."""
    copy = sch.copy()
    try:
        copy.rfactor(copy.get_loops(reduction)[-1], 1)
    except s_tir.ScheduleError:
        return False
    return True
