"""What the primitive did with a program, and whether that is right."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call

from fuse_epilogue.report import refusal_code
from fuse_epilogue.verify.evaluate import EvaluationError, UnsupportedError
from fuse_epilogue.verify.evaluation.abstract import AbstractProgram
from fuse_epilogue.verify.evaluation.intervals import IntervalArithmetic
from fuse_epilogue.verify.evaluation.rounding import FORMATS
from fuse_epilogue.verify.evaluation.scalars import ScalarType

from .build import REDUCTION, build, epilogue_name, sizes_of
from .data import Arrays, make_arrays
from .expressions import walk
from .monoids import ROWS
from .spec import Program, Step, is_float
from .steps import scheduled
from .truth import Expectation, expectation
from .watched import Watched

ACCEPTED_EQUAL = "accepted-equal"
ACCEPTED_DIFFERENT = "accepted-different"
REFUSED_THOUGH_FUSABLE = "refused-though-fusable"
REFUSED_RIGHTLY = "refused-rightly"
REFUSED_WRONG_CODE = "refused-wrong-code"
CRASHED = "crashed"
ERROR = "error"
ILL_FORMED = "ill-formed"
VERDICTS = (
    ACCEPTED_EQUAL,
    ACCEPTED_DIFFERENT,
    REFUSED_THOUGH_FUSABLE,
    REFUSED_RIGHTLY,
    REFUSED_WRONG_CODE,
    CRASHED,
    ERROR,
    ILL_FORMED,
)
# What must never happen.
WRONG = (ACCEPTED_DIFFERENT, REFUSED_WRONG_CODE, CRASHED, ERROR)


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
        If the function before does what has no defined result.
    """
    before, after = evaluable(program, before), evaluable(program, after)
    try:
        first = Watched(before)
    except EvaluationError as error:
        raise IllFormed(f"not supported: {error}") from error
    try:
        second = Watched(after)
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


_rewrite_selects = s_tir.transform.RewriteUnsafeSelect()

Evaluable = tuple[tirx.PrimFunc, Watched]


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
        undefined = before[1].run(arrays, sizes)
    except EvaluationError as error:
        raise IllFormed(str(error)) from error
    try:
        found = after[1].run(changed, sizes)
    except Exception as error:
        # Also what Python says of operands that do not go together: ill-typed TIR.
        return f"{type(error).__name__}: {error}"
    # A reduction's own steps are modulo 2^n, and may multiply.
    if found and not undefined and kind == "exact" and program.reduction.monoid != "product":
        return f"not in the program: {found}"
    monoid = ROWS[program.reduction.monoid]
    if reorders and not monoid.is_exact:
        if kind == "nasty":
            return _more_undefined(arrays, changed)
        return outside_bounds(program, before[0], after[0], initial, arrays, changed, sizes)
    if reorders and kind == "normal" and monoid.rounds:
        return outside_bounds(program, before[0], after[0], initial, arrays, changed, sizes)
    return unequal(arrays, changed, signed_zeros=not reorders)


