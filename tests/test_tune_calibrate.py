"""Calibrating the planner: on machines behind TVM's RPC, and going on after it was stopped."""

from __future__ import annotations

import itertools
import math
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from fuse_epilogue import cli
from fuse_epilogue.planner.machines.cpu import cpu
from fuse_epilogue.planner.machines.system import System
from fuse_epilogue.planner.measurement import calibrate
from fuse_epilogue.planner.measurement.measurement_log import SUFFIX, Kept, NotMeasured
from fuse_epilogue.planner.problems.cpu import find_rows
from fuse_epilogue.planner.problems.request import Request
from fuse_epilogue.rewrites.epilogue import NONE
from fuse_epilogue.schedules import host
from fuse_epilogue.workloads import row_reduce
from tuning import no_process_stays

__all__ = ["no_process_stays"]

POINT = {"fusion": NONE, "rows": 1, "vectors": 1, "lanes": 1, "unroll": 4, "threads": 1}


def rows(m: int = 8, n: int = 1024) -> Any:
    return find_rows(Request(row_reduce(m, n), cpu(host())))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of one function, and short measurements."""
    every = calibrate._functions
    monkeypatch.setattr(calibrate, "_functions", lambda: itertools.islice(every(), 4, 5))
    monkeypatch.setattr(calibrate, "_LEAST_S", 0.0)
    monkeypatch.setattr(calibrate, "_LARGE", 1 << 20)
    monkeypatch.setattr(calibrate, "_SHARED", 1 << 20)
    # Set by the command; so it is taken back.
    monkeypatch.setenv("TVM_NUM_THREADS", "2")


# ---------------------------------------------------------------------------------------------
# Kept as soon as it is measured
# ---------------------------------------------------------------------------------------------


class Fake:
    """Measures by counting: a time that grows with what is computed; dies after so many."""

    def __init__(self, dies: int = -1) -> None:
        self.dies, self.asked = dies, 0

    def __call__(self, problem: Any, point: Any, target: Any, least: float = 0.0) -> float:
        if self.asked == self.dies:
            raise KeyboardInterrupt
        self.asked += 1
        shapes = [param.ty.shape for param in problem.func.params]
        size = sum(math.prod(int(extent) for extent in shape) for shape in shapes)
        return 1e-6 + 1e-9 * size / point.get("threads", 1)


def calibrated(out: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the exit code of a calibration that a fake measures."""
    monkeypatch.setattr(calibrate, "here", fake)
    return cli.main(["calibrate", "--out", str(out), "--points", "8"])


@pytest.mark.usefixtures("small")
def test_a_calibration_that_was_stopped_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    whole = Fake()
    calibrated(tmp_path / "whole.json", whole, monkeypatch)
    out, first, second = tmp_path / "profile.json", Fake(dies=9), Fake()
    assert calibrated(out, first, monkeypatch) == 130
    kept = out.with_name(out.name + SUFFIX)
    assert len(kept.read_bytes().splitlines()) == 9 and not out.exists()
    with kept.open("ab") as file:  # killed while it wrote one more
        file.write(kept.read_bytes()[:30])
    assert calibrated(out, second, monkeypatch) == 0
    assert "going on with 9 measurements" in capsys.readouterr().err
    assert second.asked == whole.asked - 9
    assert out.read_bytes() == (tmp_path / "whole.json").read_bytes()
    assert sorted(tmp_path.iterdir()) == [out, tmp_path / "whole.json"]


def test_half_a_line_is_measured_again(tmp_path: Path) -> None:
    out, fake = tmp_path / "profile.json", Fake()
    problem, target = rows(), host()

    def times() -> list[float]:
        return [kept.measure(problem, {**POINT, "unroll": n}, target) for n in (1, 2, 4)]

    kept = Kept(out, fake)
    first = times()
    lines = kept.file.read_bytes().splitlines(keepends=True)
    kept.file.write_bytes(lines[0] + lines[1] + lines[2][:40])
    kept = Kept(out, fake)
    assert (kept.found, times(), fake.asked) == (2, first, 4)
    # What was appended to half a line is whole.
    kept = Kept(out, fake)
    assert (kept.found, times(), fake.asked) == (3, first, 4)


