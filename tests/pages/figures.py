"""Where the figures on the pages come from: every row ties a piece of text to a file of results.

A figure is a number with a decimal point, with a thousands separator or with a unit, or one of
"N of M". Every figure in the prose of a page must lie in the text of a row, or match a pattern of
figures that nobody measured; `sources` holds both.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .reading import ROOT, Page

RESULTS = ROOT / "benchmarks" / "results"

UNITS = "%|ms|us|µs|ns|s|seconds|minutes|hours|times|KiB|MiB|GiB|[KMGT]B(?:/s)?|[MGT]FLOPS?"
FIGURE = re.compile(
    rf"(?<![\w.,-])(?:\d{{1,3}}(?:,\d{{3}})+|\d+\.\d+|\d+(?=\s?(?:{UNITS})(?!\w))"
    r"|\d+(?=x(?!\w))|\d+(?= of (?:the |a )?\d+))"
)
CODE = re.compile(r"(`+).+?\1")


@dataclass(frozen=True)
class Row:
    """A piece of text with figures, and how they follow from a file of results.

    - `text`: as it is written on some page, in one line, with ``{}`` for each value
      (``str.format``).
    - `results`: the file in benchmarks/results.
    - `values` (Callable): returns the values from the content of the file.
    """

    text: str
    results: str
    values: Callable[[Any], tuple[Any, ...]]

    def expected(self) -> str:
        """Return the text with the values of the results in it."""
        return self.text.format(*self.values(read(self.results)))


@functools.cache
def read(name: str) -> Any:  # noqa: ANN401 - JSON
    """Return the content of a file of results."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def wrong(pages: list[Page], rows: tuple[Row, ...]) -> Iterator[str]:
    """Yield the rows whose text, with the values of today's results, is on no page."""
    for row in rows:
        if not any(row.expected() in page.prose for page in pages):
            yield f"{row.results} gives {row.expected()!r}, which no page says"


def without_source(
    page: Page, rows: tuple[Row, ...], not_measured: dict[str, str]
) -> Iterator[str]:
    """Yield every figure of a page that no row covers, with the words around it."""
    prose = page.prose
    for row in rows:
        prose = prose.replace(row.expected(), "#")
    prose = CODE.sub("#", prose)
    for pattern in not_measured:
        prose = re.sub(pattern, "#", prose)
    for found in FIGURE.finditer(prose):
        around = prose[max(0, found.start() - 50) : found.end() + 30]
        yield f"{page.name}: {found[0]!r} in ...{around}... comes from no file of results"
