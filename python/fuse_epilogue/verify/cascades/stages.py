"""The stages of a cascade's certificate, held against the function before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, prim

from ...tir.walk import handle, loads, same
from ..certificate.subject import demand, size_variables
from ..certificate.tree import Block, Tree
from ..evaluation.scalars import ScalarType, UnsupportedError, scalar_type
from ..proof.field import Ratio
from ..proof.field_arithmetic import FieldArithmetic
from .claims import Stage
from .corners import infinite_start, reads_start
from .folding import Folding
from .laws import check_stage
from .limits import RANGES, Limits
from .loop import update_of
from .order import overwritten
from .terms import CascadeTerms, Program, runs_once, variable

#: Where a state is kept as it is: the carrier is the same, there was no key, or it is zero.
GUARDS = {"same-carrier", "first-block", "zero-carrier"}
#: Terms read 0 for a carrier that is the infinity which it starts at.
INFINITE = "infinite-start"
#: The claim is for sums alone that stay finite without the deferred factor.
FINITE = "finite-sum"
#: The claim is for sums alone that overflow in no part.
FINITE_PARTS = "finite-parts"
#: Name of the atom that stands for the number of a block of keys.
BLOCK = "block of keys"
#: Name of the atom for the number of a part of them.
PART = "part of the keys"
# Operations of one proof.
_WORK = 200_000


class _CountingArithmetic(FieldArithmetic):
    """Numbers of keys are the same as floats: they round as every other operation does."""

    def __init__(self, limit: int, counts: set[Any], exact: bool) -> None:
        super().__init__(limit, exact)
        self._counts = counts

    def _cast(self, a: Ratio, source: ScalarType, target: ScalarType) -> Ratio:
        if source.name in ("int32", "int64") and self._counts_keys(a):
            # Of an integer with fewer bits it is the number modulo 2**n.
            if target.kind == "f" or (target.kind in "iu" and target.bits < source.bits):
                return a
        return super()._cast(a, source, target)

    def _of_type(self, type: ScalarType, a: Ratio) -> Ratio:
        if type.kind == "u" or (type.kind == "i" and type.bits < 32):
            if self._counts_keys(a):
                return self.field.atom(("value", type.name), (a,))
        return super()._of_type(type, a)

    def _counts_keys(self, a: Ratio) -> bool:
        return a.constant is None and self.field.is_made_of(a, self._counts)


class StageChecker:
    """Reads the stages and proves their laws.

    - `before`, `after`: the functions.
    - `certificate` (CascadeCertificate): the claims.
    """

    def __init__(self, before: tirx.PrimFunc, after: tirx.PrimFunc, certificate: Any) -> None:
        self.certificate = certificate
        self.functions = before, after
        self.trees = Tree(before), Tree(after)
        owners = [(certificate, ("rows", "keys")), *((s, ("axes",)) for s in certificate.stages)]
        for owner, names in owners:
            for name in names:
                pair = getattr(owner, name), getattr(owner, f"{name}_extents")
                demand(len(pair[0]) == len(pair[1]), name, "not one extent for each")
        exact = certificate.numerics == "exact"
        counts = {variable(certificate.count), variable(certificate.total), BLOCK, PART}
        self.arithmetic = _CountingArithmetic(_WORK, counts, exact)
        self.field = self.arithmetic.field
        self.folding = Folding(after, exact)
        self.overwritten = overwritten(self.trees[0]) & overwritten(self.trees[1])
        leaves = [block for block in self.trees[0].blocks if block.leaf]
        self.program = Program(self.arithmetic, leaves, self.overwritten)
        self.stages: dict[int, Stage] = {}
        self.blocks: list[Block] = []
        self.names = [variable(key) for key in certificate.keys]
        axes = [*zip(certificate.rows, certificate.rows_extents, strict=True)]
        for proof in certificate.stages:
            axes += zip(proof.axes, proof.axes_extents, strict=True)
        self.units: dict[int, Ratio] = {handle(var): self.point(var, each) for var, each in axes}
        self.first = self.arithmetic.compare(
            "eq",
            scalar_type("int64"),
            self.field.atom(variable(certificate.count)),
            self.field.zero,
        )
        fixed = {handle(var) for var in size_variables(before)}
        own = [*certificate.rows, *certificate.keys, certificate.count, certificate.total]
        for proof in certificate.stages:
            own += [*proof.axes, proof.value, proof.previous, proof.accumulated, proof.finished]
        distinct = len({handle(var) for var in own}) == len(own)
        demand(distinct and not {handle(v) for v in own} & fixed, "rows", "variables are repeated")

    # ---- The program -----------------------------------------------------------------------------

    def read_stages(self) -> None:
        """Prove that each stage's term is that of its block, and note its claims."""
        demand(len(self.certificate.stages) > 1, "stages", "there is no cascade")
        for place, proof in enumerate(self.certificate.stages):
            claim = f"stages[{place}]"
            found = self.trees[0].named(proof.name)
            demand(len(found) == 1, f"{claim}.name", f"there are {len(found)} such blocks")
            block = found[0]
            demand(
                block.leaf and runs_once(block), f"{claim}.name", "its loops are not serial from 0"
            )
            self.blocks.append(block)
            self._check_axes(block, proof, claim)
            init, body = block.block.init, block.block.body
            stores = isinstance(init, tirx.BufferStore) and isinstance(body, tirx.BufferStore)
            demand(stores, f"{claim}.name", "it is not a reduction with one store")
            values = {handle(var): self._terms().number(to) for var, to in proof.bindings}
            inside = self._terms(values)
            indices = [self._terms().number(index) for index in proof.indices]
            for store in (init, body):
                own = same(store.buffer, proof.accumulator) and len(store.indices) == len(indices)
                demand(own, f"{claim}.accumulator", f"it stores to '{store.buffer.name}'")
                places = [inside.number(index) for index in store.indices]
                demand(self._equal(places, indices), f"{claim}.indices", "it stores elsewhere")
            update = update_of(body, proof.monoid, f"{claim}.monoid")
            term = inside.number(update)
            demand(not loads(init.value), f"{claim}.init", "it reads a buffer")
            start = inside.number(init.value)
            claimed = self._terms().number(proof.term)
            demand(self.field.equal(term, claimed), f"{claim}.term", "it is not the program's")
            claimed = self._terms().number(proof.init)
            demand(self.field.equal(start, claimed), f"{claim}.init", "it is not the program's")
            undefined = self._undefined(proof, update, values)
            self._check_partial(proof, update, values, claim)
            apart = inside.apart(update)
            self.stages[place] = self._stage(claim, proof, term, apart, start, undefined)
            chosen = bool(_selections(proof.correction))
            guards = set(proof.guards) - {FINITE, FINITE_PARTS, INFINITE}
            known = guards <= GUARDS and chosen == bool(guards)
            # A factor is deferred from a sum that must stay finite without it.
            known &= FINITE not in proof.guards or proof.tail is not None
            demand(known, f"{claim}.guards", "they are not those of the correction")
            self._finish(proof, indices)

    def _finish(self, proof: Any, indices: list[Ratio]) -> None:
        """From here on a load of the result at this row is the stage's value."""
        name = variable(proof.value)

        def result(given: list[Ratio]) -> Ratio:
            if proof.axes or not self._equal(given, indices):
                raise UnsupportedError(f"'{proof.accumulator.name}' is read at another row")
            return self.field.atom(name)

        self.program.results[handle(proof.accumulator)] = result

    def _check_axes(self, block: Block, proof: Any, claim: str) -> None:
        """Prove that bindings take the axes one to one onto rows, axes and keys."""
        certificate = self.certificate
        spatial = [*zip(certificate.rows, certificate.rows_extents, strict=True)]
        spatial += zip(proof.axes, proof.axes_extents, strict=True)
        keys = [*zip(certificate.keys, certificate.keys_extents, strict=True)]
        bound = {handle(var): to for var, to in proof.bindings}
        reason = "not one for each axis"
        demand(len(bound) == len(block.block.iter_vars), f"{claim}.bindings", reason)
        for kind, wanted in ((0, spatial), (2, keys)):
            left = {handle(var): extent for var, extent in wanted}
            for axis in block.block.iter_vars:
                if int(axis.iter_type) != kind:
                    demand(
                        int(axis.iter_type) in (0, 2), f"{claim}.name", "an axis of another kind"
                    )
                    continue
                to = bound.get(handle(axis.var))
                extent = left.pop(handle(to), None) if to is not None else None
                one = isinstance(to, prim.IntImm) and int(to) == 0
                if one and extent is None:
                    extent = prim.IntImm(axis.dom.extent.ty, 1)
                demand(extent is not None, f"{claim}.bindings", f"'{axis.var.name}' is not bound")
                pair = [self._terms().number(each) for each in (extent, axis.dom.extent)]
                equal = self.field.equal(*pair)
                demand(equal, f"{claim}.bindings", f"'{axis.var.name}' has another extent")
            ones = all(isinstance(e, prim.IntImm) and int(e) == 1 for e in left.values())
            demand(ones, f"{claim}.bindings", "an axis is bound to nothing")

    def _undefined(self, proof: Any, update: Any, values: dict[int, Ratio]) -> bool:
        """Whether terms are NaN in rows where a carrier stays at the infinity it starts from."""
        carriers = [int(carrier) for carrier in proof.carriers]
        if len(carriers) != 1 or carriers[0] not in self.stages:
            return False
        head = self.stages[carriers[0]]
        start = infinite_start(self.field, head)
        if start is None:
            return False
        known = [(head.term, start), (self.field.atom(head.value), start)]
        found = Limits(self.program, known).of(update, self.units | values)
        return found is not None and math.isnan(found)

    def _check_partial(self, proof: Any, update: Any, values: dict[int, Ratio], claim: str) -> None:
        """Prove that no exponent is NaN because a multiple of a result overflows before the end."""
        for carrier in proof.carriers:
            head, type = self.stages.get(int(carrier)), proof.accumulator.ty.dtype.dtype
            if head is None or head.monoid not in ("max", "min") or str(type) not in RANGES:
                continue
            sign = -1.0 if head.monoid == "max" else 1.0
            keys = [head.term]
            for condition in self.field.conditions(head.term):
                keys += [self.field.decided(head.term, condition, holds) for holds in (True, False)]
            known = [(self.field.atom(head.value), sign * RANGES[str(type)])]
            known += [(key, sign * math.inf) for key in keys]
            for found in Limits(self.program, known).exponents(update, self.units | values):
                fine = found is None or not math.isnan(found)
                demand(fine, f"{claim}.term", "inf - inf would be NaN at a carrier so far")

    def _stage(
        self, claim: str, proof: Any, term: Ratio, apart: Ratio, start: Ratio, undefined: bool
    ) -> Stage:
        terms = self._terms()
        type = scalar_type(proof.accumulator.ty.dtype.dtype)

        def optional(expr: Any) -> Ratio | None:
            return None if expr is None else terms.number(expr)

        return Stage(
            claim,
            str(proof.rule),
            str(proof.monoid),
            term,
            terms.number(proof.step),
            apart,
            terms.apart(proof.step),
            terms.number(proof.correction),
            start,
            terms.number(proof.state_init),
            optional(proof.tail),
            optional(proof.quotient),
            optional(proof.rolled),
            optional(proof.deferred),
            variable(proof.accumulated),
            variable(proof.finished),
            variable(proof.value),
            variable(proof.previous),
            self.first,
            variable(self.certificate.count),
            variable(self.certificate.total),
            self._every_key(),
            *self._ends(type),
            undefined,
        )

    def _ends(self, type: ScalarType) -> tuple[Ratio, Ratio]:
        """Return the smallest and the largest number of a type."""
        field = self.field
        if type.kind == "f":
            return field.lowest, field.neg(field.lowest)
        return field.literal(Fraction(type.low)), field.literal(Fraction(type.high))

    def _every_key(self) -> Ratio:
        """Return the number of keys of a row."""
        found = self.field.one
        for extent in self.certificate.keys_extents:
            found = self.field.mul(found, self._terms().number(extent))
        return found

    def check_laws(self) -> None:
        """Prove the law of every stage."""
        for place, proof in enumerate(self.certificate.stages):
            exact = self.certificate.numerics == "exact"
            floats = scalar_type(proof.accumulator.ty.dtype.dtype).kind == "f"
            sums = proof.monoid == "sum" and proof.rule != "head"
            demand(not (exact and floats and sums), "numerics", "a sum of floats is reordered")
            carriers = tuple(int(carrier) for carrier in proof.carriers)
            heads = [self.stages[carrier] for carrier in carriers if carrier in self.stages]
            guarded = reads_start(self.field, self.stages[place], heads)
            named = guarded == (INFINITE in proof.guards)
            demand(named, f"stages[{place}].guards", "not those of the start of its carrier")
            check_stage(self.field, self.stages, place, carriers, self.names)
            # Differences from a result are not bounded, as exponentials and ratios are.
            rests = floats and proof.deferred is not None and proof.rule in ("defer", "basis")
            assumed = FINITE in proof.guards or not (rests and proof.monoid == "sum")
            demand(assumed, f"stages[{place}].guards", f"'{FINITE}' is not among them")

    # ---- Helpers ---------------------------------------------------------------------------------

    def _terms(self, values: dict[int, Ratio] | None = None) -> CascadeTerms:
        return self.program.terms(self.units | (values or {}))

    def point(self, var: Any, extent: Any) -> Ratio:
        """Return the number that a row or an axis is: 0 where there is only one."""
        one = isinstance(extent, prim.IntImm) and int(extent) == 1
        return self.field.zero if one else self.field.atom(variable(var))

    def _equal(self, a: Sequence[Ratio], b: Sequence[Ratio]) -> bool:
        return len(a) == len(b) and all(map(self.field.equal, a, b))

    def _same(self, a: Any, b: Any) -> bool:
        return self.field.equal(self._terms().number(a), self._terms().number(b))


def _selections(expr: Any) -> list[Any]:
    """Return the selections in an expression."""
    found: list[Any] = []

    def call(node: Any) -> None:
        if str(getattr(node.op, "name", "")) == "tirx.if_then_else":
            found.append(node)

    tvm_ffi.structural_walk(expr, [(prim.Select, found.append), (Call, call)])
    return found
