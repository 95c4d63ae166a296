"""Tuning with TVM's RPC on this machine, with processes that are killed: no measurement is lost."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tvm
from tvm import relax
from tvm.s_tir import meta_schedule as ms

from fuse_epilogue import tune, workloads
from fuse_epilogue.tune.records import CUT, RECORDS
from tuning import (
    TARGET,
    WITHOUT_INTRINSICS,
    evolution,
    kill,
    no_process_stays,
    without_intrinsics,
)

pytestmark = [
    pytest.mark.slow,  # many processes
    pytest.mark.usefixtures(without_intrinsics.__name__, no_process_stays.__name__),
]
__all__ = ["no_process_stays", "without_intrinsics"]

FUNC = workloads.matmul(16, 16, 16, activation="relu")
QUICK = ms.runner.EvaluatorConfig(number=1, repeat=2, min_repeat_ms=0)
SMALL: dict[str, Any] = {"batch": 4, "cost_model": "random", "strategy": evolution(16, 1)}


def local() -> ms.runner.LocalRunner:
    return ms.runner.LocalRunner(evaluator_config=QUICK)


def lines_of(folder: Path) -> list[bytes]:
    return (folder / RECORDS).read_bytes().splitlines(keepends=True)


def assert_whole(lines: list[bytes], count: int) -> None:
    """As many records as that, each a whole line with the times of its measurement."""
    assert len(lines) == count
    for line in lines:
        assert line.endswith(b"\n")
        workload, (trace, seconds, *_) = json.loads(line)
        assert workload == 0
        assert trace[0]
        assert len(seconds) == QUICK.repeat and all(0 < s < 10 for s in seconds)


# ---------------------------------------------------------------------------------------------
# In one process
# ---------------------------------------------------------------------------------------------


def test_each_measurement_is_written_before_it_is_reported(tmp_path: Path) -> None:
    written: list[int] = []
    trials: list[tune.Trial] = []

    def on_trial(trial: tune.Trial) -> None:
        trials.append(trial)
        written.append(len(lines_of(tmp_path)))

    database = tune.tune(
        FUNC, TARGET, tmp_path, trials=6, runner=local(), on_trial=on_trial, **SMALL
    )
    assert [trial.error for trial in trials] == [""] * 6
    assert [(trial.task, trial.number, trial.of) for trial in trials] == [
        ("main", number, 6) for number in range(1, 7)
    ]
    assert written == [1, 2, 3, 4, 5, 6]
    assert_whole(lines_of(tmp_path), 6)
    assert ms.tir_integration.compile_tir(database, FUNC, TARGET) is not None

    # What is there counts; when it is enough, nothing is built.
    before = lines_of(tmp_path)
    tune.tune(FUNC, TARGET, tmp_path, trials=6, runner=local(), on_trial=on_trial, **SMALL)
    assert lines_of(tmp_path) == before
    tune.tune(FUNC, TARGET, tmp_path, trials=8, runner=local(), on_trial=on_trial, **SMALL)
    assert lines_of(tmp_path)[:6] == before
    assert [trial.number for trial in trials[6:]] == [7, 8]


def test_every_function_of_a_module_is_tuned(tmp_path: Path) -> None:
    mod = tvm.IRModule({"second": FUNC, "first": workloads.matmul(8, 16, 16)})
    trials: list[tune.Trial] = []
    database = tune.tune(
        mod, TARGET, tmp_path, trials=2, runner=local(), on_trial=trials.append, **SMALL
    )
    assert [trial.task for trial in trials] == ["first"] * 2 + ["second"] * 2
    assert len(database) == 4
    for func in (FUNC, workloads.matmul(8, 16, 16)):
        alone = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
        assert tune.measured(database, alone) == 2


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"trials": 0}, ValueError, "trials must be at least 1"),
        ({"trials": 1, "batch": 0}, ValueError, "batch must be at least 1"),
        ({"trials": 1, "servers": 1, "runner": "local"}, ValueError, "not both"),
    ],
)
def test_mistakes(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        tune.tune(FUNC, TARGET, tmp_path, **arguments)
    assert not list(tmp_path.iterdir())


def test_a_module_without_functions(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no PrimFunc"):
        tune.tune(tvm.IRModule(), TARGET, tmp_path, trials=1)


# ---------------------------------------------------------------------------------------------
# Relax
# ---------------------------------------------------------------------------------------------


def relax_module() -> tvm.IRModule:
    """max(x @ w + b, 0), legalised, as one function of TIR."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8, 16), "float32"))
    w = relax.Var("w", relax.TensorType((16, 8), "float32"))
    b = relax.Var("b", relax.TensorType((8,), "float32"))
    with builder.function("main", [x, w, b]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, w))
            biased = builder.emit(relax.op.add(product, b))
            out = builder.emit_output(relax.op.nn.relu(biased))
        builder.emit_func_output(out)
    fuse = [relax.transform.LegalizeOps(), relax.transform.AnnotateTIROpPattern()]
    fuse += [relax.transform.FuseOps(), relax.transform.FuseTIR()]
    with TARGET:
        return tvm.transform.Sequential(fuse)(builder.get())


