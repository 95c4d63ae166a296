"""The algebra of reductions, on terms: monoids, and what is finished."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..evaluation.scalars import ScalarType
from .symbolic import TermArithmetic
from .terms import Term


@dataclass(frozen=True)
class Monoid:
    """A row of `MONOIDS`.

    - `operation`: the binary operation, by its name among the operations of terms.
    - `kinds`: kinds of types it is for: float, int, unsigned, bool.
    - `identity`: the value that changes nothing.
    - `rounds`: whether floats are rounded where they are combined.
    - `clashes`: whether two infinities of the same sign may give NaN, where a program combines
      them.
    """

    operation: str
    kinds: str
    identity: Callable[[ScalarType], float]
    rounds: bool = False
    clashes: bool = False


def _lowest(type: ScalarType) -> float:
    return -math.inf if type.kind == "f" else type.low


def _highest(type: ScalarType) -> float:
    return math.inf if type.kind == "f" else type.high


def _ones(type: ScalarType) -> float:
    return -1 if type.kind == "i" else type.high


#: Commutative monoids by the name a certificate gives them. All are associative and commutative:
#: on integers modulo 2**n (sum, product), on any order (max, min), bit by bit (the rest).
MONOIDS: dict[str, Monoid] = {
    "sum": Monoid("add", "fiu", lambda _: 0, rounds=True),
    "product": Monoid("mul", "fiu", lambda _: 1, rounds=True),
    "max": Monoid("max", "fiu", _lowest),
    "min": Monoid("min", "fiu", _highest),
    "logical and": Monoid("and", "b", lambda _: 1),
    "logical or": Monoid("or", "b", lambda _: 0),
    "bit-wise and": Monoid("and", "iub", _ones),
    "bit-wise or": Monoid("or", "iub", lambda _: 0),
    "bit-wise xor": Monoid("xor", "iub", lambda _: 0),
    # exp takes it to the sum of positive numbers, of which it has the laws: -inf is their 0.
    "logaddexp": Monoid("logaddexp", "f", _lowest, rounds=True, clashes=True),
}


class NotProved(Exception):
    """Something that an argument needs is not proved; the message says what."""


@dataclass(frozen=True)
class Finished:
    """A buffer whose element at `indices` is finished when an expression reads it.

    - `indices` (tuple[Expr, ...]): in the reduction's axes.
    - `value`: the stored value.
    - `rounds`: whether memory rounds what is stored: a bfloat16 that the function allocates is kept
      as it was computed.
    """

    indices: tuple[Any, ...]
    value: Term
    rounds: bool = False

    def loaded(self, table: TermArithmetic) -> Term:
        """Return what a load gives."""
        return stored_term(table, self.value) if self.rounds else self.value


def stored_term(table: TermArithmetic, term: Term) -> Term:
    """Return what memory keeps of a value; rounding takes the greater one to the greater one."""
    if term.op in ("max", "min"):
        parts = [stored_term(table, arg) for arg in term.args]
        if not table.exact:
            return table.extremum(term.op, term.type, parts)
        return table.node(term.op, term.type, parts, term.data)
    known = term.op == "poly" and not any(monomial for monomial, _ in term.data)
    if known or term.op in ("stored", "load", "literal"):
        return term
    return table.node("stored", term.type, (term,))


def identity_of(table: TermArithmetic, monoid: Monoid, type: ScalarType) -> Term:
    """Return the identity of a monoid as a term."""
    value = monoid.identity(type)
    if type.kind == "f":
        return table.literal(float(value), type)
    return table.integer(int(value), type)


def combine(table: TermArithmetic, monoid: Monoid, type: ScalarType, a: Term, b: Term) -> Term:
    """Return two terms combined by a monoid."""
    return table.binary(monoid.operation, type, a, b)  # type: ignore[no-any-return]
