"""Running programs over unknowns.

Integers are residues modulo 2**n. Floats are real numbers where operations may be reassociated, and
uninterpreted values where the result must be exact (then only the same operations on the same
operands give the same value).
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ..evaluation.abstract import Arithmetic
from ..evaluation.scalars import (
    POISON,
    EvaluationError,
    ScalarType,
    UnsupportedError,
    largest_of,
    rounded,
)
from .log_sums import add_to_log_sum, log_sum, logarithm, magnitude
from .terms import BOOL, REAL, Polynomial, Term, TermTable, number_of

# Loads at an index that is a term become a selection among at most this many elements.
_ELEMENTS = 256
# Integers up to this are exact in every float type.
_SMALL = 256


_FOLDED = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
}


_INFINITE = (math.inf, -math.inf)
# Operations of which a NaN makes a NaN.
_POISONED = ("add", "sub", "mul", "div")


def _is_one(term: Term) -> bool:
    return bool(term.op == "literal" and term.data == float.hex(1.0))


def fold(name: str, a: Any, b: Any, type: ScalarType) -> float:
    """Return an operation of two known numbers, rounded to a type."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return float(_FOLDED[name](float(a), float(b)))
    exact = Fraction(_FOLDED[name](Fraction(a), Fraction(b)))
    try:
        return rounded(float(exact), type)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


