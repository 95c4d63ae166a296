"""The call as a step of a trace: recorded, printed, stored and replayed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm import s_tir
from tvm.s_tir import Schedule, Trace
from tvm.s_tir.schedule.testing import (
    assert_structural_equal_ignore_global_symbol,
    verify_trace_roundtrip,
)
from tvm.tirx import PrimFunc

import fuse_epilogue
from traced import (
    FLOATS,
    PROGRAM,
    SCALED,
    WITH_MIRROR,
    WITH_RELU,
    names_of_blocks,
    program,
    replayed,
    schedule,
    scheduled_on,
)

pytestmark = pytest.mark.cpp

#: The step in front of the first fusion: without this package TVM fails there, with a sentence.
NEEDS_PACKAGE = "# needs the package fuse_epilogue:"


def steps(sch: Schedule) -> list[str]:
    """What the trace has recorded, without its heading and what says which package it needs."""
    lines = [line.strip() for line in str(sch.trace).splitlines()]
    recorded = lines[lines.index("def apply_trace(sch: s_tir.Schedule) -> None:") + 1 :]
    return [line for line in recorded if line != NEEDS_PACKAGE]


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


@pytest.mark.parametrize("names", [("mm",), ("mm", "add")])
def test_the_package_is_named_once_in_front_of_the_first_fusion(names: tuple[str, ...]) -> None:
    sch = schedule()
    sch.fuse_reduction_epilogue(*names)
    lines = [line.strip() for line in str(sch.trace).splitlines()]
    fusion = next(i for i, line in enumerate(lines) if "sch.fuse_reduction_epilogue" in line)
    assert lines[fusion - 1] == NEEDS_PACKAGE
    if len(names) == 2:
        sch.fuse_reduction_epilogue("mm", "residual")
    assert str(sch.trace).count(NEEDS_PACKAGE) == 1
    assert str(replayed(sch).trace).count(NEEDS_PACKAGE) == 1


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


# What a call may allow, what is recorded of it, and the blocks that are left beside "mm" when a
# residual has been added to a sum of floats, and when the sum has been scaled.
ALLOWED: dict[str, tuple[dict[str, Any], str, tuple[list[str], list[str]]]] = {
    "defaults": ({"numerics": "reassociate", "distribute": False}, "", ([], ["residual"])),
    "exact": ({"numerics": "exact"}, ', numerics="exact"', (["residual"], ["residual"])),
    "distribute": ({"distribute": True}, ", distribute=True", ([], [])),
    "both": (
        {"numerics": "exact", "distribute": True},
        ', numerics="exact", distribute=True',
        (["residual"], ["residual"]),
    ),
}


@pytest.mark.parametrize("pair", [False, True], ids=["block", "pairs"])
@pytest.mark.parametrize("scale", [False, True], ids=["residual", "scaled"])
@pytest.mark.parametrize("name", ALLOWED)
def test_what_a_call_allows_is_replayed(name: str, scale: bool, pair: bool) -> None:
    options, text, left = ALLOWED[name]
    func = SCALED if scale else FLOATS
    sch = schedule(func)
    if pair:
        sch.fuse_reduction_epilogue("mm", "add", **options)
        sch.fuse_reduction_epilogue("mm", "residual", **options)
    else:
        sch.fuse_reduction_epilogue("mm", **options)
    assert names_of_blocks(sch) == ["bias", "mm", *left[scale]]
    last = "reduction_block=b2, epilogue_block=b3" if pair else "block=b0"
    assert steps(sch)[-1] == f"sch.fuse_reduction_epilogue({last}{text})"
    assert len(sch.trace.insts[-1].attrs) == (2 if text else 0)
    fresh = schedule(func)
    sch.trace.apply_to_schedule(fresh, remove_postproc=False)
    printed = schedule(func)
    namespace: dict[str, Any] = {"s_tir": s_tir}
    exec(str(sch.trace), namespace)
    namespace["apply_trace"](printed)
    for other in (fresh, printed, replayed(sch, func), replayed(replayed(sch, func), func)):
        tvm.ir.assert_structural_equal(other.mod, sch.mod)
        assert str(other.trace) == str(sch.trace)
    verify_trace_roundtrip(sch, func)


def test_what_a_call_allows_is_checked_on_the_replayed_program() -> None:
    """A sum in float16 absorbs nothing: what the trace of a wider one did is decided again."""
    half = program(dtype="float16")
    allowing, exact = schedule(FLOATS), schedule(FLOATS)
    allowing.fuse_reduction_epilogue("mm")
    exact.fuse_reduction_epilogue("mm", numerics="exact")
    for recorded, numerics in ((allowing, "reassociate"), (exact, "exact")):
        live = schedule(half)
        report = live.fuse_reduction_epilogue("mm", numerics=numerics)
        assert not any(step.absorbed for step in report.steps)
        tvm.ir.assert_structural_equal(replayed(recorded, half).mod, live.mod)


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
    on_mirror = schedule(WITH_MIRROR)
    assert len(on_mirror.fuse_reduction_epilogue("mm").steps) == 1
    tvm.ir.assert_structural_equal(replayed(sch, WITH_MIRROR).mod, on_mirror.mod)


def test_what_is_absorbed_may_be_a_tail_in_the_replayed_program() -> None:
    sch = schedule()
    assert [step.tail for step in sch.fuse_reduction_epilogue("mm").steps] == ["", ""]
    on_relu = schedule(WITH_RELU)
    assert [bool(step.tail) for step in on_relu.fuse_reduction_epilogue("mm").steps] == [
        False,
        True,
    ]
    tvm.ir.assert_structural_equal(replayed(sch, WITH_RELU).mod, on_relu.mod)


def test_a_replayed_call_is_refused_like_a_live_one() -> None:
    sch = schedule()
    sch.fuse_reduction_epilogue("mm", "add")
    sch.fuse_reduction_epilogue("mm", "residual")

    fresh = schedule(WITH_MIRROR)
    with pytest.raises(s_tir.ScheduleError) as caught:
        sch.trace.apply_to_schedule(fresh, remove_postproc=False)
    assert fuse_epilogue.refusal_code(caught.value) == "index-map"
    # What came before the refused step has been done and recorded, as with any refused step.
    on_mirror = schedule(WITH_MIRROR)
    on_mirror.fuse_reduction_epilogue("mm", "add")
    tvm.ir.assert_structural_equal(fresh.mod, on_mirror.mod)
    recorded = [inst.kind.name for inst in fresh.trace.insts]
    fused = ["Tensorize", "FuseReductionEpilogue"]  # the first says that it needs this package
    assert recorded == ["GetSBlock", "GetSBlock", *fused, "GetSBlock", "GetSBlock"]


def test_simplified() -> None:
    sch = schedule()
    sch.get_sblock("residual")  # used by nothing
    unused = sch.get_sblock("bias")
    sch.get_loops(unused)
    sch.fuse_reduction_epilogue("mm", "add")
    simple = sch.trace.simplified(remove_postproc=True)
    kinds = [instruction.kind.name for instruction in simple.insts]
    assert kinds == ["GetSBlock", "GetSBlock", "Tensorize", "FuseReductionEpilogue"]
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


# Programs of which the call fuses only the bias, and everything: nothing more can be fused.
STOPPING = pytest.mark.parametrize("func", [WITH_MIRROR, WITH_RELU], ids=["mirror", "relu"])


@STOPPING
@pytest.mark.parametrize(
    "names",
    [("residual",), ("bias",), ("mm", "residual"), ("residual", "mm"), ("mm", "nobody")],
)
def test_a_refused_call_by_name_leaves_no_trace(names: tuple[str, ...], func: PrimFunc) -> None:
    sch = schedule(func)
    sch.fuse_reduction_epilogue("mm")
    kept = sch.get_sblock("residual")
    before, module = str(sch.trace), sch.mod
    with pytest.raises(s_tir.ScheduleError):
        sch.fuse_reduction_epilogue(*names)
    assert str(sch.trace) == before
    assert sch.mod.same_as(module)
    assert sch.get(kept).name_hint == "residual"


@STOPPING
def test_a_refused_call_keeps_the_given_variables(func: PrimFunc) -> None:
    sch = schedule(func)
    sch.fuse_reduction_epilogue("mm")
    named = len(steps(sch)) - 1
    block, epilogue = sch.get_sblock("mm"), sch.get_sblock("residual")
    before = str(sch.trace)
    for second in (epilogue, "residual"):
        with pytest.raises(s_tir.ScheduleError):
            sch.fuse_reduction_epilogue(block, second)
        assert str(sch.trace) == before
        assert (sch.get(block).name_hint, sch.get(epilogue).name_hint) == ("mm", "residual")
    # The next variable gets the name it would have got without the refused calls.
    sch.get_sblock("bias")
    assert steps(sch)[-1] == f'b{named + 2} = sch.get_sblock(name="bias", func_name="main")'


# ---------------------------------------------------------------------------------------------
# Other kinds of schedules
# ---------------------------------------------------------------------------------------------


def test_a_copy_goes_its_own_way() -> None:
    sch = schedule()
    block = sch.get_sblock("mm")
    copy = sch.copy()
    copy.fuse_reduction_epilogue(block)  # a variable of the original is valid in the copy
    assert [len(s.trace.insts) for s in (sch, copy)] == [1, 3]
    tvm.ir.assert_structural_equal(sch.mod, schedule().mod)
    assert sch.get(block).writes[0].source.name == "temp"
    assert copy.get(block).writes[0].source.name == "D"
    # And the other way round, with a copy made after the fusion.
    late = copy.copy()
    late.parallel(late.get_loops(block)[0])
    sch.fuse_reduction_epilogue(block)
    tvm.ir.assert_structural_equal(sch.mod, copy.mod)
    assert [len(s.trace.insts) for s in (sch, copy, late)] == [3, 3, 5]


def test_without_a_trace() -> None:
    sch = Schedule._create_non_traced(PROGRAM, debug_mask="all")
    report = sch.fuse_reduction_epilogue("mm")
    assert sch.trace is None
    traced = schedule()
    same = traced.fuse_reduction_epilogue("mm")
    assert (same.steps, same.kept, str(same)) == (report.steps, report.kept, str(report))
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


@pytest.mark.parametrize(
    ("attrs", "named"),
    [
        (["exact"], "numerics and distribute"),
        (["exact", 1, 2], "numerics and distribute"),
        (["other", 0], "numerics must be"),
        ([1, 1], "numerics must be"),
        (["exact", 2], "distribute must be"),
        (["exact", "x"], "distribute must be"),
    ],
)
def test_a_stored_step_with_other_attributes_is_an_error(attrs: list[Any], named: str) -> None:
    sch = schedule()
    sch.fuse_reduction_epilogue("mm", numerics="exact", distribute=True)
    stored = json.loads(json.dumps(sch.trace.as_json(), default=str))
    assert stored[0][-1][2] == ["exact", 1]
    stored[0][-1][2] = attrs
    fresh = schedule()
    module = fresh.mod
    with pytest.raises(ValueError, match=named):
        Trace.apply_json_to_schedule(stored, fresh)
    assert fresh.mod.same_as(module)
