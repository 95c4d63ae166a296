"""The call as a step of a trace: recorded, printed, stored, replayed, also from several threads."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import s_tir
from tvm.s_tir import Schedule, Trace
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule.testing import (
    assert_structural_equal_ignore_global_symbol,
    verify_trace_roundtrip,
)
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

import fuse_epilogue


def program(
    rows: int = 8, columns: int = 12, depth: int = 6, epilogue: Callable[..., Any] | None = None
) -> PrimFunc:
    """A product, a bias made by a block of its own, and a residual; the same blocks at any size."""
    last = epilogue or (lambda biased, residual: biased + residual)

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((rows, depth), "int8"),
        B: T.Buffer((columns, depth), "int8"),
        E: T.Buffer((columns,), "int32"),
        R: T.Buffer((rows, columns), "int32"),
        D: T.Buffer((rows, columns), "int32"),
    ):
        C = T.sblock_alloc_buffer((columns,), "int32")
        temp = T.sblock_alloc_buffer((rows, columns), "int32")
        biased = T.sblock_alloc_buffer((rows, columns), "int32")
        for j in range(columns):
            with T.sblock("bias"):
                vj = T.axis.spatial(columns, j)
                C[vj] = E[vj] * 3 + 1
        for i, j, k in T.grid(rows, columns, depth):
            with T.sblock("mm"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    temp[vi, vj] = 0
                temp[vi, vj] += T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
        for i, j in T.grid(rows, columns):
            with T.sblock("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                biased[vi, vj] = temp[vi, vj] + C[vj]
        for i, j in T.grid(rows, columns):
            with T.sblock("residual"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = last(biased[vi, vj], R[vi, vj])

    return main


def relu(biased: Any, residual: Any) -> Any:
    return T.max(biased, residual)


PROGRAM = program()
# The same blocks; only the bias can be absorbed.
WITH_RELU = program(epilogue=relu)


def schedule(func: PrimFunc = PROGRAM) -> Schedule:
    return Schedule(func, debug_mask="all")


def steps(sch: Schedule) -> list[str]:
    """What the trace has recorded, without its heading."""
    lines = [line.strip() for line in str(sch.trace).splitlines()]
    return lines[lines.index("def apply_trace(sch: s_tir.Schedule) -> None:") + 1 :]


def replayed(sch: Schedule, func: PrimFunc = PROGRAM) -> Schedule:
    """The trace of `sch` on a fresh schedule of `func`, by way of JSON text."""
    stored = json.dumps(json.loads(tvm.ir.save_json(sch.trace.as_json())))
    fresh = schedule(func)
    Trace.apply_json_to_schedule(tvm.ir.load_json(stored), fresh)
    return fresh


def scheduled_on(func: PrimFunc) -> Schedule:
    """The fusion among other steps, some of them on the fused block's loops."""
    sch = schedule(func)
    block = sch.get_sblock("mm")
    i, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, [None, 4])
    sch.reorder(i, j0, k, j1)
    sch.fuse_reduction_epilogue(block)
    sch.compute_at(sch.get_sblock("bias"), j0)
    init = sch.decompose_reduction(block, k)
    sch.vectorize(sch.get_loops(init)[-1])
    sch.unroll(k)
    return sch


# ---------------------------------------------------------------------------------------------
# What is recorded
# ---------------------------------------------------------------------------------------------


def test_one_block_by_name() -> None:
    sch = schedule()
    sch.fuse_reduction_epilogue("mm")
    assert steps(sch) == [
        'b0 = sch.get_sblock(name="mm", func_name="main")',
        "sch.fuse_reduction_epilogue(block=b0)",
    ]
    instruction = sch.trace.insts[-1]
    assert instruction.kind.name == "FuseReductionEpilogue"
    assert (len(instruction.inputs), len(instruction.attrs), len(instruction.outputs)) == (1, 0, 0)


