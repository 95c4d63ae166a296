"""The laws by which a reduction that reads another one by rows shares its loop, each proved.

A state a of the keys before, at the carrier r, becomes h(a, r, r') when the carrier grows to r',
and the terms t(x, r') of the next keys are added. After all keys it is the sum of t(x, r) at the
last r if, for every key,

    h(t(x, r), r, r') = t(x, r')         (B1)
    h(a + b) = h(a) + h(b), h(0) = 0     (B2)

Over real numbers that is all. In floats a quotient above 1 would bring back what has underflowed,
and a term may overflow at a carrier that is not the last one: so the quotient must be at most 1,
and the exponents in the term that read a carrier at most 0 at each of its values.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..certificate.subject import CertificateError, demand
from ..proof.algebra import MONOIDS
from ..proof.field import Field, Ratio
from ..proof.field_arithmetic import EXPONENTIAL
from .claims import Stage
from .corners import (
    check_ratio,
    check_start,
    demand_same,
    elsewhere,
    infinite_start,
    rolls_ratio,
    while_changing,
)

# Conditions of a term that are tried each way.
_CONDITIONS = 6

#: What a rule claims: whether the state is corrected, and whether a factor is deferred.
RULES = {
    "head": (False, False),
    "defer": (False, True),
    "roll": (True, False),
    "mix": (True, True),
    "select": (True, False),
    "basis": (True, False),
}


def check_stage(
    field: Field,
    stages: Mapping[int, Stage],
    number: int,
    carriers: tuple[int, ...],
    keys: list[Any],
) -> None:
    """Prove the law of one stage.

    - `stages`: those up to this one.
    - `number`: its place.
    - `carriers`: the stages that its state depends on.
    - `keys` (list): names of the atoms of keys.
    - Raises CertificateError: naming the claim.
    """
    stage, claim = stages[number], stages[number].claim
    demand(stage.rule in RULES, f"{claim}.rule", f"there is no proof for the rule '{stage.rule}'")
    demand(stage.monoid in MONOIDS, f"{claim}.monoid", f"there is no monoid '{stage.monoid}'")
    corrected, deferred = RULES[stage.rule]
    earlier = [stages[place] for place in range(number)]
    for place, other in enumerate(earlier):
        reads = field.mentions(stage.step, other.value)
        reason = "it reads a result that is not a carrier"
        demand(not reads or place in carriers, f"{claim}.carriers", reason)
        reads = field.mentions(stage.term, other.value)
        demand(stage.rule != "head" or not reads, f"{claim}.rule", "it reads an earlier result")
    demand(bool(carriers) == corrected, f"{claim}.carriers", "not what the rule says")
    demand(all(place < number for place in carriers), f"{claim}.carriers", "a later stage")
    demand((stage.tail is not None) or not deferred, f"{claim}.tail", "nothing is deferred")
    heads = [stages[place] for place in carriers]
    usual = elsewhere(field, stage, heads)
    _check_tail(field, usual, keys)
    _check_factors(field, usual, earlier)
    if not corrected:
        same = field.equal(stage.correction, field.atom(stage.accumulated))
        demand(same, f"{claim}.correction", "nothing is to be corrected")
        demand(stage.quotient is None, f"{claim}.quotient", "nothing is to be corrected")
        return
    demand(stage.monoid == "sum", f"{claim}.monoid", "only sums are corrected")
    infinite = [head for head in heads if infinite_start(field, head) is not None]
    for head in heads:
        known = head in infinite or head.init.constant is not None
        demand(known, f"{head.claim}.init", "no correction is known from there")
    if rolls_ratio(field, stage, heads):
        check_ratio(field, stage, usual, heads[0])
    elif stage.rule == "basis":
        demand(not infinite, f"{claim}.rule", "from an infinity, inf - inf would be NaN")
        _check_basis(field, stage, heads, keys)
    else:
        _check_factor(field, stage, usual, heads)


def _check_factor(field: Field, stage: Stage, usual: Stage, heads: list[Stage]) -> None:
    """Prove the law of a state that is multiplied as a carrier changes."""
    claim, factor = stage.claim, _factor(field, stage)
    pairs = [(field.atom(head.previous), field.atom(head.value)) for head in heads]
    selects = len(pairs) == 1 and field.equal(factor, field.equality(*pairs[0]))
    if stage.rule == "select" or selects:
        demand_same(field, stage, usual)
        _check_selection(field, stage, heads, factor)
        return
    infinite = any(infinite_start(field, head) is not None for head in heads)
    if infinite:
        factor = while_changing(field, stage, heads[0], factor)
    if stage.quotient is not None:
        reason = "it is not the factor of the correction"
        demand(field.equal(stage.quotient, factor), f"{claim}.quotient", reason)
    if infinite:
        factor = check_start(field, stage, usual, heads, factor)
    at_previous = {head.value: field.atom(head.previous) for head in heads}
    before = field.mul(factor, field.substitute(usual.step, at_previous))
    demand(field.equal(before, usual.step), f"{claim}.correction", "B1 does not hold")
    _check_contraction(field, usual, heads, factor)
    _check_domination(field, usual, heads)


def _check_tail(field: Field, stage: Stage, keys: list[Any]) -> None:
    """Prove that the tail of the sum of steps is the sum of terms from the program's start."""
    claim = f"{stage.claim}.tail"
    if stage.tail is None:
        # After the last block there are all keys.
        last = field.substitute(stage.step, {stage.total: stage.every})
        same = field.equal(last, stage.term)
        demand(same, f"{stage.claim}.step", "it is not the term of the program")
        same = field.equal(stage.init, stage.state_init)
        demand(same, f"{stage.claim}.state_init", "it is not what the program starts from")
        return
    demand(not any(field.mentions(stage.tail, key) for key in keys), claim, "it reads a key")
    identities = {"sum": field.zero, "max": stage.lowest, "min": stage.highest}
    identity = identities.get(stage.monoid)
    known = identity is not None and field.equal(stage.state_init, identity)
    demand(known, f"{stage.claim}.state_init", "it is not the identity")
    if stage.monoid == "sum":
        parts = field.linear(stage.tail, stage.finished)
        if parts is None:
            raise CertificateError(claim, "it is not linear in the finished state")
        slope, offset = parts
        demand(
            field.equal(offset, stage.init), claim, "it does not add what the program starts from"
        )
        same = field.equal(field.mul(slope, stage.step), stage.term)
        demand(same, claim, "the step with what is deferred is not the term")
        return
    demand(_is_lattice(field, stage.tail, stage.finished), claim, "it does not distribute")
    found = field.substitute(stage.tail, {stage.finished: stage.step})
    right = field.extremum(stage.monoid, [stage.init, stage.term])
    demand(field.equal(found, right), claim, "the step with what is deferred is not the term")


