"""Terms for what a certificate speaks of: steps, starts, and what is stored in the end."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from tvm.ir import prim

from ...tir.walk import handle, same
from ..evaluation.rounding import FORMATS
from ..evaluation.scalars import ScalarType, scalar_type
from ..proof.algebra import Finished, NotProved, stored_term
from ..proof.prover import Prover
from ..proof.symbolic import TermArithmetic
from ..proof.term_expressions import TermExpressions, axis_term
from ..proof.terms import Term
from .simplifier import simplified_rightly
from .subject import CertificateError, Stored, Subject, demand, is_unchanged, stored

# Terms after which a proof is given up.
_TERMS = 1_000_000
# How often literals may have been rounded, where several of them are folded.
_FOLDS = 8


class Reading(Enum):
    """Ways to read the value of a store.

    As it is written, as TVM's simplifier leaves it, or simplified only where nothing can be
    mistaken.
    """

    AS_WRITTEN = auto()
    AS_COMPILED = auto()
    SIMPLIFIED_RIGHTLY = auto()


class Values:
    """Terms for everything that a certificate speaks of.

    - `subject`: the blocks.
    - `exact`: whether floats are uninterpreted values; else they are real numbers.
    - `timeout`: seconds for each question that needs z3.
    - `folds`: whether terms are equal whose literals differ by what rounds where literals are
      folded.
    """

    def __init__(
        self, subject: Subject, exact: bool, timeout: float, *, folds: bool = False
    ) -> None:
        self.subject = subject
        self.certificate = subject.certificate
        # What is made of the values of stores before they are read, one at a time.
        self.reading = Reading.AS_WRITTEN
        self.type: ScalarType = scalar_type(self.certificate.accumulator.ty.dtype.dtype)
        self.type_after: ScalarType = scalar_type(self.certificate.result.ty.dtype.dtype)
        self.table = TermArithmetic(exact, _TERMS)
        self.prover = Prover(self.table, timeout)
        if folds and self.type.kind == "f":
            self.prover.rounding = _FOLDS * FORMATS[self.type.name].unit
        for var, start, extent in subject.domain.axes:
            if isinstance(start, prim.IntImm):
                axis = axis_term(self.table, var)
                first, end = int(start.value), axis.type.high + 1
                if isinstance(extent, prim.IntImm):
                    end = first + int(extent.value)
                self.prover.ranges[axis.number] = (first, end)
        self.update = stored(subject.reduction.block.body, "reduction")
        self.start = stored(subject.reduction.block.init, "reduction")
        to_before = subject.after_to_before(subject.reduction_after, subject.domain.axes, "after")
        self.update_after = stored(subject.reduction_after.block.body, "after").moved(to_before)
        self.start_after = stored(subject.reduction_after.block.init, "after").moved(to_before)
        self.stores = [self._epilogue_store(place) for place in range(len(subject.epilogues))]
        self.tails = [self._tail_store(place) for place in range(len(subject.tails))]
        written = [self.certificate.accumulator, self.certificate.result]
        written += [one.buffer for one in self.stores]
        self.touched = {handle(var): var for var in written}
        self.allocated = {key for tree in subject.trees for key in tree.allocated()}
        self.x = self.table.unknown("x", 0, self.type)
        if is_unchanged(self.certificate) and self.rounds(self.certificate.accumulator):
            self.x = stored_term(self.table, self.x)
        self.t = self.table.unknown("t", 0, self.type)

    def _epilogue_store(self, place: int) -> Stored:
        proof = self.certificate.epilogues[place]
        values = {handle(axis): h for axis, h in zip(proof.axes, proof.h, strict=True)}
        block = self.subject.epilogues[place].block
        return stored(block.body, f"epilogues[{place}].name").moved(values)

    def _tail_store(self, place: int) -> Stored:
        tail = self.subject.tails[place]
        claim = f"tails[{place}].name"
        axes = self.subject.after_to_before(tail, self.subject.spatial, claim)
        return stored(tail.block.body, claim).moved(axes)

    def expressions(self, **holes: tuple[Any, Term]) -> TermExpressions:
        """Return a maker of terms in which variables stand for given terms."""
        scalars = self.subject.scalars | {handle(var) for var, _ in holes.values()}
        made = TermExpressions(self.table, self.subject.domain, self.touched, scalars)
        made.allocated = self.allocated
        for var, term in holes.values():
            made.variable(var, term)
        return made

    def at(self, expr: Any, term: Term, *, old: bool = False) -> Term:
        """Return F or H (or any expression) with the hole filled."""
        made = self.expressions(hole=(self.certificate.hole, term))
        if old:
            made.before = self.places()
        return made.term(expr)

    def places(self) -> dict[int, tuple[Any, ...]]:
        """Return the element of each buffer that belongs to an element of the reduction."""
        certificate = self.certificate
        found = {handle(certificate.accumulator): tuple(certificate.indices)}
        found[handle(certificate.result)] = tuple(certificate.result_indices)
        return found | {handle(one.buffer): one.indices for one in self.stores}

    def as_read(self, expr: Any) -> Any:
        """Return an expression, simplified where that is asked for."""
        simplify = self.subject.domain.simplify
        if self.reading is Reading.SIMPLIFIED_RIGHTLY:
            return simplified_rightly(expr, simplify)
        return simplify(expr) if self.reading is Reading.AS_COMPILED else expr

    def value(self, store: Stored, made: TermExpressions) -> Term:
        """Return what a store leaves in its element."""
        term = made.term(self.as_read(store.value))
        for condition in reversed(store.conditions):
            finished = made.finished.get(handle(store.buffer))
            if finished is None:
                raise NotProved("a store under a condition")
            test = made.term(condition)
            kind = scalar_type(store.buffer.ty.dtype.dtype)
            term = self.table.choose(kind, test, term, finished.value)
        return term

    def step(self, after: bool, term: Term) -> Term:
        """Return one update of an accumulator that holds a term."""
        store = self.update_after if after else self.update
        made = self.expressions()
        made.finished[handle(store.buffer)] = Finished(store.indices, term)
        return self.value(store, made)

    def rounds(self, buffer: Any) -> bool:
        """Whether memory rounds what is stored in a buffer."""
        return str(buffer.ty.dtype.dtype) == "bfloat16" and handle(buffer) not in self.allocated

    def equal(self, a: Term, b: Term) -> bool:
        """Whether two terms are proved equal."""
        return self.prover.equal(a, b)

    # ---- What is finished, before and after --------------------------------------------------

    def composed(
        self, x: Term | None = None, known: Mapping[int, Term] | None = None
    ) -> dict[int, Finished]:
        """Return what every buffer holds in the end before.

        - `x`: the finished element; :attr:`x` if there is none.
        - `known`: terms that buffers hold, rather than what is stored to them.
        """
        certificate = self.certificate
        made = self.expressions()
        made.before = self.places()
        made.finished[handle(certificate.accumulator)] = Finished(
            tuple(certificate.indices), x or self.x, self.rounds(certificate.accumulator)
        )
        for place in self.subject.in_order:
            store = self.stores[place]
            term = (known or {}).get(handle(store.buffer))
            if term is None:
                self._finish(made, store, f"epilogues[{place}].h")
            else:
                made.finished[handle(store.buffer)] = Finished(store.indices, term)
        return dict(made.finished)

    def left(self, y: Term | None = None) -> dict[int, Finished]:
        """Return what every buffer holds in the end after.

        - `y`: the finished element of the result; F of :attr:`x` if there is none.
        """
        certificate = self.certificate
        made = self.expressions()
        made.before = self.places()
        made.before.pop(handle(certificate.result), None)
        y = y or self.at(certificate.absorbed, self.x, old=True)
        made.finished[handle(certificate.result)] = Finished(
            tuple(certificate.result_indices), y, self.rounds(certificate.result)
        )
        for place, store in enumerate(self.tails):
            proof = certificate.tails[place]
            claim = f"tails[{place}]."
            demand(
                same(store.buffer, proof.output), f"{claim}output", "another buffer is stored to"
            )
            equal = self.subject.elements.equal(list(store.indices), list(proof.indices))
            demand(equal, f"{claim}indices", "another element is stored to")
            claimed = attempt(
                lambda value=proof.value: made.term(self.as_read(value)), f"{claim}value"
            )
            found = attempt(lambda store=store: self.value(store, made), f"{claim}value")
            demand(self.equal(claimed, found), f"{claim}value", "something else is stored")
            self._finish(made, store, f"{claim}value")
        return dict(made.finished)

    def _finish(self, made: TermExpressions, store: Stored, claim: str) -> None:
        term = attempt(lambda: self.value(store, made), claim)
        key = handle(store.buffer)
        demand(key not in made.finished, claim, f"'{store.buffer.name}' is stored to twice")
        made.finished[key] = Finished(store.indices, term, self.rounds(store.buffer))


def attempt(make: Any, claim: str) -> Any:
    """Return what a function returns; what it cannot prove is the fault of a claim."""
    try:
        return make()
    except NotProved as error:
        raise CertificateError(claim, str(error)) from error
