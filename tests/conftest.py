"""How tests are shared among processes, and what is added to the summary."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import pytest

import mutation_table
import shallow_frames

# Before the first program of the tests is parsed.
shallow_frames.install()

# TVM would bind this process to the first core with its first parallel loop, and with it all that
# the tests start: compilers, servers, other workers of pytest.
os.environ.setdefault("TVM_BIND_THREADS", "0")

# A profile that was calibrated on this machine would change plans.
os.environ["FUSE_EPILOGUE_PROFILES"] = str(Path(__file__).parent / "no_profiles")

# A shell has what it starts in the background ignore Ctrl-C; several tests are about it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Nearly all objects live until the end: tests, programs, modules. Searching them for cycles as
# often as Python does by default takes some percent of the time of the suite.
gc.set_threshold(50_000, 20, 50)


@pytest.fixture
def free_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waking other threads takes no time: they share the smallest loop nests, too."""
    monkeypatch.setattr("fuse_epilogue.kernels.cpu.costs.WAKE_S", 0.0)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a file's tests together, in one process, but for those that name a group of their own.

    The tests of a group follow each other, where there is only one process too: what they share is
    made once, and only while they run.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    order = {name: place for place, name in enumerate(dict.fromkeys(map(group_of, items)))}
    items.sort(key=lambda item: order[group_of(item)])


def group_of(item: pytest.Item) -> str:
    """The group that a test is in."""
    mark = item.get_closest_marker("xdist_group")
    assert mark is not None
    return str(mark.args[0])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What became of the programs without each check, if that has been tested."""
    rows = [
        mutation_table.Row(**value)
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", [])
        if name == mutation_table.PROPERTY and report.when == "call"
    ]
    lines = mutation_table.table(rows)
    if lines:
        terminalreporter.section("soundness checks switched off one by one")
        for line in lines:
            terminalreporter.write_line(line)
