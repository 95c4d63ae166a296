"""Kernels chosen by the clock, and kept by function in a database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te

import fuse_epilogue
from fuse_epilogue import workloads
from fuse_epilogue.models import Database, DatabaseError
from fuse_epilogue.planner.measurement.profile import own_profile
from fuse_epilogue.schedules import host
from fuse_epilogue.transform import ScheduleModule, chosen, schedules_of, timed
from test_models_saved import layer
from test_transform_schedule_module import layer as layers
from test_transform_schedule_module import lowered


def indexed() -> tvm.IRModule:
    """Rows of a table, by indices that are read and divided."""
    table = te.placeholder((1, 64), "float32", "table")
    at = te.placeholder((5,), "int32", "at")
    out = te.compute((5, 64), lambda i, j: table[at[i], j] * 2.0)
    return tvm.IRModule({"main": te.create_prim_func([table, at, out])})


def test_functions_are_chosen_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way that the clock says is the fastest, whatever was predicted."""
    mod = tvm.IRModule({"main": workloads.matmul(16, 16, 16, activation="relu")})
    took = {"row program": 1.0, "contraction": 2.0, "default": 3.0, "product": 4.0}
    kinds: list[str] = []
    ways = timed._ways

    def noted(choice: Any) -> Any:
        for way in ways(choice):
            kinds.append(way.kind)
            yield way

    monkeypatch.setattr(timed, "_ways", noted)
    monkeypatch.setattr(timed, "_once", lambda *_: 1.0)
    turns: list[None] = []

    def seconds(*_: Any) -> float:
        turns.append(None)
        return took[kinds[(len(turns) - 1) % len(kinds)]]

    monkeypatch.setattr(timed, "seconds", seconds)
    for best, fastest in ((0.5, "product"), (0.4, "contraction"), (0.3, "default")):
        kinds.clear()
        turns.clear()
        took[fastest] = best
        (report,) = schedules_of(ScheduleModule(host(1), measure=100.0)(mod)) or ()
        assert kinds[:2] == ["contraction", "default"] and len(kinds) > 3
        assert report.kind == fastest
        assert report.why == (timed.FASTER if fastest == "default" else "")
        took[fastest] = 3.0


def test_a_gain_within_the_noise_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    mod = tvm.IRModule({"main": workloads.matmul(16, 16, 16)})
    times = iter([1.0, 0.99] * 100)
    monkeypatch.setattr(timed, "_once", lambda *_: 1.0)
    monkeypatch.setattr(timed, "seconds", lambda *_: next(times))
    ways = timed._ways
    monkeypatch.setattr(timed, "_ways", lambda choice: list(ways(choice))[:2])
    (report,) = schedules_of(ScheduleModule(host(1), measure=100.0)(mod)) or ()
    assert (report.kind, report.trials, report.predicted_s) == ("contraction", 2, 1.0)


@pytest.fixture
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget lasts for everything, whatever else the machine does."""
    monkeypatch.setattr(timed, "perf_counter", lambda: 0.0)


@pytest.mark.usefixtures("no_hurry")
def test_a_measured_model_computes_the_same() -> None:
    mod = layer()
    x = np.random.default_rng(1).standard_normal((4, 8)).astype("float32")
    steps: list[tuple[int, int]] = []
    made = fuse_epilogue.compile(
        mod, host(1), measure=1.5, on_progress=lambda *step: steps.append(step)
    )
    np.testing.assert_allclose(made(x), fuse_epilogue.compile(mod, host(1))(x), rtol=0, atol=1e-5)
    assert any(each.trials > 1 for each in made.report.functions)
    assert " ways" in str(made.report) and "<th>timed</th>" in made.report._repr_html_()
    (count,) = {of for _, of in steps}
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert steps[-1] == (count, count) and count % 2 == 0


@pytest.mark.usefixtures("no_hurry")
def test_indices_that_are_made_up_are_inside() -> None:
    mod = indexed()
    schedule = ScheduleModule(host(1), measure=0.2)
    assert schedules_of(schedule(mod)) is not None
    for each in timed._arrays(mod["main"], mod["main"]):
        assert not each.numpy().any()


@pytest.mark.parametrize(
    ("measure", "error"), [(0, ValueError), (-1.0, ValueError), (True, TypeError), ("1", TypeError)]
)
def test_budgets_that_are_none(measure: Any, error: type) -> None:
    with pytest.raises(error, match="measure must be a number of seconds above 0"):
        fuse_epilogue.compile(layer(), measure=measure)
    with pytest.raises(ValueError, match="cannot be timed on this machine"):
        fuse_epilogue.compile(
            layer(), {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}, measure=1.0
        )


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The functions that are planned, in order."""
    found: list[Any] = []
    by_prediction = chosen.by_prediction

    def noted(work: Any) -> Any:
        found.append(work)
        return by_prediction(work)

    monkeypatch.setattr("fuse_epilogue.transform.schedule_module.by_prediction", noted)
    return found


