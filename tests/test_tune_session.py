"""Tuning: what is measured is kept, what cannot be is left out, TVM's tools take the records."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.s_tir import meta_schedule as ms

from fuse_epilogue import cli, tune, workloads
from fuse_epilogue._interrupts import held
from fuse_epilogue.tune import rpc, session
from fuse_epilogue.tune.records import RECORDS
from tuning import (
    TARGET,
    evolution,
    no_process_stays,
    nothing_runs,
    without_intrinsics,
)

pytestmark = [
    pytest.mark.slow,  # many processes
    pytest.mark.usefixtures(without_intrinsics.__name__, no_process_stays.__name__),
]
__all__ = ["no_process_stays", "without_intrinsics"]

FUNC = workloads.matmul(16, 16, 16, activation="relu")
CPU = {"kind": "llvm", "num-cores": 1}
QUICK = ms.runner.EvaluatorConfig(number=1, repeat=2, min_repeat_ms=0)
SMALL: dict[str, Any] = {"batch": 4, "cost_model": "random", "strategy": evolution(16, 1)}


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

    given = SMALL | nothing_runs()
    database = tune.tune(FUNC, TARGET, tmp_path, trials=6, on_trial=on_trial, **given)
    assert [trial.error for trial in trials] == [""] * 6
    assert [(trial.task, trial.number, trial.of) for trial in trials] == [
        ("main", number, 6) for number in range(1, 7)
    ]
    assert written == [1, 2, 3, 4, 5, 6]
    assert_whole(lines_of(tmp_path), 6)
    assert ms.tir_integration.compile_tir(database, FUNC, TARGET) is not None

    # What is there counts; when it is enough, nothing is built.
    before = lines_of(tmp_path)
    tune.tune(FUNC, TARGET, tmp_path, trials=6, on_trial=on_trial, **given)
    assert lines_of(tmp_path) == before
    tune.tune(FUNC, TARGET, tmp_path, trials=8, on_trial=on_trial, **given)
    assert lines_of(tmp_path)[:6] == before
    assert [trial.number for trial in trials[6:]] == [7, 8]


def test_every_function_of_a_module_is_tuned(tmp_path: Path) -> None:
    mod = tvm.IRModule({"second": FUNC, "first": workloads.matmul(8, 16, 16)})
    trials: list[tune.Trial] = []
    given = SMALL | nothing_runs()
    database = tune.tune(mod, TARGET, tmp_path, trials=2, on_trial=trials.append, **given)
    assert [trial.task for trial in trials] == ["first"] * 2 + ["second"] * 2
    assert len(database) == 4
    for func in (FUNC, workloads.matmul(8, 16, 16)):
        alone = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
        assert tune.measured(database, alone) == 2


def test_a_folder_is_of_one_target(tmp_path: Path) -> None:
    given = {"trials": 1, **SMALL, **nothing_runs()}
    one, same, other = (
        tvm.target.Target(each)
        for each in (
            {"kind": "llvm", "num-cores": 1},
            {"num-cores": 1, "kind": "llvm"},
            {"kind": "llvm", "num-cores": 2},
        )
    )
    for target in (one, same):
        assert len(tune.tune(FUNC, target, tmp_path, **given)) == 1
    with pytest.raises(ValueError, match="use another folder"):
        tune.tune(FUNC, other, tmp_path, **given)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"trials": 0}, ValueError, "trials must be at least 1"),
        ({"trials": 2**31}, ValueError, "trials must be at most 1073741824, not 2147483648"),
        ({"trials": 1, "batch": 0}, ValueError, "batch must be at least 1"),
        ({"trials": 1, "batch": 10**30}, ValueError, "batch must be at most"),
        ({"trials": 1, "seed": -5}, ValueError, "seed must be at least 0, not -5"),
        ({"trials": 1, "seed": 10**26}, ValueError, "seed must be at most 4294967295"),
        ({"trials": 1, "servers": -1}, ValueError, "servers must be at least 0"),
        ({"trials": 1, "target": {"kind": "llvm", "num-cores": 0}}, ValueError, "from 1 to"),
        ({"trials": 1, "target": {"kind": "llvm", "num-cores": -2}}, ValueError, "from 1 to"),
        ({"trials": 1, "servers": 1, "runner": "local"}, ValueError, "not both"),
        ({"trials": 1, "target": "llvm"}, ValueError, 'name it, .* {"kind": "llvm", "num-cores"'),
        ({"trials": 1, "target": "c"}, ValueError, "no rules for the target 'c'"),
        ({"trials": 1, "target": {"kind": "cuda", "arch": "sm_90"}}, ValueError, "max_threads_per"),
        ({"trials": 1, "target": "metal"}, ValueError, "no device for the target 'metal'"),
    ],
)
def test_mistakes(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        tune.tune(FUNC, folder=tmp_path, **{"target": TARGET, "cost_model": "random"} | arguments)
    assert not list(tmp_path.iterdir())


def test_a_package_that_is_missing_is_named_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    for missing in ("xgboost", "psutil"):

        def find(name: str, missing: str = missing) -> Any:
            return None if name == missing else found(name)

        monkeypatch.setattr(importlib.util, "find_spec", find)
        with pytest.raises(ImportError, match=f"package {missing}: pip install"):
            tune.tune(FUNC, TARGET, tmp_path, trials=1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((0,), "workers must be an int >= 1: 0"),
        ((1.5,), "workers must be an int >= 1: 1.5"),
        ((1, 0), "seconds must be positive: 0"),
    ],
)
def test_a_builder_that_could_not_build_is_never_made(
    arguments: tuple[Any, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TVM's own is made by halves, and then complains once more when it is collected."""
    monkeypatch.setattr("fuse_epilogue.tune.build.LocalBuilder", lambda **_: pytest.fail("made"))
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        tune.local_builder(*arguments)


