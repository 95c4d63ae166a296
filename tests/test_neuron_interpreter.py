"""Kernels executed on numpy: every instruction, types, memory that was not written."""

from __future__ import annotations

import math
import sys
from typing import Any

import ml_dtypes  # noqa: F401 - makes "bfloat16" a type of numpy
import numpy as np
import pytest

from fuse_epilogue import neuron
from fuse_epilogue.neuron import limits
from neuron_kernels import FIRST, MATMUL, copied, depthwise, kernel

F32, BF16, F16 = "float32", "bfloat16", "float16"
RNG = np.random.default_rng(5)


def run(
    instruction: str, *arrays: Any, shape: tuple[int, ...] = (), dtype: str = F32
) -> np.ndarray:
    """Load arrays as a, b, c to SBUF, and return what an instruction writes to `r`."""
    names = "abc"[: len(arrays)]
    shape = shape or arrays[0].shape
    body = f"y = nl.ndarray({shape}, nl.{dtype}, buffer=nl.shared_hbm)\n"
    for name in names:
        body += f"{name} = nl.ndarray({name}_.shape, {name}_.dtype, buffer=nl.sbuf)\n"
        body += f"nisa.dma_copy({name}, {name}_)\n"
    body += f"r = nl.ndarray({shape}, nl.{dtype}, buffer=nl.sbuf)\n{instruction}\n"
    body += "nisa.dma_copy(y, r)\nreturn y\n"
    read = neuron.load(kernel(body, ", ".join(f"{name}_" for name in names)))
    result: np.ndarray = read(*arrays)
    assert (result.shape, result.dtype) == (shape, np.dtype(dtype))
    return result