def _check_factors(field: Field, stage: Stage, earlier: list[Stage]) -> None:
    """Prove that the named factors hold all that reads earlier results."""
    parts = None if stage.tail is None else field.linear(stage.tail, stage.finished)
    if stage.monoid != "sum":
        # A function of the finished state is deferred.
        demand(stage.rolled is None, f"{stage.claim}.rolled", "it is another one")
        found = stage.deferred
        lattice = found is None or _is_lattice(field, found, stage.finished)
        demand(lattice, f"{stage.claim}.deferred", "it is another one")
        return
    # A sum of deviations is corrected by a mean of the keys so far: the term has that of all.
    whole = [stage.step, stage.term] if stage.rule == "basis" else [stage.step]
    pairs = (
        ("rolled", stage.rolled, whole),
        ("deferred", stage.deferred, [] if parts is None else [parts[0]]),
    )
    others = {other.value: field.atom(("another", other.value)) for other in earlier}
    for name, factor, numbers in pairs:
        if factor is None:
            continue
        demand(bool(numbers) and factor.above != {}, f"{stage.claim}.{name}", "it is not a factor")
        rests = [field.div(number, factor) for number in numbers]
        free = any(field.equal(rest, field.substitute(rest, others)) for rest in rests)
        demand(free, f"{stage.claim}.{name}", "what is left reads an earlier result")


