"""Arrays for generated programs: the same program, kind and seed give the same data."""

from __future__ import annotations

import zlib
from typing import Any

import ml_dtypes
import numpy as np
from tvm import tirx

from .build import sizes_of
from .reached import Arrays, with_wild_values
from .spec import FLOATS, Program

# exact: floating arithmetic on them rounds nothing, integers are small; normal: ordinary floats,
# integers from the whole range; nasty: signed zeros, infinities, NaN and denormals among them;
# small: as exact, with integers so small that few products of them overflow.
KINDS = ("exact", "normal", "nasty", "small")

_DYADIC = np.array([1.0, -1.0, 2.0, 0.5, -2.0, 1.0])
_SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.4e-45, -4.2e-45, 6e-8])


def numpy_type(dtype: str) -> Any:
    """Return the numpy type of a TVM type."""
    return ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)


def shape_of(buffer: Any, sizes: dict[str, int]) -> tuple[int, ...]:
    """Return the shape of a buffer in numbers."""
    return tuple(_number(dim, sizes) for dim in buffer.ty.shape)


def _number(dim: Any, sizes: dict[str, int]) -> int:
    if isinstance(dim, tirx.IntImm):
        return int(dim.value)
    if isinstance(dim, tirx.Var):
        return sizes[str(dim.name)]
    a, b = _number(dim.a, sizes), _number(dim.b, sizes)
    if isinstance(dim, tirx.Mul):
        return a * b
    return a - b if isinstance(dim, tirx.Sub) else a + b


def make_arrays(
    program: Program, func: tirx.PrimFunc, kind: str, seed: int = 0, which: int = 0
) -> Arrays:
    """Return an array for each parameter of a program's function.

    Parameters
    ----------
    program : Program
    func : tirx.PrimFunc
    kind : str
        One of `KINDS`; inputs on which an operand may be undefined have values of their own, see
        ``reached``.
    seed : int
    which : int
        Of the values for unknown extents, see ``build.sizes_of``.
    """
    rng = np.random.default_rng([zlib.crc32(kind.encode()), seed])
    sizes = sizes_of(program, which)
    product = program.reduction.monoid == "product"
    arrays = {}
    for var in func.params:
        name, dtype = str(var.name), str(var.ty.dtype)
        shape = shape_of(var, sizes)
        if name == "rows":
            arrays[name] = rng.integers(0, shape[0], size=shape).astype(dtype)
        elif dtype in FLOATS:
            arrays[name] = _floats(rng, kind, shape, product).astype(numpy_type(dtype))
        else:
            arrays[name] = _integers(rng, kind, shape, dtype)
    with_wild_values(program, arrays, rng, sizes)
    return arrays


def _floats(
    rng: np.random.Generator, kind: str, shape: tuple[int, ...], product: bool
) -> np.ndarray:
    if kind in ("exact", "small"):
        return rng.choice(_DYADIC, size=shape) if product else rng.integers(-6, 7, size=shape)
    values = rng.standard_normal(shape)
    if kind == "nasty":
        return np.where(rng.random(shape) < 0.15, rng.choice(_SPECIAL, size=shape), values)
    return values


def _integers(
    rng: np.random.Generator, kind: str, shape: tuple[int, ...], dtype: str
) -> np.ndarray:
    if dtype == "bool":
        return np.asarray(rng.random(shape) < 0.6)
    info = np.iinfo(dtype)
    if kind == "small":
        return rng.choice([-1, 1, 2] if info.min else [0, 1, 2], size=shape).astype(dtype)
    if kind == "exact":
        return rng.integers(-6 if info.min else 0, 12, size=shape).astype(dtype)
    values = rng.integers(info.min, info.max, size=shape, dtype=dtype, endpoint=True)
    extremes = np.array([info.min, info.max, 0, 1], dtype=dtype)
    return np.where(rng.random(shape) < 0.2, rng.choice(extremes, size=shape), values).astype(dtype)
