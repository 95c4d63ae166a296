"""Bar charts of ratios in HTML, whose text keeps its size on a narrow screen."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from .pictures import raw_html


def ratios(label: str, spreads: Mapping[str, Mapping[str, Any] | None]) -> str:
    """Return a chart with a bar for the median of each ratio and a line at 1.

    - `label`: what is divided by what: the caption.
    - `spreads` (Mapping[str, Mapping[str, Any] | None]): a median with its quartiles, by the name
      of the bar; rows without one are left out.
    - Returns: in reStructuredText; empty without any ratio.
    """
    medians = {name: spread["median"] for name, spread in spreads.items() if spread is not None}
    if not medians:
        return ""
    longest = max(1.0, *medians.values())
    bars = "\n".join(
        f'<span>{escape(name)}</span><span class="track"><span class="bar" '
        f'style="width: {100 * median / longest:.1f}%"></span><span class="one" '
        f'style="left: {100 / longest:.1f}%"></span></span><span>{median:.2f}</span>'
        for name, median in medians.items()
    )
    return raw_html(
        f'<figure class="ratios"><figcaption>{escape(label)}; the line is at 1</figcaption>\n'
        f"{bars}\n</figure>"
    )
