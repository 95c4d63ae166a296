"""The result of a fused convolution for one element, read from the blocks that fusing left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.sym import Analyzer

from ..recognize.depthwise import DepthwiseConv, find_depthwise_conv
from ..tir.affine import is_one_to_one, unit_axes
from ..tir.build import replace
from ..tir.nest import child_blocks, nests
from ..tir.walk import handle, loads, substitute, uses


@dataclass(frozen=True)
class Fused:
    """A reduction with its epilogue, for one element of the result, in the reduction's axes.

    - `start` (Expr): what the sum starts with: the value of T.init.
    - `sum` (tvm.ir.Var): stands for the finished sum in `result`.
    - `result` (Expr): the value that is stored.
    - `buffer` (tvm.ir.Var): where it is stored.
    - `indices`: at which element.
    """

    start: Any
    sum: Any
    result: Any
    buffer: Any
    indices: tuple[Any, ...]

    def at(self, values: Mapping[Any, Any]) -> Fused:
        """Return the same with values for some axes."""
        return Fused(
            self.start if self.start is None else substitute(self.start, values),
            self.sum,
            substitute(self.result, values),
            self.buffer,
            tuple(substitute(index, values) for index in self.indices),
        )


@dataclass(frozen=True)
class FusedConv:
    """A convolution with its epilogue, for one element of the result, in the axes of `conv`.

    - `start`, `sum`, `result`, `buffer`, `indices`: as of :class:`Fused`.
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


def fuse_followers(sch: s_tir.Schedule, conv: Any) -> None:
    """Fuse what follows a convolution, if anything does.

    - `conv` (SBlockRV): the reduction.
    - Raises tvm.s_tir.ScheduleError: the epilogue is not fusable.
    """
    # Not `sch.get_consumers`: as a step of the trace it would ask for that many of them.
    block = sch.get(conv)
    results = [region.source for region in block.writes]
    others = [each for each in child_blocks(sch.mod["main"]) if not each.same_as(block)]
    if not any(uses(each, *results) for each in others):
        return
    sch.fuse_reduction_epilogue(conv)


def find_fused_conv(sch: s_tir.Schedule, conv: Any) -> FusedConv | None:
    """Return what a function computes that is a convolution, alone or with one tail.

    - `sch`: prepared and fused, see :mod:`fuse_epilogue.rewrites.prepare`; no loop was scheduled.
    - `conv` (SBlockRV): the reduction.
    - Returns: None if there are other blocks too, or the tail does not have the form of one.
    """
    found = find_depthwise_conv(sch.get(conv))
    if found is None:
        return None
    fused = find_fused(sch, conv, [found.column, *found.outer])
    if fused is None:
        return None
    return FusedConv(found, fused.start, fused.sum, fused.result, fused.buffer, fused.indices)


def find_fused(sch: s_tir.Schedule, reduction: Any, spatial: Sequence[Any]) -> Fused | None:
    """Return what a function computes that is one reduction, alone or with one tail.

    - `sch`: prepared and fused, see :mod:`fuse_epilogue.rewrites.prepare`; no loop was scheduled.
    - `reduction` (SBlockRV): its body is one store.
    - `spatial`: the axes of its result.
    - Returns: None if there are other blocks too, or the tail does not have the form of one.
    """
    block, root = sch.get(reduction), sch.mod["main"].body.block
    blocks = child_blocks(sch.mod["main"])
    everything = nests(root)
    if len(blocks) > 2 or not blocks[0].same_as(block):
        return None
    if len(everything) != len(blocks) or any(nest is None for nest in everything):
        return None
    start, store = block.init, block.body
    if not isinstance(start, tirx.BufferStore) or not isinstance(store, tirx.BufferStore):
        return None
    total = tirx.Var("sum", store.value.ty)
    if len(blocks) == 1:
        return Fused(start.value, total, total, store.buffer, tuple(store.indices))
    tail = blocks[1].body
    inner = {handle(buffer) for buffer in root.alloc_buffers}
    if not isinstance(tail, tirx.BufferStore) or handle(store.buffer) not in inner:
        return None
    # Of an axis with one value, some loads may name the axis and others the value.
    value = substitute(tail.value, unit_axes(blocks[1]))
    elements = [substitute(index, unit_axes(block)) for index in store.indices]
    own = [load for load in loads(value) if load.source.same_as(store.buffer)]
    if not own or any(uses(index, store.buffer) for index in tail.indices):
        return None
    first = own[0].indices
    if not all(tvm_ffi.structural_equal(load.indices, first) for load in own):
        return None
    axes = _axes(blocks[1], first, elements, block)
    if axes is None:
        return None
    indices = tuple(substitute(index, axes) for index in tail.indices)
    if not is_one_to_one(indices, spatial):
        return None
    result = replace(
        value, TensorLoad, lambda load: total if load.source.same_as(store.buffer) else load
    )
    return Fused(start.value, total, substitute(result, axes), tail.buffer, indices)


def _axes(tail: Any, own: Any, elements: Any, block: Any) -> dict[Any, Any] | None:
    """Return the axes of a tail in those of the convolution: both name the element they are at.

    None if there is not one element of the tail for each one of the convolution.
    """
    axes = unit_axes(tail)
    extents = {handle(axis.var): axis.dom.extent for axis in (*block.iter_vars, *tail.iter_vars)}
    same = Analyzer().can_prove_equal
    matched: set[int] = set()
    for index, element in zip(own, elements, strict=True):
        if not isinstance(index, tirx.Var):
            if not tvm_ffi.structural_equal(index, element):
                return None
        elif handle(index) in matched or handle(index) not in extents:
            return None
        elif not same(extents[handle(index)], extents.get(handle(element), 1)):
            return None
        else:
            matched.add(handle(index))
            axes[index] = element
    return axes if all(axis.var in axes for axis in tail.iter_vars) else None
