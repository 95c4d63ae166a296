"""Asking before doing: `analyze` says what a call would do, and changes nothing.

`test_corpus.py` asks it of every program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm import s_tir
from tvm.s_tir import Schedule
from tvm.script import tirx as T

import fuse_epilogue
from corpus.calls import plain
from fuse_epilogue import analyze
from oracles import fused
from programs import BY_NAME

# ---------------------------------------------------------------------------------------------
# It changes nothing
# ---------------------------------------------------------------------------------------------


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
    assert lines[0].startswith("'mm' absorbed E[vj] from 'bias' into T.init; 'temp' is gone. (")
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


@T.prim_func(s_tir=True)
def named_alike(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")) -> None:
    for i in range(4):
        with T.sblock("twice"):
            v = T.axis.spatial(4, i)
            b[v] = a[v]
    for i in range(4):
        with T.sblock("twice"):
            v = T.axis.spatial(4, i)
            b[v] = b[v] + a[v]


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
@pytest.mark.parametrize(
    ("name", "listed"),
    [("m", "'mm'"), ("relus", "'relu'"), ("nobody", "'mm', 'add', 'relu'")],
)
def test_the_message_lists_the_blocks_that_are_there(name: str, listed: str) -> None:
    sch = BY_NAME["bias_then_relu"].scheduled()
    with pytest.raises(s_tir.ScheduleError) as caught:
        analyze(sch, name)
    first, *others = str(caught.value).splitlines()
    assert not others and first.startswith("fuse_reduction_epilogue: function 'main' has no block")
    assert f"'{name}'; it has {listed}" in first


@T.prim_func
def without_blocks(a: T.Buffer((8, 8), "float32"), b: T.Buffer((8,), "float32")):
    for i in range(8):
        b[i] = a[i, 0]


def test_the_message_on_a_function_without_blocks_says_how_to_get_some() -> None:
    with pytest.raises(
        s_tir.ScheduleError, match="'main' has no blocks; write it with .*s_tir=True"
    ):
        analyze(without_blocks, "b")


@pytest.mark.cpp
def test_a_name_of_several_blocks_keeps_the_message_of_tvm() -> None:
    with pytest.raises(s_tir.ScheduleError, match="2 blocks"):
        analyze(Schedule(named_alike), "twice")


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


@pytest.mark.cpp
@pytest.mark.parametrize("call", [analyze, Schedule.fuse_reduction_epilogue])
def test_what_is_of_another_schedule(call: Callable[..., Any]) -> None:
    sch, other = (BY_NAME["bias_then_relu"].scheduled() for _ in range(2))
    module = sch.mod
    for blocks in ((other.get_sblock("mm"),), ("mm", other.get_sblock("add"))):
        with pytest.raises(IndexError, match="random variable of another schedule, .* name the"):
            call(sch, *blocks)
    assert sch.mod.same_as(module)
    assert not sch.trace.insts


@pytest.mark.cpp
def test_what_is_not_a_schedule() -> None:
    func = BY_NAME["bias_then_relu"].func
    for what in (tvm.IRModule({"main": func}), None):
        with pytest.raises(TypeError, match="^sch must be a PrimFunc or a Schedule, not"):
            analyze(what, "mm")
    with pytest.raises(TypeError, match=r"must be a tvm.s_tir.Schedule, not PrimFunc: make one"):
        fuse_epilogue.fuse_reduction_epilogue(func, "mm")  # nothing would be left of it


@pytest.mark.cpp
def test_a_function_is_asked_about_as_a_schedule_is() -> None:
    case = BY_NAME["bias_then_relu"]
    sch = case.scheduled()
    for numerics in ("exact", "reassociate"):
        asked, of_schedule = (analyze(each, "mm", numerics=numerics) for each in (case.func, sch))
        assert asked.fusable and str(asked) == str(of_schedule)
    asked = fuse_epilogue.analyze_cascade(case.func, "mm")
    assert asked == fuse_epilogue.analyze_cascade(sch, "mm")
    with pytest.raises(IndexError, match="random variable of another schedule, .* name the"):
        analyze(case.func, sch.get_sblock("mm"))


def test_is_public() -> None:
    assert "analyze" in fuse_epilogue.__all__
    assert fuse_epilogue.analyze.__doc__
