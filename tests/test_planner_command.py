"""``calibrate``: what cannot be done is refused before it measures."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import pytest

import fuse_epilogue
from cli_runs import run
from fuse_epilogue import _files, workloads
from fuse_epilogue._progress import Progress
from fuse_epilogue.planner import Profile
from fuse_epilogue.planner.machines.cpu import cpu
from fuse_epilogue.planner.measurement import calibrate, load
from fuse_epilogue.planner.measurement.calibrate import POINTS
from fuse_epilogue.planner.measurement.profile import differences, profile_of
from fuse_epilogue.planner.problems.cost import Weights
from fuse_epilogue.schedules import host
from planner_problems import machine


@pytest.fixture
def measured(monkeypatch):
    """Return what was asked for instead of being measured."""
    asked = []
    profile = Profile(machine(), Weights(), (("f: a", 0.1), ("f: b", 0.2)))

    def measures(_machine, _target, points, _measure):
        asked.append(points)
        return profile

    monkeypatch.setattr(calibrate, "calibrate", measures)
    monkeypatch.setattr(calibrate, "solver", lambda: None)
    # Set by the command; so it is taken back.
    monkeypatch.setenv("TVM_NUM_THREADS", "2")
    return asked


def test_a_profile_is_written(measured, tmp_path, capsys):
    out = tmp_path / "profile.json"
    code, said, _ = run(capsys, "calibrate", "--out", str(out), "--points", "2")
    assert code == 0 and "predicted within a factor" in said
    assert measured == [2] and Profile.from_json(out.read_text()).machine == machine()
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    ("out", "points", "message"),
    [
        ("missing/profile.json", "16", "there is no folder"),
        (".", "16", "is a folder: name a file in it"),
        ("profile.json", "1", "--points must be 2 or more, not 1"),
        ("profile.json", "-1", "--points must be 2 or more, not -1"),
    ],
)
def test_what_cannot_be_written_is_not_measured(measured, tmp_path, capsys, out, points, message):
    code, said, noted = run(capsys, "calibrate", "--out", str(tmp_path / out), "--points", points)
    assert (code, said) == (2, "") and message in noted
    assert measured == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, ("", "interrupted\n")),
        (RuntimeError(""), 130, ("", "interrupted\n")),  # what TVM makes of it
        (OSError("the disk is full"), 1, ("error: the disk is full\n", "")),
    ],
)
def test_a_profile_is_replaced_whole_or_not_at_all(
    measured, tmp_path, monkeypatch, capsys, error, code, message
):
    out = tmp_path / "profile.json"
    out.write_text("before")
    _files.try_to_write(out)
    assert out.read_text() == "before"

    def dies(*_, **__):
        raise error

    monkeypatch.setattr(_files.os, "fdopen", dies)
    answered, said, noted = run(capsys, "calibrate", "--out", str(out))
    kept = f"what was measured is in {out}.measured\n"
    assert (answered, said, noted) == (code, message[0], kept + message[1])
    assert (
        measured == [POINTS] and out.read_text() == "before" and list(tmp_path.iterdir()) == [out]
    )


def test_what_is_missing_is_named_before_it_measures(measured, tmp_path, capsys, monkeypatch):
    def missing():
        raise ModuleNotFoundError("calibration needs scipy")

    monkeypatch.setattr(calibrate, "solver", missing)
    code, _, noted = run(capsys, "calibrate", "--out", str(tmp_path / "profile.json"))
    assert code == 2 and noted == "error: calibration needs scipy\n"
    assert measured == []


def test_measurements_that_cannot_be_kept_are_not_made(measured, tmp_path, capsys):
    (tmp_path / "profile.json.measured").mkdir()
    code, _, noted = run(capsys, "calibrate", "--out", str(tmp_path / "profile.json"))
    assert code == 2 and "--out needs another name" in noted
    assert measured == []


def test_a_full_disk_behind_standard_output_loses_no_profile(
    measured, tmp_path, capsys, monkeypatch
):
    out = tmp_path / "profile.json"
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        code, _, noted = run(capsys, "calibrate", "--out", str(out))
    assert code == 1 and f"the profile is in {out}\n" in noted
    assert Profile.from_json(out.read_text()).machine == machine()


def test_a_profile_without_a_name_is_the_one_that_planning_reads(
    measured, tmp_path, capsys, monkeypatch
):
    folder = tmp_path / "profiles"
    monkeypatch.setenv("FUSE_EPILOGUE_PROFILES", str(folder))
    code, said, noted = run(capsys, "calibrate")
    (file,) = folder.iterdir()
    here = cpu(host())
    assert code == 0 and file == folder / f"{here.name}.json" and f"is in {file}" in noted
    assert f"planning for {here.name} reads it from now on" in said and "changed:" in said
    assert profile_of(here) == Profile.from_json(file.read_text())
    func = workloads.matmul(8, 8, 8)
    assert fuse_epilogue.plan(func, host()).resolution == profile_of(here).resolution
    # The second time it is compared with the first, and is the same.
    assert "nothing changed" in run(capsys, "calibrate")[1]
    monkeypatch.setenv("FUSE_EPILOGUE_PROFILES", str(tmp_path / "none"))
    assert profile_of(here) is None or profile_of(here).machine != machine()


def test_a_damaged_profile_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("FUSE_EPILOGUE_PROFILES", str(tmp_path))
    here = cpu(host())
    file = tmp_path / f"{here.name}.json"
    file.write_text("{}")
    with pytest.raises(ValueError, match=f"^'{file}': .*; calibrate again, or remove it$"):
        fuse_epilogue.plan(workloads.matmul(8, 8, 8), host())


def test_what_a_calibration_changed():
    before = Profile(machine(), Weights(), (("f: a", 0.1), ("f: b", 0.2)))
    assert differences(before, before) == []
    faster = replace(before.machine, clock_hz=before.machine.clock_hz * 1.5)
    clock = before.machine.clock_hz / 1e9
    now = replace(before, machine=faster)
    assert differences(before, now) == [f"clock, GHz: {clock:.4g} -> {1.5 * clock:.4g} (+50 %)"]
    assert all("not measured before" in line for line in differences(None, now))


def test_a_loaded_machine_is_noticed(measured, tmp_path, capsys, monkeypatch):
    ticks = os.sysconf("SC_CLK_TCK")
    stat, now = tmp_path / "stat", iter((0.0, 10.0, 30.0))
    stat.write_text(f"cpu {1000 * ticks} 0 0 5 5 0 0 0 0 0\n")
    with monkeypatch.context() as patched:
        patched.setattr(load.time, "monotonic", lambda: next(now))
        patched.setattr(load.os, "times", lambda: (0.0, 0.0, 0.0, 0.0, 0.0))
        watch = load.Load(stat)
        assert watch.others() == 0.0
        # Idle processors do not count.
        stat.write_text(f"cpu {1030 * ticks} 0 {15 * ticks} 9999 5 0 0 0 0 0\n")
        assert watch.others() == 1.5  # 45 s of processors in 30 s
    assert load.Load(tmp_path / "no such file").others() == 0.0
    out = str(tmp_path / "profile.json")
    monkeypatch.setattr(load.Load, "others", lambda self: 0.7)
    assert "warning: other processes used 0.7 cores" in run(capsys, "calibrate", "--out", out)[1]
    monkeypatch.setattr(load.Load, "others", lambda self: 0.05)
    assert "warning" not in run(capsys, "calibrate", "--out", out)[1]


def test_standard_error_may_be_closed(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    Progress().show("calibrating", 1, 2, "a kernel")
    assert capsys.readouterr().out == ""
