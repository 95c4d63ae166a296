"""Leaves out the elements of intermediates that are never read.

A causal convolution is often written with zeros on both sides and a slice of the result: the
columns after the slice are then computed in vain.

    for i in range(w + f - 1):  conv[i] = ...              for i in range(w):  conv[i] = ...
    for i in range(w):          y[i] = g(conv[i])          for i in range(w):  y[i] = g(conv[i])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, Range, Var
from tvm.sym import Analyzer

from ..tir.nest import all_nests, child_blocks
from ..tir.walk import handle, loads, operator_name, parts_of, same, substitute, uses, variables


def without_unread(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function whose intermediates end where they are last read.

    An intermediate gets the smallest sizes, counted from index 0, that its readers need, if one
    block with plain loops of its own writes it, an axis for an index. All others stay as they are.

    - `func`: not scheduled.
    - Returns: `func` itself if everything is read.
    """
    steps = _steps(func)
    extents: dict[int, Any] = {}
    buffers: dict[int, Any] = {}
    for step in reversed(steps):
        buffer = step.block.writes[0].source
        readers = [other for other in steps if other is not step and other.uses(buffer)]
        if not step.inner or any(other.writes(buffer) for other in readers):
            continue
        needed = [_needed(reader, buffer, extents) for reader in readers]
        shape = [_largest(sizes) for sizes in zip(*needed, strict=True)] if needed else []
        _shrink(step, shape, extents, buffers)
    return _rebuilt(func, extents, buffers) if extents else func


@dataclass
class _Step:
    """A block, the loops around nothing else, and whether it writes one intermediate alone."""

    block: Any
    loops: list[Any]
    values: list[Any]
    inner: bool

    def uses(self, buffer: Any) -> bool:
        return uses(self.block, buffer)

    def writes(self, buffer: Any) -> bool:
        return any(same(region.source, buffer) for region in self.block.writes)


def _steps(func: tirx.PrimFunc) -> list[_Step]:
    root = func.body.block
    allocated = {handle(buffer) for buffer in root.alloc_buffers}
    # A block in a condition is in none of these.
    blocks = [nest for nest in all_nests(root) if isinstance(nest.realize, s_tir.SBlockRealize)]
    in_loops = {handle(nest.realize.block): nest for nest in blocks}
    found = []
    for block in child_blocks(func):
        nest = in_loops.get(handle(block))
        inner = len(block.writes) == 1 and handle(block.writes[0].source) in allocated
        if nest is None:
            found.append(_Step(block, [], [], False))
        else:
            loops = _own(list(nest.loops), nest.realize)
            found.append(_Step(block, loops, list(nest.realize.iter_values), inner))
    return found


def _own(loops: list[Any], realize: Any) -> list[Any]:
    """Return those of the loops around a block that are around nothing else."""
    inside = realize
    for place, loop in reversed(list(enumerate(loops))):
        if not loop.body.same_as(inside):
            return loops[place + 1 :]
        inside = loop
    return loops


def _needed(reader: _Step, buffer: Any, extents: dict[int, Any]) -> list[Any]:
    """Return the sizes of a buffer that a block needs, None where that is not known."""
    if _takes_address(reader.block, buffer):
        return [None] * len(buffer.ty.shape)
    axes = {handle(axis.var): axis for axis in reader.block.iter_vars}
    sizes: list[list[Any]] = [[] for _ in buffer.ty.shape]
    for load in loads(reader.block):
        if not same(load.source, buffer):
            continue
        for place, index in enumerate(load.indices):
            sizes[place].append(_end(index, axes, extents))
    return [_largest(each) for each in sizes]


def _takes_address(block: Any, buffer: Any) -> bool:
    """Whether a block reads a buffer in ways that its loads do not tell."""
    calls = parts_of(block, Call)
    names = ("tirx.address_of", "tirx.tvm_access_ptr")
    opaque = [call for call in calls if operator_name(call) in names]
    return bool(block.match_buffers) or any(uses(call, buffer) for call in opaque)


def _end(index: Any, axes: dict[int, Any], extents: dict[int, Any]) -> Any:
    """Return what an index is always less than: one more than at the ends of its axes, or None."""
    analyzer = Analyzer()
    terms = variables(index)
    table = {}
    for var in terms:
        axis = axes.get(handle(var))
        if axis is None or not analyzer.can_prove_equal(axis.dom.min, 0):
            return None
        table[handle(var)] = extents.get(handle(var), axis.dom.extent) - 1
    for var in terms:
        # Not decreasing in any of its variables, or its end is somewhere else.
        if not analyzer.can_prove(substitute(index, {var: var + 1}) - index >= 0):
            return None
    last = substitute(index, table)
    return analyzer.simplify(last + 1)


def _largest(sizes: Any) -> Any:
    """Return the largest of some sizes, None if one of them, or which is largest, is not known."""
    analyzer = Analyzer()
    best = None
    for size in sizes:
        if size is None:
            return None
        if best is None or analyzer.can_prove(size >= best):
            best = size
        elif not analyzer.can_prove(size <= best):
            return None
    return best


def _shrink(
    step: _Step, shape: list[Any], extents: dict[int, Any], buffers: dict[int, Any]
) -> None:
    """Give the axes of a block that write an intermediate the extents that are needed."""
    buffer = step.block.writes[0].source
    axes = {handle(axis.var): place for place, axis in enumerate(step.block.iter_vars)}
    loops = {handle(loop.loop_var): loop for loop in step.loops}
    stores = parts_of(step.block, tirx.BufferStore)
    analyzer = Analyzer()
    smaller = list(buffer.ty.shape)
    changed = {}
    for place, size in enumerate(shape):
        index = stores[0].indices[place]
        if size is None or not analyzer.can_prove(size < smaller[place]):
            continue
        same = all(store.indices[place].same_as(index) for store in stores)
        axis = axes.get(handle(index)) if same else None
        loop = loops.get(handle(step.values[axis])) if axis is not None else None
        if loop is None or not analyzer.can_prove_equal(loop.extent, smaller[place]):
            continue
        smaller[place] = size
        changed[handle(index)] = changed[handle(loop.loop_var)] = size
    if changed:
        extents.update(changed)
        buffers[handle(buffer)] = tirx.decl_buffer(
            smaller, buffer.ty.dtype, buffer.name, scope=buffer.ty.storage_scope
        )


def _rebuilt(
    func: tirx.PrimFunc, extents: dict[int, Any], buffers: dict[int, Any]
) -> tirx.PrimFunc:
    def loop(node: Any) -> Any:
        size = extents.get(handle(node.loop_var))
        if size is None:
            return node
        return tirx.For(node.loop_var, node.min, size, node.kind, node.body, None, node.annotations)

    def axis(node: Any) -> Any:
        size = extents.get(handle(node.var))
        if size is None:
            return node
        return tirx.IterVar(
            Range.from_min_extent(node.dom.min, size), node.var, node.iter_type, node.thread_tag
        )

    rules = [
        (tirx.For, loop),
        (tirx.IterVar, axis),
        (Var, lambda var: buffers.get(handle(var), var)),
    ]
    return func.with_body(tvm_ffi.structural_map(func.body, rules))
