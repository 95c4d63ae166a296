"""Judging generated programs: one by one, and those of a chunk of a long run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import s_tir, tirx
from tvm.s_tir import Schedule

import fuse_epilogue
from cascades.judge import judge as demand
from fuse_epilogue.verify import EvaluationError, check, compile_function
from fuse_epilogue.verify import Program as Evaluated
from generated.state import Run
from oracles import compile_together, garbage

from .build import block_called, build, formula
from .data import Arrays, inputs
from .spec import Program, draw
from .tally import CHANGED, DIFFERENT, ERROR, FUSED, INFINITE, REFUSED, Tally

#: Of this many fused programs one is compiled by LLVM as well.
COMPILE_EVERY = 40
#: Of this many the certificate is checked.
CERTIFICATE_EVERY = 10


@dataclass(frozen=True)
class Proof:
    """What the certificate of a call is checked against."""

    before: tirx.PrimFunc
    after: tirx.PrimFunc
    certificate: Any

    @property
    def finite(self) -> bool:
        """Whether a sum must stay finite without a factor that is deferred."""
        stages = () if self.certificate is None else self.certificate.stages
        return any("finite-sum" in stage.guards for stage in stages)

    def objection(self) -> str:
        """What the checker says against it, if anything."""
        try:
            check(self.before, self.after, self.certificate)
        except Exception as error:
            return f"{type(error).__name__}: {error}"[-1500:]
        return ""


Fuse = Callable[[Program, tirx.PrimFunc], Proof]


class Refused(Exception):
    """The primitive refuses a program.

    - `code`: the refusal's code; ``"changed"`` where the schedule is not what it was.
    """

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message or code)
        self.code = code


@dataclass(frozen=True)
class Verdict:
    """What became of a program.

    - `kind`: see `tally`.
    - `detail`: the refusal's code, or what is wrong.
    - `after` (tvm.tirx.PrimFunc, optional): the fused function.
    - `proof` (Proof, optional): the functions and the certificate of the call.
    """

    kind: str
    detail: str = ""
    after: Any = None
    proof: Any = None


def fused(program: Program, func: tirx.PrimFunc) -> Proof:
    """Return the fused function, with its certificate.

    - Raises Refused: with the code.
    """
    sch = Schedule(func, debug_mask="all")
    before = sch.mod
    call: Any = sch.fuse_cascaded_reductions
    try:
        report = call(
            block_called(program),
            factor=program.factor,
            parts=program.parts,
            numerics=program.numerics,
        )
    except s_tir.ScheduleError as error:
        code = fuse_epilogue.refusal_code(error)
        if code is None:
            raise  # It is not a refusal.
        if not sch.mod.same_as(before) or sch.trace is None or len(sch.trace.insts):
            raise Refused(CHANGED, f"{code}, and the schedule has changed") from error
        raise Refused(str(code)) from error
    return Proof(before["main"], sch.mod["main"], report.certificate)


def judge(program: Program, seed: str, fuse: Fuse = fused) -> Verdict:
    """Fuse a program and compare what both functions compute.

    - `seed`: of the data.
    - `fuse`: returns the fused function, or raises `Refused`.
    """
    func = build(program)
    try:
        proof = fuse(program, func)
    except Refused as refusal:
        kind = CHANGED if refusal.code == CHANGED else REFUSED
        return Verdict(kind, str(refusal))
    except Exception as error:
        return Verdict(ERROR, f"{type(error).__name__}: {error}"[-1500:])
    after = proof.after
    try:
        programs = [compile_function(simplified(each)) for each in (func, after)]
    except Exception as error:
        return Verdict(ERROR, f"{type(error).__name__}: {error}"[-1500:], after)
    verdict = compared(
        program, seed, lambda at, arrays: evaluated(programs[at], program, arrays), proof
    )
    return replace(verdict, proof=proof)


def compared(
    program: Program, seed: str, run: Callable[[int, Arrays], Arrays], proof: Proof
) -> Verdict:
    """Compare two functions on all data; `run` gets which one it is to run, and the inputs."""
    after = proof.after
    blocks = -(-program.keys // program.factor) + program.parts - 1
    factor = False
    for kind, arrays in inputs(program, seed, proof.finite):
        try:
            before, found = (run(at, arrays) for at in (0, 1))
        except EvaluationError as error:
            return Verdict(DIFFERENT, f"on {kind} data: {error}", after)
        if program.integers:
            wrong = [name for name in before if not np.array_equal(before[name], found[name])]
            if wrong:
                return Verdict(DIFFERENT, f"on {kind} data: {wrong}", after)
            continue
        right = {
            name: value
            for name, value in formula(program, arrays, blocks).items()
            if name in before
        }
        try:
            demand(f"on {kind} data", right, before, before)
        except AssertionError as error:
            return Verdict(ERROR, f"the formula: {error}", after)
        try:
            factor |= demand(f"on {kind} data", right, before, found, infinite=True)
        except AssertionError as error:
            return Verdict(DIFFERENT, str(error), after)
    return Verdict(FUSED, INFINITE if factor else "", after)


def simplified(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function as TVM simplifies it before it is compiled, one store at a time."""
    return _simplify(tvm.IRModule({"main": func}))["main"]