def test_equal_functions_are_planned_once_and_never_again(
    tmp_path: Path, planned: list[Any]
) -> None:
    rng = np.random.default_rng(0)
    mod = lowered(layers(rng))
    plans = Database(tmp_path)
    before = ScheduleModule(host(1), plans=plans)(mod)
    functions = [f for f in mod.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
    assert 0 < len(planned) <= len(functions) and len(plans) == len(planned)
    count = len(planned)
    # Another model with the same layers and other weights.
    other = lowered(layers(rng))
    after = ScheduleModule(host(1), plans=Database(tmp_path))(other)
    assert len(planned) == count
    assert schedules_of(after) == schedules_of(before)
    fresh = ScheduleModule(host(1))(other)
    for var in fresh.functions:
        one, two = fresh[var], after[str(var.name_hint)]
        if isinstance(one, tvm.tirx.PrimFunc):
            assert tvm_ffi.structural_equal(one, two)
    # Other threads, targets and constants are other functions.
    ScheduleModule(host(2), plans=plans)(other)
    assert len(planned) > count


def test_a_machine_that_was_calibrated_again_is_planned_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSE_EPILOGUE_PROFILES", str(tmp_path))
    plans, func, target = Database(tmp_path / "plans"), workloads.matmul(8, 8, 8), host(1)
    plans.put(func, target, "before")
    assert plans.get(func, target) == "before"
    own_profile(str(target.attrs["mcpu"])).write_text("{}")
    assert plans.get(func, target) is None
    # A profile of another processor is none of this one.
    other = tvm.target.Target({"kind": "llvm", "mcpu": "skylake-avx512"})
    plans.put(func, other, "other")
    own_profile("haswell").write_text("{}")
    assert plans.get(func, other) == "other"


@pytest.mark.usefixtures("no_hurry")
def test_what_was_timed_is_preferred(tmp_path: Path, planned: list[Any]) -> None:
    plans, mod = Database(tmp_path), tvm.IRModule({"main": workloads.matmul(8, 8, 8)})
    ScheduleModule(host(1), plans=plans)(mod)
    timed_once = ScheduleModule(host(1), plans=plans, measure=0.3)(mod)
    assert len(planned) == 2
    found = ScheduleModule(host(1), plans=plans)(mod)
    again = ScheduleModule(host(1), plans=plans, measure=0.3)(mod)
    assert len(planned) == 2
    assert schedules_of(found) == schedules_of(again) == schedules_of(timed_once)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "not a scheduled function"),
        ({"kind": "contraction"}, "not a scheduled function .KeyError"),
        ({"func": "{}", "packing": {}}, "not a scheduled function"),
        ({"func": '{"root_index": 0, "nodes": [{"type": "None"}]}'}, "not a scheduled function"),
    ],
)
def test_an_entry_that_is_no_function_is_refused(tmp_path: Path, value: Any, message: str) -> None:
    func = workloads.matmul(8, 8, 8)
    work = chosen.Work(func, host(1), 1, frozenset())
    plans = Database(tmp_path)
    plans.put(func, work.target, value, **chosen._options(work, False))
    with pytest.raises(ValueError, match=f"database .* is damaged: {message}.*; remove it"):
        ScheduleModule(host(1), plans=plans)(tvm.IRModule({"main": func}))


def test_a_damaged_entry_is_refused_by_name(tmp_path: Path) -> None:
    plans, mod = Database(tmp_path), tvm.IRModule({"main": workloads.matmul(8, 8, 8)})
    ScheduleModule(host(1), plans=plans)(mod)
    (file,) = tmp_path.glob("*.json")
    file.write_text(file.read_text().replace('"kind": "contraction"', '"kind": "other"'))
    with pytest.raises(DatabaseError, match=f"{file.name}' is damaged, or was written by"):
        ScheduleModule(host(1), plans=plans)(mod)
