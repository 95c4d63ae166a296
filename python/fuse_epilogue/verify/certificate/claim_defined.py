"""Nothing is evaluated where the function before did not evaluate it, unless it is defined there.

Each operation that is not defined for all operands is noted with the conditions under which it is
evaluated, for an element of the reduction and one of its steps. One of the function after must be
one of the function before under the same or weaker conditions, with the same operands, or proved to
be defined. Arithmetic that does not occur in the function before comes from F and H, which are
equations modulo 2**n.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...tir.walk import handle
from ..proof.algebra import Finished
from ..proof.symbolic import TermArithmetic
from ..proof.terms import Term
from .between import may_end
from .claim_order import crossed
from .partial import KINDS, Guard, Need, Needs, has_guard
from .ranges import Ranges
from .subject import CertificateError, Stored
from .value_terms import Values, attempt

# Operations of one kind before, up to which operands are compared by more than their normal form.
_CANDIDATES = 16

# Kinds of operations that end the program on a machine where they are not defined.
_FAULTS = ("inside", "divisor", "quotient", "call")


def check_defined(values: Values) -> None:
    """Prove that the function after evaluates nothing that it must not.

    - `values`: the terms in which values were proved to be the same.
    - Raises CertificateError: naming init, distributed or the value of a tail, by where the
      operation is evaluated.
    """
    known = _Known(values, _before(values))
    for claim, need in _after(values):
        if not known.allows(need):
            where = {"init": "T.init", "distributed": "the update"}.get(claim, "the tail")
            raise CertificateError(
                claim,
                f"{where} evaluates {_text(need)} where the function before need not: "
                f"{KINDS[need.kind]}",
            )


def _text(need: Need) -> str:
    if isinstance(need.expr, Stored):
        return f"{need.expr.buffer.name}{list(need.expr.indices)}"
    return str(need.expr)


# ---- What is evaluated -------------------------------------------------------------------------


def _before(values: Values) -> list[Need]:
    """Return what the function before evaluates, for an element and a step."""
    subject, certificate = values.subject, values.certificate
    place = handle(certificate.accumulator)
    rounds = values.rounds(certificate.accumulator)
    made = _maker(values)
    _store(made, values.start.moved(subject.first_step), "reduction")
    made.finished[place] = Finished(values.update.indices, _in_a_step(values))
    _store(made, values.update, "reduction")
    made.finished[place] = Finished(tuple(certificate.indices), values.x, rounds)
    # Of many epilogues each moves over all that come before it.
    ends: dict[int, bool] = {}
    for at in subject.in_order:
        first = len(made.needs)
        _store(made, values.stores[at], f"epilogues[{at}].h", values)
        over = crossed(subject.others, subject.reduction, subject.epilogues[at])
        for part in over:
            if id(part) not in ends:
                ends[id(part)] = may_end(part)
        if any(ends[id(part)] for part in over):
            # It moves over a statement after which it may not have been evaluated.
            made.needs[first:] = [n for n in made.needs[first:] if n.kind not in _FAULTS]
    return made.needs


def _after(values: Values) -> Iterable[tuple[str, Need]]:
    """Yield what the function after evaluates, with the claim that it belongs to."""
    subject, certificate = values.subject, values.certificate
    place = handle(certificate.result)
    made = _maker(values)
    _store(made, values.start_after.moved(subject.first_step), "init")
    yield from _taken("init", made)
    # In each step the accumulator is F of the one before.
    step = values.at(certificate.absorbed, _in_a_step(values), old=True)
    made.finished[place] = Finished(values.update_after.indices, step)
    _store(made, values.update_after, "distributed")
    yield from _taken("distributed", made)
    made.before.pop(place, None)
    finished = values.at(certificate.absorbed, values.x, old=True)
    made.finished[place] = Finished(
        tuple(certificate.result_indices), finished, values.rounds(certificate.result)
    )
    for at, store in enumerate(values.tails):
        claim = f"tails[{at}].value"
        _store(made, store, claim, values)
        yield from _taken(claim, made)


def _taken(claim: str, made: Needs) -> Iterable[tuple[str, Need]]:
    found, made.needs = made.needs, []
    for need in found:
        yield claim, need


def _in_a_step(values: Values) -> Term:
    """Return what the accumulator before holds in some step."""
    return values.table.unknown("x in a step", 0, values.type)


def _maker(values: Values) -> Needs:
    # Arithmetic matters only where it is guarded before.
    before = [values.start, values.update, *values.stores]
    wraps = any(has_guard(store) for store in before)
    made = Needs(wraps, values.table, values.subject.domain, values.touched, values.subject.scalars)
    made.allocated = values.allocated
    made.before = values.places()
    return made


def _store(made: Needs, store: Stored, claim: str, values: Values | None = None) -> None:
    """Note what a store evaluates; with values, remember what its element holds then."""
    attempt(lambda: made.stored(store), claim)
    if values is not None:
        noted = made.needs
        made.needs = []
        term = attempt(lambda: values.value(store, made), claim)
        made.needs = noted
        key = handle(store.buffer)
        made.finished[key] = Finished(store.indices, term, values.rounds(store.buffer))


# ---- Whether it may be -------------------------------------------------------------------------


class _Known:
    """Evaluations of the function before, and facts about terms.

    - `values`: the terms.
    - `needs`: conditions of the function before.
    """

    def __init__(self, values: Values, needs: Sequence[Need]) -> None:
        self.values = values
        self.table: TermArithmetic = values.table
        self.ranges = Ranges(values.table, values.prover.ranges)
        self.paths: dict[tuple[object, ...], list[tuple[Guard, ...]]] = {}
        self.kinds: dict[tuple[object, ...], list[Need]] = {}
        for need in needs:
            found = self.paths.setdefault(need.key, [])
            if not found:
                self.kinds.setdefault(_shape(need), []).append(need)
            if need.path not in found:
                found.append(need.path)

    def allows(self, need: Need) -> bool:
        """Whether an operation is evaluated before as well, or is proved to be defined."""
        own = self.paths.get(need.key)
        if own is not None and self._covered(need.path, own):
            return True
        if need.kind == "wrap" and own is None:
            return True
        if self._defined(need):
            return True
        for other in self.kinds.get(_shape(need), [])[:_CANDIDATES]:
            pairs = zip(need.operands, other.operands, strict=True)
            if other.key != need.key and all(self.values.equal(a, b) for a, b in pairs):
                return self._covered(need.path, self.paths[other.key])
        return False

    def _covered(self, path: Sequence[Guard], others: Sequence[Sequence[Guard]]) -> bool:
        """Whether one of several paths is taken wherever a path is, on every target."""
        if not all(others):
            return True
        for everywhere in (True, False):
            given = _conditions(path, everywhere)
            wanted = [_conditions(other, everywhere) for other in others]
            if any(set(conditions) <= set(given) for conditions in wanted):
                continue
            none = [self._not_all(conditions) for conditions in wanted]
            if not self._impossible([*given, *none]):
                return False
        return True

    def _not_all(self, conditions: Sequence[Term]) -> Term:
        both = self.table.logical("and", self.table.true, *conditions)
        negated: Term = self.table.logical("not", both)
        return negated

    def _impossible(self, conditions: Sequence[Term]) -> bool:
        """Whether conditions are proved never to hold together."""
        both = self.table.logical("and", self.table.true, *conditions)
        return self.values.equal(both, self.table.false)

    def _defined(self, need: Need) -> bool:
        """Whether an operation is proved to be defined under its conditions."""
        if need.condition is not None and self.values.subject.domain.holds(need.condition()):
            return True
        if self.ranges.defined(need):
            return True
        undefined = self._undefined(need)
        given = _conditions(need.path, True)
        return undefined is not None and self._impossible([*given, undefined])

    def _undefined(self, need: Need) -> Term | None:
        """Return the condition under which an operation is not defined, as a term."""
        table, operands = self.table, need.operands
        if need.kind == "inside":
            index, extent = operands
            constant = table.constant(extent)
            if constant is not None and constant <= index.type.high:
                extent = table.integer(constant, index.type)
            return self._outside(index, extent) if extent.type is index.type else None
        first = operands[0]
        type = first.type
        undefined: Term | None = None
        if need.kind == "divisor":
            undefined = table.compare("eq", type, first, table.integer(0, type))
        elif need.kind == "quotient":
            lowest = table.compare("eq", type, first, table.integer(type.low, type))
            minus = table.compare("eq", type, operands[1], table.integer(-1, type))
            undefined = table.logical("and", lowest, minus)
        elif need.kind == "shift":
            undefined = self._outside(first, table.integer(type.bits, type))
        return undefined

    def _outside(self, number: Term, end: Term) -> Term:
        """Return the condition that a number is negative, or not below another one."""
        type = number.type
        negative = self.table.compare("lt", type, number, self.table.integer(0, type))
        beyond = self.table.compare("ge", type, number, end)
        outside: Term = self.table.logical("or", negative, beyond)
        return outside


def _conditions(path: Iterable[Guard], everywhere: bool) -> list[Term]:
    """Return the conditions of a path; only those that every target respects, or all."""
    return [guard.condition for guard in path if guard.everywhere or not everywhere]


def _shape(need: Need) -> tuple[object, ...]:
    return (need.kind, need.detail, *(operand.type.name for operand in need.operands))
