"""Several axes in one: a row, or a thread, by its number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx


def unfold(number: Any, extents: Sequence[Any]) -> list[Any]:
    """Return the values of axes that are folded into one number, the last one changing fastest.

    - `number` (Expr): not negative, and less than the product of the extents.
    - `extents`: positive.
    """
    values, rest = [], number
    for place, extent in reversed(list(enumerate(extents))):
        value, rest = (rest, None) if place == 0 else _divided(rest, extent)
        values.append(value)
    return values[::-1]


def _divided(value: Any, extent: Any) -> tuple[Any, Any]:
    """Return the remainder and the quotient of a value that is not negative."""
    if isinstance(extent, int):
        return tirx.floormod(value, extent), tirx.floordiv(value, extent)
    # TVM does not know that sizes are positive, and would take care of the signs.
    return tirx.truncmod(value, extent), tirx.truncdiv(value, extent)
