"""Every refusing program of the corpus is refused, for the right reason, and left as it was."""

from __future__ import annotations

import re
from typing import Any

import pytest
import tvm
from tvm import s_tir

import fuse_epilogue
from oracles import Builds, check_unfused
from programs import REFUSE, Case

CALLS = [
    pytest.param(case, call, id=f"{case.name}-{'-'.join(call)}")
    for case in REFUSE
    for call in case.refusing_calls
]


def refuse(case: Case, sch: s_tir.Schedule, blocks: tuple[Any, ...]) -> s_tir.ScheduleError:
    """The error of a call that must be refused."""
    with pytest.raises(s_tir.ScheduleError) as caught:
        sch.fuse_reduction_epilogue(*blocks, **case.options)
    return caught.value


def error_message(error: s_tir.ScheduleError) -> str:
    """What follows the TIR in a rendered error."""
    return str(error).rpartition("Error message: ")[2]


def test_names_are_unique() -> None:
    names = [case.name for case in REFUSE]
    assert len(set(names)) == len(names)


def test_every_code_has_a_program() -> None:
    surely = {case.code for case in REFUSE if isinstance(case.code, str)}
    # These belong to later primitives on a fused block, and to rewritings: test_init_reads.py,
    # test_after_shared_loops.py and test_schedules_conv_trace_refused.py.
    later = {"init-reads", "vector-lanes", "not-alone", "rewriting"}
    assert surely == set(fuse_epilogue.REFUSALS) - later


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name) for c in REFUSE if c.reference is not None]
)
def test_unfused_program_is_what_its_reference_says(case: Case, builds: Builds) -> None:
    check_unfused(case, builds[case.name])


@pytest.mark.cpp
@pytest.mark.parametrize(("case", "call"), CALLS)
def test_is_refused_with_the_right_code(case: Case, call: tuple[str, ...]) -> None:
    error = refuse(case, case.scheduled(), call)
    code = fuse_epilogue.refusal_code(error)
    assert code in case.codes
    message = error_message(error)
    assert message.startswith(f"[{code}]")
    # It says which block, of all that there are, and shows the program with a part underlined.
    names = re.findall(r'T\.sblock\("(\w+)"\)', case.scheduled().mod.script())
    assert any(f"'{name}'" in message for name in (*names, "root"))
    assert "T.sblock(" in str(error)
    assert "^^^" in str(error)


@pytest.mark.parametrize(("case", "call"), CALLS)
def test_nothing_has_changed(case: Case, call: tuple[str, ...]) -> None:
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
        tvm.ir.assert_structural_equal(sch.mod, case.scheduled().mod)
        assert str(sch.trace) == trace
        for name, block in variables.items():
            assert sch.get(block).same_as(statements[name])
            for before, after in zip(loops[name], sch.get_loops(block), strict=True):
                assert sch.get(before).same_as(sch.get(after))
        trace = str(sch.trace)  # get_loops has been recorded


@pytest.mark.parametrize(("case", "call"), CALLS)
@pytest.mark.parametrize("level", ["fast", "none"])
def test_is_refused_at_every_render_level(case: Case, call: tuple[str, ...], level: str) -> None:
    sch = case.scheduled(error_render_level=level)
    blocks = tuple(sch.get_sblock(name) for name in call)
    module, trace = sch.mod, str(sch.trace)
    error = refuse(case, sch, blocks)
    assert fuse_epilogue.refusal_code(error) in case.codes
    # No program is printed here.
    assert "T.sblock(" not in str(error)
    assert sch.mod.same_as(module)
    assert str(sch.trace) == trace
