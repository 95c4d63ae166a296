"""Small problems for GPUs, for the tests of the planner; what right results are stands in numpy."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from tvm.tirx import PrimFunc

from fuse_epilogue.planner.machines.gpu import Gpu, gpu
from fuse_epilogue.planner.problems import cuda
from fuse_epilogue.planner.problems.request import Request
from fuse_epilogue.planner.problems.space import Point
from fuse_epilogue.workloads import depthwise_conv1d, matmul, row_reduce
from planner_problems import SMALL as ON_CPU

FIND = {"product": cuda.find_product, "rows": cuda.find_rows, "conv": cuda.find_conv}
TARGET = {"kind": "cuda", "arch": "sm_90"}

#: name -> kind, function.
SMALL: dict[str, tuple[str, PrimFunc]] = {
    **ON_CPU,
    "product of halves": ("product", matmul(16, 32, 8, dtype="float16", activation="relu")),
    "product, a turned": ("product", matmul(24, 8, 12, transpose_a=True)),
    "rows of halves": ("rows", row_reduce(8, 48, dtype="float16", bias=True)),
    "rows of odd length": ("rows", row_reduce(8, 45, bias=True, activation="relu")),
    "rows, longer than a warp": ("rows", row_reduce(4, 192, scale=True, bias=True)),
    "conv, channels last": (
        "conv",
        depthwise_conv1d(2, 8, 20, 3, layout="NWC", activation="relu"),
    ),
    "conv, odd rows": ("conv", depthwise_conv1d(2, 3, 37, 4, padding="causal")),
    "conv of bytes": (
        "conv",
        depthwise_conv1d(2, 4, 32, 3, dtype="int8", activation="relu", shift=0),
    ),
}


def _conv(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1)])
    total = sum(padded[:, :, k : k + x.shape[2]] * weight[None, :, k, None] for k in range(3))
    return np.maximum(total + bias[None, :, None], 0)


#: What some of them compute, from their arrays but for the last.
NUMPY: dict[str, Callable[..., np.ndarray]] = {
    "product": lambda a, b, bias: np.maximum(a @ b + bias, 0),
    "rows": lambda x, bias: np.maximum(x.sum(1) + bias, 0),
    "conv": _conv,
}


def machine(**changed: Any) -> Gpu:
    """Return an H100; names of a chip's attributes change the chip."""
    made = gpu(TARGET)
    own = {name: value for name, value in changed.items() if hasattr(made, name)}
    chip = {name: value for name, value in changed.items() if name not in own}
    return replace(made, **own, chip=replace(made.chip, **chip))


def problem(name: str, on: Gpu | None = None) -> Any:
    """Return one of the small problems."""
    kind, func = SMALL[name]
    found = FIND[kind](Request(func, machine() if on is None else on))
    assert found is not None, name
    return found


def shared_bytes(text: str) -> int:
    """Return the bytes of shared memory that kernels declare, as TVM writes them."""
    sizes = {"float": 4, "half": 2, "signed char": 1}
    arrays = re.findall(r"__shared__ (?:alignas\(\d+\) )?([\w ]+) \w+\[(\d+)\]", text)
    return sum(sizes[kind] * int(count) for kind, count in arrays)


def covering(found: Any, least: int) -> list[Point]:
    """Return feasible points in which each value that is feasible of a variable is, and some more.

    Each is one of some random points, that with the most values which were in none before.
    """
    points, _ = found.space.feasible()
    rng = np.random.default_rng(0)
    missing = {(n, int(v)) for n, array in points.values.items() for v in np.unique(array)}
    chosen: list[Point] = []
    while missing or len(chosen) < least:
        indices = rng.choice(points.size, min(200, points.size), replace=False)
        if missing:
            name, value = min(missing)
            (with_it,) = np.nonzero(points[name] == value)
            indices = rng.choice(with_it, min(200, len(with_it)), replace=False)
        drawn = [points.at(int(index)) for index in indices]
        chosen.append(max(drawn, key=lambda point: len(missing & set(point.items()))))
        missing -= set(chosen[-1].items())
    return chosen