def test_the_block_that_was_named_is_recorded() -> None:
    sch = schedule()
    sch.fuse_reduction_epilogue("add")
    assert steps(sch) == [
        'b0 = sch.get_sblock(name="add", func_name="main")',
        "sch.fuse_reduction_epilogue(block=b0)",
    ]
    by_reduction = schedule()
    by_reduction.fuse_reduction_epilogue("mm")
    tvm.ir.assert_structural_equal(sch.mod, by_reduction.mod)


@pytest.mark.parametrize("keyword", ["block", "reduction_block"])
def test_one_block_by_keyword(keyword: str) -> None:
    sch = schedule()
    sch.fuse_reduction_epilogue(**{keyword: "mm"})
    assert steps(sch)[-1] == "sch.fuse_reduction_epilogue(block=b0)"


def test_two_blocks() -> None:
    sch = schedule()
    sch.fuse_reduction_epilogue("mm", "add")
    sch.fuse_reduction_epilogue(reduction_block="mm", epilogue_block="residual")
    assert steps(sch) == [
        'b0 = sch.get_sblock(name="mm", func_name="main")',
        'b1 = sch.get_sblock(name="add", func_name="main")',
        "sch.fuse_reduction_epilogue(reduction_block=b0, epilogue_block=b1)",
        'b2 = sch.get_sblock(name="mm", func_name="main")',
        'b3 = sch.get_sblock(name="residual", func_name="main")',
        "sch.fuse_reduction_epilogue(reduction_block=b2, epilogue_block=b3)",
    ]
    at_once = schedule()
    at_once.fuse_reduction_epilogue("mm")
    tvm.ir.assert_structural_equal(sch.mod, at_once.mod)


def test_random_variables_are_recorded_as_they_are() -> None:
    sch = schedule()
    block, epilogue = sch.get_sblock("mm"), sch.get_sblock("add")
    sch.fuse_reduction_epilogue(block, epilogue)
    # The reduction is the same variable before and after.
    sch.fuse_reduction_epilogue(block)
    assert steps(sch)[2:] == [
        "sch.fuse_reduction_epilogue(reduction_block=b0, epilogue_block=b1)",
        "sch.fuse_reduction_epilogue(block=b0)",
    ]


def test_the_printed_trace_is_a_program() -> None:
    sch = scheduled_on(PROGRAM)
    namespace: dict[str, Any] = {"s_tir": s_tir}
    exec(str(sch.trace), namespace)
    fresh = schedule()
    namespace["apply_trace"](fresh)
    tvm.ir.assert_structural_equal(fresh.mod, sch.mod)
    assert str(fresh.trace) == str(sch.trace)


# ---------------------------------------------------------------------------------------------
# Replay
# ---------------------------------------------------------------------------------------------

# Ways to make a schedule whose trace fuses.
WAYS: dict[str, Callable[[Schedule], Any]] = {
    "reduction": lambda sch: sch.fuse_reduction_epilogue("mm"),
    "epilogue": lambda sch: sch.fuse_reduction_epilogue("add"),
    "pair": lambda sch: sch.fuse_reduction_epilogue("mm", "add"),
    "pairs": lambda sch: [sch.fuse_reduction_epilogue("mm", b) for b in ("add", "residual")],
}


@pytest.mark.parametrize("way", WAYS)
def test_replay(way: str) -> None:
    sch = schedule()
    WAYS[way](sch)
    fresh = schedule()
    sch.trace.apply_to_schedule(fresh, remove_postproc=False)
    for other in (fresh, replayed(sch)):
        tvm.ir.assert_structural_equal(other.mod, sch.mod)
        # The replay records itself, so it can be replayed again.
        assert str(other.trace) == str(sch.trace)
        tvm.ir.assert_structural_equal(replayed(other).mod, sch.mod)
    verify_trace_roundtrip(sch, PROGRAM, text_format="json")
    verify_trace_roundtrip(sch, PROGRAM, text_format="python")


def test_replay_among_other_steps() -> None:
    sch = scheduled_on(PROGRAM)
    tvm.ir.assert_structural_equal(replayed(sch).mod, sch.mod)
    verify_trace_roundtrip(sch, PROGRAM)


