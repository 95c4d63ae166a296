"""Fields of a plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from ..neuron.machine import Machine
from .json_schema import ABSENT, Count, Must, Name, NotNegative
from .machines.cpu import Cpu
from .machines.gpu import Gpu
from .measurement.profile import UNKNOWN
from .problems.cost import Weights
from .problems.problem import Problem
from .problems.space import Point
from .search.search import Found

#: The identity of a plan that takes any function of its kind, sizes and type.
ANY = "any"
_IDENTITY = Must(
    f"16 hexadecimal digits, or '{ANY}'",
    lambda text: text == ANY or (len(text) == 16 and {*text} <= {*"0123456789abcdef"}),
)


@dataclass(frozen=True)
class PlanRecord:
    """The fields of a plan, which :class:`.plans.Plan` describes, and what follows from them."""

    kind: str
    sizes: dict[Name, Count]
    dtype: str
    machine: Cpu | Gpu | Machine
    weights: Weights
    found: Found
    finite: bool = False
    round_shares: bool = False
    resolution: NotNegative = UNKNOWN
    identity: Annotated[str, _IDENTITY] = ANY
    known: Problem | None = field(default=None, repr=False, compare=False, metadata=ABSENT)

    @property
    def point(self) -> Point:
        """The values of the variables."""
        return self.found.best.point

    @property
    def cost(self) -> float:
        """Seconds, as the model predicts them."""
        return self.found.best.cost

    @property
    def fused(self) -> bool:
        """Whether what follows the reduction is computed inside of its loops."""
        return self.point.get("fusion", 0) != 0
