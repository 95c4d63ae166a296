"""Writes measured figures, without a line break between a figure and its unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Where there is no figure; a hyphen would begin a list.
NONE = "\u2013"

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
#: A space at which no line breaks.
_TIED = "\u00a0"
_QUARTILES = {"lower_quartile", "median", "upper_quartile"}


def seconds(value: float | None) -> str:
    r"""Return a time with its unit, in three digits; :data:`NONE` without one.

    Example
    -------
    >>> seconds(0.00132819)
    '1.33\xa0ms'
    """
    if value is None:
        return NONE
    size, unit = next((each for each in _UNITS if abs(value) >= each[0]), _UNITS[-1])
    return f"{_three(value / size)}{_TIED}{unit}"


def ratio(spread: Mapping[str, float] | None) -> str:
    r"""Return a median with its quartiles, :data:`NONE` without any.

    Example
    -------
    >>> ratio({"lower_quartile": 0.98, "median": 1.0, "upper_quartile": 1.05})
    '1.00 (0.98\xa0to\xa01.05)'
    """
    if spread is None:
        return NONE
    low, high = spread["lower_quartile"], spread["upper_quartile"]
    return f"{spread['median']:.2f} ({low:.2f}{_TIED}to{_TIED}{high:.2f})"


def is_spread(value: Any) -> bool:
    """Tell whether a value is a median with its quartiles."""
    return isinstance(value, Mapping) and set(value) == _QUARTILES


def number(name: str, value: Any) -> str:
    r"""Return a figure by the name that its file gives it: what ends in "_s" is a time in seconds.

    Example
    -------
    >>> number("median_s", 0.5), number("bytes_saved", 2097152), number("error", 1e-7)
    ('500\xa0ms', '2,097,152', '1e-07')
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if name.endswith("_s"):
        return seconds(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _three(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
