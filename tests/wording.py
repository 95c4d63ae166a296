"""Reports habits of wording that read badly in English: in docstrings, messages and pages.

    python -m wording [PATH ...]      files or folders, from the root of the repository

A rule is a pattern and what to write instead. Checked are the prose of pages (Markdown and
reStructuredText), docstrings, the strings of Python and C++ that are sentences, and the comments of
Python. Code in backquotes and in literal blocks is left out.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pages import reading

ROOT = Path(__file__).resolve().parents[1]

#: What `make lint` checks: files and folders without any of these habits.
CHECKED = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs",
    "examples",
    "tutorials",
    "python/fuse_epilogue",
    "cpp",
)
#: Made by other programs, or read by none.
LEFT_OUT = ("docs/generated", "docs/tutorials", "docs/_build")

#: Types that "is no ..." and "the width no ..." are said of.
_TYPES = (
    "str|string|int|integer|bool|float|number|function|path|tuple|list|dict|array|tensor|module|"
    "PrimFunc|IRModule|Profile|Certificate|Target|Plan|Schedule|word|text|name"
)

#: Patterns, and what to write instead.
RULES: dict[str, str] = {
    r"\b[Tt]old\b": "say: message, reported, shown",
    r"\b[Aa]new\b": "say: again",
    r"\b[Ww]hoever\b": "say who: the caller, a reader",
    r"\b(?:[Ss]ome|[Nn]o)body\b": "say who: the caller, no reader; or use the passive",
    r"\bbeliev(?:e|es|ed|ing)\b": "say: trust, accept",
    r"\b[Ss]o many\b": "say: n",
    r"\b(?<!tell )(?<!one )(?<!% )apart(?! from)\b": "say: separate, or name the distance",
    r"\bstands?\b(?! (?:for|still))": "say: is, comes after, replaces",
    r"\bturned (?:in|out|to)": "say: became, was found to be, translated",
    r"\b[Bb]ehind\b": "say: after",
    r"\b[Aa]head of\b": "say: before",
    r"(?<![Tt]here )\b(?:is|are|was|were) (?:also )?no "
    r"(?!longer|more|less|fewer|other|such|better|different|larger|need)": "say: is not a ...",
    r"(?<![Tt]here )\b(?:is|are) none\b(?! (?:in|of the))": "say: is not one of, is not a ...",
    r"\b(?:reads?|reduces?|writes?|stores?|holds?|knows?) no (?!longer|more|other)": "does not ...",
    rf"\b(?:the|`\w+`) \w+ no (?:{_TYPES})\b": "say: if ... is not a ...",
    r"(?:,|;| or) `\w+` (?:no|none)\b": "say: or `x` is not a ...",
    r"(?:^|[.:] )What(?=\b[^.?!:]*\.)": "name the subject",
    r"^(?:Of (?!course)|That (?!is|takes|needs))\b": "begin with a noun",
    r"^(?:It|They) (?:is|are|has|have|was|were|cannot|can|does|may|must)\b": "name the subject",
}
#: Files of which the strings are messages.
_CPP = (".cc", ".h", ".def")
_RULES = [(re.compile(pattern), instead) for pattern, instead in RULES.items()]
#: Rules for comments: fragments are allowed there, and distances in memory.
_ALLOWED_IN_COMMENTS = ("name the subject", "begin with a noun", "say: separate")
_IN_COMMENTS = [rule for rule in _RULES if not rule[1].startswith(_ALLOWED_IN_COMMENTS)]
#: The same for the first line of a docstring, which names or does something.
_HEADS = [(re.compile(r"^(?:What|How|Which|Where|Who|Why)\b"), "begin with a noun or a verb")]


@dataclass(frozen=True)
class Piece:
    """A text of a file: a paragraph, or a field of a docstring.

    - `line`: number of its first line.
    - `text`: the text in one line.
    - `head`: whether it is the summary of a docstring.
    - `comment`: whether it is a comment, which may begin without a subject.
    """

    line: int
    text: str
    head: bool = False
    comment: bool = False


@dataclass(frozen=True)
class Finding:
    """A habit that was found."""

    path: str
    line: int
    words: str
    instead: str

    def __str__(self) -> str:
        """Return it as a linter writes it."""
        return f"{self.path}:{self.line}: '{self.words}': {self.instead}"


def findings(path: Path) -> Iterator[Finding]:
    """Yield the habits in a file."""
    name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
    for piece in pieces(path):
        text = re.sub(r"``[^`]*``|`[^`]*`", "`x`", piece.text)
        rules = _IN_COMMENTS if piece.comment else _RULES
        for pattern, instead in [*rules, *(_HEADS if piece.head else ())]:
            for found in pattern.finditer(text):
                around = text[found.start() : found.end() + 30].strip()
                yield Finding(name, piece.line, around, instead)


def pieces(path: Path) -> Iterator[Piece]:
    """Yield the texts of a file that people read."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from _of_python(path, text)
    elif path.suffix in _CPP:
        yield from _of_cpp(text)
    else:
        yield from _paragraphs(_prose_lines(path, text))


