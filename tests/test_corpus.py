"""Every program of the corpus: what must be fused is, and right; what must not is refused.

One test takes a program through its steps, which are in `corpus`; a step that fails is reported
under its name, and the others are taken all the same.
"""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from tvm import s_tir
from tvm.s_tir.schedule.testing import assert_structural_equal_ignore_global_symbol

import fuse_epilogue
from corpus.calls import CALLS, UNCHANGED
from corpus.decomposing import DECOMPOSING
from corpus.fusion import FUSION
from corpus.groups import Groups, each
from corpus.numerics import NUMERICS
from corpus.placement import PLACEMENT
from corpus.refusals import ASKED, REFUSALS, UNDECIDED
from corpus.results import REFERENCE, RESULTS
from corpus.subject import joined
from oracles import fuse
from programs import ACCEPT, BY_NAME, EITHER, REFUSE, Case

FUSING = joined([FUSION, PLACEMENT, NUMERICS])
CALLING = joined([CALLS, UNCHANGED, DECOMPOSING])
RUNNING = joined([REFERENCE, RESULTS])
REFUSING = joined([REFUSALS, ASKED, UNCHANGED])
EITHER_WAY = joined([REFERENCE, UNDECIDED, ASKED, UNCHANGED])


@pytest.fixture(scope="module")
def groups(request: pytest.FixtureRequest) -> Groups:
    """The programs that are tried."""
    # Tests of other files have parameters of this name.
    items: list[Any] = [
        item
        for item in request.session.items
        if item.path == request.path and "groups" in getattr(item, "fixturenames", ())
    ]
    run = {"test_is_right", "test_is_refused_or_right", "test_of_a_refused_program"}
    return Groups(
        (item.callspec.params["case"] for item in items),
        (item.callspec.params["case"] for item in items if item.originalname in run),
    )


def test_names_are_unique() -> None:
    names = [case.name for case in (*ACCEPT, *EITHER, *REFUSE)]
    assert len(set(names)) == len(names)


def test_every_code_belongs_to_one_kind() -> None:
    assert not [case.name for case in ACCEPT if case.codes or case.either]
    assert not [case.name for case in EITHER if not case.either]


def test_every_code_has_a_program() -> None:
    surely = {case.code for case in REFUSE if isinstance(case.code, str)}
    # These belong to later primitives on a fused block, and to rewritings: test_init_reads.py,
    # test_after_shared_loops.py and test_schedules_conv_trace_refused.py. Those of cascades are in
    # test_cascade_primitive.py.
    cascades = {code for code in fuse_epilogue.REFUSALS if "cascade" in code}
    later = {"init-reads", "vector-lanes", "not-alone", "rewriting"} | cascades
    # No call is refused with these any more; the code stays in the table.
    retired = {"accumulator-type"}
    assert surely == set(fuse_epilogue.REFUSALS) - later - retired


@pytest.mark.cpp
@each(ACCEPT)
def test_is_fused(case: Case, groups: Groups, subtests: pytest.Subtests) -> None:
    FUSING.take(groups.subject(case), subtests)


@pytest.mark.cpp
@each(ACCEPT, step=4)
def test_other_calls_do_the_same(case: Case, groups: Groups, subtests: pytest.Subtests) -> None:
    CALLING.take(groups.subject(case), subtests)


@each(ACCEPT, step=4)
def test_is_right(case: Case, groups: Groups, subtests: pytest.Subtests) -> None:
    RUNNING.take(groups.subject(case, built=True), subtests)


@pytest.mark.cpp
@each(EITHER)
def test_is_refused_or_right(case: Case, groups: Groups, subtests: pytest.Subtests) -> None:
    EITHER_WAY.take(groups.subject(case, built=True), subtests)


@pytest.mark.cpp
@each(REFUSE)
def test_is_refused(case: Case, groups: Groups, subtests: pytest.Subtests) -> None:
    REFUSING.take(groups.subject(case), subtests)


@each([case for case in REFUSE if case.reference is not None])
def test_of_a_refused_program(case: Case, groups: Groups, subtests: pytest.Subtests) -> None:
    REFERENCE.take(groups.subject(case, built=True), subtests)


@pytest.mark.cpp
def test_each_function_of_a_module_by_itself() -> None:
    functions = {"one": BY_NAME["two_blocks"], "other": BY_NAME["in_place"]}
    mod = tvm.IRModule(
        {name: c.func.with_attr("global_symbol", name) for name, c in functions.items()}
    )
    sch = s_tir.Schedule(mod, debug_mask="all")
    for name in functions:
        sch.work_on(name)
        sch.fuse_reduction_epilogue("mm")
    for name, case in functions.items():
        assert_structural_equal_ignore_global_symbol(sch.mod[name], fuse(case)[0].mod["main"])


@pytest.mark.cpp
def test_on_a_copy_and_without_a_trace() -> None:
    case = BY_NAME["two_blocks"]
    original = case.scheduled()
    copy = original.copy()
    copy.fuse_reduction_epilogue("mm")
    tvm.ir.assert_structural_equal(original.mod, case.scheduled().mod)

    untraced = s_tir.Schedule._create_non_traced(case.func, debug_mask="all")
    untraced.fuse_reduction_epilogue("mm")
    assert untraced.trace is None
    for sch in (copy, untraced):
        tvm.ir.assert_structural_equal(sch.mod, fuse(case)[0].mod)
