"""Lines of Python, indented and wrapped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

WIDTH = 100


class Text:
    """Collects lines.

    Attributes
    ----------
    lines : list[str]
        What has been written.
    depth : int
        Levels of indentation.
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
        """Write a call, one argument a line where it is too long."""
        line = f"{function}({', '.join(arguments)})"
        if 4 * self.depth + len(line) <= WIDTH:
            self.add(line)
            return
        self.add(f"{function}(")
        self.depth += 1
        together = ", ".join(arguments)
        for each in [together] if 4 * self.depth + len(together) <= WIDTH else arguments:
            self.add(each if each is together else f"{each},")
        self.depth -= 1
        self.add(")")