def _is_lattice(field: Field, tail: Ratio, finished: Any) -> bool:
    """Whether a tail is made of maxima and minima of the state.

    Not of sums: integers wrap around, each term on its own, and infinities of opposite signs make a
    NaN, over which the maximum of the terms passes.
    """
    if not field.mentions(tail, finished):
        return True
    atom = field.single(tail)
    if atom is None:
        return False
    if atom.op == finished:
        return True
    return atom.op in ("max", "min") and all(_is_lattice(field, a, finished) for a in atom.args)


def _factor(field: Field, stage: Stage) -> Ratio:
    """Return what a state is multiplied with, where there was a block of keys before (B2)."""
    claim = f"{stage.claim}.correction"
    parts = field.linear(stage.correction, stage.accumulated)
    if parts is None:
        raise CertificateError(claim, "it is not linear in the state")
    slope, offset = parts
    demand(field.equal(offset, field.zero), claim, "it makes something of nothing: h(0) is not 0")
    demand(field.equal(stage.state_init, field.zero), f"{stage.claim}.state_init", "it is not 0")
    # In the first block the state is 0, whatever it is multiplied with.
    return field.decided(slope, stage.first, False)


def _check_selection(field: Field, stage: Stage, heads: list[Stage], factor: Ratio) -> None:
    """Prove that terms count where a key is the selected one, and are dropped with it."""
    claim = f"{stage.claim}.rule"
    demand(len(heads) == 1 and heads[0].monoid in ("max", "min"), claim, "no single selection")
    head = heads[0]
    value, previous = field.atom(head.value), field.atom(head.previous)
    kept = field.equality(previous, value)
    demand(field.equal(factor, kept), f"{stage.claim}.correction", "it keeps what is not selected")
    chosen, holds = next(
        (
            (each, holds)
            for each, holds in _selecting(field, head)
            if field.equal(field.decided(stage.step, each, not holds), field.zero)
        ),
        (None, True),
    )
    if chosen is None:
        raise CertificateError(claim, "a term counts that is not selected")
    left = field.decided(factor, kept, False)
    named = stage.quotient is None or field.equal(stage.quotient, left)
    demand(named, f"{stage.claim}.quotient", "it is not what is left of what is not selected")
    payload = field.decided(stage.step, chosen, holds)
    demand(not field.mentions(payload, head.value), claim, "what is selected depends on the head")


def _selecting(field: Field, head: Stage) -> Iterator[tuple[Ratio, bool]]:
    """Yield conditions of the selected key and whether they hold: no key is beyond the extremum."""
    value, key = field.atom(head.value), head.term
    yield field.equality(key, value), True
    low, high = (value, key) if head.monoid == "max" else (key, value)
    yield field.condition("le", (low, high)), True
    if head.lowest.constant is not None:
        # Of integers; neither holds for a NaN.
        yield field.condition("lt", (high, low)), False


def _check_basis(field: Field, stage: Stage, heads: list[Stage], keys: list[Any]) -> None:
    """Prove that the sum of the terms at the carrier before becomes that at the carrier after.

    Both are sums over the keys before: of powers of what depends on keys, of which a carrier that
    is a sum itself gives the first one, and their number is the count.
    """
    claim = f"{stage.claim}.correction"
    accumulated = field.atom(stage.accumulated)
    start = field.decided(stage.correction, stage.first, True)
    start = field.substitute(start, {stage.count: field.zero})
    demand(field.equal(start, accumulated), claim, "it makes something of nothing")
    demand(field.equal(stage.state_init, field.zero), f"{stage.claim}.state_init", "it is not 0")
    demand(stage.quotient is None, f"{stage.claim}.quotient", "there is none")
    count = field.atom(stage.count)
    none = field.moment(field.one, keys)
    assert none is not None
    known = {none: count}
    for head in heads:
        moment = field.moment(head.term, keys)
        if head.monoid == "sum" and moment is not None:
            demand(field.equal(head.init, field.zero), f"{head.claim}.init", "it is not 0")
            known[moment] = field.atom(head.previous)
    # Where there are keys before, there is at least one.
    correction = field.decided(stage.correction, stage.first, False)
    correction = field.with_extrema(correction, "max", [count, field.one], count)
    before: dict[Any, Ratio] = {head.value: field.atom(head.previous) for head in heads}
    before[stage.total] = count
    summed = field.summed(field.substitute(stage.step, before), keys, known)
    found = field.substitute(correction, {stage.accumulated: summed})
    right = field.summed(stage.step, keys, known)
    demand(field.equal(found, right), claim, "B1 does not hold for the sums of the terms")


