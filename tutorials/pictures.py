"""Pictures of the tutorials: SVG and HTML, for notebooks and for the documentation's build.

Run from a terminal, a tutorial writes its pictures into the folder that the environment variable
``TUTORIAL_PICTURES`` names, and none without it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher
from html import escape
from itertools import zip_longest
from math import ceil, floor, log10
from pathlib import Path

from fuse_epilogue.planner.explanation.svg import FONT, LINE, Svg, length

MARGIN = 16
COLOURS = ("#1f6f8b", "#c9a227", "#8b3a62", "#4f8a4c", "#5b5ea6")
GREY = "#444444"


class Picture:
    """A drawing in SVG, or text in HTML, as a notebook shows it."""

    def __init__(self, markup: str) -> None:
        self.markup = markup

    def _repr_html_(self) -> str:
        return self.markup


def show(name: str, markup: str) -> Picture:
    """Show SVG or HTML; `name` is that of its file, without the ending."""
    if folder := os.environ.get("TUTORIAL_PICTURES"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        suffix = ".svg" if markup.startswith("<svg") else ".html"
        (Path(folder) / f"{name}{suffix}").write_text(markup, encoding="utf-8")
    return Picture(markup)


def written(draw: Callable[[Path], object]) -> str:
    """Return the SVG that `draw` writes to a path: ``plan.picture``, ``prediction.plot``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture.svg"
        draw(path)
        return path.read_text(encoding="utf-8")


# ---- Two texts -----------------------------------------------------------------------------------

# Shades that can be read on a light page and on a dark one.
_GONE, _NEW = "rgba(220, 80, 60, 0.2)", "rgba(80, 170, 80, 0.2)"
_PAIR = "display: flex; flex-wrap: wrap; gap: 1em"
_PROGRAM = "flex: 1 1 24em; min-width: 0; margin: 0"
_TEXT = "overflow-x: auto; margin: 0; padding: 0.5em; font-size: 0.75em; line-height: 1.4"


def side_by_side(before: str, after: str, titles: tuple[str, str] = ("before", "after")) -> str:
    """Return two programs as columns of text, in HTML; lines that only one has are marked.

    Where there is no room for two columns, the second is below the first.
    """
    texts = [_lines(text) for text in (before, after)]
    columns: tuple[list[str], list[str]] = ([], [])
    stripped = [[line.strip() for line in text] for text in texts]
    for kind, *ranges in SequenceMatcher(None, *stripped, autojunk=False).get_opcodes():
        parts = [
            text[start:end]
            for text, start, end in zip(texts, ranges[::2], ranges[1::2], strict=True)
        ]
        for pair in zip_longest(*parts):
            for column, line, colour in zip(columns, pair, (_GONE, _NEW), strict=True):
                shade = f" background: {colour};" if kind != "equal" and line is not None else ""
                column.append(
                    f'<span style="display: block;{shade}">{escape(line or "")}&#8203;</span>'
                )
    programs = (
        f'<div style="{_PROGRAM}"><b>{escape(title)}</b>'
        f'<pre style="{_TEXT}">{"".join(column)}</pre></div>'
        for title, column in zip(titles, columns, strict=True)
    )
    return f'<div class="pair" style="{_PAIR}">{"".join(programs)}</div>\n'