_simplify = s_tir.transform.StmtSimplify()


def evaluated(function: Evaluated, program: Program, arrays: Arrays) -> Arrays:
    """Run a function statement by statement; returns its outputs."""
    sizes = {"n": program.keys} if program.symbolic else {}
    held = {name: array.copy() for name, array in arrays.items()}
    written = [param for param in function.parameters if param.name not in held]
    for param in written:
        shape = tuple(int(eval(str(extent), {}, dict(sizes))) for extent in param.shape or ())
        held[param.name] = np.array(garbage(param.type.name, shape))
    with np.errstate(all="ignore"):
        function.run(held, sizes)
    return {param.name: held[param.name] for param in written}


def compiled(program: Program, seed: str, proof: Proof) -> Verdict:
    """Compare both functions as LLVM compiles them."""
    functions, after = {"before": proof.before, "after": proof.after}, proof.after
    try:
        built = compile_together(functions)
    except Exception as error:
        return Verdict(ERROR, f"compiled: {type(error).__name__}: {error}"[-1500:], after)

    def run(at: int, arrays: Arrays) -> Arrays:
        held: dict[str, Any] = {}
        for param in functions["before"].params:
            name = str(param.name)
            if name in arrays:
                held[name] = tvm.runtime.tensor(arrays[name])
                continue
            shape = [program.keys if isinstance(d, tirx.Var) else int(d) for d in param.ty.shape]
            array = np.array(garbage(str(param.ty.dtype), tuple(shape)))
            held[name] = tvm.runtime.tensor(array)
        built["after" if at else "before"](*held.values())
        return {name: value.numpy() for name, value in held.items() if name not in arrays}

    return compared(program, seed, run, proof)


def run_chunk(run: Run, start: int, stop: int, fatal: tuple[int, ...] = ()) -> dict[str, Any]:
    """Judge the programs of a range.

    - `fatal`: programs that ended the process before: they are not tried again.
    - Returns: of JSON's types: counts, and the counterexamples.
    """
    begun, tally, accepted = time.monotonic(), Tally(), 0
    marker = run.folder / f"current-{os.getpid()}"
    for number in range(start, stop):
        seed = f"{run.seed}/{number}"
        program = draw(seed)
        marker.write_text(str(number))
        if number in fatal:
            tally.add(number, program, ERROR, "the process died")
            continue
        verdict = judge(program, seed)
        if verdict.kind == FUSED:
            accepted += 1
            if accepted % CERTIFICATE_EVERY == 1:
                tally.add_certificate(number, program, verdict.proof.objection())
            if accepted % COMPILE_EVERY == 1:
                verdict = compiled(program, seed, verdict.proof)
                tally.compiled += 1
        tally.add(number, program, verdict.kind, verdict.detail)
    marker.unlink(missing_ok=True)
    tally.seconds = time.monotonic() - begun
    return tally.to_json()
