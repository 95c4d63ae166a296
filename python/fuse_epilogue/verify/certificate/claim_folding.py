"""TVM's simplifier sees one store at a time, and takes some things for granted.

Of ``(x + y) - y`` it makes ``x``, of ``x - x`` a zero, and of ``not x < y`` it makes ``y <= x``: it
takes floats for numbers. Of ``max(int32(c + 1), -127)`` with c of 8 bits it makes ``int32(c + 1)``:
it takes integers of 8 bits not to wrap around. A store of the function after must be simplified to
the value that the stores before have, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...tir.walk import handle
from ..evaluation.scalars import scalar_type
from ..proof.algebra import MONOIDS, identity_of
from ..proof.terms import Term
from .simplifier import may_mistake
from .subject import Subject, demand, is_unchanged
from .value_terms import Values, attempt

_REASON = "TVM's simplifier takes it for something else, and did not in the function before"


def check_folding(subject: Subject, timeout: float) -> None:
    """Prove that merging lets TVM's simplifier change no value.

    Raises
    ------
    CertificateError
        Naming the tail, the init or the terms.
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


def _check_tails(values: Values) -> None:
    written = values.left()
    values.simplified = True
    compiled, expected = values.left(), values.composed()
    for place, tail in enumerate(values.certificate.tails):
        key = handle(tail.output)
        if key not in expected:
            continue
        found = compiled[key].loaded(values.table)
        others = [one[key].loaded(values.table) for one in (written, expected)]
        holds = any(values.equal(found, other) for other in others)
        demand(holds, f"tails[{place}].value", _REASON)


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
        return made.term(values.as_compiled(store.value))

    pairs: dict[str, tuple[Callable[[], Term], Callable[[], Term]]] = {
        "init": (
            lambda: start(values.start_after),
            lambda: values.at(certificate.absorbed, start(values.start), old=True),
        ),
        "distributed": (
            lambda: values.step(True, neutral[1]),
            lambda: values.at(certificate.distributed, values.step(False, neutral[0])),
        ),
    }
    for claim, (after, before) in pairs.items():
        values.simplified = False
        written = attempt(after, claim)
        values.simplified = True
        found, expected = attempt(after, claim), attempt(before, claim)
        holds = values.equal(found, written) or values.equal(found, expected)
        demand(holds, claim, _REASON)