def normal(*shape: int, dtype: str = F32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


A, B, V, W = normal(128, 40), normal(128, 40), normal(128, 1), normal(128, 1)
T = normal(128, 5, 8)

#: Instruction, inputs, the exact result in float32 arithmetic.
EXACT = [
    ("nisa.tensor_copy(r, a)", (A,), A),
    ("nisa.tensor_copy(r, a, engine=nisa.scalar_engine)", (A,), A),
    ("nisa.tensor_tensor(r, a, b, nl.add)", (A, B), A + B),
    ("nisa.tensor_tensor(r, a, b, nl.subtract)", (A, B), A - B),
    ("nisa.tensor_tensor(r, a, b, nl.multiply)", (A, B), A * B),
    ("nisa.tensor_tensor(r, a, b, nl.divide)", (A, B), A / B),
    ("nisa.tensor_tensor(r, a, b, nl.maximum)", (A, B), np.maximum(A, B)),
    ("nisa.tensor_tensor(dst=r, data1=a, data2=b, op=nl.minimum)", (A, B), np.minimum(A, B)),
    ("nisa.tensor_tensor(r, a, b, nl.less)", (A, B), A < B),
    ("nisa.tensor_tensor(r, a, b, nl.less_equal)", (A, A), np.ones_like(A)),
    ("nisa.tensor_tensor(r, a, b, nl.greater)", (A, B), A > B),
    ("nisa.tensor_tensor(r, a, b, nl.greater_equal)", (A, B), A >= B),
    ("nisa.tensor_tensor(r, a, b, nl.equal)", (A, A), np.ones_like(A)),
    ("nisa.tensor_tensor(r, a, b, nl.not_equal)", (A, A), np.zeros_like(A)),
    ("nisa.tensor_scalar(r, a, nl.subtract, 0.1)", (A,), A - np.float32(0.1)),
    ("nisa.tensor_scalar(r, a, nl.subtract, 0.1, reverse0=True)", (A,), np.float32(0.1) - A),
    ("nisa.tensor_scalar(r, a, nl.multiply, b)", (A, V), A * V),
    ("nisa.tensor_scalar(r, a, nl.multiply, b, False, nl.subtract, c)", (A, V, W), A * V - W),
    (
        "nisa.tensor_scalar(r, a, nl.subtract, b, True, nl.divide, c, True)",
        (A, V, W),
        W / (V - A),
    ),
    ("nisa.scalar_tensor_tensor(r, a, nl.multiply, c, nl.add, b)", (A, B, V), A * V + B),
    ("nisa.scalar_tensor_tensor(r, a, nl.multiply, 3, nl.subtract, b)", (A, B), A * 3 - B),
    (
        "nisa.scalar_tensor_tensor(r, a, nl.subtract, c, nl.divide, b, True, True)",
        (A, B, V),
        B / (V - A),
    ),
    ("nisa.activation(r, nl.copy, a)", (A,), A),
    ("nisa.activation(r, nl.relu, a, bias=b, scale=c)", (A, V, W), np.maximum(A * W + V, 0)),
    ("nisa.activation(r, nl.square, a, scale=-2.0)", (A,), (A * np.float32(-2)) ** 2),
    ("nisa.activation(r, nl.copy, a, bias=1.5)", (A,), A + np.float32(1.5)),
    (
        "nisa.tensor_reduce(r[:, 0:1], nl.maximum, a, 1)\nnisa.tensor_copy(r[:, 1:40], a[:, 1:40])",
        (A,),
        np.concatenate([A.max(1, keepdims=True), A[:, 1:]], 1),
    ),
    ("nisa.memset(r, 0.3)", (A,), np.full_like(A, 0.3)),
    (
        "nisa.memset(r[:, nl.ds(0, 20)], 1)\n"
        "nisa.memset(r[:, 20:40:1], 2, engine=nisa.gpsimd_engine)",
        (A,),
        np.repeat(np.array([[1, 2]], F32), 20, 1).repeat(128, 0),
    ),
    (
        "nisa.memset(r, 7)\nnisa.tensor_copy(r[:, 1:40:3], a[:, 0:26:2])",
        (A,),
        np.stack(
            [A[:, (k - 1) // 3 * 2] if k % 3 == 1 else np.full(128, 7, F32) for k in range(40)], 1
        ),
    ),
    (
        "z = nl.zeros((128, 40), nl.float32, buffer=nl.sbuf)\n"
        "nisa.tensor_tensor(r, a, z, nl.multiply)",
        (A,),
        A * 0,
    ),
]


@pytest.mark.parametrize(("instruction", "inputs", "expected"), EXACT)
def test_exact(instruction: str, inputs: tuple[np.ndarray, ...], expected: np.ndarray) -> None:
    np.testing.assert_array_equal(run(instruction, *inputs), expected.astype(F32))


@pytest.mark.parametrize("dtype", [F32, BF16, F16])
@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
        ("silu", lambda x: x / (1 + np.exp(-x))),
        ("gelu_apprx_sigmoid", lambda x: x / (1 + np.exp(-1.702 * x))),
        ("tanh", np.tanh),
        ("exp", np.exp),
        ("gelu", lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))),
        ("sqrt", np.sqrt),
        ("rsqrt", lambda x: 1 / np.sqrt(x)),
    ],
)
def test_functions(function: str, expected: Any, dtype: str) -> None:
    x = A.astype(dtype)
    if "sqrt" in function:
        x = np.abs(x) + np.dtype(dtype).type(0.5)
    result = run(f"nisa.activation(r, nl.{function}, a)", x, dtype=dtype).astype("f8")
    # A few roundings of float32, and one of the result.
    unit = 2.0 ** -{F32: 23, F16: 11, BF16: 8}[dtype]
    tolerance = (unit + 8 * 2.0**-24) if dtype != F32 else 8 * unit
    np.testing.assert_allclose(result, expected(x.astype("f8")), rtol=tolerance, atol=1e-6)


