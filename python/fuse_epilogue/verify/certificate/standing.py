"""Blocks that an epilogue follows, before as well as after: tails of an earlier call."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import prim

from ...tir.walk import handle, loads, same, substitute, variables
from ..proof.domain import Domain, block_axes, in_range, loop_domain
from .between import conflicts, shared_loops
from .claim_domains import injective
from .subject import Subject, is_unchanged, stored
from .tree import Block, Loose, accesses


def stays_ahead(subject: Subject, block: Block | Loose, epilogue: Block, h: dict[int, Any]) -> bool:
    """Whether all that an epilogue becomes still sees and overwrites what a block has left.

    The block comes first, before and after: as a whole, or in each iteration of the loops around
    both, and then what an iteration reads of it is what the same one has written. The part of the
    epilogue that the reduction absorbed does not matter to the block.

    - `subject`: the blocks.
    - `block`: one that the fusion leaves alone, of the function before or after.
    - `epilogue`: one of the function before.
    - `h` (dict[int, Expr]): its axes, by handle, in the reduction's.
    - Returns: False if it is not proved.
    """
    if not isinstance(block, Block) or not subject.tails:
        return False
    found = [tree.named(block.name) for tree in subject.trees]
    if [len(blocks) for blocks in found] != [1, 1]:
        return False
    before, after = found[0][0], found[1][0]
    if not before.leaf or not same(before.scope.block, subject.reduction.scope.block):
        return False
    places = [(before, epilogue, h)]
    used = conflicts(epilogue.touched(), before)
    for tail in subject.tails:
        if any(key in used for key in conflicts(tail.touched(), after)):
            places.append((after, tail, subject.after_to_before(tail, subject.spatial, "order")))
    certificate = subject.certificate
    unchanged = is_unchanged(certificate) and same(certificate.result, certificate.accumulator)
    taken = conflicts(subject.reduction_after.touched(), after)
    if not unchanged and any(key in taken for key in used):
        return False
    return all(
        first.place < last.place
        and (not shared_loops(first, last) or _element_by_element(subject, first, last, axes))
        for first, last, axes in places
    )


def reads_later(subject: Subject, block: Block | Loose, place: int) -> bool:
    """Whether a block still reads what an epilogue has written, now that all of it comes first.

    The block comes after the epilogue in each iteration of the loops around both, and reads only
    what the same iteration has written: a copy of a tile, for example. The epilogue writes each
    element once; so it does not matter if the other iterations have written theirs, too.

    - `subject`: the blocks.
    - `block`: one that the fusion leaves alone, of the function before.
    - `place`: the place of the epilogue in the certificate.
    - Returns: False if it is not proved.
    """
    epilogue, proof = subject.epilogues[place], subject.certificate.epilogues[place]
    if not isinstance(block, Block) or not block.leaf or block.block.match_buffers:
        return False
    found = [tree.named(block.name) for tree in subject.trees]
    if [len(blocks) for blocks in found] != [1, 1] or epilogue.place > block.place:
        return False
    made = stored(epilogue.block.body, "order")
    target = handle(made.buffer)
    # It reads the output of the epilogue, and neither writes anything else that the other uses.
    used = set(conflicts(epilogue.touched(), block))
    if used != {target} or target in block.touched().writes:
        return False
    writers = [
        writer
        for writer in (subject.reduction_after, *subject.tails)
        if target in writer.touched().writes
    ]
    later = found[1][0]
    if any(shared_loops(writer, later) or writer.place > later.place for writer in writers):
        return False
    return _same_iteration(subject, epilogue, block, made.indices, proof)


def _same_iteration(
    subject: Subject, epilogue: Block, block: Block, indices: Any, proof: Any
) -> bool:
    """Whether every element that a block reads was written in its iteration of shared loops."""
    places = {handle(index): place for place, index in enumerate(indices)}
    if len(places) != len(indices) or set(places) != {handle(axis) for axis in proof.axes}:
        return False
    target = stored(epilogue.block.body, "order").buffer
    axes = {
        handle(axis.var): value
        for axis, value in zip(block.block.iter_vars, block.realize.iter_values, strict=True)
    }
    inner: list[Any] = []
    tvm_ffi.structural_walk(block.block.body, (tirx.For, inner.append))
    ranges = [(loop.loop_var, loop.min, loop.extent) for loop in block.loops]
    ranges += [
        (loop.loop_var, substitute(loop.min, axes), substitute(loop.extent, axes)) for loop in inner
    ]
    domain = Domain(ranges, block.realize.predicate, subject.sizes)
    shared = {handle(loop.loop_var): loop.loop_var for loop in shared_loops(epilogue, block)}
    inverse = {handle(var): back for var, back in zip(proof.loops, proof.inverse, strict=True)}
    for load in [*loads(block.block.init), *loads(block.block.body)]:
        if not same(load.source, target):
            continue
        element = [substitute(index, axes) for index in load.indices]
        at = {handle(axis): element[places[handle(axis)]] for axis in proof.axes}
        for axis, start, extent in block_axes(epilogue.block):
            if not domain.holds(in_range(at[handle(axis)], start, extent)):
                return False
        for key, var in shared.items():
            if not domain.equal([substitute(inverse[key], at)], [var]):
                return False
    return True


def _element_by_element(
    subject: Subject, block: Block, reader: Block, to_elements: dict[int, Any]
) -> bool:
    """Whether a block reads only what the same iteration of the loops around both has written."""
    if block.block.init is not None:
        return False
    # The loops around the reduction are the same ones before and after.
    inverse = {
        handle(loop.loop_var): substitute(value, subject.first_step)
        for loop, value in zip(subject.reduction.loops, subject.certificate.inverse, strict=True)
    }
    axes = {
        handle(axis.var): value
        for axis, value in zip(block.block.iter_vars, block.realize.iter_values, strict=True)
    }
    made = stored(block.block.body, "order").moved(axes)
    used = accesses(block.block.body, *block.realize.iter_values, block.realize.predicate)
    mine = accesses(reader.block.body, *reader.realize.iter_values, reader.realize.predicate)
    if any(key in used.reads or key in used.writes for key in mine.writes):
        return False
    # Two iterations do not write one element; so the one that reads it has to be found.
    if not injective(loop_domain(block.loops, None, subject.sizes), made.indices):
        return False
    shared = {handle(loop.loop_var) for loop in shared_loops(block, reader)}
    if not shared <= set(inverse):
        return False
    own = [loop for loop in block.loops if handle(loop.loop_var) not in shared]
    around = {key: inverse[key] for key in shared}
    wanted = [
        [substitute(index, to_elements) for index in load.indices]
        for load in loads(reader.block.body)
        if same(load.source, made.buffer)
    ]
    return all(_writes(subject, made.indices, element, around, own) for element in wanted)


def _iteration(
    subject: Subject, loop: Any, indices: Any, wanted: list[Any], values: dict[int, Any]
) -> Any:
    """Guess in which iteration of a loop indices are the wanted ones; None if none uses it.

    The index is taken to be linear: what is missing is divided by the step of an iteration. The
    caller proves that it is right.
    """
    key = handle(loop.loop_var)
    for index, value in zip(indices, wanted, strict=True):
        if key not in {handle(var) for var in variables(index)}:
            continue
        if not index.ty.dtype == value.ty.dtype == loop.loop_var.ty.dtype:
            continue
        start = substitute(index, values)
        second = prim.Add(loop.min, prim.IntImm(loop.min.ty.dtype, 1))
        next_one = substitute(index, values | {key: second})
        step = subject.elements.simplify(prim.Sub(next_one, start))
        if not isinstance(step, prim.IntImm) or int(step.value) <= 0:
            continue
        return prim.Add(loop.min, prim.FloorDiv(prim.Sub(value, start), step))
    return None


def _writes(
    subject: Subject, indices: Any, wanted: list[Any], around: dict[int, Any], own: list[Any]
) -> bool:
    """Whether an iteration of loops, with some of its own inside, writes an element."""
    # The first iteration of the loops inside; then each of them in its turn.
    values = around | {handle(loop.loop_var): loop.min for loop in own}
    for loop in own:
        key = handle(loop.loop_var)
        value = _iteration(subject, loop, indices, wanted, values)
        if value is None:
            return False
        values[key] = value
        if not subject.elements.holds(in_range(values[key], loop.min, loop.extent)):
            return False
    return subject.elements.equal([substitute(index, values) for index in indices], wanted)
