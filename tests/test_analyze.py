"""Asking before doing: `analyze` says what a call would do, and changes nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import tvm
from tvm import s_tir
from tvm.s_tir import Schedule

import fuse_epilogue
from fuse_epilogue import FusionReport, analyze, refusal_code
from oracles import fused
from programs import ACCEPT, BY_NAME, EITHER, REFUSE, Case


def each(cases: list[Case]) -> Any:
    return pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in cases])


def plain(report: FusionReport) -> tuple[Any, ...]:
    """The report without its certificate, whose expressions have other variables every time."""
    return dataclasses.astuple(dataclasses.replace(report, certificate=None))


# ---------------------------------------------------------------------------------------------
# It tells what the call does
# ---------------------------------------------------------------------------------------------


@each(ACCEPT)
def test_agrees_with_the_call(case: Case) -> None:
    _, done = fused(case.name)
    asked = analyze(case.scheduled(), case.reduction, **case.options)
    assert plain(asked) == plain(done)
    assert str(asked) == str(done)
    assert asked.certificate is not None


@each([*REFUSE, *EITHER])
def test_agrees_with_the_call_about_a_refusal(case: Case) -> None:
    for call in case.refusing_calls:
        sch = case.scheduled()
        asked = analyze(sch, *call, **case.options)
        try:
            done = sch.fuse_reduction_epilogue(*call, **case.options)
        except s_tir.ScheduleError as error:
            assert not asked.fusable
            assert asked.steps == ()
            assert asked.kept == ()
            assert asked.certificate is None
            assert asked.stopped is not None
            assert asked.stopped.code == refusal_code(error)
            assert asked.stopped.message in str(error)
            assert str(asked) == f"Not fusable [{asked.stopped.code}]: {asked.stopped.message}"
        else:
            assert plain(asked) == plain(done)


# ---------------------------------------------------------------------------------------------
# It changes nothing
# ---------------------------------------------------------------------------------------------


@pytest.mark.cpp
@each([case for family in (ACCEPT[::7], REFUSE[::7], EITHER[::3]) for case in family])
def test_changes_nothing(case: Case) -> None:
    for call in case.refusing_calls:
        sch = case.scheduled()
        blocks = {name: sch.get_sblock(name) for name in call}
        statements = {name: sch.get(block) for name, block in blocks.items()}
        loops = {name: sch.get_loops(block) for name, block in blocks.items()}
        loop_statements = {name: [sch.get(v) for v in found] for name, found in loops.items()}
        module, trace = sch.mod, str(sch.trace)
        for named in (call, tuple(blocks.values())):
            analyze(sch, *named, **case.options)
            assert sch.mod.same_as(module)
            assert str(sch.trace) == trace
            for name, block in blocks.items():
                assert sch.get(block).same_as(statements[name])
                for loop, statement in zip(loops[name], loop_statements[name], strict=True):
                    assert sch.get(loop).same_as(statement)
        tvm.ir.assert_structural_equal(module, case.scheduled().mod)


def sampled(sch: Schedule) -> list[Any]:
    """Decisions that depend on the schedule's random state."""
    i, j = sch.get_loops(sch.get_sblock("mm"))[:2]
    decisions = [[int(sch.get(f)) for f in sch.sample_perfect_tile(i, 3)]]
    decisions += [[int(sch.get(f)) for f in sch.sample_perfect_tile(j, 2)]]
    decisions += [[int(sch.get(sch.sample_categorical([1, 2, 3, 4, 5], [0.2] * 5)))]]
    return decisions


@pytest.mark.cpp
def test_leaves_the_random_state_alone() -> None:
    case = BY_NAME["tail_reduction_innermost"]
    without = [sampled(case.scheduled(seed=seed)) for seed in range(1, 9)]
    assert len({str(decisions) for decisions in without}) > 4
    for seed, decisions in enumerate(without, 1):
        sch = case.scheduled(seed=seed)
        for _ in range(3):
            analyze(sch, "mm")
        assert sampled(sch) == decisions


def test_the_next_random_variable_has_the_same_name() -> None:
    case = BY_NAME["bias_then_relu"]
    asking, quiet = case.scheduled(), case.scheduled()
    for sch in (asking, quiet):
        sch.get_sblock("mm")
    analyze(asking, "mm", "add")
    for sch in (asking, quiet):
        sch.get_loops(sch.get_sblock("add"))
    assert str(asking.trace) == str(quiet.trace)


