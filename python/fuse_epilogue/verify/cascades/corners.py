"""Carriers at a value where a law does not hold as it is written, and what stands for it there.

A maximum may start at -inf. While it is -inf, so are the keys (or NaN, which stays): then the terms
read 0 instead of it, and are exp(-inf) = 0. A row that never leaves -inf gives what the program
gives, NaN, by a choice after the loop.

A largest magnitude m may be 0. Then all x are, and x^p stands for (x / m)^p: 0, or NaN for a NaN. A
row that stays 0 gives 0 / 0 after the loop, as it does in the program.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..certificate.subject import CertificateError, demand
from ..proof.field import Field, Ratio
from .claims import Stage

# The largest power of a ratio that is tried.
_POWERS = 8


def infinite_start(field: Field, head: Stage) -> float | None:
    """Return the infinity that a maximum or minimum starts from as from its identity, or None."""
    if head.monoid == "max" and field.equal(head.init, field.lowest):
        return -math.inf
    if head.monoid == "min" and field.equal(head.init, field.neg(field.lowest)):
        return math.inf
    return None


def reads_start(field: Field, stage: Stage, heads: list[Stage]) -> bool:
    """Whether terms are others where a carrier is still the infinity that it starts at."""
    starts = [head for head in heads if infinite_start(field, head) is not None]
    there = [field.equality(field.atom(head.value), head.init) for head in starts]
    return any(not field.equal(field.decided(stage.step, c, False), stage.step) for c in there)


def rolls_ratio(field: Field, stage: Stage, heads: list[Stage]) -> bool:
    """Whether the carrier is a largest magnitude, and terms are others where it is 0."""
    if len(heads) != 1 or _magnitude(field, heads[0]) is None:
        return False
    return not field.equal(field.decided(stage.step, _is_zero(field, heads[0]), False), stage.step)


def elsewhere(field: Field, stage: Stage, heads: list[Stage]) -> Stage:
    """Return the claims where no carrier is at such a value."""
    if rolls_ratio(field, stage, heads):
        conditions = [_is_zero(field, heads[0])]
    else:
        starts = [head for head in heads if infinite_start(field, head) is not None]
        conditions = [field.equality(field.atom(head.value), head.init) for head in starts]
    step, tail = stage.step, stage.tail
    for there in conditions:
        step = field.decided(step, there, False)
        tail = None if tail is None else field.decided(tail, there, False)
    return replace(stage, step=step, tail=tail)


def demand_same(field: Field, stage: Stage, usual: Stage) -> None:
    """Demand that claims are the same wherever the carriers are."""
    pairs = [(stage.step, usual.step, "step")]
    if stage.tail is not None and usual.tail is not None:
        pairs.append((stage.tail, usual.tail, "tail"))
    for one, other, name in pairs:
        demand(field.equal(one, other), f"{stage.claim}.{name}", "it reads a start")


def check_start(
    field: Field, stage: Stage, usual: Stage, heads: list[Stage], factor: Ratio
) -> Ratio:
    """Prove what happens while the carrier is the infinity it starts at.

    - `stage`, `usual`: the claims, and those where the carrier has left its start.
    - `factor`: factor of the state as the carrier changes.
    - Returns: the factor where the carrier has left its start.
    """
    claim = stage.claim
    demand(len(heads) == 1, f"{claim}.carriers", "one of several starts at an infinity")
    there = field.equality(field.atom(heads[0].value), heads[0].init)
    # The rest of the proof says that the step has a factor exp(c (x - r)): exp(c x) of infinity.
    left = field.decided(factor, there, False)
    for name, number, later in (
        ("step", stage.step, usual.step),
        ("correction", factor, left),
    ):
        right = field.substitute(later, {heads[0].value: field.zero})
        same = field.equal(field.decided(number, there, True), right)
        demand(same, f"{claim}.{name}", "from an infinity, inf - inf would be NaN")
    demand(stage.undefined, f"{claim}.term", "not known for a row that is infinite alone")
    answer = None if stage.tail is None else field.decided(stage.tail, there, True)
    same = answer is not None and field.equal(answer, field.literal(math.nan))
    demand(same, f"{claim}.tail", "a row that is infinite alone gives another result")
    return left


def while_changing(field: Field, stage: Stage, head: Stage, slope: Ratio) -> Ratio:
    """Return what a state is multiplied with where its carrier changes; elsewhere it stays.

    - `slope`: factor of the state in both cases.
    """
    same = field.equality(field.atom(head.previous), field.atom(head.value))
    kept = field.decided(slope, same, True)
    stays = field.equal(kept, field.one) or field.equal(kept, slope)
    demand(stays, f"{stage.claim}.correction", "a state changes although its carrier does not")
    return field.decided(slope, same, False)


def check_ratio(field: Field, stage: Stage, usual: Stage, head: Stage) -> None:
    """Prove that (x / m)^p is rolled by (m / m')^p, for the largest magnitude m of x.

    - `stage`, `usual`: the claims, and those where the magnitude is not 0.
    """
    claim = stage.claim
    x, value = _magnitude(field, head), field.atom(head.value)
    slope, offset = field.linear(stage.correction, stage.accumulated) or (field.zero, field.one)
    demand(field.equal(offset, field.zero), f"{claim}.correction", "h(0) is not 0")
    demand(field.equal(stage.state_init, field.zero), f"{claim}.state_init", "it is not 0")
    # Before the first key the magnitude is what it starts from, of any sign and size.
    kept = field.decided(slope, stage.first, True)
    demand(field.equal(kept, field.one), f"{claim}.correction", "before the first key it changes")
    quotient = while_changing(field, stage, head, field.decided(slope, stage.first, False))
    ratio = field.div(field.atom(head.previous), value)
    power = next(
        (p for p in range(1, _POWERS + 1) if field.equal(quotient, field.power(ratio, p))), None
    )
    if power is None or x is None:
        raise CertificateError(f"{claim}.correction", "it is not a power of the ratio")
    named = stage.quotient is None or field.equal(stage.quotient, quotient)
    demand(named, f"{claim}.quotient", "it is not the factor of the correction")
    rest = field.div(usual.step, field.power(field.div(x, value), power))
    free = not field.mentions(rest, head.value)
    demand(free, f"{claim}.step", "it is not such a power of what the magnitude is taken over")
    there = _is_zero(field, head)
    found = field.decided(stage.step, there, True)
    right = field.mul(rest, field.power(x, power))
    demand(field.equal(found, right), f"{claim}.step", "where the magnitude is 0 it is another one")
    answer = None if stage.tail is None else field.decided(stage.tail, there, True)
    right = field.add(stage.init, field.div(field.atom(stage.finished), value))
    same = answer is not None and field.equal(answer, right)
    demand(same, f"{claim}.tail", "a row of zeros gives another result")


def _magnitude(field: Field, head: Stage) -> Ratio | None:
    """Return x if the head is the maximum of all abs(x), or None."""
    atom = field.single(head.term) if head.monoid == "max" else None
    return atom.args[0] if atom is not None and atom.op == "fabs" else None


def _is_zero(field: Field, head: Stage) -> Ratio:
    return field.equality(field.atom(head.value), field.zero)
