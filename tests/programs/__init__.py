"""The corpus: every program the primitive must fuse, and every one that it must refuse.

`ACCEPT` holds programs that must be fused, `REFUSE` programs that must be refused, and `EITHER`
programs for which both are right as long as the result is. `BY_NAME` finds one of any kind.
"""

from __future__ import annotations

from . import (
    layouts,
    refused_consumers,
    refused_expressions,
    refused_hazards,
    refused_memory,
    refused_readers,
    refused_reductions,
    refused_structure,
    scheduled,
    shapes,
    sums,
    terms,
)
from .case import Case

__all__ = ["ACCEPT", "BY_NAME", "EITHER", "REFUSE", "Case"]

_ACCEPTING = (terms, sums, layouts, shapes, scheduled)
_REFUSING = (
    refused_reductions,
    refused_readers,
    refused_consumers,
    refused_structure,
    refused_hazards,
    refused_memory,
    refused_expressions,
)

ACCEPT: list[Case] = [case for family in _ACCEPTING for case in family.ACCEPT]
REFUSE: list[Case] = [case for family in _REFUSING for case in family.REFUSE]
EITHER: list[Case] = [
    case for family in (*_ACCEPTING, *_REFUSING) for case in getattr(family, "EITHER", [])
]
BY_NAME: dict[str, Case] = {case.name: case for case in (*ACCEPT, *REFUSE, *EITHER)}
