"""What says that a fused program is right: numpy, and the same program built without fusing.

Three kinds of data are used. On ``exact`` data every floating sum is exact whatever its order, so
the fused and the unfused build must agree bit for bit. On ``normal`` data both are compared with a
float64 reference within the bound that any order of additions satisfies. On ``nasty`` data
(signed zeros, infinities, NaN, denormals) the special values must come out at the same places.
A program fused with ``numerics="exact"`` must agree with the unfused one bit for bit on all three.
"""

from __future__ import annotations

import contextlib
import functools
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.tirx import PrimFunc

import fuse_epilogue  # noqa: F401 - where TVM does not load it by itself
from programs import BY_NAME
from programs.case import Case, Reference

Arrays = dict[str, Any]

# Functions compiled into one module; one call of the compiler costs more than one function does.
FUNCTIONS_PER_MODULE = 40

# Roundings besides those of the additions of the reduction: the product inside a term, the
# initial value, and the operations of the epilogues (no program has more than four additions; an
# approximated function counts as four roundings).
EXTRA_ROUNDINGS = 6

# The special values in ``nasty`` data, as multiples of the type's smallest number in the last case.
_ZEROS, _INFINITIES, _DENORMALS = (0.0, -0.0), (np.inf, -np.inf), (1, -3)
SPECIAL: Mapping[str, tuple[tuple[float, ...], tuple[int, ...]]] = {
    "all": ((*_ZEROS, *_INFINITIES, np.nan), _DENORMALS),
    "no NaN": ((*_ZEROS, *_INFINITIES), _DENORMALS),
    "no denormals": ((*_ZEROS, *_INFINITIES, np.nan), ()),
    "finite": (_ZEROS, _DENORMALS),
}


# ---------------------------------------------------------------------------------------------
# Data
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function: a buffer with a concrete shape, or a scalar (shape None)."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None


def parameters(func: PrimFunc, sizes: Mapping[str, int]) -> list[Parameter]:
    """The parameters of `func`, symbolic dimensions replaced by their values in `sizes`."""
    found = []
    for param in func.params:
        if isinstance(param.ty, tirx.BufferType):
            shape = tuple(_extent(dim, sizes) for dim in param.ty.shape)
            found.append(Parameter(param.name, str(param.ty.dtype), shape))
        else:
            found.append(Parameter(param.name, str(param.ty.dtype), None))
    return found


def _extent(dim: Any, sizes: Mapping[str, int]) -> int:
    """The value of an extent that is a number or an expression in named dimensions."""
    if isinstance(dim, tirx.IntImm):
        return int(dim.value)
    return int(eval(str(dim), {}, dict(sizes)))


