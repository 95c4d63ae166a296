"""Calibrating the planner on machines behind TVM's RPC, with servers that are killed."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from tvm.s_tir.meta_schedule.runner import RunnerResult

from fuse_epilogue import _rpc, cli, tune
from fuse_epilogue.planner import Profile
from fuse_epilogue.planner.machines.cpu import cpu
from fuse_epilogue.planner.machines.system import System, here
from fuse_epilogue.planner.measurement import remote
from fuse_epilogue.planner.measurement.measure import SAMPLES
from fuse_epilogue.planner.measurement.measurement_log import NotMeasured
from fuse_epilogue.planner.measurement.remote import Remote
from fuse_epilogue.schedules import host
from test_tune_calibrate import POINT, refused, rows, small
from tuning import kill, no_process_stays

pytestmark = [
    pytest.mark.slow,  # many processes
    pytest.mark.full,
    pytest.mark.usefixtures(no_process_stays.__name__),
]
__all__ = ["no_process_stays", "small"]


@pytest.fixture(scope="module")
def started(no_process_stays: Any) -> Iterator[tune.Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        # Another machine than this one: its loops run on one thread.
        patch.setenv("TVM_NUM_THREADS", "1")
        with tune.Cluster(2, key="there") as cluster:
            yield cluster


@pytest.fixture
def cluster(started: tune.Cluster, monkeypatch: pytest.MonkeyPatch) -> tune.Cluster:
    """Two servers, whatever the test before has done to them."""
    monkeypatch.setenv("TVM_NUM_THREADS", "1")
    started.watch()
    started._wait_for_all()
    return started


@pytest.fixture(scope="module")
def connected(started: tune.Cluster) -> Remote:
    return Remote("127.0.0.1", started.port, started.key, wait=600)


@pytest.fixture
def there(cluster: tune.Cluster, connected: Remote) -> Remote:
    """One for all, since its processes take seconds to start."""
    return connected


@pytest.mark.usefixtures("small")
def test_a_profile_of_a_machine_behind_a_tracker(
    cluster: tune.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("TVM_NUM_THREADS", "2")
    out = tmp_path / "profile.json"
    tracker = f"127.0.0.1:{cluster.port}"
    cli.main(
        ["calibrate", "--out", str(out), "--points", "4", "--tracker", tracker, "--key", "there"]
    )
    profile = Profile.from_json(out.read_text())
    assert profile.machine.name == here().cpu and profile.machine.cores == 1
    assert len(profile.residuals) == 4
    assert profile.machine.clock_hz != cpu(host(1)).clock_hz
    assert f"{profile.machine}: " in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [out]


def test_a_server_killed_while_it_measures_costs_that_point_only(
    cluster: tune.Cluster, there: Remote
) -> None:
    failed: list[str] = []

    def long() -> None:
        try:
            there.measure(rows(), POINT, there.target, 600.0)
        except NotMeasured as error:
            failed.append(str(error))

    assert there.measure(rows(), POINT, there.target) > 0
    until(lambda: not any(sessions(server) for server in cluster.processes))
    thread = threading.Thread(target=long)
    thread.start()
    until(lambda: any(busy(server) for server in cluster.processes))
    kill(next(server for server in cluster.processes if busy(server)))
    thread.join(600)
    assert len(failed) == 1 and rows().space.describe(POINT) in failed[0]
    # The other one goes on.
    assert there.measure(rows(), POINT, there.target) > 0


def sessions(server: int) -> list[psutil.Process]:
    """The processes of a server that serve somebody."""
    return psutil.Process(server).children(recursive=True)


def busy(server: int) -> bool:
    """Whether a server has begun to measure: one that is connected to only is replaced by TVM."""
    return any(each.cpu_times().user > 0.3 for each in sessions(server))


def until(true: Callable[[], bool]) -> None:
    """Wait for something that other processes do."""
    end = time.monotonic() + 600
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("runner", ["made before", "yet to be made"])
def test_a_server_that_comes_back_is_waited_for(
    runner: str, cluster: tune.Cluster, there: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    if runner == "made before":
        assert there.measure(rows(), POINT, there.target) > 0
    else:
        there._runners.pop(SAMPLES, None)
    for server in cluster.processes:
        kill(server)
    check, checked = _rpc.Present.check, itertools.count()

    def comes_back(present: _rpc.Present) -> None:
        check(present)
        if next(checked) == 1:  # it has begun to wait
            assert cluster.watch() == 2

    monkeypatch.setattr(_rpc.Present, "check", comes_back)
    assert there.measure(rows(), POINT, there.target) > 0


def test_without_any_server_it_ends(
    cluster: tune.Cluster, there: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_rpc, "_LOOK_S", 0.05)
    monkeypatch.setattr(remote, "_LOOK", 0.05)
    monkeypatch.setattr(there, "_wait", 0.1)
    there.measure(rows(), POINT, there.target)
    for server in cluster.processes:
        kill(server)
    for least in (0.0, 0.3):  # a runner that waits, and one that is yet to be made
        with pytest.raises(_rpc.ServersGone, match="there is no server .* any more: start one"):
            there.measure(rows(), POINT, there.target, least)


def test_the_machine_there_is_described_and_its_least_time_taken(there: Remote) -> None:
    # A session that is left open would have kept the server from it.
    assert there.system.caches == here().caches
    assert there.system.cpu == here().cpu

    class Runner:
        def run(self, given: Any) -> list[Any]:
            result = RunnerResult([3e-3, 2e-3, 4e-3], None)
            return [SimpleNamespace(done=lambda: True, result=lambda: result) for _ in given]

    there._runners[SAMPLES], real = Runner(), there._runners.pop(SAMPLES, None)
    try:
        assert there.measure(rows(), POINT, there.target) == 2e-3
    finally:
        del there._runners[SAMPLES]
        if real is not None:
            there._runners[SAMPLES] = real


def test_servers_of_a_key_are_of_one_kind(
    cluster: tune.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = remote._asked

    def other(session: Any, name: str) -> Any:
        system, triple = asked(session, name)
        return System("skylake-avx512", system.processors, system.threads, system.read), triple

    monkeypatch.setattr(remote, "_asked", other)
    there = Remote("127.0.0.1", cluster.port, cluster.key)
    with pytest.raises(NotMeasured, match="give each kind of machine a key of its own"):
        there.measure(rows(), POINT, there.target)


def test_no_server_of_that_key(cluster: tune.Cluster, tmp_path: Path, capsys: Any) -> None:
    refused(tmp_path, ["--tracker", f"127.0.0.1:{cluster.port}", "--key", "other"])
    assert "has no server with the key 'other'" in capsys.readouterr().err
