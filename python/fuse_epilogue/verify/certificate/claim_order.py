"""Whether moving epilogues up to their reduction changes what anybody sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import s_tir
from tvm.ir import Var, prim
from tvm.tirx import ForKind

from ...tir.walk import handle, same, substitute, variables
from ..proof.domain import Domain, loop_domain, one_to_one
from .between import conflicts, shared_loops
from .standing import reads_later, stays_ahead
from .subject import SPATIAL, CertificateError, Subject, demand
from .tree import Block, Loose


def check_order(subject: Subject) -> None:
    """Prove that every epilogue sees the same and is seen the same at its new place.

    - Raises CertificateError: naming order.
    """
    _check_names(subject)
    certificate = subject.certificate
    left = [subject.reduction_after, *subject.tails]
    rest = subject.trees[1].besides(left)
    # What comes between the reduction and a tail, with the buffers that both use.
    beside = [
        (block, set(conflicts(tail.touched(), block)))
        for tail in subject.tails
        for block in crossed(rest, left[0], tail)
    ]
    for place, epilogue in enumerate(subject.epilogues):
        moved = epilogue.touched()
        h = _at(certificate.epilogues[place])
        over = [(block, None) for block in crossed(subject.others, subject.reduction, epilogue)]
        for block, shared in [*over, *beside]:
            used = conflicts(moved, block)
            matters = [var for key, var in used.items() if shared is None or key in shared]
            demand(
                not matters
                or stays_ahead(subject, block, epilogue, h)
                or reads_later(subject, block, place),
                "order",
                f"'{epilogue.name}' moves over '{block.name}', and both use "
                f"'{matters[0].name if matters else ''}'",
            )
    _check_steps(subject)


def _check_names(subject: Subject) -> None:
    """Prove that no memory of the fused blocks that is written has two names: a view and its own.

    Blocks around the reduction take such views.
    """
    views = {
        handle(view.buffer): handle(view.source.source)
        for node in subject.reduction.around
        if isinstance(node, s_tir.SBlockRealize)
        for view in node.block.match_buffers
    }
    if not views:
        return
    scope = subject.reduction.scope
    inside = [piece for piece in subject.others if any(same(scope, node) for node in piece.around)]
    names: dict[int, set[int]] = {}
    written: set[int] = set()
    for piece in (*subject.fused, *inside):
        used = piece.touched()
        for name in (*used.reads, *used.writes):
            memory = name
            while memory in views:
                memory = views[memory]
            names.setdefault(memory, set()).add(name)
            if name in used.writes:
                written.add(memory)
    touched = [block.touched() for block in subject.fused]
    fused = {key for each in touched for key in (*each.reads, *each.writes)}
    one = all(len(names[memory]) == 1 or not names[memory] & fused for memory in written)
    demand(one, "order", "a block around takes a view of a buffer, which then has two names")


def _check_steps(subject: Subject) -> None:
    """Prove that an element is finished in one block before another block's instance of it runs.

    In loops around several blocks, all must run an element in the same iteration: that of the
    first of them.
    """
    certificate = subject.certificate
    iterations: dict[int, tuple[Block, Any]] = {
        handle(loop.loop_var): (
            subject.reduction,
            _inverse_of(loop, certificate.loops, certificate.inverse),
        )
        for loop in subject.reduction.loops
    }
    earlier = subject.reduction
    for place in subject.in_order:
        later, proof = subject.epilogues[place], certificate.epilogues[place]
        demand(earlier.place < later.place, "order", f"'{later.name}' runs before '{earlier.name}'")
        earlier = later
        axes = _at(proof)
        for loop in later.loops:
            mine = substitute(_inverse_of(loop, proof.loops, proof.inverse), axes)
            first, other = iterations.setdefault(handle(loop.loop_var), (later, mine))
            demand(
                first is later or subject.domain.equal([other], [mine]),
                "order",
                f"'{first.name}' and '{later.name}' run an element in different iterations of "
                f"'{loop.loop_var.name}'",
            )


def _at(proof: Any) -> dict[int, Any]:
    return {handle(axis): value for axis, value in zip(proof.axes, proof.h, strict=True)}


def _inverse_of(loop: Any, loops: Any, inverse: Any) -> Any:
    for var, expr in zip(loops, inverse, strict=True):
        if same(var, loop.loop_var):
            return expr
    raise CertificateError("loops", f"no inverse for '{loop.loop_var.name}'")


def check_placement(subject: Subject) -> None:
    """Prove that every tail runs each element once, when the reduction of it is complete.

    - Raises CertificateError: naming the tail.
    """
    certificate = subject.certificate
    reduction = subject.reduction_after
    # Loops are compared by position: the skeletons were found equal.
    inverse = {
        handle(loop.loop_var): expr
        for loop, expr in zip(reduction.loops, certificate.inverse, strict=True)
    }
    order = [reduction, *subject.tails]
    # Loops of tails, with the first tail in each.
    used: dict[int, Block] = {}
    for place, tail in enumerate(subject.tails):
        claim = f"tails[{place}].name"
        demand(order[place].place < tail.place, claim, f"'{tail.name}' is not after the reduction")
        subject.after_to_before(tail, subject.spatial, claim)
        shared = shared_loops(reduction, tail)
        common = {handle(loop.loop_var) for loop in shared}
        for loop in shared:
            later = _other_steps(subject, inverse[handle(loop.loop_var)])
            demand(
                later, claim, f"'{tail.name}' is inside the reduction loop '{loop.loop_var.name}'"
            )
        if subject.is_new:
            # It may be the memory of one thread: the reader of an element has computed it.
            threads = {
                handle(loop.loop_var)
                for loop in reduction.loops
                if loop.kind == ForKind.THREAD_BINDING
            }
            demand(threads <= common, claim, f"'{tail.name}' runs in other threads")
        failed = _covers(subject, tail, inverse, common)
        demand(not failed, claim, failed)
        for loop in tail.loops:
            key = handle(loop.loop_var)
            earlier = used.setdefault(key, tail)
            reason = f"'{tail.name}' shares loops with '{earlier.name}'"
            demand(earlier is tail or key in common, claim, reason)


def _other_steps(subject: Subject, expr: Any) -> bool:
    """Whether an expression is the same for all steps of the reduction of an element."""
    other = {handle(var): Var(f"{var.name}_other", var.ty) for var, _, _ in subject.reducing}
    axes = [*subject.domain.axes]
    for var, start, extent in subject.reducing:
        axes.append((other[handle(var)], substitute(start, other), substitute(extent, other)))
    return Domain(axes, sizes=subject.sizes).equal([expr], [substitute(expr, other)])


def _covers(subject: Subject, tail: Block, inverse: dict[int, Any], common: set[int]) -> str:
    """Prove that a tail runs each element once, in the iteration in which it is reduced."""
    reduction = subject.reduction_after
    kinds = [int(axis.iter_type) for axis in reduction.block.iter_vars]
    values = zip(kinds, reduction.realize.iter_values, strict=True)
    spatial = [value for kind, value in values if kind == SPATIAL]
    bindings = list(tail.realize.iter_values)
    back = {handle(loop.loop_var): inverse.get(handle(loop.loop_var)) for loop in tail.loops}
    # A loop that is an axis; the others are those of the reduction, in the same order.
    copied: list[list[Any]] = []
    for block, exprs in ((reduction, spatial), (tail, bindings)):
        used = {handle(var) for expr in exprs for var in variables(expr)}
        direct = {handle(expr): place for place, expr in enumerate(exprs) if isinstance(expr, Var)}
        copied.append([])
        for loop in block.loops:
            key = handle(loop.loop_var)
            if key in common:
                continue
            if block is tail and (key in direct or _is_one(loop.extent)):
                place = direct.get(key)
                back[key] = loop.min if place is None else subject.spatial[place][0]
                original = None if place is None else _loop_of(reduction, spatial[place])
                if not _may_be(loop, original):
                    return f"the loop '{loop.loop_var.name}' is of another kind"
            elif key in used and key not in direct and not _is_one(loop.extent):
                # A loop that runs steps of the reduction as well is not a loop of a tail.
                if block is tail or _other_steps(subject, inverse[key]):
                    copied[-1].append(loop)
    if len(copied[0]) != len(copied[1]):
        return f"'{tail.name}' does not have the inner loops of the reduction"
    for original, loop in zip(*copied, strict=True):
        back[handle(loop.loop_var)] = inverse[handle(original.loop_var)]
        if not _may_be(loop, original):
            return f"the loop '{loop.loop_var.name}' is of another kind"
    # What is the same for all steps is what it is for the first one.
    first = subject.first_step
    domain = loop_domain(tail.loops, tail.realize.predicate, subject.sizes)
    return one_to_one(
        domain, bindings, subject.spatial, [substitute(e, first) for e in back.values()]
    )


def _loop_of(block: Block, var: Any) -> Any:
    """Return the loop around a block that binds a variable, or None."""
    return next((loop for loop in block.loops if same(loop.loop_var, var)), None)


def _may_be(loop: Any, original: Any) -> bool:
    """Whether a loop of a tail is serial, or like the reduction's, or has one iteration anyway."""
    if loop.kind == ForKind.SERIAL or (original is not None and _same_kind(loop, original)):
        return True
    return loop.kind != ForKind.THREAD_BINDING and _is_one(loop.extent)


