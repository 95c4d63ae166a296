"""Numbers with a bound of the error that a program may make when it computes them.

A formula written for these gives the exact value (in extended precision) and how far a program
may be from it: every operation rounds once, exp and its like err by a few units, and a sum that is
rolled over B blocks of keys errs by the bound that holds for any order and any rolling,

    |s^ - s| <= (gamma_(n + 2B) + B * eps_exp) * sum |t_k| + the errors of the t_k,

where gamma_k = k * u / (1 - k * u). Of a term exp(x - m) the error of the difference is
u * (m - x): the differences of a rolled sum add up to that one, because m only grows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

#: What libm and LLVM's expansions of exp, log, tanh and their like err by, in units of rounding.
LIBRARY = 8
#: Roundings of what is done once for a sum: its deferred factors, its start.
_ONCE = 6

Wide = np.longdouble


@dataclass(frozen=True)
class Rules:
    """What is known of the arithmetic.

    - `dtype`: the floating type of the program.
    - `blocks`: blocks of keys over which sums may be rolled; 0 for a program that is not.
    """

    dtype: str
    blocks: int

    @property
    def unit(self) -> Any:
        """The largest relative error of a rounding."""
        return Wide(float(np.finfo(self.dtype).eps) / 2)

    @property
    def largest(self) -> Any:
        """The largest finite number."""
        return Wide(np.finfo(self.dtype).max)

    @property
    def tiny(self) -> Any:
        """The largest absolute error of rounding to a denormal, or to zero instead."""
        return Wide(np.finfo(self.dtype).tiny)


class Bounded:
    """An array of numbers, each with a bound of its error.

    - `value`, `error` (array_like): in extended precision; broadcast against each other.
    - `rules`: the arithmetic.
    """

    __array_ufunc__ = None

    def __init__(self, value: Any, error: Any, rules: Rules) -> None:
        self.value = np.asarray(value, Wide)
        self.error = np.broadcast_to(np.asarray(error, Wide), self.value.shape)
        self.rules = rules

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def __getitem__(self, key: Any) -> Bounded:
        return Bounded(self.value[key], self.error[key], self.rules)

    def moved(self, change: Callable[[np.ndarray], np.ndarray]) -> Bounded:
        """The same numbers in another arrangement."""
        return Bounded(change(self.value), change(self.error), self.rules)

    def _other(self, other: Any) -> Bounded:
        if isinstance(other, Bounded):
            return other
        return Bounded(np.asarray(other, self.rules.dtype), 0, self.rules)

    def _rounded(self, value: Any, error: Any, units: int = 1) -> Bounded:
        """A result with the error of its operands and its own rounding."""
        rules = self.rules
        error = error + units * (rules.unit * (abs(value) + error) + rules.tiny)
        # What overflows is open.
        error = np.where(abs(value) + error > rules.largest, np.inf, error)
        return Bounded(value, error, rules)

    def __add__(self, other: Any) -> Bounded:
        other = self._other(other)
        return self._rounded(self.value + other.value, self.error + other.error)

    def __neg__(self) -> Bounded:
        return Bounded(-self.value, self.error, self.rules)

    def __sub__(self, other: Any) -> Bounded:
        return self + -self._other(other)

    def __rsub__(self, other: Any) -> Bounded:
        return self._other(other) - self

    def __mul__(self, other: Any) -> Bounded:
        other = self._other(other)
        error = abs(self.value) * other.error + (abs(other.value) + other.error) * self.error
        return self._rounded(self.value * other.value, error)

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, other: Any) -> Bounded:
        other = self._other(other)
        value = self.value / other.value
        room = abs(other.value) - other.error
        error = np.where(room > 0, (self.error + abs(value) * other.error) / room, np.inf)
        # A divisor that rounding makes zero: anything may come out.
        unsure = (room <= 0) & (other.error > 0) & np.isfinite(other.value)
        value, error = np.where(unsure, 0, value), np.where(unsure, np.nan, error)
        # A quotient may be a product with the inverse.
        return self._rounded(value, error, 2)

    def __rtruediv__(self, other: Any) -> Bounded:
        return self._other(other) / self

    # ---- Functions -------------------------------------------------------------------------------

    def between(self, function: Callable[[Any], Any]) -> Bounded:
        """A monotone function: the error is that of the ends, and a few units."""
        value = function(self.value)
        ends = function(self.value - self.error), function(self.value + self.error)
        error = np.maximum(abs(ends[0] - value), abs(ends[1] - value))
        return self._rounded(value, error, LIBRARY)

    def exp(self) -> Bounded:
        return self.between(np.exp)

    def log(self) -> Bounded:
        found = self.between(np.log)
        # Near 1 a logarithm errs by units of its operand.
        return Bounded(found.value, found.error + LIBRARY * self.rules.unit, self.rules)

    def tanh(self) -> Bounded:
        found = self.between(np.tanh)
        # Lowered to a quotient of differences, whose error is relative to 1.
        return Bounded(found.value, found.error + LIBRARY * self.rules.unit, self.rules)

    def rsqrt(self) -> Bounded:
        return self.between(lambda x: 1 / np.sqrt(x))

    def sqrt(self) -> Bounded:
        return self.between(np.sqrt)

    def abs(self) -> Bounded:
        return Bounded(abs(self.value), self.error, self.rules)

    # ---- Reductions ------------------------------------------------------------------------------

    def max(self, axis: int = -1) -> Bounded:
        """From the smallest finite number, as TVM's."""
        value = np.maximum(self.value.max(axis), -self.rules.largest)
        return Bounded(value, self.error.max(axis), self.rules)

    def min(self, axis: int = -1) -> Bounded:
        """From the largest finite number, as TVM's."""
        return -((-self).max(axis))

    def maximum(self, other: Any) -> Bounded:
        other = self._other(other)
        error = np.maximum(self.error, other.error)
        return Bounded(np.maximum(self.value, other.value), error, self.rules)

    def sum(self, axis: int = -1) -> Bounded:
        """The sum along an axis, in any order and rolled over the blocks of `rules`."""
        rules = self.rules
        terms = self.value.shape[axis] + 2 * rules.blocks + _ONCE
        gamma = terms * rules.unit / (1 - terms * rules.unit)
        size = (abs(self.value) + self.error).sum(axis)
        more = (gamma + rules.blocks * LIBRARY * rules.unit) * size + terms * rules.tiny
        error = self.error.sum(axis) + more
        value = self.value.sum(axis)
        error = np.where(size > rules.largest, np.inf, error)
        return Bounded(value, error, rules)

    def squares_about_mean(self, axis: int = -1) -> tuple[Bounded, Bounded]:
        """The mean along an axis, and the sum of the squares of the distances from it.

        The bound holds for two passes and for blocks that are merged: with an error d of the means
        it is 2 * d * sqrt(n * S) + n * d**2 besides the roundings, since no order makes more of
        the distances than sqrt(n * S) (Cauchy and Schwarz).
        """
        n = self.value.shape[axis]
        mean = self.sum(axis) / float(n)
        largest = (abs(self.value) + self.error).max(axis)
        terms = n + 2 * self.rules.blocks + _ONCE
        off = np.maximum(mean.error, terms * self.rules.unit * largest)
        rough = Bounded(mean.value, off, self.rules)
        value = ((self.value - np.expand_dims(mean.value, axis)) ** 2).sum(axis)
        gamma = 4 * terms * self.rules.unit
        error = gamma * value + 4 * off * np.sqrt(n * value) + 4 * n * off**2
        error = error + terms * self.rules.tiny
        error = np.where(n * (2 * largest) ** 2 > self.rules.largest, np.inf, error)
        return rough, Bounded(value, error, self.rules)


def exactly(array: np.ndarray, rules: Rules) -> Bounded:
    """An input: a number without an error."""
    return Bounded(array, 0, rules)


def expand(number: Bounded, axis: int = -1) -> Bounded:
    """`number` with another axis, of length one."""
    return number.moved(lambda array: np.expand_dims(array, axis))


def where(condition: Any, a: Bounded, b: Any) -> Bounded:
    """One of two numbers for each element."""
    other = a._other(b)
    value = np.where(condition, a.value, other.value)
    return Bounded(value, np.where(condition, a.error, other.error), a.rules)


def product(a: Bounded, b: Bounded) -> Bounded:
    """The sum over the last axis of both of the products, the axes before broadcast."""
    return (a * b).sum(-1)


def with_blocks(rules: Rules, blocks: int) -> Rules:
    """The same arithmetic with another number of blocks."""
    return replace(rules, blocks=blocks)
