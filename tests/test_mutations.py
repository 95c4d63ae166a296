"""Without any one of its soundness checks, the primitive goes wrong: every check is needed.

Each check is switched off in turn, and every program that it refuses is tried. The counts are
printed in the terminal summary: how many programs are refused by another check as well, how many
are accepted now, and how many of those come out wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict

import pytest
from tvm import s_tir

import fuse_epilogue
from mutation import (
    Mutant,
    decisions,
    fuse,
    outcome_of_case,
    outcome_of_mutant,
    refusal_of,
    switch_off,
    without,
)
from mutation_table import ACCEPTED, PROPERTY, STILL_REFUSED, WRONG, Row
from programs import REFUSE
from programs.mutants import MUTANTS
from programs.mutants_decisions import DECISIONS

# Where these are refused, there is nothing that the primitive could go on with.
NO_GOING_ON = {
    "not-a-reduction": "no reduction to fuse into is named",
    "no-init": "there is no value to start from",
    "tuple-reduction": "there is no single value that is reduced",
    "no-consumer": "there is no block to fuse",
    "wrong-pair": "the block named does not read the reduction's result",
    "already-fused": "there is nothing left to do",
}

# Checks that no program shows to be needed.
ONLY_THE_VERDICT = {
    "storage-scope": (
        "that single elements cannot be loaded from such memory, and stored there, is a property "
        "of machines that run none of the programs here; TIR knows nothing of it"
    ),
}

# No check of a fusion, never switched off: test_schedules_conv_trace_refused.py has its programs.
# The checks of cascades are switched off in test_cascade_primitive.py.
ELSEWHERE = {"rewriting", *(code for code in fuse_epilogue.REFUSALS if "cascade" in code)}

# Codes that no call is refused with any more; they stay, because callers compare with them.
RETIRED = {"accumulator-type"}

CHECKS = [
    code for code in fuse_epilogue.REFUSALS if code not in {*NO_GOING_ON, *ELSEWHERE, *RETIRED}
]


@pytest.fixture(autouse=True)
def all_checks_on_again() -> Iterator[None]:
    yield
    switch_off([])


@pytest.mark.full
@pytest.mark.parametrize("code", CHECKS)
def test_without_the_check_programs_go_wrong(
    code: str, record_property: Callable[..., None]
) -> None:
    row = Row(code)
    for case in REFUSE:
        if code in case.codes:
            row.count(outcome_of_case(case, code).verdict)
    for mutant in MUTANTS:
        if mutant.code == code:
            row.count(outcome_of_mutant(mutant).verdict)
    record_property(PROPERTY, asdict(row))
    assert row.accepted > 0
    assert (row.wrong > 0) == (code not in ONLY_THE_VERDICT)


@pytest.mark.cpp
@pytest.mark.parametrize("mutant", [pytest.param(m, id=f"{m.code}: {m.guard}") for m in MUTANTS])
def test_what_a_check_is_for(mutant: Mutant) -> None:
    """Refused by this check and by no other; wrong without it."""
    assert refusal_of(mutant) == mutant.code
    outcome = outcome_of_mutant(mutant)
    assert outcome.verdict == WRONG, outcome
    assert refusal_of(mutant) == mutant.code


def test_every_decision_has_a_program() -> None:
    assert {mutant.code for mutant in DECISIONS} == set(decisions())


@pytest.mark.cpp
@pytest.mark.parametrize("mutant", [pytest.param(m, id=m.code) for m in DECISIONS])
def test_what_a_decision_is_for(mutant: Mutant) -> None:
    """Fused, and right; fused all the same, and wrong, with the decision taken the other way."""
    assert refusal_of(mutant) is None
    assert outcome_of_mutant(mutant, codes=()).verdict == ACCEPTED
    outcome = outcome_of_mutant(mutant)
    assert outcome.verdict == WRONG, outcome


@pytest.mark.cpp
@pytest.mark.parametrize("code", NO_GOING_ON)
def test_there_is_no_going_on(code: str) -> None:
    """Nothing changes with the switch: these are no checks of what would be possible."""
    cases = [case for case in REFUSE if case.codes == (code,)]
    assert cases
    for case in cases:
        assert outcome_of_case(case, code).verdict == STILL_REFUSED
        for call in case.refusing_calls:
            with without(code), pytest.raises(s_tir.ScheduleError) as caught:
                fuse(case.scheduled(), case, call)
            assert fuse_epilogue.refusal_code(caught.value) == code


def test_the_switch_is_off_by_default_and_restored() -> None:
    mutant = MUTANTS[0]
    assert refusal_of(mutant) == mutant.code
    with pytest.raises(RuntimeError), without(mutant.code):
        assert refusal_of(mutant) is None
        raise RuntimeError
    assert refusal_of(mutant) == mutant.code
    # The last call counts, not all of them together.
    switch_off([mutant.code])
    switch_off(["impure"])
    assert refusal_of(mutant) == mutant.code


@pytest.mark.cpp
def test_a_check_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="no refusal 'nonsense'"):
        switch_off(["nonsense"])
