"""Tests of what runs many generated programs: taken up again, blamed, counted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from generated import runner, state
from generated.chunk import run_chunk
from generated.command import timed
from generated.runner import run_all
from generated.state import Run, State, StateError
from generated.tally import Tally


def quiet(done: int, tally: Any) -> None:
    """Progress that nobody sees."""


def small_run(folder: Path, programs: int = 60) -> Run:
    return Run(4, programs, folder=folder, chunk=20)


def counts_of(run: Run) -> dict[str, Any]:
    """The counts of a run, without the time that it took."""
    counts = run_all(run, 0, quiet).summary()
    del counts["process_seconds"]
    return counts


def test_a_run_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = counts_of(small_run(tmp_path / "whole"))
    run_all(small_run(tmp_path / "parts", programs=40), 0, quiet)
    calls = []

    def counting(run: Run, start: int, stop: int, fatal: tuple[int, ...] = ()) -> Any:
        calls.append((start, stop))
        return run_chunk(run, start, stop, fatal)

    monkeypatch.setattr(runner, "run_chunk", counting)
    assert counts_of(small_run(tmp_path / "parts")) == whole
    assert calls == [(40, 60)]
    assert whole["programs"] == 60


def test_a_line_that_was_cut_off_is_done_again(tmp_path: Path, capsys: Any) -> None:
    run = small_run(tmp_path)
    whole = counts_of(run)
    path = State(run).path
    path.write_text(path.read_text()[:-30])
    assert counts_of(run) == whole
    assert "broken lines are ignored" in capsys.readouterr().err
    # The line after it is a whole one.
    assert counts_of(run) == whole
    assert len(State(run).finished) == 3


@pytest.mark.parametrize("content", ["", "not JSON", "[1, 2]", '{"seed": 4}\n', "\x00\x01"])
def test_a_broken_state_is_an_error_that_says_so(tmp_path: Path, content: str) -> None:
    run = small_run(tmp_path)
    State(run).path.write_text(content)
    with pytest.raises(StateError, match="remove it to start again"):
        run_all(run, 0, quiet)


def test_the_state_of_other_code_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_run(tmp_path, programs=20)
    run_all(run, 0, quiet)
    assert len(State(run).finished) == 1
    monkeypatch.setattr(state, "fingerprint", lambda _: "other")
    assert not State(run).finished


def test_only_chunks_with_something_wrong_are_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_run(tmp_path)
    judged: list[int] = []

    def counting(run: Run, start: int, stop: int, fatal: tuple[int, ...]) -> dict[str, Any]:
        judged.append(start)
        wrong = [{"verdict": "crashed", "number": 25, "program": {}}] * (start == 20)
        return {**Tally().to_json(), "failures": wrong}

    def report_of(run: Run) -> dict[str, Any]:
        report: dict[str, Any] = {}
        timed(run, 0, counting, Tally, report)
        return report

    assert report_of(run).keys() == {"wall_time_s"}
    assert judged == [0, 20, 40]
    first_commit = json.loads(State(run).path.read_text().splitlines()[0])["commit"]
    monkeypatch.setattr(state, "fingerprint", lambda _: "other")
    again = replace(run, again=True)
    for times in (1, 2):  # the second time with the same code
        assert report_of(again) == {"kept": [{"commit": first_commit, "programs": 40}]}
        assert judged == [0, 20, 40, *[20] * times]
    # Of other programs nothing is kept.
    assert not State(replace(again, chunk=30)).finished


def dying_chunk(run: Run, start: int, stop: int, fatal: tuple[int, ...]) -> dict[str, Any]:
    """A chunk whose 25th program ends the process."""
    marker = run.folder / f"current-{os.getpid()}"
    for number in range(start, stop):
        marker.write_text(str(number))
        if number == 25 and number not in fatal:
            os.kill(os.getpid(), signal.SIGKILL)
    marker.unlink()
    return {"start": start, "fatal": list(fatal)}


@pytest.mark.full
def test_a_program_that_ends_the_process_is_blamed(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    results = dict(runner._results(run, run.chunks, 1, dying_chunk))
    assert sorted(results) == run.chunks
    assert results[20, 40]["fatal"] == [25]
    assert results[0, 20]["fatal"] == []
    assert not list(tmp_path.glob("current-*"))


def command(folder: Path, *more: str) -> list[str]:
    options = ["--programs", "1500", "--seed", "6", "--folder", str(folder), *more]
    return [sys.executable, "-m", "generated", *options]


@pytest.mark.full
def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    path = tmp_path / "state-ours-6.jsonl"
    with subprocess.Popen(
        command(tmp_path, "--chunk", "50"), env=env, stderr=subprocess.DEVNULL
    ) as process:
        deadline = time.monotonic() + 600
        while not (path.exists() and path.read_text().count("\n") >= 2):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        workers = psutil.Process(process.pid).children(recursive=True)
        process.kill()
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive
    finished = len(path.read_text().splitlines()) - 1
    output = tmp_path / "fuzz.json"
    again = subprocess.run(
        command(tmp_path, "--programs", "150", "--chunk", "50", "--output", str(output)),
        env=env,
        capture_output=True,
        text=True,
    )
    assert again.returncode in (0, 1), again.stderr
    assert f"{min(150, 50 * finished)}/150 programs" in again.stderr
    report = json.loads(output.read_text())
    assert report["ours"]["programs"] == 150
    assert report["seed"] == 6
    assert sum(report["ours"]["verdicts"].values()) == 150
    assert set(report) >= {"commit", "versions", "machine", "date"}
    assert "wall_time_s" not in report  # of a part


def test_the_command_says_what_is_wrong_with_the_state(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    (tmp_path / "state-ours-6.jsonl").write_text("nonsense")
    found = subprocess.run(command(tmp_path), env=env, capture_output=True, text=True)
    assert found.returncode == 2
    assert "remove it to start again" in found.stderr
    assert "Traceback" not in found.stderr
