"""The fused block of a cascade, held against the stages of its certificate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad, prim

from ...tir.walk import handle, loads, same, uses
from ..certificate.regions import is_own_memory, places_differ
from ..certificate.subject import CertificateError, demand
from ..certificate.tree import Block
from ..proof.field import Ratio
from .loop import Loop, Nest, is_wide, nests, update_of
from .stages import BLOCK, PART, StageChecker
from .terms import runs_once, variable


class StepChecker(StageChecker):
    """Proves that the loop makes of its states what the stages claim."""

    def check_loop(self) -> None:
        """Prove that the fused block starts and steps its states as the stages claim."""
        certificate = self.certificate
        found = self.trees[1].named(certificate.block)
        demand(len(found) == 1, "block", f"there are {len(found)} such blocks after")
        self.fused = found[0]
        demand(runs_once(self.fused), "block", "its loops are not serial from 0")
        loop = self.loop = self._loop(self.fused)
        self._check_start(loop)
        pending = list(nests(self.fused.block.body, Nest((), (), None)))
        for place in range(len(certificate.stages)):
            pending = self._check_step(loop, pending, place)
        self._check_written(loop, pending)

    def _loop(self, block: Block) -> Loop:
        certificate = self.certificate
        axes = list(block.block.iter_vars)
        kinds = [int(axis.iter_type) for axis in axes]
        parts, factor, shared = map(
            int, (certificate.parts, certificate.factor, certificate.shared)
        )
        demand(factor >= 1 and 0 <= shared < len(certificate.keys), "factor", "out of range")
        demand(parts >= 1, "parts", "out of range")
        count, split = len(certificate.rows), parts > 1
        reason = "its axes are not the rows and a block of keys"
        demand(kinds == [0] * (count + split) + [2], "block", reason)
        demand(all(is_wide(axis.var) for axis in axes), "block", "an axis may wrap around")
        values, pairs = {}, zip(axes, certificate.rows, certificate.rows_extents, strict=False)
        for axis, row, extent in pairs:
            same_extent = self._same(axis.dom.extent, extent)
            demand(same_extent, "rows_extents", f"'{axis.var.name}' has another extent")
            values[handle(axis.var)] = self.point(row, extent)
        number = self.field.atom(BLOCK)
        values[handle(axes[-1].var)] = number
        extents = certificate.keys_extents
        # Parts of as many blocks each, one after the other: each key is in one of them.
        self._check_blocks(axes[-1].dom.extent, extents[shared], factor * parts)
        if split:
            same_extent = self._same(axes[count].dom.extent, prim.IntImm(axes[count].var.ty, parts))
            demand(same_extent, "parts", f"'{axes[count].var.name}' has another extent")
            values[handle(axes[count].var)] = self.field.atom(PART)
        serial = [
            loop
            for loop in self.fused.loops
            if uses(self.fused.realize.iter_values[-1], loop.loop_var)
        ]
        kept = all(loop.kind == tirx.ForKind.SERIAL for loop in serial)
        demand(kept, "block", "the loop over blocks of keys is not serial")
        blocks = self._terms().number(axes[-1].dom.extent)
        self._count_keys(number, blocks)
        if split:
            number = self.field.add(self.field.mul(self.field.atom(PART), blocks), number)
        known = {handle(param) for param in self.functions[0].params}
        known |= set(self.trees[0].allocated())
        loop = Loop(
            *(self.program, values, shared, factor, parts, number, self.names, list(extents)),
            *(known, self.folding),
        )
        self._name_states(loop)
        return loop

    def _name_states(self, loop: Loop) -> None:
        """Note where each state is, and that no two of them are in one place."""
        seen: set[int] = set()
        for place, proof in enumerate(self.certificate.stages):
            claim, key = f"stages[{place}]", handle(proof.state)
            fresh = key not in seen and (
                key not in loop.known or same(proof.state, proof.accumulator)
            )
            demand(fresh, f"{claim}.state", "it is another buffer of the program")
            for state in (proof.state, proof.part_state):
                typed = state is None or state.ty.dtype == proof.accumulator.ty.dtype
                demand(typed, f"{claim}.state", "it is of another type than the result")
            seen.add(key)
            self._check_memory(proof.state, proof, f"{claim}.state")
            indices = self.element(place)
            split = loop.parts > 1
            demand((proof.part_state is not None) == split, f"{claim}.part_state", "not of parts")
            if split:
                key = handle(proof.part_state)
                fresh = key not in seen and key not in loop.known
                demand(fresh, f"{claim}.part_state", "it is another buffer of the program")
                self._check_memory(proof.part_state, proof, f"{claim}.part_state")
                seen.add(key)
                indices = [self.field.atom(PART), *indices]
            axes = [variable(axis) for axis in proof.axes]
            loop.states[key] = indices, ("state", place), axes

    @staticmethod
    def _check_memory(buffer: Any, proof: Any, claim: str) -> None:
        own = is_own_memory(buffer, proof.accumulator) and places_differ(buffer)
        demand(own, claim, f"different elements of '{buffer.name}' may be one place in memory")

    def _check_scratch(self, buffer: Any, place: int) -> None:
        """Prove that scratch memory is a row's own, where several rows run at once."""
        self._check_memory(buffer, self.certificate.stages[place], "block")
        kinds = tirx.ForKind.SERIAL, tirx.ForKind.UNROLLED
        in_turn = all(loop.kind in kinds for loop in self.fused.loops)
        own = any(same(buffer, other) for other in self.fused.block.alloc_buffers)
        demand(in_turn or own, "block", f"rows that run at once share '{buffer.name}'")

    def element(self, place: int) -> list[Ratio]:
        """Return the indices of a stage's result."""
        return [self._terms().number(index) for index in self.certificate.stages[place].indices]

    def _count_keys(self, number: Ratio, blocks: Ratio) -> None:
        """Note how many keys of its part are before a block, with it, and in all of the part."""
        field, certificate = self.field, self.certificate
        factor, parts = field.literal(int(certificate.factor)), int(certificate.parts)
        limit = certificate.keys_extents[certificate.shared]
        together = int(certificate.factor) * parts
        whole = isinstance(limit, prim.IntImm) and int(limit) % together == 0
        last = self._terms().number(limit)
        size = field.mul(blocks, factor)
        before = field.mul(number, factor)
        after = field.mul(field.add(number, field.one), factor)
        if parts == 1:
            # Each block has a key.
            after = after if whole else field.extremum("min", [after, last])
        elif not whole:
            left = field.sub(last, field.mul(field.atom(PART), size))
            before, after, size = (
                field.extremum("max", [field.extremum("min", [each, left]), field.zero])
                for each in (before, after, size)
            )
        for place, extent in enumerate(certificate.keys_extents):
            if place != certificate.shared:
                more = self._terms().number(extent)
                before, after, size = (field.mul(each, more) for each in (before, after, size))
        self.count, self.total, self.in_part = before, after, size

    def _check_blocks(self, found: Any, extent: Any, factor: int) -> None:
        """Prove that there are as many blocks as hold all keys, and no more."""
        if isinstance(extent, prim.IntImm):
            right = isinstance(found, prim.IntImm) and int(found) == -(-int(extent) // factor)
        else:
            candidates = [
                prim.FloorDiv(extent + (factor - 1), prim.IntImm(extent.ty, factor)),
                tirx.ceildiv(extent, factor),
            ]
            right = any(self._same(found, each) for each in candidates)
            right = right or (factor == 1 and self._same(found, extent))
        demand(right, "factor", "there are more or fewer blocks of keys")

    def _check_start(self, loop: Loop) -> None:
        """Prove that T.init stores the start of each state."""
        init = self.fused.block.init
        demand(init is not None, "block", "it has no T.init")
        left = dict(loop.states)
        for nest in nests(init, Nest((), (), None)):
            key = handle(nest.store.buffer)
            demand(key in left and not nest.conditions, "block", "T.init stores something else")
            place = left.pop(key)[1][1]
            claim = f"stages[{place}].state_init"
            values = self._at_axes(loop, nest, place, claim)
            found = loop.terms(values).number(nest.store.value)
            stage = self.stages[place]
            # A sum's own start counts once; a maximum may start from it in every part.
            again = loop.parts == 1 or stage.monoid in ("max", "min")
            right = stage.state_init if again else self.field.zero
            demand(self.field.equal(found, right), claim, "not in T.init")
            self._check_element(loop, nest, place, values, claim)
        demand(not left, "block", "T.init leaves a state without a start")

    def _at_axes(self, loop: Loop, nest: Nest, place: int, claim: str) -> dict[int, Ratio]:
        """Return what loops over a stage's own axes stand for."""
        proof = self.certificate.stages[place]
        demand(len(nest.loops) == len(proof.axes), claim, "its loops are not those of its axes")
        values = dict(loop.values)
        for (var, extent), axis, own in zip(
            nest.loops, proof.axes, proof.axes_extents, strict=True
        ):
            demand(self._same(extent, own), claim, f"loop '{var.name}' has another extent")
            values[handle(var)] = self.point(axis, own)
        return values

    def _check_element(
        self, loop: Loop, nest: Nest, place: int, values: dict[int, Ratio], claim: str
    ) -> None:
        indices = [loop.terms(values).number(index) for index in nest.store.indices]
        proof = self.certificate.stages[place]
        key = handle(proof.state if loop.parts == 1 else proof.part_state)
        demand(self._equal(indices, loop.states[key][0]), claim, "another element of the state")

    def _check_step(self, loop: Loop, pending: list[Nest], place: int) -> list[Nest]:
        """Prove the step of one stage; returns the stores that come after it."""
        proof, stage = self.certificate.stages[place], self.stages[place]
        claim = stage.claim
        while pending:
            nest = pending.pop(0)
            key = handle(nest.store.buffer)
            demand(key not in loop.states, f"{claim}.step", "a state is overwritten too early")
            demand(key not in loop.nexts and key not in loop.known, "block", "it stores elsewhere")
            self._check_scratch(nest.store.buffer, place)
            own = [one for one in loads(nest.store.value) if same(one.source, nest.store.buffer)]
            if not own:
                demand(nest.start is None, "block", "a T.init of a plain store")
                demand(
                    key not in loop.plain or not _combines(pending, key), "block", "stored twice"
                )
                self._define(loop, nest, place)
                continue
            axes = [
                (variable(axis), extent)
                for axis, extent in zip(proof.axes, proof.axes_extents, strict=True)
            ]
            at = loop.at(nest, axes, f"{claim}.step")
            loop.check_conditions(nest, at, f"{claim}.step")
            indices = [loop.terms(at).number(index) for index in nest.store.indices]
            self._check_correction(loop, nest, place, at, indices)
            loop.plain.pop(key, None)
            update = update_of(nest.store, stage.monoid, f"{claim}.monoid")
            term, right = loop.terms(at).number(update), self._in_loop(stage.step, place)
            demand(self.field.equal(term, right), f"{claim}.step", "the loop adds something else")
            # What is proved not to overflow are the claim's exponentials, each by itself.
            apart, right = loop.terms(at).apart(update), self._in_loop(stage.step_apart, place)
            reason = "the loop multiplies other exponentials"
            demand(self.field.equal(apart, right), f"{claim}.step", reason)
            loop.nexts[key] = indices, variable(proof.value)
            self.next_of[place] = nest.store.buffer
            return pending
        raise CertificateError(f"{claim}.step", "the loop has no step for it")

    def _define(self, loop: Loop, nest: Nest, place: int) -> None:
        loop.define(nest, "block")

    def _check_correction(
        self, loop: Loop, nest: Nest, place: int, at: dict[int, Ratio], indices: list[Ratio]
    ) -> None:
        """Prove what the accumulator of a step starts from."""
        stage, claim = self.stages[place], f"{self.stages[place].claim}.correction"
        if nest.start is not None:
            # Of one part, every block has a key.
            runs = loop.parts == 1 or not nest.conditions
            demand(runs, claim, "a block without keys starts from nothing")
            starts = nest.start
            own = [loop.terms(at).number(index) for index in starts.indices]
            demand(self._equal(own, indices), claim, "it starts another element")
            found = loop.terms(at).number(starts.value)
        else:
            load = tirx.BufferLoad(nest.store.buffer, list(nest.store.indices))
            demand(handle(nest.store.buffer) in loop.plain, claim, "it starts from nothing")
            found = loop.terms(at).number(load)
        right = self._in_loop(stage.correction, place)
        demand(self.field.equal(found, right), claim, "the loop starts from something else")

    def _in_loop(self, number: Ratio, place: int) -> Ratio:
        """Return a claim's number in the states of the loop."""
        values: dict[Any, Ratio] = {
            variable(self.certificate.count): self.count,
            variable(self.certificate.total): self.total,
        }
        for other in range(place + 1):
            proof = self.certificate.stages[other]
            pairs = zip(proof.axes, proof.axes_extents, strict=True)
            axes = [self.point(axis, extent) for axis, extent in pairs]
            state = self.field.atom(("state", other), axes)
            values[self.stages[other].previous] = state
        values[self.stages[place].accumulated] = state
        return self.field.substitute(number, values)

    def _check_written(self, loop: Loop, pending: list[Nest]) -> None:
        """Prove that each state becomes what has been computed for it, once."""
        left = dict(loop.states)
        for nest in pending:
            key = handle(nest.store.buffer)
            demand(
                key in left and not nest.conditions, "block", "it stores something else at its end"
            )
            place = left.pop(key)[1][1]
            claim = f"stages[{place}].state"
            demand(nest.start is None, claim, "a T.init of a plain store")
            values = self._at_axes(loop, nest, place, claim)
            self._check_element(loop, nest, place, values, claim)
            value = nest.store.value
            loaded = isinstance(value, TensorLoad) and same(value.source, self.next_of[place])
            demand(loaded, claim, "it is not what has been computed for it")
            found = loop.terms(values).number(value)
            right = self.field.atom(self.stages[place].value)
            demand(self.field.equal(found, right), claim, "it is not what has been computed for it")
        demand(not left, "block", "a state stays as it was")

    @property
    def next_of(self) -> dict[int, Any]:
        """The scratch memory in which each stage's next state is computed."""
        return self.__dict__.setdefault("_next_of", {})  # type: ignore[no-any-return]


def _combines(pending: Sequence[Nest], key: int) -> bool:
    return any(handle(nest.store.buffer) == key for nest in pending)
