"""Tables for notebooks, which show what ``_repr_html_`` returns."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """Return a table in HTML.

    - `heads`: titles of the columns.
    - `rows`: texts of the cells; they are escaped.
    - `caption`: text above the table; none if empty.

    >>> table(("a", "b"), [("1", "x < y")])
    '<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td>x &lt; y</td>...'
    """
    above = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in rows
    )
    return f"<table>{above}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
