"""Proving terms equal: by their normal forms, by truth tables, else with z3.

z3 is optional. It only ever sees what the others leave open, under a time limit; what it does
not prove stays open. Products of unknowns are unknowns to it, and functions are uninterpreted, so
that "equal" is a proof and anything else is not a refutation.
"""

from __future__ import annotations

import importlib
import importlib.util
from fractions import Fraction
from typing import Any

from ..evaluation.scalars import ScalarType, UnsupportedError, largest_of, scalar_type
from .folded import equal_but_for_rounding
from .tables import equal_by_table
from .terms import Term, TermTable, operands_first, single_factor


def has_z3() -> bool:
    """Whether z3 is installed."""
    return importlib.util.find_spec("z3") is not None


class Prover:
    """Decides whether terms of one table are equal.

    - `table`: table of the terms.
    - `timeout`: seconds for each question that needs z3.
    - `ranges`: what is known of unknown integers, by the number of the term: from, and below.
    - `model` (dict[tuple[str, int], Any]): after an answer other than True: values of unknowns, by
      name and element, for which z3 sees a difference. They need not make one, since z3 sees less
      than the whole meaning.
    - `rounding` (float): by which part coefficients of real numbers may differ; 0 unless it is set.
    """

    def __init__(self, table: TermTable, timeout: float = 5.0) -> None:
        self._table = table
        self._timeout = timeout
        self._known: dict[tuple[int, int], bool] = {}
        self._translation: _Translation | None = None
        self.ranges: dict[int, tuple[int, int]] = {}
        self.model: dict[tuple[str, int], Any] = {}
        self.rounding = 0.0

    def equal(self, a: Term, b: Term) -> bool:
        """Return whether two terms are proved equal.

        - `a`, `b`: terms of different types are not equal.
        - Returns: False if it is not proved, which does not mean that they differ.
        """
        if a is b:
            return True
        if a.type is not b.type:
            return False
        key = (min(a.number, b.number), max(a.number, b.number))
        if key not in self._known:
            self._known[key] = (
                equal_by_table(self._table, a, b)
                or (bool(self.rounding) and equal_but_for_rounding(a, b, self.rounding))
                or (has_z3() and self._solve(a, b))
            )
        return self._known[key]

    def _solve(self, a: Term, b: Term) -> bool:
        z3: Any = importlib.import_module("z3")
        if self._translation is None:
            self._translation = _Translation(self._table, self.ranges)
        translation = self._translation
        try:
            difference = translation(a) != translation(b)
        except UnsupportedError:
            return False
        solver = z3.Solver()
        solver.set("timeout", int(self._timeout * 1000))
        solver.add(difference, *translation.known)
        answer = solver.check()
        if answer == z3.sat:
            self.model = translation.values(solver.model())
        return bool(answer == z3.unsat)


