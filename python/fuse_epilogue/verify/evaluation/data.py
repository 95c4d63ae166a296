"""Data that shows differences: exact, ordinary and nasty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import prim

from .parameters import Parameter
from .scalars import ScalarType

#: The kinds of data, in the order in which they are tried.
KINDS = ("exact", "normal", "nasty")
#: The additional kind of data where results must have the same bits.
LITERALS = "literals"

# Small integers, and the part of all that they are.
_NEAR, _NEAR_PART = 4, 0.3
#: Ranges of integers, one tried after the other where a function is not defined on those of `make`.
TAME = ((-4, 12), (0, 7), (1, 3), (1, 1), (0, 0))

#: Values of parameters: an array for each buffer, a numpy scalar for each number.
Arrays = dict[str, Any]


def numpy_type(type: ScalarType) -> np.dtype:
    """Return the numpy type of a scalar type."""
    return np.dtype(ml_dtypes.bfloat16 if type.name == "bfloat16" else type.name)


def make(
    kind: str,
    type: ScalarType,
    shape: tuple[int, ...],
    rng: np.random.Generator,
    limits: tuple[int, int] | None = None,
    density: float = 0.15,
) -> np.ndarray:
    """Make random data of one kind.

    - `kind`: ``exact``: floats that are small integers. ``normal``: normally distributed floats.
      ``nasty``: floats among which are zeros of both signs, infinities, NaN and denormals. Integers
      come from the whole range of their type, with its ends and small ones among them, so that
      those that serve as an index or a divisor are right and wrong.
    - `type`: type of the elements.
    - `shape`: shape of the array.
    - `rng`: source of randomness.
    - `limits`: smallest and largest value of integers, for data that serves as an index or a shift.
    - `density`: the part of the values that are special: infinities and so on, or the ends of a
      range.
    """
    if type.kind != "f":
        low, high = limits or (type.low, type.high)
        low, high = max(low, type.low), min(high, type.high)
        storage = np.dtype("uint8") if type.kind == "b" else np.dtype(type.name)
        values = rng.integers(low, high, size=shape, dtype=storage, endpoint=True)
        if limits is None and type.kind != "b":
            near = rng.integers(max(low, -_NEAR), _NEAR, size=shape, dtype=storage, endpoint=True)
            values = np.where(rng.random(shape) < _NEAR_PART, near, values)
        extremes = [value for value in (low, high, 0, 1) if low <= value <= high]
        chosen = rng.choice(np.array(extremes, storage), size=shape)
        values = np.where(rng.random(shape) < density, chosen, values)
        if limits is None and values.size > 1:
            # A divisor is 0 somewhere, whatever is drawn.
            values.reshape(-1)[rng.integers(values.size)] = 0
        return values.astype(numpy_type(type))
    if kind == "exact":
        return rng.integers(-6, 7, size=shape).astype(numpy_type(type))
    values = rng.standard_normal(shape)
    if kind == "nasty":
        tiny = float(ml_dtypes.finfo(numpy_type(type)).smallest_subnormal)
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, tiny, -3 * tiny])
        values = np.where(rng.random(shape) < density, rng.choice(special, size=shape), values)
    return values.astype(numpy_type(type))


def literals_of(*funcs: tirx.PrimFunc) -> list[float]:
    """Return the numbers that occur in functions: where one of them decides, data must meet it.

    - `funcs`: any.
    - Returns: integers and finite floats other than zero, sorted, each once.
    """
    found: list[Any] = []
    for func in funcs:
        entries = [(node, found.append) for node in (prim.IntImm, prim.FloatImm)]
        tvm_ffi.structural_walk(func.body, entries)
    values = {(type(one.value), one.value) for one in found}
    return sorted(value for _, value in values if value and np.isfinite(value))


def make_literals(
    type: ScalarType,
    shape: tuple[int, ...],
    rng: np.random.Generator,
    literals: Sequence[float],
    limits: tuple[int, int] | None = None,
    density: float = 0.15,
) -> np.ndarray:
    """Make data of literals among zeros, so that sums are literals too.

    - `type`: type of the elements.
    - `shape`: shape of the array.
    - `rng`: source of randomness.
    - `literals`: the numbers; integers among them are for integer types, floats for floating ones.
    - `limits`: smallest and largest value of integers.
    - `density`: the part of the values that are literals.
    """
    if type.kind == "f":
        pool = [value for value in literals if isinstance(value, float)]
        filler: float = 0
    else:
        low, high = limits or (type.low, type.high)
        low, high = max(low, type.low), min(high, type.high)
        pool = [value for value in literals if value == int(value) and low <= value <= high]
        filler = min(max(0, low), high)
    with np.errstate(over="ignore"):
        known = np.array([*pool, filler], dtype=object).astype(numpy_type(type))
    if pool:
        known = known[:-1]
    rest = np.full(shape, filler).astype(numpy_type(type))
    if density >= 1:
        # All of them, where there is room.
        return np.resize(rng.permutation(known), shape)
    return np.where(rng.random(shape) < density, rng.choice(known, size=shape), rest)


def make_arrays(
    kind: str,
    parameters: Mapping[str, tuple[Parameter, tuple[int, ...]]],
    ranges: Mapping[str, tuple[int, int]],
    rng: np.random.Generator,
    density: float = 0.15,
    literals: Sequence[float] = (),
    tame: tuple[int, int] | None = None,
) -> Arrays:
    """Make a value for each parameter; outputs are filled too, so that missing stores show.

    - `kind`: one of `KINDS`, or `LITERALS`.
    - `parameters`: each with its shape, which is empty for a number.
    - `ranges`: limits of integers, by parameter.
    - `rng`: source of randomness.
    - `density`: the part of the values that are special.
    - `literals`: for `LITERALS`: the numbers to use.
    - `tame`: limits of all integers that have none.
    """
    arrays: Arrays = {}
    for name, (param, shape) in parameters.items():
        limits = ranges.get(name, None if param.type.kind == "b" else tame)
        if kind == LITERALS:
            made = make_literals(param.type, shape, rng, literals, limits, density)
        else:
            made = make(kind, param.type, shape, rng, limits, density)
        arrays[name] = made if param.shape is not None else made[()]
    return arrays


def copies(arrays: Arrays) -> Arrays:
    """Return copies of arrays, and numbers as they are."""
    return {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in arrays.items()}
