"""Comparing the outcomes of TVM's own tests without the extension and with it."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tvm_tests.__main__ import revision_of
from tvm_tests.compare import Difference, compare, count
from tvm_tests.reasons import REASONS, Reason
from tvm_tests.runs import INSIDE, SIDES, Outcomes, RunError, Runner, check_side, outcomes

# ---- The comparison ------------------------------------------------------------------------------


def repeated(*runs: Outcomes) -> Callable[[list[str]], list[Outcomes]]:
    """What running some tests again gives, each time."""
    return lambda tests: [{test: run[test] for test in tests if test in run} for run in runs]


def not_repeated(tests: list[str]) -> list[Outcomes]:
    raise AssertionError(tests)


def test_no_difference() -> None:
    same = {"a": "passed", "b": "failed: ValueError"}
    assert compare(same, dict(same), {}, not_repeated).ok


def test_another_outcome() -> None:
    hidden = {"a": "passed", "b": "passed", "c": "passed"}
    loaded = {"a": "passed", "b": "failed: ScheduleError", "c": "skipped"}
    result = compare(hidden, loaded, {}, repeated(hidden, hidden))
    assert not result.ok
    assert result.unexpected == [
        Difference("b", "passed", "failed: ScheduleError"),
        Difference("c", "passed", "skipped"),
    ]


def test_another_exception() -> None:
    """Both fail, but not in the same way: the extension is in the way."""
    hidden, loaded = {"a": "failed: AssertionError"}, {"a": "failed: ScheduleError"}
    assert not compare(hidden, loaded, {}, repeated(hidden)).ok


def test_a_test_on_one_side_only() -> None:
    for hidden, loaded in (({"a": "passed"}, {}), ({}, {"a": "passed"})):
        result = compare(hidden, loaded, {}, repeated(hidden))
        assert not result.ok
        assert "missing" in (result.unexpected[0].hidden, result.unexpected[0].loaded)


def test_a_listed_difference() -> None:
    hidden, loaded = {"a": "passed", "b": "passed"}, {"a": "failed: X", "b": "passed"}
    result = compare(hidden, loaded, {"a": Reason("failed: X", "its reason")}, not_repeated)
    assert result.ok
    assert result.expected == [Difference("a", "passed", "failed: X", "its reason")]
    # Another outcome than the listed one has another reason.
    crashed = {"a": "crashed: SIGSEGV", "b": "passed"}
    result = compare(hidden, crashed, {"a": Reason("failed: X", "its reason")}, repeated(hidden))
    assert not result.ok
    assert [one.test for one in result.unexpected] == ["a"]


def test_a_listed_test_that_does_not_differ() -> None:
    same = {"a": "passed"}
    result = compare(same, same, {"a": Reason("failed: X", "was so once")}, not_repeated)
    assert not result.ok
    assert result.stale == ["a"]
    # It may not exist in another revision of TVM.
    assert compare(same, same, {"b": Reason("failed: X", "only there")}, not_repeated).ok


def test_a_test_that_varies_by_itself() -> None:
    hidden, loaded = {"a": "passed"}, {"a": "failed: Timeout"}
    result = compare(hidden, loaded, {}, repeated(hidden, {"a": "failed: Timeout"}))
    assert result.ok
    assert [one.test for one in result.unstable] == ["a"]
    # The twin, which only varies with the extension.
    assert not compare(hidden, loaded, {}, repeated(hidden, hidden)).ok


def test_counts() -> None:
    assert count({"a": "passed", "b": "failed: X", "c": "failed: Y"}) == {"failed": 2, "passed": 1}


def test_each_reason_is_one() -> None:
    assert all(reason.why.strip() and reason.loaded != "passed" for reason in REASONS.values())
    assert all("::" in test for test in REASONS)


# ---- The two sides -------------------------------------------------------------------------------

TESTS = """
import os
import subprocess
import sys

import pytest

WHOSE = "import tvm.s_tir as s; print(s.Schedule.fuse_reduction_epilogue.__module__)"

def test_passes():
    pass

def test_fails():
    raise KeyError("always")

