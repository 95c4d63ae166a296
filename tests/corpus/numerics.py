"""What ``numerics="exact"`` makes of each program, and what the certificate says about floats."""

from __future__ import annotations

import tvm

import fuse_epilogue

from .subject import IN_PLACE, Steps, Subject

NUMERICS = Steps()


def sums_floats(subject: Subject) -> bool:
    """Ask where the accumulator is floating."""
    return "float" in subject.accumulator


@NUMERICS.step(lambda subject: subject.floating and subject.case.name in IN_PLACE)
def an_exact_call_leaves_what_is_in_the_place_of_a_tail(subject: Subject) -> None:
    case = subject.case
    report = fuse_epilogue.analyze(case.scheduled(), case.reduction, numerics="exact")
    assert report.stopped is not None
    assert report.stopped.code == "already-fused"


@NUMERICS.step(lambda subject: subject.to_be_exact and sums_floats(subject))
def exact_absorbs_nothing_of_a_float(subject: Subject) -> None:
    report = subject.exact.report
    assert report.numerics == "exact"
    assert {step.absorbed for step in report.steps} == {""}
    assert {step.distributed for step in report.steps} == {""}
    assert not report.certificate.reassociates


@NUMERICS.step(lambda subject: not sums_floats(subject) and subject.case.numerics == "reassociate")
def exact_makes_no_difference_to_integers(subject: Subject) -> None:
    tvm.ir.assert_structural_equal(subject.exact.sch.mod, subject.fused.sch.mod)
    assert not subject.fused.report.certificate.reassociates


@NUMERICS.step(lambda subject: subject.floating and sums_floats(subject))
def certificate_says_whether_floats_were_reassociated(subject: Subject) -> None:
    report = subject.fused.report
    reassociated = any(step.absorbed or step.distributed for step in report.steps)
    assert report.certificate.reassociates == reassociated
