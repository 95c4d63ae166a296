"""What a fused convolution computes for one element, read off the blocks that fusing left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad

from .convolution import DepthwiseConv, find_depthwise_conv, plain
from .trees import loads, replace, substitute


@dataclass(frozen=True)
class FusedConv:
    """A convolution with its epilogue, for one element of the result, in the axes of `conv`.

    Attributes
    ----------
    conv : DepthwiseConv
    start : Expr
        What the sum starts with: the value of T.init.
    sum : tvm.ir.Var
        Stands for the finished sum in `result`.
    result : Expr
        What is stored.
    buffer : tvm.ir.Var
        Where it is stored.
    indices : tuple[Expr, ...]
        At which element.
    """

    conv: DepthwiseConv
    start: Any
    sum: Any
    result: Any
    buffer: Any
    indices: tuple[Any, ...]

    @property
    def reads(self) -> list[Any]:
        """Every load, but for those of the accumulator."""
        return [load for expr in (self.start, self.conv.term, self.result) for load in loads(expr)]


def find_fused_conv(sch: s_tir.Schedule, conv: Any) -> FusedConv | None:
    """Return what a function computes that is a convolution, alone or with one tail.

    Parameters
    ----------
    sch : tvm.s_tir.Schedule
        Prepared and fused, see :mod:`fuse_epilogue.schedules.prepare`; no loop was scheduled.
    conv : SBlockRV
        The reduction.

    Returns
    -------
    FusedConv or None
        None if there are other blocks too, or the tail does not have the form of one.
    """
    block = sch.get(conv)
    found = find_depthwise_conv(block)
    blocks = [sch.get(rv) for rv in sch.get_child_blocks(sch.get_sblock("root"))]
    if found is None or len(blocks) > 2 or not blocks[0].same_as(block):
        return None
    total = tirx.Var("sum", found.out.ty)
    start, store = block.init, block.body
    if not isinstance(start, tirx.BufferStore):
        return None
    if len(blocks) == 1:
        return FusedConv(found, start.value, total, total, store.buffer, tuple(store.indices))
    tail = blocks[1].body
    if not isinstance(tail, tirx.BufferStore):
        return None
    own = [load for load in loads(tail.value) if load.source.same_as(store.buffer)]
    if not own or len(own[0].indices) != len(store.indices):
        return None
    axes = _axes(blocks[1], own[0].indices, store.indices)
    if axes is None:
        return None
    result = replace(
        tail.value,
        TensorLoad,
        lambda load: total if load.source.same_as(store.buffer) else load,
    )
    return FusedConv(
        found,
        start.value,
        total,
        substitute(result, axes),
        tail.buffer,
        tuple(substitute(index, axes) for index in tail.indices),
    )


def _axes(tail: Any, own: Any, elements: Any) -> dict[Any, Any] | None:
    """Return the axes of a tail in those of the convolution: both name the element they are at."""
    axes = {axis.var: axis.dom.min for axis in tail.iter_vars if plain(axis.dom.extent) == 1}
    for index, element in zip(own, elements, strict=True):
        if isinstance(index, tirx.Var):
            axes[index] = element
        elif not tvm_ffi.structural_equal(index, element):
            return None
    return axes if all(axis.var in axes for axis in tail.iter_vars) else None