def evaluable(program: Program, func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return the function without pointers and external calls, which cannot be evaluated.

    Programs with these are refused where they matter; elsewhere the same is left out on both sides.
    A select whose arms load something computes only one of them, as TVM compiles it.
    """
    func = _rewrite_selects(tvm.IRModule({"main": func}))["main"]
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


def _more_undefined(before: Arrays, after: Arrays) -> str:
    """Say where something is NaN that was not; empty if nowhere."""
    for name, wanted in before.items():
        if wanted.dtype.kind in "iub":
            continue
        more = (after[name] != after[name]) & (wanted == wanted)
        if more.any():
            where = tuple(int(i) for i in np.argwhere(more)[0])
            return f"{name}{list(where)} is NaN, not {wanted[where]}"
    return ""


class _Perturbed(IntervalArithmetic):
    """Intervals in which also the literals, and the integers that become floats, are perturbed."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self._share = share

    def literal(self, value: float, type: ScalarType) -> Bound:
        """Return what a literal may be."""
        return _around(super().literal(value, type)[0], self._share)

    def _cast(self, a: Bound, source: ScalarType, target: ScalarType) -> Bound:
        low, high = super()._cast(a, source, target)
        if source.kind == "f" or target.kind != "f":
            return low, high
        return _around(low, self._share)[0], _around(high, self._share)[1]


def _around(value: float, share: float) -> Bound:
    if not share or math.isinf(value):
        return value, value
    return value - share * abs(value), value + share * abs(value)


def _operations(program: Program, sizes: dict[str, int]) -> int:
    """Return more than the operations that any input goes through on its way to a result."""
    reduction = program.reduction
    steps = math.prod((sizes.get("m", reduction.reduce[0]), *reduction.reduce[1:]))
    # In the epilogues, wherever these are computed now; in a term: a cast, a product, a sign.
    nodes = sum(1 for epilogue in program.epilogues for _ in walk(epilogue.expr))
    return steps + nodes + 4


def outside_bounds(
    program: Program,
    before: tirx.PrimFunc,
    after: tirx.PrimFunc,
    initial: Arrays,
    wanted: Arrays,
    got: Arrays,
    sizes: dict[str, int],
) -> str:
    """Say where the results are not what rounding in another order may give; empty if nowhere.

    A reordered sum is the sum of terms ``t_i (1 + e_i)``: each of the at most n operations that a
    term goes through rounds by a factor in 1 - u .. 1 + u, so ``|e_i| <= n u / (1 - n u)``. The
    same holds for products, and for a factor that is distributed over a sum. Relative to the sum
    itself, where its terms cancel, that can be as much as you like, and where the program before
    rounds nothing by chance its own bounds say nothing of it.

    So this program is run over intervals, with all floats that go into it perturbed by so much:
    intervals take every occurrence of an input to vary on its own, as the factors above do, and
    what holds more before a further operation holds more behind it. What comes out holds whatever
    the same operations in another order may give, and their bounds, which add up the same
    roundings. An operation left out or added, or a rounding to a coarser type, goes beyond.
    """
    form = FORMATS[program.reduction.accumulator]
    number = _operations(program, sizes)
    is_exact = ROWS[program.reduction.monoid].is_exact
    share = number * form.relative / (1 - number * form.relative)
    try:
        first = _bounds(before, initial, sizes, _Perturbed(share), share)
        second = _bounds(after, initial, sizes, IntervalArithmetic(), 0.0)
    except (EvaluationError, UnsupportedError):
        # A store whose place depends on data, or a load whose place does so much that the
        # perturbed one may be out of bounds: such programs are compared on exact data only.
        return ""
    for name, array in wanted.items():
        # The ends are themselves computed in float64, and below the smallest number all is lost.
        exact = array.dtype.kind in "iub"
        relative, tiny = (0, 0) if exact else (2.0**-51, number * form.tiny)
        values = zip(
            array.ravel().tolist(),
            got[name].ravel().tolist(),
            first[name],
            second[name],
            strict=True,
        )
        for place, (a, b, (low, high), bound) in enumerate(values):
            if exact and a == b:
                continue  # intervals do not wrap as the integers of a type do
            allowed = low - abs(low) * relative - tiny, high + abs(high) * relative + tiny
            # Bounds of a difference of two numbers that both depend on a third are wider than those
            # of the numbers: where the combiner has one, only a common value is asked for.
            holds = _holds(allowed, bound) if is_exact else _meet(allowed, bound)
            if not (_within(a, allowed) and _within(b, bound) and holds):
                return f"{name}.flat[{place}] is {b} in {bound}, not {a} in {allowed}"
    return ""


def _within(value: float, bound: Bound) -> bool:
    return _holds(bound, (value, value))


def _holds(outer: Bound, inner: Bound) -> bool:
    # An upper end that is NaN means that the value may be, and a lower one that it is.
    may_be_nan = outer[1] != outer[1]
    if inner[1] != inner[1] and not may_be_nan:
        return False
    return not (inner[0] < outer[0] or inner[1] > outer[1])


def _meet(a: Bound, b: Bound) -> bool:
    return not (a[0] > b[1] or b[0] > a[1])


def _bounds(
    func: tirx.PrimFunc,
    arrays: Arrays,
    sizes: dict[str, int],
    arithmetic: IntervalArithmetic,
    share: float,
) -> dict[str, list[Bound]]:
    """Run a function over intervals around its arguments: floats may be off by that share."""
    content = {
        name: [
            (value, value) if array.dtype.kind in "iub" else _around(value, share)
            for value in array.ravel().tolist()
        ]
        for name, array in arrays.items()
    }
    AbstractProgram(func).run(arithmetic, content, sizes)
    return content
