"""The rules for rows on Trainium: kernels that check and compute what numpy says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

from depthwise import Options, covering
from fuse_epilogue.kernels.trainium.row_reduction import Elementwise, RowReduce
from fuse_epilogue.neuron import Kernel, emit
from fuse_epilogue.workloads import depthwise_conv1d, elementwise, matmul, row_reduce
from neuron_rules import kernel_by
from oracles import Arrays
from test_workloads_rows import computes, name_of, summed
from workload_runs import assert_right, drawn

# With sanitizers this would take long, and hardly any of it is the library's own code.
pytestmark = pytest.mark.slow

MACHINES = ("trn1", "trn2")
SHARED = {
    "m": [1, 5, 128, 129, 300],
    "n": [1, 3, 700, 2048, 9000],
    "dtype": ["float32", "float16", "bfloat16"],
    "scale": [True, False],
    "bias": [True, False],
    "activation": [None, "relu", "silu"],
}
REDUCE_CASES = covering({**SHARED, "op": ["sum", "max"]}, lambda options: True)
BENT_CASES = covering({**SHARED, "residual": [True, False]}, computes)
CASES = [(row_reduce, RowReduce, case) for case in REDUCE_CASES]
CASES += [(elementwise, Elementwise, case) for case in BENT_CASES]


def judge(kernel: Kernel, options: Options, arrays: Arrays, kind: str) -> None:
    """Run a kernel and compare with numpy."""
    total, magnitude = (summed(options, arrays, of) for of in (np.asarray, np.abs))
    # The additions of a sum, and at most one product and two additions behind it.
    roundings = 3 + (arrays["x"].shape[1] - 1) * (options.get("op") == "sum")
    y = kernel(*[array for name, array in arrays.items() if name != "y"])
    activation = options.get("activation")
    assert_right(y, total, magnitude, roundings, activation, kind, name_of(options))


@pytest.mark.parametrize(
    "index", range(len(CASES)), ids=[f"{make.__name__}-{name_of(o)}" for make, _, o in CASES]
)
def test_computes_the_rows(index: int) -> None:
    """On exact data bit for bit; on normal data, within what any order of the additions gives."""
    make, rule, options = CASES[index]
    func = make(**options)
    kernel = kernel_by(rule(), func, MACHINES[index % 2])
    for kind in ("exact", "normal"):
        judge(kernel, options, drawn(func, kind, {}, name_of(options)), kind)


@pytest.mark.parametrize("op", ["sum", "max"])
def test_rows_longer_than_the_memory(op: str) -> None:
    """A row of 400 KB: only a part of it is on the chip at a time."""
    options = {"m": 3, "n": 100_000, "op": op, "bias": True}
    func = row_reduce(**options)
    kernel = kernel_by(RowReduce(), func, "trn1")
    judge(kernel, options, drawn(func, "exact", {}, "long"), "exact")
    assert kernel.check("trn1").sbuf_bytes < 64 * 1024


# Predicted milliseconds for 1024 x 2048 in float32, and what DMA takes for the bytes alone.
def test_predicted_time() -> None:
    func = elementwise(1024, 2048, bias=True, activation="relu")
    predicted = emit(Elementwise().apply(func, "trn1")).predict("trn1").latency_ms
    alone = 2 * 1024 * 2048 * 4 / 272e9 * 1e3
    assert alone < predicted < 1.25 * alone


# ---- Written by hand -----------------------------------------------------------------------------


@T.prim_func(s_tir=True)
def sum_of_squares(x: T.Buffer((130, 70)), w: T.Buffer((70,)), y: T.Buffer((130, 1))):
    """What is summed is computed first, with a row of weights."""
    for i, k in T.grid(130, 70):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vi, 0] = T.float32(0)
            y[vi, 0] = y[vi, 0] + x[vi, vk] * x[vi, vk] * w[vk]


@T.prim_func(s_tir=True)
def transposed(x: T.Buffer((70, 130)), r: T.Buffer((130,)), y: T.Buffer((70, 130))):
    """A row that all rows are added to, and a vector of one dimension more."""
    for j, i in T.grid(130, 70):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = T.max(r[vj] - x[vi, vj], T.float32(0))


@T.prim_func(s_tir=True)
def a_vector(x: T.Buffer((5000,)), y: T.Buffer((5000,))):
    for i in range(5000):
        with T.sblock("twice"):
            vi = T.axis.spatial(5000, i)
            y[vi] = x[vi] * T.float32(2)


def test_written_by_hand() -> None:
    rng = np.random.default_rng(1)
    x, w, r = (rng.integers(-4, 5, s).astype("float32") for s in ((130, 70), (70,), (130,)))
    kernel = kernel_by(RowReduce(), sum_of_squares)
    np.testing.assert_array_equal(kernel(x, w), (x * x * w).sum(axis=1, keepdims=True))
    x = np.ascontiguousarray(x.T)
    np.testing.assert_array_equal(
        kernel_by(Elementwise(), transposed)(x, r), np.maximum(r[None, :] - x, 0)
    )
    x = rng.integers(-4, 5, 5000).astype("float32")
    np.testing.assert_array_equal(kernel_by(Elementwise(), a_vector)(x), x * 2)


# ---- What is left alone --------------------------------------------------------------------------


@T.prim_func(s_tir=True)
def running(x: T.Buffer((5, 8)), y: T.Buffer((5, 8))):
    for i, j in T.grid(5, 7):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = y[vi, vj + 1] + x[vi, vj]


@T.prim_func(s_tir=True)
def a_sum_of_all(x: T.Buffer((5, 8)), y: T.Buffer((1,))):
    for i, j in T.grid(5, 8):
        with T.sblock("add"):
            vi, vj = T.axis.remap("RR", [i, j])
            with T.init():
                y[0] = T.float32(0)
            y[0] = y[0] + x[vi, vj]


@T.prim_func(s_tir=True)
def shifted(x: T.Buffer((5, 9)), y: T.Buffer((5, 8))):
    for i, j in T.grid(5, 8):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = x[vi, vj + 1] + x[vi, vj]


NOT_REDUCED: dict[str, Any] = {
    "all of a matrix": a_sum_of_all,
    "a product": matmul(8, 8, 8),
    "int8": row_reduce(8, 8, dtype="int8"),
    "a symbolic size": row_reduce("m", 8),
    "a convolution": depthwise_conv1d(2, 8, 16, 3),
    "no reduction": elementwise(8, 8),
}
NOT_BENT: dict[str, Any] = {
    "reads what it writes": running,
    "a neighbour": shifted,
    "a symbolic size": elementwise("m", 8),
    "a sum": row_reduce(8, 8),
    "a product": matmul(8, 8, 8),
}


@pytest.mark.parametrize("name", NOT_REDUCED)
def test_is_no_reduction_of_rows(name: str) -> None:
    choice = RowReduce().choose(NOT_REDUCED[name], "trn1")
    assert choice.schedule is None
    assert choice.why


@pytest.mark.parametrize("name", NOT_BENT)
def test_is_not_element_by_element(name: str) -> None:
    choice = Elementwise().choose(NOT_BENT[name], "trn2")
    assert choice.schedule is None
    assert choice.why
