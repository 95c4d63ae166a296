"""The corpus: every program the primitive must fuse, and every one that it must refuse.

`ACCEPT` holds programs that must be fused, `REFUSE` programs that must be refused, and `EITHER`
programs for which both are right as long as the result is. `BY_NAME` finds one of any kind.
"""

from __future__ import annotations

from . import (
    activations,
    chains,
    conversions,
    distributing,
    expressions,
    guarded,
    layouts,
    memory,
    monoids,
    positions,
    readers,
    refused_consumers,
    refused_expressions,
    refused_hazards,
    refused_index_maps,
    refused_memory,
    refused_outputs,
    refused_readers,
    refused_reductions,
    refused_structure,
    refused_visits,
    repeated_divisions,
    scheduled,
    shapes,
    sums,
    symbolic_shapes,
    terms,
)
from .case import Case

__all__ = ["ACCEPT", "BY_NAME", "EITHER", "REFUSE", "Case"]

_FAMILIES = (
    terms,
    sums,
    layouts,
    shapes,
    symbolic_shapes,
    scheduled,
    monoids,
    distributing,
    expressions,
    activations,
    conversions,
    guarded,
    chains,
    readers,
    memory,
    positions,
    refused_reductions,
    refused_visits,
    refused_readers,
    refused_index_maps,
    refused_consumers,
    refused_structure,
    refused_hazards,
    refused_outputs,
    refused_memory,
    refused_expressions,
    repeated_divisions,
)


def _all(kind: str) -> list[Case]:
    return [case for family in _FAMILIES for case in getattr(family, kind, [])]


ACCEPT: list[Case] = _all("ACCEPT")
REFUSE: list[Case] = _all("REFUSE")
EITHER: list[Case] = _all("EITHER")
BY_NAME: dict[str, Case] = {case.name: case for case in (*ACCEPT, *REFUSE, *EITHER)}
