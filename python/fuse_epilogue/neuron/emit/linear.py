"""Sums of integer variables: what the indices and bounds of a kernel are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: An interval of integers, both ends included.
Interval = tuple[int, int]


@dataclass(frozen=True)
class Linear:
    """``constant + sum(coefficient * term)``.

    - `terms`: coefficients that are not 0. A term is a variable, or another expression of outer
      variables as it is written in Python.
    - `constant`: the constant that is added.
    """

    terms: Mapping[str, int] = field(default_factory=dict)
    constant: int = 0

    def __hash__(self) -> int:
        """Hash by value; the order of the terms does not count."""
        return hash((frozenset(self.terms.items()), self.constant))

    def __add__(self, other: Linear | int) -> Linear:
        """Add."""
        if isinstance(other, int):
            return Linear(self.terms, self.constant + other)
        terms = dict(self.terms)
        for name, coefficient in other.terms.items():
            terms[name] = terms.get(name, 0) + coefficient
            if terms[name] == 0:
                del terms[name]
        return Linear(terms, self.constant + other.constant)

    def __sub__(self, other: Linear | int) -> Linear:
        """Subtract."""
        return self + other * -1

    def __mul__(self, factor: int) -> Linear:
        """Multiply with a number."""
        if factor == 0:
            return Linear()
        terms = {name: coefficient * factor for name, coefficient in self.terms.items()}
        return Linear(terms, self.constant * factor)

    def of(self, name: str) -> int:
        """Return the coefficient of a term."""
        return self.terms.get(name, 0)

    def without(self, *names: str) -> Linear:
        """Return the sum without some terms."""
        return Linear({k: v for k, v in self.terms.items() if k not in names}, self.constant)

    def put(self, name: str, value: Linear) -> Linear:
        """Return the sum with a value in place of a term."""
        return self.without(name) + value * self.of(name)

    @property
    def picked(self) -> str | None:
        """The term that is read of a table, as it is written, if there is one."""
        return next((name for name in self.terms if name.endswith("]")), None)

    @property
    def fixed(self) -> int | None:
        """The value, if there are no terms."""
        return None if self.terms else self.constant

    def bounds(self, ranges: Mapping[str, Interval]) -> Interval:
        """Return the least and the greatest value it may have."""
        low = high = self.constant
        for name, coefficient in self.terms.items():
            ends = [coefficient * end for end in ranges[name]]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def __str__(self) -> str:
        """Write it in Python."""
        text = ""
        positive = [item for item in self.terms.items() if item[1] > 0]
        negative = [item for item in self.terms.items() if item[1] < 0]
        if negative and (self.constant > 0 and not positive):
            text = str(self.constant)
        for name, coefficient in [*positive, *negative]:
            size = abs(coefficient)
            factor = name if name.isidentifier() or name.endswith(")") else f"({name})"
            part = factor if size == 1 else f"{factor} * {size}"
            if not text:
                text = part if coefficient > 0 else f"-{part}"
            else:
                text += f" + {part}" if coefficient > 0 else f" - {part}"
        if not text:
            return str(self.constant)
        if self.constant and not text.startswith(f"{self.constant} "):
            text += f" + {self.constant}" if self.constant > 0 else f" - {-self.constant}"
        return text


def named_term(ranges: dict[str, Interval], text: str, values: Interval) -> Linear:
    """Return an expression as one term, whose values are noted; as a constant if it has only one.

    - `text`: how it is written.
    """
    if values[0] == values[1]:
        return Linear({}, values[0])
    ranges[text] = values
    return Linear({text: 1})
