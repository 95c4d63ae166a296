"""Printing for the demo: colours where they are wanted, unified diffs, and a table."""

from __future__ import annotations

import difflib
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence

STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
WIDTH = 80  # of running text
LABEL = 9  # the column where the text after a label begins
DIFF_STYLES = {"-": "red", "+": "green", "@": "cyan", " ": "dim"}


class Paint:
    """Wrap text in terminal colours, or leave it alone.

    Parameters
    ----------
    mode
        ``"always"``, ``"never"``, or ``"auto"``: colours on a terminal, unless the environment
        variable ``NO_COLOR`` is set and not empty, or the terminal is a dumb one.
    """

    def __init__(self, mode: str) -> None:
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self.on = mode == "always" or (mode == "auto" and sys.stdout.isatty() and not plain)

    def __call__(self, text: str, style: str) -> str:
        """Return ``text`` in ``style``, a key of ``STYLES``."""
        return f"\033[{STYLES[style]}m{text}\033[0m" if self.on else text

    def labelled(self, label: str, style: str, text: str) -> str:
        """Return ``text`` wrapped, beside a coloured ``label``."""
        lines = textwrap.wrap(text, WIDTH - LABEL, break_long_words=False, break_on_hyphens=False)
        return self(label, style) + " " * (LABEL - len(label)) + ("\n" + " " * LABEL).join(lines)


def diff(before: str, after: str, paint: Paint) -> Iterator[str]:
    """Yield the lines of a unified diff, without the header that names two files."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    for number, line in enumerate(lines):
        if number >= 2:
            yield paint(line, DIFF_STYLES[line[0]])


def table(rows: Sequence[Sequence[str]], left: int, paint: Paint) -> Iterator[str]:
    """Yield the lines of a table: ``rows[0]`` is the heading, ``left`` columns align left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        line = "  ".join(cells).rstrip()
        yield paint(line, "bold") if number == 0 else line
        if number == 0:
            yield paint("-" * (sum(widths) + 2 * (len(widths) - 1)), "dim")
