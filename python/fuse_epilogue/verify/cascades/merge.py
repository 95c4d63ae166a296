"""The states of parts of the keys, merged after the loop.

A part p holds the state a of its own keys at the carrier r of these keys. The carriers are merged
first, to r'; then h(a, r, r'), the correction of the loop, is what the keys of p make of the state
at r', since

    h(t(x, r), r, r') = t(x, r'),   h(a + b) = h(a) + h(b),   h(0) = 0

hold for any keys, not only for the first ones: the sum over the parts is that over all keys, each
of which is in one part. A part without keys holds 0, and adds h(0) = 0; a maximum that starts from
the program's own start in every part is the same as one that starts there once.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from ...tir.walk import handle, same
from ..certificate.subject import demand
from ..certificate.tree import Block
from ..evaluation.scalars import UnsupportedError, scalar_type
from ..proof.field import Ratio
from .claims import Stage
from .loop import update_of
from .stages import FINITE_PARTS, PART
from .step import StepChecker
from .terms import CascadeTerms, runs_once

#: The reductions whose parts are known to merge.
MERGED = ("sum", "max", "min")


class MergeChecker(StepChecker):
    """Proves that reductions over the parts make one state of theirs."""

    def check_merges(self) -> None:
        """Prove that each stage has a merge, if there are parts."""
        self.merges: list[Block] = []
        split = int(self.certificate.parts) > 1
        exact = self.certificate.numerics == "exact"
        for place, proof in enumerate(self.certificate.stages):
            claim = f"stages[{place}].part_state"
            floats = scalar_type(proof.accumulator.ty.dtype.dtype).kind == "f"
            assumed = split and floats and proof.monoid == "sum"
            named = assumed == (FINITE_PARTS in proof.guards)
            demand(named, f"stages[{place}].guards", "not those of sums of parts")
            if not split:
                continue
            demand(proof.monoid in MERGED, claim, f"parts of a '{proof.monoid}' are not merged")
            demand(not (exact and floats), "numerics", "floats are combined in another order")
            found = self.trees[1].named(f"{proof.name}_merge")
            demand(len(found) == 1 and found[0].leaf, claim, "nothing merges the parts")
            self._check_merge(found[0], place, claim)
            self.merges.append(found[0])

    def _check_merge(self, block: Block, place: int, claim: str) -> None:
        proof, stage = self.certificate.stages[place], self.stages[place]
        serial = all(loop.kind == tirx.ForKind.SERIAL for loop in block.loops)
        demand(serial and runs_once(block), claim, "the merge is not in plain loops")
        init, store = block.block.init, block.block.body
        stores = isinstance(init, tirx.BufferStore) and isinstance(store, tirx.BufferStore)
        demand(stores, claim, "the merge is not a reduction with one store")
        axes = self._axes(block, place, claim)
        terms = CascadeTerms(self.arithmetic, self._reader(place), axes, self.folding)
        for each in (init, store):
            demand(same(each.buffer, proof.state), claim, "the merge stores elsewhere")
            indices = [terms.number(index) for index in each.indices]
            demand(self._equal(indices, self.element(place)), claim, "the merge stores elsewhere")
        start = self.field.equal(terms.number(init.value), stage.state_init)
        demand(start, claim, "the merge starts from something else")
        found = terms.number(update_of(store, stage.monoid, claim))
        right = self._corrected(stage)
        demand(self.field.equal(found, right), claim, "a part is not corrected by its law")

    def _corrected(self, stage: Stage) -> Ratio:
        """Return what the law makes of a part, as many keys as there are in it."""
        field, right = self.field, stage.correction
        count = field.atom(stage.count)
        if self.in_part.constant is not None and self.in_part.constant >= 1:
            right = field.decided(right, stage.first, False)
            right = field.with_extrema(right, "max", [count, field.one], count)
        return field.substitute(right, {stage.count: self.in_part, stage.total: stage.every})

    def _axes(self, block: Block, place: int, claim: str) -> dict[int, Ratio]:
        """Return the values of the axes of a merge: rows, own axes, and a part."""
        certificate, proof = self.certificate, self.certificate.stages[place]
        wanted = [*zip(certificate.rows, certificate.rows_extents, strict=True)]
        wanted += zip(proof.axes, proof.axes_extents, strict=True)
        values: dict[int, Ratio] = {}
        parts = 0
        for axis in block.block.iter_vars:
            if int(axis.iter_type) == 0 and wanted:
                var, extent = wanted.pop(0)
                demand(self._same(axis.dom.extent, extent), claim, "an axis has another extent")
                values[handle(axis.var)] = self.point(var, extent)
                continue
            demand(int(axis.iter_type) == 2, claim, "an axis of another kind")
            every = self._terms().number(axis.dom.extent)
            right = self.field.literal(int(certificate.parts))
            demand(self.field.equal(every, right), claim, "not all parts are merged")
            values[handle(axis.var)] = self.field.atom(PART)
            parts += 1
        demand(parts == 1 and not wanted, claim, "its axes are not the rows, its own and the parts")
        return values

    def _reader(self, place: int) -> Any:
        """Return what loads in a merge give: states of this part, and merged ones before it."""
        stages = self.certificate.stages

        def load(expr: Any, given: list[Ratio]) -> Ratio:
            for other in range(place + 1):
                proof, stage = stages[other], self.stages[other]
                element = self.element(other)
                if same(expr.source, proof.part_state):
                    here = self._equal(given, [self.field.atom(PART), *element])
                    name = stage.accumulated if other == place else stage.previous
                elif same(expr.source, proof.state) and other < place:
                    here, name = self._equal(given, element), stage.value
                else:
                    continue
                if not here or (proof.axes and other != place):
                    raise UnsupportedError(f"{expr} is not the state at hand")
                return self.field.atom(name)
            return self.program.load(expr, given)

        return load
