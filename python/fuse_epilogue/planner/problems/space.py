"""The points that a planner chooses from: variables, their values, and what forbids some of them.

Points are arrays, one for each variable: all that is computed of points is computed of all of them
at once, and never in a loop over them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

#: One point: a value for each variable.
Point = dict[str, int]


@dataclass(frozen=True)
class Variable:
    """Something to choose.

    - `choices`: the values that it may have, each once.
    - `unit`: what a value counts: "elements", "vectors", ...; "" for a choice between things.
    - `meaning`: one line.
    - `labels`: name of each choice, where it is not a number; else empty.
    """

    name: str
    choices: tuple[int, ...]
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that there are values, each once, and a label for each if for any."""
        if not self.choices or len(set(self.choices)) != len(self.choices):
            raise ValueError(
                f"variable '{self.name}' needs one or more distinct values, not {self.choices}"
            )
        if self.labels and len(self.labels) != len(self.choices):
            raise ValueError(f"variable '{self.name}' needs a label for each of its values")

    def label(self, value: int) -> str:
        """Return how a value is written."""
        return self.labels[self.choices.index(value)] if self.labels else str(value)


class Points:
    """Points as arrays.

    - `values`: for each variable its value at each point: int64, all of the same length.
    """

    def __init__(self, values: Mapping[str, np.ndarray]) -> None:
        self.values = dict(values)

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the values of a variable."""
        return self.values[name]

    @property
    def size(self) -> int:
        """Number of points."""
        return len(next(iter(self.values.values()), ()))

    def take(self, which: np.ndarray) -> Points:
        """Return some of the points: `which` is a mask, or indices."""
        return Points({name: array[which] for name, array in self.values.items()})

    def at(self, index: int) -> Point:
        """Return one point."""
        return {name: int(array[index]) for name, array in self.values.items()}

    @staticmethod
    def of(points: Sequence[Mapping[str, int]]) -> Points:
        """Return some points as arrays."""
        names = list(points[0]) if points else []
        return Points({name: np.array([p[name] for p in points], np.int64) for name in names})


@dataclass(frozen=True)
class Constraint:
    """Something that a point may use up to a limit.

    - `unit`: name of the limit.
    - `used`: how much of it each point uses; a point is feasible where that is at most the limit.
    - `meaning`: one line.
    - `costed`: whether the cost holds beyond it, too. It does not where it counts tiles that are
      whole, or what it is asked about does not exist.
    """

    name: str
    limit: int
    unit: str
    used: Callable[[Points], Any]
    meaning: str
    costed: bool = True


@dataclass(frozen=True)
class Space:
    """All points, and what forbids some.

    Attributes
    ----------
    variables : tuple[Variable, ...]
    constraints : tuple[Constraint, ...]
        Each is asked only about what those before it left.

    Example
    -------
    >>> a, b = (Variable(name, (1, 2, 3), "", "") for name in "ab")
    >>> less = Constraint("sum", 3, "", lambda points: points["a"] + points["b"], "")
    >>> points, pruned = Space((a, b), (less,)).feasible()
    >>> points.size, pruned
    (3, {'sum': 6})
    """

    variables: tuple[Variable, ...]
    constraints: tuple[Constraint, ...] = ()

    @property
    def size(self) -> int:
        """Number of points, feasible or not."""
        return prod(len(variable.choices) for variable in self.variables)

    @cached_property
    def by_name(self) -> dict[str, Variable]:
        """The variables by name."""
        return {variable.name: variable for variable in self.variables}

    def points(self) -> Points:
        """Return all points; the first variable changes slowest."""
        repeat, tile, values = self.size, 1, {}
        for variable in self.variables:
            repeat //= len(variable.choices)
            choices = np.array(variable.choices, np.int64)
            values[variable.name] = np.tile(np.repeat(choices, repeat), tile)
            tile *= len(variable.choices)
        return Points(values)

    def feasible(self, points: Points | None = None) -> tuple[Points, dict[str, int]]:
        """Return the feasible points, of all or of some, and how many each constraint pruned.

        A point that breaks several constraints counts for the first of them.
        """
        left = self.points() if points is None else points
        pruned: dict[str, int] = {}
        for constraint in self.constraints:
            within = np.broadcast_to(constraint.used(left) <= constraint.limit, (left.size,))
            pruned[constraint.name] = int(left.size - np.count_nonzero(within))
            if pruned[constraint.name]:
                left = left.take(within)
        return left, pruned

    def used(self, point: Mapping[str, int]) -> dict[str, int]:
        """Return how much of each constraint a point uses."""
        points = Points.of([point])
        return {c.name: int(np.broadcast_to(c.used(points), (1,))[0]) for c in self.constraints}

    def check(self, point: Mapping[str, int]) -> None:
        """Do nothing for a feasible point.

        Raises
        ------
        ValueError
            A variable is missing, unknown or has a value that is not one of its choices, or a
            constraint is broken; the message says which, and what is possible.
        """
        for name in point:
            if name not in self.by_name:
                known = ", ".join(self.by_name)
                raise ValueError(f"there is no variable '{name}', only {known}")
        for variable in self.variables:
            if variable.name not in point:
                raise ValueError(f"the point has no value for '{variable.name}'")
            if point[variable.name] not in variable.choices:
                raise ValueError(
                    f"'{variable.name}' is one of {variable.choices}, not {point[variable.name]}"
                )
        for constraint in self.constraints:
            used = self.used(point)[constraint.name]
            if used > constraint.limit:
                raise ValueError(
                    f"the point uses {used} {constraint.unit} of '{constraint.name}', which has "
                    f"{constraint.limit}: {constraint.meaning}"
                )

    def describe(self, point: Mapping[str, int]) -> str:
        """Return a point in words."""
        return ", ".join(f"{v.name} {v.label(point[v.name])}" for v in self.variables)


def divisors(size: int, most: int) -> tuple[int, ...]:
    """Return the divisors of a size up to a number, in order."""
    return tuple(d for d in range(1, min(size, most) + 1) if size % d == 0)
