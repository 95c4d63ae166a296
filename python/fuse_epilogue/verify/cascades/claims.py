"""The claims about one reduction of a cascade."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..proof.field import Ratio


@dataclass(frozen=True)
class Stage:
    """The claims about one reduction, as numbers of a field.

    - `claim`: how errors name it: ``"stages[1]"``.
    - `rule`: one of the laws.
    - `monoid`: name of the monoid.
    - `term`: the program's term, in the results of earlier reductions.
    - `step`, `correction`: the term that the loop adds, and the state before, corrected.
    - `term_apart`, `step_apart`: the program's term and the loop's with each exponential separate.
    - `init`, `state_init`: start values of the program and of the loop.
    - `tail`: the result, as a function of the finished state.
    - `quotient`: the claimed factor of the correction.
    - `accumulated`, `finished`, `value`, `previous`: names of atoms.
    - `first`: the condition that there was no key before.
    - `count`, `total`: names of the numbers of keys before the block, and with it.
    - `every`: the number of all keys.
    - `lowest`, `highest`: the smallest and the largest number of the type; of floats they are
      infinities.
    - `undefined`: whether every term is NaN in a row whose keys are the infinity that the carrier
      starts at.
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