def _prose_lines(path: Path, text: str) -> list[tuple[int, str]]:
    """Return the lines of a page with their numbers, those of code empty."""
    lines = text.split("\n")
    for block in reading.page(path.name, text).blocks:
        for place in range(block.line - 1, block.line - 1 + block.text.count("\n") + 1):
            lines[place] = ""
    return list(enumerate(lines, start=1))


def _paragraphs(lines: Iterable[tuple[int, str]]) -> Iterator[Piece]:
    """Yield paragraphs and items of lists and tables."""
    held: list[str] = []
    first = 0
    for number, line in lines:
        bare = line.strip()
        begins = re.match(r"(?:[-*|]|\d+\.|#+|\.\. |:\w+:) ?", bare)
        if (not bare or begins) and held:
            yield Piece(first, " ".join(held))
            held = []
        if bare and not re.fullmatch(r"[=~^\"-]+|\|[-|: ]+\|", bare):
            first = first if held else number
            held.append(re.sub(r"^(?:[-*|]|\d+\.|#+) *", "", bare))
    if held:
        yield Piece(first, " ".join(held))


def _of_python(path: Path, text: str) -> Iterator[Piece]:
    tree = ast.parse(text)
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                docstrings.add(first.value)
                yield from _of_docstring(first.value, title="tutorials" in path.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node not in docstrings:
            if isinstance(node.value, str) and _is_sentence(node.value):
                yield Piece(node.lineno, " ".join(node.value.split()))
    for piece in _of_comments(text):
        yield dataclasses.replace(piece, comment="tutorials" not in path.parts)


def _of_cpp(text: str) -> Iterator[Piece]:
    """Yield the messages in C++: strings, with those that follow each other as one."""
    string = r'"(?:[^"\\\n]|\\.)*"'
    for found in re.finditer(rf"{string}(?:\s*{string})*", re.sub(r"//.*", "", text)):
        message = "".join(re.findall(string, found[0])).replace('""', "").strip('"')
        if _is_sentence(message):
            yield Piece(text[: found.start()].count("\n") + 1, message)


def _is_sentence(text: str) -> bool:
    """Return whether a string is prose: some words of letters, and no script."""
    return len(re.findall(r"\b[a-z]{2,}\b", text)) >= 3 and "T.grid" not in text


def _of_docstring(node: ast.Constant, title: bool) -> Iterator[Piece]:
    lines = []
    shell = False
    for number, line in enumerate(str(node.value).split("\n"), start=node.lineno):
        bare = line.strip()
        shell = bare.startswith(">>>") or (shell and bool(bare))
        if shell or re.match(r"[\w*, ]+ : ", bare) or line.startswith("    " * 4 + " "):
            line = ""
        lines.append((number, line))
    for number, piece in enumerate(_by_indentation(lines)):
        yield dataclasses.replace(piece, head=number == 0 and not title)


def _by_indentation(lines: list[tuple[int, str]]) -> Iterator[Piece]:
    """Yield paragraphs; a line that is indented otherwise begins another one."""
    part: list[tuple[int, str]] = []
    depth = 0
    for number, line in lines:
        own = len(line) - len(line.lstrip())
        if part and line.strip() and own != depth:
            yield from _paragraphs(part)
            part = []
        if line.strip():
            depth = own
        part.append((number, line))
    yield from _paragraphs(part)


def _of_comments(text: str) -> Iterator[Piece]:
    lines: list[tuple[int, str]] = []
    reader = iter(text.splitlines(keepends=True))
    for token in tokenize.generate_tokens(lambda: next(reader, "")):
        if token.type == tokenize.COMMENT:
            number = token.start[0]
            if lines and number != lines[-1][0] + 1:
                lines.append((number - 1, ""))
            lines.append((number, token.string.lstrip("#: %")))
    yield from _paragraphs(lines)


def files(paths: Iterable[str]) -> Iterator[Path]:
    """Yield the files below some paths that are checked."""
    for name in paths:
        path = ROOT / name
        below = sorted(path.rglob("*")) if path.is_dir() else [path]
        for each in below:
            relative = str(each.relative_to(ROOT))
            if each.suffix in (".py", ".md", ".rst", *_CPP) and not relative.startswith(LEFT_OUT):
                yield each


def main(arguments: list[str]) -> int:
    """Print what is found; return the exit code."""
    found = [each for path in files(arguments or CHECKED) for each in findings(path)]
    for each in found:
        print(each)
    if found:
        print(f"{len(found)} habits of wording: see RULES in tests/wording.py", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
