"""Values that a condition of several loops chooses, such as ``x if j <= i else 0``.

A condition on one loop cuts its range. One that couples loops, as a causal mask does, is left to
``affine_select``: everything is computed, and then replaced where the condition does not hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from .linear import Linear
from .program import Axis, Choose, Expression, Number, Store


@dataclass(frozen=True)
class Mask:
    """A value, and a number where some conditions do not hold.

    - `conditions`: each is ``condition >= 0``.
    """

    value: Expression
    conditions: tuple[Linear, ...]
    otherwise: Number


def mask_of(store: Store, axes: list[Axis]) -> Mask | None:
    """Return the mask that a store applies.

    None if no condition couples loops, or the other value is not a number.

    - `axes`: those that instructions cover.
    """
    value = store.value
    if not isinstance(value, Choose) or not isinstance(value.b, Number):
        return None

    def couples(condition: Linear) -> bool:
        return sum(bool(condition.of(axis.name)) for axis in axes) > 1

    coupled = tuple(each for each in value.conditions if couples(each))
    if not coupled:
        return None
    alone = tuple(each for each in value.conditions if not couples(each))
    rest = Choose(alone, value.a, value.b, value.dtype) if alone else value.a
    return Mask(rest, coupled, value.b)
