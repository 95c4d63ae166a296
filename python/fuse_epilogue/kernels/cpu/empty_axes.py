"""Functions of axes whose size has a name, made right for a size of 0.

TVM writes the first value of a reduction in the pass over its first element: a reduction of no
elements would leave its result as the memory was. Here the first values have loops of their own:

    for i:                                    for i:
        for k in b:              becomes          y[i] = 0
            if k == 0: y[i] = 0                   for k in b:
            y[i] += x[k, i]                           y[i] += x[k, i]

Scans and sorts, which TVM writes as loops without blocks, read a first element too; they run only
if there is one.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.tirx.buffer import BufferType

from ...tir.build import with_fields
from ...tir.walk import handle, variables


def for_empty_axes(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function that is right where an axis of its arrays has no elements.

    - `func`: scheduled or not; stays as it is, and is returned itself if all of its sizes are
      constant.
    """
    shapes = [param.shape for param in func.params if isinstance(param.ty, BufferType)]
    if all(isinstance(size, tirx.IntImm) for shape in shapes for size in shape):
        return func
    if not isinstance(func.body, s_tir.SBlockRealize):
        return func
    if _realized(func.body.block.body):
        return _with_separate_inits(func)
    return _if_not_empty(func, shapes)


def _realized(body: Any) -> list[Any]:
    """Return the blocks in a statement."""
    found: list[Any] = []
    tvm_ffi.structural_walk(body, (s_tir.SBlockRealize, found.append))
    return found


def _with_separate_inits(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function in which open axes are reduced after loops that write the first values."""
    open_axes = {
        str(realize.block.name_hint): reduced
        for realize in _realized(func.body.block.body)
        if realize.block.init is not None and (reduced := _open_reduction(realize))
    }
    if not open_axes:
        return func
    schedule = s_tir.Schedule(tvm.IRModule({"main": func}))
    for name, reduced in open_axes.items():
        block = schedule.get_sblock(name)
        loops = schedule.get_loops(block)
        found = [each for each in loops if handle(schedule.get(each).loop_var) in reduced]
        schedule.decompose_reduction(block, found[0])
    return func.with_body(schedule.mod["main"].body)


def _open_reduction(realize: Any) -> set[Any]:
    """Return the loop variables of the axes that a block reduces, if the size of one has a name."""
    reduced = [
        (axis.dom.extent, value)
        for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
        if int(axis.iter_type) == tirx.IterVar.CommReduce
    ]
    if all(isinstance(size, tirx.IntImm) for size, _ in reduced):
        return set()
    return {handle(each) for _, value in reduced for each in variables(value)}


def _if_not_empty(func: tirx.PrimFunc, shapes: list[Any]) -> tirx.PrimFunc:
    """Return a function that does nothing where none of its arrays has an element."""
    open_sizes = [
        {handle(size): size for size in shape if isinstance(size, tirx.Var)} for shape in shapes
    ]
    common = set.intersection(*(set(each) for each in open_sizes))
    if not common:
        return func
    conditions = [open_sizes[0][each] > 0 for each in open_sizes[0] if each in common]
    root = func.body.block
    body = tirx.IfThenElse(tirx.all(*conditions), root.body, None)
    return func.with_body(with_fields(func.body, block=with_fields(root, body=body)))
