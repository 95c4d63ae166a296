"""What a call tells: the report, the refusal's code and text, errors in the arguments."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import pkgutil
import re
from collections.abc import Mapping
from typing import Any

import pytest
from tvm import s_tir
from tvm.s_tir import Schedule

import fuse_epilogue
from fuse_epilogue import REFUSALS, FusionReport, FusionStep, Refusal, refusal_code
from programs import BY_NAME

# The codes are part of the interface: callers compare with them.
CODES = {
    *("not-a-reduction", "reduction-form", "no-init", "tuple-reduction", "accumulator-type"),
    *("reduction-domain", "reduction-order", "reduction-loop-kind", "already-fused", "tail-place"),
    *("no-consumer", "other-writer", "consumer-form", "consumer-domain", "index-map", "domain"),
    *("output-write", "output-writers", "shared-loops", "structure", "order", "wrong-pair"),
    *("storage-scope", "index-type", "bias-written-between", "output-used-between"),
    *("output-aliases-input", "opaque-access", "impure", "init-reads"),
    *("vector-lanes", "not-alone", "rewriting", "storage-align", "carried-value"),
    *("no-cascade", "cascade-form", "cascade-loops", "cascade-row"),
    *("cascade-domain", "cascade-empty", "cascade-start", "cascade-term", "cascade-cast"),
    *("cascade-condition", "cascade-expanding", "cascade-range", "cascade-narrow"),
    *("cascade-exact", "cascade-order", "cascade-loop", "cascade-parts"),
}

# How a sentence tells the reader what to do.
INSTRUCTIONS = {
    *("accumulate", "call", "compute", "decompose", "fuse", "give", "inline", "keep", "move"),
    *("name", "put", "read", "remove", "rewrite", "slice", "store", "use", "write", "allocate"),
    *("let", "copy", "schedule", "make", "leave", "vectorize"),
}


# ---------------------------------------------------------------------------------------------
# The report
# ---------------------------------------------------------------------------------------------

BIAS = FusionStep("add", "C[vi, vj]", "", "", "temp", "")
COPY = FusionStep("copy", "", "", "", "biased", "")
RELU = FusionStep("relu", "", "", "T.max(x, 0)", "", "it bends")
GATE = FusionStep("sigmoid", "", "", "", "gate", "", "multiply")
DOUBLED = FusionStep("scale", "C[vi] * 2", "x * 2", "", "temp", "")
STOP = Refusal("domain", "corner", "block 'corner' reads some of it. Keep the block.")


def report(*steps: FusionStep, kept: tuple[str, ...] = (), stopped: Any = None) -> FusionReport:
    return FusionReport(bool(steps), "mm", "D", "reassociate", steps, kept, stopped, None)


@pytest.mark.parametrize(
    ("shown", "lines"),
    [
        (report(BIAS), ["'mm' absorbed C[vi, vj] from 'add' into T.init; 'temp' is gone."]),
        (report(COPY), ["'mm' took over the copy 'copy'; 'biased' is gone."]),
        (
            report(BIAS, COPY, stopped=STOP),
            [
                "'mm' absorbed C[vi, vj] from 'add' into T.init; 'temp' is gone.",
                "'mm' took over the copy 'copy'; 'biased' is gone.",
                "Left as it is [domain]: block 'corner' reads some of it. Keep the block.",
            ],
        ),
        (
            report(stopped=STOP),
            ["Not fusable [domain]: block 'corner' reads some of it. Keep the block."],
        ),
    ],
)
def test_a_report_in_words(shown: FusionReport, lines: list[str]) -> None:
    assert list(shown.sentences) == lines
    # What may happen to floats is in the first line.
    assert str(shown).splitlines() == [f"{lines[0]} (numerics: reassociate)", *lines[1:]]


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (RELU, ["'relu'", "T.max(x, 0)", "it bends"]),
        (GATE, ["'sigmoid'", "'multiply'", "'gate' is gone"]),
        (DOUBLED, ["'scale'", "C[vi] * 2", "x * 2", "'temp' is gone"]),
    ],
)
def test_a_sentence_says_what_became_of_an_epilogue(step: FusionStep, words: list[str]) -> None:
    (line,) = str(report(step)).splitlines()
    assert [word for word in words if word not in line] == []


def test_a_sentence_says_what_is_kept() -> None:
    lines = str(report(RELU, kept=("temp", "mid"))).splitlines()
    assert len(lines) == 3
    for line, buffer in zip(lines[1:], ("temp", "mid"), strict=True):
        assert f"'{buffer}'" in line


@pytest.mark.parametrize("thing", [report(BIAS, stopped=STOP), BIAS, STOP])
def test_reports_cannot_be_changed(thing: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(thing, dataclasses.fields(thing)[0].name, "other")


def test_a_report_is_made_of_plain_values() -> None:
    # A product, a bias, and a bias that comes too late.
    made = BY_NAME["bias_then_bias_made_late"].scheduled().fuse_reduction_epilogue("mm")
    assert made.stopped is not None
    stop = made.stopped
    (step,) = made.steps
    strings = [made.reduction, made.output, made.numerics, *dataclasses.astuple(step)]
    strings += [stop.code, stop.block, stop.message]
    assert {type(value) for value in strings} == {str}
    assert made.fusable is True
    assert dataclasses.astuple(step) == ("add", "C[vi]", "", "", "temp", "", "")
    assert (made.reduction, made.output, made.kept) == ("mm", "mid", ())
    assert (stop.code, stop.block) == ("bias-written-between", "add_late")
    assert stop.message.endswith(REFUSALS["bias-written-between"])
    assert str(made).splitlines()[1:] == [f"Left as it is [bias-written-between]: {stop.message}"]


def test_a_report_of_kept_values() -> None:
    made = BY_NAME["sum_is_a_parameter"].scheduled().fuse_reduction_epilogue("mm")
    assert made.kept == ("temp",)
    assert {type(name) for name in made.kept} == {str}


@pytest.mark.cpp
def test_a_report_carries_its_certificate() -> None:
    made = BY_NAME["bias_then_relu"].scheduled().fuse_reduction_epilogue("mm")
    proof = made.certificate
    assert proof is not None
    assert (proof.reduction, proof.monoid, proof.monoid_after) == ("mm", "sum", "sum")
    assert [one.name for one in proof.epilogues] == ["add", "relu"]
    assert [one.name for one in proof.tails] == ["relu"]
    assert [buffer.name for buffer in proof.removed] == ["temp"]
    assert (proof.accumulator.name, proof.result.name) == ("temp", "mid")


# ---------------------------------------------------------------------------------------------
# Refusals
# ---------------------------------------------------------------------------------------------


def test_no_code_is_missing() -> None:
    assert set(REFUSALS) == CODES


def test_refusals_cannot_be_changed() -> None:
    assert isinstance(REFUSALS, Mapping)
    with pytest.raises(TypeError):
        REFUSALS["impure"] = "nothing"  # type: ignore[index]
    with pytest.raises(AttributeError):
        REFUSALS.clear()  # type: ignore[attr-defined]


@pytest.mark.parametrize("code", sorted(REFUSALS))
def test_an_explanation_ends_with_a_way_out(code: str) -> None:
    explanation = REFUSALS[code]
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code)
    assert explanation[0].isupper()
    assert explanation.endswith(".")
    assert "\n" not in explanation
    last_clause = re.split(r"[;:.] ", explanation)[-1]
    first_words = [part.split()[0].strip(",.").lower() for part in re.split(", ", last_clause)]
    assert INSTRUCTIONS & set(first_words), f"no instruction at the end of: {explanation}"


def test_the_code_of_a_refusal() -> None:
    with pytest.raises(s_tir.ScheduleError) as caught:
        BY_NAME["impure_activation"].scheduled().fuse_reduction_epilogue("mm")
    assert refusal_code(caught.value) == "impure"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "something else",
        "[impure] in brackets, but not where a refusal has it",
        "Error message: no code here",
        "Error message: [no-such-code] something",
        "Error message: The [impure] block",
    ],
)
def test_other_errors_have_no_code(text: str) -> None:
    assert refusal_code(s_tir.ScheduleError(text)) is None
    assert refusal_code(ValueError(text)) is None


@pytest.mark.cpp
@pytest.mark.parametrize("level", ["detail", "fast", "none"])
def test_errors_of_other_primitives_have_no_code(level: str) -> None:
    # Neither has one whose program prints what looks like a code.
    sch = Schedule(BY_NAME["two_blocks"].func, error_render_level=level)
    sch.annotate(sch.get_sblock("add"), "note", "Error message: [impure] is text of the program")
    i, _ = sch.get_loops(sch.get_sblock("add"))
    with pytest.raises(s_tir.ScheduleError) as caught:
        sch.decompose_reduction(sch.get_sblock("add"), i)
    assert refusal_code(caught.value) is None


# ---------------------------------------------------------------------------------------------
# Arguments
# ---------------------------------------------------------------------------------------------


@pytest.fixture
def sch() -> Schedule:
    return BY_NAME["two_blocks"].scheduled()


@pytest.mark.cpp
@pytest.mark.parametrize(
    ("positional", "named"),
    [
        ((), {}),
        ((None,), {}),
        ((), {"epilogue_block": "add"}),
        ((), {"block": "mm", "reduction_block": "mm"}),
        (("mm", "add"), {"reduction_block": "mm"}),
        ((1,), {}),
        ((1.5, "add"), {}),
        (("mm", 2), {}),
        ((), {"reduction_block": ["mm"]}),
        (("mm", "add", "add"), {}),
        (("mm",), {"consumer": "add"}),
        (("mm", "add", "exact"), {}),
        (("mm",), {"distribute": "no"}),
        (("mm",), {"distribute": 0}),
        (("mm",), {"numerics": ["exact"]}),
    ],
)
def test_wrong_arguments(sch: Schedule, positional: Any, named: Any) -> None:
    module = sch.mod
    with pytest.raises(TypeError):
        sch.fuse_reduction_epilogue(*positional, **named)
    assert sch.mod.same_as(module)
    assert not sch.trace.insts


@pytest.mark.cpp
@pytest.mark.parametrize("position", [0, 1])
def test_a_loop_is_not_a_block(sch: Schedule, position: int) -> None:
    loop = sch.get_loops(sch.get_sblock("mm"))[0]
    recorded = len(sch.trace.insts)
    arguments: list[Any] = ["mm", "add"]
    arguments[position] = loop
    with pytest.raises(TypeError, match="LoopRV"):
        sch.fuse_reduction_epilogue(*arguments)
    assert len(sch.trace.insts) == recorded


@pytest.mark.cpp
@pytest.mark.parametrize("names", [("nobody",), ("mm", "nobody"), ("nobody", "add")])
def test_unknown_names(sch: Schedule, names: tuple[str, ...]) -> None:
    module = sch.mod
    with pytest.raises(s_tir.ScheduleError, match="nobody") as caught:
        sch.fuse_reduction_epilogue(*names)
    assert refusal_code(caught.value) is None
    assert sch.mod.same_as(module)
    assert not sch.trace.insts


@pytest.mark.cpp
def test_a_block_that_has_been_fused_away(sch: Schedule) -> None:
    epilogue = sch.get_sblock("add")
    sch.fuse_reduction_epilogue("mm", epilogue)
    module, recorded = sch.mod, len(sch.trace.insts)
    with pytest.raises((s_tir.ScheduleError, ValueError, RuntimeError)):
        sch.fuse_reduction_epilogue("mm", epilogue)
    assert sch.mod.same_as(module)
    assert len(sch.trace.insts) == recorded


# ---------------------------------------------------------------------------------------------
# Documentation
# ---------------------------------------------------------------------------------------------

MODULES = ["fuse_epilogue"] + [
    f"fuse_epilogue.{found.name}" for found in pkgutil.iter_modules(fuse_epilogue.__path__)
]


@pytest.mark.full
@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS).failed == 0


@pytest.mark.full
def test_some_examples_are_run() -> None:
    tried = [
        doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS).attempted
        for name in MODULES
    ]
    assert sum(tried) >= 4


def test_everything_public_is_there() -> None:
    for name in fuse_epilogue.__all__:
        thing = getattr(fuse_epilogue, name)
        assert thing.__doc__ if callable(thing) else thing
    assert Schedule.fuse_reduction_epilogue is fuse_epilogue.fuse_reduction_epilogue
