"""The claims of a certificate about what is left alone, removed and kept, each proved again."""

from __future__ import annotations

from collections.abc import Sequence

from ...tir.walk import handle, same, same_all, variables
from .between import has_jump
from .regions import undeclared
from .skeleton import differ, skeleton
from .subject import Subject, demand, observed, strangers
from .tree import Block, bound_by


def check_structure(subject: Subject) -> None:
    """Prove that nothing but the fused blocks changed.

    - Raises CertificateError: naming removed, kept or after.
    """
    certificate = subject.certificate
    trees = subject.trees
    before, after = (tree.func for tree in trees)
    allocated = trees[0].allocated()
    for name in ("removed", "kept"):
        listed = [handle(var) for var in getattr(certificate, name)]
        demand(len(set(listed)) == len(listed), name, "a buffer is listed twice")
    mentioned = {handle(var) for var in variables(after.body)} if certificate.removed else set()
    for var in certificate.removed:
        demand(handle(var) not in mentioned, "removed", f"'{var.name}' is still mentioned")
    gone = {key for key in allocated if key not in trees[1].allocated()}
    named = {handle(var) for var in certificate.removed}
    demand(gone == named, "removed", "not all of the buffers that are gone")
    jumps = has_jump(subject.reduction.scope.block.body)
    demand(not jumps, "order", "a break, continue or return may skip one of the blocks")
    demand(same_all(before.params, after.params), "after", "the parameters changed")
    demand(not differ(before.attrs, after.attrs), "after", "the attributes changed")
    demand(not differ(before.ret_type, after.ret_type), "after", "it returns something else")
    reduced = (
        skeleton(before, certificate.reduction, _names(subject.epilogues)),
        skeleton(after, certificate.reduction, _names(subject.tails)),
    )
    demand(not differ(*reduced), "after", "something else than the fused blocks changed")
    demand(_same_allocations(subject), "after", "other buffers are allocated, or elsewhere")
    epilogues = {block.name: block.block.annotations for block in subject.epilogues}
    for tail in subject.tails:
        alike = tail.name in epilogues and not differ(epilogues[tail.name], tail.block.annotations)
        demand(alike, "after", f"the annotations of '{tail.name}' changed")
    around = [bound_by(block.around) for block in (subject.reduction, subject.reduction_after)]
    demand(same_all(*around), "after", "variables around the reduction were replaced")
    _check_kept(subject)


def _check_kept(subject: Subject) -> None:
    """Prove that what is kept has other readers, and that it is named if it must be.

    Whether a block that reads elements one by one is another reader, or a tail that an earlier
    call has left, is for the certificate to say: nothing else depends on it.
    """
    certificate = subject.certificate
    claimed = {handle(var) for var in certificate.kept}
    written: set[int] = set()
    for block in subject.fused:
        written |= set(block.touched().writes)
    for key in claimed:
        demand(key in written and observed(subject, key), "kept", "no other block reads it")
    result = handle(certificate.result)
    needed = any(result in piece.touched().reads for piece in strangers(subject))
    read = any(result in block.touched().reads for block in subject.epilogues)
    demand(
        result in claimed or not (needed and read),
        "kept",
        f"others read '{certificate.result.name}'",
    )


def check_regions(subject: Subject) -> None:
    """Prove that the blocks that changed declare what they access.

    - Raises CertificateError: naming after.
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
    new = {handle(subject.certificate.result)} if subject.is_new else set()
    for a, b in zip(*found, strict=True):
        old = {handle(var) for var in a.block.alloc_buffers}
        now = {handle(var) for var in b.block.alloc_buffers}
        if same(b.block, subject.reduction_after.scope.block):
            old |= new
        # A buffer that is allocated twice is one that cannot be lowered.
        if old - gone != now or len(now) != len(b.block.alloc_buffers):
            return False
    return True


def _names(blocks: Sequence[Block]) -> list[str]:
    return [block.name for block in blocks]
