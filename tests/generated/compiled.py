"""A sample of accepted programs, compiled by TVM: does the machine agree with the evaluator?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import tirx

from fuse_epilogue.verify.compiled import without_threads
from fuse_epilogue.verify.evaluate import compile_function

from .build import sizes_of
from .data import Arrays, make_arrays
from .expressions import uses, walk
from .spec import Program
from .verdict import unequal

# Functions compiled into one module; a call of the compiler costs more than a function does.
FUNCTIONS_PER_MODULE = 40

# What libraries compute, each in its own way.
TRANSCENDENTAL = ("sigmoid", "tanh", "exp")


@dataclass(frozen=True)
class Sampled:
    """An accepted program with its number and its functions."""

    number: int
    program: Program
    before: tirx.PrimFunc
    after: tirx.PrimFunc
    fusable: bool = True


def can_be_compiled(program: Program) -> bool:
    """Whether a program may be compiled and then gives the same on every machine.

    There must be neither pointers nor external functions in it. LLVM is told that arithmetic of 32
    bits and more never overflows: literals must not be so large that it does on small data, and
    unsigned numbers must not be subtracted or inverted.
    """
    if any(hazard.kind.startswith("address of") for hazard in program.hazards):
        return False
    nodes = [node for epilogue in program.epilogues for node in walk(epilogue.expr)]
    if any(node[0] == "impure" for node in nodes):
        return False
    if any(node[0] == "lit" and abs(node[2]) > 1000 for node in nodes):
        return False
    steps = {step.kind for step in program.steps}
    if "vectorize" in steps and (program.symbolic or steps & {"reverse_compute_at", "compute_at"}):
        # TVM makes nothing, or nonsense, of an intermediate under a vectorized loop.
        return False
    types = {program.reduction.accumulator, *(e.dtype for e in program.epilogues)}
    types |= {str(node[1]) for node in nodes if node[0] == "cast"}
    if "vectorize" in steps and "bool" in types:
        return False
    subtracts = program.reduction.update == "subtracted" or any(
        node[0] in ("sub", "bitnot") for node in nodes
    )
    return not (subtracts and types & {"uint32", "uint64"})


def disagreements(sample: Sequence[Sampled]) -> Iterator[tuple[int, str]]:
    """Yield the number of each program that the machine computes differently, and what differs.

    Programs that TVM cannot compile before the fusion are passed over.

    Parameters
    ----------
    sample : sequence of Sampled
        Programs that `can_be_compiled`.
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
    arrays = make_arrays(program, entry.before, "exact", entry.number)
    before = _run(function_before, entry.before, arrays)
    after = _run(function_after, entry.after, arrays)
    found = unequal(before, after, signed_zeros=False)
    if found:
        return f"compiled, exact data: {found}"
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
