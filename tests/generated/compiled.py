"""A sample of accepted programs, compiled by TVM: does the machine agree with the evaluator?"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import tirx

from fuse_epilogue.verify.abstract import AbstractProgram
from fuse_epilogue.verify.compiled import without_threads
from fuse_epilogue.verify.evaluate import compile_function
from fuse_epilogue.verify.intervals import IntervalArithmetic
from fuse_epilogue.verify.scalars import EvaluationError, ScalarType

from .build import sizes_of
from .data import Arrays, make_arrays
from .expressions import uses, walk
from .spec import Program
from .verdict import Bound, Verdict, unequal

# Functions compiled into one module; a call of the compiler costs more than a function does.
FUNCTIONS_PER_MODULE = 40

# What libraries compute, each in its own way.
TRANSCENDENTAL = ("sigmoid", "tanh", "exp")


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


class Overflow(EvaluationError):
    """A result that LLVM is told not to occur."""


class _NoOverflow(IntervalArithmetic):
    """Integers of 32 bits and more that must not wrap, and floats that must fit where they go."""

    def _binary(self, name: str, type: ScalarType, a: Bound, b: Bound) -> Bound:
        if name in _WRAPPING and type.kind in "iu" and type.bits >= 32:
            ends = [_WRAPPING[name](x, y) for x in a for y in b]
            _must_fit(type, min(ends), max(ends))
        return super()._binary(name, type, a, b)

    def _cast(self, a: Bound, source: ScalarType, target: ScalarType) -> Bound:
        if source.kind == "f" and target.kind in "iu":
            _must_fit(target, *a)
        return super()._cast(a, source, target)


_WRAPPING = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}


def _must_fit(type: ScalarType, low: float, high: float) -> None:
    if not (type.low <= low and high <= type.high):
        raise Overflow(f"{low} to {high} in {type.name}")


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
    for kind in ("exact", "small"):
        arrays = make_arrays(program, before, kind, seed)
        content = {
            name: [(value, value) for value in array.ravel().tolist()]
            for name, array in arrays.items()
        }
        try:
            AbstractProgram(before).run(_NoOverflow(), content, sizes_of(program))
        except EvaluationError:
            continue
        return arrays
    return None


def disagreements(sample: Sequence[Sampled]) -> Iterator[tuple[int, str]]:
    """Yield the number of each program that the machine computes differently, and what differs.

    Programs that TVM cannot compile before the fusion are passed over.

    Parameters
    ----------
    sample : sequence of Sampled
        What `sampled` returns.
    """
    per_module = FUNCTIONS_PER_MODULE // 2
    for start in range(0, len(sample), per_module):
        part = sample[start : start + per_module]
        built = _compile([func for entry in part for func in (entry.before, entry.after)])
        for place, entry in enumerate(part):
            if isinstance(built, str):
                found = _alone(entry)
            else:
                found = _disagreement(entry, *built[2 * place : 2 * place + 2])
            if found:
                yield entry.number, found


def _compile(functions: Sequence[tirx.PrimFunc]) -> list[Any] | str:
    """Compile functions into one module; returns them, or the error."""
    names = [f"function{place}" for place in range(len(functions))]
    module = {
        name: without_threads(func).with_attr("global_symbol", name)
        for name, func in zip(names, functions, strict=True)
    }
    try:
        built = tvm.compile(tvm.IRModule(module), target="llvm")
    except Exception as error:
        return f"{type(error).__name__}: {error}"[-300:]
    return [built[name] for name in names]


def _alone(entry: Sampled) -> str:
    before = _compile([entry.before])
    if isinstance(before, str):
        return ""
    after = _compile([entry.after])
    if isinstance(after, str):
        return f"the function after does not compile: {after}"
    return _disagreement(entry, before[0], after[0])


def _disagreement(entry: Sampled, function_before: Any, function_after: Any) -> str:
    program = entry.program
    arrays = {name: array.copy() for name, array in entry.arrays.items()}
    before = _run(function_before, entry.before, arrays)
    after = _run(function_after, entry.after, arrays)
    found = unequal(before, after, signed_zeros=False)
    if found:
        return f"compiled: {found}"
    if any(uses(epilogue.expr, *TRANSCENDENTAL) for epilogue in program.epilogues):
        return ""
    compile_function(entry.before).run(arrays, sizes_of(program))
    found = unequal(arrays, before, signed_zeros=False)
    return f"the compiled program differs from the evaluated one: {found}" if found else ""


def _run(function: Any, func: tirx.PrimFunc, arrays: Arrays) -> Arrays:
    # Copied by TVM: generated code relies on an alignment that numpy does not promise.
    arguments = {str(var.name): tvm.runtime.tensor(arrays[str(var.name)]) for var in func.params}
    function(*arguments.values())
    return {name: np.asarray(value.numpy()) for name, value in arguments.items()}
