"""A sample of accepted programs, compiled by TVM: does the machine agree with the evaluator?

They run in a child process, on arrays against unreadable pages: what the evaluator does not see
(an instruction that traps, a vector that is read beyond an end) ends that process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from fuse_epilogue.verify.evaluate import EvaluationError, UnsupportedError

from .build import sizes_of
from .child import Outcome, outcomes
from .data import make_arrays
from .expressions import uses, walk
from .fences import SIDES, Fenced
from .monoids import ROWS
from .reached import Arrays
from .spec import FLOATS, Expr, Program
from .verdict import (
    ACCEPTED_DIFFERENT,
    ACCEPTED_EQUAL,
    CRASHED,
    ILL_FORMED,
    Verdict,
    evaluable,
    outside_bounds,
    unequal,
)
from .watched import Watched

# Functions compiled into one module; a call of the compiler costs more than a function does.
FUNCTIONS_PER_MODULE = 40

# What libraries compute, each in its own way.
TRANSCENDENTAL = (
    *("sigmoid", "tanh", "exp"),
    *(row.operation for row in ROWS.values() if not row.is_exact),
)


@dataclass(frozen=True)
class Sampled:
    """An accepted program with its number, its functions, and the data to run them on."""

    number: int
    program: Program
    before: tirx.PrimFunc
    after: tirx.PrimFunc
    arrays: Arrays
    fusable: bool = True


def sampled(number: int, program: Program, verdict: Verdict) -> Sampled | None:
    """Return what has to be compiled of an accepted program; None if it cannot be.

    Parameters
    ----------
    number : int
        Also decides the data.
    program : Program
    verdict : Verdict
        With the functions.
    """
    arrays = without_overflow(program, verdict.before, number) if can_be_compiled(program) else None
    if arrays is None:
        return None
    return Sampled(number, program, verdict.before, verdict.after, arrays, verdict.fusable)


def can_be_compiled(program: Program) -> bool:
    """Whether a program may be compiled and then gives the same on every machine.

    There must be neither pointers nor external functions in it.
    """
    if any(hazard.kind.startswith("address of") for hazard in program.hazards):
        return False
    nodes = [node for epilogue in program.epilogues for node in walk(epilogue.expr)]
    if any(node[0] == "impure" for node in nodes):
        return False
    steps = {step.kind for step in program.steps}
    if "vectorize" in steps and (program.symbolic or steps & {"reverse_compute_at", "compute_at"}):
        # TVM makes nothing, or nonsense, of an intermediate under a vectorized loop.
        return False
    types = {program.reduction.accumulator, *(e.dtype for e in program.epilogues)}
    types |= {str(node[1]) for node in nodes if node[0] == "cast"}
    return not ("vectorize" in steps and "bool" in types)


def without_overflow(program: Program, before: tirx.PrimFunc, seed: int) -> Arrays | None:
    """Return data on which a program never overflows; None if there is none.

    LLVM is told that arithmetic of 32 bits and more never overflows, as it is that a float which
    becomes an integer fits. Where it does not, a program has no result that could be compared: TVM
    gives the function before another one than the evaluator, in which integers wrap.

    Parameters
    ----------
    program : Program
    before : tirx.PrimFunc
        The function before the fusion. The fused one has to do without overflow on its own.
    seed : int
    """
    try:
        watched = Watched(evaluable(program, before), sums=True)
    except UnsupportedError:
        return None
    for kind in ("exact", "small"):
        arrays = make_arrays(program, before, kind, seed)
        copies = {name: array.copy() for name, array in arrays.items()}
        try:
            if not watched.run(copies, sizes_of(program)):
                return arrays
        except EvaluationError:
            continue
    return None


def disagreements(sample: Sequence[Sampled]) -> Iterator[tuple[int, Verdict]]:
    """Yield the number of each program with which something is wrong, and what.

    Programs that TVM cannot compile before the fusion are passed over.

    Parameters
    ----------
    sample : sequence of Sampled
        What `sampled` returns.
    """
    jobs: list[Callable[..., str]] = []
    of: list[Sampled] = []
    per_module = FUNCTIONS_PER_MODULE // 2
    for start in range(0, len(sample), per_module):
        part = sample[start : start + per_module]
        built = _compile([func for entry in part for func in (entry.before, entry.after)])
        for place, entry in enumerate(part):
            pair = _alone(entry) if isinstance(built, str) else built[2 * place : 2 * place + 2]
            if isinstance(pair, str):
                yield entry.number, Verdict(ACCEPTED_DIFFERENT, pair, entry.fusable)
            elif pair:
                jobs.append(partial(_disagreement, entry, *pair))
                of.append(entry)
    for entry, outcome in zip(of, outcomes(jobs), strict=True):
        verdict = _verdict(entry, outcome)
        if verdict.kind != ACCEPTED_EQUAL:
            yield entry.number, verdict


def _verdict(entry: Sampled, outcome: Outcome) -> Verdict:
    if outcome.crash and outcome.doing.startswith(_BEFORE):
        return Verdict(ILL_FORMED, f"{outcome.crash} {outcome.doing}")
    if outcome.crash:
        return Verdict(CRASHED, f"{outcome.crash} {outcome.doing}", entry.fusable)
    if outcome.found in (_TVMS_OWN, _TVMS_OF_BOTH):
        return Verdict(ILL_FORMED, outcome.found)
    if outcome.found:
        return Verdict(ACCEPTED_DIFFERENT, outcome.found, entry.fusable)
    return Verdict(ACCEPTED_EQUAL, "", entry.fusable)


def _compile(functions: Sequence[tirx.PrimFunc]) -> list[Any] | str:
    """Compile functions into one module; returns them, or the error."""
    names = [f"function{place}" for place in range(len(functions))]
    module = {
        name: _serial(func).with_attr("global_symbol", name)
        for name, func in zip(names, functions, strict=True)
    }
    try:
        built = tvm.compile(tvm.IRModule(module), target="llvm")
    except Exception as error:
        return f"{type(error).__name__}: {error}"[-300:]
    return [built[name] for name in names]


def _serial(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Make loops of threads serial: there are none of the host's in a child process."""

    def serial(loop: tirx.For) -> tirx.For:
        if loop.kind not in (tirx.ForKind.THREAD_BINDING, tirx.ForKind.PARALLEL):
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    return tvm_ffi.structural_map(func, [(tirx.For, serial)])


