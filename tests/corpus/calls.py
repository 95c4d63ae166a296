"""Every call that means the same does the same: other arguments, a replayed trace, `analyze`."""

from __future__ import annotations

import dataclasses
from typing import Any

import tvm
from tvm import s_tir
from tvm.s_tir import Schedule
from tvm.s_tir.schedule.testing import verify_trace_roundtrip

from fuse_epilogue import FusionReport, analyze
from oracles import fuse

from .subject import Steps, Subject, every

CALLS = Steps()
UNCHANGED = Steps()


def plain(report: FusionReport) -> tuple[Any, ...]:
    """The report without its certificate, whose expressions have other variables every time."""
    return dataclasses.astuple(dataclasses.replace(report, certificate=None))


def check_call(subject: Subject, call: str, sch: Schedule, reports: list[Any]) -> None:
    """A call in another form has given the same program, and reports the same epilogues."""
    tvm.ir.assert_structural_equal(sch.mod, subject.fused.sch.mod)
    # A call names its own epilogue last, after earlier ones that it has merged into it.
    by_call = [r.steps[-1:] if "pair" in call else r.steps for r in reports]
    fused = [step.epilogue for steps in by_call for step in steps]
    assert fused == list(subject.case.epilogues), call
    merged = [step for r in reports for step in r.steps[:-1] if "pair" in call]
    assert all(step.merged_into for step in merged), call


@CALLS.step()
def the_first_epilogue_may_be_named_alone(subject: Subject) -> None:
    check_call(subject, "epilogue", *fuse(subject.case, "epilogue"))


@CALLS.step(lambda subject: subject.case.one_by_one)
def one_by_one_does_the_same(subject: Subject) -> None:
    sch, calls = subject.pairs
    check_call(subject, "pair", sch, [call.report for call in calls])


@CALLS.step(lambda subject: subject.case.one_by_one and every(10)(subject))
def every_way_to_write_a_pair_does_the_same(subject: Subject) -> None:
    for call in ("pair by variable", "pair by keyword"):
        check_call(subject, call, *fuse(subject.case, call))


@CALLS.step()
def trace_replays(subject: Subject) -> None:
    case, sch = subject.case, subject.fused.sch
    fresh = s_tir.Schedule(case.func, debug_mask="all")
    sch.trace.apply_to_schedule(fresh, remove_postproc=False)
    tvm.ir.assert_structural_equal(fresh.mod, sch.mod)
    verify_trace_roundtrip(sch, case.func)


@CALLS.step()
def analyze_agrees_with_the_call(subject: Subject) -> None:
    case, done = subject.case, subject.fused.report
    asked = analyze(case.scheduled(), case.reduction, **case.options)
    assert plain(asked) == plain(done)
    assert str(asked) == str(done)
    assert asked.certificate is not None


@UNCHANGED.step(lambda subject: every(3 if subject.case.either else 7)(subject))
def analyze_changes_nothing(subject: Subject) -> None:
    case = subject.case
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
        tvm.ir.assert_structural_equal(module["main"], subject.before)
