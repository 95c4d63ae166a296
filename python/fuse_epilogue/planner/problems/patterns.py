"""Finds products, reductions of rows and convolutions in functions, for any machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from tvm import s_tir, tirx

from ...recognize.depthwise import DepthwiseConv, find_depthwise_conv
from ...recognize.product import Operand, matrix_product
from ...recognize.row_reduction import row_reduction
from ...rewrites.epilogue import NONE, Epilogue
from ...rewrites.prepare import why_empty
from ...tir.affine import as_constant
from ...tir.nest import child_blocks
from ...tir.types import bits_of
from .request import Request
from .space import Points

Found = TypeVar("Found")
On = TypeVar("On")
Same = TypeVar("Same", bound="Matched")


@dataclass(frozen=True)
class Matched(Generic[On]):
    """A function that was found to be of a kind, and a machine.

    - `request`: the function, not scheduled.
    - `sizes`: by the letters of the pattern.
    - `dtype`: type of the inputs.
    - `bits`: type of a result before the epilogue.
    """

    exact_costs: ClassVar[None] = None

    request: Request
    machine: On
    sizes: dict[str, int]
    dtype: str
    bits: int
    epilogue: Epilogue

    @property
    def func(self) -> tirx.PrimFunc:
        """The function, not scheduled."""
        return self.request.func

    @property
    def missing(self) -> tuple[str, ...]:
        """Choices that the space lacks, each with the reason."""
        return ()

    def resized(self: Same, name: str, size: int) -> Same | None:
        """Return the problem with another size; it costs points, but its function stays."""
        if name not in self.sizes or size < 1:
            return None
        return replace(self, sizes={**self.sizes, name: size})


@dataclass(frozen=True)
class Product(Matched[On]):
    """A product of matrices: y[m, n] = epilogue(sum_k a[m, k] * b[k, n]).

    - `out_bytes`: bytes of an element of y.
    """

    a: Operand
    b: Operand
    out_bytes: int
    kind: str = "product"

    def stored_bytes(self, points: Points) -> Any:
        """Return the bytes of an element that the kernel of the sums stores, for each point."""
        fused = (points["fusion"] != NONE) | (self.epilogue.blocks == 0)
        return np.where(fused, self.out_bytes, self.bits // 8)


@dataclass(frozen=True)
class Rows(Matched[On]):
    """A reduction of rows: y[m] = epilogue(op_n x[m, n]).

    - `bytes`: bytes of an element of x.
    - `splits`: whether TVM knows how to reduce partial results.
    """

    bytes: int
    splits: bool
    kind: str = "rows"


@dataclass(frozen=True)
class Conv(Matched[On]):
    """A depthwise convolution: y[.., i] = epilogue(sum_f x[.., i + f - left] * weight[.., f]).

    Its sizes are "rows", images times channels, "columns" of the result and "taps".

    - `bytes`, `out_bytes`: bytes of an element of x and of y.
    """

    bytes: int
    out_bytes: int


def refuse_empty(func: tirx.PrimFunc) -> None:
    """Do nothing for a function with a reduction in which each axis has some elements.

    - `func`: any function; nothing is said of one without a reduction.
    - Raises ValueError: an axis has none: there is nothing to divide into tiles.
    """
    why = why_empty(func)
    if why and any(block.init is not None for block in child_blocks(func)):
        raise ValueError(why)


def match_reduction(
    request: Request, recognize: Callable[[Any], Any]
) -> tuple[s_tir.Schedule, Any, Any] | None:
    """Return a function prepared, its reduction and what that is, None if it is something else.

    - `recognize`: returns what the block of a reduction computes, None if it is something else.
    - Raises ValueError: the function has a reduction, and an axis of size 0: see
      :func:`refuse_empty`.
    """
    refuse_empty(request.func)
    prepared = request.prepared()
    if prepared is None:
        return None
    sch, reduction = prepared
    found = recognize(sch.get(reduction))
    if found is None or not _starts_at_zero(sch, reduction) or request.epilogue is None:
        return None
    return sch, reduction, found


def match_conv(
    request: Request,
) -> tuple[s_tir.Schedule, Any, DepthwiseConv, dict[str, Any]] | None:
    """Return a function prepared, its convolution, what that is, and the fields of a :class:`Conv`.

    None for another function, and where a size is not constant.

    - Raises ValueError: the function has a reduction, and an axis of size 0: see
      :func:`refuse_empty`.
    """
    refuse_empty(request.func)
    prepared = request.prepared()
    if prepared is None:
        return None
    sch, conv = prepared
    found = find_depthwise_conv(sch.get(conv))
    if found is None or request.epilogue is None:
        return None
    outer = [as_constant(axis.dom.extent) for axis in found.outer]
    if not all(isinstance(size, int) for size in (*outer, found.columns, found.width)):
        return None
    last = sch.get(sch.get_child_blocks(sch.get_sblock("root"))[-1])
    fields = {
        "request": request,
        "machine": request.machine,
        "sizes": {"rows": prod(outer), "columns": found.columns, "taps": found.taps},
        "dtype": str(found.data.source.ty.dtype),
        "bits": bits_of(found.out.ty.dtype),
        "epilogue": request.epilogue,
        "bytes": bits_of(found.data.source.ty.dtype) // 8,
        "out_bytes": bits_of(last.writes[0].source.ty.dtype) // 8,
    }
    return sch, conv, found, fields


def match_product(request: Request, make: Callable[..., Found]) -> Found | None:
    """Return a product of matrices as a problem for any machine, None for another function.

    - `make`: makes the problem; it takes what :class:`Product` takes.
    - Raises ValueError: the function has a reduction, and an axis of size 0: see
      :func:`refuse_empty`.
    """
    matched = match_reduction(request, matrix_product)
    if matched is None:
        return None
    sch, _, found = matched
    last = sch.get(sch.get_child_blocks(sch.get_sblock("root"))[-1])
    out = bits_of(last.body.buffer.ty.dtype) // 8
    return make(*fields_of(request, found), found.a, found.b, out)


def fields_of(request: Request, found: Any) -> tuple[Any, ...]:
    """Return the fields of a :class:`Matched`, in their order."""
    machine, epilogue = request.machine, request.epilogue
    return request, machine, found.sizes, found.dtype, found.bits, epilogue


def _starts_at_zero(sch: s_tir.Schedule, reduction: Any) -> bool:
    """Whether the loops of a reduction run from 0 over all of its axes; others TVM cannot split."""
    return all(
        as_constant(axis.dom.min) == as_constant(loop.min) == 0
        and as_constant(axis.dom.extent) == as_constant(loop.extent)
        for axis, loop in zip(
            sch.get(reduction).iter_vars, map(sch.get, sch.get_loops(reduction)), strict=True
        )
    )


def match_rows(request: Request, make: Callable[..., Found]) -> Found | None:
    """Return a reduction of rows as a problem for any machine, None for another function.

    - `make`: makes the problem; it takes what :class:`Rows` takes.
    - Raises ValueError: the function has a reduction, and an axis of size 0: see
      :func:`refuse_empty`.
    """
    matched = match_reduction(request, row_reduction)
    if matched is None:
        return None
    sch, reduction, found = matched
    size = bits_of(found.dtype) // 8
    return make(*fields_of(request, found), size, _splits(sch, reduction))


def _splits(sch: s_tir.Schedule, reduction: Any) -> bool:
    """Return whether TVM knows the neutral element; of a max in floats it wants another one."""
    copy = sch.copy()
    try:
        copy.rfactor(copy.get_loops(reduction)[-1], 1)
    except s_tir.ScheduleError:
        return False
    return True
