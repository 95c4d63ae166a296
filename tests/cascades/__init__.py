"""Cascaded reductions: programs, data that is hard on them, and the error they may make.

`CASES` holds the programs: those that must be fused, those that must be refused, and those for
which both are right as long as the result is.
"""

from __future__ import annotations

from . import attention, exponents, infinite_starts, legalised, norms, scales, selection, softmax
from .case import Cascade

__all__ = ["ACCEPT", "BY_NAME", "CASES", "EITHER", "REFUSE", "Cascade"]

CASES: list[Cascade] = [
    case
    for family in (
        softmax,
        exponents,
        infinite_starts,
        attention,
        norms,
        scales,
        selection,
        legalised,
    )
    for case in family.CASES
]
BY_NAME: dict[str, Cascade] = {case.name: case for case in CASES}
ACCEPT = [case for case in CASES if case.verdict == "accept"]
REFUSE = [case for case in CASES if case.verdict == "refuse"]
EITHER = [case for case in CASES if case.verdict == "either"]
