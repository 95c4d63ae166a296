"""What the primitive did with a program, and whether that is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call

from fuse_epilogue.report import refusal_code
from fuse_epilogue.verify.abstract import AbstractProgram
from fuse_epilogue.verify.evaluate import EvaluationError, UnsupportedError, compile_function
from fuse_epilogue.verify.evaluate import Program as Evaluated
from fuse_epilogue.verify.intervals import IntervalArithmetic

from .build import REDUCTION, build, epilogue_name, sizes_of
from .data import Arrays, make_arrays
from .spec import Program, Step, is_float
from .steps import scheduled
from .truth import Expectation, expectation

ACCEPTED_EQUAL = "accepted-equal"
ACCEPTED_DIFFERENT = "accepted-different"
REFUSED_THOUGH_FUSABLE = "refused-though-fusable"
REFUSED_RIGHTLY = "refused-rightly"
REFUSED_WRONG_CODE = "refused-wrong-code"
ERROR = "error"
ILL_FORMED = "ill-formed"
VERDICTS = (
    ACCEPTED_EQUAL,
    ACCEPTED_DIFFERENT,
    REFUSED_THOUGH_FUSABLE,
    REFUSED_RIGHTLY,
    REFUSED_WRONG_CODE,
    ERROR,
    ILL_FORMED,
)
# What must never happen.
WRONG = (ACCEPTED_DIFFERENT, REFUSED_WRONG_CODE, ERROR)


# The ends of an interval.
Bound = tuple[float, float]


@dataclass(frozen=True)
class Verdict:
    """The judgement of one program.

    Attributes
    ----------
    kind : str
        One of `VERDICTS`.
    detail : str
        What differs, which code, which error.
    fusable : bool
        Whether some epilogue had to be fused.
    before, after : tirx.PrimFunc or None
        The functions, where the fusion was accepted.
    certificate : Certificate or None
        What the primitive says that it has proved.
    """

    kind: str
    detail: str = ""
    fusable: bool = False
    before: tirx.PrimFunc | None = None
    after: tirx.PrimFunc | None = None
    certificate: Any = None


# A primitive: takes the schedule, the names of the blocks and the program; returns the report, or
# None where it makes none.
Primitive = Callable[[s_tir.Schedule, tuple[str, ...], Program], Any]


def ours(sch: s_tir.Schedule, blocks: tuple[str, ...], program: Program) -> Any:
    """Call this package's primitive."""
    return sch.fuse_reduction_epilogue(
        *blocks, numerics=program.numerics, distribute=program.distribute
    )


def call_of(program: Program, done: tuple[Step, ...]) -> tuple[str, ...]:
    """Return the names of the blocks that the call of a program names."""
    decomposed = any(step.kind == "decompose_reduction" for step in done)
    reduction = f"{REDUCTION}_update" if decomposed else REDUCTION
    if program.call == "stranger":
        return ("other0",)
    if program.call == "consumer" and program.epilogues:
        return (epilogue_name(program.named),)
    if program.call in ("pair", "wrong pair") and program.epilogues:
        return (reduction, epilogue_name(program.named))
    return (reduction,)


def judge(program: Program, primitive: Primitive = ours, seed: int = 0) -> Verdict:
    """Call a primitive on a program and judge what it did.

    Parameters
    ----------
    program : Program
    primitive : callable
        `ours`, or another one to compare with.
    seed : int
        Of the data.
    """
    sch, done = scheduled(build(program), program, error_render_level="none", debug_mask="all")
    expected = expectation(program, done)
    before = sch.mod["main"]
    instructions = len(sch.trace.insts)
    try:
        report = primitive(sch, call_of(program, done), program)
    except s_tir.ScheduleError as error:
        if not sch.mod["main"].same_as(before) or len(sch.trace.insts) != instructions:
            return Verdict(ERROR, f"changed by a refusal: {error}", expected.fusable)
        return _of_refusal(expected, error, primitive is ours)
    except Exception as error:
        return Verdict(ERROR, f"{type(error).__name__}: {error}"[-400:], expected.fusable)
    after = sch.mod["main"]
    return replace(
        _of_acceptance(program, expected, report, before, after, seed),
        before=before,
        after=after,
        certificate=getattr(report, "certificate", None),
    )


