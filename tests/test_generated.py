"""A few thousand generated programs; what is drawn, and what must become of it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from tvm import tirx

from generated import layouts
from generated.build import build
from generated.chunk import run_chunk
from generated.examples import (
    ADD,
    EXAMPLES,
    once_wrong,
    program,
)
from generated.facts import Facts
from generated.monoids import ROWS
from generated.reached import has_partial
from generated.rules import RULES
from generated.spec import (
    ALIASES,
    CALLS,
    DTYPES,
    EPILOGUE_FAULTS,
    HAZARDS,
    INITS,
    PREDICATES,
    REDUCTION_FAULTS,
    STEPS,
    TERMS,
    UPDATES,
    Epilogue,
    Program,
)
from generated.state import Run
from generated.steps import scheduled
from generated.strategy import programs, random_program
from generated.tally import CERTIFICATE_REFUSED, Tally, features
from generated.truth import expectation
from generated.verdict import (
    ACCEPTED_EQUAL,
    ILL_FORMED,
    REFUSED_RIGHTLY,
    WRONG,
    judge,
)

SEED = 20
CHUNKS = 8
PROGRAMS = 375  # in each chunk

# ---- The programs --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tallies() -> dict[int, Tally]:
    """The counts of the chunks that have been run."""
    return {}


def describe(failure: dict[str, Any]) -> str:
    """A failure in one line, with the program as small as it was made."""
    small = failure.get("shrunk", failure["program"])
    return f"{failure['verdict']}: {failure['detail'][:200]}\n  {json.dumps(small)}"


@pytest.mark.parametrize(
    "chunk",
    [
        pytest.param(0, marks=pytest.mark.cpp),
        *(pytest.param(chunk, marks=pytest.mark.full) for chunk in range(1, CHUNKS)),
    ],
)
def test_programs(chunk: int, tallies: dict[int, Tally], tmp_path: Path) -> None:
    """Nothing is accepted and different, refused with a wrong code, or breaks down."""
    run = Run(SEED, CHUNKS * PROGRAMS, folder=tmp_path, chunk=PROGRAMS)
    counts = run_chunk(run, *run.chunks[chunk])
    tally = tallies[chunk] = Tally()
    tally.merge(counts)
    assert tally.programs == PROGRAMS
    failures = [f for f in tally.failures if f["verdict"] != CERTIFICATE_REFUSED]
    assert not failures, "\n".join(map(describe, failures))
    assert tally.verdicts[ILL_FORMED] <= 0.02 * PROGRAMS
    assert tally.compiled > 0


def test_nearly_all_fusable_programs_are_fused(tallies: dict[int, Tally]) -> None:
    total = Tally()
    for tally in tallies.values():
        total.merge(tally.to_json())
    if not total.programs:
        pytest.skip("no chunk was selected")
    assert 0.4 < total.fusable / total.programs < 0.7
    assert total.share_fused >= 0.97, total.unfused


def test_certificates_are_believed(tallies: dict[int, Tally]) -> None:
    """The checker, which knows nothing of the primitive, accepts what it says it has proved."""
    found = [f for tally in tallies.values() for f in tally.failures]
    refused = [f for f in found if f["verdict"] == CERTIFICATE_REFUSED]
    assert not refused, "\n".join(map(describe, refused))
    assert all(tally.certificates > 0 for tally in tallies.values())


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(programs())
def test_programs_of_hypothesis(drawn: Program) -> None:
    verdict = judge(drawn)
    assert verdict.kind not in WRONG, verdict.detail


# ---- What is generated ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawn() -> list[Program]:
    return [random_program(f"coverage/{number}") for number in range(6000)]


def test_every_value_of_every_field_is_drawn(drawn: list[Program]) -> None:
    seen = Counter(feature for one in drawn for feature in features(one))
    seen.update(f"monoid={one.reduction.monoid}" for one in drawn)
    seen.update(f"source={one.reduction.source}" for one in drawn)
    wanted = {
        "monoid": tuple(ROWS),
        "accumulator": DTYPES,
        "source": DTYPES,
        "output": DTYPES,
        "term": TERMS,
        "update": UPDATES,
        "init": INITS,
        "layout": [name for name in layouts.WRITES if name != "strided"],
        "read": layouts.ALL_READS,
        "write": layouts.ALL_WRITES,
        "reduction fault": REDUCTION_FAULTS,
        "fault": EPILOGUE_FAULTS,
        "predicate": PREDICATES[1:],
        "alias": ALIASES[1:],
        "hazard": HAZARDS,
        "step": STEPS,
        "call": CALLS,
        "epilogues": range(5),
        "numerics": ("exact", "reassociate"),
        "distribute": (True, False),
        "symbolic": (True, False),
        "several readers": (True, False),
        "operand undefined somewhere": (True, False),
        "reduction loop outermost": (True, False),
        "result is a parameter": (True, False),
        "index": ("int32", "int64"),
        "operation": (
            "add sub mul div floordiv floormod truncdiv truncmod max min and or not bitand bitor "
            "bitxor bitnot shl shr gt ge lt le eq ne select ite cast sigmoid tanh exp lookup table "
            "x y next elem row scalar short lit axis impure"
        ).split(),
    }
    missing = [
        f"{field}={value}"
        for field, values in wanted.items()
        for value in values
        if not seen[f"{field}={value}"]
    ]
    assert not missing


def test_most_programs_have_an_operand_that_is_undefined_somewhere(drawn: list[Program]) -> None:
    assert sum(map(has_partial, drawn)) >= 0.6 * len(drawn)


def test_json_holds_a_program(drawn: list[Program]) -> None:
    for one in drawn[:500]:
        assert Program.from_json(json.loads(json.dumps(one.to_json()))) == one


@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(programs())
def test_hypothesis_draws_programs(one: Program) -> None:
    assert Program.from_json(one.to_json()) == one
    assert isinstance(build(one), tirx.PrimFunc)


def test_a_program_is_well_formed(drawn: list[Program]) -> None:
    for one in drawn[:150]:
        sch, _ = scheduled(build(one), one, debug_mask="all")
        # TVM computes the regions anew and finds those that were declared.
        assert tvm.s_tir.analysis.verify_well_formed(sch.mod)


def test_same_seed_same_program() -> None:
    assert random_program("a/1") == random_program("a/1")
    assert random_program("a/1") != random_program("a/2")


# ---- The truth -----------------------------------------------------------------------------------


def test_every_rule_has_an_example() -> None:
    whole_calls = {"call of a stranger", "wrong pair", "no consumer"}
    names = {rule.name for rule in RULES} | whole_calls | {"input from an epilogue that stays"}
    assert set(EXAMPLES) == names


@pytest.mark.parametrize("name", EXAMPLES)
def test_rule(name: str) -> None:
    forbidden, twin = EXAMPLES[name]
    _, done = scheduled(build(forbidden), forbidden)
    assert len(done) == len(forbidden.steps)
    expected = expectation(forbidden, done)
    assert name in expected.rules
    assert len(expected.must) < len(forbidden.epilogues) or not forbidden.epilogues
    assert expected.codes
    _, done = scheduled(build(twin), twin)
    wanted = {0} if twin.call == "pair" else set(range(len(twin.epilogues)))
    assert name not in expectation(twin, done).rules
    assert expectation(twin, done).must == wanted


@pytest.mark.cpp
@pytest.mark.parametrize("name", EXAMPLES)
def test_primitive_keeps_the_rule(name: str) -> None:
    forbidden, twin = EXAMPLES[name]
    assert judge(forbidden).kind in (REFUSED_RIGHTLY, ACCEPTED_EQUAL)
    assert judge(twin).kind == ACCEPTED_EQUAL


def test_index_maps_are_counted() -> None:
    for name in layouts.ALL_READS:
        if name == "unit axis left out" or name == "diagonal":
            continue
        reads = program(Epilogue(expr=ADD, read=name), reduction={"spatial": (4, 3, 2)})
        ids = Facts(replace(reads, reduction=replace(reads.reduction, order=(0, 1, 2, 3))), ())
        found = ids.read_ids(0, 0)
        one_to_one = sorted(found.ravel()) == list(range(24))
        assert one_to_one == (name not in layouts.READS_WRONG or name == "gather"), name


@pytest.mark.cpp
@pytest.mark.parametrize("one", list(once_wrong()))
def test_what_was_wrong_once_is_right(one: Program) -> None:
    assert judge(one).kind in (REFUSED_RIGHTLY, ACCEPTED_EQUAL)
