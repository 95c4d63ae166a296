"""Everything that is shown to users runs, in a process of its own, as they would run it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parent.parent
TUTORIALS = sorted((ROOT / "tutorials").glob("[0-9]*.py"))
QUICK = {"01_fuse_your_first_epilogue"}


def run(*command: str | Path, **environment: str) -> str:
    """Run a Python program from the root of the project; returns what it printed."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env=os.environ | environment,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_there_are_tutorials() -> None:
    assert TUTORIALS
    # Numbered without a gap: each goes on where the one before it ends.
    numbers = [int(path.name.partition("_")[0]) for path in TUTORIALS]
    assert numbers == list(range(1, len(TUTORIALS) + 1))


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=() if path.stem in QUICK else pytest.mark.full)
        for path in TUTORIALS
    ],
)
def test_tutorial(path: Path, tmp_path: Path) -> None:
    output = run(path, TUTORIAL_PICTURES=str(tmp_path))
    # What it prints stands on a page: nothing there is about the machine's folders.
    assert output and str(tmp_path) not in output and str(ROOT) not in output
    pictures = list(tmp_path.iterdir())
    assert pictures
    for picture in pictures:
        root = ElementTree.parse(picture).getroot()
        if picture.suffix == ".html":
            # Two programs as text: as many lines on either side, so that they are level.
            columns = [column.findall("pre/span") for column in root]
            assert root.tag == "div" and len(columns) == 2
            assert len(columns[0]) == len(columns[1]) > 0
            continue
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert float(root.attrib["width"]) < 1200


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_is_a_page(path: Path) -> None:
    tree = ast.parse(path.read_text())
    title, rule, *_ = (ast.get_docstring(tree) or "").splitlines()
    assert rule == "=" * len(title)
    assert "\n# %%\n" in path.read_text()
    # It can fail: its last word is an assertion.
    assert isinstance(tree.body[-1], ast.Assert)


@pytest.mark.full
def test_a_tutorial_runs_without_its_folder(tmp_path: Path) -> None:
    """As it is downloaded from its page: pictures.py is not there, and nothing is drawn."""
    alone = tmp_path / "alone.py"
    alone.write_text(TUTORIALS[0].read_text())
    assert run(alone) == run(TUTORIALS[0])


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_what_draws_may_be_missing(path: Path) -> None:
    tree = ast.parse(path.read_text())
    guarded = next(each for each in tree.body if isinstance(each, ast.Try))
    (drawing,), (instead,) = guarded.body, guarded.handlers
    assert isinstance(drawing, ast.ImportFrom) and drawing.module == "pictures"
    (stands_in,) = instead.body
    assert isinstance(stands_in, ast.Assign)
    assert {alias.name for alias in drawing.names} == {ast.unparse(t) for t in stands_in.targets}
