"""What becomes of a program when a soundness check is switched off.

The verdicts, from good to bad, are those of `VERDICTS`. A program that is fused without a check is
executed before and after, by `fuse_epilogue.verify` with every allocated buffer laid open and full
of garbage, so that a result that depends on unwritten memory counts for nothing. What that cannot
execute (calls, pointers, jumps) is compiled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir import Schedule
from tvm.s_tir.analysis import verify_well_formed
from tvm.tirx import PrimFunc

import fuse_epilogue
from fuse_epilogue.verify import EvaluationError, UnsupportedError, compile_function
from mutation_table import ACCEPTED, STILL_REFUSED, VERDICTS, WRONG
from oracles import compile_together, make_inputs, parameters, run
from programs import Case
from programs.lazy import Program, name_of

Arrays = dict[str, Any]

switch_off = tvm_ffi.get_global_func("fuse_epilogue.testing.SwitchOffChecks")
decisions = tvm_ffi.get_global_func("fuse_epilogue.testing.Decisions")


@contextlib.contextmanager
def without(*codes: str) -> Iterator[None]:
    """The checks of these codes switched off, and all on again afterwards, whatever happens."""
    switch_off(list(codes))
    try:
        yield
    finally:
        switch_off([])


def fuse(sch: Schedule, case: Case, call: tuple[str, ...]) -> None:
    sch.fuse_reduction_epilogue(*call, **case.options)


@dataclass(frozen=True)
class Mutant:
    """A program that comes out wrong if one check is missing.

    - `code`: the check's code.
    - `guard`: what the check is there for: several checks may have one code.
    - `case`: the program, and how it is prepared.
    - `act`: what is refused, if not the call of `case`: steps on the schedule.
    - `inputs`: data on which it shows, if not the one of `make_inputs`.
    - `judge`: whether two functions do the same, if that does not show by running them: returns
      what is wrong with the second one, or nothing.
    - `compiled`: whether it shows only where the program is compiled: TIR says what it should do.
    - `before_call`: done before each of the compiled functions is called.
    - `also`: codes of other checks that are there for the same thing, and are switched off with it.
    """

    code: str
    guard: str
    case: Case
    act: Callable[[Schedule], Any] | None = None
    inputs: Callable[[], Arrays] | None = None
    judge: Callable[[PrimFunc, PrimFunc], str] | None = None
    compiled: bool = False
    before_call: Callable[[], Any] | None = None
    also: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.case.name


def mutant(
    code: str, guard: str, func: PrimFunc | Program, *, keeps: tuple[str, ...] = (), **more: Any
) -> Mutant:
    """A mutant named like its function; `keeps` are parameters that are read and written."""
    case_args = {
        name: more.pop(name)
        for name in ("schedule", "distribute", "reduction", "sizes")
        if name in more
    }
    case = Case(
        name=name_of(func),
        func=func,
        code=code,
        outputs=() if "D" in keeps else ("D",),
        updates=keeps,
        **case_args,
    )
    return Mutant(code=code, guard=guard, case=case, **more)


@dataclass(frozen=True)
class Outcome:
    verdict: str
    detail: str


def worst_of(outcomes: list[Outcome]) -> Outcome:
    return max(outcomes, key=lambda outcome: VERDICTS.index(outcome.verdict))


def outcome_of_case(case: Case, code: str) -> Outcome:
    """The worst of what the refused calls of `case` do without the checks of `code`."""
    return worst_of(
        [
            _outcome(case, (code,), lambda sch, call=call: fuse(sch, case, call))
            for call in case.refusing_calls
        ]
    )


def outcome_of_mutant(mutant: Mutant, codes: tuple[str, ...] | None = None) -> Outcome:
    """The same for a mutant, without the checks of its own code, or of `codes`."""
    case = mutant.case
    off = (mutant.code, *mutant.also) if codes is None else codes
    if mutant.act is not None:
        return _outcome(case, off, mutant.act, mutant)
    return worst_of(
        [
            _outcome(case, off, lambda sch, call=call: fuse(sch, case, call), mutant)
            for call in case.refusing_calls
        ]
    )


def refusal_of(mutant: Mutant) -> str | None:
    """The code with which the program is refused while all checks are on."""
    sch = mutant.case.scheduled()
    try:
        if mutant.act is not None:
            mutant.act(sch)
        else:
            fuse(sch, mutant.case, mutant.case.refusing_calls[0])
    except s_tir.ScheduleError as error:
        return fuse_epilogue.refusal_code(error)
    return None


def _outcome(
    case: Case,
    codes: tuple[str, ...],
    act: Callable[[Schedule], Any],
    mutant: Mutant | None = None,
) -> Outcome:
    sch = case.scheduled()
    before = sch.mod["main"]
    with without(*codes):
        try:
            act(sch)
        except s_tir.ScheduleError as error:
            refused = fuse_epilogue.refusal_code(error)
            # TVM verifies each state (debug_mask="all"), and says so with the same exception.
            return Outcome(STILL_REFUSED, refused) if refused else Outcome(WRONG, "TVM refuses it")
        except Exception as error:
            return Outcome(WRONG, f"{type(error).__name__} while fusing")
    after = sch.mod["main"]
    try:
        verify_well_formed(after)
    except Exception:
        return Outcome(WRONG, "not well-formed")
    if mutant is not None and mutant.judge is not None:
        wrong = mutant.judge(before, after)
        return Outcome(WRONG, wrong) if wrong else Outcome(ACCEPTED, "")
    difference = _difference(case, before, after, mutant)
    return Outcome(WRONG, difference) if difference else Outcome(ACCEPTED, "")


def _difference(case: Case, before: PrimFunc, after: PrimFunc, mutant: Mutant | None) -> str:
    """What is different about `after`, or nothing."""
    for sizes in case.sizes:
        inputs = make_inputs(case, "exact", sizes)
        if mutant is not None and mutant.inputs is not None:
            inputs.update(mutant.inputs())
        try:
            if mutant is not None and mutant.compiled:
                raise UnsupportedError
            difference = _evaluated_difference(before, after, inputs, sizes)
        except UnsupportedError:
            reset = mutant.before_call if mutant is not None else None
            difference = _compiled_difference(case, before, after, inputs, sizes, reset)
        if difference:
            return difference
    return ""


# ---------------------------------------------------------------------------------------------
# Running
# ---------------------------------------------------------------------------------------------


def laid_open(func: PrimFunc) -> PrimFunc:
    """`func` with the buffers of its root block as parameters, which can be filled with garbage."""
    realize = func.body
    root = realize.block
    block = s_tir.SBlock(
        root.iter_vars,
        root.reads,
        root.writes,
        root.name_hint,
        root.body,
        root.init,
        [],
        root.match_buffers,
        root.annotations,
    )
    body = s_tir.SBlockRealize(realize.iter_values, realize.predicate, block)
    return tirx.PrimFunc([*func.params, *root.alloc_buffers], body, func.ret_type, func.attrs)


def _results(func: PrimFunc, inputs: Arrays, sizes: Mapping[str, int], fill: int) -> Arrays:
    """All parameters of `func` after a run with its own buffers full of the byte `fill`."""
    opened = laid_open(func)
    program = compile_function(opened)
    arrays = {k: np.copy(v) if isinstance(v, np.ndarray) else v for k, v in inputs.items()}
    given = len(func.params)
    for number, param in enumerate(parameters(opened, sizes)):
        if number >= given:
            arrays[program.parameters[number].name] = _garbage(param.dtype, param.shape, fill)
    program.run(arrays, sizes)
    return {k: arrays[k] for k in inputs if isinstance(arrays[k], np.ndarray)}


def _garbage(dtype: str, shape: tuple[int, ...], fill: int) -> np.ndarray:
    array = np.zeros(shape, dtype)
    array.view("uint8").reshape(-1)[...] = fill if dtype != "bool" else fill & 1
    return array


def _evaluated_difference(
    before: PrimFunc, after: PrimFunc, inputs: Arrays, sizes: Mapping[str, int]
) -> str:
    fills = (0x11, 0x2E)
    try:
        defined, again = (_results(before, inputs, sizes, fill) for fill in fills)
    except UnsupportedError:
        raise
    except EvaluationError:
        return ""  # not a program
    if not _same(defined, again):
        return ""  # it has no result that could change
    try:
        results = [_results(after, inputs, sizes, fill) for fill in fills]
    except UnsupportedError:
        raise
    except EvaluationError as error:
        return str(error)
    wrong = [not _same(result, defined) for result in results]
    return "another result" if any(wrong) else ""


def _compiled_difference(
    case: Case,
    before: PrimFunc,
    after: PrimFunc,
    inputs: Arrays,
    sizes: Mapping[str, int],
    reset: Callable[[], Any] | None,
) -> str:
    results = []
    for func in (before, after):
        try:
            built = compile_together({"main": func})["main"]
        except Exception:
            # A program that not even unfused compiles has no result that could change.
            return "does not compile" if func is after else ""
        if reset is not None:
            reset()
        results.append(run(built, case, inputs, sizes))
    return "" if _same(*results) else "another result"


def _same(a: Arrays, b: Arrays) -> bool:
    return all(
        np.array_equal(
            np.asarray(a[k], _comparable(a[k])), np.asarray(b[k], _comparable(b[k])), True
        )
        if _comparable(a[k]) == "float64"
        else np.array_equal(a[k], b[k])
        for k in a
    )


def _comparable(array: np.ndarray) -> str:
    return str(array.dtype) if array.dtype.kind in "biu" else "float64"
