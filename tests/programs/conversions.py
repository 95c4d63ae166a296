"""Epilogues that convert the finished sum: narrower and wider types, requantisation, tables.

A bias is absorbed in the wide accumulator as long as it is added before the conversion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm.script import tirx as T

from . import lazy
from .builders import K, M, literal, matmul_then, sum_rows
from .case import Case, accepted, matmul, refused, row_sums, wide

# ---------------------------------------------------------------------------------------------
# Casts
# ---------------------------------------------------------------------------------------------


def _casts() -> list[Case]:
    """Accumulator, output type, epilogue, numpy, absorbed, tail."""
    table: list[tuple[str, str, str, Callable[..., Any], Callable[..., Any], str, str]] = [
        (
            "narrowing_copy",
            "int32",
            "int8",
            lambda t, C, E, S, i, j: T.Cast("int8", t),
            lambda t, C: t.astype("int8"),
            "",
            'T.Cast("int8", x)',
        ),
        (
            "narrowing_after_bias",
            "int32",
            "int8",
            lambda t, C, E, S, i, j: T.Cast("int8", t + C[i, j]),
            lambda t, C: (t + C).astype("int8"),
            "C[vi, vj]",
            'T.Cast("int8", x)',
        ),
        (
            "narrowing_to_float16",
            "float32",
            "float16",
            lambda t, C, E, S, i, j: T.Cast("float16", t + C[i, j]),
            lambda t, C: _rounded(t + C, "float16"),
            "C[vi, vj]",
            'T.Cast("float16", x)',
        ),
        (
            "narrowing_to_bfloat16",
            "float32",
            "bfloat16",
            lambda t, C, E, S, i, j: T.Cast("bfloat16", C[i, j] + t),
            lambda t, C: _rounded(C + t, "bfloat16"),
            "C[vi, vj]",
            'T.Cast("bfloat16", x)',
        ),
        # What is added after the conversion belongs to the tail.
        (
            "bias_in_float16",
            "float32",
            "float16",
            lambda t, C, E, S, i, j: T.Cast("float16", t) + T.Cast("float16", C[i, j]),
            lambda t, C: _rounded(_rounded(t, "float16") + _rounded(C, "float16"), "float16"),
            "",
            'T.Cast("float16", x) + ',
        ),
        (
            "widened_sum",
            "int16",
            "int32",
            lambda t, C, E, S, i, j: T.Cast("int32", t) + T.Cast("int32", C[i, j]),
            lambda t, C: t.astype("int32") + C,
            "",
            'T.Cast("int32", x) + ',
        ),
        (
            "widened_after_bias",
            "int16",
            "int32",
            lambda t, C, E, S, i, j: T.Cast("int32", t + C[i, j]),
            lambda t, C: (t + C).astype("int32"),
            "C[vi, vj]",
            'T.Cast("int32", x)',
        ),
        (
            "reinterpreted_sign",
            "int32",
            "uint32",
            lambda t, C, E, S, i, j: T.Cast("uint32", t),
            lambda t, C: t.astype("uint32"),
            "",
            'T.Cast("uint32", x)',
        ),
        (
            "float_of_an_integer_sum",
            "int32",
            "float32",
            lambda t, C, E, S, i, j: T.Cast("float32", t),
            lambda t, C: t.astype("float32"),
            "",
            'T.Cast("float32", x)',
        ),
        (
            "cast_there_and_back",
            "int32",
            "int32",
            lambda t, C, E, S, i, j: T.Cast("int32", T.Cast("int8", t)) + C[i, j],
            lambda t, C: t.astype("int8").astype("int32") + C,
            "",
            'T.Cast("int8", x)) + C[vi, vj]',
        ),
        (
            "double_precision_sum",
            "float64",
            "float32",
            lambda t, C, E, S, i, j: T.Cast("float32", t - C[i, j]),
            lambda t, C: _rounded(t - C, "float32"),
            "C[vi, vj]",
            'T.Cast("float32", x)',
        ),
    ]
    return [
        Case(
            name=name,
            func=matmul_then(
                epilogue,
                acc=acc,
                src=acc if acc.startswith("float") else "int8",
                out=out,
            ),
            reference=lambda A, B, C, E, S, f=formula, acc=acc: f(matmul(A, B, acc), wide(C, acc)),
            absorbed=(absorbed,),
            tails={"add": tail},
            twin="sum_as_store_index",
        )
        for name, acc, out, epilogue, formula, absorbed, tail in table
    ]


def _rounded(value: np.ndarray, dtype: str) -> np.ndarray:
    """`value` rounded to `dtype`, except where the reference is being evaluated in float64."""
    return value if value.dtype == "float64" and dtype != "float32" else value.astype(dtype)


# Half precision in and out, single precision in between: the usual layer on a tensor core.
def _half_precision() -> list[Case]:
    def layer(dtype: str, activation: Callable[..., Any]) -> Any:
        return matmul_then(
            lambda t, C, E, S, i, j: T.Cast(dtype, activation(t + T.Cast("float32", E[j]))),
            acc="float32",
            src=dtype,
            out=dtype,
        )

    def total(A: np.ndarray, B: np.ndarray, E: np.ndarray) -> np.ndarray:
        up = [_rounded(x, "float64" if x.dtype == "float64" else "float32") for x in (A, B, E)]
        return up[0] @ up[1].T + up[2]

    zero = literal(0, "float32")
    return [
        Case(
            name=f"{dtype}_layer_{name}",
            func=layer(dtype, activation),
            reference=lambda A, B, C, E, S, f=formula, dtype=dtype: _rounded(
                f(total(A, B, E)), dtype
            ),
            absorbed=("E[vj]",),
            tails={"add": f'T.Cast("{dtype}", '},
        )
        for dtype in ("float16", "bfloat16")
        for name, activation, formula in [
            ("plain", lambda x: x, lambda x: x),
            ("with_relu", lambda x: T.max(x, zero), lambda x: np.maximum(x, 0)),
        ]
    ]


# ---------------------------------------------------------------------------------------------
# Requantisation
# ---------------------------------------------------------------------------------------------


def _requantised() -> list[Case]:
    """An int32 sum to int8: add the bias, scale by a shift, round, clamp."""

    def clamped(x: Any) -> Any:
        return T.Cast("int8", T.min(T.max(x, T.int32(-128)), T.int32(127)))

    def np_clamped(x: np.ndarray) -> np.ndarray:
        return np.minimum(np.maximum(x, -128), 127).astype("int8")

    table: list[tuple[str, Callable[..., Any], Callable[..., Any], str, str]] = [
        (
            "requantised_by_a_shift",
            lambda x: clamped(T.shift_right(x + 64, T.int32(7)) + 3),
            lambda x: np_clamped(((x + 64) >> 7) + 3),
            "64",
            "x >> 7",
        ),
        (
            "requantised_by_a_division",
            lambda x: clamped(T.floordiv(x + 50, 100)),
            lambda x: np_clamped((x + 50) // 100),
            "50",
            "x // 100",
        ),
        (
            "requantised_in_fixed_point",
            lambda x: clamped(T.q_multiply_shift(x, T.int32(1395864371), T.int32(31), T.int32(-6))),
            lambda x: np_clamped(_multiply_shift(x, 1395864371, -6)),
            "E[vj]",
            "x, 1395864371, 31, -6",
        ),
        (
            "requantised_in_64_bits",
            lambda x: clamped(
                T.Cast(
                    "int32",
                    T.shift_right(T.Cast("int64", x) * T.int64(181) + T.int64(2**12), T.int64(13)),
                )
            ),
            lambda x: np_clamped((x.astype("int64") * 181 + 2**12) >> 13),
            "E[vj]",
            'T.Cast("int64", x)',
        ),
        (
            "requantised_in_floats",
            lambda x: T.Cast(
                "int8",
                T.min(
                    T.max(
                        T.nearbyint(T.Cast("float32", x) * T.float32(0.0078125)), T.float32(-128)
                    ),
                    T.float32(127),
                ),
            ),
            lambda x: np_clamped(np.rint(x.astype("float32") * np.float32(0.0078125))),
            "E[vj]",
            'T.Cast("float32", x)',
        ),
    ]
    cases = [
        Case(
            name=name,
            func=matmul_then(
                lambda t, C, E, S, i, j, f=epilogue: f(t + T.Cast("int32", E[j])),
                bias="int16",
                out="int8",
            ),
            reference=lambda A, B, C, E, S, f=formula: f(matmul(A, B) + wide(E, "int32")),
            absorbed=(absorbed,),
            tails={"add": tail},
            twin="sum_as_store_index",
        )
        for name, epilogue, formula, absorbed, tail in table
    ]
    return [
        *cases,
        # A scale for every column, as exported by quantised networks.
        Case(
            name="dequantised_by_column",
            func=matmul_then(
                lambda t, C, E, S, i, j: T.Cast("float32", t) * E[j] + C[i, j],
                bias="float32",
                out="float32",
            ),
            reference=lambda A, B, C, E, S: matmul(A, B).astype(E.dtype) * E + C,
            absorbed=("",),
            tails={"add": 'T.Cast("float32", x) * E[vj] + C[vi, vj]'},
            magnitude=lambda A, B, C, E, S: (A @ B.T) * E + C,
            twin="sum_as_store_index",
        ),
    ]


def _multiply_shift(x: np.ndarray, factor: int, shift: int) -> np.ndarray:
    """``x * factor * 2^(shift - 31)`` in fixed point, halves rounded up."""
    total = 31 - shift
    return ((x.astype("int64") * factor + (1 << (total - 1))) >> total).astype("int32")


# ---------------------------------------------------------------------------------------------
# Tables
# ---------------------------------------------------------------------------------------------


@lazy.prim_func(s_tir=True)
def looked_up(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    table: T.Buffer((16,), "float32"),
    D: T.Buffer((M,), "float32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = table[T.bitwise_and(temp[vi] + C[vi], 15)]


@lazy.prim_func(s_tir=True)
def looked_up_in_the_row(
    A: T.Buffer((M, K), "int32"),
    table: T.Buffer((M, 8), "int32"),
    D: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = table[vi, T.floormod(temp[vi], 8)] + temp[vi]


# The table is the output: which element is read depends on the sum, so on nothing known.
@lazy.prim_func(s_tir=True)
def looked_up_in_the_output(A: T.Buffer((M, K), "int32"), D: T.Buffer((16,), "int32")):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = D[T.bitwise_and(temp[vi], 15)]


# The axes of the two blocks have different integer types: one is converted to the other's.
@lazy.prim_func(s_tir=True)
def narrow_epilogue_of_wide_rows(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(T.int64(M), T.int64(K)):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi] * (vi // 2)


@lazy.prim_func(s_tir=True)
def wide_epilogue_of_narrow_rows(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((2, M // 2), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i, j in T.grid(T.int64(2), T.int64(M // 2)):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi * T.int64(M // 2) + vj] + C[vi * T.int64(M // 2) + vj]


def _in_order(A: np.ndarray, D: np.ndarray) -> np.ndarray:
    out = D.copy()
    for i, index in enumerate(row_sums(A) & 15):
        out[i] = out[index]
    return out


ACCEPT = [
    *_casts(),
    *_half_precision(),
    *_requantised(),
    Case(
        name="sign_of_an_integer_sum",
        # A short bias: the compiler relies on it that the sum does not overflow, and compares the
        # sum with the negated bias.
        func=matmul_then(
            lambda t, C, E, S, i, j: t + T.Cast("int32", C[i, j]) > 0, bias="int8", out="bool"
        ),
        reference=lambda A, B, C, E, S: matmul(A, B) + C > 0,
        absorbed=("C[vi, vj]",),
        tails={"add": "x > 0"},
        twin="sum_as_store_index",
    ),
    accepted(
        narrow_epilogue_of_wide_rows,
        lambda A, C: row_sums(A) + C * (np.arange(M, dtype="int32") // 2),
        'C[T.Cast("int32", vi)] * (T.Cast("int32", vi) // 2)',
        'C[T.Cast("int32", vi)] * (T.Cast("int32", vi) // 2)',
        "mixed_index_types",
    ),
    accepted(
        wide_epilogue_of_narrow_rows,
        lambda A, C: (row_sums(A) + C).reshape(2, M // 2),
        'C[T.Cast("int64", vi)]',
        'C[T.Cast("int64", vi)]',
        "mixed_index_types",
    ),
    accepted(
        looked_up,
        lambda A, C, table: table[(row_sums(A) + C) & 15],
        "C[vi]",
        "C[vi]",
        "looked_up_in_the_output",
        tails={"add": "table["},
        magnitude=lambda A, C, table: np.full(M, np.max(table)),
    ),
    accepted(
        looked_up_in_the_row,
        lambda A, table: (
            np.take_along_axis(table, (row_sums(A) % 8)[:, None], 1)[:, 0] + row_sums(A)
        ),
        "",
        "0",
        "looked_up_in_the_output",
        tails={"add": "table[vi, "},
    ),
]

REFUSE = [
    refused(
        looked_up_in_the_output,
        "output-aliases-input",
        reference=_in_order,
        outputs=(),
        updates=("D",),
    ),
]
