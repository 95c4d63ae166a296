"""Terms over unknowns, in normal form: equal terms are the same object.

Sums and products are polynomials, maxima, minima and bit-wise combinations are sorted sets.
Everything else is compared by structure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from ..evaluation.scalars import ScalarType, WorkLimit, rounded, scalar_type

BOOL = scalar_type("bool")
#: The type of real numbers.
REAL = scalar_type("float64")

# Products of sums with more terms than this stay products; so do coefficients with more bits, and
# a sum with a maximum of more operands stays a sum.
_MONOMIALS = 400
_BITS = 4096

#: A monomial: the numbers of its factors, sorted, each with its power: a chain of squares has a
#: power that no list of factors could hold. A polynomial: a coefficient for each.
Monomial = tuple[tuple[int, int], ...]
Polynomial = dict[Monomial, Any]


class Term:
    """A node.

    - `op`: ``var``, ``poly`` or the name of an operation.
    - `type`: type of the value; float64 stands for a real number.
    - `args`: operands; for a polynomial its factors.
    - `data`: what else makes it this node: name and element of an unknown, coefficients,
      parameters.
    - `number`: its place in its table.
    """

    __slots__ = ("args", "data", "number", "op", "type")

    def __init__(
        self, op: str, type: ScalarType, args: tuple[Term, ...], data: Any, number: int
    ) -> None:
        self.op = op
        self.type = type
        self.args = args
        self.data = data
        self.number = number


class TermTable:
    """Makes terms and finds the same one again.

    - `exact`: True: floats are uninterpreted values. False: floats are real numbers.
    - `limit`: how many terms may be made before `WorkLimit` is raised.
    """

    def __init__(self, exact: bool, limit: int) -> None:
        self.exact = exact
        self._left = limit
        self._terms: dict[Any, Term] = {}
        self.by_number: list[Term] = []

    # ---- Nodes -------------------------------------------------------------------------------

    def node(self, op: str, type: ScalarType, args: Sequence[Term], data: Any = None) -> Term:
        """Return the node with these parts."""
        key = (op, type.name, tuple(arg.number for arg in args), data)
        term = self._terms.get(key)
        if term is None:
            self._left -= 1
            if self._left < 0:
                raise WorkLimit("too many terms")
            term = Term(op, type, tuple(args), data, len(self.by_number))
            self._terms[key] = term
            self.by_number.append(term)
        return term

    def unknown(self, name: str, element: int, type: ScalarType) -> Term:
        """Return the unknown that stands for an element of a buffer, or for a number (-1)."""
        return self.node("var", self._sort(type), (), (name, element, type.name))

    def _sort(self, type: ScalarType) -> ScalarType:
        return REAL if type.kind == "f" and not self.exact else type

    def _is_ring(self, type: ScalarType) -> bool:
        return type.kind in "iu" or (type.kind == "f" and not self.exact)

    # ---- Polynomials -------------------------------------------------------------------------

    def polynomial(self, term: Term) -> Polynomial:
        """Return a number as a polynomial."""
        if term.op == "poly":
            return dict(term.data)
        return {((term.number, 1),): 1}

    def from_polynomial(self, poly: Polynomial, type: ScalarType) -> Term:
        """Return the term of a polynomial."""
        if type.kind == "f":
            poly = {monomial: c for monomial, c in poly.items() if c}
        else:
            modulus = 1 << type.bits
            poly = {m: c % modulus for m, c in poly.items() if c % modulus}
        if len(poly) == 1:
            ((monomial, coefficient),) = poly.items()
            if coefficient == 1 and (single := single_factor(monomial)) is not None:
                return self.by_number[single]
        if type.kind == "f":
            pushed = self.real_sum(poly)
            if pushed is not None:
                return pushed
        return self.polynomial_node(poly, type)

    def polynomial_node(self, poly: Polynomial, type: ScalarType) -> Term:
        """Return the node of a polynomial that is in normal form."""
        factors = sorted({number for monomial in poly for number, _ in monomial})
        args = [self.by_number[number] for number in factors]
        return self.node("poly", type, args, tuple(sorted(poly.items())))

    def real_sum(self, poly: Polynomial) -> Term | None:
        """Return the normal form of a sum that is not a polynomial, None if it is one."""
        return self._push_into_extremum(poly)

    def _push_into_extremum(self, poly: Polynomial) -> Term | None:
        """``k max(a, b) + p`` is ``max(k a + p, k b + p)``, a minimum where k is negative."""
        found = None
        for monomial in poly:
            if any(self.by_number[number].op in ("max", "min") for number, _ in monomial):
                if found is not None or single_factor(monomial) is None:
                    return None
                found = monomial
        if found is None:
            return None
        rest = {m: c for m, c in poly.items() if m != found}
        inner, scale = self.by_number[found[0][0]], poly[found]
        if len(inner.args) > _MONOMIALS:
            return None
        moved = []
        for arg in inner.args:
            total = dict(rest)
            for monomial, c in self.polynomial(arg).items():
                total[monomial] = total.get(monomial, 0) + scale * c
            moved.append(self.from_polynomial(total, REAL))
        name = inner.op if scale > 0 else {"max": "min", "min": "max"}[inner.op]
        return self.extremum(name, REAL, moved)

    def constant(self, term: Term) -> Any:
        """Return the value of a number or bool that is known, or None."""
        if term.op != "poly" or any(monomial for monomial, _ in term.data):
            return None
        return term.data[0][1] if term.data else 0

    def number(self, value: Any, type: ScalarType) -> Term:
        """Return a known number."""
        return self.from_polynomial({(): value}, type)

    def literal(self, value: float, type: ScalarType) -> Term:
        """Return a floating literal, rounded to its type."""
        if self.exact:
            return self.node("literal", type, (), float.hex(value))
        value = rounded(value, type)
        if not math.isfinite(value):
            return self.node("literal", REAL, (), repr(value))
        return self.number(Fraction(value), REAL)

    def integer(self, value: int, type: ScalarType) -> Term:
        """Return a known integer or bool."""
        return self.node("poly", type, (), (((), value % (1 << type.bits)),) if value else ())

    def product(self, type: ScalarType, a: Term, b: Term) -> Term:
        """Return a product, multiplied out unless it gets too long."""
        left, right = self.polynomial(a), self.polynomial(b)
        if len(left) * len(right) > _MONOMIALS or max(map(_bits_of, (left, right))) > _BITS:
            return self.node("product", type, sorted((a, b), key=number_of))
        total: Polynomial = {}
        for (m, c), (n, d) in itertools.product(left.items(), right.items()):
            monomial = _multiplied(m, n)
            total[monomial] = total.get(monomial, 0) + c * d
        return self.from_polynomial(total, type)

    def power(self, type: ScalarType, a: Term, exponent: int) -> Term:
        """Return a product of equal factors, at least one."""
        if exponent == 1:
            return a
        half = self.power(type, a, exponent // 2)
        square = self.product(type, half, half)
        return self.product(type, square, a) if exponent % 2 else square

    def extremum(self, name: str, type: ScalarType, parts: Iterable[Term]) -> Term:
        """Return a maximum or minimum as a set of operands, with at most one constant."""
        pick = max if name == "max" else min
        known: list[tuple[Any, Term]] = []
        others: set[Term] = set()
        for part in parts:
            flat = part.op == name and len(part.args) <= _MONOMIALS
            for operand in part.args if flat else (part,):
                value = self.ordered(operand, type)
                if value is None:
                    others.add(operand)
                else:
                    known.append((value, operand))
        if known:
            value, constant = pick(known, key=lambda pair: pair[0])
            if value == self._neutral("min" if name == "max" else "max", type):
                return constant  # Nothing is beyond it.
            others.add(constant)
            neutral = self._neutral(name, type)
            if len(others) > 1:
                others = {term for term in others if self.ordered(term, type) != neutral}
        operands = sorted(others, key=number_of)
        if len(operands) == 1:
            return operands[0]
        return self.node(name, type, operands, type.kind)

    def ordered(self, term: Term, type: ScalarType) -> Any:
        """Return the value of a constant as the comparison of its type sees it, or None."""
        if term.op == "literal":
            value = float.fromhex(term.data)
            return None if math.isnan(value) else value
        constant = self.constant(term)
        if constant is None:
            return None
        return (
            constant - (1 << type.bits) if type.kind == "i" and constant > type.high else constant
        )

    def _neutral(self, name: str, type: ScalarType) -> Any:
        if type.kind == "f":
            return -math.inf if name == "max" else math.inf
        return type.low if name == "max" else type.high

    def bits(self, name: str, type: ScalarType, parts: Iterable[Term]) -> Term:
        """Return a bit-wise combination: and, or as sets, xor as a set of odd multiplicity."""
        mask = (1 << type.bits) - 1
        known = mask if name == "and" else 0
        counts: dict[Term, int] = {}
        for part in parts:
            for operand in part.args if part.op == f"bits {name}" else (part,):
                value = self.constant(operand)
                if value is None:
                    counts[operand] = counts.get(operand, 0) + 1
                elif name == "and":
                    known &= value
                elif name == "or":
                    known |= value
                else:
                    known ^= value
        operands = [term for term, n in counts.items() if name != "xor" or n % 2]
        if name == "and" and known == 0:
            return self.integer(0, type)
        if name == "or" and known == mask:
            return self.integer(mask, type)
        if known != (mask if name == "and" else 0) or not operands:
            operands.append(self.integer(known, type))
        if len(operands) == 1:
            return operands[0]
        return self.node(f"bits {name}", type, sorted(operands, key=number_of))


def single_factor(monomial: Monomial) -> int | None:
    """Return the number of the only factor of a monomial, if it is one to the power of one."""
    if len(monomial) == 1 and monomial[0][1] == 1:
        return monomial[0][0]
    return None


def _multiplied(a: Monomial, b: Monomial) -> Monomial:
    powers = dict(a)
    for number, power in b:
        powers[number] = powers.get(number, 0) + power
    return tuple(sorted(powers.items()))


def _bits_of(poly: Polynomial) -> int:
    """Return how long the longest coefficient of a polynomial is."""
    parts = (part for c in poly.values() for part in Fraction(c).as_integer_ratio())
    return max((part.bit_length() for part in parts), default=0)


def operands_first(term: Term, known: Container[int]) -> Iterator[Term]:
    """Yield a term and all it is made of, operands first, but nothing that is known by then.

    - `term`: term of any depth.
    - `known`: the numbers of terms that are done; the caller adds each term that it receives.
    """
    pending = [term]
    while pending:
        last = pending[-1]
        if last.number in known:
            pending.pop()
            continue
        unknown = [arg for arg in last.args if arg.number not in known]
        if unknown:
            pending += unknown
            continue
        pending.pop()
        yield last


def number_of(term: Term) -> int:
    """Return the place of a term in its table, by which operands are sorted."""
    return term.number
