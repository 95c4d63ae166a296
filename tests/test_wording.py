"""The lint of wording finds what it is there for, and leaves ordinary English alone."""

from __future__ import annotations

from pathlib import Path

import pytest

import wording


def found(folder: Path, text: str, name: str = "page.md") -> list[str]:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return [f"{each.line}: {each.instead}" for each in wording.findings(path)]


@pytest.mark.parametrize(
    "text",
    [
        "The planner was told about it.",
        "Run the pass anew.",
        "Whoever calls it must know.".lower(),
        "A buffer that nobody reads.",
        "Nobody reads it.",
        "Behind the loop it is stored.",
        "The certificate is not believed.",
        "Measure so many points.",
        "The block stands behind the loop.",
        "The tail runs behind the sum.",
        "It must come, and is ahead of the others.",
        "The argument is no string.",
        "Raised if `x` is an integer, or `y` no string.",
        "What is fused stays fused.",
        "Of the function it was made for.",
        "It was measured.",
        "The block stands outside of all loops.",
        "A value that is none of its choices.",
        "The kernel reads no permutation.",
        "A function that was turned into a program.",
        "That a machine has at most.",
        "Keep the epilogue apart.",
    ],
)
def test_a_habit_is_found(text: str, tmp_path: Path) -> None:
    assert found(tmp_path, text)


def test_comments_of_python_are_read(tmp_path: Path) -> None:
    text = "#: Bytes that nobody\n#: reads.\nSIZE = 4\n\nMOST = 5  # so many\n"
    assert found(tmp_path, text, "code.py") == [
        "1: say who: the caller, no reader; or use the passive",
        "5: say: n",
    ]


def test_comments_may_begin_without_a_subject(tmp_path: Path) -> None:
    text = "# What a row holds.\n# Of rows that are far apart.\n"
    assert not found(tmp_path, text, "code.py")


@pytest.mark.parametrize(
    "text",
    [
        "There is no string.",
        "A buffer is no longer read, and no larger than before.",
        "What is it worth?",
        "The letter x stands for the finished element.",
        "Of course it works.",
        "Apart from the first, all rows are equal.",
        "A ratio that the clock can tell apart.",
        "Call it `anew`, or ``nobody``.",
    ],
)
def test_ordinary_english_is_left_alone(text: str, tmp_path: Path) -> None:
    assert found(tmp_path, text) == []


@pytest.mark.parametrize("head", ["What a point costs.", "How rows are cut.", "Where it begins."])
def test_a_docstring_begins_with_a_noun_or_a_verb(head: str, tmp_path: Path) -> None:
    def in_code(summary: str) -> list[str]:
        return found(tmp_path, f'"""{summary}"""', "code.py")

    assert in_code(head)
    assert in_code("The cost of a point.\n\nHow it is computed depends on the machine.") == []


def test_messages_of_cpp_are_read_as_one(tmp_path: Path) -> None:
    text = '// nobody cares\nthrow Refusal("the block is read "\n  "by nobody else", "told");\n'
    assert [each.split(":")[0] for each in found(tmp_path, text, "refusal.cc")] == ["1"]
    assert found(tmp_path, text.replace("nobody else", "no other"), "refusal.cc") == []


def test_code_on_pages_is_left_out(tmp_path: Path) -> None:
    assert found(tmp_path, "Text:\n\n```python\n# nobody\n```\n\nMore.\n") == []
    assert found(tmp_path, "Text::\n\n    nobody\n\nMore.\n", "page.rst") == []


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    text = "Title\n=====\n\nA line.\n\n- An item that\n  nobody reads.\n"
    assert [each.split(":")[0] for each in found(tmp_path, text, "page.rst")] == ["6"]


PYTHON = '''"""Module: nobody."""


def f(x):
    """Return it.

    Parameters
    ----------
    x : str
        Of the function.

    Example
    -------
    >>> f("nobody")
    nobody
    """
    # nobody reads comments
    name = "nobody"
    raise ValueError(f"{x} is no string that it knows")
'''


def test_docstrings_fields_and_messages_of_python(tmp_path: Path) -> None:
    lines = [each.split(":")[0] for each in found(tmp_path, PYTHON, "module.py")]
    assert lines == ["1", "10", "19", "17"]


def test_the_comments_of_tutorials_are_their_text(tmp_path: Path) -> None:
    (tmp_path / "tutorials").mkdir()
    text = '"""Title."""\n\n# %%\n# A value that\n# nobody reads.\nx = 1\n'
    assert [each.split(":")[0] for each in found(tmp_path, text, "tutorials/a.py")] == ["4"]


def test_nothing_that_is_checked_has_a_habit() -> None:
    assert [
        str(each) for path in wording.files(wording.CHECKED) for each in wording.findings(path)
    ] == []
