"""A function as plain data."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Guarded:
    """An operand under a guard.

    - `operand`, `guard`: keys of ``operands.OPERANDS`` and ``operands.GUARDS``.
    - `axis`: axis of the result that it depends on.
    - `short`: from 1 to one less than the size of that axis; 1 where the size is 1.
    - `other`: its value where the guard is false.
    """

    operand: str
    guard: str
    axis: int
    short: int
    other: int


@dataclass(frozen=True)
class Step:
    """A step of what follows the reduction.

    - `op`: a key of ``operands.STEPS``.
    - `whole`: whether the guard is around the whole step, or around the operand alone.
    """

    op: str
    guarded: Guarded
    whole: bool


@dataclass(frozen=True)
class Function:
    """A reduction with what follows it.

    - `kind`: a key of ``text.KINDS``.
    - `sizes`: by letter; which there are depends on the kind.
    - `dtype`: type of the data: "float32", "int8" or "int32"; sums are in float32 or int32.
    - `options` (dict[str, Any]): depends on the kind.
    - `init`: what the sums start from; 0 if None.
    - `taps`: so many elements of the weights are there along the reduction, guarded; all if 0.
    - `blocks`: whether each step is a block of its own.
    """

    kind: str
    sizes: dict[str, int]
    dtype: str
    options: dict[str, Any]
    init: Guarded | None
    taps: int
    steps: tuple[Step, ...]
    blocks: bool

    @property
    def sum_type(self) -> str:
        """Type of the sums."""
        return "float32" if self.dtype == "float32" else "int32"

    @property
    def guarded(self) -> tuple[Guarded, ...]:
        """All operands under guards."""
        own = () if self.init is None else (self.init,)
        return (*own, *(step.guarded for step in self.steps))

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON's types."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(found: dict[str, Any]) -> Function:
        """Return what `to_json` was made of."""
        init = found["init"]
        steps = tuple(
            Step(step["op"], Guarded(**step["guarded"]), step["whole"]) for step in found["steps"]
        )
        own = {**found, "init": None if init is None else Guarded(**init), "steps": steps}
        return Function(**own)
