"""The tool that puts faults into the package: it changes what it says, and drawing repeats."""

from __future__ import annotations

import types
from pathlib import Path

import pytest

from mutants import ROOT
from mutants.rows import ROWS, WrongRow
from mutants.store import Recorded, Store
from mutants.swap import NotAFunctionError, swap

TEXT = """
LIMIT = 3

def small(x):
    return x < LIMIT

def adder(n):
    def add(x):
        return x + n
    return add

class Box:
    side = 2

    def area(self):
        return self.side * self.side
"""


@pytest.fixture
def loaded() -> types.ModuleType:
    module = types.ModuleType("loaded")
    exec(compile(TEXT, "loaded.py", "exec"), module.__dict__)
    return module


def test_functions_of_a_loaded_module_get_other_code(loaded: types.ModuleType) -> None:
    small, area, add = loaded.small, loaded.Box.area, loaded.adder(1)
    assert swap("loaded.py", TEXT, TEXT.replace("x < LIMIT", "x <= LIMIT")) == 1
    assert small(3)
    assert swap("loaded.py", TEXT, TEXT.replace("side * self", "side + self")) == 1
    box = loaded.Box()
    box.side = 3
    assert area(box) == 6
    # What a function has made before is changed with it.
    assert swap("loaded.py", TEXT, TEXT.replace("x + n", "x - n")) == 2
    assert add(5) == 4
    assert loaded.adder(2)(5) == 3


@pytest.mark.parametrize(
    "change",
    [("LIMIT = 3", "LIMIT = 4"), ("side = 2", "side = 3"), ("adder(n)", "adder(n=1)")],
    ids=lambda change: change[1],
)
def test_other_code_takes_a_fresh_process(
    loaded: types.ModuleType, change: tuple[str, str]
) -> None:
    with pytest.raises(NotAFunctionError):
        swap("loaded.py", TEXT, TEXT.replace(*change))
    with pytest.raises(NotAFunctionError):
        swap("not_loaded.py", TEXT, TEXT.replace("x < LIMIT", "x <= LIMIT"))
    assert not loaded.small(3)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.table}: {row.after}")
def test_a_wrong_row_changes_one_place(row: WrongRow) -> None:
    text = (ROOT / row.file).read_text(encoding="utf-8")
    assert text.count(row.before) == 1
    assert row.after != row.before


def test_what_is_recorded_is_read_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    seconds = {"t/a.py::x": 2.0, "t/a.py::y": 1.0}
    store.record(seconds, {"f.py": {3: ["t/a.py::x", "failed"]}}, {"failed"})
    store.record({"t/b.py::z": 9.0}, {"f.py": {3: ["t/b.py::z"], 4: ["t/b.py::z"]}})
    assert store.recorded_tests() == {"t/a.py::x", "t/a.py::y", "t/b.py::z", "failed"}
    recorded = store.recorded()
    assert set(recorded.covering("f.py", [3])) == {"t/a.py::x", "t/b.py::z"}
    assert recorded.covering("f.py", [4, 5]) == ["t/b.py::z"]
    assert set(recorded.executing("f.py")) == {"t/a.py::x", "t/b.py::z"}
    assert recorded.executing("g.py") == []


def test_the_fastest_test_of_each_file_comes_first() -> None:
    recorded = Recorded({"a::1": 1.0, "a::2": 2.0, "a::3": 3.0, "b::1": 2.5})
    assert recorded.in_order(["a::3", "b::1", "a::1", "a::2"]) == ["a::1", "b::1", "a::2", "a::3"]


def test_outcomes_are_kept(tmp_path: Path) -> None:
    Store(tmp_path).add("one", {"verdict": "killed"})
    Store(tmp_path).add("two", {"verdict": "survived"})
    assert Store(tmp_path).outcomes() == {
        "one": {"verdict": "killed"},
        "two": {"verdict": "survived"},
    }


@pytest.mark.full
def test_drawing_repeats() -> None:
    pytest.importorskip("cosmic_ray")
    from mutants.sample import draw, is_change

    drawn = draw(4, seed=7)
    assert drawn == draw(4, seed=7)
    assert [each.file.split("/")[1] for each in drawn] == [
        "verify",
        "planner",
        "neuron",
        "transform",
    ]
    for each in drawn:
        assert {line[0] for line in each.difference()} <= {"-", "+"}
        assert each.difference()
        assert is_change(each)
