"""The page of the changelog, from CHANGELOG.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from .rst import page, title

CHANGELOG = Path(__file__).resolve().parents[2] / "CHANGELOG.md"


def pages() -> Mapping[str, str]:
    """Return the page with every release."""
    return {"changelog": page(*_parts(CHANGELOG.read_text(encoding="utf-8")))}


def _parts(markdown: str) -> Iterator[str]:
    """Yield headings, paragraphs and lists: all that the changelog has of Markdown."""
    for paragraph in re.split(r"\n{2,}", markdown.strip()):
        heading = re.fullmatch(r"(#+) (.+)", paragraph)
        if heading:
            yield title(heading[2], len(heading[1]) - 1)
        else:
            # Backticks are doubled; bold text and lists are written in the same way.
            yield re.sub(r"`([^`]+)`", r"``\1``", paragraph) + "\n"