# ---------------------------------------------------------------------------------------------
# Stopped in the middle
# ---------------------------------------------------------------------------------------------

IN_TVM = ["generate_design_space", "pre_tuning", "generate_measure_candidates"]


@pytest.mark.parametrize("call", [*IN_TVM, "notify_runner_results", "post_tuning"])
def test_an_interrupt_waits_until_tvm_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """TVM calls Python on threads of its own, and dies of an exception there."""
    real, back = getattr(ms.TuneContext, call), []

    def interrupted(*args: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        found = real(*args)
        back.append(call)
        return found

    monkeypatch.setattr(ms.TuneContext, call, interrupted)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        tune.tune(FUNC, TARGET, tmp_path, trials=1, **SMALL | nothing_runs())
    assert back == [call]
    assert signal.getsignal(signal.SIGINT) is before
    assert_whole(lines_of(tmp_path), 0 if call in IN_TVM else 1)


def test_an_interrupt_is_left_to_who_handles_it() -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        with held():
            os.kill(os.getpid(), signal.SIGINT)
            assert came == []
        assert came == [signal.SIGINT]
        with ThreadPoolExecutor(1) as other:
            other.submit(held().__enter__).result()  # only the main thread may set a handler
    finally:
        signal.signal(signal.SIGINT, before)


# ---------------------------------------------------------------------------------------------
# Functions that MetaSchedule cannot take
# ---------------------------------------------------------------------------------------------


def odd_module() -> tvm.IRModule:
    """One function that was fused before, one without blocks, and one to tune."""
    fused = tvm.s_tir.Schedule(FUNC)
    fused.fuse_reduction_epilogue("matmul")
    lowered = tvm.s_tir.transform.LowerInitBlock()(tvm.IRModule({"main": FUNC}))["main"]
    return tvm.IRModule({"a_fused": fused.mod["main"], "b_lowered": lowered, "c_plain": FUNC})


def test_what_cannot_be_tuned_is_left_out_and_named(tmp_path: Path) -> None:
    given = {"trials": 2, **SMALL, **nothing_runs()}
    left_out: list[tune.LeftOut] = []
    trials: list[tune.Trial] = []
    database = tune.tune(
        odd_module(),
        TARGET,
        tmp_path,
        on_trial=trials.append,
        on_left_out=left_out.append,
        **given,
    )
    assert [trial.task for trial in trials] == ["c_plain"] * 2 and len(database) == 2
    assert [each.task for each in left_out] == ["a_fused", "b_lowered"]
    assert "loops are not in a chain" in left_out[0].reason
    assert "tune before fusing" in left_out[0].reason
    assert "proposes no schedule" in left_out[1].reason
    # Who did not ask gets it as an error, when the others have their trials.
    with pytest.raises(
        ValueError, match=r"(?s)2 of 3 functions.* a_fused: .* b_lowered: "
    ) as error:
        tune.tune(odd_module(), TARGET, tmp_path / "other", **given)
    assert "c_plain" not in str(error.value)
    assert len(tune.open_database(tmp_path / "other")) == 2


def test_a_module_without_functions(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no PrimFunc"):
        tune.tune(tvm.IRModule(), TARGET, tmp_path, trials=1)


def test_the_command_says_what_was_left_out_and_why_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(session, "FuseBest", lambda: evolution(16, 1))
    monkeypatch.setattr(session, "local_builder", lambda cores: nothing_runs()["builder"])
    monkeypatch.setattr(ms.runner, "LocalRunner", type(nothing_runs()["runner"]))
    mod = odd_module()
    del mod["b_lowered"]
    (tmp_path / "mod.json").write_text(tvm.ir.save_json(mod))
    command = ["tune", str(tmp_path / "mod.json"), "--out", str(tmp_path / "out")]
    command += ["--cost-model", "random", "--trials", "1", "--target", json.dumps(CPU)]
    assert cli.main([*command, "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert "loops are not in a chain" in said["a_fused"]["left_out"]
    assert said["c_plain"]["left_out"] is None and said["c_plain"]["measured_s"] > 0
    assert cli.main(command) == 1
    assert "a_fused: left out, MetaSchedule cannot" in capsys.readouterr().out

    def later(*_: Any, on_trial: Any, **__: Any) -> None:
        on_trial(tune.Trial("c_plain", 1, 2, 1e-3, ""))
        raise ValueError("what nobody has seen before")

    real = tune.tune
    monkeypatch.setattr(tune, "tune", later)
    assert cli.main(command) == 1  # not 2: something was done
    assert "stopped: what nobody has seen before" in capsys.readouterr().out

    def removed(*args: Any, on_trial: Any, **options: Any) -> Any:
        def remove(trial: tune.Trial) -> None:
            on_trial(trial)
            shutil.rmtree(tmp_path / "out")

        return real(*args, on_trial=remove, **options)

    monkeypatch.setattr(tune, "tune", removed)
    assert cli.main([*command, "--trials", "3"]) == 1
    assert f"{RECORDS} cannot be written: No such file" in capsys.readouterr().err

    def gone(*_: Any, **__: Any) -> None:
        raise tune.ServersGone("start one")

    monkeypatch.setattr(tune, "tune", gone)
    assert cli.main(command) == 1
    assert "stopped: start one" in capsys.readouterr().out


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


@pytest.mark.full
def test_relax_takes_what_was_tuned(tmp_path: Path) -> None:
    mod = relax_module()
    runner = ms.runner.LocalRunner(evaluator_config=QUICK)
    given = SMALL | {"builder": tune.local_builder(1), "runner": runner}
    database = tune.tune(mod, TARGET, tmp_path, trials=2, **given)
    assert len(database) == 2
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
        **nothing_runs(),
        space=tune.space(TARGET),
        strategy=tune.FuseBest(evolution()),
        cost_model=ms.cost_model.RandomModel(seed=1),
        seed=1,
    )
    records = database.get_all_tuning_records()
    assert len(records) == 16
    kinds = ["fuse_reduction_epilogue" in str(record.trace) for record in records]
    assert True in kinds and False in kinds

    # One of each kind, in the module, computes the same.
    x, w, b = (np.random.default_rng(n).normal(size=s) for n, s in enumerate([(8, 16), (16, 8), 8]))
    arrays = [tvm.runtime.tensor(each.astype("float32")) for each in (x, w, b)]
    for kind in (True, False):
        one = ms.database.MemoryDatabase()
        best = next(r for r, fused in zip(records, kinds, strict=True) if fused == kind)
        workload = one.commit_workload(best.workload.mod)
        one.commit_tuning_record(
            ms.database.TuningRecord(best.trace, workload, best.run_secs, TARGET, best.args_info)
        )
        built = ms.relax_integration.compile_relax(one, mod, TARGET, params={})
        found = relax.VirtualMachine(built, tvm.cpu())["main"](*arrays).numpy()
        np.testing.assert_allclose(found, np.maximum(x @ w + b, 0), rtol=1e-5, atol=1e-5)


def test_a_process_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "_ANSWER", 0)
    read, write = os.pipe()
    with os.fdopen(read, "rb") as reader:
        silent = SimpleNamespace(_reader=reader, send=lambda *_: None, recv=reader.read)
        with pytest.raises(RuntimeError, match="did not answer .* a relative path in PYTHONPATH"):
            rpc._end_with_this_process(silent)
        os.close(write)
        rpc._end_with_this_process(silent)
