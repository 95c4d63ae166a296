"""Refusing programs whose epilogue is not the sum plus something.

The first entries are what TVM's own primitive of the same name compiles into wrong code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm.script import tirx as T

from .builders import K, M, N, matmul_then, sum_products
from .case import Case, matmul, wide


@T.prim_func(s_tir=True)
def relu_after_bias(
    A: T.Buffer((M, K), "float32"),
    B: T.Buffer((N, K), "float32"),
    C: T.Buffer((M, N), "float32"),
    D: T.Buffer((M, N), "float32"),
):
    temp = T.sblock_alloc_buffer((M, N), "float32")
    sum_products(A, B, temp)
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(temp[vi, vj] + C[vi, vj], T.float32(0))


def _integers() -> list[Case]:
    """Epilogues over int32 sums: name, epilogue, numpy of it (or None), code."""
    table: list[tuple[str, Callable[..., Any], Callable[..., Any] | None, Any]] = [
        (
            "relu",
            lambda t, C, E, S, i, j: T.max(t, 0),
            lambda t, C, E, S: np.maximum(t, 0),
            "tail",
        ),
        (
            "relu_then_bias",
            lambda t, C, E, S, i, j: T.max(t, 0) + C[i, j],
            lambda t, C, E, S: np.maximum(t, 0) + C,
            "tail",
        ),
        (
            "clipped",
            lambda t, C, E, S, i, j: T.min(T.max(t, -100), 100),
            lambda t, C, E, S: np.clip(t, -100, 100),
            "tail",
        ),
        (
            "shifted_right",
            lambda t, C, E, S, i, j: T.shift_right(t + C[i, j], 4),
            lambda t, C, E, S: (t + C) >> 4,
            "tail",
        ),
        # The absolute value of an integer is a select that mentions it three times.
        (
            "absolute_value",
            lambda t, C, E, S, i, j: T.abs(t) + C[i, j],
            lambda t, C, E, S: np.abs(t) + C,
            ("multiple-use", "tail"),
        ),
        (
            "select_of_the_sum",
            lambda t, C, E, S, i, j: T.Select(C[i, j] > 0, t, E[j]),
            lambda t, C, E, S: np.where(C > 0, t, E),
            "tail",
        ),
        (
            "if_then_else_of_the_sum",
            lambda t, C, E, S, i, j: T.if_then_else(i > 0, t, C[i, j]),
            lambda t, C, E, S: np.where(np.arange(M)[:, None] > 0, t, C),
            "tail",
        ),
        (
            "sum_as_condition",
            lambda t, C, E, S, i, j: T.Select(t > 0, C[i, j], E[j]),
            lambda t, C, E, S: np.where(t > 0, C, E),
            "tail",
        ),
        (
            "quotient",
            lambda t, C, E, S, i, j: t // 2 + C[i, j],
            lambda t, C, E, S: t // 2 + C,
            ("tail", "scale"),
        ),
        (
            "remainder",
            lambda t, C, E, S, i, j: T.floormod(t, 7),
            lambda t, C, E, S: t % 7,
            ("tail", "scale"),
        ),
        (
            "xor_with_a_bias",
            lambda t, C, E, S, i, j: t ^ C[i, j],
            lambda t, C, E, S: t ^ C,
            "tail",
        ),
        (
            "scaled",
            lambda t, C, E, S, i, j: t * 2 + C[i, j],
            lambda t, C, E, S: t * 2 + C,
            "scale",
        ),
        (
            "scaled_left",
            lambda t, C, E, S, i, j: C[i, j] + 2 * t,
            lambda t, C, E, S: C + 2 * t,
            "scale",
        ),
        (
            "scaled_after_bias",
            lambda t, C, E, S, i, j: (t + C[i, j]) * 3,
            lambda t, C, E, S: (t + C) * 3,
            "scale",
        ),
        (
            "scaled_by_row",
            lambda t, C, E, S, i, j: t * E[j],
            lambda t, C, E, S: t * E,
            "scale",
        ),
        (
            "scaled_by_scalar",
            lambda t, C, E, S, i, j: S[()] * t + C[i, j],
            lambda t, C, E, S: S * t + C,
            "scale",
        ),
        (
            "scaled_by_block_variable",
            lambda t, C, E, S, i, j: t * i + j,
            lambda t, C, E, S: t * np.arange(M, dtype="int32")[:, None] + np.arange(N),
            "scale",
        ),
        (
            "shifted_left",
            lambda t, C, E, S, i, j: T.shift_left(t, 3) + C[i, j],
            lambda t, C, E, S: (t << 3) + C,
            ("scale", "tail"),
        ),
        (
            "negated",
            lambda t, C, E, S, i, j: C[i, j] - t,
            lambda t, C, E, S: C - t,
            "negated",
        ),
        (
            "negated_inside",
            lambda t, C, E, S, i, j: C[i, j] - (t + E[j]),
            lambda t, C, E, S: C - (t + E),
            "negated",
        ),
        (
            "constant_minus_sum",
            lambda t, C, E, S, i, j: 7 - t,
            lambda t, C, E, S: 7 - t,
            "negated",
        ),
        (
            "zero_minus_sum",
            lambda t, C, E, S, i, j: (0 - t) + C[i, j],
            lambda t, C, E, S: -t + C,
            "negated",
        ),
        (
            "sum_added_twice",
            lambda t, C, E, S, i, j: t + t,
            lambda t, C, E, S: t + t,
            "multiple-use",
        ),
        (
            "product_of_two_sums",
            lambda t, C, E, S, i, j: (t + C[i, j]) * (t + E[j]),
            lambda t, C, E, S: (t + C) * (t + E),
            "multiple-use",
        ),
        (
            "squared",
            lambda t, C, E, S, i, j: t * t + C[i, j],
            lambda t, C, E, S: t * t + C,
            "multiple-use",
        ),
        (
            "sum_minus_itself",
            lambda t, C, E, S, i, j: (t + C[i, j]) - t,
            lambda t, C, E, S: C + t - t,
            "multiple-use",
        ),
        (
            "sum_in_the_index_of_the_bias",
            lambda t, C, E, S, i, j: t + E[T.floormod(t, N)],
            lambda t, C, E, S: t + E[t % N],
            ("multiple-use", "consumer-form", "index-map"),
        ),
        (
            "sum_as_index",
            lambda t, C, E, S, i, j: C[i, T.floormod(t, N)],
            lambda t, C, E, S: np.take_along_axis(C, t % N, axis=1),
            ("tail", "consumer-form", "index-map"),
        ),
        (
            "impure_bias",
            lambda t, C, E, S, i, j: t + T.call_extern("int32", "abs", C[i, j]),
            lambda t, C, E, S: t + np.abs(C),
            "impure",
        ),
        (
            "impure_call_of_the_sum",
            lambda t, C, E, S, i, j: T.call_extern("int32", "abs", t) + C[i, j],
            lambda t, C, E, S: np.abs(t) + C,
            ("impure", "tail"),
        ),
    ]
    return [
        Case(
            name=name,
            func=matmul_then(epilogue),
            reference=formula
            and (lambda A, B, C, E, S, f=formula: f(matmul(A, B), C, E, S).astype("int32")),
            code=code,
        )
        for name, epilogue, formula, code in table
    ]


def _floats() -> list[Case]:
    """Epilogues over float32 sums; those without a numpy formula are not run."""
    zero, one = T.float32(0), T.float32(1)
    table: list[tuple[str, Callable[..., Any], Callable[..., Any] | None, Any]] = [
        (
            "float_relu",
            lambda t, C, E, S, i, j: T.max(t, zero) + C[i, j],
            lambda t, C, E, S: np.maximum(t, 0) + C,
            "tail",
        ),
        (
            "float_minimum_with_bias",
            lambda t, C, E, S, i, j: T.min(t, C[i, j]),
            lambda t, C, E, S: np.minimum(t, C),
            "tail",
        ),
        (
            "float_relu_as_select",
            lambda t, C, E, S, i, j: T.Select(t > zero, t, zero),
            lambda t, C, E, S: np.maximum(t, 0),
            ("multiple-use", "tail"),
        ),
        ("tanh_plus_bias", lambda t, C, E, S, i, j: T.tanh(t) + C[i, j], None, "tail"),
        ("float_sigmoid", lambda t, C, E, S, i, j: T.sigmoid(t + C[i, j]), None, "tail"),
        ("float_exponential", lambda t, C, E, S, i, j: T.exp(t), None, "tail"),
        (
            "silu",
            lambda t, C, E, S, i, j: t * T.sigmoid(t),
            None,
            ("multiple-use", "tail"),
        ),
        (
            "float_negated",
            lambda t, C, E, S, i, j: C[i, j] - t,
            lambda t, C, E, S: C - t,
            "negated",
        ),
        (
            "float_constant_minus_sum",
            lambda t, C, E, S, i, j: one - t,
            lambda t, C, E, S: 1 - t,
            "negated",
        ),
        (
            "float_scaled",
            lambda t, C, E, S, i, j: t * T.float32(2) + C[i, j],
            lambda t, C, E, S: t * 2 + C,
            "scale",
        ),
        (
            "float_quotient",
            lambda t, C, E, S, i, j: t / T.float32(2) + C[i, j],
            lambda t, C, E, S: t / 2 + C,
            "scale",
        ),
        (
            "float_reciprocal",
            lambda t, C, E, S, i, j: one / t,
            None,
            ("tail", "scale"),
        ),
    ]
    cases = [
        Case(
            name=name,
            func=matmul_then(epilogue, acc="float32", src="float32"),
            reference=formula and (lambda A, B, C, E, S, f=formula: f(matmul(A, B), C, E, S)),
            code=code,
        )
        for name, epilogue, formula, code in table
    ]
    return cases


def _casts() -> list[Case]:
    """Epilogues that change the type of the sum: accumulator, output type, epilogue, numpy."""
    table = [
        (
            "narrowing_copy",
            "int32",
            "int8",
            lambda t, C, E, S, i, j: T.Cast("int8", t),
            lambda t, C: t.astype("int8"),
        ),
        (
            "narrowing_after_bias",
            "int32",
            "int8",
            lambda t, C, E, S, i, j: T.Cast("int8", t + C[i, j]),
            lambda t, C: (t + C).astype("int8"),
        ),
        (
            "narrowing_to_float16",
            "float32",
            "float16",
            lambda t, C, E, S, i, j: T.Cast("float16", t + C[i, j]),
            lambda t, C: (t + C).astype("float16"),
        ),
        (
            "widened_sum",
            "int16",
            "int32",
            lambda t, C, E, S, i, j: T.Cast("int32", t) + T.Cast("int32", C[i, j]),
            lambda t, C: t.astype("int32") + C,
        ),
        (
            "reinterpreted_sign",
            "int32",
            "uint32",
            lambda t, C, E, S, i, j: T.Cast("uint32", t),
            lambda t, C: t.astype("uint32"),
        ),
        (
            "float_of_an_integer_sum",
            "int32",
            "float32",
            lambda t, C, E, S, i, j: T.Cast("float32", t),
            lambda t, C: t.astype("float32"),
        ),
        (
            "cast_there_and_back",
            "int32",
            "int32",
            lambda t, C, E, S, i, j: T.Cast("int32", T.Cast("int8", t)) + C[i, j],
            lambda t, C: t.astype("int8").astype("int32") + C,
        ),
    ]
    return [
        Case(
            name=name,
            func=matmul_then(
                epilogue,
                acc=acc,
                src="float32" if acc == "float32" else "int8",
                out=out,
            ),
            reference=lambda A, B, C, E, S, f=formula, acc=acc: f(matmul(A, B, acc), wide(C, acc)),
            code="cast",
        )
        for name, acc, out, epilogue, formula in table
    ]


def _overflows() -> list[Case]:
    """Sums that could pass the end of their type on the way, where the program itself does not.

    The compiler takes it that 32-bit and wider integers never overflow. A sum that starts from
    the wrapped-around ``0 - C`` of an unsigned type, or next to the end of a signed one, does.
    The first three cannot be run: on most data they overflow themselves.
    """
    return [
        *[
            Case(
                name=f"{acc}_minus_bias",
                func=matmul_then(lambda t, C, E, S, i, j: t - C[i, j], acc=acc, src="uint8"),
                code="overflow",
            )
            for acc in ("uint32", "uint64")
        ],
        Case(
            name="uint32_body_that_subtracts",
            func=matmul_then(
                lambda t, C, E, S, i, j: t + C[i, j],
                update=lambda acc, t, e: acc - t,
                acc="uint32",
                src="uint8",
            ),
            code="overflow",
        ),
        Case(
            name="too_large_constant",
            func=matmul_then(lambda t, C, E, S, i, j: t + 2**30),
            reference=lambda A, B, C, E, S: matmul(A, B) + 2**30,
            code="overflow",
        ),
        Case(
            name="too_large_start",
            func=matmul_then(
                lambda t, C, E, S, i, j: t + C[i, j], init=lambda E, S, i, j: T.int32(2**31 - 1)
            ),
            reference=lambda A, B, C, E, S: matmul(A, B) + np.int32(2**31 - 1) + C,
            code="overflow",
        ),
    ]


REFUSE = [
    *_overflows(),
    *_integers(),
    *_floats(),
    *_casts(),
    Case(
        name="relu_after_bias",
        func=relu_after_bias,
        reference=lambda A, B, C: np.maximum(A @ B.T + C, 0),
        code="tail",
    ),
]

# Right to fuse for who sees that two negations cancel or that the sum only passes a cast to its
# own type; right to refuse for who does not look.
EITHER = [
    Case(
        name="negated_twice",
        func=matmul_then(lambda t, C, E, S, i, j: C[i, j] - (E[j] - t)),
        reference=lambda A, B, C, E, S: C - (E - matmul(A, B)),
        code=("negated",),
        either=True,
    ),
    Case(
        name="pure_extern_bias",
        func=matmul_then(
            lambda t, C, E, S, i, j: t + T.call_pure_extern("float32", "fabsf", C[i, j]),
            acc="float32",
            src="float32",
        ),
        reference=lambda A, B, C, E, S: A @ B.T + np.abs(C),
        code=("impure",),
        either=True,
    ),
    Case(
        name="scaled_by_one",
        func=matmul_then(lambda t, C, E, S, i, j: T.Mul(t, T.int32(1)) + C[i, j]),
        reference=lambda A, B, C, E, S: matmul(A, B) + C,
        code=("scale",),
        either=True,
    ),
    Case(
        name="bias_divided_by_an_input",
        # Reading it is safe only as often as the epilogue does: once per element, as T.init.
        func=matmul_then(
            lambda t, C, E, S, i, j: t + T.if_then_else(E[j] != 0, C[i, j] // E[j], 0)
        ),
        reference=lambda A, B, C, E, S: (
            matmul(A, B) + np.where(E != 0, C // np.where(E == 0, 1, E), 0)
        ),
        code=("impure", "tail"),
        either=True,
    ),
]
