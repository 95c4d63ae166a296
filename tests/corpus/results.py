"""What the compiled programs compute, and that the checker of certificates accepts each fusion."""

from __future__ import annotations

from dataclasses import replace

from fuse_epilogue.verify import check
from oracles import (
    assert_identical,
    assert_same_bits,
    assert_within_rounding,
    check_fused,
    check_identical,
    check_unfused,
    expected,
    make_inputs,
    run,
)

from .subject import Steps, Subject

REFERENCE = Steps()
RESULTS = Steps()

# TVM decomposes these at no loop.
UNDECOMPOSED = {"reversed_loop"}


@REFERENCE.step()
def unfused_program_is_what_its_reference_says(subject: Subject) -> None:
    check_unfused(subject.case, subject.build(""))


@RESULTS.step()
def computes_the_same(subject: Subject) -> None:
    check_fused(subject.case, subject.build(""), subject.build("_fused"))


@RESULTS.step(lambda subject: subject.to_be_exact)
def exact_gives_the_same_bits(subject: Subject) -> None:
    """On ordinary numbers, signed zeros, infinities, NaN and denormals."""
    case = replace(subject.case, name=f"{subject.case.name}_bit_for_bit", numerics="exact")
    check_identical(case, subject.build(""), subject.build("_exact"))


@RESULTS.step(
    lambda subject: (
        subject.floating
        and not subject.case.inexact
        and subject.case.special in {"no NaN", "finite"}
    )
)
def a_maximum_selects_the_same_number(subject: Subject) -> None:
    """Adding to all candidates, or bounding them, rounds to what it does to the largest."""
    case = subject.case
    inputs = make_inputs(case, "normal", {})
    before = run(subject.build(""), case, inputs, {})
    after = run(subject.build("_fused"), case, inputs, {})
    for name in before:
        assert_identical(after[name], before[name], f"{case.name}, {name}")


@RESULTS.step()
def is_right_after_decomposing(subject: Subject) -> None:
    """At one loop each."""
    case = subject.case
    assert (subject.decomposed_once is None) == (case.name in UNDECOMPOSED)
    if subject.decomposed_once is None:
        return
    for sizes in case.sizes:
        inputs = make_inputs(case, "exact", sizes)
        result = run(subject.build("_decomposed"), case, inputs, sizes)
        if case.approximate:
            assert_within_rounding(case, result, inputs, sizes)
            continue
        for output, value in expected(case, inputs).items():
            assert_same_bits(result[output], value, f"{case.name} {dict(sizes)}, {output}")


@RESULTS.step()
def certificate_holds(subject: Subject) -> None:
    fused = subject.fused
    check(fused.before, fused.after, fused.report.certificate)


@RESULTS.step()
def certificates_of_pairs_hold(subject: Subject) -> None:
    for call in subject.pairs[1]:
        check(call.before, call.after, call.report.certificate)