def make(
    kind: str,
    dtype: str,
    shape: tuple[int, ...],
    rng: np.random.Generator,
    special: str = "all",
) -> np.ndarray:
    """Random data of one kind.

    - `kind`: ``exact``: floats that are small integers, integers from the whole range of their type
      (so that sums wrap around). ``normal``: normally distributed floats. ``nasty``: floats among
      which are zeros of both signs, infinities, NaN and denormals.
    - `dtype`, `shape`: of the array.
    - `rng`: source of randomness.
    - `special`: which values make ``nasty`` data nasty: a key of `SPECIAL`.
    - Returns: of the given type and shape.
    """
    if dtype == "bool":
        return rng.integers(0, 2, size=shape).astype("bool")
    if not _is_float(dtype):
        info = np.iinfo(dtype)
        values = rng.integers(info.min, info.max, size=shape, dtype=dtype, endpoint=True)
        extremes = np.array([info.min, info.max, 0, 1], dtype=dtype)
        where = rng.random(shape) < 0.2
        return np.where(where, rng.choice(extremes, size=shape), values).astype(dtype)
    if kind == "exact":
        return rng.integers(-6, 7, size=shape).astype(dtype)
    values = rng.standard_normal(shape)
    if kind == "nasty":
        plain, multiples = SPECIAL[special]
        tiny = float(ml_dtypes.finfo(dtype).smallest_subnormal)
        chosen = np.array([*plain, *(factor * tiny for factor in multiples)])
        where = rng.random(shape) < 0.15
        values = np.where(where, rng.choice(chosen, size=shape), values)
    return values.astype(dtype)


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def garbage(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """What an output holds before the call, so that an element left unwritten is noticed."""
    if _is_float(dtype):
        return np.full(shape, np.nan, dtype)
    return np.frombuffer(
        bytes([0xA5]) * np.dtype(dtype).itemsize * math.prod(shape), dtype
    ).reshape(shape)


def make_inputs(
    case: Case, kind: str, sizes: Mapping[str, int], special: str | None = None
) -> Arrays:
    """Everything that goes into `case`: an array or a number for each parameter.

    The same case, kind and sizes always give the same data. `special` replaces the case's own.
    """
    special = special or case.special or "all"
    rng = np.random.default_rng(zlib.crc32(f"{case.name}/{kind}/{sorted(sizes.items())}".encode()))
    values: Arrays = {}
    for param in parameters(case.func, sizes):
        if param.shape is None:
            values[param.name] = make(kind, param.dtype, (1,), rng, special)[0]
        elif param.name in case.outputs:
            values[param.name] = garbage(param.dtype, param.shape)
        else:
            values[param.name] = make(kind, param.dtype, param.shape, rng, special)
    return values


def accumulator(case: Case) -> str:
    """The type that the case's reduction accumulates in."""
    sch = s_tir.Schedule(case.func)
    return str(sch.get(sch.get_sblock(case.reduction)).writes[0].source.ty.dtype)


def has_floats(case: Case) -> bool:
    """Whether some output of `case` is floating."""
    written = set(case.outputs) | set(case.updates)
    params = parameters(case.func, case.sizes[0])
    return any(_is_float(p.dtype) for p in params if p.name in written)


# ---------------------------------------------------------------------------------------------
# Fusing
# ---------------------------------------------------------------------------------------------


@functools.cache
def fused(name: str) -> tuple[s_tir.Schedule, Any]:
    """The accepting case of that name, fused by one call, and the report: to be looked at only."""
    sch, (report,) = fuse(BY_NAME[name])
    return sch, report


def fuse(case: Case, call: str = "reduction") -> tuple[s_tir.Schedule, list[Any]]:
    """Schedule a fresh copy of `case` and fuse all of its epilogues.

    - `case`: an accepting case.
    - `call`: with the "reduction" or the first "epilogue" alone; or epilogue by epilogue, each as a
      "pair", "pair by variable" or "pair by keyword".
    - Returns: the schedule, and the report of each call.
    """
    sch = case.scheduled()
    how = case.options
    if call == "reduction":
        return sch, [sch.fuse_reduction_epilogue(case.reduction, **how)]
    if call == "epilogue":
        return sch, [sch.fuse_reduction_epilogue(sch.get_sblock(case.epilogues[0]), **how)]
    reports = []
    for epilogue in case.epilogues:
        if call == "pair":
            report = sch.fuse_reduction_epilogue(case.reduction, epilogue, **how)
        elif call == "pair by variable":
            report = sch.fuse_reduction_epilogue(
                sch.get_sblock(case.reduction), sch.get_sblock(epilogue), **how
            )
        else:
            report = sch.fuse_reduction_epilogue(
                reduction_block=case.reduction, epilogue_block=epilogue, **how
            )
        reports.append(report)
    return sch, reports


# ---------------------------------------------------------------------------------------------
# Building and running
# ---------------------------------------------------------------------------------------------


def without_threads(func: PrimFunc) -> PrimFunc:
    """`func` with its thread-bound loops made serial, so that it runs on a CPU."""

    def serial(loop: tirx.For) -> tirx.For:
        if loop.kind != tirx.ForKind.THREAD_BINDING:
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    return tvm_ffi.structural_map(func, [(tirx.For, serial)])


class Builds:
    """Functions compiled together, found by name; a failure to compile belongs to one name."""

    def __init__(self, functions: Mapping[str, PrimFunc], opt_level: int = 2) -> None:
        self._built: dict[str, Any] = {}
        self.add(functions, opt_level)

    def add(self, functions: Mapping[str, PrimFunc], opt_level: int = 2) -> None:
        """Compile more; `opt_level` is that of LLVM, which takes most of the time."""
        names = list(functions)
        for start in range(0, len(names), FUNCTIONS_PER_MODULE):
            part = {name: functions[name] for name in names[start : start + FUNCTIONS_PER_MODULE]}
            self._built.update(_compile_or_blame(part, opt_level))

    def alias(self, names: Mapping[str, str]) -> None:
        """Give functions that are there other names as well."""
        self._built.update({name: self._built[other] for name, other in names.items()})

    def __contains__(self, name: str) -> bool:
        return name in self._built

    def __getitem__(self, name: str) -> Any:
        built = self._built[name]
        if isinstance(built, Exception):
            raise AssertionError(f"{name} does not compile: {built}") from built
        return built


def compile_together(functions: Mapping[str, PrimFunc], opt_level: int = 2) -> dict[str, Any]:
    """Compile functions for the CPU in one module; returns them by name."""
    mod = tvm.IRModule(
        {
            name: without_threads(func).with_attr("global_symbol", name)
            for name, func in functions.items()
        }
    )
    # The checks of the arguments would be more code than most functions are.
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        built = tvm.compile(mod, target={"kind": "llvm", "opt-level": opt_level})
    return {name: built[name] for name in functions}


def _compile_or_blame(functions: Mapping[str, PrimFunc], opt_level: int) -> dict[str, Any]:
    """Compile together; where that fails, one by one, keeping each function's error."""
    with contextlib.suppress(Exception):
        return compile_together(functions, opt_level)
    found: dict[str, Any] = {}
    for name, func in functions.items():
        try:
            found.update(compile_together({name: func}, opt_level))
        except Exception as error:
            found[name] = error
    return found


def run(built: Any, case: Case, inputs: Arrays, sizes: Mapping[str, int]) -> Arrays:
    """Call a built function on copies of `inputs`; returns what it wrote, by parameter."""
    arguments = []
    for param in parameters(case.func, sizes):
        value = inputs[param.name]
        # Copied by TVM: generated code relies on its alignment, which numpy does not promise.
        arguments.append(value.item() if param.shape is None else tvm.runtime.tensor(value))
    built(*arguments)
    written = set(case.outputs) | set(case.updates)
    names = [param.name for param in parameters(case.func, sizes)]
    return {n: a.numpy() for n, a in zip(names, arguments, strict=True) if n in written}


def expected(case: Case, inputs: Arrays, formula: Reference | None = None) -> Arrays:
    """What numpy says that `case` writes: its reference on `inputs`, or another formula there."""
    formula = formula or case.reference
    assert formula is not None, f"{case.name} has no reference"
    going_in = {k: np.copy(v, subok=True) for k, v in inputs.items() if k not in case.outputs}
    with np.errstate(all="ignore"):
        result = formula(**going_in)
    if isinstance(result, dict):
        return result
    (name,) = (*case.outputs, *case.updates)
    return {name: result}


# ---------------------------------------------------------------------------------------------
# Comparing
# ---------------------------------------------------------------------------------------------


def assert_same_bits(actual: np.ndarray, desired: np.ndarray, what: str = "") -> None:
    """Same shape, same type, same bits; only zeros of different sign are taken for equal.

    A literal 0 is folded away (``0 + c`` becomes ``c``), so ``-0.0`` may come out where the
    unfused program gives ``0.0``.
    """
    assert actual.shape == desired.shape, f"{what}: shape {actual.shape}, not {desired.shape}"
    assert actual.dtype == desired.dtype, f"{what}: type {actual.dtype}, not {desired.dtype}"
    assert not np.isnan(desired.astype("float64")).any(), f"{what}: NaN in exact data"
    np.testing.assert_array_equal(actual, desired, err_msg=what)


def assert_identical(actual: np.ndarray, desired: np.ndarray, what: str) -> None:
    """The same bits, zeros and denormals included; of a NaN, only that it is one.

    Which NaN comes out of two is not defined: the compiler may swap the operands.
    """
    assert actual.shape == desired.shape, f"{what}: shape {actual.shape}, not {desired.shape}"
    assert actual.dtype == desired.dtype, f"{what}: type {actual.dtype}, not {desired.dtype}"
    if not _is_float(str(actual.dtype)):
        np.testing.assert_array_equal(actual, desired, err_msg=what)
        return
    nan = np.isnan(desired)
    np.testing.assert_array_equal(np.isnan(actual), nan, err_msg=f"{what}: NaN")
    bits = f"uint{8 * actual.dtype.itemsize}"
    np.testing.assert_array_equal(
        actual[~nan].view(bits), desired[~nan].view(bits), err_msg=f"{what}: bits"
    )


def rounding_bound(case: Case, inputs: Arrays, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """How far any order of the additions may be from the exact result, element by element.

    A sum of n rounded terms, in any order, differs from the exact one by at most
    ``n u / (1 - n u)`` times the sum of the terms' magnitudes, u being half the machine epsilon of
    the accumulator. The roundings of the epilogues are those of the coarsest type that any block
    writes. The magnitudes come from ``case.magnitude``, or else from the reference itself, run on
    absolute values with each subtraction turned into an addition.
    """
    positive = {k: np.abs(np.asarray(v, "float64")).view(Magnitude) for k, v in inputs.items()}
    magnitudes = expected(case, positive, case.magnitude)
    summing, coarsest, smallest = _units(case)
    # The float64 reference is a rounded sum too.
    summing += float(np.finfo("float64").eps) / 2
    count = reduction_length(case, sizes)
    reduced = count * summing / (1 - count * summing)
    finished = EXTRA_ROUNDINGS * coarsest / (1 - EXTRA_ROUNDINGS * coarsest)
    bounds = {}
    for name, magnitude in magnitudes.items():
        bounds[name] = np.asarray(magnitude) * (reduced + finished + reduced * finished) + smallest
        assert (bounds[name] >= 0).all(), f"{case.name}: a magnitude is negative"
    return bounds


def _units(case: Case) -> tuple[float, float, float]:
    """Half the epsilon of the accumulator, the largest one, and the largest denormal step."""
    written: list[str] = []
    tvm_ffi.structural_walk(
        case.func,
        [(s_tir.SBlock, lambda b: written.extend(str(w.source.ty.dtype) for w in b.writes))],
    )
    summed_in = accumulator(case)
    infos = [ml_dtypes.finfo(dtype) for dtype in written if _is_float(dtype)]
    unit = float(ml_dtypes.finfo(summed_in).eps) / 2 if _is_float(summed_in) else 0.0
    return (
        unit,
        max(float(info.eps) / 2 for info in infos),
        max(float(info.smallest_subnormal) for info in infos),
    )


ADDING: Mapping[Any, Any] = {np.subtract: np.add, np.negative: np.positive}


class Magnitude(np.ndarray):
    """Non-negative numbers that are only ever added up: a difference is the sum of both sides."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [np.abs(np.asarray(value)) for value in inputs]
        result = getattr(ADDING.get(ufunc, ufunc), method)(*plain, **kwargs)
        return result.view(Magnitude) if isinstance(result, np.ndarray) else result


def reduction_length(case: Case, sizes: Mapping[str, int]) -> int:
    """How many terms the reduction of `case` adds up, twice that where a term is itself a sum."""
    sch = s_tir.Schedule(case.func)
    block = sch.get(sch.get_sblock(case.reduction))
    extents = [_extent(v.dom.extent, sizes) for v in block.iter_vars if v.iter_type == 2]
    return 2 * math.prod(extents)


def assert_within_rounding(
    case: Case, actual: Arrays, inputs: Arrays, sizes: Mapping[str, int]
) -> None:
    """`actual` is a possible result of adding up the terms in some order."""
    exactly = expected(case, {k: _in_float64(v) for k, v in inputs.items()})
    for name, bound in rounding_bound(case, inputs, sizes).items():
        error = np.abs(actual[name].astype("float64") - exactly[name])
        assert (error <= bound).all(), (
            f"{case.name}: {name} is off by {np.nanmax(error)}, allowed is {np.max(bound)}"
        )


def _in_float64(value: Any) -> Any:
    """Floats as float64; integers stay what they are, so that they wrap around."""
    return np.asarray(value, "float64") if _is_float(str(value.dtype)) else value


def assert_same_special_values(actual: np.ndarray, desired: np.ndarray, what: str) -> None:
    """NaN and the infinities are at the same places."""
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(desired), err_msg=f"{what}: NaN")
    finite_or_nan = ~np.isinf(desired)
    np.testing.assert_array_equal(np.isinf(actual), ~finite_or_nan, err_msg=f"{what}: infinities")
    np.testing.assert_array_equal(
        actual[~finite_or_nan], desired[~finite_or_nan], err_msg=f"{what}: sign of infinities"
    )


def check_unfused(case: Case, unfused: Any) -> None:
    """The program itself computes what its reference says: a test of the test."""
    for sizes in case.sizes:
        inputs = make_inputs(case, "exact", sizes)
        results = run(unfused, case, inputs, sizes)
        if case.approximate:
            assert_within_rounding(case, results, inputs, sizes)
            continue
        for name, value in expected(case, inputs).items():
            assert_same_bits(results[name], value, f"{case.name} unfused {dict(sizes)}, {name}")


def check_fused(case: Case, unfused: Any, fused: Any) -> None:
    """The fused program computes what the unfused one and numpy do, on all kinds of data."""
    for sizes in case.sizes:
        inputs = make_inputs(case, "exact", sizes)
        before, after = run(unfused, case, inputs, sizes), run(fused, case, inputs, sizes)
        for name in before if not case.inexact else ():
            assert_same_bits(after[name], before[name], f"{case.name} {dict(sizes)}, {name}")
        if case.approximate:
            assert_within_rounding(case, after, inputs, sizes)
        else:
            for name, value in expected(case, inputs).items():
                assert_same_bits(after[name], value, f"{case.name} {dict(sizes)}, {name}, numpy")
        if not has_floats(case):
            continue
        inputs = make_inputs(case, "normal", sizes)
        before, after = run(unfused, case, inputs, sizes), run(fused, case, inputs, sizes)
        assert_within_rounding(case, before, inputs, sizes)
        assert_within_rounding(case, after, inputs, sizes)
        if case.special:
            inputs = make_inputs(case, "nasty", sizes)
            before, after = run(unfused, case, inputs, sizes), run(fused, case, inputs, sizes)
            for name in before:
                assert_same_special_values(after[name], before[name], f"{case.name}, {name}")
    if case.numerics == "exact":
        check_identical(case, unfused, fused)


def check_identical(case: Case, unfused: Any, fused: Any) -> None:
    """The fused program gives the unfused one's bits on all kinds of data."""
    for sizes in case.sizes:
        for kind in ("exact", "normal", "nasty"):
            inputs = make_inputs(case, kind, sizes, special="all")
            before, after = run(unfused, case, inputs, sizes), run(fused, case, inputs, sizes)
            for name in before:
                what = f"{case.name} {dict(sizes)}, {kind} data, {name}"
                assert_identical(after[name], before[name], what)