def test_random_variables_of_the_replay_live_on() -> None:
    sch = schedule()
    block = sch.get_sblock("mm")
    i, j, k = sch.get_loops(block)
    sch.fuse_reduction_epilogue(block)
    sch.reorder(k, j, i)
    again = replayed(sch)
    # After the replay's fusion, the same recorded variables have been reordered.
    loops = [again.get(loop).loop_var.name for loop in again.get_loops(again.get_sblock("mm"))]
    assert loops == ["k", "j", "i"]


@pytest.mark.parametrize("sizes", [(5, 20, 3), (1, 4, 1), (16, 16, 16)])
def test_replay_on_another_shape(sizes: tuple[int, int, int]) -> None:
    other = program(*sizes)
    sch = scheduled_on(PROGRAM)
    tvm.ir.assert_structural_equal(replayed(sch, other).mod, scheduled_on(other).mod)


def test_one_argument_goes_as_far_as_the_replayed_program_lets_it() -> None:
    sch = schedule()
    assert len(sch.fuse_reduction_epilogue("mm").steps) == 2
    on_relu = schedule(WITH_RELU)
    assert len(on_relu.fuse_reduction_epilogue("mm").steps) == 1
    tvm.ir.assert_structural_equal(replayed(sch, WITH_RELU).mod, on_relu.mod)


def test_a_replayed_call_is_refused_like_a_live_one() -> None:
    sch = schedule()
    sch.fuse_reduction_epilogue("mm", "add")
    sch.fuse_reduction_epilogue("mm", "residual")

    fresh = schedule(WITH_RELU)
    with pytest.raises(s_tir.ScheduleError) as caught:
        sch.trace.apply_to_schedule(fresh, remove_postproc=False)
    assert fuse_epilogue.refusal_code(caught.value) == "tail"
    # What came before the refused step has been done and recorded, as with any refused step.
    on_relu = schedule(WITH_RELU)
    on_relu.fuse_reduction_epilogue("mm", "add")
    tvm.ir.assert_structural_equal(fresh.mod, on_relu.mod)
    recorded = [inst.kind.name for inst in fresh.trace.insts]
    assert recorded == ["GetSBlock", "GetSBlock", "FuseReductionEpilogue", "GetSBlock", "GetSBlock"]


def test_simplified() -> None:
    sch = schedule()
    sch.get_sblock("residual")  # used by nothing
    unused = sch.get_sblock("bias")
    sch.get_loops(unused)
    sch.fuse_reduction_epilogue("mm", "add")
    simple = sch.trace.simplified(remove_postproc=True)
    kinds = [instruction.kind.name for instruction in simple.insts]
    assert kinds == ["GetSBlock", "GetSBlock", "FuseReductionEpilogue"]
    fresh = schedule()
    simple.apply_to_schedule(fresh, remove_postproc=False)
    tvm.ir.assert_structural_equal(fresh.mod, sch.mod)


def test_in_the_postprocessing_part_of_a_trace() -> None:
    sch = schedule()
    sch.enter_postproc()
    sch.fuse_reduction_epilogue("mm")
    without, with_it = schedule(), schedule()
    sch.trace.apply_to_schedule(without, remove_postproc=True)
    sch.trace.apply_to_schedule(with_it, remove_postproc=False)
    tvm.ir.assert_structural_equal(without.mod, schedule().mod)
    tvm.ir.assert_structural_equal(with_it.mod, sch.mod)


# ---------------------------------------------------------------------------------------------
# Refused calls leave nothing behind
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [("residual",), ("bias",), ("mm", "residual"), ("residual", "mm"), ("mm", "nobody")],
)
def test_a_refused_call_by_name_leaves_no_trace(names: tuple[str, ...]) -> None:
    sch = schedule(WITH_RELU)
    sch.fuse_reduction_epilogue("mm")
    kept = sch.get_sblock("residual")
    before, module = str(sch.trace), sch.mod
    with pytest.raises(s_tir.ScheduleError):
        sch.fuse_reduction_epilogue(*names)
    assert str(sch.trace) == before
    assert sch.mod.same_as(module)
    assert sch.get(kept).name_hint == "residual"


