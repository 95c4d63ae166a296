"""Integers are divided only where a choice asks for the quotient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.relax import op

import fuse_epilogue
from fuse_epilogue.kernels.cpu.conditional_division import with_conditional_divisions


def chosen(quotient: str, dtype: str = "int32") -> tirx.PrimFunc:
    """``b != 0 ? quotient : -1`` of 64 elements, in vectors."""
    return tvm.script.from_source(f"""
@T.prim_func(s_tir=True)
def main(
    a: T.Buffer((64,), "{dtype}"), b: T.Buffer((64,), "{dtype}"), y: T.Buffer((64,), "{dtype}"),
):
    for i0 in range(4):
        for i1 in T.vectorized(16):
            with T.sblock("divide"):
                vi = T.axis.spatial(64, i0 * 16 + i1)
                y[vi] = T.Select(b[vi] != T.{dtype}(0), {quotient}, T.{dtype}(-1))
""")


def guarded_twice(divide: Any, dtype: str) -> tvm.IRModule:
    """``b != 0 ? divide(-x x^T, b != 0 ? b : 1) : c``, block by block."""
    x, b, c = (
        relax.Var(name, relax.TensorType(shape, dtype))
        for name, shape in (("x", (20, 13)), ("b", (1, 20)), ("c", (20,)))
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [x, b, c]):
        with builder.dataflow():
            product = builder.emit(op.matmul(x, op.permute_dims(x)))
            negated = builder.emit(op.multiply(product, relax.const(-1, dtype)))
            there = builder.emit(op.not_equal(b, relax.const(0, dtype)))
            divisor = builder.emit(op.where(there, b, relax.const(1, dtype)))
            quotient = builder.emit(divide(negated, divisor))
            y = builder.emit_output(op.where(there, quotient, c))
        builder.emit_func_output(y)
    return builder.get()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(
    ("divide", "right"),
    [(op.floor_divide, np.floor_divide), (op.floor_mod, np.mod)],
    ids=["quotient", "remainder"],
)
def test_a_divisor_that_a_choice_replaces_is_never_zero(
    divide: Any, right: Any, dtype: str
) -> None:
    """TVM simplifies the inner choice by the outer one, and computes both arms of a choice."""
    rng = np.random.default_rng(0)
    x, b, c = (rng.integers(-4, 5, size).astype(dtype) for size in ((20, 13), (1, 20), 20))
    assert (b == 0).any()
    found = np.asarray(fuse_epilogue.compile(guarded_twice(divide, dtype))(x, b, c))
    quotient = right(-(x @ x.T), np.where(b != 0, b, 1))
    np.testing.assert_array_equal(found, np.where(b != 0, quotient, c))


@pytest.mark.parametrize(
    ("quotient", "stays"),
    [
        ("T.floordiv(a[vi], b[vi])", False),
        ("a[vi] + T.truncmod(7, b[vi])", False),
        ("T.floordiv(a[vi], 3)", True),
        ("a[vi] + b[vi]", True),
    ],
)
def test_a_choice_that_cannot_trap_stays_a_vector(quotient: str, stays: bool) -> None:
    body = with_conditional_divisions(chosen(quotient).body)
    assert ("T.Select" in body.script()) == stays


def test_quotients_of_floats_stay_vectors() -> None:
    body = with_conditional_divisions(chosen("a[vi] / b[vi]", "float32").body)
    assert "T.Select" in body.script()


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize("divide", ["T.truncdiv", "T.floormod"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 3), (5, 3), (1, 19), (2, 1)])
def test_a_divisor_that_is_zero_where_a_guard_is_false_compiles(
    rows: int, columns: int, divide: str, dtype: str
) -> None:
    """In what is left of a row after its vectors, the divisor is a literal 0."""
    last = columns - 1
    func = tvm.script.from_source(f"""
@T.prim_func(s_tir=True)
def main(
    x: T.Buffer(({rows}, {columns}), "{dtype}"), y: T.Buffer(({rows}, {columns}), "{dtype}")
):
    for i, j in T.grid({rows}, {columns}):
        with T.sblock("divide"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = T.if_then_else(
                vj != {last}, {divide}(x[vi, vj], T.Cast("{dtype}", {last} - vj)), T.{dtype}(7)
            )
""")
    x = (np.arange(rows * columns) + 50).reshape(rows, columns).astype(dtype)
    y = np.zeros_like(x)
    arrays = [tvm.runtime.tensor(x), tvm.runtime.tensor(y)]
    fuse_epilogue.compile(func)["main"](*arrays)
    divisor = last - np.arange(columns)
    quotient = (np.mod if divide == "T.floormod" else np.floor_divide)(x, np.maximum(divisor, 1))
    np.testing.assert_array_equal(arrays[1].numpy(), np.where(divisor != 0, quotient, 7))
