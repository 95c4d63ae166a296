"""A refused call: for the right reason, in a message that helps, and nothing has changed."""

from __future__ import annotations

import re
from typing import Any

import pytest
import tvm
from tvm import s_tir

import fuse_epilogue
from fuse_epilogue import analyze
from oracles import check_fused
from programs import REFUSE, Case

from .calls import plain
from .subject import Steps, Subject

REFUSALS = Steps()
UNDECIDED = Steps()
ASKED = Steps()


def refuse(case: Case, sch: s_tir.Schedule, blocks: tuple[Any, ...]) -> s_tir.ScheduleError:
    """The error of a call that must be refused."""
    with pytest.raises(s_tir.ScheduleError) as caught:
        sch.fuse_reduction_epilogue(*blocks, **case.options)
    return caught.value


def error_message(error: s_tir.ScheduleError) -> str:
    """What follows the TIR in a rendered error."""
    return str(error).rpartition("Error message: ")[2]


def first_of_each_code() -> set[str]:
    """The first two programs of each refusal code."""
    names: set[str] = set()
    for code in fuse_epilogue.REFUSALS:
        names.update([case.name for case in REFUSE if code in case.codes][:2])
    return names


RENDERED = first_of_each_code()


@REFUSALS.step()
def is_refused_with_the_right_code(subject: Subject) -> None:
    case = subject.case
    for call in case.refusing_calls:
        error = refuse(case, case.scheduled(), call)
        code = fuse_epilogue.refusal_code(error)
        assert code in case.codes, call
        message = error_message(error)
        assert message.startswith(f"[{code}]")
        reason, where, *_ = str(error).splitlines()
        assert reason.endswith(message)
        assert where.endswith(f"refusals.html#refusal-{code}")
        # It says which block, of all that there are, and shows the program with a part underlined.
        names = re.findall(r'T\.sblock\("(\w+)"\)', subject.before.script())
        assert any(f"'{name}'" in message for name in (*names, "root"))
        assert "T.sblock(" in str(error)
        assert "^^^" in str(error)


@REFUSALS.step()
def nothing_has_changed(subject: Subject) -> None:
    case = subject.case
    for call in case.refusing_calls:
        sch = case.scheduled()
        variables = {name: sch.get_sblock(name) for name in call}
        loops = {name: sch.get_loops(block) for name, block in variables.items()}
        statements = {name: sch.get(block) for name, block in variables.items()}
        module = sch.mod
        trace = str(sch.trace)
        # By name, then by random variable.
        for named in (call, tuple(variables.values())):
            refuse(case, sch, named)
            assert sch.mod.same_as(module)
            tvm.ir.assert_structural_equal(sch.mod["main"], subject.before)
            assert str(sch.trace) == trace
            for name, block in variables.items():
                assert sch.get(block).same_as(statements[name])
                for before, after in zip(loops[name], sch.get_loops(block), strict=True):
                    assert sch.get(before).same_as(sch.get(after))
            trace = str(sch.trace)  # get_loops has been recorded


@REFUSALS.step(lambda subject: subject.case.name in RENDERED)
def is_refused_at_every_render_level(subject: Subject) -> None:
    case = subject.case
    for call in case.refusing_calls:
        for level in ("fast", "none"):
            sch = case.scheduled(error_render_level=level)
            blocks = tuple(sch.get_sblock(name) for name in call)
            module, trace = sch.mod, str(sch.trace)
            error = refuse(case, sch, blocks)
            assert fuse_epilogue.refusal_code(error) in case.codes
            # No program is printed here.
            assert "T.sblock(" not in str(error)
            assert sch.mod.same_as(module)
            assert str(sch.trace) == trace


@UNDECIDED.step()
def is_refused_or_computes_the_same(subject: Subject) -> None:
    case = subject.case
    sch = case.scheduled()
    before = sch.mod
    try:
        sch.fuse_reduction_epilogue(case.reduction, **case.options)
    except s_tir.ScheduleError as error:
        assert fuse_epilogue.refusal_code(error) in case.codes
        assert sch.mod.same_as(before)
    else:
        check_fused(case, subject.build(""), subject.build("_fused"))


@ASKED.step()
def analyze_agrees_with_the_call(subject: Subject) -> None:
    case = subject.case
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
            assert asked.stopped.code == fuse_epilogue.refusal_code(error)
            assert asked.stopped.message in str(error)
            assert asked.sentences == (
                f"Not fusable [{asked.stopped.code}]: {asked.stopped.message}",
            )
        else:
            assert plain(asked) == plain(done)
