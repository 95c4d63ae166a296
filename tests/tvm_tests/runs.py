"""Run files of TVM's tests, on one of two sides: the extension hidden, or loaded."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INSIDE = Path(__file__).resolve().parent / "inside"
SIDES = ("hidden", "loaded")
# Folders and files below tests/python of a checkout.
SUITES = (
    "s_tir/schedule",
    "s_tir/meta_schedule",
    "s_tir/dlight",
    "relax/test_transform_fuse_tir.py",
)
# How often a suite is started again after a test that ended its process.
STARTS = 20

Outcomes = dict[str, str]


class RunError(RuntimeError):
    """A run that says nothing about TVM's tests."""


@dataclass(frozen=True)
class Runner:
    """Where the tests are, and where their outcomes go.

    - `tests`: folder ``tests/python`` of a checkout of TVM.
    - `folder`: for the records, one file for each side and suite. A record that is complete is not
      made again, and one that is not is taken up.
    - `timeout`: seconds that a test may take.
    """

    tests: Path
    folder: Path
    timeout: int = 1200

    def files(self, suite: str) -> list[Path]:
        """Return the files of a suite, a folder or a file below that of the tests."""
        place = self.tests / suite
        files = [place] if place.is_file() else sorted(place.glob("**/test_*.py"))
        if not files:
            raise RunError(f"{place}: no tests here")
        return files

    def run(self, side: str, suite: str, only: Iterable[str] | None = None, again: int = 0) -> Any:
        """Run a suite; return the entries of its record.

        - `side`: one of `SIDES`.
        - `only`: the tests to run instead of all.
        - `again`: number of the repetition; each has a record of its own.
        """
        record = self.folder / side / f"{suite.replace('/', '.')}.{again}.jsonl"
        record.parent.mkdir(parents=True, exist_ok=True)
        if again:
            record.unlink(missing_ok=True)
        record.touch()
        for _ in range(STARTS):
            entries = read(record)
            if any("finished" in entry for entry in entries):
                check_side(side, suite, entries)
                return entries
            status = self._start(side, suite, record, only)
            note_end(record, suite, status)
        raise RunError(f"{suite}, {side}: {STARTS} processes have not finished it")

    def _start(self, side: str, suite: str, record: Path, only: Iterable[str] | None) -> str:
        """Run pytest on what the record lacks; return how the process ended."""
        environment = dict(os.environ, TVM_TESTS_RECORD=str(record), PYTHONHASHSEED="0")
        environment["TVM_TESTS_HIDE"] = "1" if side == "hidden" else "0"
        before = os.environ.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([str(INSIDE), *([before] if before else [])])
        for variable in ("TVM_DEVICE_BACKEND_AUTOLOAD", "TVM_TESTS_ONLY", "PYTEST_ADDOPTS"):
            environment.pop(variable, None)
        if only is not None:
            environment["TVM_TESTS_ONLY"] = json.dumps(sorted(only))
        place = self.folder / side / "working"
        place.mkdir(exist_ok=True)
        # Neither the options of TVM's project file nor those of this one.
        options = place / "pytest.ini"
        options.write_text(
            f"[pytest]\nfaulthandler_timeout = {self.timeout}\n"
            "faulthandler_exit_on_timeout = true\n"
        )
        command = [sys.executable, "-m", "pytest", "-q", "--continue-on-collection-errors"]
        command += ["-c", str(options), "--rootdir", str(self.tests), "-p", "tvm_tests_recorder"]
        command += ["-p", "no:cacheprovider", "-p", "no:xdist", *map(str, self.files(suite))]
        with (
            record.with_suffix(".log").open("ab") as log,
            subprocess.Popen(
                command,
                cwd=place,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            ) as process,
        ):
            try:
                code = process.wait()
                return signal.Signals(-code).name if code < 0 else f"exit status {code}"
            finally:
                # The processes that the tests have started go with it.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def note_end(record: Path, suite: str, status: str) -> None:
    """Write down which test a process ended in, if it has not finished the suite."""
    entries = read(record)
    if any("finished" in entry for entry in entries):
        return
    running = entries[-1].get("start") if entries else None
    lines: list[dict[str, Any]] = [{"test": running or suite, "outcome": f"crashed: {status}"}]
    if running is None:
        # Between the tests, or before them: to start it again would end in the same way.
        lines.append({"finished": True})
    with record.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def read(record: Path) -> list[dict[str, Any]]:
    """Return the entries of a record; the last line of an interrupted one may be a part of one."""
    entries = []
    for line in record.read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            entries.append(json.loads(line))
    return entries


def check_side(side: str, suite: str, entries: list[dict[str, Any]]) -> None:
    """Raise a RunError unless every process of a record had the extension as its side says."""
    for entry in entries:
        loaded = entry.get("session", {}).get("extension")
        if loaded is not None and loaded != (side == "loaded"):
            state = "loaded" if loaded else "hidden"
            raise RunError(f"{suite}: the extension is {state}, and should be {side}")


def outcomes(entries: list[dict[str, Any]]) -> Outcomes:
    """Return the outcome of each test of a record."""
    return {entry["test"]: entry["outcome"] for entry in entries if "test" in entry}
