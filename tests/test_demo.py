"""The demo ends well, fits a terminal of 80 columns, and says what it was asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# A process of its own: what it calls in the library has tests of its own.
pytestmark = pytest.mark.slow

DEMO = Path(__file__).resolve().parents[1] / "examples" / "demo.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(DEMO), "--quick", "--color", "never", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.fixture(scope="module")
def shown() -> list[str]:
    """The lines that the demo prints without a diff, run once for all that is asked of them."""
    done = run("--diff", "none")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_it_says_what_is_fused_and_what_is_not(shown: list[str]) -> None:
    output = "\n".join(shown)
    assert "\x1b[" not in output
    # Fusions, what was left and why, refusals, and the comparison of the results.
    for line in ("fused    T_add into", "left     [", "refused  ", "bit for bit"):
        assert line in output


def test_lines_fit_a_terminal(shown: list[str]) -> None:
    assert [line for line in shown if len(line) > 80] == []


def test_it_ends_on_the_times_of_the_layer_and_on_a_model(shown: list[str]) -> None:
    first = next(place for place, line in enumerate(shown) if line.startswith("the layer by"))
    names = ["TVM's default pipeline", "our schedules, unfused", "our schedules, fused"]
    for line, name in zip(shown[first + 2 : first + 5], names, strict=True):
        assert line.startswith(name)
    below = "\n".join(shown[first:])
    assert "fuse_epilogue.compile" in below and "fused_matmul_add_gelu" in below


def test_no_function_is_shown_unless_it_is_asked_for(shown: list[str]) -> None:
    assert not [line for line in shown if line.startswith("@@")]


@pytest.mark.full
def test_one_function_is_shown_by_itself() -> None:
    done = run()
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("@@")]


@pytest.mark.full
def test_all_functions_are_shown() -> None:
    lines = run("--diff", "all").stdout.splitlines()
    assert len([line for line in lines if line.startswith("@@")]) >= 5
    assert "no line changed" in lines  # the softmax


def test_a_function_that_is_not_there() -> None:
    done = run("--diff", "softmaks")
    assert done.returncode == 1
    assert "no function 'softmaks'" in done.stderr
