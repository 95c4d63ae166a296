"""Base of results that a shell shows in one line, and a notebook with their whole text."""

from __future__ import annotations

from typing import Any


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
