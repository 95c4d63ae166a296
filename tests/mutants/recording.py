"""Runs the quick tests once and keeps which lines of the packages each of them executes."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

import coverage
import pytest

from . import PACKAGES, SOURCES
from .store import Store


class Recorder:
    """A plugin of pytest that runs the tests whose lines are not recorded yet."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.failed: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run group after group, and keep each."""
        known = self.store.recorded_tests()
        groups = by_group([item for item in session.items if item.nodeid not in known])
        for number, group in enumerate(sorted(groups, key=lambda name: (not concerns(name), name))):
            print(f"recording {number}/{len(groups)}: {group}", file=sys.__stderr__, flush=True)
            self._group(groups[group])
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep no test that does not pass as things are."""
        if report.outcome != "passed":
            self.failed.add(report.nodeid)

    def _group(self, items: list[pytest.Item]) -> None:
        cover = coverage.Coverage(
            data_file=None,
            config_file=False,
            source=[str(SOURCES / "fuse_epilogue" / package) for package in PACKAGES],
        )
        seconds: dict[str, float] = {}
        cover.start()
        for item, following in itertools.zip_longest(items, items[1:]):
            cover.switch_context(item.nodeid)
            before = processor_time()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            seconds[item.nodeid] = round(processor_time() - before, 4)
            cover.switch_context("between tests")
        cover.stop()
        data = cover.get_data()
        lines = {
            str(Path(file).relative_to(SOURCES)): data.contexts_by_lineno(file)
            for file in data.measured_files()
        }
        passed = {test: time for test, time in seconds.items() if test not in self.failed}
        self.store.record(passed, lines, seconds.keys() - passed.keys())


def by_group(items: list[pytest.Item]) -> dict[str, list[pytest.Item]]:
    """Tests that share what they compute, by the name of their group (see conftest.py)."""
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        mark = item.get_closest_marker("xdist_group")
        assert mark is not None
        groups.setdefault(str(mark.args[0]), []).append(item)
    return groups


def concerns(group: str) -> bool:
    """Whether a group of tests is named for one of the packages: these come first."""
    return any(package in group for package in PACKAGES)


def processor_time() -> float:
    """Seconds of processor that this process and those that it started have taken."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