def _lines(text: str) -> list[str]:
    """Return the lines of a program, without what TVM writes above it, indented by half."""
    lines = text[max(text.find("@"), 0) :].splitlines()
    return [" " * ((len(line) - len(line.lstrip())) // 2) + line.lstrip() for line in lines]


# ---- Bars and lines ------------------------------------------------------------------------------


def bars(
    title: str,
    groups: Mapping[str, Mapping[str, float]],
    unit: str,
    *,
    limit: tuple[str, float] | None = None,
    width: float = 760,
) -> str:
    """Draw a bar for each value of each group, and perhaps a line at a limit."""
    svg = Svg(width)
    series = list(dict.fromkeys(name for values in groups.values() for name in values))
    left = MARGIN + 8 + max(map(length, groups))
    longest = max(value for values in groups.values() for value in values.values())
    longest = max(longest, limit[1]) if limit else longest
    scale = (width - left - MARGIN - length(f"{longest:.4g} {unit}")) / longest
    svg.text(MARGIN, MARGIN + FONT, title, size=FONT + 2)
    top = MARGIN + 2.0 * LINE + 4
    first = top
    for group, values in groups.items():
        svg.text(left - 8, top + FONT, group, anchor="end")
        for name, value in values.items():
            colour = COLOURS[series.index(name) % len(COLOURS)]
            svg.box(left, top, scale * value, LINE - 3, colour, f"{group}: {name}".rstrip(": "))
            svg.text(left + scale * value + 6, top + FONT, f"{value:.4g} {unit}")
            top += LINE
        top += 6
    if limit:
        x = left + scale * limit[1]
        svg.line([(x, first - 6), (x, top)], colour=GREY, rest='stroke-dasharray="4 3"')
        svg.text(x, top + FONT, f"{limit[0]}: {limit[1]:.4g} {unit}", anchor="middle")
        top += LINE
    return _with_legend(svg, [name for name in series if name], top)


def curves(
    title: str,
    across: str,
    up: str,
    lines: Mapping[str, Sequence[tuple[float, float]]],
    *,
    width: float = 620,
    height: float = 300,
) -> str:
    """Draw lines through points, on logarithmic axes."""
    svg = Svg(width)
    svg.text(MARGIN, MARGIN + FONT, title, size=FONT + 2)
    left, top, right = MARGIN + 52, MARGIN + 3 * LINE, width - MARGIN
    bottom = top + height
    svg.text(MARGIN, top - 8, up)
    points = [point for line in lines.values() for point in line]
    x_of = _logarithmic(svg, [x for x, _ in points], (left, right), (bottom, top))
    y_of = _logarithmic(svg, [y for _, y in points], (bottom, top), (left, right))
    svg.text(right, bottom + 2 * LINE, across, anchor="end")
    for colour, (name, line) in zip(COLOURS, lines.items(), strict=False):
        places = [(x_of(x), y_of(y)) for x, y in line]
        svg.line(places, colour=colour, rest='stroke-width="2"')
        for place, (x, y) in zip(places, line, strict=True):
            svg.ring(*place, 3, colour, True, f"{name}: {y:.3g} at {x:.3g}")
    return _with_legend(svg, list(lines), bottom + 2 * LINE)


def spans(
    title: str,
    rows: Mapping[str, Mapping[str, tuple[int, int]]],
    *,
    width: float = 760,
) -> str:
    """Draw which elements of an array are meant: rows of names, each with its first and count."""
    svg = Svg(width)
    svg.text(MARGIN, MARGIN + FONT, title, size=FONT + 2)
    parts = [part for row in rows.values() for part in row.values()]
    first, last = min(at for at, _ in parts), max(at + count for at, count in parts)
    left = MARGIN + 8 + max(map(length, rows))
    scale = (width - left - MARGIN) / (last - first)
    top = MARGIN + 2.0 * LINE + 4
    for number in range(first, last):
        x = left + scale * (number - first + 0.5)
        svg.text(x, top + FONT, str(number), anchor="middle")
    for row, named in rows.items():
        top += LINE + 10
        svg.text(left - 8, top + FONT + 2, row, anchor="end")
        for colour, (name, (at, count)) in zip(COLOURS, named.items(), strict=False):
            x = left + scale * (at - first)
            svg.box(x + 1, top, scale * count - 2, LINE + 4, f"{colour}40", f"{row}: {name}")
            svg.text(x + scale * count / 2, top + FONT + 2, name, anchor="middle")
    return svg.document(top + 2 * LINE + MARGIN)


def _logarithmic(
    svg: Svg, values: list[float], along: tuple[float, float], other: tuple[float, float]
) -> Callable[[float], float]:
    """Draw the powers of ten of an axis; return the place of a value on it."""
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    per_decade = (along[1] - along[0]) / max(high - low, 1)
    across = along[0] < along[1]
    for power in range(low, high + 1, 1 + (high - low) // 12):
        at = along[0] + per_decade * (power - low)
        ends = [(at, other[0]), (at, other[1])]
        svg.line(ends if across else [(y, x) for x, y in ends], colour="#e4e4e4")
        if across:
            svg.text(at, other[0] + LINE, f"1e{power}", anchor="middle")
        else:
            svg.text(other[0] - 6, at + 4, f"1e{power}", anchor="end")
    return lambda value: along[0] + per_decade * (log10(value) - low)


def _with_legend(svg: Svg, names: list[str], top: float) -> str:
    """Name the colours, and close the picture."""
    x, top = float(MARGIN), top + LINE
    for colour, name in zip(COLOURS, names, strict=False):
        svg.box(x, top - 9, 10, 10, colour)
        svg.text(x + 14, top, name)
        x += 30 + length(name)
    return svg.document(top + MARGIN)
