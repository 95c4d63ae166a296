"""The claims of a certificate about values, each proved again.

An accumulator that goes through ``x = init``, ``x = x (+) t`` for one term t after the other, and
one that goes through ``y = F(init)``, ``y = y (+)' H(t)`` in the same order, satisfy ``y = F(x)``
all the time if ``F(x (+) t) = F(x) (+)' H(t)`` for all x and t. That equation is proved, that the
blocks before and after do these steps, and that what is stored in the end is the same function of
x.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm.ir import prim

from ...tir.walk import handle, same, substitute, uses
from ..evaluation.scalars import scalar_type
from ..proof.algebra import MONOIDS, combine, identity_of
from ..proof.log_sums import exponents_of
from ..proof.terms import Term
from .claim_domains import injective
from .claim_folding import check_folding
from .regions import is_own_memory, places_differ
from .subject import CertificateError, Subject, demand, is_unchanged, observed
from .value_terms import Values, attempt


def check_values(subject: Subject, timeout: float) -> Values:
    """Prove every claim about values.

    - Returns: the terms of the proof: floats are real numbers in them where the call reassociates.
    - Raises CertificateError: naming the claim.
    """
    values = _values(subject, timeout)
    check_folding(subject, timeout)
    return values


def _values(subject: Subject, timeout: float) -> Values:
    try:
        return _proved(subject, timeout, folds=False)
    except CertificateError:
        if not subject.certificate.reassociates:
            raise
        try:
            # x * 0.1 * 0.3 may have become x * 0.03, which is not the same real number.
            return _proved(subject, timeout, folds=True)
        except CertificateError:
            pass
        raise


def _proved(subject: Subject, timeout: float, *, folds: bool) -> Values:
    """Prove every claim about values; where literals may be folded, up to their rounding."""
    certificate = subject.certificate
    real = Values(subject, False, timeout, folds=folds)
    _check_places(subject, real)
    _check_types(subject, real)
    _check_reduction(real)
    _check_algebra(real)
    changed = real.type.kind == "f" and not is_unchanged(certificate)
    exact = Values(subject, True, timeout)
    if not changed:
        _check_identical(exact)
    failed = _unequal(subject, exact)
    narrow = changed and _is_narrow(real)
    demand(not narrow, "reassociates", "a sum or product of less than 32 bits is reordered")
    _check_rounding(real)
    strict = certificate.numerics == "exact"
    demand(not (changed and strict), "numerics", "floating operations are reordered")
    claimed = bool(certificate.reassociates)
    demand(claimed or not changed, "reassociates", "floating operations are reordered")
    # Where the reduction stays as it is, an operation may have been left out: x * 1.0.
    dropped = bool(failed) and real.type.kind == "f" and not strict
    reason = "no floating operation is reordered"
    demand(changed or dropped or not claimed, "reassociates", reason)
    if failed and claimed:
        failed = _unequal(subject, real)
    elif failed and not strict:
        # The maximum with -inf may have been left out: it changes nothing but a NaN.
        exact.table.numbers = True
        failed = _unequal(subject, exact)
    if failed:
        raise CertificateError(*failed)
    return real if claimed else exact


def _check_rounding(values: Values) -> None:
    """Prove that the memory of a bfloat16 sum or product rounds after each step, or never."""
    certificate = values.certificate
    rounds = [values.rounds(var) for var in (certificate.accumulator, certificate.result)]
    demand(
        rounds[0] == rounds[1] or not MONOIDS[certificate.monoid].rounds,
        "result",
        f"'{certificate.result.name}' and '{certificate.accumulator.name}' round differently",
    )


def _is_narrow(values: Values) -> bool:
    """Whether the reduction rounds floats of less than 32 bits where it combines them."""
    return values.type.bits < 32 and MONOIDS[values.certificate.monoid].rounds


def _check_places(subject: Subject, values: Values) -> None:
    """Prove which buffers and elements the reduction uses."""
    certificate, elements = subject.certificate, subject.elements
    sides = (
        ("accumulator", "indices", values.update, values.start),
        ("result", "result_indices", values.update_after, values.start_after),
    )
    for buffer, indices, update, start in sides:
        claimed = getattr(certificate, buffer)
        place = list(getattr(certificate, indices))
        for store in (update, start):
            reason = f"the reduction accumulates in '{store.buffer.name}'"
            demand(same(store.buffer, claimed), buffer, reason)
            demand(
                subject.domain.equal(list(store.indices), place),
                indices,
                "the reduction accumulates at another element",
            )
        demand(injective(elements, place), indices, "elements are not proved to be different")
        _demand_memory(claimed, buffer)
    for place_, store in enumerate(values.stores):
        demand(
            injective(elements, store.indices),
            f"epilogues[{place_}].h",
            "outputs of different elements are not proved to be different",
        )
        _demand_memory(store.buffer, f"epilogues[{place_}].h")


def _demand_memory(buffer: Any, claim: str) -> None:
    reason = f"strides put elements of '{buffer.name}' into one place in memory"
    demand(places_differ(buffer), claim, reason)


def _check_types(subject: Subject, values: Values) -> None:
    certificate = subject.certificate
    kind = scalar_type(certificate.result.ty.dtype.dtype)
    demand(
        kind.kind == values.type.kind and kind.bits >= values.type.bits,
        "result",
        f"the accumulator is narrowed from {values.type.name} to {kind.name}",
    )
    if subject.is_new:
        shapes = [list(var.ty.shape) for var in (certificate.accumulator, certificate.result)]
        places = certificate.indices, certificate.result_indices
        alike = subject.elements.equal(*shapes) and subject.elements.equal(*places)
        demand(alike, "result", "it does not have the elements of the accumulator")
        own = is_own_memory(certificate.result, certificate.accumulator)
        demand(own, "result", "different elements of it may be one place in memory")
    else:
        scopes = [str(v.ty.storage_scope) for v in (certificate.accumulator, certificate.result)]
        demand(scopes[0] == scopes[1], "result", f"it is in scope '{scopes[1]}', not '{scopes[0]}'")
    for name in ("monoid", "monoid_after"):
        monoid = MONOIDS.get(getattr(certificate, name))
        if monoid is None:
            raise CertificateError(name, f"there is no monoid '{getattr(certificate, name)}'")
        demand(values.type.kind in monoid.kinds, name, f"it is not one of {values.type.name}")


def _check_reduction(values: Values) -> None:
    """Prove that both updates combine with the claimed monoids."""
    certificate, table = values.certificate, values.table
    for name, after in (("monoid", False), ("monoid_after", True)):
        monoid = MONOIDS[getattr(certificate, name)]
        where = "after" if after else "reduction"
        found = attempt(lambda after=after: values.step(after, values.x), where)
        neutral = identity_of(table, monoid, values.type)
        term = attempt(lambda after=after, neutral=neutral: values.step(after, neutral), where)
        combined = combine(table, monoid, values.type, values.x, term)
        demand(values.equal(found, combined), name, "it is not what the update does")


def _check_algebra(values: Values) -> None:
    """Prove init, F and H."""
    certificate, table = values.certificate, values.table
    old, new = (MONOIDS[getattr(certificate, name)] for name in ("monoid", "monoid_after"))
    term = values.step(False, identity_of(table, old, values.type))
    after = values.step(True, identity_of(table, new, values.type))
    distributed = attempt(lambda: values.at(certificate.distributed, term), "distributed")
    demand(
        values.equal(after, distributed), "distributed", "the terms after are not H of the terms"
    )
    makes = values.expressions()
    makes.before = values.places()
    start = attempt(lambda: makes.term(values.start.value), "reduction")
    claimed = attempt(lambda: makes.term(certificate.init), "init")
    found = attempt(lambda: makes.term(values.start_after.value), "init")
    demand(values.equal(claimed, found), "init", "it is not what T.init stores")
    lifted = attempt(lambda: values.at(certificate.absorbed, start, old=True), "absorbed")
    demand(values.equal(lifted, claimed), "absorbed", "init after is not F of init before")
    if new.clashes and not is_unchanged(certificate):
        _check_infinities(values, claimed)
    moved = not same(certificate.result, certificate.accumulator) or not is_unchanged(certificate)
    if moved and uses(certificate.init, certificate.result):
        # It reads what the first update overwrites.
        demand(_init_is_first(values.subject), "init", "an update may come before T.init")
    both = combine(table, old, values.type, values.x, values.t)
    apart = (
        values.at(certificate.absorbed, values.x, old=True),
        values.at(certificate.distributed, values.t),
    )
    demand(
        values.equal(
            values.at(certificate.absorbed, both, old=True),
            combine(table, new, values.type, *apart),
        ),
        "absorbed",
        "F(x + t) = F(x) + H(t) is not proved",
    )


def _check_infinities(values: Values, start: Term) -> None:
    """Prove that no two infinities meet that did not meet before.

    The start, if it is combined of several values, has a finite one among them; and what is added
    to each term is finite.
    """
    table, certificate = values.table, values.certificate
    parts = exponents_of(table, start)
    finite = len(parts) == 1 or any(table.constant(part) is not None for part in parts)
    demand(finite, "init", "two infinities may be combined in it")
    shift = table.binary("sub", values.type, values.at(certificate.distributed, values.t), values.t)
    demand(table.constant(shift) is not None, "distributed", "it may make infinities of all terms")


def _init_is_first(subject: Subject) -> bool:
    """Whether T.init, where all reduction axes are at their start, comes before all updates."""
    return all(
        subject.domain.holds(prim.LE(substitute(expr, subject.first_step), expr))
        for expr in subject.certificate.inverse
    )


def _check_identical(values: Values) -> None:
    """Prove that every operation of the reduction is the same where none may be reordered."""
    if values.type.kind != "f":
        return
    makes = values.expressions()
    makes.before = values.places()
    pairs: Mapping[str, tuple[Any, Any]] = {
        "distributed": (values.step(False, values.x), values.step(True, values.x)),
        "init": (makes.term(values.start.value), makes.term(values.start_after.value)),
    }
    for claim, (a, b) in pairs.items():
        demand(values.equal(a, b), claim, "a floating operation changed")


def _unequal(subject: Subject, values: Values) -> tuple[str, str] | None:
    """Find something that anybody sees and that is not stored, or not proved to be the same."""
    before, after = values.composed(), values.left()
    outputs = {handle(tail.output): place for place, tail in enumerate(subject.certificate.tails)}
    for key, finished in before.items():
        if not observed(subject, key):
            continue
        name = values.touched[key].name
        claim = f"tails[{outputs[key]}].value" if key in outputs else "absorbed"
        found = after.get(key)
        if found is None:
            return "tails", f"nothing stores to '{name}' any more"
        if not subject.elements.equal(list(found.indices), list(finished.indices)):
            return claim.replace("value", "indices"), f"'{name}' is stored to at another element"
        if not values.equal(*(one.loaded(values.table) for one in (finished, found))):
            return claim, f"'{name}' does not get what it got before"
    extra = set(after) - set(before) - {handle(subject.certificate.result)}
    return ("tails", "a tail stores to a buffer that no epilogue stored to") if extra else None
