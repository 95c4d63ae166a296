"""Loads that happen in the first iteration of a loop, and stay for the others.

    for i in range(4):                       for i in range(4):
        tile = load(b)                           if i == 0: tile = load(b)
        use(tile, i)           becomes           use(tile, i)

The tile must be the same in all iterations: the step is refused where it is not.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Range

from ...rewrites.step import NotRewritten
from ...tir.affine import as_constant, is_one_to_one
from ...tir.build import with_fields
from ...tir.nest import Nest, all_nests
from ...tir.walk import handle, loads, uses


def once(func: tirx.PrimFunc, block: str, loop: int) -> tirx.PrimFunc:
    """Let a block, and those that it alone reads, run in the first iteration of a loop only.

    Each gets a condition. The block gets an axis along the loop, too: what it stores belongs to all
    iterations.

    - `block`: its name; it does not depend on the loop.
    - `loop`: the place of the loop among those around the block, the outermost one is 0.
    - Returns: `func` itself if the loop has one iteration.
    - Raises NotRewritten: the loaded value differs in another iteration, or another block writes
      it.
    """
    nests = all_nests(func.body.block)
    own = [nest for nest in nests if _is_block(nest) and nest.realize.block.name_hint == block]
    if len(own) != 1 or not 0 <= loop < len(own[0].loops):
        raise NotRewritten(f"'{block}' has no loop {loop} around it")
    around = own[0].loops[loop]
    if as_constant(around.extent) == 1:
        return func
    if around.kind != tirx.ForKind.SERIAL or not isinstance(as_constant(around.extent), int):
        raise NotRewritten(
            f"loop '{around.loop_var.name}' is not serial, or its extent is not constant"
        )
    inside = [nest for nest in nests if any(each.same_as(around) for each in nest.loops)]
    if not all(map(_is_block, inside)):
        raise NotRewritten(f"loop '{around.loop_var.name}' contains statements other than blocks")
    group = _with_those_it_reads(own[0], inside)
    allocated = func.body.block.alloc_buffers
    for nest in group:
        why = _why_not(nest, around, group, nests) or _why_stale(nest, inside, allocated)
        if why is not None:
            raise NotRewritten(f"'{nest.realize.block.name_hint}' cannot run once: {why}")
    changed = {handle(nest.realize): nest is own[0] for nest in group}

    def first(realize: Any) -> Any:
        stays = changed.get(handle(realize))
        return realize if stays is None else _first(realize, around, stays)

    body = tvm_ffi.structural_map(func.body, (s_tir.SBlockRealize, first), order="pre")
    return func.with_body(body)


def _is_block(nest: Nest) -> bool:
    return isinstance(nest.realize, s_tir.SBlockRealize)


def _writes(nest: Nest, buffer: Any) -> bool:
    return any(region.source.same_as(buffer) for region in nest.realize.block.writes)


def _with_those_it_reads(own: Nest, inside: list[Nest]) -> list[Nest]:
    """Return a block and all in a loop that it depends on."""
    group = [own]
    for nest in group:
        for buffer in _read(nest):
            written = [each for each in inside if _writes(each, buffer)]
            group += [each for each in written if not any(each is known for known in group)]
    return group


def _read(nest: Nest) -> list[Any]:
    """Return the buffers that a block reads, declared or not."""
    block = nest.realize.block
    return [*(region.source for region in block.reads), *(load.source for load in loads(block))]


def _why_stale(nest: Nest, inside: list[Nest], allocated: Any) -> str | None:
    """Return why a block reads something else in a later iteration than in the first one."""
    place = next(at for at, each in enumerate(inside) if each is nest)
    for buffer in _read(nest):
        writers = [at for at, each in enumerate(inside) if _writes(each, buffer)]
        if any(at >= place for at in writers):
            return f"'{buffer.name}' is written after it"
        if writers and not any(buffer.same_as(each) for each in allocated):
            return f"'{buffer.name}', which it reads, has values before the loop"
    return None


def _why_not(nest: Nest, around: Any, group: list[Nest], nests: list[Nest]) -> str | None:
    """Return why a block of a group has to run in every iteration of a loop."""
    block, store = nest.realize.block, nest.realize.block.body
    bounds = [each for loop in nest.loops for each in (loop.min, loop.extent)]
    if any(uses(each, around.loop_var) for each in (nest.realize, *bounds)):
        return f"it depends on '{around.loop_var.name}'"
    if not isinstance(store, tirx.BufferStore) or uses(store.value, store.buffer):
        return "it does not compute element by element"
    # An axis that the store does not use is that of another loop in which it runs once.
    if not is_one_to_one(
        store.indices, [axis for axis in block.iter_vars if uses(store, axis.var)]
    ):
        return "it does not compute element by element"
    others = [each for each in nests if uses(each.realize, store.buffer) and each is not nest]
    if any(not _is_block(each) or _writes(each, store.buffer) for each in others):
        return f"others write '{store.buffer.name}', too"
    inner = [each for each in others if not any(each is member for member in group)]
    if nest is not group[0] and inner:
        return f"'{inner[0].realize.block.name_hint}' reads its results, too"
    return None


def _first(realize: Any, around: Any, stays: bool) -> Any:
    """Return a block with the condition that it is the first iteration of a loop."""
    block, condition = realize.block, tirx.all(realize.predicate, around.loop_var == around.min)
    if not stays:
        return with_fields(realize, predicate=condition)
    domain = Range.from_min_extent(around.min, around.extent)
    axis = tirx.IterVar(domain, tirx.Var("v_once", around.loop_var.ty), tirx.IterVar.CommReduce)
    again = with_fields(block, iter_vars=[*block.iter_vars, axis])
    return s_tir.SBlockRealize([*realize.iter_values, around.loop_var], condition, again)