def _same_kind(a: Any, b: Any) -> bool:
    """Whether two loops are of one kind, and bound to the same thread if they are."""
    if a.kind != b.kind or (a.thread_binding is None) != (b.thread_binding is None):
        return False
    return a.thread_binding is None or a.thread_binding.thread_tag == b.thread_binding.thread_tag


def _is_one(extent: Any) -> bool:
    return isinstance(extent, prim.IntImm) and int(extent.value) == 1


def crossed(
    pieces: Sequence[Block | Loose], reduction: Block, epilogue: Block
) -> list[Block | Loose]:
    """Return the blocks that may run between a reduction and its epilogue.

    Those are the blocks between the two in program order, and the blocks that share a loop with
    one of them which the other one is not in.

    - `pieces`: pieces of the function, without the blocks that move together.
    - `reduction`, `epilogue`: the two.
    - Returns: innermost blocks, and statements outside of them.
    """
    first, last = reduction.every_loop, epilogue.every_loop
    alone = {key for key in {*first, *last} if not (key in first and key in last)}
    found = []
    for piece in pieces:
        # A loose statement has the place of the block that comes next.
        last_place = epilogue.place + isinstance(piece, Loose)
        between = reduction.place < piece.place < last_place
        if between or alone & set(piece.every_loop):
            found.append(piece)
    return found
