"""Data that is hard on cascades, and programs run on it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from oracles import Parameter, garbage, parameters

from .case import KEYS, Cascade

Arrays = dict[str, Any]


def hard_rows(
    n: int, block: int, dtype: str, rng: Any, *, finite: bool = False, nan: bool = True
) -> np.ndarray:
    """Rows of n keys, each hard in a way of its own.

    - `n`, `block`: keys, and how many of them are a block.
    - `dtype`: a floating type.
    - `finite`: leave out infinities, NaN and what is near the largest number.
    - `nan`: whether there is NaN in rows that are not finite.
    - Returns: of shape (rows, n).
    """
    normal = rng.standard_normal
    up = np.arange(n)
    places = np.arange(n)
    small = np.finfo(dtype).smallest_subnormal
    rows = [
        normal(n),
        np.zeros(n),
        np.where(places % 2, 0.0, -0.0),
        8e4 + rng.integers(0, 4, n) if dtype != "float16" else 60000.0 + 32 * (places % 4),
        up * 3.0,
        -up * 3.0,
        np.where(places == n - 1, 100.0, normal(n)),
        np.where(places == 0, 100.0, normal(n)),
        np.full(n, -7.5),
        places * small,
        rng.integers(-6, 7, n),
    ]
    if not finite:
        largest = np.finfo(dtype).max
        rows += [
            normal(n) * 1e4,
            np.where(places < block, -np.inf, normal(n)),
            np.where(places >= n - block, -np.inf, normal(n)),
            np.where(places // block == 1, -np.inf, normal(n)),
            np.full(n, -np.inf),
            np.where(places % 2, -np.inf, normal(n)),
            np.where(places == rng.integers(n), np.inf, normal(n)),
            np.where(places == rng.integers(n), np.inf, -np.inf),
            np.where(places % 2, largest, -largest),
            np.where(places % 2, -largest, largest),
            np.full(n, -largest),
            np.full(n, largest),
        ]
        some = range(min(n, 10) if nan else 0)
        rows += [np.where(places == place, np.nan, rng.integers(-3, 4, n)) for place in some]
    return np.array(rows).astype(dtype)


def inputs(case: Cascade, keys: int = KEYS, block: int = 4) -> Iterator[tuple[str, Arrays]]:
    """Yield kinds of data and the inputs of a program.

    - `case`: the program.
    - `keys`, `block`: how many keys it has, and how many of them are a block.
    """
    rng = np.random.default_rng(zlib.crc32(f"{case.name}/{keys}".encode()))
    params = [param for param in parameters(case.func(keys), sizes_of(case, keys))]
    written = outputs(case.func(keys))
    given = [param for param in params if param.name not in written]
    for kind in ("normal", "whole"):
        yield kind, {param.name: _ordinary(case, param, kind, rng) for param in given}
    if not case.logits:
        return
    if not case.finite:
        arrays = {param.name: _ordinary(case, param, "normal", rng) for param in given}
        yield (
            "large",
            {k: v * v.dtype.type(1e4) if k in case.logits else v for k, v in arrays.items()},
        )
    hard: dict[str, np.ndarray] = {}
    shapes = {param.name: param for param in given}
    rounds = 1
    for name, axis in case.logits.items():
        param = shapes[name]
        assert param.shape is not None
        length = param.shape[axis]
        rows = hard_rows(length, block, param.dtype, rng, finite=case.finite, nan=case.nan)
        across = int(np.prod(param.shape)) // max(length, 1)
        rounds = max(rounds, -(-len(rows) // max(across, 1)))
        hard[name] = rows
    for place in range(rounds):
        arrays = {param.name: _ordinary(case, param, "normal", rng) for param in given}
        for name, axis in case.logits.items():
            arrays[name] = _filled(shapes[name], axis, hard[name], place)
        yield f"hard {place}", arrays


def _filled(param: Parameter, axis: int, rows: np.ndarray, place: int) -> np.ndarray:
    assert param.shape is not None
    shape = list(param.shape)
    length = shape.pop(axis)
    count = int(np.prod(shape))
    chosen = rows[(np.arange(count) + place * count) % len(rows)]
    return np.ascontiguousarray(np.moveaxis(chosen.reshape(*shape, length), -1, axis))


def _ordinary(case: Cascade, param: Parameter, kind: str, rng: Any) -> np.ndarray:
    shape = param.shape or ()
    if param.dtype.startswith(("int", "uint")):
        info = np.iinfo(param.dtype)
        low, high = case.ranges.get(param.name, (info.min, info.max))
        return rng.integers(low, high, size=shape, endpoint=True).astype(param.dtype)
    values = rng.integers(-6, 7, shape) if kind == "whole" else rng.standard_normal(shape)
    return values.astype(param.dtype)


def sizes_of(case: Cascade, keys: int) -> dict[str, int]:
    """The symbolic dimensions for a number of keys."""
    return {name: size(keys) for name, size in case.sizes.items()}


def outputs(func: tirx.PrimFunc) -> list[str]:
    """The parameters that a function writes."""
    written: list[Any] = []
    tvm_ffi.structural_walk(
        func.body, (tirx.BufferStore, lambda store: written.append(store.buffer))
    )
    return [str(p.name) for p in func.params if any(p.same_as(buffer) for buffer in written)]


def run(built: Any, case: Cascade, arrays: Arrays, keys: int = KEYS) -> Arrays:
    """Run a build of a program on copies.

    - Returns: the outputs.
    """
    held: dict[str, Any] = {}
    written = outputs(case.func(keys))
    for param in parameters(case.func(keys), sizes_of(case, keys)):
        assert param.shape is not None
        array = garbage(param.dtype, param.shape) if param.name in written else arrays[param.name]
        held[param.name] = tvm.runtime.tensor(np.array(array))
    built(*held.values())
    return {name: held[name].numpy() for name in written}
