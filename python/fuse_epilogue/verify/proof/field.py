"""Quotients of polynomials over opaque atoms: the arithmetic in which cascades are proved.

Everything is exact: coefficients and powers are fractions. An exponential of a sum is a product of
exponentials, so that exp(x - m) * exp(m - n) is exp(x - n). A condition is a number that is 0 or 1,
its own square. Casts, roots, maxima and everything else are atoms: two of them are the same if
their operands are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ..evaluation.scalars import WorkLimit

#: Numbers of atoms, sorted, each with its power.
Monomial = tuple[tuple[int, Fraction], ...]
Polynomial = dict[Monomial, Fraction]

_ONE: Polynomial = {(): Fraction(1)}
#: Monomials above which a polynomial is not multiplied out.
_MONOMIALS = 4000


@dataclass(frozen=True, eq=False)
class Ratio:
    """A quotient of two polynomials; compared by :meth:`Field.equal`, since it is not reduced."""

    above: Polynomial
    below: Polynomial

    @property
    def constant(self) -> Fraction | None:
        """The number that it is, if it is one."""
        if self.below != _ONE or not set(self.above) <= {()}:
            return None
        return self.above.get((), Fraction(0))


@dataclass(frozen=True, eq=False)
class Atom:
    """Something of which only equality is known.

    - `op`: what it is: a variable, a load from a buffer, the name of a function.
    - `args`: its operands.
    """

    op: Hashable
    args: tuple[Ratio, ...]


def _inverse(a: Monomial) -> Monomial:
    return tuple((atom, -power) for atom, power in a)


class Field:
    """Makes numbers and compares them."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self._by_op: dict[Hashable, list[int]] = {}
        self._conditions: set[int] = set()
        self._equalities: dict[int, tuple[Ratio, Ratio]] = {}
        #: Whether something that may be zero was divided by and cancelled: x / x is not always 1.
        self.divided = False
        self.zero = Ratio({}, _ONE)
        self.one = Ratio(_ONE, _ONE)
        self.lowest = self.atom("-inf")

    # ---- Atoms and literals ----------------------------------------------------------------------

    def atom(self, op: Hashable, args: Sequence[Ratio] = ()) -> Ratio:
        """Return the atom with these operands, the same one for equal operands."""
        return Ratio({((self._number(op, tuple(args)), Fraction(1)),): Fraction(1)}, _ONE)

    def _number(self, op: Hashable, args: tuple[Ratio, ...]) -> int:
        known = self._by_op.setdefault((op, len(args)), [])
        for number in known:
            others = self.atoms[number].args
            if all(self.equal(a, b) for a, b in zip(args, others, strict=True)):
                return number
        self.atoms.append(Atom(op, args))
        known.append(len(self.atoms) - 1)
        return known[-1]

    def condition(self, op: Hashable, args: Sequence[Ratio] = ()) -> Ratio:
        """Return the atom of something that holds or not: 1 or 0."""
        number = self._number(op, tuple(args))
        self._conditions.add(number)
        return Ratio({((number, Fraction(1)),): Fraction(1)}, _ONE)

    def choose(self, condition: Ratio, a: Ratio, b: Ratio) -> Ratio:
        """Return one number where a condition is 1, and another where it is 0."""
        if self.equal(a, b) or self._agree(condition, a, b):
            return b
        return self.add(self.mul(condition, self.sub(a, b)), b)

    def equality(self, a: Ratio, b: Ratio) -> Ratio:
        """Return the condition that two numbers are equal."""
        found = self.condition("eq", [self.extremum(op, [a, b]) for op in ("min", "max")])
        ((monomial, _),) = found.above.items()
        self._equalities[monomial[0][0]] = a, b
        return found

    def _agree(self, condition: Ratio, a: Ratio, b: Ratio) -> bool:
        """Whether two numbers are the same where an equality of two others holds."""
        atom = self.single(condition)
        if atom is None or atom.op != "eq":
            return False
        for one, other in itertools.permutations(self._equalities[self.atoms.index(atom)]):
            monomial = next(iter(one.above), ())
            if len(one.above) == 1 and len(monomial) == 1 and monomial[0][1] == 1:
                # factor * atom == other, so the atom may be replaced by other / factor.
                by = {monomial[0][0]: self.div(other, self.literal(one.above[monomial]))}
                if one.below == _ONE and self.equal(
                    *(self._with_atoms(part, by) for part in (a, b))
                ):
                    return True
        return False

    def literal(self, value: float | Fraction) -> Ratio:
        """Return a number; infinities and NaN are atoms."""
        if isinstance(value, float) and not math.isfinite(value):
            if value == -math.inf:
                return self.lowest
            return self.neg(self.lowest) if value == math.inf else self.atom("nan")
        exact = Fraction(value)
        return Ratio({(): exact} if exact else {}, _ONE)

    def single(self, a: Ratio) -> Atom | None:
        """Return the atom that a number is, or None."""
        if a.below != _ONE or len(a.above) != 1:
            return None
        ((monomial, factor),) = a.above.items()
        if factor != 1 or len(monomial) != 1 or monomial[0][1] != 1:
            return None
        return self.atoms[monomial[0][0]]

    def extremum(self, op: str, args: Sequence[Ratio]) -> Ratio:
        """Return the maximum or minimum of numbers, in any order and each of them once."""
        flat: list[Ratio] = []
        for arg in args:
            atom = self.single(arg)
            for part in atom.args if atom is not None and atom.op == op else (arg,):
                if not any(self.equal(part, other) for other in flat):
                    flat.append(part)
        if len(flat) == 1:
            return flat[0]
        # The order of the numbers of one-element atoms: any, but always the same.
        keys = {id(part): self._number("operand", (part,)) for part in flat}
        return self.atom(op, sorted(flat, key=lambda part: keys[id(part)]))

    # ---- Arithmetic ------------------------------------------------------------------------------

    def add(self, a: Ratio, b: Ratio) -> Ratio:
        """Return a sum."""
        if a.below == b.below:
            return Ratio(_sum(a.above, b.above), a.below)
        above = _sum(self._product(a.above, b.below), self._product(b.above, a.below))
        return self._reduced(above, self._product(a.below, b.below))

    def neg(self, a: Ratio) -> Ratio:
        """Return the negative."""
        return Ratio({monomial: -factor for monomial, factor in a.above.items()}, a.below)

    def sub(self, a: Ratio, b: Ratio) -> Ratio:
        """Return a difference."""
        return self.add(a, self.neg(b))

    def mul(self, a: Ratio, b: Ratio) -> Ratio:
        """Return a product."""
        return self._reduced(self._product(a.above, b.above), self._product(a.below, b.below))

    def div(self, a: Ratio, b: Ratio) -> Ratio:
        """Return a quotient, as if the divisor were not zero."""
        if not b.above:
            return self.atom("by zero", (a,))
        return self._reduced(self._product(a.above, b.below), self._product(a.below, b.above))

    def power(self, a: Ratio, exponent: int) -> Ratio:
        """Return a whole power."""
        found = self.one
        for _ in range(abs(exponent)):
            found = self.mul(found, a)
        return found if exponent >= 0 else self.div(self.one, found)

    def exp(self, a: Ratio) -> Ratio:
        """Return an exponential: a product with a factor for each term of the sum."""
        for number in self._conditions_of(a):
            held, other = (self.exp(self._decided(a, number, value)) for value in (1, 0))
            chosen = Ratio({((number, Fraction(1)),): Fraction(1)}, _ONE)
            return self.choose(chosen, held, other)
        found: Monomial = ()
        for monomial, factor in a.above.items():
            if any(self.atoms[atom].op == "-inf" for atom, _ in monomial):
                known = len(monomial) == 1 and monomial[0][1] == 1 and factor > 0
                return self.zero if known else self.atom("exp of infinity", (a,))
            part = Ratio({monomial: Fraction(1)}, a.below)
            found = self._times(found, ((self._number("exp", (part,)), factor),))
        return Ratio({found: Fraction(1)}, _ONE)

    def equal(self, a: Ratio, b: Ratio) -> bool:
        """Whether two numbers are the same, wherever both are defined."""
        if a.below == b.below:
            return a.above == b.above
        if self._product(a.above, b.below) != self._product(b.above, a.below):
            return False
        self.divided = True
        return True

    def _conditions_of(self, a: Ratio) -> list[int]:
        """Return the conditions among the factors of a number: not those inside other atoms."""
        atoms = {n for poly in (a.above, a.below) for monomial in poly for n, _ in monomial}
        return sorted(atoms & self._conditions)

    def _decided(self, a: Ratio, number: int, value: int) -> Ratio:
        """Return what a number is where a condition holds, or where it does not."""
        parts: list[Polynomial] = []
        for poly in (a.above, a.below):
            part: Polynomial = {}
            for monomial, factor in poly.items():
                powers = dict(monomial)
                if powers.pop(number, None) is None or value:
                    part = _sum(part, {tuple(sorted(powers.items())): factor})
            parts.append(part)
        if not parts[1]:
            return self.atom("by zero", (a,))
        return self._reduced(*parts)

    def _times(self, a: Monomial, b: Monomial) -> Monomial:
        powers = dict(a)
        for atom, power in b:
            known = powers.get(atom, Fraction(0))
            if known * power < 0 and self.atoms[atom].op != "exp":
                self.divided = True
            powers[atom] = known + power
        for atom in self._conditions & powers.keys():
            powers[atom] = min(powers[atom], Fraction(1))
        return tuple(sorted((atom, power) for atom, power in powers.items() if power))

    def _product(self, a: Polynomial, b: Polynomial) -> Polynomial:
        if a == _ONE or b == _ONE:
            return b if a == _ONE else a
        if len(a) * len(b) > _MONOMIALS:
            raise WorkLimit("too many terms")
        found: dict[Monomial, Any] = {}
        for one, factor in a.items():
            for other, more in b.items():
                monomial = self._times(one, other)
                found[monomial] = found.get(monomial, Fraction(0)) + factor * more
        return {monomial: factor for monomial, factor in found.items() if factor}

    def _reduced(self, above: Polynomial, below: Polynomial) -> Ratio:
        """Return a quotient; a divisor of one term goes into the powers above.

        From a longer divisor the exponentials and the factor of its first term are taken out: two
        divisors that differ in nothing else become the same.
        """
        monomial = min(below, default=())
        if len(below) != 1 or any(n in self._conditions for n, _ in monomial):
            if not below:
                return self.atom("by zero", (Ratio(above, _ONE),))
            factor = below[monomial]
            never_zero = tuple(each for each in monomial if self.atoms[each[0]].op == "exp")
            if not never_zero and factor == 1:
                return Ratio(above, below)
            inverse = _inverse(never_zero)
            parts = (
                {self._times(m, inverse): c / factor for m, c in p.items()} for p in (above, below)
            )
            return Ratio(*parts)
        factor = below[monomial]
        inverse = _inverse(monomial)
        return Ratio({self._times(m, inverse): c / factor for m, c in above.items()}, _ONE)

    # ---- Questions -------------------------------------------------------------------------------

    def conditions(self, *numbers: Ratio) -> list[Ratio]:
        """Return the conditions among the factors of numbers: not those inside other atoms."""
        found = sorted({number for a in numbers for number in self._conditions_of(a)})
        return [Ratio({((number, Fraction(1)),): Fraction(1)}, _ONE) for number in found]

    def decided(self, a: Ratio, condition: Ratio, holds: bool) -> Ratio:
        """Return what a number is where a condition holds, or where it does not."""
        if self.single(condition) is None:
            return a
        ((monomial, _),) = condition.above.items()
        return self._decided(a, monomial[0][0], int(holds))

    def summed(self, a: Ratio, keys: Sequence[Hashable], known: Mapping[int, Ratio]) -> Ratio:
        """Return the sum of a number over keys: moments of what depends on them.

        - `a`: a polynomial in what depends on keys.
        - `keys`: names of the keys.
        - `known`: moments that are known, by :meth:`moment`.
        """
        if any(self.mentions(Ratio(a.below, _ONE), key) for key in keys):
            raise WorkLimit("a divisor that depends on keys")
        found = self.zero
        for monomial, factor in a.above.items():
            inside = tuple(each for each in monomial if self._depends(each[0], keys))
            outside = tuple(each for each in monomial if each not in inside)
            moment = self._moment(inside)
            total = known.get(moment, Ratio({((moment, Fraction(1)),): Fraction(1)}, _ONE))
            found = self.add(found, self.mul(Ratio({outside: factor}, _ONE), total))
        return self.div(found, Ratio(a.below, _ONE))

    def moment(self, a: Ratio, keys: Sequence[Hashable]) -> int | None:
        """Return the number of the moment that the sum of `a` over keys is; None for several."""
        if a.below != _ONE or len(a.above) > 1:
            return None
        ((monomial, factor),) = a.above.items() if a.above else (((), Fraction(0)),)
        whole = factor == 1 and all(self._depends(number, keys) for number, _ in monomial)
        return self._moment(monomial) if whole else None

    def _moment(self, monomial: Monomial) -> int:
        return self._number("moment", (Ratio({monomial: Fraction(1)}, _ONE),))

    def _depends(self, number: int, keys: Sequence[Hashable]) -> bool:
        return any(self._within(self.atoms[number], key) for key in keys)

    def factors(self, a: Ratio, op: Hashable) -> list[tuple[Ratio, Ratio]]:
        """Return x and the power c of each factor f(x)^c of a term, for a function's name."""
        powers = {each for poly in (a.above, a.below) for monomial in poly for each in monomial}
        found = [(self.atoms[number], power) for number, power in sorted(powers)]
        return [(atom.args[0], self.literal(power)) for atom, power in found if atom.op == op]

    def mentions(self, a: Ratio, op: Hashable) -> bool:
        """Whether an atom is anywhere in a number."""
        polynomials = (a.above, a.below)
        atoms = {atom for poly in polynomials for monomial in poly for atom, _ in monomial}
        return any(self._within(self.atoms[atom], op) for atom in atoms)

    def _within(self, atom: Atom, op: Hashable) -> bool:
        return atom.op == op or any(self.mentions(arg, op) for arg in atom.args)

    def is_made_of(self, a: Ratio, ops: Collection[Hashable]) -> bool:
        """Whether a number is a constant, or a polynomial in atoms without operands of these names.

        Maxima and minima of such numbers count as such, too.
        """
        if a.below != _ONE:
            return False
        atoms = {self.atoms[number] for monomial in a.above for number, _ in monomial}
        return all(
            (atom.op in ops and not atom.args)
            or (atom.op in ("max", "min") and all(self.is_made_of(arg, ops) for arg in atom.args))
            for atom in atoms
        )

    def linear(self, a: Ratio, op: Hashable) -> tuple[Ratio, Ratio] | None:
        """Return c and d of ``a = c * atom + d``, neither of which mentions the atom, or None."""
        number = self._number((op), ())
        if any(atom == number for monomial in a.below for atom, _ in monomial):
            return None
        parts: tuple[Polynomial, Polynomial] = ({}, {})
        for monomial, factor in a.above.items():
            powers = dict(monomial)
            power = powers.pop(number, Fraction(0))
            if power not in (0, 1):
                return None
            rest = tuple(sorted(powers.items()))
            parts[0 if power else 1][rest] = factor
        slope, offset = (self._reduced(part, a.below) for part in parts)
        if self.mentions(slope, op) or self.mentions(offset, op):
            return None
        return slope, offset

    def logarithm(self, a: Ratio) -> Ratio | None:
        """Return x of ``a = exp(x)``, or None."""
        if a.below != _ONE or len(a.above) != 1:
            return None
        ((monomial, factor),) = a.above.items()
        found = self.zero
        for atom, power in monomial:
            if self.atoms[atom].op != "exp":
                return None
            found = self.add(found, self.mul(self.literal(power), self.atoms[atom].args[0]))
        return found if factor == 1 else None

    def with_extrema(self, a: Ratio, op: str, args: Sequence[Ratio], by: Ratio) -> Ratio:
        """Return a number with the maximum or minimum of these numbers replaced."""
        extremum = self.extremum(op, args)
        ((monomial, _),) = extremum.above.items()
        return self._with_atoms(a, {monomial[0][0]: by})

    def substitute(self, a: Ratio, values: Mapping[Hashable, Ratio]) -> Ratio:
        """Return a number with atoms without operands replaced."""
        known = {self._by_op[op, 0][0]: by for op, by in values.items() if (op, 0) in self._by_op}
        return self._with_atoms(a, known)

    def _with_atoms(self, a: Ratio, values: Mapping[int, Ratio]) -> Ratio:
        above, below = (self._replaced(part, values) for part in (a.above, a.below))
        return above if a.below == _ONE else self.div(above, below)

    def _replaced(self, poly: Polynomial, values: Mapping[int, Ratio]) -> Ratio:
        found = self.zero
        for monomial, factor in poly.items():
            product = self.literal(factor)
            for number, power in monomial:
                product = self.mul(product, self._raised(number, power, values))
            found = self.add(found, product)
        return found

    def _raised(self, number: int, power: Fraction, values: Mapping[int, Ratio]) -> Ratio:
        atom = self.atoms[number]
        value = values.get(number)
        if value is None and atom.args:
            args = [self._with_atoms(arg, values) for arg in atom.args]
            if atom.op == "exp":
                return self.exp(self.mul(self.literal(power), args[0]))
            if atom.op in ("max", "min"):
                value = self.extremum(str(atom.op), args)
            elif number in self._equalities:
                pair = self._equalities[number]
                value = self.equality(*(self._with_atoms(part, values) for part in pair))
            else:
                make = self.condition if number in self._conditions else self.atom
                value = make(atom.op, args)
        if value is None:
            return Ratio({((number, power),): Fraction(1)}, _ONE)
        if power.denominator != 1:
            raise WorkLimit("a root of a sum")
        return self.power(value, int(power))


def _sum(a: Polynomial, b: Polynomial) -> Polynomial:
    found = dict(a)
    for monomial, factor in b.items():
        total = found.get(monomial, Fraction(0)) + factor
        if total:
            found[monomial] = total
        else:
            found.pop(monomial, None)
    return found
