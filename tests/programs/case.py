"""What a test program is: a TIR function, how to call the primitive on it, and what is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm.s_tir import Schedule
from tvm.tirx import PrimFunc

from . import callstack  # noqa: F401 - for its effect on programs that tests define themselves
from .lazy import Program, name_of

Reference = Callable[..., "np.ndarray | dict[str, np.ndarray]"]


class _Parsed:
    """The field that holds a case's function: parsed when it is first read."""

    def __get__(self, case: Case | None, owner: type[Case]) -> PrimFunc:
        if case is None:
            raise AttributeError("the field has no default")
        held = case.__dict__["func"]
        return held.func if isinstance(held, Program) else held

    def __set__(self, case: Case, held: PrimFunc | Program) -> None:
        case.__dict__["func"] = held


@dataclass(frozen=True)
class Case:
    """One program and its verdict.

    Exactly one of three verdicts holds:

    - *accept*: ``code`` is empty and ``either`` is false. Every epilogue in ``epilogues`` is fused:
      it is gone, or it is a tail right after the reduction's loops.
    - *refuse*: ``code`` names the refusal (several names where the contract leaves a choice).
    - *either*: ``either`` is true. Fusing is allowed and must then be right; so is refusing with
      one of the codes in ``code``. Without codes it must be fused, in any way that is right.

    - `name`: unique; appears in the test's name and in that of the compiled functions.
    - `func`: the program before anything is done to it; given as a `Program`, it is parsed when it
      is first read.
    - `reduction`, `epilogues`: names of the reduction block and of the blocks that consume it, in
      order.
    - `reference`: the program in numpy. It gets the arrays and scalars that go in by name, and
      returns the output (or a dictionary of outputs). It must not fix a float type, so that it can
      also be evaluated in float64.
    - `outputs`: parameters that are only written: they hold garbage before the call.
    - `updates`: parameters that are read and written.
    - `numerics`, `distribute`: how the primitive is called.
    - `absorbed`: for an accepting case: text that the report's absorbed term must contain, one for
      each fused epilogue ("" where nothing is absorbed).
    - `distributed`: for an accepting case: what is done to every term, by epilogue, as text that
      the report must contain. Of an epilogue that is missing here, nothing is distributed.
    - `tails`: for an accepting case: the epilogues that remain as blocks, each with text that the
      report's description of the tail must contain. The others are gone after fusing.
    - `kept`: for an accepting case: intermediate buffers that stay alive in full.
    - `local`: for an accepting case: whether the accumulator moves to the threads' local memory,
      where a tail reads it, with ``_local`` added to its name.
    - `init`: for an accepting case: the value stored in T.init after the last fusion, as TVMScript.
      Empty where the text depends on the names that schedule steps make.
    - `stopped`: code of the refusal at which the one-argument call stops; None where no consumer is
      left.
    - `one_by_one`: for an accepting case: whether fusing one epilogue after the other by calls with
      two arguments ends in the same program as one call for all.
    - `code`: the refusal's code, or the codes between which the contract leaves a choice.
    - `calls`: for a refusing case: the calls to try. Empty means with the reduction alone and with
      the pair.
    - `schedule`: steps applied before fusing.
    - `sizes`: values of the symbolic dimensions, one run each.
    - `special`: which special values go into floating data: a key of ``oracles.SPECIAL``, or empty.
      The outcome of a reassociated reduction on the others is not defined (a maximum over NaN
      depends on the order).
    - `magnitude`: like `reference`: a bound on the magnitudes of everything that is rounded on the
      way to an output, times how much an error there can grow until it is in the output. Needed
      where the reference itself, evaluated on absolute values, is no such bound (a sigmoid).
    - `approximate`: whether the reference differs from the program by rounding on all data (a
      sigmoid).
    - `inexact`: whether so does the fused program, since its reduction rounds on all data: it need
      not agree with the unfused build bit for bit.
    - `twin`: for an accepting case: a refusing case that differs in the one thing that matters.
    - `either`: the verdict *either*.
    """

    name: str
    func: PrimFunc = _Parsed()  # type: ignore[assignment]
    reduction: str = "mm"
    epilogues: tuple[str, ...] = ("add",)
    reference: Reference | None = None
    outputs: tuple[str, ...] = ("D",)
    updates: tuple[str, ...] = ()
    numerics: str = "reassociate"
    distribute: bool = False
    absorbed: tuple[str, ...] = ()
    distributed: Mapping[str, str] = field(default_factory=dict)
    tails: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    local: bool = False
    init: str = ""
    stopped: str | None = None
    one_by_one: bool = True
    code: str | tuple[str, ...] = ()
    calls: tuple[tuple[str, ...], ...] = ()
    schedule: Callable[[Schedule], Any] | None = None
    sizes: tuple[Mapping[str, int], ...] = field(default=({},))
    special: str = "all"
    magnitude: Reference | None = None
    approximate: bool = False
    inexact: bool = False
    twin: str = ""
    either: bool = False

    @property
    def codes(self) -> tuple[str, ...]:
        """The acceptable refusal codes."""
        return (self.code,) if isinstance(self.code, str) else self.code

    @property
    def refused(self) -> bool:
        return bool(self.codes) and not self.either

    @property
    def refusing_calls(self) -> tuple[tuple[str, ...], ...]:
        """The calls a refusing case is tried with."""
        if self.calls:
            return self.calls
        return ((self.reduction,), (self.reduction, self.epilogues[0]))

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of every call of the primitive."""
        return {"numerics": self.numerics, "distribute": self.distribute}

    def scheduled(self, **options: Any) -> Schedule:
        """A schedule of the program on which the preparatory steps have been done."""
        sch = Schedule(self.func, debug_mask="all", **options)
        if self.schedule is not None:
            self.schedule(sch)
        return sch


def replace(case: Case, **changes: Any) -> Case:
    """`case` with other fields, like ``dataclasses.replace``, without parsing its function."""
    return dataclasses.replace(case, **{"func": case.__dict__["func"], **changes})


# Which parameters a program writes, where it is not the one called D.
IN_PLACE: Mapping[str, Any] = {"outputs": (), "updates": ("D",)}
WITH_F: Mapping[str, Any] = {"outputs": ("D", "F")}
KEEPING_D: Mapping[str, Any] = {"outputs": ("F",), "updates": ("D",)}


def accepted(
    func: PrimFunc | Program, reference: Reference, absorbed: str, init: str, twin: str, **more: Any
) -> Case:
    """An accepting case of one epilogue, named like its function."""
    return Case(
        name=name_of(func),
        func=func,
        reference=reference,
        absorbed=(absorbed,),
        init=init,
        twin=twin,
        **more,
    )


def refused(func: PrimFunc | Program, code: str | tuple[str, ...], **more: Any) -> Case:
    """A refusing case (or, with ``either=True``, one of both kinds), named like its function."""
    return Case(name=name_of(func), func=func, code=code, **more)


def row_sums(array: np.ndarray) -> np.ndarray:
    """The sum of each row in the array's own type: the reduction of the shorter programs."""
    return array.sum(axis=-1, dtype=array.dtype)


def wide(array: np.ndarray, dtype: str) -> np.ndarray:
    """`array` in the accumulator's type; floats stay as they are.

    A reference in numpy accumulates integers modulo 2^n, n being the width of `dtype`. Floating
    arrays keep their type, which is float64 where the rounding error is being measured.
    """
    return array.astype(dtype) if array.dtype.kind in "biu" else array


def matmul(a: np.ndarray, b: np.ndarray, dtype: str = "int32") -> np.ndarray:
    """``a @ b.T`` accumulated in `dtype`: the reduction of most programs."""
    return wide(a, dtype) @ wide(b, dtype).T
