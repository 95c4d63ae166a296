"""Everything that is shown to users runs, in a process of its own, as they would run it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TUTORIALS = sorted((ROOT / "tutorials").glob("*.py"))


def run(*command: str | Path) -> str:
    """Run a Python program from the root of the project; returns what it printed."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_there_are_tutorials() -> None:
    assert TUTORIALS
    # Numbered without a gap: each goes on where the one before it ends.
    numbers = [int(path.name.partition("_")[0]) for path in TUTORIALS]
    assert numbers == list(range(1, len(TUTORIALS) + 1))


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorial(path: Path) -> None:
    assert run(path)
    # It could have failed: its last word is an assertion.
    assert isinstance(ast.parse(path.read_text()).body[-1], ast.Assert)


def test_demo() -> None:
    output = run("examples/demo.py", "--quick", "--color", "never")
    assert "\x1b[" not in output
    # Fusions, what was left and why, refusals, and the comparison of the results.
    for line in ("fused    T_add into", "left     [", "refused  ", "bit for bit"):
        assert line in output