@pytest.mark.skip(reason="always")
def test_is_skipped():
    pass

@pytest.mark.xfail(strict=True)
def test_fails_as_expected():
    raise ValueError

@pytest.fixture
def broken():
    raise OSError

def test_has_no_set_up(broken):
    pass

def test_only_of_tvm():
    from tvm.s_tir import Schedule
    assert Schedule.fuse_reduction_epilogue.__module__.startswith("tvm.")

def test_only_of_tvm_in_a_process_of_its_own():
    run = subprocess.run([sys.executable, "-c", WHOSE], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("tvm.")

def test_ends_the_process_with_the_extension():
    if "fuse_epilogue" in sys.modules:
        os.abort()

def test_after_it():
    import tvm.backend.cuda  # which TVM loads in the same way
"""


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """A checkout with one file of tests, and another one that cannot be imported."""
    folder = tmp_path_factory.mktemp("tvm")
    suite = folder / "tests/python/suite"
    suite.mkdir(parents=True)
    (suite / "test_some.py").write_text(TESTS)
    (suite / "test_broken.py").write_text("import no_such_module\n")
    return Runner(folder / "tests/python", folder / "records")


@pytest.fixture(scope="module")
def sides(runner: Runner) -> dict[str, Outcomes]:
    return {side: outcomes(runner.run(side, "suite")) for side in SIDES}


@pytest.mark.full
def test_outcomes(sides: dict[str, Outcomes]) -> None:
    some = "suite/test_some.py::test_"
    on_both = {
        "suite/test_broken.py": "collection failed",
        f"{some}passes": "passed",
        f"{some}fails": "failed: KeyError",
        f"{some}is_skipped": "skipped",
        f"{some}fails_as_expected": "failed as expected",
        f"{some}has_no_set_up": "setup failed: OSError",
        f"{some}after_it": "passed",
    }
    differing = {
        f"{some}only_of_tvm": "failed: AssertionError",
        f"{some}only_of_tvm_in_a_process_of_its_own": "failed: AssertionError",
        f"{some}ends_the_process_with_the_extension": "crashed: SIGABRT",
    }
    assert sides["hidden"] == on_both | dict.fromkeys(differing, "passed")
    assert sides["loaded"] == on_both | differing


@pytest.mark.full
def test_what_is_finished_is_not_run_again(runner: Runner, sides: dict[str, Outcomes]) -> None:
    assert outcomes(Runner(runner.tests, runner.folder).run("hidden", "suite")) == sides["hidden"]
    (log,) = (runner.folder / "hidden").glob("*.log")
    assert log.read_text().count("short test summary info") == 1


def test_a_run_on_the_wrong_side() -> None:
    entries = [{"session": {"extension": False}}, {"test": "a", "outcome": "passed"}]
    check_side("hidden", "suite", entries)
    with pytest.raises(RunError, match="is hidden, and should be loaded"):
        check_side("loaded", "suite", entries)


def test_only_the_extension_is_hidden() -> None:
    names = "[e.name for e in m.entry_points(group={!r})]"
    code = f"import importlib.metadata as m; print({names.format('tvm.backends')})"
    code += f"; print({names.format('pytest11')})"

    def listed(hide: str) -> list[str]:
        environment = {**os.environ, "TVM_TESTS_HIDE": hide}
        environment["PYTHONPATH"] = os.pathsep.join([str(INSIDE), os.environ.get("PYTHONPATH", "")])
        run = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return run.stdout.splitlines()

    (backends, others), (all_backends, all_others) = listed("1"), listed("0")
    found = [e.name for e in importlib.metadata.entry_points(group="tvm.backends")]
    assert all_backends == str(found)
    assert backends == str([name for name in found if name != "fuse_epilogue"]) != all_backends
    assert others == all_others


# ---- The checkout --------------------------------------------------------------------------------


def test_no_tests_there(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no tests here"):
        Runner(tmp_path, tmp_path / "records").files("s_tir/schedule")


def test_no_clone_there(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="--revision"):
        revision_of(tmp_path)
