"""Tuning with TVM's RPC on this machine, with processes that are killed: no measurement is lost."""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import tvm

from fuse_epilogue import _rpc, cli, tune, workloads
from fuse_epilogue.cli.tune import _remote_target
from fuse_epilogue.schedules import host
from fuse_epilogue.tune.records import CUT, RECORDS
from test_tune_session import CPU, FUNC, QUICK, SMALL, assert_whole, lines_of
from tuning import (
    TARGET,
    WITHOUT_INTRINSICS,
    HereBuilder,
    kill,
    no_process_stays,
    nothing_runs,
    without_intrinsics,
)

pytestmark = [
    pytest.mark.slow,  # many processes
    pytest.mark.full,
    pytest.mark.usefixtures(without_intrinsics.__name__, no_process_stays.__name__),
]
__all__ = ["no_process_stays", "without_intrinsics"]


@pytest.fixture(scope="module")
def started(no_process_stays: Any) -> Iterator[tune.Cluster]:
    with tune.Cluster(2) as cluster:
        port = cluster.port
        yield cluster
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
    cluster.close()


@pytest.fixture
def cluster(started: tune.Cluster) -> tune.Cluster:
    """Two servers, whatever the test before has done to them."""
    started.watch()
    started._wait_for_all()
    return started


def test_everything_listens_on_the_loopback(
    cluster: tune.Cluster, no_process_stays: Callable[[], list[Any]]
) -> None:
    addresses = {
        connection.laddr.ip
        for process in no_process_stays()
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    assert addresses == {"127.0.0.1"}


def test_no_server_of_that_key(cluster: tune.Cluster) -> None:
    with pytest.raises(ValueError, match="has no server with the key 'other'"):
        tune.rpc_runner("127.0.0.1", cluster.port, "other", 1)


def test_mistakes_about_servers() -> None:
    for servers in (0, -1):
        with pytest.raises(ValueError, match="at least 1"):
            tune.Cluster(servers)
        with pytest.raises(ValueError, match="at least 1"):
            tune.rpc_runner("127.0.0.1", 9190, "this", servers)
    with pytest.raises(ValueError, match="at most 808, not 900: each needs a port of its own"):
        tune.Cluster(900)
    # An address for documents: no machine has it.
    with pytest.raises(ValueError, match="'203.0.113.7' is not an address of this machine"):
        tune.Cluster(host="203.0.113.7")


def test_no_port_is_bound_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that start at once could both bind a port that may be reused; then one cannot listen."""

    class AskedFor(Exception):
        pass

    def start(*_: Any, **options: Any) -> None:
        raise AskedFor(options)

    monkeypatch.setattr("tvm.rpc.tracker.Tracker", start)
    with pytest.raises(AskedFor, match="'reuse_addr': False"):
        tune.Cluster(1)


def test_a_killed_server_costs_its_measurement_only(cluster: tune.Cluster, tmp_path: Path) -> None:
    trials: list[tune.Trial] = []
    first = cluster.processes

    def on_trial(trial: tune.Trial) -> None:
        trials.append(trial)
        if trial.number == 2:  # others of the batch are being measured
            kill(first[0])

    tune.tune(
        FUNC,
        TARGET,
        tmp_path,
        trials=6,
        builder=HereBuilder(),
        runner=cluster.runner(evaluator=QUICK),
        watch=cluster.watch,
        on_trial=on_trial,
        **SMALL,
    )
    cluster.watch()
    assert len(cluster.processes) == 2
    assert cluster.processes[1] == first[1] and cluster.processes[0] != first[0]
    failed = [trial for trial in trials if trial.error]
    assert len(trials) == 6
    assert len(failed) <= 1
    assert_whole(lines_of(tmp_path), 6 - len(failed))


def test_a_module_is_tuned_on_a_tracker_by_one_command(
    cluster: tune.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Two functions, on two servers, of which one goes."""
    real, ran = tune.tune, []

    def quick(*given: Any, on_trial: Any, runner: Any, **options: Any) -> Any:
        assert runner.pool._threadpool._max_workers == 2

        def both(trial: tune.Trial) -> None:
            ran.append(trial)
            if len(ran) == 1:
                kill(cluster.processes[0])
            on_trial(trial)

        runner = tune.rpc_runner(cluster.host, cluster.port, cluster.key, 2, evaluator=QUICK)
        small = {"strategy": SMALL["strategy"], "builder": HereBuilder(), "runner": runner}
        return real(*given, on_trial=both, **options | small)

    monkeypatch.setattr(tune, "tune", quick)
    mod = tvm.IRModule({"one": workloads.matmul(8, 8, 8), "two": workloads.matmul(8, 4, 8)})
    (tmp_path / "m.json").write_text(tvm.ir.save_json(mod))
    tracker = ["--tracker", f"{cluster.host}:{cluster.port}", "--key", cluster.key]
    # Without --target it is that of the servers; TVM's rules for it need its intrinsics.
    named = argparse.Namespace(tracker=tracker[1], key=cluster.key, target="host")
    assert _remote_target(named, None).attrs["mcpu"] == host().attrs["mcpu"]
    tracker += ["--target", '{"kind": "llvm", "num-cores": 2}']
    command = ["tune", str(tmp_path / "m.json"), "--out", str(tmp_path / "tuned"), *tracker]
    code = cli.main([*command, "--servers", "2", "--trials", "3", "--cost-model", "random"])
    said, noted = capsys.readouterr()
    assert code == 0, noted
    assert {trial.task for trial in ran} == {"one", "two"}
    assert re.search(r"^one: .* us measured", said) and re.search(r"\ntwo: .* us measured", said)
    assert sum(trial.seconds is None for trial in ran) <= 1


def test_without_any_server_it_stops_and_goes_on(
    cluster: tune.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_rpc, "_LOOK_S", 0.05)
    trials: list[tune.Trial] = []

    def on_trial(trial: tune.Trial) -> None:
        trials.append(trial)
        if trial.number == 1:
            for server in cluster.processes:
                kill(server)

    given = SMALL | {"trials": 4, "wait": 0.1, "builder": HereBuilder()}
    runner = tune.rpc_runner(cluster.host, cluster.port, cluster.key, 1, evaluator=QUICK)
    given["runner"] = runner
    (waiting,) = [worker._proc for worker in runner.pool._worker_map.values()]
    with pytest.raises(tune.ServersGone, match="there is no server .* start one, and run the same"):
        tune.tune(FUNC, TARGET, tmp_path, on_trial=on_trial, **given)
    assert waiting.poll() is not None  # else this process would wait for it at its end
    kept = lines_of(tmp_path)
    assert_whole(kept, sum(trial.seconds is not None for trial in trials))
    cluster.watch()
    # The same runner, too.
    assert len(tune.tune(FUNC, TARGET, tmp_path, **given | {"wait": 600})) == 4
    assert lines_of(tmp_path)[: len(kept)] == kept


def test_a_dead_tracker_is_said(cluster: tune.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster._tracker, "proc", SimpleNamespace(is_alive=lambda: False))
    with pytest.raises(tune.ServersGone, match="tracker on port .* has died"):
        cluster.watch()


PROGRAM = (
    WITHOUT_INTRINSICS
    + """
import tvm
from tvm.s_tir import meta_schedule as ms
from fuse_epilogue import tune, workloads
from tuning import HereBuilder

tune.tune(
    workloads.matmul(16, 16, 16, activation="relu"),
    tvm.target.Target({"kind": "llvm", "num-cores": 1}),
    sys.argv[1],
    trials=100,
    servers=1,
    batch=3,
    builder=HereBuilder(),
    cost_model="random",
    strategy=ms.search_strategy.EvolutionarySearch(
        population_size=16, init_min_unmeasured=8, genetic_num_iters=1
    ),
    on_trial=lambda trial: print(trial.number, trial.error.strip(), flush=True),
    watch=lambda: print(end="w"),
)
"""
)


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    program, folder = tmp_path / "program.py", tmp_path / "tuned"
    program.write_text(PROGRAM)
    target = tvm.target.Target(CPU)
    given = SMALL | nothing_runs()
    command = [sys.executable, str(program), str(folder)]
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as run:
        assert run.stdout is not None
        try:
            reported = [run.stdout.readline().strip() for _ in range(3)]
            helpers = psutil.Process(run.pid).children(recursive=True)
            # Two would give their functions the same numbers.
            with pytest.raises(ValueError, match=f"'{folder}' is in use: another process"):
                tune.tune(FUNC, target, folder, trials=1, **given)
            with pytest.raises(ValueError, match="take another folder"):
                tune.open_database(folder)
        finally:
            run.kill()
    # What is called besides looking after the servers wrote in front of them.
    assert [line.strip("w") for line in reported] == ["1", "2", "3"]
    assert any(line.startswith("w") for line in reported)
    # Tracker, server and what asks them end by themselves.
    assert len(helpers) >= 3
    assert not psutil.wait_procs(helpers, 120)[1]

    lines = lines_of(folder)
    assert len(lines) >= 3
    whole = [line for line in lines if line.endswith(b"\n")]
    with open(folder / RECORDS, "wb") as file:  # killed while it wrote one more
        file.write(b"".join(whole) + whole[0][:50])
    numbers: list[int] = []
    total = len(whole) + 3
    tune.tune(
        FUNC,
        target,
        folder,
        trials=total,
        on_trial=lambda trial: numbers.append(trial.number),
        **given,
    )
    assert numbers == list(range(len(whole) + 1, total + 1))
    after = lines_of(folder)
    assert after[: len(whole)] == whole
    assert len(after) == total
    assert all(json.loads(line) for line in after)
    assert (folder / (RECORDS + CUT)).read_bytes() == whole[0][:50] + b"\n"
