"""A few thousand generated programs, and tests of what generates and judges them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from tvm import s_tir, tirx

from generated import layouts, runner, state
from generated.baseline import for_tvm, tvms
from generated.build import build
from generated.chunk import run_chunk
from generated.command import timed
from generated.compiled import disagreements, sampled
from generated.examples import (
    ADD,
    CANCELLING_SEED,
    EXAMPLES,
    NEGATING_SEED,
    PLAIN,
    cancelling,
    counterexamples,
    negating,
    once_wrong,
    overflowing,
    program,
)
from generated.facts import Facts
from generated.monoids import ROWS
from generated.reached import has_partial
from generated.rules import RULES
from generated.runner import run_all
from generated.shrink import shrink
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
from generated.state import Run, State, StateError
from generated.steps import scheduled
from generated.strategy import programs, random_program
from generated.tally import CERTIFICATE_REFUSED, Tally, features
from generated.truth import expectation
from generated.verdict import (
    ACCEPTED_DIFFERENT,
    ACCEPTED_EQUAL,
    ERROR,
    ILL_FORMED,
    REFUSED_RIGHTLY,
    REFUSED_WRONG_CODE,
    WRONG,
    find_difference,
    judge,
    ours,
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


# ---- The judge -----------------------------------------------------------------------------------


def functions(one: Program) -> tuple[tirx.PrimFunc, tirx.PrimFunc]:
    """The function before and after a fusion that has to be accepted."""
    verdict = judge(one)
    assert verdict.kind == ACCEPTED_EQUAL
    return verdict.before, verdict.after


def changed(func: tirx.PrimFunc, node: Any, make: Any) -> tirx.PrimFunc:
    """The function with nodes of a type replaced."""
    import tvm_ffi

    return tvm_ffi.structural_map(func, [(node, make)])


def test_a_dropped_bias_is_noticed() -> None:
    before, after = functions(PLAIN)

    def without_bias(block: s_tir.SBlock) -> s_tir.SBlock:
        if block.init is None:
            return block
        init = tirx.BufferStore(
            block.init.buffer, tirx.IntImm("int32", 0), list(block.init.indices)
        )
        return s_tir.SBlock(
            block.iter_vars,
            block.reads,
            block.writes,
            block.name_hint,
            block.body,
            init,
            block.alloc_buffers,
        )

    assert not find_difference(PLAIN, before, after, reorders=False)
    assert find_difference(PLAIN, before, changed(after, s_tir.SBlock, without_bias), False)


def test_a_dropped_tail_is_noticed() -> None:
    relu = program(Epilogue(expr=("max", ("x",), ("lit", "int32", 0))))
    before, after = functions(relu)
    broken = changed(after, tirx.Max, lambda node: node.a)
    assert "exact data" in find_difference(relu, before, broken, False)


def test_another_order_of_additions_is_noticed_where_it_must_not_be() -> None:
    one = program(
        Epilogue(expr=("add", ("x",), ("elem", "float32", 9)), dtype="float32"),
        reduction={"accumulator": "float32", "source": "float32", "reduce": (7,)},
    )
    before, after = functions(one)
    assert not find_difference(one, before, after, reorders=True)
    assert "normal data" in find_difference(one, before, after, reorders=False)


def test_a_rounding_more_is_out_of_bounds() -> None:
    one = program(
        Epilogue(expr=("add", ("x",), ("elem", "float32", 9)), dtype="float32"),
        reduction={"accumulator": "float32", "source": "float32"},
    )
    before, after = functions(one)

    def halved(load: tvm.ir.TensorLoad) -> Any:
        if str(load.source.name) != "X":
            return load
        return tirx.Cast("float32", tirx.Cast("float16", load))

    broken = changed(after, tvm.ir.TensorLoad, halved)
    assert "normal data" in find_difference(one, before, broken, reorders=True)


def test_another_order_of_a_sum_that_cancels_is_within_bounds() -> None:
    one = cancelling()
    before, after = functions(one)
    assert not find_difference(one, before, after, True, CANCELLING_SEED)

    def narrowed(load: tvm.ir.TensorLoad) -> Any:
        if str(load.source.name) != "G":
            return load
        return tirx.Cast("float32", tirx.Cast("bfloat16", load))

    broken = changed(after, tvm.ir.TensorLoad, narrowed)
    assert "normal data" in find_difference(one, before, broken, True, CANCELLING_SEED)


def test_a_product_is_compiled_on_data_on_which_it_does_not_overflow() -> None:
    one = overflowing()
    verdict = judge(one)
    entry = sampled(0, one, verdict)
    assert entry is not None
    assert np.abs(entry.arrays["X"]).max() <= 2
    assert not list(disagreements([entry]))
    longer = replace(one, reduction=replace(one.reduction, reduce=(99,)))
    assert sampled(0, longer, judge(longer)) is None


def test_a_comparison_that_tvm_negates_is_not_the_fusions_fault() -> None:
    one = negating()
    entry = sampled(NEGATING_SEED, one, judge(one, seed=NEGATING_SEED))
    assert entry is not None
    [(_, verdict)] = disagreements([entry])
    assert (verdict.kind, verdict.detail[:26]) == ("ill-formed", "TVM makes the same of both")


def test_unwritten_memory_is_noticed() -> None:
    before, after = functions(PLAIN)
    without_init = changed(
        after,
        s_tir.SBlock,
        lambda block: s_tir.SBlock(
            block.iter_vars,
            block.reads,
            block.writes,
            block.name_hint,
            block.body,
            None,
            block.alloc_buffers,
        ),
    )
    assert find_difference(PLAIN, before, without_init, reorders=False)


@pytest.mark.parametrize("one", list(counterexamples()))
def test_the_mistakes_of_tvms_primitive_are_noticed(one: Program) -> None:
    other = for_tvm(one)
    assert other is not None
    assert judge(other, tvms).kind in (ACCEPTED_DIFFERENT, ERROR)
    assert judge(one).kind == ACCEPTED_EQUAL


def test_tvms_primitive_is_right_about_a_plain_sum() -> None:
    other = for_tvm(PLAIN)
    assert other is not None
    verdict = judge(other, tvms)
    assert verdict.kind == ACCEPTED_EQUAL
    # It is TVM's: only that one leaves the intermediate among the allocations.
    assert [buffer.name for buffer in verdict.after.body.block.alloc_buffers] == ["result"]


def test_a_wrong_code_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    forbidden = EXAMPLES["other writer"][0]
    monkeypatch.setattr("generated.verdict.refusal_code", lambda error: "domain")
    assert judge(forbidden).kind == REFUSED_WRONG_CODE


def test_a_refusal_that_changes_something_is_noticed() -> None:
    def primitive(sch: s_tir.Schedule, blocks: tuple[str, ...], one: Program) -> Any:
        sch.get_sblock(blocks[0])
        return ours(sch, blocks, one)

    assert judge(EXAMPLES["other writer"][0], primitive).kind == ERROR


def test_another_error_is_noticed() -> None:
    def primitive(sch: s_tir.Schedule, blocks: tuple[str, ...], one: Program) -> Any:
        raise ValueError("no")

    verdict = judge(PLAIN, primitive)
    assert (verdict.kind, verdict.detail) == (ERROR, "ValueError: no")


def test_shrinking_keeps_the_fault_and_little_else() -> None:
    large = random_program("shrink/3")
    large = replace(
        large,
        reduction=replace(PLAIN.reduction, spatial=(3, 2), reduce=(4,), init="buffer"),
        epilogues=(Epilogue(expr=("max", ADD, ("scalar", "int32", 3)), read="transposed"),),
        hazards=(),
        steps=(),
        call="pair",
        named=0,
        symbolic=False,
    )
    small = shrink(large, lambda one: judge(one, tvms).kind == ACCEPTED_DIFFERENT)
    assert judge(small, tvms).kind == ACCEPTED_DIFFERENT
    assert len(json.dumps(small.to_json())) < len(json.dumps(large.to_json()))
    assert small.reduction.spatial == (1,)


# ---- The runner ----------------------------------------------------------------------------------


def quiet(done: int, tally: Any) -> None:
    """Progress that nobody sees."""


def small_run(folder: Path, programs: int = 60, seed: int = 4) -> Run:
    return Run(seed, programs, folder=folder, chunk=20)


def counts_of(run: Run) -> dict[str, Any]:
    """The counts of a run, without the time that it took."""
    counts = run_all(run, 0, quiet).summary()
    del counts["process_seconds"]
    return counts


def test_a_run_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = counts_of(small_run(tmp_path / "whole"))
    run_all(small_run(tmp_path / "parts", programs=40), 0, quiet)
    calls = []

    def counting(run: Run, start: int, stop: int, fatal: tuple[int, ...] = ()) -> Any:
        calls.append((start, stop))
        return run_chunk(run, start, stop, fatal)

    monkeypatch.setattr(runner, "run_chunk", counting)
    assert counts_of(small_run(tmp_path / "parts")) == whole
    assert calls == [(40, 60)]
    assert whole["programs"] == 60


def test_a_line_that_was_cut_off_is_done_again(tmp_path: Path, capsys: Any) -> None:
    run = small_run(tmp_path)
    whole = counts_of(run)
    path = State(run).path
    path.write_text(path.read_text()[:-30])
    assert counts_of(run) == whole
    assert "broken lines are ignored" in capsys.readouterr().err
    # The line after it is a whole one.
    assert counts_of(run) == whole
    assert len(State(run).finished) == 3


@pytest.mark.parametrize("content", ["", "not JSON", "[1, 2]", '{"seed": 4}\n', "\x00\x01"])
def test_a_broken_state_is_an_error_that_says_so(tmp_path: Path, content: str) -> None:
    run = small_run(tmp_path)
    State(run).path.write_text(content)
    with pytest.raises(StateError, match="remove it to start again"):
        run_all(run, 0, quiet)


def test_the_state_of_other_code_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_run(tmp_path, programs=20)
    run_all(run, 0, quiet)
    assert len(State(run).finished) == 1
    monkeypatch.setattr(state, "fingerprint", lambda _: "other")
    assert not State(run).finished


def test_only_chunks_with_something_wrong_are_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_run(tmp_path)
    judged: list[int] = []

    def counting(run: Run, start: int, stop: int, fatal: tuple[int, ...]) -> dict[str, Any]:
        judged.append(start)
        wrong = [{"verdict": "crashed", "number": 25, "program": {}}] * (start == 20)
        return {**Tally().to_json(), "failures": wrong}

    def report_of(run: Run) -> dict[str, Any]:
        report: dict[str, Any] = {}
        timed(run, 0, counting, Tally, report)
        return report

    assert report_of(run).keys() == {"wall_time_s"}
    assert judged == [0, 20, 40]
    first_commit = json.loads(State(run).path.read_text().splitlines()[0])["commit"]
    monkeypatch.setattr(state, "fingerprint", lambda _: "other")
    again = replace(run, again=True)
    for times in (1, 2):  # the second time with the same code
        assert report_of(again) == {"kept": [{"commit": first_commit, "programs": 40}]}
        assert judged == [0, 20, 40, *[20] * times]
    # Of other programs nothing is kept.
    assert not State(replace(again, chunk=30)).finished


def dying_chunk(run: Run, start: int, stop: int, fatal: tuple[int, ...]) -> dict[str, Any]:
    """A chunk whose 25th program ends the process."""
    marker = run.folder / f"current-{os.getpid()}"
    for number in range(start, stop):
        marker.write_text(str(number))
        if number == 25 and number not in fatal:
            os.kill(os.getpid(), signal.SIGKILL)
    marker.unlink()
    return {"start": start, "fatal": list(fatal)}


def test_a_program_that_ends_the_process_is_blamed(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    results = dict(runner._results(run, run.chunks, 1, dying_chunk))
    assert sorted(results) == run.chunks
    assert results[20, 40]["fatal"] == [25]
    assert results[0, 20]["fatal"] == []
    assert not list(tmp_path.glob("current-*"))


def command(folder: Path, *more: str) -> list[str]:
    options = ["--programs", "1500", "--seed", "6", "--folder", str(folder), *more]
    return [sys.executable, "-m", "generated", *options]


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    path = tmp_path / "state-ours-6.jsonl"
    with subprocess.Popen(
        command(tmp_path, "--chunk", "50"), env=env, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        deadline = time.monotonic() + 600
        while not (path.exists() and path.read_text().count("\n") >= 2):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    finished = len(path.read_text().splitlines()) - 1
    output = tmp_path / "fuzz.json"
    again = subprocess.run(
        command(tmp_path, "--programs", "150", "--chunk", "50", "--output", str(output)),
        env=env,
        capture_output=True,
        text=True,
    )
    assert again.returncode in (0, 1), again.stderr
    assert f"{min(150, 50 * finished)}/150 programs" in again.stderr
    report = json.loads(output.read_text())
    assert report["ours"]["programs"] == 150
    assert report["seed"] == 6
    assert sum(report["ours"]["verdicts"].values()) == 150
    assert set(report) >= {"commit", "versions", "machine", "date"}
    assert "wall_time_s" not in report  # of a part


def test_the_command_says_what_is_wrong_with_the_state(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    (tmp_path / "state-ours-6.jsonl").write_text("nonsense")
    found = subprocess.run(command(tmp_path), env=env, capture_output=True, text=True)
    assert found.returncode == 2
    assert "remove it to start again" in found.stderr
    assert "Traceback" not in found.stderr
