"""TVM has a primitive of this name with two arguments: here is what its own tests cover.

Calls whose result is right keep working, with the intermediate removed on top of it. What TVM does
at every step of the reduction (a clip, a ReLU) is done once, on the finished element, and a second
reader of the sum keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import s_tir
from tvm.s_tir.schedule.testing import (
    assert_structural_equal_ignore_global_symbol,
    verify_trace_roundtrip,
)
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

import fuse_epilogue
from oracles import compile_together

pytestmark = pytest.mark.cpp


@T.prim_func(s_tir=True)
def integer_product_and_bias(
    A: T.Buffer((16, 16), "int8"),
    B: T.Buffer((16, 16), "int8"),
    C: T.Buffer((16, 16), "int32"),
    D: T.Buffer((16, 16), "int32"),
):
    temp = T.sblock_alloc_buffer((16, 16), "int32")
    for i, j, k in T.grid(16, 16, 16):
        with T.sblock("multiply"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for i, j in T.grid(16, 16):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + C[vi, vj]


@T.prim_func(s_tir=True)
def integer_product_and_bias_fused(
    A: T.Buffer((16, 16), "int8"),
    B: T.Buffer((16, 16), "int8"),
    C: T.Buffer((16, 16), "int32"),
    D: T.Buffer((16, 16), "int32"),
):
    for i, j, k in T.grid(16, 16, 16):
        with T.sblock("multiply"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.reads(C[vi, vj], A[vi, vk], B[vj, vk])
            T.writes(D[vi, vj])
            with T.init():
                D[vi, vj] = C[vi, vj]
            D[vi, vj] = D[vi, vj] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])


@T.prim_func(s_tir=True)
def float_product_and_bias(
    A: T.Buffer((32, 32), "float32"),
    B: T.Buffer((32, 32), "float32"),
    C: T.Buffer((32, 32), "float32"),
    D: T.Buffer((32, 32), "float32"),
):
    temp = T.sblock_alloc_buffer((32, 32), "float32")
    for i, j, k in T.grid(32, 32, 32):
        with T.sblock("multiply"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = T.float32(0)
            temp[vi, vj] = temp[vi, vj] + A[vi, vk] * B[vj, vk]
    for i, j in T.grid(32, 32):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + C[vi, vj]


@T.prim_func(s_tir=True)
def float_product_and_bias_fused(
    A: T.Buffer((32, 32), "float32"),
    B: T.Buffer((32, 32), "float32"),
    C: T.Buffer((32, 32), "float32"),
    D: T.Buffer((32, 32), "float32"),
):
    for i, j, k in T.grid(32, 32, 32):
        with T.sblock("multiply"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.reads(C[vi, vj], A[vi, vk], B[vj, vk])
            T.writes(D[vi, vj])
            with T.init():
                D[vi, vj] = C[vi, vj]
            D[vi, vj] = D[vi, vj] + A[vi, vk] * B[vj, vk]


def product_then(first: Callable[..., Any], second: Callable[..., Any] | None = None) -> PrimFunc:
    """An 8 x 8 float product, ``D = first(sum, bias, low, high)`` and, if given, E likewise.

    Without `second` the block "second" copies C instead, and so does not read the sum.
    """
    also = second or (lambda _sum, bias, _low, _high: bias)

    @T.prim_func(s_tir=True)
    def func(
        A: T.Buffer((8, 8), "float32"),
        B: T.Buffer((8, 8), "float32"),
        C: T.Buffer((8, 8), "float32"),
        low: T.float32,
        high: T.float32,
        D: T.Buffer((8, 8), "float32"),
        E: T.Buffer((8, 8), "float32"),
    ):
        temp = T.sblock_alloc_buffer((8, 8), "float32")
        for i, j, k in T.grid(8, 8, 8):
            with T.sblock("multiply"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    temp[vi, vj] = T.float32(0)
                temp[vi, vj] = temp[vi, vj] + A[vi, vk] * B[vj, vk]
        for i, j in T.grid(8, 8):
            with T.sblock("first"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = first(temp[vi, vj], C[vi, vj], low, high)
        for i, j in T.grid(8, 8):
            with T.sblock("second"):
                vi, vj = T.axis.remap("SS", [i, j])
                E[vi, vj] = also(temp[vi, vj], C[vi, vj], low, high)

    return func


def fused_right(func: PrimFunc, *blocks: str) -> fuse_epilogue.FusionReport:
    """Fuse `blocks`; the program must compute what it did, on small integers of both signs."""
    sch = s_tir.Schedule(func, debug_mask="all")
    report = sch.fuse_reduction_epilogue(*blocks)
    verify_trace_roundtrip(sch, func)
    rng = np.random.default_rng(5)
    a, b, c = (rng.integers(-4, 5, size=(8, 8)).astype("float32") for _ in range(3))
    results = []
    for built in compile_together({"unfused": func, "fused": sch.mod["main"]}).values():
        outs = [tvm.runtime.tensor(np.full((8, 8), np.nan, "float32")) for _ in range(2)]
        built(*map(tvm.runtime.tensor, (a, b, c)), -10.0, 10.0, *outs)
        results.append([out.numpy() for out in outs])
    np.testing.assert_array_equal(results[0], results[1])
    return report


def plus_bias(total: Any, bias: Any, low: Any, high: Any) -> Any:
    return total + bias


def relu_of_biased(total: Any, bias: Any, low: Any, high: Any) -> Any:
    return T.max(total + bias, T.float32(0))


def copy(total: Any, bias: Any, low: Any, high: Any) -> Any:
    return total


# The ways to write a clip.
CLIPS: dict[str, Callable[..., Any]] = {
    "min_of_max": lambda total, bias, low, high: T.min(T.max(total, low), high),
    "min_of_max_swapped": lambda total, bias, low, high: T.min(high, T.max(total, low)),
    "min_of_max_inner_swapped": lambda total, bias, low, high: T.min(T.max(low, total), high),
    "max_of_min": lambda total, bias, low, high: T.max(T.min(total, high), low),
    "max_of_min_swapped": lambda total, bias, low, high: T.max(low, T.min(total, high)),
}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(integer_product_and_bias, integer_product_and_bias_fused, id="integers"),
        pytest.param(float_product_and_bias, float_product_and_bias_fused, id="floats"),
    ],
)
def test_bias_is_fused(before: PrimFunc, after: PrimFunc) -> None:
    sch = s_tir.Schedule(before, debug_mask="all")
    sch.fuse_reduction_epilogue("multiply", "add")
    assert_structural_equal_ignore_global_symbol(sch.mod["main"], after)
    verify_trace_roundtrip(sch, before)


def test_fused_bias_computes_the_same() -> None:
    sch = s_tir.Schedule(integer_product_and_bias, debug_mask="all")
    sch.fuse_reduction_epilogue("multiply", "add")
    built = compile_together({"unfused": integer_product_and_bias, "fused": sch.mod["main"]})

    rng = np.random.default_rng(7)
    a, b = (rng.integers(-128, 128, size=(16, 16), dtype="int8") for _ in range(2))
    c = rng.integers(-(2**31), 2**31, size=(16, 16), dtype="int32")
    expected = a.astype("int32") @ b.astype("int32").T + c
    for name, function in built.items():
        out = tvm.runtime.tensor(np.full((16, 16), -1, "int32"))
        function(*map(tvm.runtime.tensor, (a, b, c)), out)
        np.testing.assert_array_equal(out.numpy(), expected, err_msg=name)


@pytest.mark.parametrize("fused", ["first", "second"])
def test_a_second_reader_of_the_sum_is_never_left_behind(fused: str) -> None:
    report = fused_right(product_then(plus_bias, plus_bias), "multiply", fused)
    assert report.kept == ("temp",)
    assert [step.tail for step in report.steps] == ["x + C[vi, vj]"]


def test_the_sum_may_be_used_twice() -> None:
    func = product_then(lambda total, bias, low, high: (total + bias) * (total + low))
    report = fused_right(func, "multiply", "first")
    assert [step.tail for step in report.steps] == ["(x + C[vi, vj]) * (x + low)"]


def test_a_scale_is_applied_once() -> None:
    func = product_then(lambda total, bias, low, high: total * T.float32(2) + bias)
    report = fused_right(func, "multiply", "first")
    assert [step.tail for step in report.steps] == ["x * T.float32(2.0) + C[vi, vj]"]


@pytest.mark.parametrize("clip", CLIPS)
def test_clipping_is_not_done_at_every_step(clip: str) -> None:
    (step,) = fused_right(product_then(CLIPS[clip]), "multiply", "first").steps
    assert "x" in step.tail
    assert not step.absorbed


def test_relu_is_not_done_at_every_step() -> None:
    (step,) = fused_right(product_then(relu_of_biased), "multiply", "first").steps
    assert (step.absorbed, step.tail) == ("C[vi, vj]", "T.max(x, T.float32(0.0))")


@pytest.mark.parametrize("epilogue", [CLIPS["min_of_max"], relu_of_biased], ids=["clip", "relu"])
@pytest.mark.parametrize("second", [copy, plus_bias])
def test_neither_is_with_a_second_reader(
    epilogue: Callable[..., Any], second: Callable[..., Any]
) -> None:
    func = product_then(epilogue, second)
    report = fused_right(func, "multiply", "first")
    assert report.kept == ("temp",)
    assert [step.absorbed for step in report.steps] == [""]
    assert fused_right(func, "multiply").kept == ()


def test_at_every_step_would_be_something_else() -> None:
    """Why they are tails: the two meanings differ on data of both signs."""
    rng = np.random.default_rng(3)
    a, b, c = (rng.integers(-4, 5, size=(8, 8)).astype("float32") for _ in range(3))
    built = compile_together({"relu": product_then(relu_of_biased)})["relu"]
    out, second = (tvm.runtime.tensor(np.zeros((8, 8), "float32")) for _ in range(2))
    built(*map(tvm.runtime.tensor, (a, b, c)), 0.0, 0.0, out, second)
    np.testing.assert_array_equal(out.numpy(), np.maximum(a @ b.T + c, 0))

    stepwise = np.maximum(c, 0)
    for k in range(8):
        stepwise = np.maximum(stepwise + np.outer(a[:, k], b[:, k]), 0)
    assert not np.array_equal(stepwise, out.numpy())