def test_reductions() -> None:
    whole = RNG.integers(-9, 9, (128, 5, 8)).astype(F32)
    for call, expected in (
        ("nisa.tensor_reduce(r, nl.add, a, axis=2)", whole.sum(2)),
        ("nisa.tensor_reduce(r, nl.add, a, axis=(2,), negate=True)", -whole.sum(2)),
        ("nisa.tensor_reduce(r, nl.minimum, a, axis=(1, 2), keepdims=True)", whole.min((1, 2))),
        ("nisa.tensor_reduce(r, nl.multiply, a[:, 0:2, 0:3], axis=2)", whole[:, :2, :3].prod(2)),
    ):
        shape = expected.shape if "keepdims" not in call else (128, 1, 1)
        np.testing.assert_array_equal(run(call, whole, shape=shape), expected.reshape(shape))


def test_arithmetic_in_float32_rounded_when_stored() -> None:
    # 1 + 2**-8 lies between two of bfloat16 and goes to the even one, 1; 1 + 3 * 2**-8 goes up.
    x = np.full((128, 2), 1, BF16)
    step = np.array([[2**-8, 3 * 2**-8]] * 128, BF16)
    total = run("nisa.tensor_tensor(r, a, b, nl.add)", x, step, dtype=BF16)
    np.testing.assert_array_equal(total.astype(F32), [[1, 1 + 2**-6]] * 128)
    # Twice in one instruction nothing is rounded in between: 1 + 2**-8 + 2**-8 = 1 + 2**-7.
    small = step[:, 0:1].astype(F32)
    twice = "nisa.tensor_scalar(r, a, nl.add, b, False, nl.add, b)"
    assert (run(twice, x, small, dtype=BF16).astype(F32) == 1 + 2**-7).all()
    once = "nisa.tensor_scalar(r, a, nl.add, b)\nnisa.tensor_scalar(r, r, nl.add, b)"
    assert (run(once, x, small, dtype=BF16).astype(F32) == 1).all()
    # float16 overflows to infinity.
    assert np.isinf(run("nisa.tensor_scalar(r, a, nl.multiply, 1e5)", x, dtype=F16)).all()


def test_integers() -> None:
    x = np.array([[-300, -1, 0, 5, 300, 2**24 + 1]] * 128, "int32")
    np.testing.assert_array_equal(run("nisa.tensor_copy(r, a)", x, dtype="int32"), x)
    as_int8 = [[-128, -1, 0, 5, 127, 127]] * 128
    np.testing.assert_array_equal(run("nisa.tensor_copy(r, a)", x, dtype="int8"), as_int8)
    # Sums are made in float32, where 2**24 + 1 does not exist.
    total = run("nisa.tensor_scalar(r, a, nl.add, 0)", x, dtype="int32")
    np.testing.assert_array_equal(total[0], [-300, -1, 0, 5, 300, 2**24])
    halves = np.array([[-2.5, -1.5, -0.5, 0.5, 1.5, 1e20]] * 128, F32)
    rounded = run("nisa.tensor_copy(r, a)", halves, dtype="int16")
    np.testing.assert_array_equal(rounded[0], [-2, -2, 0, 0, 2, 32767])
    np.testing.assert_array_equal(
        run("nisa.memset(r, 200)", x, dtype="uint8"), np.full_like(x, 200)
    )
    # Two tiles are combined natively by GpSimd, which is NKI's choice; not by the vector engine.
    for engine, last in (("", 2**25 + 2), (", engine=nisa.vector_engine", 2**25)):
        total = run(f"nisa.tensor_tensor(r, a, a, nl.add{engine})", x, dtype="int32")
        np.testing.assert_array_equal(total[0], [-600, -2, 0, 10, 600, last])
    for op, expected in (("and", x & 6), ("or", x | 6), ("xor", x ^ 6)):
        call = f"nisa.tensor_scalar(r, a, nl.bitwise_{op}, 6)"
        np.testing.assert_array_equal(run(call, x, dtype="int32"), expected)