def test_a_refused_call_keeps_the_given_variables() -> None:
    sch = schedule(WITH_RELU)
    block, epilogue = sch.get_sblock("mm"), sch.get_sblock("residual")
    before = str(sch.trace)
    for second in (epilogue, "residual"):
        with pytest.raises(s_tir.ScheduleError):
            sch.fuse_reduction_epilogue(block, second)
        assert str(sch.trace) == before
        assert (sch.get(block).name_hint, sch.get(epilogue).name_hint) == ("mm", "residual")
    # The next variable gets the name it would have got without the refused calls.
    sch.get_sblock("bias")
    assert steps(sch)[-1] == 'b2 = sch.get_sblock(name="bias", func_name="main")'


# ---------------------------------------------------------------------------------------------
# Other kinds of schedules
# ---------------------------------------------------------------------------------------------


def test_a_copy_goes_its_own_way() -> None:
    sch = schedule()
    block = sch.get_sblock("mm")
    copy = sch.copy()
    copy.fuse_reduction_epilogue(block)  # a variable of the original is valid in the copy
    assert [len(s.trace.insts) for s in (sch, copy)] == [1, 2]
    tvm.ir.assert_structural_equal(sch.mod, schedule().mod)
    assert sch.get(block).writes[0].source.name == "temp"
    assert copy.get(block).writes[0].source.name == "D"
    # And the other way round, with a copy made after the fusion.
    late = copy.copy()
    late.parallel(late.get_loops(block)[0])
    sch.fuse_reduction_epilogue(block)
    tvm.ir.assert_structural_equal(sch.mod, copy.mod)
    assert [len(s.trace.insts) for s in (sch, copy, late)] == [2, 2, 4]


def test_without_a_trace() -> None:
    sch = Schedule._create_non_traced(PROGRAM, debug_mask="all")
    report = sch.fuse_reduction_epilogue("mm")
    assert sch.trace is None
    traced = schedule()
    assert traced.fuse_reduction_epilogue("mm") == report
    tvm.ir.assert_structural_equal(sch.mod, traced.mod)
    with pytest.raises(s_tir.ScheduleError) as caught:
        sch.fuse_reduction_epilogue("mm")
    assert fuse_epilogue.refusal_code(caught.value) is not None


def test_a_trace_on_a_schedule_without_one() -> None:
    sch = schedule()
    sch.fuse_reduction_epilogue("mm")
    fresh = Schedule._create_non_traced(PROGRAM, debug_mask="all")
    sch.trace.apply_to_schedule(fresh, remove_postproc=False)
    tvm.ir.assert_structural_equal(fresh.mod, sch.mod)


def test_a_module_with_several_functions() -> None:
    functions = {"first": PROGRAM, "second": program(5, 4, 3), "third": WITH_RELU}
    mod = tvm.IRModule({n: f.with_attr("global_symbol", n) for n, f in functions.items()})
    sch = Schedule(mod, debug_mask="all")
    for name in ("second", "third"):
        sch.work_on(name)
        sch.fuse_reduction_epilogue("mm")
    # A block of another function than the one worked on.
    sch.fuse_reduction_epilogue(sch.get_sblock("mm", func_name="first"))
    for name, func in functions.items():
        alone = schedule(func)
        alone.fuse_reduction_epilogue("mm")
        assert_structural_equal_ignore_global_symbol(sch.mod[name], alone.mod["main"])
    assert [line.partition(" = ")[2] for line in steps(sch)[::2]] == [
        f'sch.get_sblock(name="mm", func_name="{name}")' for name in ("second", "third", "first")
    ]
    fresh = Schedule(mod, debug_mask="all")
    sch.trace.apply_to_schedule(fresh, remove_postproc=False)
    tvm.ir.assert_structural_equal(fresh.mod, sch.mod)


