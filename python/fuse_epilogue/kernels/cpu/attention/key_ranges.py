"""Ranges of keys that any query of a block needs, by intervals of a condition on both.

    key <= query and query - key < 3        for the queries 8 to 15:  the keys 6 to 15

A comparison that is linear in both has an interval of keys for an interval of queries. A
conjunction has the intersection of the intervals of its parts, a disjunction the interval around
them, which may have gaps. Of a condition that reads a mask, each block of keys is looked at when
the function runs. Any other condition leaves all keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import prim

from ....tir.affine import affine_of, as_constant, at_least_zero
from ....tir.walk import loads, parts_of, substitute, substitute_part
from ..loops import index, wide

_OPPOSITES = {
    prim.LE: prim.GT,
    prim.LT: prim.GE,
    prim.GE: prim.LT,
    prim.GT: prim.LE,
    prim.EQ: prim.NE,
    prim.NE: prim.EQ,
}
_ALL, _ANY = (prim.And, prim.BitwiseAnd), (prim.Or, prim.BitwiseOr)
_INTEGERS = ("int32", "int64")
#: Choices in a comparison up to which it is split: each doubles the number of comparisons.
_MOST_CHOICES = 3


@dataclass(frozen=True)
class Linear:
    """The condition ``query * of_query + key * of_key + rest >= 0``.

    - `rest`: int or Expr.
    """

    of_query: int
    of_key: int
    rest: Any

    def bounds(self, first: Any, last: Any) -> tuple[Any, Any]:
        """Return the first and the last key, as :meth:`Joined.bounds` does."""
        most = self.most(first, last)
        if self.of_key < 0:
            return None, _quotient(most, -self.of_key)
        return -1 * _quotient(most, self.of_key), None

    def may_hold(self, queries: tuple[Any, Any], keys: tuple[Any, Any]) -> Any:
        """Return whether any of some queries needs any of some keys, as an expression."""
        key = keys[self.of_key > 0]
        return wide(self.most(*queries)) + index(self.of_key) * wide(key) >= index(0)

    def most(self, first: Any, last: Any) -> Any:
        """Return the greatest value without the key."""
        return self.rest + self.of_query * (last if self.of_query > 0 else first)

    @property
    def has_gaps(self) -> bool:
        """Whether keys between the bounds may be left out for all queries."""
        return False


@dataclass(frozen=True)
class Joined:
    """Two conditions, of which both hold if `every`, else one of them."""

    parts: tuple[KeyRange, KeyRange]
    every: bool

    def bounds(self, first: Any, last: Any) -> tuple[Any, Any]:
        """Return the first and the last key that any of some queries needs.

        - `first`, `last`: the queries, int or Expr.
        - Returns: each is None where no key is left out on that side. There is no key where the
          last is before the first.
        """
        found = [each.bounds(first, last) for each in self.parts]
        firsts, lasts = (
            [bounds[side] for bounds in found if bounds[side] is not None] for side in range(2)
        )
        if self.every:
            return _largest(firsts), _smallest(lasts)
        both = len(self.parts)
        return (
            _smallest(firsts) if len(firsts) == both else None,
            _largest(lasts) if len(lasts) == both else None,
        )

    def may_hold(self, queries: tuple[Any, Any], keys: tuple[Any, Any]) -> Any:
        """Return whether any of some queries needs any of some keys, as an expression."""
        one, other = (each.may_hold(queries, keys) for each in self.parts)
        return tirx.And(one, other) if self.every else tirx.Or(one, other)

    @property
    def has_gaps(self) -> bool:
        """Whether keys between the bounds may be left out for all queries."""
        return not self.every or any(each.has_gaps for each in self.parts)


@dataclass(frozen=True)
class Loaded:
    """A condition that reads a mask: what it hides is known only when the function runs.

    - `condition` (Expr): of the query, the key and the axes of heads.
    """

    condition: Any

    def bounds(self, first: Any, last: Any) -> tuple[None, None]:
        """Return no bounds."""
        return None, None

    @property
    def has_gaps(self) -> bool:
        """Whether keys between the bounds may be left out for all queries."""
        return True


KeyRange = Linear | Joined


def key_range(condition: Any, query: Any, key: Any) -> KeyRange | None:
    """Return the keys for which a condition may hold, None if that may be all of them.

    - `condition` (Expr): of type bool.
    - `query`, `key` (tvm.ir.Var): integers. Other variables of the condition, such as lengths, are
      variables of the range.
    """
    # In 64 bits, so that no bound overflows.
    table = {var: tirx.Var(str(var.name), "int64") for var in (query, key)}
    typed = {var: other.astype(str(var.ty.dtype)) for var, other in table.items()}
    return _Reader(table[query], table[key]).of(substitute(condition, typed), True)


class _Reader:
    """Reads conditions on a query and a key."""

    def __init__(self, query: Any, key: Any) -> None:
        self.query, self.key = query, key

    def of(self, node: Any, holds: bool) -> KeyRange | None:
        """Return the keys for which a condition may hold, or may not hold."""
        if str(node.ty.dtype) != "bool":
            return None
        if isinstance(node, prim.Not | prim.BitwiseNot):
            return self.of(node.a, not holds)
        if isinstance(node, (*_ALL, *_ANY)):
            every = isinstance(node, _ALL) == holds
            return _joined(self.of(node.a, holds), self.of(node.b, holds), every)
        if type(node) in _OPPOSITES:
            return self.of_comparison(node if holds else _OPPOSITES[type(node)](node.a, node.b))
        return None

    def of_comparison(self, node: Any) -> KeyRange | None:
        """Return the keys for a comparison of integers."""
        types = [str(each.ty.dtype) for each in (node.a, *parts_of(node, prim.Cast))]
        if loads(node) or any(each not in _INTEGERS for each in types):
            return None
        choices = parts_of(node, prim.Select, prim.Max, prim.Min)
        if choices:
            return self.of_choice(node, choices[0]) if len(choices) <= _MOST_CHOICES else None
        if isinstance(node, prim.EQ):
            least, most = (self.of_comparison(kind(node.a, node.b)) for kind in (prim.GE, prim.LE))
            return _joined(least, most, True)
        return self.of_inequality(node)

    def of_choice(self, node: Any, choice: Any) -> KeyRange | None:
        """Return the keys for a comparison with a choice, such as an absolute value."""
        if isinstance(choice, prim.Select):
            condition, values = choice.condition, (choice.true_value, choice.false_value)
        else:
            kind = prim.GE if isinstance(choice, prim.Max) else prim.LE
            condition, values = kind(choice.a, choice.b), (choice.a, choice.b)
        one, other = (
            _joined(
                self.of(condition, holds),
                self.of_comparison(substitute_part(node, choice, value)),
                True,
            )
            for holds, value in zip((True, False), values, strict=True)
        )
        return _joined(one, other, False)

    def of_inequality(self, node: Any) -> KeyRange | None:
        """Return the keys for which ``query * i + key * j + rest`` is not below 0."""
        least = at_least_zero(node)
        linear = None if least is None else affine_of(wide(least), (self.query, self.key))
        if linear is None or linear.factors[1] == 0:
            return None
        of_query, of_key = linear.factors
        return Linear(of_query, of_key, as_constant(linear.rest))


def _joined(one: KeyRange | None, other: KeyRange | None, every: bool) -> KeyRange | None:
    """Return the keys that are in two ranges, or in any of them."""
    if one is None or other is None:
        return (one or other) if every else None
    return Joined((one, other), every)


def _quotient(number: Any, by: int) -> Any:
    if isinstance(number, int):
        return number // by
    return number if by == 1 else tirx.floordiv(number, index(by))


def _largest(numbers: list[Any]) -> Any:
    return _extreme(numbers, max, tirx.max)


def _smallest(numbers: list[Any]) -> Any:
    return _extreme(numbers, min, tirx.min)


def _extreme(numbers: list[Any], of_ints: Any, of_expressions: Any) -> Any:
    """Return the largest or the smallest of up to two numbers, None if there is none."""
    if len(numbers) < 2:
        return numbers[0] if numbers else None
    if all(isinstance(each, int) for each in numbers):
        return of_ints(numbers)
    return of_expressions(*map(wide, numbers))