@pytest.mark.cpp
@pytest.mark.parametrize("call", [("mm",), ("mm", "add"), ("relu",)])
def test_works_without_a_trace(call: tuple[str, ...]) -> None:
    case = BY_NAME["bias_then_relu"]
    sch = s_tir.Schedule._create_non_traced(case.func, debug_mask="all")
    module = sch.mod
    assert plain(analyze(sch, *call)) == plain(analyze(case.scheduled(), *call))
    assert sch.mod.same_as(module)
    assert sch.trace is None


def test_asking_then_doing_is_doing() -> None:
    for name in ("conv1d_silu_residual_cast", "tail_row_form", "intermediate_read_in_between"):
        case = BY_NAME[name]
        sch = case.scheduled()
        analyze(sch, case.reduction)
        sch.fuse_reduction_epilogue(case.reduction)
        tvm.ir.assert_structural_equal(sch.mod, fused(name)[0].mod)
        assert str(sch.trace) == str(fused(name)[0].trace)


@pytest.mark.cpp
def test_of_the_function_that_is_worked_on() -> None:
    functions = {"one": BY_NAME["two_blocks"], "other": BY_NAME["silu_of_two_blocks"]}
    mod = tvm.IRModule(
        {name: c.func.with_attr("global_symbol", name) for name, c in functions.items()}
    )
    sch = Schedule(mod, debug_mask="all")
    for name, case in functions.items():
        sch.work_on(name)
        assert plain(analyze(sch, "mm")) == plain(fused(case.name)[1])
    tvm.ir.assert_structural_equal(sch.mod, mod)


# ---------------------------------------------------------------------------------------------
# What it says
# ---------------------------------------------------------------------------------------------


def test_in_words_for_a_chain() -> None:
    """Every block is named, what becomes of it, and what is gone."""
    text = str(analyze(BY_NAME["bias_relu_residual_scale_cast"].scheduled(), "mm"))
    lines = text.splitlines()
    assert lines[0] == "'mm' absorbed E[vj] from 'bias' into T.init; 'temp' is gone."
    for line, block in zip(lines, ("bias", "relu", "residual", "scale", "cast"), strict=True):
        assert f"'{block}'" in line
    assert "does not distribute over a sum" in text
    for buffer in ("temp", "bent", "total", "scaled"):
        assert f"'{buffer}' is gone" in text
    assert 'T.Cast("float16", (C[vi, vj] + T.max(x, T.float32(0.0))) * T.float32(0.25))' in text


def test_in_words_for_a_sum_that_is_kept() -> None:
    text = str(analyze(BY_NAME["intermediate_read_in_between"].scheduled(), "mm"))
    assert "'temp' stays alive in full" in text
    assert "'differences' reads" in text
    assert "Left as it is [domain]" in text


def test_says_what_asking_for_more_would_do() -> None:
    case = BY_NAME["float32_clipped_max"]
    text = str(analyze(case.scheduled(), "mm"))
    assert "distribute=True" in text
    assert "distribute=True" not in str(analyze(case.scheduled(), "mm", distribute=True))


def test_says_why_nothing_is_absorbed() -> None:
    report = analyze(BY_NAME["bias_then_relu"].scheduled(), "mm", numerics="exact")
    assert all('numerics="exact"' in step.reason for step in report.steps if step.reason)
    assert any(step.reason for step in report.steps)


# ---------------------------------------------------------------------------------------------
# Arguments
# ---------------------------------------------------------------------------------------------


@pytest.mark.cpp
@pytest.mark.parametrize("names", [("nobody",), ("mm", "nobody"), ("nobody", "add")])
def test_unknown_blocks(names: tuple[str, ...]) -> None:
    sch = BY_NAME["bias_then_relu"].scheduled()
    module = sch.mod
    with pytest.raises(s_tir.ScheduleError, match="nobody"):
        analyze(sch, *names)
    assert sch.mod.same_as(module)
    assert not sch.trace.insts


@pytest.mark.cpp
@pytest.mark.parametrize("blocks", [(1,), (None,), ("mm", 2), (["mm"],)])
def test_things_that_are_no_blocks(blocks: tuple[Any, ...]) -> None:
    sch = BY_NAME["bias_then_relu"].scheduled()
    with pytest.raises(TypeError):
        analyze(sch, *blocks)
    assert not sch.trace.insts


@pytest.mark.cpp
@pytest.mark.parametrize("options", [{"distribute": "no"}, {"numerics": None}])
def test_options_of_another_type(options: dict[str, Any]) -> None:
    sch = BY_NAME["bias_then_relu"].scheduled()
    ((name, value),) = options.items()
    with pytest.raises(TypeError, match=f"^{name} must be .*: {value!r}$"):
        analyze(sch, "mm", **options)
    assert not sch.trace.insts


def test_is_public() -> None:
    assert "analyze" in fuse_epilogue.__all__
    assert fuse_epilogue.analyze.__doc__