class TermArithmetic(TermTable, Arithmetic):
    """Builds terms.

    - `exact`: True: floats are uninterpreted values. False: floats are real numbers.
    - `limit`: how many operations may be done before `WorkLimit` is raised.
    """

    def __init__(self, exact: bool, limit: int = 1 << 62) -> None:
        super().__init__(exact, limit)
        #: Whether no exact value is a NaN, of which the maximum and -inf is -inf.
        self.numbers = False
        self.true = self.integer(1, BOOL)
        self.false = self.integer(0, BOOL)

    # ---- Operations --------------------------------------------------------------------------

    def real_sum(self, poly: Polynomial) -> Term | None:
        """Return the normal form of a sum that is not a polynomial, None if it is one."""
        return add_to_log_sum(self, poly) or super().real_sum(poly)

    def _binary(self, name: str, type: ScalarType, a: Term, b: Term) -> Term:
        if type.kind == "b":
            return self.bits({"max": "or", "min": "and"}.get(name, name), type, (a, b))
        if type.kind == "f" and self.exact:
            for value, other in ((b, a), (a, b)) if name == "mul" else ((b, a),):
                if name in ("mul", "div") and _is_one(value):
                    return other  # Whatever it is: an infinity, a NaN, a negative zero.
            if self.numbers and name in ("max", "min"):
                neutral = self.literal(-math.inf if name == "max" else math.inf, type)
                if neutral in (a, b):
                    return a if b is neutral else b
            # The machine's sums and products do not depend on the order of two operands.
            args = sorted((a, b), key=number_of) if name in ("add", "mul") else (a, b)
            return self.node(name, type, args)
        if type.kind == "f":
            for operand in (a, b):
                if name in _POISONED and operand.op == "literal" and operand.data == "nan":
                    return operand
            left, right = self.ordered(a, type), self.ordered(b, type)
            known = left is not None and right is not None
            if known and name in _FOLDED and (name != "div" or right):
                # As a compiler that folds literals does.
                return self.literal(fold(name, left, right, type), type)
            if name == "logaddexp":
                return log_sum(self, (a, b))
            if name in ("add", "sub") and (left in _INFINITE) != (right in _INFINITE):
                # The other one is a number.
                return a if left in _INFINITE else self.literal(fold(name, 0, right, type), type)
        type = self._sort(type)
        if name in ("add", "sub"):
            total = self.polynomial(a)
            sign = 1 if name == "add" else -1
            for monomial, c in self.polynomial(b).items():
                total[monomial] = total.get(monomial, 0) + sign * c
            return self.from_polynomial(total, type)
        if name == "mul":
            return self.product(type, a, b)
        if name in ("max", "min"):
            return self.extremum(name, type, (a, b))
        if type.kind == "f":
            if name != "div":
                return self.node(name, type, (a, b))
            divisor = self.constant(b)
            if divisor:
                return self.product(type, a, self.number(1 / Fraction(divisor), type))
            # A factor, so that a quotient of a sum is the sum of the quotients.
            one = self.number(1, type)
            return self.product(type, a, self.node("div", type, (one, b)))
        if name in ("and", "or", "xor"):
            return self.bits(name, type, (a, b))
        amount = self.constant(b)
        if name == "shl" and amount is not None and amount < type.bits:
            return self.product(type, a, self.number(1 << amount, type))
        return self.node(name, type, (a, b), type.kind)

    def total(self, type: ScalarType, first: Term, others: Sequence[tuple[str, Term]]) -> Term:
        """Return a term with others added or subtracted: as one by one, in linear time.

        - `type`: table of all of them.
        - `first`: sum that is added to.
        - `others`: each with ``"add"`` or ``"sub"``.
        """
        result = first
        plain = self._is_ring(type) and not any(
            term.op in ("max", "min", "literal") for term in (first, *(each for _, each in others))
        )
        left = list(others)
        # Numbers are folded, and maxima distributed over, one by one.
        while left and (not plain or self.constant(result) is not None):
            name, term = left.pop(0)
            result = self.binary(name, type, result, term)
        if not left:
            return result
        total = self.polynomial(result)
        for name, term in left:
            sign = 1 if name == "add" else -1
            for monomial, c in self.polynomial(term).items():
                total[monomial] = total.get(monomial, 0) + sign * c
        return self.from_polynomial(total, self._sort(type))

    def _logical(self, name: str, operands: Sequence[Term]) -> Term:
        if name == "not":
            (a,) = operands
            if a.op == "not":
                return a.args[0]
            value = self.constant(a)
            return self.node("not", BOOL, (a,)) if value is None else self.integer(1 - value, BOOL)
        return self.bits(name, BOOL, operands)

    def _compare(self, name: str, type: ScalarType, a: Term, b: Term) -> Term:
        if type.kind == "f" and self.exact:
            if name in ("gt", "ge"):
                name, a, b = ("lt" if name == "gt" else "le"), b, a
            # "ne" is not the negation of "eq": both are false for NaN.
            return self.node(f"float {name}", BOOL, (a, b))
        if name in ("gt", "le"):
            less = self._compare("lt", type, b, a)
            return less if name == "gt" else self._logical("not", (less,))
        if name in ("ge", "ne"):
            other = self._compare("lt" if name == "ge" else "eq", type, a, b)
            return self._logical("not", (other,))
        if a is b:
            return self.integer(name == "eq", BOOL)
        x, y = self.ordered(a, type), self.ordered(b, type)
        if x is not None and y is not None:
            return self.integer(x == y if name == "eq" else x < y, BOOL)
        if type.kind != "f":
            args = sorted((a, b), key=number_of) if name == "eq" else (a, b)
            return self.node(name, BOOL, args, type.kind)
        difference = self._binary("sub", type, b, a)
        if name == "eq":
            difference = self._scaled(difference, signed=True)
            return self.node("zero", BOOL, (difference,))
        return self.node("positive", BOOL, (self._scaled(difference, signed=False),))

    def _scaled(self, term: Term, signed: bool) -> Term:
        """Divide a polynomial by its first coefficient, or by the magnitude of that."""
        poly = self.polynomial(term)
        first = poly[min(poly)]
        factor = Fraction(first if signed else abs(first))
        return self.from_polynomial({m: c / factor for m, c in poly.items()}, REAL)

    def _choose(self, type: ScalarType, condition: Term, a: Any, b: Any) -> Any:
        known = self.constant(condition)
        if known is not None:
            return a if known else b
        if a is b:
            return a
        if a is POISON or b is POISON:
            raise EvaluationError("whether memory was written depends on data")
        if condition.op == "not":
            condition, a, b = condition.args[0], b, a
        if type.kind == "b":
            return self._chosen_bool(condition, a, b)
        if not self._is_ring(a.type):
            return self.node("ite", a.type, (condition, a, b))
        # b + (condition ? a - b : 0), so that what both have in common does not hide in it.
        change = self._binary("sub", a.type, a, b)
        return self._binary(
            "add", a.type, b, self.node("ite", a.type, (condition, change, self.number(0, a.type)))
        )

    def _chosen_bool(self, condition: Term, a: Term, b: Term) -> Term:
        """Return a selection of bools as what it is: (condition and a) or (not condition and b).

        An operand that may not be evaluated everywhere is written as ``c and p`` or as
        ``if_then_else(c, p, False)``; where it is evaluated is another claim than its value.
        """
        other = self._logical("not", (condition,))
        known = {condition.number: True, other.number: False}
        yes, no = self.constant(a), self.constant(b)
        yes = known.get(a.number, yes)
        no = not known[b.number] if b.number in known else no
        if yes is not None:
            # c ? True : b, c ? False : b
            return self._logical(*(("or", (condition, b)) if yes else ("and", (other, b))))
        if no is not None:
            return self._logical(*(("or", (other, a)) if no else ("and", (condition, a))))
        parts = self._logical("and", (condition, a)), self._logical("and", (other, b))
        return self._logical("or", parts)

    def _cast(self, a: Term, source: ScalarType, target: ScalarType) -> Term:
        if source.kind == "f" and target.kind == "f" and not self.exact:
            # Widening is exact; a narrowing conversion rounds, and is left as it is.
            if target.bits > source.bits:
                return a
            number = self.constant(a)
            if number is not None and abs(number) < largest_of(target):
                return self.literal(float(number), target)
            return self.node("round", REAL, (a,), target.name)
        if source.kind == "b" and target.kind != "b":
            # So that a cast of a selection is a selection of casts.
            chosen: Term = self._choose(target, a, self._one(target), self._zero(target))
            return chosen
        if target.kind == "b" and source.kind != "f":
            return self._compare("ne", source, a, self.integer(0, source))
        if source.kind in "iu" and target.kind in "iu":
            return self._resize(a, source, target)
        if source.kind == "f" and target.kind in "iu":
            whole = self.whole(a, source, target)
            if whole is not None:
                return self.integer(whole, target)
        value = self.ordered(a, source) if source.kind != "f" else None
        if value is not None and target.kind in "iu":
            return self.integer(value, target)
        if value is not None and abs(value) <= _SMALL:
            return self.literal(float(value), target)
        return self.node("cast", self._sort(target), (a,), (source.name, target.name))

    def whole(self, a: Term, source: ScalarType, target: ScalarType) -> int | None:
        """Return what a float that is known becomes as an integer; None if it does not fit.

        TVM folds a literal before it is rounded to its type, LLVM after that: where they differ,
        it is not known.
        """
        value = self.ordered(a, source)
        if value is None or not math.isfinite(value):
            return None
        found = math.trunc(value)
        if math.trunc(rounded(float(value), source)) != found:
            return None
        return found if target.low <= found <= target.high else None

    def _one(self, type: ScalarType) -> Term:
        return self.literal(1.0, type) if type.kind == "f" else self.integer(1, type)

    def _zero(self, type: ScalarType) -> Term:
        return self.literal(0.0, type) if type.kind == "f" else self.integer(0, type)

    def _resize(self, a: Term, source: ScalarType, target: ScalarType) -> Term:
        """Convert between widths; cutting bits off is a homomorphism of sums and products."""
        value = self.ordered(a, source)
        if value is not None:
            return self.integer(value, target)
        if target.bits > source.bits:
            return self.node("extend", target, (a,), source.kind)
        if a.op == "poly":
            total = self.integer(0, target)
            for monomial, c in a.data:
                part = self.integer(c, target)
                for number, power in monomial:
                    factor = self._resize(self.by_number[number], source, target)
                    part = self.product(target, part, self.power(target, factor, power))
                total = self._binary("add", target, total, part)
            return total
        if a.op in ("extend", "cut") and a.args[0].type.bits >= target.bits:
            inner = a.args[0]
            return inner if inner.type is target else self._resize(inner, inner.type, target)
        return self.node("cut", target, (a,))

    def _call(
        self, name: str, type: ScalarType, sources: Sequence[ScalarType], args: Sequence[Term]
    ) -> Term:
        if name == "fma" and not self.exact:
            return self._binary("add", type, self._binary("mul", type, *args[:2]), args[2])
        if not self.exact and (known := self._real_call(name, args)) is not None:
            return known
        if name == "reinterpret" and sources[0].kind in "iu" and type.kind in "iu":
            return self._resize(args[0], sources[0], type)
        names = (name, *(source.name for source in sources))
        return self.node("call", self._sort(type), args, names if self.exact else name)

    def _real_call(self, name: str, args: Sequence[Term]) -> Term | None:
        """Return a function of a real number, None where only its name is known."""
        if name == "fabs":
            return magnitude(self, args[0])
        if name == "exp" and self.ordered(args[0], REAL) == -math.inf:
            return self.number(0, REAL)
        if name == "log1p":
            return logarithm(self, self._binary("add", REAL, args[0], self.number(1, REAL)))
        return logarithm(self, args[0]) if name == "log" else None

    def _gather(self, buffer: list[Any], type: ScalarType, name: str, axes: Sequence[Any]) -> Any:
        choices: list[list[tuple[int, Term | None]]] = []
        for given, is_data, index_type, extent, stride in axes:
            if not is_data:
                if not 0 <= given < extent:
                    raise EvaluationError(f"'{name}' is accessed out of bounds: {given}")
                choices.append([(given * stride, None)])
                continue
            equal = [
                self._compare("eq", index_type, given, self.integer(position, index_type))
                for position in range(extent)
            ]
            choices.append([(p * stride, condition) for p, condition in enumerate(equal)])
        if math.prod(map(len, choices)) > _ELEMENTS:
            raise UnsupportedError(f"'{name}' is too large to be indexed by an unknown")
        # An index out of bounds has no defined result: the last element is as good as any.
        result: Any = None
        for place in reversed(list(itertools.product(*choices))):
            element = buffer[sum(position for position, _ in place)]
            conditions = [condition for _, condition in place if condition is not None]
            if result is None or not conditions:
                result = element
                continue
            test = conditions[0]
            for condition in conditions[1:]:
                test = self._logical("and", (test, condition))
            result = self._choose(type, test, element, result)
        return result
