"""Ranges of integer terms, and whether they show that an operation is defined."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping

from ..evaluation.scalars import ScalarType, truncdiv
from ..proof.terms import Term, TermTable, operands_first
from .partial import Need

#: The smallest and the largest value.
Range = tuple[int, int]


class Ranges:
    """Finds ranges of integer terms.

    - `table`: table of the terms.
    - `known`: what is known of unknowns, by the number of the term: from, and below.
    """

    def __init__(self, table: TermTable, known: Mapping[int, tuple[int, int]]) -> None:
        self._table = table
        self._known = known
        self._found: dict[int, Range] = {}

    def of(self, term: Term) -> Range:
        """Return the range of an integer or a bool."""
        for part in operands_first(term, self._found):
            self._found[part.number] = self._range(part)
        return self._found[term.number]

    def defined(self, need: Need) -> bool:
        """Whether ranges of its operands show that an operation is defined."""
        if need.kind in ("fits", "call"):
            return False
        ranges = [self.of(operand) for operand in need.operands]
        low, high = ranges[0]
        if need.kind == "inside":
            return low >= 0 and high < ranges[1][0]
        if need.kind == "divisor":
            return low > 0 or high < 0
        if need.kind == "shift":
            return low >= 0 and high < need.operands[0].type.bits
        type = need.operands[0].type
        if need.kind == "quotient":
            return low > type.low or ranges[1][0] > -1 or ranges[1][1] < -1
        return _fits(type, _corners(need.detail, ranges[0], ranges[1]))

    def _range(self, term: Term) -> Range:
        type = term.type
        if type.kind == "f":
            return (0, 0)
        value = self._table.ordered(term, type)
        if value is not None:
            return (int(value), int(value))
        if term.number in self._known:
            first, end = self._known[term.number]
            return (first, end - 1)
        found = self._combined(term)
        return found if found is not None and _fits(type, found) else (type.low, type.high)

    def _combined(self, term: Term) -> Range | None:
        """Return the range of an operation before it wraps around, or None."""
        if term.op == "poly":
            return self._polynomial(term)
        if any(arg.type.kind == "f" for arg in term.args):
            return None
        parts = [self._found[arg.number] for arg in term.args]
        if term.op in ("max", "min"):
            pick = max if term.op == "max" else min
            return pick(low for low, _ in parts), pick(high for _, high in parts)
        if term.op == "bits and":
            ends = [high for low, high in parts if low >= 0]
            return (0, min(ends)) if ends else None
        if term.op == "extend" or term.op == "cut":
            return parts[0]
        if term.op == "cast" and term.args[0].type.kind == "b":
            return (0, 1)
        if term.op == "ite":
            return min(parts[1][0], parts[2][0]), max(parts[1][1], parts[2][1])
        if term.op in ("floordiv", "div", "floormod", "truncmod"):
            return _divided(term.op, *parts)
        if term.op == "shr" and parts[1][0] >= 0 and parts[1][1] < term.type.bits:
            ends = [end >> by for end in parts[0] for by in parts[1]]
            return min(ends), max(ends)
        return None

    def _polynomial(self, term: Term) -> Range:
        half = 1 << (term.type.bits - 1)
        low = high = 0
        for monomial, coefficient in term.data:
            part = (1, 1)
            for number, power in monomial:
                for _ in range(min(power, 2)):
                    part = _corners("mul", part, self._found[number])
                if power > 2:
                    return (term.type.low, term.type.high)
            # A residue that is meant to be negative.
            signed = coefficient - 2 * half if coefficient >= half else coefficient
            part = _corners("mul", part, (signed, signed))
            low, high = low + part[0], high + part[1]
        return low, high


def _fits(type: ScalarType, found: Range) -> bool:
    return bool(type.low <= found[0] and found[1] <= type.high)


def _corners(name: str, a: Range, b: Range) -> Range:
    if name == "add":
        return a[0] + b[0], a[1] + b[1]
    if name == "sub":
        return a[0] - b[1], a[1] - b[0]
    ends = [x * y for x, y in itertools.product(a, b)]
    return min(ends), max(ends)


def _divided(name: str, a: Range, by: Range) -> Range | None:
    """Return the range of a quotient or remainder; None if the divisor may be 0."""
    if by[0] <= 0 <= by[1]:
        return None
    if name == "floormod":  # has the sign of the divisor
        return (0, by[1] - 1) if by[0] > 0 else (by[0] + 1, 0)
    if name == "truncmod":  # has the sign of the dividend, and is not beyond it
        most = max(abs(end) for end in by) - 1
        return max(-most, min(a[0], 0)), min(most, max(a[1], 0))
    divide: Callable[[int, int], int] = truncdiv if name == "div" else operator.floordiv
    ends = [divide(x, y) for x, y in itertools.product(a, by)]
    return min(ends), max(ends)
