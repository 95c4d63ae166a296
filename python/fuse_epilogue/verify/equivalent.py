"""Whether two functions compute the same: on data, and for unknowns."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np
from tvm import s_tir, tirx

from .._arguments import Numerics, check_numerics, prim_func
from .._printed import Printed
from .compare import Comparison, NotEquivalent, same_bits, same_numbers, within_bounds
from .evaluate import Program, compile_function
from .evaluation.abstract import AbstractProgram
from .evaluation.compiled import Compiled
from .evaluation.data import KINDS, LITERALS, TAME, Arrays, copies, literals_of, make_arrays
from .evaluation.intervals import IntervalArithmetic
from .evaluation.isolated import Died, run_isolated
from .evaluation.layouts import NOT_PASSED, choose_sizes, strides_of
from .evaluation.parameters import Parameter, check_names, shape_of, work_of
from .evaluation.scalars import EvaluationError, UnsupportedError
from .evaluation.watched import REPORT, watched
from .unknowns import Symbolic, prove

# Stores above which the evaluator is not used: it takes some microseconds for each.
_EFFORT = 60_000
# Of a parameter; drawing data takes several times as much.
_MOST_BYTES = 2**30
# Name of the oracle that runs compiled code, in messages.
_COMPILED = "compiled code"
# Errors of TVM for a function that it does not compile.
_NOT_COMPILED = (RuntimeError, TypeError, ValueError)
# Share of the values that are special ones, for each run.
_DENSITIES = (0.15, 0.03, 0.4)
# Share of the values that are literals: all, then few enough for a sum to be a literal.
_LITERAL_DENSITIES = (1.0, 0.15, 0.4)


@dataclass(frozen=True, repr=False)
class Equivalence(Printed):
    """The result for two functions in which no difference was found.

    That is a proof only where `proved` says so. Otherwise nothing but the data says that they are
    equal, and they may differ for other data.

    Attributes
    ----------
    numerics : str
        ``"exact"`` or ``"reassociate"``.
    sizes : dict[str, int]
        Symbolic dimensions of the runs on data.
    oracles : tuple[str, ...]
        What ran the functions: ``"llvm"``, the code TVM generates, unless it does not compile the
        function before; and ``"evaluator"``, unless they are too large for it.
    data : dict[str, Comparison]
        How many elements were compared and how, by kind of data; a kind that could not be compared
        has no elements.
    symbolic : Symbolic
        The proof for unknown elements.
    """

    numerics: Numerics
    sizes: dict[str, int]
    oracles: tuple[str, ...]
    data: dict[str, Comparison]
    symbolic: Symbolic

    @property
    def proved(self) -> bool:
        """Whether every element was proved equal for unknown data, at the extents tried.

        If not, nothing is refuted, but the report is only that of a test that found no difference.
        """
        return self.symbolic.status == "proved"

    def __str__(self) -> str:
        """Return the verdict, the runs on data, and the sizes at which functions were unrolled."""
        kinds = ", ".join(f"{kind}: {found}" for kind, found in self.data.items() if str(found))
        compared = sum(found.elements - found.open for found in self.data.values())
        if self.proved:
            verdict = "proved equal at the extents tried"
        elif not compared:
            verdict = "NOT PROVED equal, and nothing was compared on data"
        elif self.symbolic.too_large:
            verdict = f"no difference on {compared:,} values; too large to prove; use `check`"
        else:
            verdict = "NOT PROVED equal: no difference was found, and there may be one"
        runs = f"{' and '.join(self.oracles) or 'not run'}: {kinds}"
        return f"{verdict} (numerics: {self.numerics})\n{runs}\n{self.symbolic}"


@dataclass
class _Pair:
    """The two functions, in every form that is run."""

    functions: tuple[tirx.PrimFunc, tirx.PrimFunc]
    numerics: Numerics
    sizes: dict[str, int]
    programs: list[Program]
    shapes: dict[str, tuple[Parameter, tuple[int, ...]]]
    written: list[str]
    strides: dict[str, tuple[int, ...]]
    compiled: Compiled | None = None
    watched: Compiled | None = None
    bounds: list[AbstractProgram] = field(default_factory=list)

    @property
    def floats(self) -> bool:
        """Whether floats are anywhere, so that rounding can matter."""
        sources = [program.source for program in self.bounds]
        return any(f"t_{kind}" in source for source in sources for kind in ("float", "bfloat"))

    @property
    def partial(self) -> bool:
        """Whether a function may do something that is not defined for some data."""
        return any(program.partial for program in self.programs)

    @cached_property
    def checked(self) -> Program:
        """The function before, which raises where integers of 32 or 64 bits overflow."""
        return compile_function(self.functions[0], "checked")

    @property
    def exactly(self) -> bool:
        """Whether results must have the same bits."""
        return self.numerics == "exact" or not self.floats


def equivalent(
    before: tirx.PrimFunc | s_tir.Schedule,
    after: tirx.PrimFunc | s_tir.Schedule,
    *,
    numerics: Numerics = "reassociate",
    sizes: Mapping[str, int] | None = None,
    ranges: Mapping[str, tuple[int, int]] | None = None,
    seed: int = 0,
    compiled: bool = True,
    timeout: float = 5.0,
) -> Equivalence:
    """Compare two functions of one signature.

    On data: both are compiled by TVM for the CPU, and executed by :mod:`fuse_epilogue.verify`'s
    own evaluator where they are small, on integer-valued, ordinary and nasty floats (signed zeros,
    infinities, NaN, denormals) and on integers from the whole range of their type. Where results
    must have the same bits, the numbers that occur in the functions are tried as data, too.

    For ``numerics="exact"`` every result must have the same bits (any NaN is a NaN). For
    ``"reassociate"`` results must be those that the function before may compute with its
    operations in any order: an interval is computed for every element that holds the exact value
    and every result that rounding may give, one unit roundoff for each addition and every other
    operation; the results must lie in it, up to the width of the same interval for the function
    after. Where the operations are exact, as all sums of small integers are, that is equality.
    NaN and infinities must appear at the same places, except where they meet a maximum or a
    minimum, whose result depends on the order then; those elements are counted as open.

    For unknowns: both functions are unrolled at small extents, and what they store is proved equal
    (see :func:`~fuse_epilogue.verify.unknowns.prove`).

    Where arithmetic of the function before overflows, signed or unsigned, of 32 or 64 bits, and
    its compiled code gives something else than numbers that wrap, the data have no defined result:
    LLVM makes 0 of ``T.uint32(0) - x``, since every other difference is below 0. Compiled code
    that may trap runs in a child process, with serial loops: if it ends the process, its result is
    not defined.

    The function returns where no difference was found, proved or not: without a proof (`proved`
    is false, the report says "NOT PROVED") the functions may differ for data that was not tried.
    For ``"exact"`` this is frequent, since float operations are unknown functions then. Elements
    that were counted as open were not compared at all, and data on which the function before has
    no defined result were left out: others with smaller integers are tried instead. The proof is
    about values: it takes for granted that what is computed is defined.

    Parameters
    ----------
    before, after : tvm.tirx.PrimFunc or tvm.s_tir.Schedule
        With the same parameters. Of a schedule, the function that it works on.
    numerics : {"reassociate", "exact"}
    sizes : mapping of str to int, optional
        Symbolic dimensions and strides by name; small different primes by default, and strides
        that keep elements separate.
    ranges : mapping of str to (int, int), optional
        Smallest and largest value of integer parameters that serve as an index or a shift.
    seed : int
        Seed of the data.
    compiled : bool
        Whether TVM's code runs too; compiling takes a fraction of a second.
    timeout : float
        Seconds for each element that only z3 can prove.

    Returns
    -------
    Equivalence
        The comparisons that were made. Only where `proved` is true are the functions proved equal.

    Raises
    ------
    NotEquivalent
        Naming the buffer, the element and the two values.
        The function after may also do something that has no defined result (divide by zero,
        access memory out of bounds) on data on which the function before does not.
    UnsupportedError
        One of the functions has something in it that cannot be evaluated; the message names it.
    TypeError
        `before` or `after` is neither a PrimFunc nor a Schedule, or `numerics` is not a str.
    ValueError
        `numerics` is neither of its two values, or `sizes` or `ranges` names what is not there; or
        a parameter is larger than 1 GiB.

    Example
    -------
    >>> import tvm
    >>> from fuse_epilogue import verify, workloads
    >>> sch = tvm.s_tir.Schedule(workloads.matmul(4, 4, 2))
    >>> before = sch.mod["main"]
    >>> report = sch.fuse_reduction_epilogue("matmul")
    >>> verify.equivalent(before, sch.mod["main"]).proved
    True
    """
    before, after = prim_func("before", before), prim_func("after", after)
    check_numerics(numerics)
    pair = _prepare(before, after, numerics, sizes)
    check_names("sizes", sizes or (), pair.sizes)
    check_names("ranges", ranges or (), pair.shapes)
    small = max(work_of(program, pair.sizes) for program in pair.programs) <= _EFFORT
    if compiled:
        _compile(pair, small)
    found = {}
    literals = literals_of(before, after)
    for kind in (*KINDS, LITERALS) if pair.exactly else KINDS:
        rng = np.random.default_rng(zlib.crc32(f"{seed}/{kind}".encode()))
        found[kind] = Comparison()
        densities = _LITERAL_DENSITIES if kind == LITERALS else _DENSITIES
        for density in densities if small else densities[:1]:
            for tame in (None, *TAME):
                arrays = make_arrays(kind, pair.shapes, ranges or {}, rng, density, literals, tame)
                arrays |= _sizes_passed(pair)
                counts = _compare(pair, kind, arrays, small)
                found[kind] += counts
                if not counts.undefined:
                    break
    symbolic, candidates = prove(before, after, numerics=numerics, sizes=sizes, timeout=timeout)
    for at, values in candidates:
        _try_candidate(before, after, numerics, at, values, ranges or {})
    ran = {"llvm": pair.compiled is not None, "evaluator": small}
    oracles = tuple(name for name, has_run in ran.items() if has_run)
    return Equivalence(numerics, pair.sizes, oracles, found, symbolic)


def _prepare(
    before: tirx.PrimFunc,
    after: tirx.PrimFunc,
    numerics: Numerics,
    sizes: Mapping[str, int] | None,
) -> _Pair:
    programs = [compile_function(before), compile_function(after)]
    chosen = choose_sizes(programs[0], sizes)
    shapes = []
    for program in programs:
        if set(program.sizes) - set(chosen):
            raise NotEquivalent(f"no value for {set(program.sizes) - set(chosen)}")
        shapes.append({p.name: (p, shape_of(program, p, chosen)) for p in program.parameters})
    described = [[_described(p, shape) for p, shape in each.values()] for each in shapes]
    if described[0] != described[1]:
        raise NotEquivalent(f"the parameters differ: {_first_difference(*described)}")
    _check_memory(shapes[0])
    written = [
        p.name
        for p, q in zip(programs[0].parameters, programs[1].parameters, strict=True)
        if p.written or q.written
    ]
    return _Pair(
        (before, after),
        numerics,
        chosen,
        programs,
        shapes[0],
        written,
        _strides(programs[0], shapes[0], chosen),
        bounds=[AbstractProgram(before), AbstractProgram(after)],
    )


def _strides(
    program: Program,
    shapes: Mapping[str, tuple[Parameter, tuple[int, ...]]],
    sizes: Mapping[str, int],
) -> dict[str, tuple[int, ...]]:
    """Return the strides of parameters that have some."""
    values = {code: sizes[name] for name, code in program.sizes.items()}
    found = {name: strides_of(param, shape, values) for name, (param, shape) in shapes.items()}
    return {name: strides for name, strides in found.items() if strides}


def _described(param: Parameter, shape: tuple[int, ...]) -> str:
    extents = "" if param.shape is None else f"[{', '.join(map(str, shape))}]"
    return f"{param.name}: {param.type.name}{extents}"


def _first_difference(before: list[str], after: list[str]) -> str:
    """Return where two lists of parameters differ, and how."""
    pairs = enumerate(zip_longest(before, after), 1)
    place, sides = next((place, pair) for place, pair in pairs if pair[0] != pair[1])
    one, other = (f"'{side}'" if side else "missing" for side in sides)
    return f"number {place} is {one} before, {other} after"


def _sizes_passed(pair: _Pair) -> dict[str, Any]:
    """Return the sizes that are parameters as well: numbers that the shapes determine."""
    return {
        name: np.asarray(pair.sizes[name]).astype(param.type.name)[()]
        for name, (param, _) in pair.shapes.items()
        if param.shape is None and name in pair.sizes
    }


def _check_memory(parameters: Mapping[str, tuple[Parameter, tuple[int, ...]]]) -> None:
    for name, (param, shape) in parameters.items():
        elements = prod(shape)
        if elements * param.type.bits > 8 * _MOST_BYTES:
            raise ValueError(
                f"'{name}' has {elements:,} elements, too many to compare on data: give smaller "
                "`sizes`, or check the certificate, which takes no data"
            )


def _compile(pair: _Pair, small: bool) -> None:
    """Compile the functions, and watched copies where only those show whether the code may run."""
    if any(pair.shapes[name][0].type.name in NOT_PASSED for name in pair.strides):
        return
    if not small and pair.partial:
        try:
            pair.watched = Compiled([watched(func) for func in pair.functions], pair.strides)
        except (UnsupportedError, *_NOT_COMPILED):
            return  # Nothing would say on which data the code may run.
    try:
        pair.compiled = Compiled(pair.functions, pair.strides)
    except _NOT_COMPILED as error:
        try:
            Compiled(pair.functions[:1])
        except _NOT_COMPILED:
            return
        raise NotEquivalent(f"the function after: TVM does not compile it: {error}") from error


def _evaluate(pair: _Pair, place: int, arrays: Arrays) -> tuple[Arrays, str]:
    """Run a function; return its arrays afterwards, and the first undefined thing it did or ""."""
    content = copies(arrays)
    try:
        pair.programs[place].run(content, pair.sizes)
    except UnsupportedError:
        raise
    except EvaluationError as error:
        return content, str(error)
    return content, ""


def _watch(watched: Compiled, place: int, arrays: Arrays) -> str:
    """Return the first undefined thing that a function would do, or ""."""
    report = watched.run(place, {**arrays, REPORT: np.zeros(1, "int32")})[REPORT]
    return "it accesses memory out of bounds, or divides by zero" if report[0] else ""


def _demand_defined(faults: list[str]) -> bool:
    """Return whether the function before is defined; raise if only the one after is not."""
    if faults[1] and not faults[0]:
        raise NotEquivalent(f"the function after: {faults[1]}")
    return not faults[0]


def _compare(pair: _Pair, kind: str, arrays: Arrays, small: bool) -> Comparison:
    """Run both functions on one set of data and compare everything they write.

    Compiled code does not run where the function has no defined result: it might not come back.
    """
    evaluated: list[Arrays] = []
    counts = Comparison()
    bounds = None
    if small:
        (before, fault), (after, other) = (_evaluate(pair, place, arrays) for place in (0, 1))
        if not _demand_defined([fault, other]):
            return Comparison(undefined=1)
        evaluated = [before, after]
        bounds = None if pair.exactly else _bounds(pair, arrays)
        counts += _differ(pair, kind, "the evaluator", evaluated, bounds, small)
    elif pair.watched is not None:
        if not _demand_defined([_watch(pair.watched, place, arrays) for place in (0, 1)]):
            return Comparison(undefined=1)
    if pair.compiled is None:
        return counts
    llvm, faults = _execute(pair, pair.compiled, arrays)
    if not _demand_defined(faults):
        return Comparison(undefined=1)
    if evaluated and _overflows(pair, arrays, evaluated, llvm):
        return Comparison(undefined=1)
    counts += _differ(pair, kind, _COMPILED, llvm, bounds, small)
    if evaluated and kind not in ("nasty", LITERALS):
        _cross_check(pair, evaluated[0], llvm[0], arrays, bounds)
    return counts


def _execute(pair: _Pair, compiled: Compiled, arrays: Arrays) -> tuple[list[Arrays], list[str]]:
    """Run compiled code; returns what is in the arrays, and how each function ended without."""
    if not pair.partial:
        return [compiled.run(place, arrays) for place in (0, 1)], ["", ""]
    results, faults = [], ["", ""]
    for place in (0, 1):
        try:
            results.append(run_isolated(partial(compiled.run, place, arrays)))
        except Died as died:
            faults[place] = f"compiled by TVM, {died}"
    return results, faults


def _overflows(
    pair: _Pair, arrays: Arrays, evaluated: list[Arrays], compiled: list[Arrays]
) -> bool:
    """Whether the function before overflows, and LLVM made something of it in one of the two.

    Such a result must not be kept: TVM tells LLVM that integers of 32 and 64 bits do not overflow,
    signed or not, but for integers that wrap around the machine gives what the program says. A sum
    that overflows may show in the function after alone, where it is converted to int64 without
    being stored first.
    """
    try:
        for wrapped, made in zip(evaluated, compiled, strict=True):
            for name in pair.written:
                same_numbers(name, wrapped[name], made[name], "")
    except NotEquivalent:
        try:
            pair.checked.run(copies(arrays), pair.sizes)
        except EvaluationError:
            return True
    return False


def _differ(
    pair: _Pair,
    kind: str,
    oracle: str,
    results: list[Arrays],
    bounds: list[dict[str, list[Any]]] | None,
    small: bool,
) -> Comparison:
    """Compare everything that the two functions write; raises at a difference."""
    before, after = results
    counts, reason = Comparison(), f"on {kind} data, by {oracle}"
    for name in pair.written:
        if pair.exactly:
            counts += same_bits(name, before[name], after[name], reason)
        elif bounds is not None:
            by_before = before[name] if oracle == _COMPILED else None
            both = bounds[0][name], bounds[1][name]
            counts += within_bounds(name, after[name], *both, reason, by_before)
        elif kind == "exact":
            counts += same_numbers(name, before[name], after[name], reason)
        elif small:
            counts += Comparison(before[name].size, open=before[name].size)
    return counts


def _bounds(pair: _Pair, arrays: Arrays) -> list[dict[str, list[Any]]] | None:
    found = []
    for program in pair.bounds:
        content: dict[str, Any] = {}
        for name, (param, _) in pair.shapes.items():
            array = np.asarray(arrays[name])
            numbers = (array.astype(np.float64) if param.type.kind == "f" else array).ravel()
            values = [(number, number) for number in numbers.tolist()]
            content[name] = values if param.shape is not None else values[0]
        try:
            program.run(IntervalArithmetic(), content, pair.sizes)
        except UnsupportedError:
            raise
        except EvaluationError:
            # Where the choice depends on data, both operands are computed, the discarded one too.
            return None
        found.append(content)
    return found


def _cross_check(
    pair: _Pair,
    evaluated: Arrays,
    compiled: Arrays,
    arrays: Arrays,
    bounds: list[dict[str, list[Any]]] | None,
) -> None:
    """Demand that the two oracles agree about the function before."""
    if bounds is None and pair.floats:
        bounds = _bounds(pair, arrays)
    reason = "the evaluator and compiled code disagree"
    for name in pair.written:
        if bounds is None and pair.floats and not pair.exactly:
            continue
        if bounds is None:
            same_numbers(name, evaluated[name], compiled[name], reason)
        else:
            for result in (evaluated[name], compiled[name]):
                within_bounds(name, result, bounds[0][name], bounds[0][name], reason)


def _try_candidate(
    before: tirx.PrimFunc,
    after: tirx.PrimFunc,
    numerics: Numerics,
    sizes: Mapping[str, int],
    values: Mapping[tuple[str, int], Any],
    ranges: Mapping[str, tuple[int, int]],
) -> None:
    """Run both functions on the values for which z3 sees a difference."""
    try:
        pair = _prepare(before, after, numerics, sizes)
    except UnsupportedError:
        return  # The sizes of the proof put elements into one place.
    arrays = make_arrays("exact", pair.shapes, ranges, np.random.default_rng(0))
    for (name, element), value in values.items():
        param, _ = pair.shapes[name]
        number = float(value) if param.type.kind == "f" else value
        if param.shape is None:
            arrays[name] = np.asarray(number).astype(arrays[name].dtype)[()]
        else:
            arrays[name].reshape(-1)[element] = number
    try:
        _compare(pair, "symbolic", arrays, True)
    except UnsupportedError:
        return