def _alone(entry: Sampled) -> list[Any] | str:
    """Compile the two functions of a program; nothing if the first one does not compile."""
    before = _compile([entry.before])
    if isinstance(before, str):
        return []
    after = _compile([entry.after])
    if isinstance(after, str):
        return f"the function after does not compile: {after}"
    return [*before, *after]


# What is being run.
_BEFORE = "in the function before"
_AFTER = "in the function after"
#: The outcome where TVM compiles the function before into something else, and that after rightly.
_TVMS_OWN = "TVM makes something else of the function before"
#: The outcome where it compiles both into the same, which neither of them says: no fusion's fault.
_TVMS_OF_BOTH = "TVM makes the same of both functions, and not what they say"


def _negates_a_comparison_of_floats(expr: Expr) -> bool:
    return any(
        node[0] == "not" and any(part in FLOATS for each in walk(node) for part in each[1:2])
        for node in walk(expr)
    )


def _disagreement(
    entry: Sampled, function_before: Any, function_after: Any, say: Callable[[str], None]
) -> str:
    program = entry.program
    different = ""
    for side in SIDES:
        say(f"{_BEFORE}, an unreadable page at the {side} of its arrays")
        before = _run(function_before, entry.before, entry.arrays, side)
        say(f"{_AFTER}, an unreadable page at the {side} of its arrays")
        after = _run(function_after, entry.after, entry.arrays, side)
        # What an access out of bounds gives on this side, the page on the other one may forbid.
        different = different or unequal(before, after, signed_zeros=False)
    if not ROWS[program.reduction.monoid].is_exact:
        # It rounds in every step, and in another way where a term comes first.
        functions = (evaluable(program, each) for each in (entry.before, entry.after))
        found = outside_bounds(program, *functions, entry.arrays, before, after, sizes_of(program))
        if found and not different:
            return _TVMS_OF_BOTH
        return f"compiled: {found}" if found else ""
    if different:
        return _TVMS_OWN if _is_tvms_own(entry, after) else f"compiled: {different}"
    if any(uses(epilogue.expr, *TRANSCENDENTAL) for epilogue in program.epilogues):
        return ""
    # TVM folds not (a >= b) into a < b, which is something else for a NaN, fused or not.
    if any(_negates_a_comparison_of_floats(epilogue.expr) for epilogue in program.epilogues):
        return ""
    arrays = {name: array.copy() for name, array in entry.arrays.items()}
    Watched(evaluable(program, entry.before)).run(arrays, sizes_of(program))
    found = unequal(arrays, before, signed_zeros=False)
    return _TVMS_OF_BOTH if found else ""


def _is_tvms_own(entry: Sampled, after: Arrays) -> bool:
    """Whether only the function before is compiled into something else than it says.

    In a vectorized loop TVM computes both values of a select for all lanes; where one has no value,
    LLVM concludes that its condition holds.
    """
    program = entry.program
    if all(step.kind != "vectorize" for step in program.steps):
        return False
    arrays = {name: array.copy() for name, array in entry.arrays.items()}
    Watched(evaluable(program, entry.before)).run(arrays, sizes_of(program))
    return not unequal(arrays, after, signed_zeros=False)


def _run(function: Any, func: tirx.PrimFunc, content: Arrays, side: str) -> Arrays:
    names = [str(var.name) for var in func.params]
    fenced = {name: Fenced(content[name], side) for name in names}
    function(*(fenced[name].tensor() for name in names))
    return {name: one.array for name, one in fenced.items()}
