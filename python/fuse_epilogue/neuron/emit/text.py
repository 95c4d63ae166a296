"""Lines of Python, indented and wrapped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

WIDTH = 100


class Text:
    """Collects lines.

    - `lines` (list[str]): the lines written so far.
    - `depth` (int): levels of indentation.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0
        self._defined: list[dict[str, str]] = [{}]

    def add(self, line: str) -> None:
        """Write a line."""
        self.lines.append("    " * self.depth + line)

    @contextmanager
    def inside(self, head: str) -> Iterator[None]:
        """Write the head of a compound statement, and indent what follows."""
        self.add(head)
        self.depth += 1
        self._defined.append({})
        yield
        self._defined.pop()
        self.depth -= 1

    def define(self, value: str, name: Callable[[], str]) -> str:
        """Give a value a name, or return the one it has here already."""
        for scope in self._defined:
            if value in scope:
                return scope[value]
        made = self._defined[-1][value] = name()
        self.add(f"{made} = {value}")
        return made

    @contextmanager
    def when(self, conditions: Iterable[str]) -> Iterator[None]:
        """Indent what follows under all conditions; without any, write it as it is."""
        text = " and ".join(conditions)
        if not text:
            yield
            return
        with self.inside(f"if {text}:"):
            yield

    def call(self, function: str, arguments: list[str]) -> None:
        """Write a call, in several lines where it is too long."""
        self._wrapped(f"{function}({', '.join(arguments)})", "")

    def _wrapped(self, expression: str, end: str) -> None:
        """Write an expression; where it is too long, what its brackets hold goes inside."""
        opening = re.search(r"[(\[]", expression)
        if 4 * self.depth + len(expression + end) <= WIDTH or opening is None:
            self.add(expression + end)
            return
        at = opening.start()
        close = _closing(expression, at)
        inside, tail = expression[at + 1 : close], expression[close:]
        self.add(expression[: at + 1])
        self.depth += 1
        if 4 * self.depth + len(inside) <= WIDTH:
            self.add(inside)
        else:
            for each in _items(inside):
                self._wrapped(each, ",")
        self.depth -= 1
        self.add(tail + end)


def _closing(expression: str, at: int) -> int:
    """Return where the bracket at a place is closed."""
    depth = 0
    for i in range(at, len(expression)):
        depth += (expression[i] in "([") - (expression[i] in ")]")
        if depth == 0:
            return i
    raise AssertionError(expression)


def _items(text: str) -> list[str]:
    """Split at the commas that are not inside of brackets."""
    items, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            items.append(text[start:i].strip())
            start = i + 1
    return [*items, *([text[start:].strip()] if text[start:].strip() else [])]
