"""Data that shows differences: exact, ordinary and nasty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from .parameters import Parameter
from .scalars import ScalarType

#: The kinds of data, in the order in which they are tried.
KINDS = ("exact", "normal", "nasty")

#: Values of parameters: an array for each buffer, a numpy scalar for each number.
Arrays = dict[str, Any]


def numpy_type(type: ScalarType) -> np.dtype:
    """Return the numpy type of a scalar type.

    Example
    -------
    >>> from fuse_epilogue.verify.scalars import scalar_type
    >>> numpy_type(scalar_type("int8"))
    dtype('int8')
    """
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

    Parameters
    ----------
    kind : str
        ``exact``: floats that are small integers. ``normal``: normally distributed floats.
        ``nasty``: floats among which are zeros of both signs, infinities, NaN and denormals.
        Integers come from the whole range of their type, with its ends and zero among them.
    type : ScalarType
        Of the elements.
    shape : tuple[int, ...]
        Of the array.
    rng : numpy.random.Generator
        Source of randomness.
    limits : tuple[int, int], optional
        Smallest and largest value of integers, for data that serves as an index or a shift.
    density : float
        The part of the values that are special: infinities and so on, or the ends of a range.

    Returns
    -------
    numpy.ndarray

    Example
    -------
    >>> from fuse_epilogue.verify.scalars import scalar_type
    >>> make("exact", scalar_type("uint8"), (2,), np.random.default_rng(0), (1, 1))
    array([1, 1], dtype=uint8)
    """
    if type.kind != "f":
        low, high = limits or (type.low, type.high)
        storage = np.dtype("uint8") if type.kind == "b" else np.dtype(type.name)
        values = rng.integers(low, high, size=shape, dtype=storage, endpoint=True)
        extremes = [value for value in (low, high, 0, 1) if low <= value <= high]
        chosen = rng.choice(np.array(extremes, storage), size=shape)
        return np.where(rng.random(shape) < density, chosen, values).astype(numpy_type(type))
    if kind == "exact":
        return rng.integers(-6, 7, size=shape).astype(numpy_type(type))
    values = rng.standard_normal(shape)
    if kind == "nasty":
        tiny = float(ml_dtypes.finfo(numpy_type(type)).smallest_subnormal)
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, tiny, -3 * tiny])
        values = np.where(rng.random(shape) < density, rng.choice(special, size=shape), values)
    return values.astype(numpy_type(type))


def make_arrays(
    kind: str,
    parameters: Mapping[str, tuple[Parameter, tuple[int, ...]]],
    ranges: Mapping[str, tuple[int, int]],
    rng: np.random.Generator,
    density: float = 0.15,
) -> Arrays:
    """Make a value for each parameter; outputs are filled too, so that missing stores show.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    parameters : mapping of str to (Parameter, tuple[int, ...])
        Each with its shape, which is empty for a number.
    ranges : mapping of str to (int, int)
        Limits of integers, by parameter.
    rng : numpy.random.Generator
        Source of randomness.
    density : float
        The part of the values that are special.

    Returns
    -------
    dict[str, Any]

    Example
    -------
    >>> make_arrays("normal", {}, {}, np.random.default_rng(0))
    {}
    """
    arrays: Arrays = {}
    for name, (param, shape) in parameters.items():
        made = make(kind, param.type, shape, rng, ranges.get(name), density)
        arrays[name] = made if param.shape is not None else made[()]
    return arrays


def copies(arrays: Arrays) -> Arrays:
    """Return copies of arrays, and numbers as they are.

    Example
    -------
    >>> copies({"s": 1})
    {'s': 1}
    """
    return {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in arrays.items()}
