"""Base of results that a shell shows in one line, and a notebook with their whole text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def as_line(expr: Any) -> str:  # noqa: ANN401 - TVM's
    """Return an expression as one line of text.

    - `expr`: tvm.ir.Expr.
    """
    return str(expr).strip().rpartition("\n")[2]


def element(buffer: Any, indices: Iterable[Any]) -> str:  # noqa: ANN401 - TVM's
    """Return an element of a buffer as text, such as ``C[i, j]``."""
    return f"{buffer.name}[{', '.join(map(as_line, indices))}]"


def last_line(error: BaseException) -> str:
    """Return the last line of an error's message, in which TVM says what is wrong.

    >>> last_line(ValueError())
    'no message'
    """
    last = (str(error).strip().splitlines() or ["no message"])[-1]
    return last.removeprefix("Error message: ")


def quoted(names: Iterable[str]) -> str:
    """Return names in quotes, with commas between them.

    >>> quoted(["bias", "relu"])
    "'bias', 'relu'"
    """
    return ", ".join(f"'{name}'" for name in names)


class Printed:
    """Base of results with a text of several lines, instead of a dump of their fields.

    A class with this base is a dataclass with ``repr=False`` and has ``__str__``. Where it also has
    ``_repr_html_``, notebooks prefer that.
    """

    def __repr__(self) -> str:
        """Return the class and the first line of the text."""
        return f"<{type(self).__name__}: {str(self).partition(chr(10))[0]}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ANN401 - IPython's printer
        """Print the whole text, for IPython and notebooks."""
        del cycle  # a text does not contain objects
        printer.text(str(self))
