"""The checker of certificates of cascades: reductions that share a loop over blocks of keys."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from ...cascade_certificate import CascadeCertificate
from ...tir.walk import handle, same, same_all
from ..certificate.between import has_jump
from ..certificate.skeleton import differ, skeleton
from ..certificate.subject import CertificateError, demand
from ..certificate.tree import Block
from ..evaluation.scalars import UnsupportedError, WorkLimit
from ..proof.field import Ratio
from .defined import DefinedChecker
from .order import meet, outer_blocks, touched_by
from .terms import CascadeTerms, runs_once, variable

#: What is proved of every cascade, in the order of the proofs.
CLAIMS = (
    "the terms are those of the program, each elementwise block between in its place",
    "corrected and deferred states are the program's results, by the laws of cascades",
    "quotients are at most 1, and no term overflows at a partial carrier",
    "the loop makes of its states what the laws say, in that order; parts are merged by them",
    "nothing is evaluated where the function before did not evaluate it, or it is always defined",
    "nothing else changed, and nothing is read before it is finished",
)


def check_cascade(
    before: tirx.PrimFunc, after: tirx.PrimFunc, certificate: CascadeCertificate
) -> tuple[str, ...]:
    """Prove the claims of a cascade's certificate again, for :func:`check`.

    Floats are real numbers in these proofs, exponentials of sums products of exponentials, and
    casts opaque.

    - `before`, `after`: the functions before and after the call, these very objects.
    - `certificate`: the record of the call.
    - Returns: the claims, all of which are proved.
    - Raises CertificateError: naming the claim that does not hold, or cannot be proved.
    """
    try:
        checker = _Checker(before, after, certificate)
        checker.read_stages()
        checker.check_laws()
        checker.check_loop()
        checker.check_merges()
        checker.check_tails()
        checker.check_defined()
        checker.check_rest()
    except (UnsupportedError, WorkLimit, RecursionError) as error:
        raise CertificateError("after", f"it cannot be proved: {error}") from error
    return CLAIMS


class _Checker(DefinedChecker):
    """Proves what is after the loop, and that nothing else changed."""

    def check_tails(self) -> None:
        """Prove that a tail after the loop makes each result of a finished state."""
        self.tails: list[Block] = []
        for place, proof in enumerate(self.certificate.stages):
            claim = f"stages[{place}].tail"
            own = same(proof.state, proof.accumulator)
            if proof.tail is None:
                demand(own, f"stages[{place}].state", "nothing copies it to the result")
                continue
            demand(not own, f"stages[{place}].state", "a tail overwrites it")
            found = self.trees[1].named(proof.name)
            demand(len(found) == 1 and found[0].leaf, claim, "there is no block for it")
            self._check_tail(found[0], place, claim)
            self.tails.append(found[0])

    def _check_tail(self, block: Block, place: int, claim: str) -> None:
        proof, axes = self.certificate.stages[place], list(block.block.iter_vars)
        store = block.block.body
        plain = isinstance(store, tirx.BufferStore) and block.block.init is None
        demand(plain and runs_once(block), claim, "it is not one store in plain loops")
        demand(same(store.buffer, proof.accumulator), claim, "it stores elsewhere")
        demand(all(int(axis.iter_type) == 0 for axis in axes), claim, "an axis of another kind")
        certificate = self.certificate
        wanted = [*zip(certificate.rows, certificate.rows_extents, strict=True)]
        wanted += zip(proof.axes, proof.axes_extents, strict=True)
        demand(len(wanted) == len(axes), claim, "its axes are not the rows and its own")
        values = {}
        for axis, (var, extent) in zip(axes, wanted, strict=True):
            demand(self._same(axis.dom.extent, extent), claim, "an axis has another extent")
            values[handle(axis.var)] = self.point(var, extent)
        indices = [self._terms().number(index) for index in proof.indices]

        def load(expr: Any, given: list[Ratio]) -> Ratio:
            if same(expr.source, proof.state):
                demand(self._equal(given, indices), claim, "it reads another row")
                return self.field.atom(variable(proof.finished))
            return self.program.load(expr, given)

        terms = CascadeTerms(self.arithmetic, load, values, self.folding)
        place_ = [terms.number(index) for index in store.indices]
        demand(self._equal(place_, indices), claim, "it stores elsewhere")
        right = self.stages[place].tail
        assert right is not None
        demand(self.field.equal(terms.number(store.value), right), claim, "it computes another")

    def check_rest(self) -> None:
        """Prove that nothing else changed, and that everything is finished where it is read."""
        certificate, (before, after) = self.certificate, self.functions
        demand(same_all(before.params, after.params), "after", "the parameters changed")
        demand(not differ(before.attrs, after.attrs), "after", "the attributes changed")
        demand(not differ(before.ret_type, after.ret_type), "after", "it returns something else")
        demand(not has_jump(before.body), "order", "a break, continue or return may skip a block")
        fused = [proof.name for proof in certificate.stages]
        buffers = [tree.allocated() for tree in self.trees]
        gone = {key: str(var.name) for key, var in buffers[0].items() if key not in buffers[1]}
        named = sorted(map(str, certificate.removed))
        demand(sorted(gone.values()) == named, "removed", "not the buffers that are gone")
        removed = self._removed_blocks(set(gone))
        demand(not set(removed) & set(fused), "removed", "the result of a stage is gone")
        tails = [block.name for block in (*self.merges, *self.tails)]
        rest = (
            skeleton(before, "", [*fused, *removed]),
            skeleton(after, "", [certificate.block, *tails]),
        )
        demand(not differ(*rest), "after", "something else than the stages changed")
        self._check_order()

    def _removed_blocks(self, gone: set[int]) -> list[str]:
        """Return the names of the blocks that write buffers that are gone, and nothing else."""
        found = []
        for block in self.trees[0].blocks:
            writes = set(block.touched().writes)
            if not block.leaf or not writes & gone:
                continue
            demand(writes <= gone, "removed", f"'{block.name}' writes more than what is gone")
            alone = len(self.trees[0].named(block.name)) == 1
            demand(alone, "removed", f"there are several blocks '{block.name}'")
            found.append(block.name)
        return found

    def _check_order(self) -> None:
        """Prove that one block has written what another one reads, in both functions."""
        for tree in self.trees:
            outer = outer_blocks(tree)
            inner = {handle(var) for block in outer for var in block.block.alloc_buffers}
            touched = touched_by(tree, outer)
            params = {handle(param) for param in tree.func.params}
            writers: dict[int, Block] = {}
            for block in outer:
                for key, buffer in touched[block.place].writes.items():
                    reason = f"several blocks write '{buffer.name}'"
                    demand(key not in writers, "order", reason)
                    writers[key] = block
            for block in outer:
                for key, buffer in touched[block.place].reads.items():
                    writer = writers.get(key)
                    if key in inner or writer is block or key in self.overwritten:
                        continue
                    early = writer is None or (
                        writer.place < block.place and not meet(writer, block)
                    )
                    finished = early and (writer is not None or key in params)
                    demand(finished, "order", f"'{block.name}' reads '{buffer.name}' too early")
