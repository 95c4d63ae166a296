"""The interface of every kind of problem to the search, for any machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Protocol

import numpy as np
from tvm import s_tir, tirx

from ...rewrites.epilogue import LABELS, Epilogue
from .cost import Terms
from .space import Point, Points, Space, Variable

#: Steps of a point whose exact cost is computed, at most.
LONGEST = 5_000


class ExactCosts(ABC):
    """Exact costs of points, for a problem whose `cost` is only a lower bound of them."""

    @abstractmethod
    def exact(self, point: Point) -> float:
        """Return seconds, weights included; ``inf`` for a point that is not possible after all."""

    def estimate(self, points: Points) -> np.ndarray | None:
        """Return about those seconds, for the order of trying points, None for the bounds."""
        return None

    def is_usual(self, points: Points) -> np.ndarray | None:
        """Return which points come first of all, None if there are none of that kind."""
        return None

    def is_plain(self, points: Points) -> np.ndarray:
        """Return which points are searched as if there were no others, before those are."""
        return np.ones(points.size, bool)

    def steps(self, points: Points) -> np.ndarray:
        """Return how much work the exact costs are."""
        return np.full(points.size, 1_000)

    def is_possible(self, point: Point) -> bool:
        """Return whether a point is possible: asked last, of the best point alone."""
        return True

    def range_of(self, point: Point) -> tuple[float, float] | None:
        """Return the least and the most seconds by what is not known of the machine.

        None where finding out takes too long.
        """
        return None

    def permitted(self) -> Mapping[str, Problem]:
        """Return this problem with what its caller may permit and has not, by option of the plan.

        Options that change nothing here are left out.
        """
        return {}

    @property
    def why_impossible(self) -> str:
        """The reason of the first of its points found to be impossible, or ""."""
        return ""


class Problem(Protocol):
    """A function to schedule as an optimisation problem."""

    @property
    def kind(self) -> str:
        """Kind of problem, in a word or two: "product", "rows", "conv"."""

    @property
    def sizes(self) -> dict[str, int]:
        """Its sizes by name."""

    @property
    def dtype(self) -> str:
        """Type of what goes in."""

    @property
    def func(self) -> tirx.PrimFunc:
        """The function, not scheduled."""

    @property
    def space(self) -> Space:
        """The space of choices."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Gaps of the space, each with the reason."""

    @property
    def exact_costs(self) -> ExactCosts | None:
        """The exact costs, where `cost` is only a lower bound of them; otherwise None."""

    def cost(self, points: Points) -> Terms:
        """Return the terms of the cost of feasible points, in seconds, for all at once."""

    def apply(self, point: Point) -> s_tir.Schedule:
        """Return the function scheduled, with a trace that replays on it, from JSON as well.

        Raises
        ------
        ValueError
            The point is not one of the space.
        """

    def resized(self, name: str, size: int) -> Problem | None:
        """Return the same problem with another size, None where the cost cannot tell of it."""


def fusion_variable(epilogue: Epilogue) -> Variable:
    """Return the variable "fusion": the ways to fuse an epilogue."""
    labels = tuple(LABELS[mode] for mode in epilogue.modes)
    meaning = (
        "where what follows the reduction is computed: none, after it in loops of its own; "
        "tail, on each finished tile; absorbed, in what the reduction starts from"
    )
    return Variable("fusion", epilogue.modes, "", meaning, labels)