def test_blocks_of_two_functions_are_no_pair() -> None:
    functions = {"first": PROGRAM, "second": program(5, 4, 3)}
    mod = tvm.IRModule({n: f.with_attr("global_symbol", n) for n, f in functions.items()})
    sch = Schedule(mod, debug_mask="all")
    pair = (sch.get_sblock("mm", func_name="first"), sch.get_sblock("add", func_name="second"))
    before = sch.mod
    with pytest.raises(s_tir.ScheduleError) as caught:
        sch.fuse_reduction_epilogue(*pair)
    assert fuse_epilogue.refusal_code(caught.value) in {"structure", "wrong-pair"}
    assert sch.mod.same_as(before)


# ---------------------------------------------------------------------------------------------
# Several threads
# ---------------------------------------------------------------------------------------------


def test_replay_from_several_threads() -> None:
    sch = scheduled_on(PROGRAM)
    refused = schedule()
    refused.fuse_reduction_epilogue("mm", "add")
    refused.fuse_reduction_epilogue("mm", "residual")

    def replay(number: int) -> str | None:
        if number % 3:
            fresh = schedule()
            sch.trace.apply_to_schedule(fresh, remove_postproc=False)
            tvm.ir.assert_structural_equal(fresh.mod, sch.mod)
            return None
        try:
            refused.trace.apply_to_schedule(schedule(WITH_RELU), remove_postproc=False)
        except s_tir.ScheduleError as error:
            return fuse_epilogue.refusal_code(error)
        return "not refused"

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(replay, range(48)))
    assert results == ["tail" if number % 3 == 0 else None for number in range(48)]


def test_search_and_database_of_meta_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MetaSchedule replays the trace from threads of its own, with other decisions each time."""
    # A context imports all of TVM's tensor intrinsics, which takes seconds; none is used here.
    intrinsics = "tvm.s_tir.tensor_intrin"
    if intrinsics not in sys.modules:
        monkeypatch.setitem(sys.modules, intrinsics, types.ModuleType(intrinsics))

    def space(sch: Schedule) -> None:
        sch.fuse_reduction_epilogue("mm")
        block = sch.get_sblock("mm")
        i, j, k = sch.get_loops(block)
        j0, j1 = sch.split(j, sch.sample_perfect_tile(j, 2))
        sch.reorder(i, j0, k, j1)
        sch.compute_at(sch.get_sblock("bias"), j0)
        sch.decompose_reduction(block, k)

    mod = tvm.IRModule({"main": PROGRAM.with_attr("global_symbol", "main")})
    context = ms.TuneContext(
        mod=mod,
        target=tvm.target.Target({"kind": "llvm", "num-cores": 2}),
        space_generator=ms.space_generator.ScheduleFn(
            space, sch_rules=[], postprocs=[], mutator_probs={}
        ),
        search_strategy=ms.search_strategy.ReplayTrace(max_fail_count=1),
        task_name="fused",
        num_threads=2,
        rand_state=1,
    )
    context.pre_tuning(16, 16, context.generate_design_space())
    candidates = context.generate_measure_candidates()
    assert len(candidates) == 16
    modules = [candidate.sch.mod for candidate in candidates]
    assert len({mod.script() for mod in modules}) > 1
    for candidate in candidates:
        fresh = Schedule(mod, debug_mask="all")
        candidate.sch.trace.apply_to_schedule(fresh, remove_postproc=False)
        tvm.ir.assert_structural_equal(fresh.mod, candidate.sch.mod)

    files = {"path_workload": str(tmp_path / "w"), "path_tuning_record": str(tmp_path / "r")}
    stored = ms.database.JSONDatabase(**files)
    stored.commit_tuning_record(
        ms.database.TuningRecord(
            candidates[-1].sch.trace, stored.commit_workload(mod), [1.0], context.target, None
        )
    )
    found = ms.database.JSONDatabase(**files).query_schedule(mod, context.target, "main")
    tvm.ir.assert_structural_equal(found.mod, candidates[-1].sch.mod)
