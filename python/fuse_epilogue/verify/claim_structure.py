"""The claims of a certificate about what is left alone, removed and kept, each proved again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .regions import undeclared
from .skeleton import differ, skeleton
from .subject import Subject, demand, is_new, observed
from .tree import Block, accesses, bound_by, handle, mentions, same, same_all


def check_structure(subject: Subject) -> None:
    """Prove that nothing but the fused blocks changed.

    Raises
    ------
    CertificateError
        Naming removed, kept or after.
    """
    certificate = subject.certificate
    trees = subject.trees
    before, after = (tree.func for tree in trees)
    allocated = trees[0].allocated()
    for name in ("removed", "kept"):
        listed = [handle(var) for var in getattr(certificate, name)]
        demand(len(set(listed)) == len(listed), name, "a buffer is listed twice")
    for var in certificate.removed:
        demand(handle(var) in allocated, "removed", f"'{var.name}' is not allocated here")
        for param in after.params:
            demand(not same(param, var), "removed", f"'{var.name}' is a parameter")
        demand(not mentions(after.body, var), "removed", f"'{var.name}' is still mentioned")
    gone = {key for key in allocated if key not in trees[1].allocated()}
    named = {handle(var) for var in certificate.removed}
    demand(gone == named, "removed", "not all of the buffers that are gone")
    demand(same_all(before.params, after.params), "after", "the parameters changed")
    demand(not differ(before.attrs, after.attrs), "after", "the attributes changed")
    reduced = (
        skeleton(before, certificate.reduction, _names(subject.epilogues)),
        skeleton(after, certificate.reduction, _names(subject.tails)),
    )
    demand(not differ(*reduced), "after", "something else than the fused blocks changed")
    demand(_same_allocations(subject), "after", "other buffers are allocated, or elsewhere")
    around = [bound_by(block.around) for block in (subject.reduction, subject.reduction_after)]
    demand(same_all(*around), "after", "variables around the reduction were replaced")
    kept = {
        key
        for key in _intermediates(subject)
        if observed(subject, key) and (key in allocated or key == handle(certificate.result))
    }
    claimed = {handle(var) for var in certificate.kept}
    demand(kept == claimed, "kept", "not the intermediates that others read")


def check_regions(subject: Subject) -> None:
    """Prove that the blocks that changed declare what they access.

    Raises
    ------
    CertificateError
        Naming after.
    """
    for block in (subject.reduction_after, *subject.tails):
        missing = undeclared(block.block, subject.sizes)
        demand(not missing, "after", f"'{block.name}' does not declare the access {missing}")


def _same_allocations(subject: Subject) -> bool:
    """Whether each block allocates what it did, without what is gone and with the new result."""
    gone = {handle(var) for var in subject.certificate.removed}
    found = []
    for tree, fused in zip(subject.trees, (subject.epilogues, subject.tails), strict=True):
        moved = {block.place for block in fused}
        found.append([block for block in tree.blocks if block.place not in moved])
    new = {handle(subject.certificate.result)} if is_new(subject) else set()
    for a, b in zip(*found, strict=True):
        old = {handle(var) for var in a.block.alloc_buffers}
        now = {handle(var) for var in b.block.alloc_buffers}
        if same(b.block, subject.reduction_after.scope.block):
            old |= new
        if old - gone != now:
            return False
    return True


def _names(blocks: Sequence[Block]) -> list[str]:
    return [block.name for block in blocks]


def _intermediates(subject: Subject) -> dict[int, Any]:
    """Return the buffers that one fused block writes and another reads."""
    found = {}
    written: dict[int, Any] = {}
    for block in subject.fused:
        touched = accesses(block.block.body)
        if block is not subject.reduction:
            found.update({key: var for key, var in touched.reads.items() if key in written})
        written.update(touched.writes)
    return found
