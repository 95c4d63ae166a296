"""A generated function as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Operand:
    """A value that is defined where its guard holds.

    - `kind`: a key of :data:`.operands.OPERANDS`.
    - `axes`: on which axes of the result it depends: "row", "column" or "both".
    - `guard`: a key of :data:`.operands.GUARDS`.
    """

    kind: str
    axes: str
    guard: str


@dataclass(frozen=True)
class Stage:
    """A block that follows the reduction: ``y = operation(x, operand)``.

    - `operation`: a key of :data:`.operands.OPERATIONS`.
    """

    operation: str
    operand: Operand


@dataclass(frozen=True)
class Function:
    """A function.

    - `kind`: "product", "rows", "conv" or "elements": the last has no reduction.
    - `sizes`: by the letters that :mod:`.build` has for them.
    - `source`, `accumulator`: types of what is summed, and of the sums.
    - `form` (dict[str, Any]): what there is only of this kind, see :mod:`.draw`.
    - `start`: what T.init stores; zero if None.
    - `stages`: what follows the reduction.
    - `tight`: whether the arrays are declared with the alignment of their elements: they then end
      exactly at the unreadable page, whatever their size is.
    """

    kind: str
    sizes: dict[str, int]
    source: str
    accumulator: str
    form: dict[str, Any] = field(default_factory=dict)
    start: Operand | None = None
    stages: tuple[Stage, ...] = ()
    tight: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON's types."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Function:
        """Return what `to_json` was given."""
        start = data["start"]
        stages = tuple(Stage(s["operation"], Operand(**s["operand"])) for s in data["stages"])
        return Function(
            **{**data, "start": None if start is None else Operand(**start), "stages": stages}
        )