@pytest.mark.parametrize(
    ("instruction", "dtype", "reason"),
    [
        ("nisa.memset(r, 200)", "int8", "200 is not a value of int8"),
        ("nisa.memset(r, 0.5)", "int32", "0.5 is not a value of int32"),
        ("nisa.tensor_scalar(r, a, nl.divide, 0)", "int32", "a NaN is stored as int32"),
        ("nisa.tensor_tensor(r, a, a, nl.bitwise_or)", F32, "takes integers"),
        (
            "nisa.memset(r, 2**16); nisa.tensor_tensor(r, r, r, nl.multiply)",
            "int32",
            "does not fit in int32",
        ),
        (
            "nisa.memset(r, 7); nisa.tensor_tensor(r, r, r, nl.divide)",
            "int32",
            "nl.divide of int32 on GpSimd: not supported here",
        ),
    ],
)
def test_values_without_a_meaning(instruction: str, dtype: str, reason: str) -> None:
    with pytest.raises(neuron.KernelError, match=reason) as error:
        run(instruction, np.zeros((128, 4), F32), dtype=dtype)
    assert error.value.line == FIRST + 4


@pytest.mark.parametrize("dtype", [F32, BF16, "int32", "uint8"])
@pytest.mark.parametrize("space", ["sbuf", "psum"])
def test_fresh_memory_is_not_read(dtype: str, space: str) -> None:
    middle = (
        f"u = nl.ndarray((128, 8), nl.{dtype}, buffer=nl.{space})\n"
        "nisa.memset(u[:, 0:8:2], 1)\nnisa.memset(u[0:96, :], 1)\n"
        "nisa.tensor_copy(t[:, 0:1], u[:, 4:5])\nnisa.tensor_copy(t[32:128, 0:2], u[32:128, 4:6])"
    )
    with pytest.raises(neuron.KernelError) as error:
        neuron.load(copied(middle))(np.ones((128, 64), F32))
    assert (error.value.line, error.value.rule) == (15, "uninitialised")
    assert "tensor_copy reads u[96, 5], which was not written" in error.value.reason


def test_fresh_memory_in_hbm_and_outputs() -> None:
    scratch = "s = nl.ndarray((2, 128, 64), nl.float32, buffer=nl.hbm)\n"
    with pytest.raises(neuron.KernelError, match=r"line 13: dma_copy reads s\[1, 7, 0\]"):
        neuron.load(
            copied(scratch + "nisa.dma_copy(s[0, :, :], t)\nnisa.dma_copy(t[7:8, :], s[1, 7:8, :])")
        )(np.ones((128, 64), F32))
    text = copied("pass").replace("nisa.dma_copy(y, t)", "nisa.dma_copy(y[0:127, :], t[0:127, :])")
    with pytest.raises(neuron.KernelError, match=r"line 13: y\[127, 0\] is returned"):
        neuron.load(text)(np.ones((128, 64), F32))


def test_a_nan_of_the_input_is_a_value() -> None:
    x = np.full((128, 64), np.nan, F32)
    assert np.isnan(neuron.load(copied("nisa.tensor_scalar(t, t, nl.add, 1)"))(x)).all()


def test_out_of_bounds_names_the_tensor() -> None:
    with pytest.raises(neuron.KernelError) as error:
        neuron.load(copied("for i in range(3):\n    nisa.memset(t[:, i * 30 : i * 30 + 30], 0)"))(
            np.ones((128, 64), F32)
        )
    assert error.value.line == 12
    assert error.value.reason == "index 60:90 in dimension 1 of 't' (64)"


