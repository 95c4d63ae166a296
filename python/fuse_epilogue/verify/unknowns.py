"""Proving that two functions store the same, for unknown elements, at small extents."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from .._arguments import Numerics, check_numerics, prim_func
from .evaluation.abstract import AbstractProgram
from .evaluation.parameters import Parameter, check_names, shape_of, work_of
from .evaluation.scalars import POISON, EvaluationError, UnsupportedError, WorkLimit
from .proof.field_arithmetic import FieldArithmetic
from .proof.prover import Prover, has_z3
from .proof.symbolic import TermArithmetic
from .proof.terms import Term

# Stores and terms above which a function is not unrolled.
_EFFORT = 20_000
_TERMS = 2_000_000
# Operations above which a function is not run over a field.
_FIELD = 50_000
# Extents at which symbolic dimensions are instantiated.
_EXTENTS = ((1, 1, 1, 1), (2, 3, 2, 3), (3, 2, 4, 2), (5, 4, 3, 2))
# Elements given to z3 before it is decided that it does not help.
_PATIENCE = 8
_TOO_LARGE = "the extents are too large to unroll the functions"

#: Values of unknowns, by parameter and element (-1 for a number).
Values = dict[tuple[str, int], Any]


@dataclass(frozen=True)
class Symbolic:
    """The outcome of the proof.

    Attributes
    ----------
    status : str
        ``"proved"``: every element, at all `sizes`. ``"unknown"``: some element is neither proved
        equal nor shown to differ. ``"skipped"``: it was not tried, or z3 would be needed and is
        not installed.
    reason : str
        Why it is not proved; empty if it is.
    sizes : tuple[dict[str, int], ...]
        The extents of symbolic dimensions at which it was tried.
    elements : int
        How many elements were compared, over all `sizes`.
    by_normal_form, by_z3 : int
        How many were proved by having the same normal form, and by z3.
    """

    status: str
    reason: str = ""
    sizes: tuple[dict[str, int], ...] = ()
    elements: int = 0
    by_normal_form: int = 0
    by_z3: int = 0

    @property
    def too_large(self) -> bool:
        """Whether nothing was tried because the functions compute too many elements."""
        return self.reason == _TOO_LARGE

    def __str__(self) -> str:
        """Return one line."""
        counts = f"{self.by_normal_form} by normal form, {self.by_z3} by z3, of {self.elements}"
        return f"symbolic: {self.status} ({self.reason or counts})"


def prove(
    before: tirx.PrimFunc | s_tir.Schedule,
    after: tirx.PrimFunc | s_tir.Schedule,
    *,
    numerics: Numerics = "reassociate",
    sizes: Mapping[str, int] | None = None,
    timeout: float = 5.0,
) -> tuple[Symbolic, list[tuple[dict[str, int], Values]]]:
    """Unroll both functions at small extents and prove what they store equal.

    Elements of all parameters are unknowns. Integers are residues modulo 2**n. For
    ``"reassociate"`` floats are real numbers (a narrowing cast is an unknown function of one);
    for ``"exact"`` float operations are unknown functions, of which only sums and products do not
    depend on the order of their two operands. Exponentials of sums are products of exponentials;
    other functions are unknown ones.

    Parameters
    ----------
    before, after : tvm.tirx.PrimFunc or tvm.s_tir.Schedule
        With the same parameters. Of a schedule, the function that it works on.
    numerics : {"reassociate", "exact"}
    sizes : mapping of str to int, optional
        Extents to try besides the usual small ones; taken where they are small.
    timeout : float
        Seconds for each element that only z3 can prove.

    Returns
    -------
    tuple
        The outcome, and values of unknowns (with the extents) for which z3 sees a difference:
        worth trying on the functions, since z3 knows less of the operations than they do.

    Raises
    ------
    UnsupportedError
        One of the functions has something in it that cannot be evaluated; the message names it.
    TypeError
        `before` or `after` is neither a PrimFunc nor a Schedule, or `numerics` is not a str.
    ValueError
        `numerics` is neither of its two values, the functions have different parameters, or `sizes`
        names what is not a symbolic dimension of them.

    Example
    -------
    >>> import tvm
    >>> from fuse_epilogue import verify, workloads
    >>> sch = tvm.s_tir.Schedule(workloads.matmul(4, 4, 2))
    >>> before = sch.mod["main"]
    >>> report = sch.fuse_reduction_epilogue("matmul")
    >>> outcome, differences = verify.prove(before, sch.mod["main"])
    >>> outcome.status
    'proved'
    """
    before, after = prim_func("before", before), prim_func("after", after)
    check_numerics(numerics)
    programs = [AbstractProgram(before), AbstractProgram(after)]
    _check_parameters(programs)
    check_names("sizes", sizes or (), programs[0].sizes)
    tried: list[dict[str, int]] = []
    counts = [0, 0, 0]
    candidates: list[tuple[dict[str, int], Values]] = []
    reason = ""
    for at in _instances(programs[0], sizes):
        _check_shapes(programs, at)
        if max(work_of(program, at) for program in programs) > _EFFORT:
            continue
        table = TermArithmetic(numerics == "exact", _TERMS)
        try:
            stored = [_unroll(program, table, at) for program in programs]
        except WorkLimit:
            continue
        except EvaluationError as error:
            return Symbolic("skipped", str(error)), []
        tried.append(at)
        prover = Prover(table, timeout)
        same = _same_in_field(programs, stored, at) if numerics == "reassociate" else set()
        failed = _compare(stored, prover, counts, same)
        if failed:
            reason = reason or failed + (f" at {at}" if at else "")
            if prover.model:
                candidates.append((at, prover.model))
    if not tried:
        return Symbolic("skipped", _TOO_LARGE), []
    status = "proved"
    if reason:
        status = "unknown" if has_z3() else "skipped"
        reason = reason if has_z3() else f"z3 is not installed, and needed: {reason}"
    return Symbolic(status, reason, tuple(tried), *counts), candidates


def _check_parameters(programs: list[AbstractProgram]) -> None:
    """Return if both functions have parameters of the same names, types and dimensions."""
    before, after = ([_described(each) for each in program.parameters] for program in programs)
    if before != after:
        raise ValueError(
            "before and after must have the same parameters, not "
            f"{', '.join(before) or 'none'} and {', '.join(after) or 'none'}"
        )
    unknown = sorted(set(programs[1].sizes) - set(programs[0].sizes))
    if unknown:
        raise ValueError(
            f"the function after has the symbolic dimension {', '.join(unknown)}, which the "
            "function before does not have: give both the same parameters"
        )


def _described(param: Parameter) -> str:
    """Return a parameter as a sentence names it, without its extents."""
    dims = "a number" if param.shape is None else f"{len(param.shape)} dimensions"
    return f"{param.name} ({param.type.name}, {dims})"


def _check_shapes(programs: list[AbstractProgram], at: Mapping[str, int]) -> None:
    """Return if the parameters of both functions have the same extents."""
    for before, after in zip(*(program.parameters for program in programs), strict=True):
        if before.shape is None:
            continue
        one, other = shape_of(programs[0], before, at), shape_of(programs[1], after, at)
        if one != other:
            where = f" at {dict(at)}" if at else ""
            raise ValueError(
                f"before and after must have the same parameters: {before.name} has the shape "
                f"{one} and {other}{where}"
            )


def _instances(
    program: AbstractProgram, sizes: Mapping[str, int] | None
) -> Iterator[dict[str, int]]:
    """Yield values for the symbolic dimensions; once nothing if there are none."""
    if not program.sizes:
        yield {}
        return
    for extents in _EXTENTS:
        yield dict(zip(program.sizes, itertools.cycle(extents), strict=False))
    if sizes is not None and set(program.sizes) <= set(sizes):
        yield {name: int(sizes[name]) for name in program.sizes}


def _unroll(
    program: AbstractProgram, table: TermArithmetic, at: Mapping[str, int]
) -> dict[str, list[Term]]:
    """Return what a function leaves in its parameters, in terms of what was there."""
    content: dict[str, Any] = {}
    for param in program.parameters:
        if param.shape is None:
            content[param.name] = table.unknown(param.name, -1, param.type)
            continue
        count = math.prod(shape_of(program, param, at))
        content[param.name] = [table.unknown(param.name, i, param.type) for i in range(count)]
    program.run(table, content, at)
    return {
        param.name: content[param.name] for param in program.parameters if param.shape is not None
    }


def _same_in_field(
    programs: list[AbstractProgram],
    stored: list[dict[str, list[Term]]],
    at: Mapping[str, int],
) -> set[tuple[str, int]]:
    """Return the elements that are the same where exponentials multiply and divisors cancel."""
    before, after = stored
    if all(a is b for name in before for a, b in zip(before[name], after[name], strict=True)):
        return set()
    arithmetic = FieldArithmetic(_FIELD)
    try:
        found = [_run(program, arithmetic, at) for program in programs]
        same = {
            (name, element)
            for name in found[0]
            for element, (a, b) in enumerate(zip(found[0][name], found[1][name], strict=True))
            if a is not POISON and b is not POISON and arithmetic.field.equal(a, b)
        }
        # What was divided by and cancelled may be zero.
        return set() if arithmetic.field.divided else same
    except (WorkLimit, EvaluationError, UnsupportedError, RecursionError):
        return set()


def _run(
    program: AbstractProgram, arithmetic: FieldArithmetic, at: Mapping[str, int]
) -> dict[str, list[Any]]:
    """Return what a function leaves in its parameters, as numbers of a field."""
    content: dict[str, Any] = {}
    for param in program.parameters:
        if param.shape is None:
            content[param.name] = arithmetic.unknown(param.name, -1)
            continue
        count = math.prod(shape_of(program, param, at))
        content[param.name] = [arithmetic.unknown(param.name, i) for i in range(count)]
    program.run(arithmetic, content, at)
    return {name: values for name, values in content.items() if isinstance(values, list)}


def _compare(
    stored: list[dict[str, list[Term]]],
    prover: Prover,
    counts: list[int],
    same: set[tuple[str, int]],
) -> str:
    """Compare element by element; returns what is not proved, or nothing."""
    failed = ""
    failures = 0
    for name, before in stored[0].items():
        for element, (a, b) in enumerate(zip(before, stored[1][name], strict=True)):
            counts[0] += 1
            if a is b or (name, element) in same:
                counts[1] += 1
            elif failures < _PATIENCE and prover.equal(a, b):
                counts[2] += 1
            else:
                failures += 1
                failed = failed or f"element {element} of '{name}' is not proved"
    return failed
