"""README.md, CONTRIBUTING.md and docs/: what they show runs, and their figures were measured.

Where a test fails after an edit, the tables in tests/pages say how to tell it about something new.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pages import commands, figures, programs, reading, sources

# Processes of their own: what they call in the library has tests of its own.
pytestmark = pytest.mark.slow

PAGES = reading.pages()
SECTIONS = {section.title: section for section in programs.sections(PAGES[0])}
COMMANDS = {command: None for page in PAGES for command in commands.commands(page)}
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What is wrong with each section of README.md whose programs are run."""
    folder = tmp_path_factory.mktemp("readme")
    done = subprocess.run(
        [sys.executable, "-m", "pages.programs", "."],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("title", SECTIONS)
def test_programs_print_what_is_shown(title: str, outcome: dict[str, list[str]]) -> None:
    assert not outcome[title], "\n".join(outcome[title])


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert commands.check(command, tmp_path) is None


@by_page
def test_what_the_prose_names_is_there(page: reading.Page) -> None:
    assert list(commands.lost(page)) == []


@by_page
def test_every_figure_has_a_source(page: reading.Page) -> None:
    found = list(figures.without_source(page, sources.ROWS, sources.NOT_MEASURED))
    assert not found, "\n".join(found)


def test_the_picture_is_that_of_the_code() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import overview; print(overview.draw(), end='')"],
        cwd=reading.ROOT / "examples",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    picture = reading.ROOT / "docs" / "_static" / "overview.svg"
    assert done.stdout == picture.read_text(encoding="utf-8"), "run: python examples/overview.py"


def test_every_figure_is_that_of_the_results() -> None:
    found = list(figures.wrong(PAGES, sources.ROWS))
    assert not found, "\n".join(found)


def test_the_command_of_the_generated_programs_is_that_of_the_results() -> None:
    results = reading.ROOT / "benchmarks" / "results" / "fuzz.json"
    made = json.loads(results.read_text(encoding="utf-8"))
    command = f"make fuzz N={made['programs']} SEED={made['seed']} BASELINE=1"
    assert command in (reading.ROOT / "README.md").read_text(encoding="utf-8")