def test_views() -> None:
    # A window of three columns around each column, as a view that repeats elements.
    x = RNG.integers(-9, 9, (128, 34)).astype(F32)
    windows = "nisa.tensor_reduce(r, nl.add, a.ap(((34, 128), (1, 32), (1, 3))), axis=2)"
    expected = x[:, :-2] + x[:, 1:-1] + x[:, 2:]
    np.testing.assert_array_equal(run(windows, x, shape=(128, 32)), expected)
    # Some partitions, from some column on; pairs may be lists.
    part = "nisa.tensor_copy(r, a.ap(pattern=[[34, 32], [2, 4]], offset=64 * 34 + 5))"
    np.testing.assert_array_equal(run(part, x, shape=(32, 4)), x[64:96, 5:13:2])
    # Rows of HBM in another order, and a row for every partition.
    text = kernel(
        """\
        y = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
        t = nl.ndarray((4, 8), nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(t, x.ap(((1, 4), (4, 8))))
        row = nl.ndarray((4, 8), nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(row, x.ap(((0, 4), (1, 8)), offset=3))
        nisa.tensor_tensor(t, t, row, nl.add)
        nisa.dma_copy(y.ap(((8, 4), (1, 8))), t)
        return y
        """
    )
    flat = np.arange(32, dtype=F32).reshape(8, 4)
    np.testing.assert_array_equal(neuron.load(text)(flat), flat.T + np.arange(3, 11))


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_matmul(dtype: str) -> None:
    a = RNG.integers(-8, 9, (128, 256)).astype(dtype)
    b = RNG.integers(-8, 9, (256, 512)).astype(dtype)
    bias = RNG.integers(-99, 99, 128).astype(F32)
    total = a.astype("i8") @ b.astype("i8") + bias.astype("i8")[:, None]
    np.testing.assert_array_equal(neuron.load(MATMUL)(a, b, bias), np.maximum(total, 0))


def test_matmul_without_accumulating_overwrites() -> None:
    middle = """\
    p = nl.ndarray((64, 64), nl.float32, buffer=nl.psum)
    for k in range(3):
        nisa.nc_matmul(p, t, t, accumulate=(k == 2))
    nisa.tensor_copy(t[0:64, :], p)
    """
    x = RNG.integers(-3, 4, (128, 64)).astype(F32)
    result = neuron.load(copied(middle))(x)
    np.testing.assert_array_equal(result[:64], 2 * (x.T @ x))


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_full_size_depthwise(dtype: str) -> None:
    x = RNG.integers(-8, 9, (8, 512, 2048)).astype(dtype)
    weight = RNG.integers(-4, 5, (512, 3)).astype(F32)
    bias = RNG.integers(-9, 10, 512).astype(F32)
    result = neuron.load(depthwise(8, 512, 2048, dtype))(x, weight, bias)
    padded = np.pad(x.astype(F32), ((0, 0), (0, 0), (1, 1)))
    expected = sum(padded[:, :, f : f + 2048] * weight[:, f : f + 1] for f in range(3))
    np.testing.assert_array_equal(result.astype(F32), expected + bias[:, None])


def test_inputs_stay_and_outputs_are_new() -> None:
    x = np.ones((128, 64), F32)
    read = neuron.load(copied("nisa.tensor_scalar(t, t, nl.multiply, 2)"))
    first = read(x)
    read(x * 5)
    assert (x == 1).all() and (first == 2).all()
    # Any layout in memory, and several outputs.
    text = kernel(
        """\
        a = nl.ndarray((2, 3), nl.float32, buffer=nl.shared_hbm)
        b = nl.ndarray((2, 3), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(a, x)
        nisa.dma_copy(b, a)
        return b, a
        """
    )
    turned = np.arange(6, dtype=F32).reshape(3, 2).T
    outputs = neuron.load(text)(turned)
    assert isinstance(outputs, tuple) and len(outputs) == 2
    for output in outputs:
        np.testing.assert_array_equal(output, turned)


def test_loops_without_end_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_STATEMENTS", 1000)
    text = copied("for i in range(9000000000000):\n    pass")
    with pytest.raises(neuron.KernelError, match="more than 1000 statements"):
        neuron.load(text).trace(((128, 64), F32))


def test_bfloat16_without_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    text = copied(
        "r = nl.ndarray((128, 64), nl.bfloat16, buffer=nl.sbuf)\nnisa.tensor_copy(r, t)\n"
        "nisa.tensor_copy(t, r)"
    ).replace("nisa.dma_copy(y, r)", "nisa.dma_copy(y, t)")
    read = neuron.load(text)
    read(np.ones((128, 64), F32))
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    # What computes nothing does not need it.
    assert len(read.trace(((128, 64), F32)).steps) == 4
    with pytest.raises(ImportError, match="bfloat16 in numpy needs the package ml_dtypes"):
        read(np.ones((128, 64), F32))
