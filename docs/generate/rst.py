"""The few forms of reStructuredText that generated pages are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_LINES = "=-~"


def title(text: str, level: int = 0) -> str:
    """Return a heading.

    Example
    -------
    >>> print(title("Costs", 1))
    Costs
    -----
    <BLANKLINE>
    """
    return f"{text}\n{_LINES[level] * len(text)}\n"


def text(value: object) -> str:
    r"""Return text whose marks mean nothing wherever it is put, those that begin a list included.

    Example
    -------
    >>> print(text("a *b* of `c_`"))
    a \*b\* of \`c\_\`
    >>> print(text("+ bias"), text("1. first"))
    \+ bias 1\. first
    """
    unnumbered = re.sub(r"^(\w+)([.)])(?!\S)", r"\1\\\2", _inline(str(value)), flags=re.M)
    return re.sub(r"^([^\w\s\\])", r"\\\1", unnumbered, flags=re.M)


def _inline(value: str) -> str:
    """Return text that follows other text on its line, without the meaning of its marks."""
    # Two colons at the end of a line announce a block.
    return re.sub(r"([\\*`|_]|(?<=:):(?=\s*$))", r"\\\1", value, flags=re.M)


def prose(value: str) -> str:
    r"""Return text of the project: text in single backticks is code, other marks are literal.

    Example
    -------
    >>> print(prose("write `acc[i]`, not a_b"))
    write ``acc[i]``, not a\_b
    """
    first, *parts = value.split("`")
    return text(first) + "".join(
        _inline(part) if i % 2 else code(part) for i, part in enumerate(parts)
    )


def code(value: object) -> str:
    """Return text as code; nothing of nothing."""
    return f"``{value}``" if str(value) else ""


def block(language: str, body: str) -> str:
    """Return a block of code."""
    lines = "\n".join(f"    {line}".rstrip() for line in body.rstrip().splitlines())
    return f".. code-block:: {language}\n\n{lines}\n"


def table(
    head: Sequence[str], rows: Iterable[Sequence[object]], widths: Sequence[int] | None = None
) -> str:
    """Return a table; cells are reStructuredText.

    - `rows` (Iterable[Sequence[object]]): as many cells each as `head` has.
    - `widths`: shares of the columns; what their text needs if None.
    - Raises ValueError: a row is longer or shorter.
    """
    lines = [".. list-table::", "    :header-rows: 1"]
    lines.append(f"    :widths: {'auto' if widths is None else ' '.join(map(str, widths))}")
    lines.append("")
    for row in (head, *rows):
        if len(row) != len(head):
            raise ValueError(f"{len(row)} cells in a table of {len(head)} columns: {row}")
        for place, cell in enumerate(row):
            mark = "*" if place == 0 else " "
            first, *rest = str(cell).splitlines() or [""]
            lines.append(f"    {mark} - {first}".rstrip())
            lines += [f"        {line}".rstrip() for line in rest]
    return "\n".join(lines) + "\n"


def picture(path: str, alt: str) -> str:
    """Return an image, by its path from the page, that scrolls by itself where it is too wide."""
    return wide(f".. image:: {path}\n    :alt: {alt}\n")


def wide(markup: str) -> str:
    """Return markup of an image in a box that ``_static/site.css`` lets scroll."""
    lines = "\n".join(f"    {line}".rstrip() for line in markup.strip("\n").splitlines())
    return f".. container:: picture\n\n{lines}\n\n"


def toctree(entries: Iterable[str], depth: int = 1) -> str:
    """Return a table of contents of other pages."""
    listed = "".join(f"    {entry}\n" for entry in entries)
    return f".. toctree::\n    :maxdepth: {depth}\n\n{listed}"


def page(*parts: str) -> str:
    """Return a page of its parts."""
    return "\n".join(part if part.endswith("\n") else f"{part}\n" for part in parts)
