"""The claims about one reduction of a cascade."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..proof.field import Ratio


@dataclass(frozen=True)
class Stage:
    """The claims about one reduction, as numbers of a field.

    Attributes
    ----------
    claim : str
        How errors name it: ``"stages[1]"``.
    rule : str
        One of the laws.
    monoid : str
        Name of the monoid.
    term : Ratio
        The program's term, in the results of earlier reductions.
    step, correction : Ratio
        The term that the loop adds, and the state before, corrected.
    term_apart, step_apart : Ratio
        The program's term and the loop's with each exponential separate.
    init, state_init : Ratio
        Start values of the program and of the loop.
    tail : Ratio or None
        The result, as a function of the finished state.
    quotient : Ratio or None
        The claimed factor of the correction.
    accumulated, finished, value, previous : Any
        Names of atoms.
    first : Ratio
        The condition that there was no key before.
    count, total : Any
        Names of the numbers of keys before the block, and with it.
    every : Ratio
        The number of all keys.
    lowest, highest : Ratio
        The smallest and the largest number of the type; of floats they are infinities.
    undefined : bool
        Whether every term is NaN in a row whose keys are the infinity that the carrier starts at.
    """

    claim: str
    rule: str
    monoid: str
    term: Ratio
    step: Ratio
    term_apart: Ratio
    step_apart: Ratio
    correction: Ratio
    init: Ratio
    state_init: Ratio
    tail: Ratio | None
    quotient: Ratio | None
    rolled: Ratio | None
    deferred: Ratio | None
    accumulated: Any
    finished: Any
    value: Any
    previous: Any
    first: Ratio
    count: Any
    total: Any
    every: Ratio
    lowest: Ratio
    highest: Ratio
    undefined: bool
