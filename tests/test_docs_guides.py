"""The code of the pages in ``docs`` runs, and prints what they say it prints."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

# Processes of their own: what they call in the library has tests of its own.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    path
    for path in (ROOT / "docs").rglob("*.rst")
    if not {"generated", "tutorials"} & set(path.relative_to(ROOT / "docs").parts)
)
#: A block: its language, its options, its lines.
BLOCK = re.compile(
    r"^\.\. code-block:: (?P<language>\w+)\n(?P<options>(?:    :[^\n]*\n)*)\n"
    r"(?P<body>(?:    [^\n]*\n|\n)+)",
    re.M,
)
#: What a page prints between two blocks of its output.
MARK = "--8<--"


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Language, options and text of each block of a page."""
    text = page.read_text(encoding="utf-8")
    found = [
        (m["language"], m["options"], textwrap.dedent(m["body"]).strip("\n") + "\n")
        for m in BLOCK.finditer(text)
    ]
    assert len(found) == text.count(".. code-block::"), "a block that this test cannot read"
    return found


def program(page: Path) -> tuple[str, list[str]]:
    """All Python of a page as one program, and what it prints, output by output."""
    lines, outputs = [], []
    for language, options, text in blocks(page):
        if language == "python":
            lines.append(text)
        elif ":class: output" in options:
            lines.append(f"print({MARK!r})\n")
            outputs.append(text)
    return "\n".join(lines), outputs


#: Pages whose code the quick tier runs.
QUICK = {"quickstart", "cascades"}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=() if page.stem in QUICK else pytest.mark.full)
        for page in PAGES
    ],
)
def test_code_runs_and_prints_what_the_page_says(page: Path, tmp_path: Path) -> None:
    source, outputs = program(page)
    if not source:
        pytest.skip("no Python on this page")
    if "import torch" in source:
        pytest.importorskip("torch")
    (tmp_path / "page.py").write_text(source, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
        # A reader has set nothing: what a page needs, it sets itself.
        env={name: value for name, value in os.environ.items() if name != "TVM_NUM_THREADS"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = [part.lstrip("\n") for part in done.stdout.split(f"{MARK}\n")]
    rest = printed.pop()
    assert not rest.strip(), f"printed, but not on the page: {rest}"
    check = doctest.OutputChecker().check_output
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for said, got in zip(outputs, printed, strict=True):
        assert check(said, got, flags), f"the page says\n{said}\nand this is printed\n{got}"