def test_relax_takes_what_was_tuned(tmp_path: Path) -> None:
    mod = relax_module()
    database = tune.tune(mod, TARGET, tmp_path, trials=3, runner=local(), **SMALL)
    assert len(database) == 3
    with TARGET, database:
        applied = relax.transform.MetaScheduleApplyDatabase()(mod)
    scheduled = [f for _, f in applied.functions_items() if isinstance(f, tvm.tirx.PrimFunc)]
    assert [func.attrs["tirx.is_scheduled"] for func in scheduled] == [True]


# Once in a process: at a second call TVM's own set-up of loggers fails.
def test_tvms_tune_relax_explores_fused_and_unfused(tmp_path: Path) -> None:
    mod = relax_module()
    database = ms.relax_integration.tune_relax(
        mod,
        {},
        TARGET,
        str(tmp_path),
        max_trials_global=16,
        num_trials_per_iter=8,
        builder=tune.local_builder(2),
        runner=local(),
        space=tune.space(TARGET),
        strategy=tune.FuseBest(evolution()),
        cost_model=ms.cost_model.RandomModel(seed=1),
        seed=1,
    )
    records = database.get_all_tuning_records()
    assert len(records) == 16
    kinds = ["fuse_reduction_epilogue" in str(record.trace) for record in records]
    assert True in kinds and False in kinds

    # The best of each kind, in the module, computes the same.
    x, w, b = (np.random.default_rng(n).normal(size=s) for n, s in enumerate([(8, 16), (16, 8), 8]))
    arrays = [tvm.runtime.tensor(each.astype("float32")) for each in (x, w, b)]
    for kind in (True, False):
        one = ms.database.MemoryDatabase()
        best = min(
            (r for r, fused in zip(records, kinds, strict=True) if fused == kind),
            key=lambda record: float(record.run_secs[0]),
        )
        workload = one.commit_workload(best.workload.mod)
        one.commit_tuning_record(
            ms.database.TuningRecord(best.trace, workload, best.run_secs, TARGET, best.args_info)
        )
        built = ms.relax_integration.compile_relax(one, mod, TARGET, params={})
        found = relax.VirtualMachine(built, tvm.cpu())["main"](*arrays).numpy()
        np.testing.assert_allclose(found, np.maximum(x @ w + b, 0), rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------------------------------------
# Servers
# ---------------------------------------------------------------------------------------------


def test_a_killed_server_costs_its_measurement_only(tmp_path: Path) -> None:
    trials: list[tune.Trial] = []
    with tune.Cluster(2) as cluster:
        first = cluster.processes

        def on_trial(trial: tune.Trial) -> None:
            trials.append(trial)
            if trial.number == 2:  # others of the batch are being measured
                kill(first[0])

        tune.tune(
            FUNC,
            TARGET,
            tmp_path,
            trials=12,
            runner=cluster.runner(evaluator=QUICK, seconds=20),
            watch=cluster.watch,
            on_trial=on_trial,
            **(SMALL | {"batch": 6}),
        )
        assert cluster.watch() == 0
        assert len(cluster.processes) == 2
        assert cluster.processes[1] == first[1] and cluster.processes[0] != first[0]
    failed = [trial for trial in trials if trial.error]
    assert len(trials) == 12
    assert len(failed) <= 1
    assert_whole(lines_of(tmp_path), 12 - len(failed))


def test_everything_listens_on_the_loopback(no_process_stays: Callable[[], list[Any]]) -> None:
    with tune.Cluster(2) as cluster:
        addresses = {
            connection.laddr.ip
            for process in no_process_stays()
            for connection in process.net_connections()
            if connection.status == psutil.CONN_LISTEN
        }
        assert addresses == {"127.0.0.1"}
        port = cluster.port
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
    cluster.close()


def test_a_dead_tracker_is_said() -> None:
    with tune.Cluster(1) as cluster:
        kill(cluster._tracker.proc._proc.pid)
        cluster._tracker.proc._proc.wait(10)
        with pytest.raises(RuntimeError, match="tracker on port .* has died"):
            cluster.watch()


def test_no_server_of_that_key() -> None:
    with (
        tune.Cluster(1, key="this") as cluster,
        pytest.raises(ValueError, match="Unable to find servers"),
    ):
        tune.rpc_runner("127.0.0.1", cluster.port, "other", 1)
    for servers in (0, -1):
        with pytest.raises(ValueError, match="at least 1"):
            tune.Cluster(servers)
        with pytest.raises(ValueError, match="at least 1"):
            tune.rpc_runner("127.0.0.1", 9190, "this", servers)


PROGRAM = (
    WITHOUT_INTRINSICS
    + """
import tvm
from tvm.s_tir import meta_schedule as ms
from fuse_epilogue import tune, workloads

tune.tune(
    workloads.matmul(16, 16, 16, activation="relu"),
    tvm.target.Target({"kind": "llvm", "num-cores": 2}),
    sys.argv[1],
    trials=int(sys.argv[2]),
    servers=1,
    batch=4,
    cost_model="random",
    strategy=ms.search_strategy.EvolutionarySearch(
        population_size=16, init_min_unmeasured=8, genetic_num_iters=1
    ),
    on_trial=lambda trial: print(trial.number, trial.error.strip(), flush=True),
)
"""
)


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    program, folder = tmp_path / "program.py", tmp_path / "tuned"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), str(folder)]
    with subprocess.Popen([*command, "100"], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        try:
            reported = [run.stdout.readline().strip() for _ in range(6)]
            helpers = psutil.Process(run.pid).children(recursive=True)
        finally:
            run.kill()
    assert reported == ["1", "2", "3", "4", "5", "6"]
    # Tracker, server and what compiles end by themselves.
    assert len(helpers) >= 3
    assert not psutil.wait_procs(helpers, 20)[1]

    lines = lines_of(folder)
    assert len(lines) >= 6
    whole = [line for line in lines if line.endswith(b"\n")]
    with open(folder / RECORDS, "wb") as file:  # killed while it wrote one more
        file.write(b"".join(whole) + whole[0][:50])
    total = len(whole) + 3
    done = subprocess.run(
        [*command, str(total)], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(number) for number in range(len(whole) + 1, total + 1)]
    after = lines_of(folder)
    assert after[: len(whole)] == whole
    assert len(after) == total
    assert all(json.loads(line) for line in after)
    assert (folder / (RECORDS + CUT)).read_bytes() == whole[0][:50] + b"\n"


def test_a_folder_is_of_one_target(tmp_path):
    func = workloads.matmul(8, 8, 8)
    given = {"trials": 1, "cost_model": "random"}
    first = tvm.target.Target({"kind": "llvm", "num-cores": 1})
    tune.tune(func, first, tmp_path, **given)
    assert (
        len(tune.tune(func, tvm.target.Target({"num-cores": 1, "kind": "llvm"}), tmp_path, **given))
        == 1
    )
    with pytest.raises(ValueError, match="take another folder"):
        tune.tune(func, tvm.target.Target({"kind": "llvm", "num-cores": 2}), tmp_path, **given)