def _of_refusal(expected: Expectation, error: Exception, has_codes: bool) -> Verdict:
    code = refusal_code(error) or "no code"
    if expected.fusable:
        return Verdict(REFUSED_THOUGH_FUSABLE, code, True)
    if has_codes and code not in expected.codes:
        return Verdict(REFUSED_WRONG_CODE, f"{code}, not {sorted(expected.codes)}")
    return Verdict(REFUSED_RIGHTLY, code)


def _of_acceptance(
    program: Program, expected: Expectation, report: Any, before: Any, after: Any, seed: int
) -> Verdict:
    fusable = expected.fusable
    try:
        difference = find_difference(program, before, after, _reorders(program, report), seed)
    except IllFormed as error:
        return Verdict(ILL_FORMED, str(error))
    if difference:
        return Verdict(ACCEPTED_DIFFERENT, difference, fusable)
    if report is None:
        return Verdict(ACCEPTED_EQUAL, "", fusable)
    fused = {step.epilogue for step in report.steps}
    missing = sorted(n for n in expected.must if epilogue_name(n) not in fused)
    stopped = report.stopped.code if report.stopped is not None else ""
    if missing:
        return Verdict(REFUSED_THOUGH_FUSABLE, f"{stopped} leaves {missing}", True)
    if stopped and stopped not in expected.codes:
        return Verdict(REFUSED_WRONG_CODE, f"stopped at {stopped}, not {sorted(expected.codes)}")
    return Verdict(ACCEPTED_EQUAL, "", fusable)


def _reorders(program: Program, report: Any) -> bool:
    """Whether floating operations may run in another order than in the program."""
    if program.numerics == "exact" or not is_float(program.reduction.accumulator):
        return False
    return report is None or any(step.absorbed or step.distributed for step in report.steps)


class IllFormed(Exception):
    """The program itself has no defined result."""


def find_difference(
    program: Program, before: tirx.PrimFunc, after: tirx.PrimFunc, reorders: bool, seed: int = 0
) -> str:
    """Say where two functions of a program differ; empty if nowhere.

    Parameters
    ----------
    program : Program
    before, after : tirx.PrimFunc
    reorders : bool
        Whether floating operations may run in another order: then the results must be the same
        where nothing is rounded, and within the bounds that rounding gives elsewhere.
    seed : int
        Of the data.

    Raises
    ------
    IllFormed
        If the function before reads what it never wrote.
    """
    before, after = evaluable(program, before), evaluable(program, after)
    try:
        first = compile_function(before)
    except EvaluationError as error:
        raise IllFormed(f"not supported: {error}") from error
    try:
        second = compile_function(after)
    except Exception as error:
        return f"the function after cannot be evaluated: {type(error).__name__}: {error}"
    kinds = ["exact", "normal"]
    if not reorders and any(is_float(str(var.ty.dtype)) for var in before.params):
        kinds.append("nasty")
    for which in range(3 if program.symbolic else 1):
        for kind in kinds:
            found = _compare(program, (before, first), (after, second), reorders, kind, seed, which)
            if found:
                return f"{kind} data: {found}"
    return ""


Evaluable = tuple[tirx.PrimFunc, Evaluated]


def _compare(
    program: Program,
    before: Evaluable,
    after: Evaluable,
    reorders: bool,
    kind: str,
    seed: int,
    which: int,
) -> str:
    sizes = sizes_of(program, which)
    arrays = make_arrays(program, before[0], kind, seed, which)
    initial = {name: array.copy() for name, array in arrays.items()}
    changed = {name: array.copy() for name, array in arrays.items()}
    try:
        before[1].run(arrays, sizes)
    except EvaluationError as error:
        raise IllFormed(str(error)) from error
    try:
        after[1].run(changed, sizes)
    except Exception as error:
        # Also what Python says of operands that do not go together: ill-typed TIR.
        return f"{type(error).__name__}: {error}"
    selects = program.reduction.monoid in ("max", "min")
    if reorders and kind == "normal" and not selects:
        return _outside_bounds(program, before[0], after[0], initial, arrays, changed, sizes)
    return unequal(arrays, changed, signed_zeros=not reorders)


