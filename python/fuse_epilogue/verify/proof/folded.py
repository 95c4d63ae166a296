"""Terms whose literals were folded: equal but for the rounding of coefficients.

``x * 0.1 * 0.3`` and ``x * 0.03`` are different real numbers, since the product of two literals is
rounded. Where floating operations may be reassociated, one may stand for the other.
"""

from __future__ import annotations

from fractions import Fraction

from .terms import Term


def equal_but_for_rounding(a: Term, b: Term, part: float) -> bool:
    """Whether two terms of real numbers are of one form, with coefficients that nearly agree.

    - `a`, `b`: terms of one table, in which floats are real numbers.
    - `part`: by which part of itself a coefficient may differ from the other one.
    - Returns: False also where the terms are of several forms that mean the same.
    """
    agreed: set[tuple[int, int]] = set()
    pending = [(a, b)]
    while pending:
        one, other = pending.pop()
        key = (one.number, other.number)
        if one is other or key in agreed:
            continue
        agreed.add(key)
        if one.type is not other.type:
            return False
        if "poly" in (one.op, other.op) and one.type.kind == "f":
            parts = _factors(one), _factors(other)
            if len(parts[0]) != len(parts[1]) or not _coefficients_agree(one, other, part):
                return False
            pending += zip(*parts, strict=True)
        elif (one.op, one.data, len(one.args)) != (other.op, other.data, len(other.args)):
            return False
        elif not one.args:
            return False
        else:
            pending += zip(one.args, other.args, strict=True)
    return True


def _factors(term: Term) -> tuple[Term, ...]:
    return term.args if term.op == "poly" else (term,)


def _coefficients_agree(a: Term, b: Term, part: float) -> bool:
    """Compare two polynomials whose factors correspond to each other in their order."""
    found, expected = (_by_places(term) for term in (a, b))
    return found.keys() == expected.keys() and all(
        abs(found[monomial] - value) <= Fraction(part) * abs(value)
        for monomial, value in expected.items()
    )


def _by_places(term: Term) -> dict[tuple[tuple[int, int], ...], Fraction]:
    """Return the coefficients of a polynomial by the places of the factors among its operands."""
    if term.op != "poly":
        return {((0, 1),): Fraction(1)}
    places = {arg.number: place for place, arg in enumerate(term.args)}
    return {tuple((places[n], power) for n, power in m): Fraction(c) for m, c in term.data}