class _Translation:
    """Terms as z3 expressions."""

    def __init__(self, table: TermTable, ranges: dict[int, tuple[int, int]]) -> None:
        self._ranges = ranges
        self._z3: Any = importlib.import_module("z3")
        self._table = table
        self._done: dict[int, Any] = {}
        self._unknowns: dict[tuple[str, int], tuple[Any, ScalarType]] = {}
        self._functions: dict[Any, Any] = {}
        # What is known of unknowns: a finite float is not beyond the largest of its type.
        self.known: list[Any] = []

    def __call__(self, term: Term) -> Any:
        for part in operands_first(term, self._done):
            self._done[part.number] = self._translate(part)
        return self._done[term.number]

    def values(self, model: Any) -> dict[tuple[str, int], Any]:
        """Return the values that a model gives to unknowns: Python numbers."""
        found: dict[tuple[str, int], Any] = {}
        for key, (expr, type) in self._unknowns.items():
            value = model.eval(expr, model_completion=True)
            if type.kind == "b":
                found[key] = self._z3.is_true(value)
            elif type.kind == "i":
                found[key] = value.as_signed_long()
            elif type.kind == "u":
                found[key] = value.as_long()
            elif self._z3.is_rational_value(value):
                found[key] = Fraction(value.numerator_as_long(), value.denominator_as_long())
        return found

    def _sort(self, type: ScalarType) -> Any:
        if type.kind == "b":
            return self._z3.BoolSort()
        if type.kind in "iu":
            return self._z3.BitVecSort(type.bits)
        return self._z3.DeclareSort(type.name) if self._table.exact else self._z3.RealSort()

    def _apply(self, term: Term, *args: Any) -> Any:
        """Return a term as an uninterpreted function of its operands."""
        sorts = [arg.sort() for arg in args]
        key = (term.op, term.data, term.type.name, tuple(map(str, sorts)))
        function = self._functions.get(key)
        if function is None:
            name = f"{term.op}#{len(self._functions)}"
            if not args:
                function = self._z3.Const(name, self._sort(term.type))
            else:
                function = self._z3.Function(name, *sorts, self._sort(term.type))
            self._functions[key] = function
        if term.op in ("add", "mul") and len(args) == 2:
            # Operands are in the order in which their terms were made.
            self.known.append(function(*args) == function(*reversed(args)))
        return function(*args) if args else function

    def _translate(self, term: Term) -> Any:
        z3 = self._z3
        if term.op == "var":
            name, element, type = term.data
            expr = z3.Const(f"{name}[{element}]", self._sort(term.type))
            self._unknowns[name, element] = expr, term.type
            if expr.sort() == z3.RealSort():
                largest = z3.Q(*largest_of(scalar_type(type)).as_integer_ratio())
                self.known += [-largest <= expr, expr <= largest]
            if term.number in self._ranges:
                first, end = self._ranges[term.number]
                # Not "below": the end may be one more than the type holds, and would wrap.
                self.known += [expr >= first, expr <= end - 1]
            return expr
        if term.op == "poly":
            return self._polynomial(term)
        args = [self(arg) for arg in term.args]
        if term.op == "ite":
            return z3.If(*args)
        if term.op == "not":
            return z3.Not(*args)
        if term.type.kind == "b":
            return self._condition(term, args)
        if term.type.kind in "iu":
            return self._bit_vector(term, args)
        if not self._table.exact and term.op in ("max", "min"):
            return self._extremum(args, (lambda a, b: a > b) if term.op == "max" else _less)
        return self._apply(term, *args)

    def _polynomial(self, term: Term) -> Any:
        z3 = self._z3
        if term.type.kind == "b":
            return z3.BoolVal(bool(term.data))
        parts = []
        for monomial, coefficient in term.data:
            if term.type.kind == "f":
                scale = z3.Q(*Fraction(coefficient).as_integer_ratio())
            else:
                scale = z3.BitVecVal(coefficient, term.type.bits)
            if not monomial:
                parts.append(scale)
            elif (single := single_factor(monomial)) is not None:
                parts.append(scale * self(self._table.by_number[single]))
            else:
                product = Term("monomial", term.type, (), monomial, -1)
                parts.append(scale * self._apply(product))
        if not parts:
            return z3.RealVal(0) if term.type.kind == "f" else z3.BitVecVal(0, term.type.bits)
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    def _condition(self, term: Term, args: list[Any]) -> Any:
        z3 = self._z3
        if term.op == "positive":
            return args[0] > 0
        if term.op == "zero":
            return args[0] == 0
        if term.op == "eq":
            return args[0] == args[1]
        if term.op == "lt":
            signed = term.data != "u" and term.args[0].type.kind != "b"
            if term.args[0].type.kind == "b":
                return z3.And(z3.Not(args[0]), args[1])
            return args[0] < args[1] if signed else z3.ULT(args[0], args[1])
        if term.op == "bits and":
            return z3.And(*args)
        if term.op == "bits or":
            return z3.Or(*args)
        if term.op == "bits xor":
            result = args[0]
            for arg in args[1:]:
                result = z3.Xor(result, arg)
            return result
        return self._apply(term, *args)

    def _bit_vector(self, term: Term, args: list[Any]) -> Any:
        z3 = self._z3
        signed = term.type.kind == "i"
        bits = term.type.bits
        if term.op in ("max", "min"):
            if term.op == "max":
                return self._extremum(args, (lambda a, b: a > b) if signed else z3.UGT)
            return self._extremum(args, _less if signed else z3.ULT)
        if term.op.startswith("bits "):
            result = args[0]
            for arg in args[1:]:
                if term.op == "bits and":
                    result = result & arg
                elif term.op == "bits or":
                    result = result | arg
                else:
                    result = result ^ arg
            return result
        if term.op == "extend":
            extend = z3.SignExt if term.data == "i" else z3.ZeroExt
            return extend(bits - term.args[0].type.bits, args[0])
        if term.op == "cut":
            return z3.Extract(bits - 1, 0, args[0])
        if term.op == "shr":
            return args[0] >> args[1] if signed else z3.LShR(args[0], args[1])
        if term.op == "shl":
            return args[0] << args[1]
        if term.op == "cast" and term.data[0] == "bool":
            return z3.If(args[0], z3.BitVecVal(1, bits), z3.BitVecVal(0, bits))
        return self._apply(term, *args)

    def _extremum(self, args: list[Any], precedes: Any) -> Any:
        result = args[0]
        for arg in args[1:]:
            result = self._z3.If(precedes(result, arg), result, arg)
        return result


def _less(a: Any, b: Any) -> Any:
    return a < b