def evaluable(program: Program, func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return the function without pointers and external calls, which cannot be evaluated.

    Programs with these are refused where they matter; elsewhere the same is left out on both sides.
    """
    hazards = any(hazard.kind.startswith("address of") for hazard in program.hazards)
    if not hazards and not any(e.fault == "impure" for e in program.epilogues):
        return func

    def no_pointer(stmt: tirx.Evaluate) -> tirx.Evaluate:
        return tirx.Evaluate(tirx.IntImm("int32", 0))

    def argument(call: Call) -> Any:
        return call.args[-1] if str(call.op.name) == "tirx.call_extern" else call

    return tvm_ffi.structural_map(func, [(tirx.Evaluate, no_pointer), (Call, argument)])


def unequal(before: Arrays, after: Arrays, signed_zeros: bool) -> str:
    """Say where two sets of arrays differ; empty if nowhere. NaN equals NaN."""
    for name, wanted in before.items():
        got = after[name]
        if wanted.tobytes() == got.tobytes():
            continue
        if wanted.dtype.kind in "iub":
            same = wanted == got
        else:
            same = (wanted == got) | ((wanted != wanted) & (got != got))
            if signed_zeros:
                same &= (np.signbit(wanted) == np.signbit(got)) | (wanted != wanted)
        if not same.all():
            where = tuple(int(i) for i in np.argwhere(~same)[0])
            return f"{name}{list(where)} is {got[where]}, not {wanted[where]}"
    return ""


# In another order the same operations may round larger numbers, and where nothing was rounded by
# chance something may be; there are less than 50 operations. A coarser type rounds 8000 times more.
_WIDER = 16
_MORE_ROUNDINGS = 512
_SMALLEST = 2.0**-149


def _as_narrow(before: Bound, after: Bound, unit: float) -> bool:
    rounding = unit * max(abs(after[0]), abs(after[1]))
    allowed = _WIDER * (before[1] - before[0]) + _MORE_ROUNDINGS * (rounding + _SMALLEST)
    return not after[1] - after[0] > allowed


def _outside_bounds(
    program: Program,
    before: tirx.PrimFunc,
    after: tirx.PrimFunc,
    initial: Arrays,
    wanted: Arrays,
    got: Arrays,
    sizes: dict[str, int],
) -> str:
    """Say where the results are not what rounding in another order may give; empty if nowhere.

    Each of them has to lie in its function's bounds, which hold the exact result and so overlap.
    The bounds after must not be much wider than those before: no rounding may be coarser.
    """
    # The bounds themselves are computed in float64.
    unit = 2.0**-51 if program.reduction.accumulator == "float64" else 2.0**-24
    try:
        first, second = (_bounds(func, initial, sizes) for func in (before, after))
    except UnsupportedError:
        # A store whose place depends on data: it is compared on exact data only.
        return ""
    for name, array in wanted.items():
        values = zip(
            array.ravel().tolist(),
            got[name].ravel().tolist(),
            first[name],
            second[name],
            strict=True,
        )
        for place, (a, b, bound_a, bound_b) in enumerate(values):
            overlap = _within(bound_a[0], bound_b) or _within(bound_b[0], bound_a)
            inside = _within(a, bound_a) and _within(b, bound_b)
            if not (inside and overlap and _as_narrow(bound_a, bound_b, unit)):
                return f"{name}.flat[{place}] is {b} in {bound_b}, not {a} in {bound_a}"
    return ""


def _within(value: float, bound: Bound) -> bool:
    # The ends may be NaN, which means that anything is possible.
    return not (value < bound[0] or value > bound[1])


def _bounds(func: tirx.PrimFunc, arrays: Arrays, sizes: dict[str, int]) -> dict[str, list[Bound]]:
    content = {
        name: [(value, value) for value in array.ravel().tolist()] for name, array in arrays.items()
    }
    AbstractProgram(func).run(IntervalArithmetic(), content, sizes)
    return content
