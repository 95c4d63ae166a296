"""The checks of test_readme.py find what they are there for: each is shown a page that is wrong."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from pages import commands, figures, programs, reading
from pages.figures import Row

MARKDOWN = """
# Title

Prose with `code`, and a list:

- one item
  that goes on

    make demo     # a comment

## Second

```python
print(6 * 7)
```

```
42
```
"""

REST = """
Title
=====

Prose with ``code``::

    make demo

.. code-block:: python
   :linenos:

   print(6 * 7)

Second
------

More prose.
"""


def page(text: str, name: str = "page.md") -> reading.Page:
    return reading.page(name, textwrap.dedent(text))


@pytest.mark.parametrize("name, text", [("page.md", MARKDOWN), ("page.rst", REST)])
def test_reading(name: str, text: str) -> None:
    read = page(text, name)
    assert [section.title for section in read.sections] == ["", "Title", "Second"]
    assert [b.text for b in read.blocks][:2] == [
        "make demo     # a comment" if name.endswith(".md") else "make demo",
        "print(6 * 7)",
    ]
    for block in read.blocks:
        assert text.split("\n")[block.line - 1].strip() == block.head
    assert read.sections[1].prose.startswith("Prose with `")
    assert "print" not in read.prose
    assert commands.commands(read) == ["make demo"]


# ---- Programs ------------------------------------------------------------------------------------


def of_program(code: str, shown: str, folder: Path) -> list[str]:
    (section,) = programs.sections(page(f"```python\n{code}\n```\n\n```\n{shown}\n```\n"))
    return list(programs.failures(section, folder))


@pytest.mark.parametrize("shown", ["1\n2\n3", "1 2\n  3", "1\n...\n3", "2"])
def test_output_that_is_printed(shown: str, tmp_path: Path) -> None:
    assert of_program("for i in 1, 2, 3: print(i)", shown, tmp_path) == []


@pytest.mark.parametrize("shown", ["4", "2\n1", "1\n...\n4", "1\n3"])
def test_output_that_is_not_printed(shown: str, tmp_path: Path) -> None:
    (wrong,) = of_program("for i in 1, 2, 3: print(i)", shown, tmp_path)
    assert wrong.startswith("line 6 shows")


# ---- Commands ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "make demo",
        "make fuzz N=100",
        "pip install 'fuse_epilogue[tune]'",
        "pip install --group bench",
        "python -m fuse_epilogue tune model.json --out tuned",
        "python -m fuse_epilogue --help",
        "python benchmarks/planner.py --points 4",
        "TVM_NUM_THREADS=2 python mine.py",
    ],
)
def test_right_commands(command: str, tmp_path: Path) -> None:
    assert commands.check(command, tmp_path) is None


@pytest.mark.parametrize(
    "command, objection",
    [
        ("make dema", "the Makefile has no dema"),
        ("make fuzz M=100", "the Makefile has no M"),
        ("pip install 'fuse_epilogue[toon]'", "pyproject.toml has no extra toon"),
        ("pip install '.[bench]'", "pyproject.toml has no extra bench"),
        ("pip install --group bank", "pyproject.toml has no group bank"),
        ("pip install numpy", "numpy is not this package"),
        ("python -m fuse_epilogue explain lost.json", "exit code 2"),
        ("python -m fuse_epilogue tune model.json --tries 4", "exit code 2"),
        ("python -m fuse_epilogue.planer calibrate", "there is no module fuse_epilogue.planer"),
        ("python benchmarks/planer.py", "there is no benchmarks/planer.py"),
        ("python benchmarks/planner.py --point 4", "benchmarks/planner.py does not know --point"),
        ("cmake --build build", "no row of RULES"),
    ],
)
def test_wrong_commands(command: str, objection: str, tmp_path: Path) -> None:
    assert objection in (commands.check(command, tmp_path) or "")


def test_names_in_the_prose() -> None:
    right = "`benchmarks/planner.py`, `fuse_epilogue.verify.check` and ``fuse_epilogue.plan(func)``"
    assert list(commands.lost(page(right))) == []
    wrong = "`benchmarks/planer.py`, `fuse_epilogue.verify.chek` and `fuse_epilogue.planer`"
    assert len(list(commands.lost(page(wrong)))) == 3


# ---- Figures -------------------------------------------------------------------------------------

ROW = Row(
    "{:,} programs in {:.0f} s",
    "fuzz.json",
    lambda r: (r["programs"], r["ours"]["process_seconds"]),
)


@pytest.mark.parametrize(
    "figure",
    ["2.5", "56,821", "3 ms", "40 %", "40%", "3 times", "2x", "7 of the 9", "12 GB/s"],
)
def test_a_figure_without_a_source(figure: str) -> None:
    found = list(figures.without_source(page(f"It takes {figure} here."), (ROW,), {}))
    assert len(found) == 1
    assert not list(figures.without_source(page(f"`{figure}`"), (), {}))
    assert not list(figures.without_source(page(f"TVM {figure}"), (), {f"TVM {figure}": "its"}))


@pytest.mark.parametrize("text", ["16 taps", "256 x 512", "in 3 steps", "section 2", "int8"])
def test_numbers_that_are_no_figures(text: str) -> None:
    assert not list(figures.without_source(page(text), (), {}))


def test_a_figure_with_a_source() -> None:
    right = page(f"Judged were {ROW.expected()}, all of them.")
    assert not list(figures.without_source(right, (ROW,), {}))
    assert not list(figures.wrong([right], (ROW,)))


def test_a_figure_that_is_not_that_of_the_results() -> None:
    stale = page("Judged were 100,001 programs in 1844 s.")
    assert len(list(figures.without_source(stale, (ROW,), {}))) == 2
    (message,) = figures.wrong([stale], (ROW,))
    assert ROW.expected() in message
