"""Bar charts in HTML, whose text keeps its size on a narrow screen."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from .numbers import seconds
from .pictures import raw_html


def ratios(label: str, spreads: Mapping[str, Mapping[str, Any] | float | None]) -> str:
    """Return a chart with a bar for each ratio and a line at 1.

    - `label`: what is divided by what: the caption.
    - `spreads` (Mapping[str, Mapping[str, Any] | float | None]): a ratio, or a median with its
      quartiles, by the name of the bar; rows without one are left out.
    - Returns: in reStructuredText; empty without any ratio.
    """
    found = {
        name: float(each["median"] if isinstance(each, Mapping) else each)
        for name, each in spreads.items()
        if each is not None
    }
    longest = max(1.0, *found.values()) if found else 1.0
    line = f'<span class="one" style="left: {100 / longest:.1f}%"></span>'
    bars = {name: (value / longest, f"{value:.2f}") for name, value in found.items()}
    return _chart(f"{label}; the line is at 1", bars, line)


def times(label: str, found: Mapping[str, float]) -> str:
    """Return a chart with a bar for each time, in seconds."""
    longest = max(found.values(), default=1.0)
    return _chart(label, {name: (each / longest, seconds(each)) for name, each in found.items()})


def _chart(label: str, found: Mapping[str, tuple[float, str]], line: str = "") -> str:
    if not found:
        return ""
    bars = "\n".join(
        f'<span>{escape(name)}</span><span class="track"><span class="bar" '
        f'style="width: {100 * part:.1f}%"></span>{line}</span><span>{shown}</span>'
        for name, (part, shown) in found.items()
    )
    return raw_html(
        f'<figure class="ratios"><figcaption>{escape(label)}</figcaption>\n{bars}\n</figure>'
    )