def _check_contraction(field: Field, stage: Stage, heads: list[Stage], factor: Ratio) -> None:
    """Prove that the quotient is at most 1."""
    claim = f"{stage.claim}.quotient"
    exponent = field.logarithm(factor)
    if exponent is None:
        raise CertificateError(claim, "it is not proved to be at most 1")
    left = exponent
    for head in heads:
        parts = field.linear(exponent, head.previous)
        sign = _sign(field, parts[0]) if parts is not None else 0
        if parts is None or sign == 0 or sign != {"max": 1, "min": -1}.get(head.monoid):
            raise CertificateError(claim, "it is not proved to be at most 1")
        apart = field.sub(field.atom(head.previous), field.atom(head.value))
        left = field.sub(left, field.mul(parts[0], apart))
    demand(field.equal(left, field.zero), claim, "it is not proved to be at most 1")


def _sign(field: Field, number: Ratio) -> int:
    """Return the sign of a constant, or of one times the logarithm of 2; 0 if it is not known."""
    for each in (number, field.div(number, field.atom("log of 2"))):
        if each.constant is not None:
            return (each.constant > 0) - (each.constant < 0)
    return 0


def _check_domination(field: Field, stage: Stage, heads: list[Stage]) -> None:
    """Prove that no exponent is above 0 at a carrier that is not the last one.

    Each exponential is looked at by itself: exp(x - m) * exp(g) is exp(x - m + g), but where m is
    not final only the latter may overflow although the program's result does not. An exponential
    that reads none of the carriers must be one of the program's.
    """
    numbers = [stage.step_apart, *(head.term for head in heads)]
    numbers += [exponent for exponent, _ in field.factors(stage.step_apart, EXPONENTIAL)]
    own = [exponent for exponent, _ in field.factors(stage.term_apart, EXPONENTIAL)]
    starts = [field.equality(field.atom(head.value), head.init) for head in heads]
    for decided in _cases(field, stage, numbers):
        if any(decided(start).constant == 1 for start in starts):
            continue  # What the step is there has been proved.
        for exponent, power in field.factors(decided(stage.step_apart), EXPONENTIAL):
            exponent = decided(exponent)
            if any(field.mentions(exponent, head.value) for head in heads):
                left = field.mul(power, exponent)
                for head in heads:
                    left = field.sub(left, _below(field, left, head, decided(head.term)))
                known = field.equal(left, field.zero)
            else:
                known = any(field.equal(exponent, decided(each)) for each in own)
            reason = "its exponent is not proved to be at most 0 at every carrier"
            demand(known, f"{stage.claim}.step", reason)


def _below(field: Field, exponent: Ratio, head: Stage, term: Ratio) -> Ratio:
    """Return the part c (x - m) of an exponent that is at most 0 for the maximum m of x, or 0."""
    slope, _ = field.linear(exponent, head.value) or (field.zero, exponent)
    if _sign(field, slope) != {"max": -1, "min": 1}.get(head.monoid):
        return field.zero
    return field.mul(slope, field.sub(field.atom(head.value), term))


def _cases(field: Field, stage: Stage, numbers: list[Ratio]) -> Iterator[Callable[[Ratio], Ratio]]:
    """Yield what decides the conditions of numbers, in all ways."""
    conditions = field.conditions(*numbers)
    demand(len(conditions) <= _CONDITIONS, f"{stage.claim}.step", "it has too many conditions")
    for choice in itertools.product((True, False), repeat=len(conditions)):

        def decided(number: Ratio, choice: tuple[bool, ...] = choice) -> Ratio:
            for condition, holds in zip(conditions, choice, strict=True):
                number = field.decided(number, condition, holds)
            return number

        yield decided
