"""Equations of lattices and of bits, decided by truth tables.

Two expressions of maxima and minima are equal for all numbers if and only if they are for numbers
that are either below or not below a threshold, for every threshold. Two bit-wise expressions are
equal if and only if they are for single bits. Both leave finitely many cases to try.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from .terms import Term, TermTable, operands_first

# Unknowns up to which all cases are tried.
_UNKNOWNS = 10


def equal_by_table(table: TermTable, a: Term, b: Term) -> bool:
    """Whether two terms are equal whatever their unknown parts are.

    - `table`: table of the terms.
    - `a`, `b`: terms of one type.
    - Returns: False if they differ, or are not of this kind.
    """
    for operations, cases in ((("max", "min"), _thresholds), (_BITS, _columns)):
        if a.op in operations or b.op in operations:
            if a.type.kind == "f" and table.exact:
                return False
            return _agree(table, a, b, operations, cases)
    return False


_BITS = ("bits and", "bits or", "bits xor", "not")

_OPERATIONS: dict[str, Callable[[Iterable[bool]], bool]] = {
    "max": any,
    "min": all,
    "bits and": all,
    "bits or": any,
    "bits xor": lambda values: sum(values) % 2 == 1,
    "not": lambda values: not any(values),
}


def _agree(table: TermTable, a: Term, b: Term, operations: tuple[str, ...], cases: Any) -> bool:
    leaves: dict[int, Term] = {}
    pending = [a, b]
    seen: set[int] = set()
    while pending:
        term = pending.pop()
        if term.number in seen:
            continue
        seen.add(term.number)
        if term.op in operations:
            pending.extend(term.args)
        else:
            leaves[term.number] = term
    known = {n: table.ordered(t, t.type) for n, t in leaves.items()}
    unknown = [number for number, value in known.items() if value is None]
    if len(unknown) > _UNKNOWNS:
        return False
    constants = {number: value for number, value in known.items() if value is not None}
    for fixed in cases(constants, a.type.bits):
        for values in itertools.product((False, True), repeat=len(unknown)):
            case = {**fixed, **dict(zip(unknown, values, strict=True))}
            # It also takes what is found of the operands, which many may share.
            if _value(a, case) != _value(b, case):
                return False
    return True


def _value(term: Term, case: dict[int, bool]) -> bool:
    for part in operands_first(term, case):
        values = (case[arg.number] for arg in part.args)
        case[part.number] = _OPERATIONS[part.op](values)
    return case[term.number]


def _thresholds(constants: dict[int, Any], _bits: int) -> list[dict[int, bool]]:
    """Return which constants are not below a threshold, for every threshold."""
    values = sorted(set(constants.values()))
    cases = [{number: value >= least for number, value in constants.items()} for least in values]
    return [*cases, {number: False for number in constants}]


def _columns(constants: dict[int, Any], bits: int) -> list[dict[int, bool]]:
    """Return the bits of the constants at every position."""
    return [
        {number: bool((value >> position) & 1) for number, value in constants.items()}
        for position in range(bits)
    ]
