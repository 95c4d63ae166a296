"""A convolution's forms as steps of a trace: recorded, stored and replayed."""

from __future__ import annotations

import sys
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import s_tir
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

import fuse_epilogue
from conv_traces import (
    CONV,
    FORMS,
    FUNCTIONS,
    IN_ROWS,
    machine_target,
    read,
    ready,
    replayed,
    scheduled,
    steps,
)
from fuse_epilogue import schedules
from fuse_epilogue.rewrites.step import rewrite
from fuse_epilogue.workloads import depthwise_conv1d

# ---- Replayed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_trace_replays_on_the_function_as_it_is(name: str, form: str) -> None:
    func = FUNCTIONS[name]
    made = scheduled(name, form)
    impossible = form == "rows" and name in ("stride", "channels last")
    assert bool(made) != impossible
    for sch in made:
        again = replayed(sch, func)
        tvm.ir.assert_structural_equal(again.mod, sch.mod)
        assert str(again.trace) == str(sch.trace)
        # What TVM's own check of a state says behind one more primitive.
        again.annotate(again.get_sblock("root"), "checked", 1)


def test_the_steps_are_named_with_their_parameters() -> None:
    (rows,) = {tuple(steps(sch)) for sch in scheduled("relu", "rows")}
    assert rows == ("fuse_epilogue.rows(lanes=16, stream=0, parallel=1)",)
    (tiles,) = {tuple(steps(sch)) for sch in scheduled("relu", "tiles")}
    assert tiles == ("fuse_epilogue.borders(channel=1, rolled=1)",)
    assert not any(steps(sch) for sch in scheduled("relu", "elements"))
    for form in FORMS:
        for sch in scheduled("made by Relax", form):
            assert steps(sch)[0] == "fuse_epilogue.prepare()"


def test_fusing_is_a_step_of_its_own() -> None:
    for sch in scheduled("relu", "rows"):
        kinds = [inst.kind.name for inst in sch.trace.insts]
        assert kinds[-2:] == ["FuseReductionEpilogue", "Tensorize"]


def test_the_printed_trace_runs() -> None:
    for form in FORMS:
        sch = scheduled("made by Relax", form)[-1]
        again = Schedule(FUNCTIONS["made by Relax"])
        namespace: dict[str, Any] = {"s_tir": s_tir}
        exec(str(sch.trace), namespace)
        namespace["apply_trace"](again)
        tvm.ir.assert_structural_equal(again.mod, sch.mod)


def test_simplified() -> None:
    sch = scheduled("relu", "tiles")[-1]
    sch.get_sblock("root")  # used by nothing
    short = sch.trace.simplified(remove_postproc=True)
    assert len(short.insts) < len(sch.trace.insts)
    assert str(short.insts[-1].attrs[0]) == steps(sch)[-1]
    again = Schedule(CONV)
    short.apply_to_schedule(again, remove_postproc=False)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)


def test_a_plan_gives_a_schedule_with_its_trace() -> None:
    plan = fuse_epilogue.plan(CONV, machine_target())
    for taken in (CONV, Schedule(CONV)):
        sch = plan.apply(taken)
        assert sch.trace.insts
        tvm.ir.assert_structural_equal(replayed(sch, CONV).mod, sch.mod)


@pytest.mark.parametrize("w", [70, "w"], ids=["numbers", "a symbol"])
@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"layout": "NWC"}], ids=str)
def test_the_rule_keeps_the_trace(options: dict[str, Any], w: Any) -> None:
    func = depthwise_conv1d(2, 8, w, 3, activation="silu", **options)
    sch = schedules.cpu.DepthwiseConv1d().apply(func, machine_target())
    assert sch is not None
    assert str(sch.trace).count("# needs the package fuse_epilogue:") == 1
    # In rows the writer of the code has done it.
    assert ("fuse_epilogue.vector_functions()" in steps(sch)) == (
        not steps(sch)[0].startswith("fuse_epilogue.rows")
    )
    tvm.ir.assert_structural_equal(replayed(sch, func).mod, sch.mod)


def test_apply_returns_what_the_trace_makes() -> None:
    func = depthwise_conv1d(2, 8, 70, 3, activation="silu", stride=2)
    _, sch, _ = schedules._planned(func, machine_target())
    assert sch is not None
    assert steps(sch)[-1] == "fuse_epilogue.vector_functions()"
    made = schedules.apply(func, machine_target())["main"].without_attr("tirx.is_scheduled")
    assert "T.sigmoid" not in made.script()
    tvm.ir.assert_structural_equal(replayed(sch, func).mod["main"], made)


# ---- In other processes and threads --------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("form", ["rows", "tiles"])
def test_a_new_process_replays_it(form: str, tmp_path: Path) -> None:
    done = read(tmp_path, scheduled("relu", form)[-1], CONV, "import fuse_epilogue")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the same\n"


@pytest.mark.full
@pytest.mark.parametrize("name", ["relu", "nothing follows"])
@pytest.mark.parametrize("form", ["rows", "tiles"])
def test_without_the_package_tvm_names_what_it_lacks(name: str, form: str, tmp_path: Path) -> None:
    sch = scheduled(name, form)[-1]
    done = read(tmp_path, sch, FUNCTIONS[name], "")
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    lacks = steps(sch)[0] if name == "nothing follows" else "the Python package fuse_epilogue"
    assert lacks in last and "is not registered" in last


