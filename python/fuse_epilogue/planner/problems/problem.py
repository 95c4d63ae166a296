"""The interface of every kind of problem to the search, for any machine."""

from __future__ import annotations

from typing import Protocol

from tvm import s_tir, tirx

from ...rewrites.epilogue import LABELS, Epilogue
from ..cost import Terms
from ..space import Point, Points, Space, Variable


class Problem(Protocol):
    """A function to schedule as an optimisation problem.

    A problem may also have

    - ``exact(point) -> float``: seconds, weights included, where `cost` is only a lower bound of
      it; ``inf`` for a point that turns out to be impossible. With it, also
    - ``estimate(points) -> numpy.ndarray``: about those seconds, for the order of trying points;
    - ``is_usual(points) -> numpy.ndarray``: which of them come first of all;
    - ``is_plain(points) -> numpy.ndarray``: which are searched as if there were no others, then
      those as well;
    - ``steps(points) -> numpy.ndarray``: how much work their exact costs are;
    - ``is_possible(point) -> bool``: asked last, of the best point alone;
    - ``range_of(point) -> tuple[float, float] or None``: the least and the most seconds by what is
      not known of the machine, None where finding out takes too long;
    - ``why_impossible``, a str: the reason of the first of its points found to be so;
    - ``missing``, a tuple of str: what its space lacks, each with the reason.
    """

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
