"""``python -m fuse_epilogue.planner``: what cannot be done is refused before it measures."""

from __future__ import annotations

import sys

import pytest

from fuse_epilogue import _files
from fuse_epilogue.planner import Profile, __main__, calibrate
from fuse_epilogue.planner.calibrate import POINTS
from fuse_epilogue.planner.cost import Weights
from planner_problems import machine


@pytest.fixture
def measured(monkeypatch):
    """Return what was asked for instead of being measured."""
    asked = []
    profile = Profile(machine(), Weights(), (("f: a", 0.1), ("f: b", 0.2)))

    def calibrate(_machine, _target, points, _measure):
        asked.append(points)
        return profile

    monkeypatch.setattr(__main__, "calibrate", calibrate)
    monkeypatch.setattr(__main__, "solver", lambda: None)
    # Set by the command; so it is taken back.
    monkeypatch.setenv("TVM_NUM_THREADS", "2")
    return asked


def test_a_profile_is_written(measured, tmp_path, capsys):
    out = tmp_path / "profile.json"
    __main__.main(["calibrate", "--out", str(out), "--points", "2"])
    assert measured == [2] and Profile.from_json(out.read_text()).machine == machine()
    assert list(tmp_path.iterdir()) == [out]
    assert "predicted within a factor" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("out", "points", "told"),
    [
        ("missing/profile.json", "16", "there is no folder"),
        (".", "16", "is a folder: name a file in it"),
        ("profile.json", "1", "--points must be 2 or more, not 1"),
        ("profile.json", "-1", "--points must be 2 or more, not -1"),
    ],
)
def test_what_cannot_be_written_is_not_measured(measured, tmp_path, capsys, out, points, told):
    with pytest.raises(SystemExit) as ended:
        __main__.main(["calibrate", "--out", str(tmp_path / out), "--points", points])
    assert ended.value.code == 2 and told in capsys.readouterr().err
    assert measured == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (RuntimeError(""), 130, "interrupted"),  # what TVM makes of it
        (OSError("the disk is full"), 1, "error: the disk is full"),
    ],
)
def test_a_profile_is_replaced_whole_or_not_at_all(
    measured, tmp_path, monkeypatch, capsys, error, code, told
):
    out = tmp_path / "profile.json"
    out.write_text("before")
    _files.try_to_write(out)
    assert out.read_text() == "before"

    def dies(*_, **__):
        raise error

    monkeypatch.setattr(_files.os, "fdopen", dies)
    with pytest.raises(SystemExit) as ended:
        __main__.main(["calibrate", "--out", str(out)])
    assert ended.value.code == code
    assert capsys.readouterr().err == f"{told}\nwhat was measured is in {out}.measured\n"
    assert (
        measured == [POINTS] and out.read_text() == "before" and list(tmp_path.iterdir()) == [out]
    )


def test_what_is_missing_is_named_before_it_measures(measured, tmp_path, capsys, monkeypatch):
    def missing():
        raise ModuleNotFoundError("calibration needs scipy")

    monkeypatch.setattr(__main__, "solver", missing)
    with pytest.raises(SystemExit) as ended:
        __main__.main(["calibrate", "--out", str(tmp_path / "profile.json")])
    assert ended.value.code == 2 and "error: calibration needs scipy" in capsys.readouterr().err
    assert measured == []


def test_measurements_that_cannot_be_kept_are_not_made(measured, tmp_path, capsys):
    (tmp_path / "profile.json.measured").mkdir()
    with pytest.raises(SystemExit) as ended:
        __main__.main(["calibrate", "--out", str(tmp_path / "profile.json")])
    assert ended.value.code == 2 and "--out needs another name" in capsys.readouterr().err
    assert measured == []


def test_a_full_disk_behind_standard_output_loses_no_profile(
    measured, tmp_path, capsys, monkeypatch
):
    out = tmp_path / "profile.json"
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as ended:
            __main__.main(["calibrate", "--out", str(out)])
    assert ended.value.code == 1 and f"the profile is in {out}\n" in capsys.readouterr().err
    assert Profile.from_json(out.read_text()).machine == machine()


def test_standard_error_may_be_closed(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    calibrate._progress(1, 2, "a kernel")
    assert capsys.readouterr().out == ""