def test_replay_from_several_threads() -> None:
    made = [sch for form in FORMS for sch in scheduled("relu", form)]

    def replay(number: int) -> None:
        sch = made[number % len(made)]
        fresh = Schedule(CONV)
        sch.trace.apply_to_schedule(fresh, remove_postproc=False)
        tvm.ir.assert_structural_equal(fresh.mod, sch.mod)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(replay, range(12))) == [None] * 12


def test_threads_of_meta_schedule_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not Python's, and run Python to write the code."""
    # A context imports all of TVM's tensor intrinsics, which takes seconds; none is used here.
    intrinsics = "tvm.s_tir.tensor_intrin"
    if intrinsics not in sys.modules:
        monkeypatch.setitem(sys.modules, intrinsics, types.ModuleType(intrinsics))

    def space(sch: Schedule) -> None:
        sch.compute_inline("pad")
        conv = sch.get_sblock("conv")
        sch.fuse_reduction_epilogue(conv)
        rewrite(sch, conv, "rows", **IN_ROWS)

    mod = tvm.IRModule({"main": CONV.with_attr("global_symbol", "main")})
    context = ms.TuneContext(
        mod=mod,
        target=machine_target(),
        space_generator=ms.space_generator.ScheduleFn(
            space, sch_rules=[], postprocs=[], mutator_probs={}
        ),
        search_strategy=ms.search_strategy.ReplayTrace(max_fail_count=1),
        task_name="rows",
        num_threads=2,
        rand_state=1,
    )
    context.pre_tuning(4, 4, context.generate_design_space())
    by_hand = Schedule(mod)
    space(by_hand)
    candidates = context.generate_measure_candidates()
    assert len(candidates) == 4
    for candidate in candidates:
        tvm.ir.assert_structural_equal(candidate.sch.mod, by_hand.mod)


# ---- Schedules and random variables --------------------------------------------------------------


def test_which_random_variables_stay_valid() -> None:
    func = depthwise_conv1d(2, 4, 70, 3, activation="silu")
    sch, conv = ready(func)
    root, loop = sch.get_sblock("root"), sch.get_loops(conv)[0]
    tail = sch.get_child_blocks(root)[-1]
    sigmoid, name = sch.get(tail), sch.get(tail).name_hint
    rewrite(sch, root, "vector_functions")
    assert sch.get(conv).name_hint == "conv" and sch.get(root).name_hint == "root"
    assert sch.get(tail).name_hint == name and not sch.get(tail).same_as(sigmoid)
    assert sch.get(loop).same_as(sch.get(sch.get_loops(conv)[0]))
    rewrite(sch, conv, "rows", **IN_ROWS)
    assert sch.get(root).name_hint == "root"
    for gone in (conv, tail, loop):
        with pytest.raises((ValueError, IndexError), match="(?i)expired|not exist|no longer"):
            sch.get(gone)


def test_what_changes_nothing_is_not_recorded() -> None:
    sch, _ = ready(CONV)
    root = sch.get_sblock("root")
    module, trace = sch.mod, str(sch.trace)
    rewrite(sch, root, "vector_functions")
    rewrite(sch, root, "prepare")
    assert sch.mod.same_as(module) and str(sch.trace) == trace


def test_a_copy_goes_its_own_way() -> None:
    sch, conv = ready(CONV)
    before = sch.mod
    copy = sch.copy()
    rewrite(copy, conv, "rows", **IN_ROWS)
    assert sch.mod.same_as(before) and not steps(sch)
    assert sch.get(conv).name_hint == "conv"
    rewrite(sch, conv, "rows", **IN_ROWS)
    tvm.ir.assert_structural_equal(copy.mod, sch.mod)


def test_without_a_trace() -> None:
    sch, conv = ready(CONV)
    plain = Schedule._create_non_traced(sch.mod)
    rewrite(plain, plain.get_sblock("conv"), "rows", **IN_ROWS)
    rewrite(sch, conv, "rows", **IN_ROWS)
    assert plain.trace is None
    tvm.ir.assert_structural_equal(plain.mod, sch.mod)


def test_a_module_with_several_functions() -> None:
    functions = {"first": CONV, "second": FUNCTIONS["stride"]}
    mod = tvm.IRModule({n: f.with_attr("global_symbol", n) for n, f in functions.items()})
    sch = Schedule(mod, debug_mask="all")
    conv = sch.get_sblock("conv", func_name="first")
    sch.compute_inline(sch.get_sblock("pad", func_name="first"))
    sch.fuse_reduction_epilogue(conv)
    rewrite(sch, conv, "rows", **IN_ROWS)
    alone = Schedule(mod["first"])
    alone.compute_inline("pad")
    alone.fuse_reduction_epilogue("conv")
    rewrite(alone, alone.get_sblock("conv"), "rows", **IN_ROWS)
    tvm.ir.assert_structural_equal(sch.mod["first"], alone.mod["main"])
    assert sch.mod["second"].same_as(mod["second"])
    again = Schedule(mod)
    sch.trace.apply_to_schedule(again, remove_postproc=False)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)
