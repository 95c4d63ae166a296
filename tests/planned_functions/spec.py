"""A generated function as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Operand:
    """A value that is defined where its guard holds.

    Attributes
    ----------
    kind : str
        A key of :data:`.operands.OPERANDS`.
    axes : str
        On which axes of the result it depends: "row", "column" or "both".
    guard : str
        A key of :data:`.operands.GUARDS`.
    """

    kind: str
    axes: str
    guard: str


@dataclass(frozen=True)
class Stage:
    """A block that follows the reduction: ``y = operation(x, operand)``.

    Attributes
    ----------
    operation : str
        A key of :data:`.operands.OPERATIONS`.
    operand : Operand
    """

    operation: str
    operand: Operand


@dataclass(frozen=True)
class Function:
    """A function.

    Attributes
    ----------
    kind : str
        "product", "rows", "conv" or "elements": the last has no reduction.
    sizes : dict[str, int]
        By the letters that :mod:`.build` has for them.
    source, accumulator : str
        Types of what is summed, and of the sums.
    form : dict[str, Any]
        What there is only of this kind, see :mod:`.draw`.
    start : Operand or None
        What T.init stores; zero if None.
    stages : tuple[Stage, ...]
        What follows the reduction.
    tight : bool
        Whether the arrays are declared with the alignment of their elements: they then end exactly
        at the unreadable page, whatever their size is.
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
