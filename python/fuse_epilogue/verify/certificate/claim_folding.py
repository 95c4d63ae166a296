"""TVM's simplifier sees one store at a time, and takes some things for granted.

Of ``(x + y) - y`` it makes ``x``, of ``x - x`` a zero, and of ``not x < y`` it makes ``y <= x``: it
takes floats for numbers. Of ``max(int32(c + 1), -127)`` with c of 8 bits it makes ``int32(c + 1)``:
it takes integers of 8 bits not to wrap around. A store of the function after must be simplified to
the value that the stores before have, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from ...tir.walk import handle
from ..evaluation.scalars import scalar_type
from ..proof.algebra import MONOIDS, Finished, identity_of
from ..proof.terms import Term
from .simplifier import may_mistake
from .subject import Subject, demand, is_unchanged
from .value_terms import Reading, Values, attempt

_REASON = "TVM's simplifier takes it for something else, and did not in the function before"


def check_folding(subject: Subject, timeout: float) -> None:
    """Prove that merging lets TVM's simplifier change no value.

    - Raises CertificateError: naming the tail, the init or the terms.
    """
    certificate = subject.certificate
    merges = len(certificate.tails) < len(certificate.epilogues)
    changes = not is_unchanged(certificate) and _is_exact(subject)
    if not (merges or changes) or not _may_mistake(subject):
        return
    if merges:
        _check_tails(Values(subject, True, timeout))
    if changes:
        _check_reduction(Values(subject, True, timeout))


def _is_exact(subject: Subject) -> bool:
    """Whether the reduction is one of integers or bools."""
    return scalar_type(subject.certificate.result.ty.dtype.dtype).kind != "f"


def _may_mistake(subject: Subject) -> bool:
    blocks = [*subject.fused, subject.reduction_after, *subject.tails]
    statements = [stmt for each in blocks for stmt in (each.block.init, each.block.body)]
    return any(stmt is not None and may_mistake(stmt) for stmt in statements)


#: What every buffer holds in the end.
Finals = dict[int, Finished]


def _check_tails(values: Values) -> None:
    def read(reading: Reading, make: Callable[..., Finals], *arguments: Any) -> Finals:
        values.reading = reading
        return make(*arguments)

    compiled = read(Reading.AS_COMPILED, values.left)
    pairs = [
        (compiled, read(Reading.AS_WRITTEN, values.left)),
        (compiled, read(Reading.AS_COMPILED, values.composed)),
        (compiled, read(Reading.SIMPLIFIED_RIGHTLY, values.left)),
    ]
    holders = _holders(values)
    if holders:
        y = values.table.unknown("y", 0, values.type_after)
        known = dict.fromkeys(holders, y)
        after = read(Reading.AS_COMPILED, values.left, y)
        pairs.append((after, read(Reading.AS_COMPILED, values.composed, None, known)))
    for place, tail in enumerate(values.certificate.tails):
        key = handle(tail.output)
        if key not in pairs[1][1]:
            continue
        terms = ([each[key].loaded(values.table) for each in pair] for pair in pairs)
        holds = any(values.equal(found, right) for found, right in terms)
        demand(holds, f"tails[{place}].value", _REASON)


def _holders(values: Values) -> list[int]:
    """Return the buffers that hold, before, what the result holds after."""
    values.reading = Reading.AS_WRITTEN
    result = values.at(values.certificate.absorbed, values.x, old=True)
    stores = {handle(store.buffer) for store in values.stores if not values.rounds(store.buffer)}
    finals = values.composed()
    return [key for key in stores if values.equal(finals[key].loaded(values.table), result)]


def _check_reduction(values: Values) -> None:
    certificate, table = values.certificate, values.table
    names = [certificate.monoid, certificate.monoid_after]
    if not all(name in MONOIDS for name in names):
        return  # which is the next claim to fail
    types = values.type, values.type_after
    neutral = [
        identity_of(table, MONOIDS[name], type) for name, type in zip(names, types, strict=True)
    ]

    def start(store: Any) -> Term:
        made = values.expressions()
        made.before = values.places()
        return made.term(values.as_read(store.value))

    def starts_before() -> Iterator[Term]:
        yield values.at(certificate.absorbed, start(values.start), old=True)
        holders = _holders(values)
        values.reading = Reading.AS_COMPILED
        finals = values.composed(start(values.start))
        yield from (finals[key].loaded(table) for key in holders)

    def steps_before() -> Iterator[Term]:
        yield values.at(certificate.distributed, values.step(False, neutral[0]))

    pairs: dict[str, tuple[Callable[[], Term], Callable[[], Iterator[Term]]]] = {
        "init": (lambda: start(values.start_after), starts_before),
        "distributed": (lambda: values.step(True, neutral[1]), steps_before),
    }
    for claim, (after, before) in pairs.items():
        values.reading = Reading.AS_WRITTEN
        written = attempt(after, claim)
        values.reading = Reading.AS_COMPILED
        found = attempt(after, claim)
        rights = chain([written], before())
        holds = attempt(partial(_holds_any, values, found, rights), claim)
        demand(holds, claim, _REASON)


def _holds_any(values: Values, found: Term, rights: Iterable[Term]) -> bool:
    return any(values.equal(found, right) for right in rights)
