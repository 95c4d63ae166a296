"""Runs the Python blocks of README.md, and compares what they print with what is shown.

The blocks of a section are run in order, in one namespace. A block without a language that follows
a Python block shows what that prints; so does a Python block that begins with a loop of TVMScript.
Line breaks do not matter there, and ``...`` stands for what is left out.

    python -m pages.programs FOLDER    runs them all, with their files in FOLDER; prints JSON
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fuse_epilogue  # noqa: F401 - where TVM does not load it by itself

from .reading import Block, Page, Section, pages

#: The first line of TIR, which only looks like a program.
TIR = re.compile(r"for .* in T\.grid\(.*\):")


def sections(page: Page) -> list[Section]:
    """Return the sections that hold programs."""
    return [section for section in page.sections if _programs(section)]


def _programs(section: Section) -> list[Block]:
    return [b for b in section.blocks if b.language == "python" and not TIR.fullmatch(b.head)]


def failures(section: Section, folder: Path) -> Iterator[str]:
    """Run a section's programs, kept in ``folder``; yield what is shown and was not printed."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed, before = "", ""
    for block in section.blocks:
        if TIR.fullmatch(block.head) or (before == "python" and not block.language):
            if piece := not_printed(block.text, printed):
                yield f"line {block.line} shows {piece!r}; printed was\n{printed}"
        elif block.language == "python":
            printed = _execute(block, names, folder)
        before = block.language


def _execute(block: Block, names: dict[str, Any], folder: Path) -> str:
    # A file, because TVMScript is parsed from the source.
    path = folder / f"line_{block.line}.py"
    path.write_text(block.text, encoding="utf-8")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block.text, str(path), "exec"), names)
    return printed.getvalue()


def not_printed(shown: str, printed: str) -> str | None:
    """Return the first piece of what is shown that was not printed, in order; None if all was."""
    rest = _folded(printed)
    for piece in filter(None, map(_folded, shown.split("..."))):
        _, found, rest = rest.partition(piece)
        if not found:
            return piece
    return None


def _folded(text: str) -> str:
    return " ".join(text.split())


def main(folder: Path) -> None:
    """Run all sections; print what is wrong with each, as JSON."""
    wrong = {}
    for section in sections(pages()[0]):
        try:
            wrong[section.title] = list(failures(section, folder))
        except Exception:
            wrong[section.title] = [traceback.format_exc()]
    print(json.dumps(wrong))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
