"""Comparing what two functions computed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .evaluation.rounding import Interval, is_nan, is_unknown


class NotEquivalent(Exception):
    """Two functions compute something different.

    Attributes
    ----------
    buffer : str
        The parameter in which they differ; empty if it is not about an element.
    element : tuple[int, ...]
        Where.
    before, after : Any
        The two values.
    """

    def __init__(
        self,
        reason: str,
        buffer: str = "",
        element: tuple[int, ...] = (),
        before: Any = None,
        after: Any = None,
    ) -> None:
        place = f"{buffer}{list(map(int, element))}: before {before}, after {after}; "
        super().__init__(f"{place if buffer else ''}{reason}")
        self.buffer = buffer
        self.element = element
        self.before = before
        self.after = after


@dataclass(frozen=True)
class Comparison:
    """Counts of compared elements, by the kind of comparison.

    Attributes
    ----------
    elements : int
        Elements of all arrays that one of the functions writes.
    identical : int
        Those that had to be the same, bit for bit (zeros of either sign are the same where
        floats may be reassociated).
    bounded : int
        Those that had to be within the bound of what rounding can do.
    open : int
        Those that were not compared: what they are depends on the order of the operations for
        more than rounding (a NaN in a maximum, an overflow on the way), or it is an integer or a
        bool that may have any value.
    undefined : int
        Sets of data on which the function before does something that has no defined result: it
        divides by zero, say. Nothing was compared there.
    """

    elements: int = 0
    identical: int = 0
    bounded: int = 0
    open: int = 0
    undefined: int = 0

    def __str__(self) -> str:
        """Return the counts that are not 0, or nothing."""
        counts = {
            "identical": self.identical,
            "within bounds": self.bounded,
            "open": self.open,
        }
        parts = [f"{count:,} {what}" for what, count in counts.items() if count]
        if self.undefined:
            parts.append(f"undefined on {self.undefined} sets of data")
        return ", ".join(parts)

    def __add__(self, other: Comparison) -> Comparison:
        """Add counts."""
        return Comparison(
            self.elements + other.elements,
            self.identical + other.identical,
            self.bounded + other.bounded,
            self.open + other.open,
            self.undefined + other.undefined,
        )


def same_bits(buffer: str, before: np.ndarray, after: np.ndarray, reason: str) -> Comparison:
    """Demand the same bits everywhere; one NaN is as good as another.

    - `buffer`: for the message.
    - `before`, `after`: arrays of one shape and type.
    - `reason`: for the message.
    - Raises NotEquivalent: at the first element that differs.
    """
    unsigned = f"uint{8 * before.dtype.itemsize}"
    differs = before.view(unsigned) != after.view(unsigned)
    differs &= ~((before != before) & (after != after))
    _raise_first(differs, buffer, before, after, reason)
    return Comparison(before.size, identical=before.size)


def same_numbers(buffer: str, before: np.ndarray, after: np.ndarray, reason: str) -> Comparison:
    """Demand the same numbers: as `same_bits`, but zeros have no sign."""
    differs = (before != after) & ~((before != before) & (after != after))
    _raise_first(differs, buffer, before, after, reason)
    return Comparison(before.size, identical=before.size)


def _raise_first(
    differs: np.ndarray, buffer: str, before: np.ndarray, after: np.ndarray, reason: str
) -> None:
    if differs.any():
        element = tuple(int(part) for part in np.argwhere(differs)[0])
        raise NotEquivalent(reason, buffer, element, before[element], after[element])


def within_bounds(
    buffer: str,
    result: np.ndarray,
    before: Sequence[Interval],
    after: Sequence[Interval],
    reason: str,
    by_before: np.ndarray | None = None,
) -> Comparison:
    """Demand that results are what the function before may compute, up to rounding.

    Both intervals of an element hold the exact value if the functions are equal, and the one after
    holds the result. So the intervals must meet, and the result must not be farther from the one
    before than the one after is wide. Where both are single numbers this demands that number.

    - `buffer`: for the message.
    - `result`: results of an oracle for the function after.
    - `before`, `after`: bounds for each element, in row-major order.
    - `reason`: for the message.
    - `by_before`: results of the same oracle for the function before. An element that is the same
      there is no difference, whatever the bounds say: TVM takes ``x == x`` for true, a NaN too.
    - Raises NotEquivalent: at the first element for which that does not hold.
    """
    counts = Comparison()
    anything = _whole_range(result.dtype)
    wide = result.astype(np.float64) if result.dtype.kind not in "biu" else result
    for place, value in enumerate(wide.ravel().tolist()):
        verdict = _judge(value, before[place], after[place])
        if anything in (before[place], after[place]):
            verdict = Comparison(1, open=1)
        if verdict is None and by_before is not None and _is_same(by_before.flat[place], value):
            verdict = Comparison(1, identical=1)
        if verdict is None:
            element = tuple(int(part) for part in np.unravel_index(place, result.shape))
            expected = _show(before[place])
            raise NotEquivalent(
                reason, buffer, element, expected, f"{value} ({_show(after[place])})"
            )
        counts += verdict
    return counts


def _whole_range(dtype: np.dtype) -> Interval | None:
    """Return the interval that says nothing of an integer or a bool; None for floats."""
    if dtype.kind == "b":
        return (False, True)
    if dtype.kind not in "iu":
        return None
    info = np.iinfo(dtype)
    return (int(info.min), int(info.max))


def _is_same(a: Any, b: Any) -> bool:
    return bool(a == b or (a != a and b != b))


def _judge(value: Any, before: Interval, after: Interval) -> Comparison | None:
    if is_unknown(before) or is_unknown(after):
        return Comparison(1, open=1)
    if is_nan(before):
        return Comparison(1, identical=1) if value != value else None
    if is_nan(after) or value != value or before[1] < after[0] or after[1] < before[0]:
        return None
    if before[0] == before[1] and after[0] == after[1]:
        return Comparison(1, identical=1) if value == before[0] else None
    if before[0] <= value <= before[1]:
        return Comparison(1, bounded=1)
    width = after[1] - after[0]
    if math.isinf(width):
        return Comparison(1, open=1)
    distance = before[0] - value if value < before[0] else value - before[1]
    return Comparison(1, bounded=1) if distance <= width else None


def _show(interval: Interval) -> str:
    if is_nan(interval):
        return "NaN"
    return f"{interval[0]}" if interval[0] == interval[1] else f"{interval[0]} to {interval[1]}"