def test_other_points_functions_targets_and_lengths_are_other_measurements(tmp_path: Path) -> None:
    fake = Fake()
    kept = Kept(tmp_path / "profile.json", fake)
    problem, target = rows(), host()
    for each in (
        (problem, POINT, target, 0.0),
        (rows(16), POINT, target, 0.0),
        (problem, {**POINT, "rows": 2}, target, 0.0),
        (problem, POINT, host(1), 0.0),
        (problem, POINT, target, 0.4),
    ):
        kept.measure(*each)
    assert fake.asked == 5


@pytest.mark.usefixtures("small")
def test_a_point_that_fails_is_left_out_and_the_machine_is_asked_again(capsys: Any) -> None:
    fake, calls = Fake(), itertools.count()

    def measure(problem: Any, point: Any, target: Any, least: float) -> float:
        if next(calls) in (0, 1, 20):
            raise NotMeasured("the server died")
        return fake(problem, point, target, least)

    whole = calibrate.calibrate(cpu(host()), host(), 12, fake)
    profile = calibrate.calibrate(cpu(host()), host(), 12, measure)
    assert profile.machine == whole.machine
    assert len(profile.residuals) == len(whole.residuals) - 1
    noted = capsys.readouterr().err
    assert noted.count("again: the server died") == 2
    assert noted.count("left out: the server died") == 1

    def dead(*_: Any) -> float:
        raise NotMeasured("the server died")

    with pytest.raises(NotMeasured):
        calibrate.calibrate(cpu(host()), host(), 12, dead)


# ---------------------------------------------------------------------------------------------
# What another machine says of itself
# ---------------------------------------------------------------------------------------------


def test_the_description_of_another_machine() -> None:
    files = {
        "index0/type": "Data",
        "index0/size": "64K",
        "index0/level": "1",
        "index0/ways_of_associativity": "4",
        "index0/shared_cpu_list": "0",
        "index0/coherency_line_size": "128",
        "index1/type": "Instruction",
        "index1/size": "64K",
        "index2/type": "Unified",
        "index2/size": "1024K",
        "index2/level": "2",
        "index2/shared_cpu_list": "0-3",
        "index3/type": "Unified",
        "index3/size": "8192K",
        "index3/level": "3",
        "index3/shared_cpu_list": "0-3",
        "cpufreq/cpuinfo_max_freq": "2500000",
    }

    def read(place: Path) -> str:
        return files.get(f"{place.parent.name}/{place.name}", "")

    there = System("skylake-avx512", 4, 3, read)
    target = {"kind": "llvm", "mcpu": "skylake-avx512"}
    machine = cpu(target, there)
    assert (machine.cores, machine.clock_hz, machine.line) == (3, 2.5e9, 128)
    assert [(each.name, each.bytes, each.ways, each.shared) for each in machine.levels] == [
        ("L1", 65536, 4, False),
        ("L2", 1 << 20, 0, False),
        ("L3", 8 << 20, 0, True),
        ("memory", 0, 0, True),
    ]
    # Of a processor that is not that machine's, nothing is taken from it.
    other = cpu({"kind": "llvm", "mcpu": "cascadelake"}, there)
    assert other.levels[0].bytes == 32 << 10 and other.clock_hz == 3e9


# ---------------------------------------------------------------------------------------------
# What is refused
# ---------------------------------------------------------------------------------------------


def test_what_is_no_tracker_is_said_at_once(tmp_path: Path, capsys: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        refused(tmp_path, ["--tracker", address, "--key", "there"])
        assert f"{address} answers, but is not an RPC tracker" in capsys.readouterr().err
        thread.join()
    # Nobody listens there any more; and on no port of that number.
    for tracker, why in ((address, "start one with"), ("127.0.0.1:99999", "ports are from 1 to")):
        refused(tmp_path, ["--tracker", tracker, "--key", "there"])
        noted = " ".join(capsys.readouterr().err.split())
        assert f"there is no RPC tracker at {tracker}" in noted and why in noted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tracker", "127.0.0.1:9190"], "--tracker and --key go together"),
        (["--key", "there"], "--tracker and --key go together"),
        (["--tracker", "localhost", "--key", "there"], "must be HOST:PORT, not 'localhost'"),
        (["--tracker", "localhost:x", "--key", "there"], "must be HOST:PORT, not 'localhost:x'"),
    ],
)
def test_mistakes(tmp_path: Path, capsys: Any, options: list[str], message: str) -> None:
    refused(tmp_path, options)
    assert message in capsys.readouterr().err


def refused(folder: Path, options: list[str]) -> None:
    assert cli.main(["calibrate", "--out", str(folder / "profile.json"), *options]) == 2
    assert not list(folder.iterdir())
