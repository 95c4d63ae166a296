"""Logarithms of sums of exponentials of real numbers, in normal form.

``log(exp(a) + exp(b) + ...)`` is one of the exponents plus the node "log sum" of what the exponents
are more than that one; an exponent may be there several times. It is spelled in several ways so
that nothing overflows, each of which comes out as that by identities of real numbers:

- ``log(exp(a) + exp(b)) = c + log(exp(a - c) + exp(b - c))``,
- the larger of a and b and the smaller one, in any order, are a and b,
- the smaller one is ``max(a, b) - |a - b|``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .terms import REAL, Polynomial, Term, number_of, single_factor

if TYPE_CHECKING:
    from .symbolic import TermArithmetic

# Operands of a node up to which others are looked for among them.
_OPERANDS = 16
_OPPOSITE = {"max": "min", "min": "max"}


def log_sum(table: TermArithmetic, exponents: Sequence[Term]) -> Term:
    """Return the logarithm of the sum of the exponentials."""
    flat = [part for exponent in exponents for part in exponents_of(table, exponent)]
    if any(table.ordered(part, REAL) == math.inf for part in flat):
        return table.literal(math.inf, REAL)
    flat = [part for part in flat if table.ordered(part, REAL) != -math.inf]
    simpler = _two_of_extrema(table, flat)
    if simpler is not None:
        return log_sum(table, simpler)
    if not flat:
        return table.literal(-math.inf, REAL)
    if len(flat) == 1:
        return flat[0]
    # One of them is taken out, by what does not depend on what has been added to all of them.
    ways = [
        (sorted((_minus(table, part, base) for part in flat), key=number_of), base) for base in flat
    ]
    rest, base = min(ways, key=lambda way: [part.number for part in way[0]])
    remainder = table.node("log sum", REAL, rest)
    if table.constant(base) == 0:
        return remainder
    return table.polynomial_node({**table.polynomial(base), ((remainder.number, 1),): 1}, REAL)


def exponents_of(table: TermArithmetic, term: Term) -> Sequence[Term]:
    """Return the exponents of which a term is the logarithm of a sum: itself, unless it is one."""
    return _exponents(table, table.polynomial(term)) or (term,)


def add_to_log_sum(table: TermArithmetic, poly: Polynomial) -> Term | None:
    """Return a sum with a logarithm of a sum in it in its normal form, None of another sum."""
    exponents = _exponents(table, poly)
    return log_sum(table, exponents) if exponents else None


def _exponents(table: TermArithmetic, poly: Polynomial) -> list[Term] | None:
    """Return the exponents of a logarithm to which the rest of a sum is added, None of another."""
    found = [m for m in poly if any(table.by_number[n].op == "log sum" for n, _ in m)]
    if len(found) != 1 or poly[found[0]] != 1 or (single := single_factor(found[0])) is None:
        return None
    rest = table.from_polynomial({m: c for m, c in poly.items() if m != found[0]}, REAL)
    return [table.binary("add", REAL, arg, rest) for arg in table.by_number[single].args]


def _minus(table: TermArithmetic, a: Term, b: Term) -> Term:
    difference: Term = table.binary("sub", REAL, a, b)
    return difference


def logarithm(table: TermArithmetic, argument: Term) -> Term | None:
    """Return the logarithm of a sum of exponentials, None of something else."""
    exponents = []
    for monomial, coefficient in table.polynomial(argument).items():
        if coefficient != 1:
            return None
        if not monomial:
            exponents.append(table.number(0, REAL))
            continue
        single = single_factor(monomial)
        atom = None if single is None else table.by_number[single]
        if atom is None or (atom.op, atom.data) != ("call", "exp"):
            return None
        exponents.append(atom.args[0])
    return log_sum(table, exponents) if exponents else None


def magnitude(table: TermArithmetic, argument: Term) -> Term:
    """Return the magnitude of a number, the same node for both signs of it."""
    value = table.ordered(argument, REAL)
    if value is not None:
        return table.literal(abs(value), REAL)
    opposite = _minus(table, table.number(0, REAL), argument)
    return table.node("magnitude", REAL, (min(argument, opposite, key=number_of),))


def _two_of_extrema(table: TermArithmetic, parts: list[Term]) -> list[Term] | None:
    """Return exponents with two numbers in place of the larger and the smaller of them."""
    for p, q in itertools.permutations(parts[:_OPERANDS], 2):
        both = _sorted_pair(table, p, q)
        if both is not None:
            rest = list(parts)
            rest.remove(p)
            rest.remove(q)
            return [*rest, *both]
    return None


def _sorted_pair(table: TermArithmetic, p: Term, q: Term) -> tuple[Term, Term] | None:
    """Return the numbers of which p is the larger and q the smaller one, None if none are known."""
    for one, other in (("max", q), ("min", p)):
        # q is min(a, b) and p the maximum of these, or the other way round.
        if other.op == _OPPOSITE[one] and len(other.args) == 2:
            if table.extremum(one, REAL, other.args) is (p if other is q else q):
                return other.args[0], other.args[1]
    if p.op != "max" or len(p.args) > _OPERANDS:
        return None
    # q is max(a, b) - |a - b|.
    inside = q.args[0] if q.op in _OPPOSITE else q
    for factor in inside.args if inside.op == "poly" else ():
        if factor.op != "magnitude" or q is not _minus(table, p, factor):
            continue
        difference = factor.args[0]
        for a, name in itertools.product(p.args, ("add", "sub")):
            b = table.binary(name, REAL, a, difference)
            if table.extremum("max", REAL, (a, b)) is p:
                return a, b
    return None
