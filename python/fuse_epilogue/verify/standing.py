"""Blocks that an epilogue comes behind, before as well as after: tails of an earlier call."""

from __future__ import annotations

from typing import Any

from ..tir_tree import handle, loads, same, substitute
from .between import conflicts, shared_loops
from .claim_domains import injective
from .domain import in_range, loop_domain
from .subject import Subject, is_unchanged, stored
from .tree import Block, Loose, accesses


def stays_ahead(subject: Subject, block: Block | Loose, epilogue: Block, h: dict[int, Any]) -> bool:
    """Whether all that an epilogue becomes still sees and overwrites what a block has left.

    The block comes first, before and after: as a whole, or in each iteration of the loops around
    both, and then what an iteration reads of it is what the same one has written. What the
    reduction took over of the epilogue does not matter to the block.

    Parameters
    ----------
    subject : Subject
        The blocks.
    block : Block or Loose
        One that the fusion leaves alone, of the function before or after.
    epilogue : Block
        One of the function before.
    h : dict[int, Expr]
        Its axes, by handle, in the reduction's.

    Returns
    -------
    bool
        False if it is not proved.
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


def _writes(
    subject: Subject, indices: Any, wanted: list[Any], around: dict[int, Any], own: list[Any]
) -> bool:
    """Whether an iteration of loops, with some of its own inside, writes an element."""
    values = dict(around)
    for loop in own:
        key = handle(loop.loop_var)
        places = [place for place, index in enumerate(indices) if same(index, loop.loop_var)]
        if not places:
            return False
        values[key] = wanted[places[0]]
        if not subject.elements.holds(in_range(values[key], loop.min, loop.extent)):
            return False
    return subject.elements.equal([substitute(index, values) for index in indices], wanted)
