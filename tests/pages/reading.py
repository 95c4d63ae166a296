"""Reads pages in Markdown and reStructuredText: sections, blocks of code, prose."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: Where `make docs` makes pages from the code: they cannot be out of step with it.
GENERATED = {"generated", "tutorials"}


@dataclass(frozen=True)
class Block:
    """A literal block: its language ("" if none is named), its text, the line where it begins."""

    language: str
    text: str
    line: int

    @property
    def head(self) -> str:
        """The first line, by which tables refer to the block."""
        return self.text.split("\n", 1)[0]


@dataclass
class Section:
    """What is below one heading: blocks in their order, and lines of prose."""

    title: str
    blocks: list[Block] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @cached_property
    def prose(self) -> str:
        """The text without blocks, in one line."""
        return " ".join(" ".join(self.lines).split())


@dataclass(frozen=True)
class Page:
    """A page by its path below the root, with its sections."""

    name: str
    sections: tuple[Section, ...]

    @property
    def blocks(self) -> list[Block]:
        """All blocks."""
        return [block for section in self.sections for block in section.blocks]

    @property
    def prose(self) -> str:
        """All text without blocks, in one line."""
        return " ".join(section.prose for section in self.sections)


def pages() -> list[Page]:
    """Return README.md, CONTRIBUTING.md and the pages of docs/ that are written by hand."""
    docs = ROOT / "docs"
    written = (p for p in docs.rglob("*.rst") if p.relative_to(docs).parts[0] not in GENERATED)
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(written)]
    return [page(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in paths]


def page(name: str, text: str) -> Page:
    """Return the page that a text is; its name says in which format."""
    split = _markdown if name.endswith(".md") else _rest
    sections = [Section("")]
    for piece in split(text.split("\n")):
        if isinstance(piece, Block):
            sections[-1].blocks.append(piece)
        elif isinstance(piece, Section):
            sections.append(piece)
        else:
            sections[-1].lines.append(piece)
    return Page(name, tuple(sections))


def _markdown(lines: list[str]) -> Iterator[str | Block | Section]:
    at = 0
    while at < len(lines):
        line, start = lines[at], at
        at += 1
        if fence := re.fullmatch(r"```(\w*)", line):
            while lines[at] != "```":
                at += 1
            yield Block(fence[1], "\n".join(lines[start + 1 : at]), start + 2)
            at += 1
        elif line.startswith("    ") and not lines[start - 1].strip():
            at = _end_of_indented(lines, start, 4)
            yield _indented("", lines, start, at)
        elif heading := re.fullmatch(r"#+ (.*)", line):
            yield Section(heading[1])
        else:
            yield line


def _rest(lines: list[str]) -> Iterator[str | Block | Section]:
    at = 0
    while at < len(lines):
        line, start = lines[at], at
        at += 1
        below = lines[at] if at < len(lines) else ""
        code = re.match(r"( *)\.\. (?:code-block|code|sourcecode):: *(\w*)", line)
        if code or (line.rstrip().endswith("::") and not line.lstrip().startswith("..")):
            if not code:
                yield line
            margin = len(line) - len(line.lstrip())
            begin = start + 1
            while begin < len(lines) and (not lines[begin].strip() or _is_option(lines[begin])):
                begin += 1
            at = _end_of_indented(lines, begin, margin + 1)
            yield _indented(code[2] if code else "", lines, begin, at)
        elif line.strip() and re.fullmatch(r"([=\-~^\"*])\1+", below) and len(below) >= len(line):
            yield Section(line.strip())
            at += 1
        elif not line.startswith(".. "):  # comments, labels and directives are no prose
            yield line


def _is_option(line: str) -> bool:
    return re.match(r" +:[\w-]+:( |$)", line) is not None


def _end_of_indented(lines: list[str], start: int, margin: int) -> int:
    at = start
    while at < len(lines) and (not lines[at].strip() or lines[at].startswith(" " * margin)):
        at += 1
    return at


def _indented(language: str, lines: list[str], start: int, end: int) -> Block:
    return Block(language, textwrap.dedent("\n".join(lines[start:end])).strip("\n"), start + 1)
