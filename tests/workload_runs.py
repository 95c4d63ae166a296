"""Workloads of matrices on random data: what goes in, what comes out, and what is right."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm.s_tir import Schedule
from tvm.tirx import PrimFunc

from depthwise import FLOAT32, assert_between, bent_interval
from oracles import Arrays, compile_together, garbage, make, parameters

#: Biases of integers are multiples of this: beyond 16 bits, and within 32 with a sum of bytes.
INTEGER_BIAS = 1 << 16


def built_with_fused(funcs: Mapping[str, PrimFunc], reduction: str) -> dict[str, Any]:
    """Compile each function as it is, and fused as "<name> fused".

    Where nothing follows `reduction`, the two are the same.
    """
    functions = dict(funcs)
    for name, func in funcs.items():
        sch = Schedule(func, debug_mask="all")
        if len(sch.get_child_blocks(sch.get_sblock("root"))) > 1:
            sch.fuse_reduction_epilogue(reduction)
        functions[f"{name} fused"] = sch.mod["main"]
    return compile_together(functions, opt_level=0)


def drawn(func: PrimFunc, kind: str, sizes: Mapping[str, int], what: str) -> Arrays:
    """Data for the parameters of a workload, garbage for y; the same `what` draws the same."""
    rng = np.random.default_rng(zlib.crc32(f"{what} {kind} {sizes}".encode()))
    arrays: Arrays = {}
    for param in parameters(func, sizes):
        if param.name == "y":
            arrays["y"] = garbage(param.dtype, param.shape)
        elif param.dtype == "int32":
            factor = INTEGER_BIAS if param.name == "bias" else 1
            arrays[param.name] = make(kind, "int8", param.shape, rng).astype("int32") * factor
        else:
            arrays[param.name] = make(kind, param.dtype, param.shape, rng)
    return arrays


def call(built: Any, arrays: Arrays) -> np.ndarray:
    """Run a compiled workload; returns what is in y."""
    # Copied by TVM: generated code relies on its alignment, which numpy does not promise.
    arguments = [tvm.runtime.tensor(array) for array in arrays.values()]
    built(*arguments)
    return arguments[-1].numpy()


def widened(arrays: Arrays) -> Arrays:
    """The arrays as int64 or float64: wide enough to compute with."""
    wide = "int64" if arrays["y"].dtype == np.int32 else "float64"
    return {name: array.astype(wide) for name, array in arrays.items()}


def assert_right(
    y: np.ndarray,
    total: np.ndarray,
    magnitude: np.ndarray,
    roundings: int,
    activation: str | None,
    kind: str,
    what: str,
) -> None:
    """Judge `y`, which is to be the activation of `total`.

    - `total`, `magnitude`: the exact sum, and the sum of the magnitudes of its terms.
    - `roundings`: how many in float32 a term goes through at most. Each is half an epsilon; the
      bound takes a whole one, which covers their products. On exact data no sum is rounded.
    - `kind`: of the data.
    """
    if y.dtype == np.int32:
        total = (np.maximum(total, 0) if activation else total).astype("int64")
        assert np.abs(total).max() < 2**31, f"{what}: the data is too large"
        np.testing.assert_array_equal(y, total, err_msg=what)
        return
    off = 0.0 if kind == "exact" else roundings * FLOAT32 * magnitude
    low, high = bent_interval(total, off, activation, str(y.dtype))
    assert_between(y, low, high, what)
