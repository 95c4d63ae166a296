"""Accepting programs that differ in what the epilogue adds and in the form of the sum."""

from __future__ import annotations

import numpy as np
from tvm.script import tirx as T

from .builders import K, M, N, matmul_then
from .case import Case, matmul, wide


def _sums() -> list[Case]:
    """Sums over int8 products in int32: name, epilogue, numpy, absorbed term, init."""
    table = [
        (
            "bias_left",
            lambda t, C, E, S, i, j: C[i, j] + t,
            lambda t, C, E, S: C + t,
            "C[vi, vj]",
            "C[vi, vj]",
        ),
        (
            "minus",
            lambda t, C, E, S, i, j: t - C[i, j],
            lambda t, C, E, S: t - C,
            "C[vi, vj]",
            "0 - C[vi, vj]",
        ),
        (
            "constant",
            lambda t, C, E, S, i, j: t + 7,
            lambda t, C, E, S: t + 7,
            "7",
            "7",
        ),
        (
            "large_constant",
            lambda t, C, E, S, i, j: t + (2**30 - 1),
            lambda t, C, E, S: t + (2**30 - 1),
            "1073741823",
            "1073741823",
        ),
        (
            "minus_constant",
            lambda t, C, E, S, i, j: t - 7,
            lambda t, C, E, S: t - 7,
            "7",
            "",
        ),
        (
            "scalar_buffer",
            lambda t, C, E, S, i, j: t + S[()],
            lambda t, C, E, S: t + S,
            "S[()]",
            "S[()]",
        ),
        (
            "row_bias",
            lambda t, C, E, S, i, j: t + E[j],
            lambda t, C, E, S: t + E,
            "E[vj]",
            "E[vj]",
        ),
        (
            "two_biases_left_grouped",
            lambda t, C, E, S, i, j: (t + C[i, j]) + E[j],
            lambda t, C, E, S: t + C + E,
            "C[vi, vj] + E[vj]",
            "C[vi, vj] + E[vj]",
        ),
        (
            "two_biases_right_grouped",
            lambda t, C, E, S, i, j: t + (C[i, j] + E[j]),
            lambda t, C, E, S: t + (C + E),
            "C[vi, vj] + E[vj]",
            "C[vi, vj] + E[vj]",
        ),
        (
            "sum_in_the_middle",
            lambda t, C, E, S, i, j: C[i, j] + (t + E[j]),
            lambda t, C, E, S: C + (t + E),
            "C[vi, vj] + E[vj]",
            "C[vi, vj] + E[vj]",
        ),
        (
            "difference_of_biases",
            lambda t, C, E, S, i, j: (C[i, j] - E[j]) + t,
            lambda t, C, E, S: C - E + t,
            "C[vi, vj] - E[vj]",
            "C[vi, vj] - E[vj]",
        ),
        (
            "minus_difference",
            lambda t, C, E, S, i, j: t - (C[i, j] - E[j]),
            lambda t, C, E, S: t - (C - E),
            "C[vi, vj] - E[vj]",
            "0 - (C[vi, vj] - E[vj])",
        ),
        (
            "four_terms",
            lambda t, C, E, S, i, j: ((S[()] + (t - C[i, j])) + E[j]) - 3,
            lambda t, C, E, S: S + (t - C) + E - 3,
            "C[vi, vj]",
            "",
        ),
        (
            "bias_expression",
            lambda t, C, E, S, i, j: t + (C[i, j] * 2 + E[j]),
            lambda t, C, E, S: t + (C * 2 + E),
            "C[vi, vj] * 2 + E[vj]",
            "C[vi, vj] * 2 + E[vj]",
        ),
        (
            "relu_of_the_bias",
            lambda t, C, E, S, i, j: t + T.max(C[i, j], 0),
            lambda t, C, E, S: t + np.maximum(C, 0),
            "T.max(C[vi, vj], 0)",
            "T.max(C[vi, vj], 0)",
        ),
        (
            "select_on_block_variables",
            lambda t, C, E, S, i, j: t + T.Select(i > j, C[i, j], E[j]),
            lambda t, C, E, S: t + np.where(np.arange(M)[:, None] > np.arange(N), C, E),
            "T.Select(vi > vj, C[vi, vj], E[vj])",
            "T.Select(vi > vj, C[vi, vj], E[vj])",
        ),
        (
            "if_then_else_guarding_a_load",
            lambda t, C, E, S, i, j: t + T.if_then_else(i > 0, C[i - 1, j], E[j]),
            lambda t, C, E, S: t + np.vstack([E[None], C[:-1]]),
            "C[vi - 1, vj]",
            "T.if_then_else(vi > 0, C[vi - 1, vj], E[vj])",
        ),
        (
            "block_variable_as_term",
            lambda t, C, E, S, i, j: t + (i * 10 + j),
            lambda t, C, E, S: t + (np.arange(M)[:, None] * 10 + np.arange(N)).astype("int32"),
            "vi * 10 + vj",
            "vi * 10 + vj",
        ),
        (
            "absolute_value_of_the_bias",
            lambda t, C, E, S, i, j: t + T.abs(C[i, j]),
            lambda t, C, E, S: t + np.abs(C),
            "C[vi, vj]",
            "",
        ),
        (
            "plain_copy",
            lambda t, C, E, S, i, j: t,
            lambda t, C, E, S: t,
            "",
            "0",
        ),
    ]
    return [
        Case(
            name=name,
            func=matmul_then(epilogue),
            reference=lambda A, B, C, E, S, f=formula: f(matmul(A, B), C, E, S),
            absorbed=(absorbed,),
            init=init,
            twin="impure_bias",
        )
        for name, epilogue, formula, absorbed, init in table
    ]


def _sums_of_floats() -> list[Case]:
    """The same in float32, where literals are floats and calls are intrinsics."""
    zero = T.float32(0)
    table = [
        (
            "float_minus",
            lambda t, C, E, S, i, j: t - C[i, j],
            lambda t, C, E, S: t - C,
            "C[vi, vj]",
            "T.float32(0.0) - C[vi, vj]",
        ),
        (
            "float_two_biases",
            lambda t, C, E, S, i, j: (E[j] + t) - C[i, j],
            lambda t, C, E, S: E + t - C,
            "E[vj] - C[vi, vj]",
            "E[vj] - C[vi, vj]",
        ),
        (
            "float_relu_of_the_bias",
            lambda t, C, E, S, i, j: t + T.max(C[i, j], zero),
            lambda t, C, E, S: t + np.maximum(C, 0),
            "T.max(C[vi, vj], T.float32(0.0))",
            "T.max(C[vi, vj], T.float32(0.0))",
        ),
        (
            "float_absolute_value_of_the_bias",
            lambda t, C, E, S, i, j: t + T.fabs(C[i, j]),
            lambda t, C, E, S: t + np.abs(C),
            "C[vi, vj]",
            "",
        ),
        (
            "float_constant",
            lambda t, C, E, S, i, j: T.float32(1.5) + t,
            lambda t, C, E, S: t + 1.5,
            "1.5",
            "T.float32(1.5)",
        ),
        (
            "float_quotient_in_the_bias",
            lambda t, C, E, S, i, j: t + C[i, j] / T.float32(4),
            lambda t, C, E, S: t + C / 4,
            "C[vi, vj] / T.float32(4.0)",
            "C[vi, vj] / T.float32(4.0)",
        ),
    ]
    return [
        Case(
            name=name,
            func=matmul_then(epilogue, acc="float32", src="float32"),
            reference=lambda A, B, C, E, S, f=formula: f(matmul(A, B), C, E, S),
            absorbed=(absorbed,),
            init=init,
            twin="impure_bias",
        )
        for name, epilogue, formula, absorbed, init in table
    ]


def _inits_and_bodies() -> list[Case]:
    """Other starting values than 0, and other ways to write the reduction's sum."""

    def plus(t, C, E, S, i, j):
        return t + C[i, j]

    # name, init (bias buffer E, scalar S, i, j), numpy of it, what T.init becomes
    starts = [
        ("init_constant", lambda E, S, i, j: T.int32(5), lambda E, S: 5, "5 + C[vi, vj]"),
        (
            "init_loaded",
            lambda E, S, i, j: E[j],
            lambda E, S: E,
            "E[vj] + C[vi, vj]",
        ),
        (
            "init_from_block_variables",
            lambda E, S, i, j: S[()] - i,
            lambda E, S: S - np.arange(M, dtype="int32")[:, None],
            "S[()] - vi + C[vi, vj]",
        ),
    ]
    cases = [
        Case(
            name=name,
            func=matmul_then(plus, init=init),
            reference=lambda A, B, C, E, S, f=start: f(E, S) + matmul(A, B) + C,
            absorbed=("C[vi, vj]",),
            init=text,
            twin="init_reads_the_output",
        )
        for name, init, start, text in starts
    ]
    # name, body (sum so far, product, E[j]), numpy of the finished sum
    bodies = [
        ("body_term_first", lambda acc, t, e: t + acc, lambda mm, E: mm),
        ("body_minus_term", lambda acc, t, e: acc - t, lambda mm, E: -mm),
        ("body_two_terms", lambda acc, t, e: (acc + t) + e, lambda mm, E: mm + K * E),
        ("body_sum_inside", lambda acc, t, e: (t + acc) - e, lambda mm, E: mm - K * E),
        ("body_sum_right", lambda acc, t, e: t + (e + acc), lambda mm, E: mm + K * E),
        ("body_grouped_term", lambda acc, t, e: acc + (t - e), lambda mm, E: mm - K * E),
    ]
    cases += [
        Case(
            name=name,
            func=matmul_then(plus, update=body),
            reference=lambda A, B, C, E, S, f=total: f(matmul(A, B), E) + C,
            absorbed=("C[vi, vj]",),
            init="C[vi, vj]",
            twin="body_minus_sum",
        )
        for name, body, total in bodies
    ]
    return cases


ACCEPT = [
    *_sums(),
    *_sums_of_floats(),
    *_inits_and_bodies(),
    Case(
        name="int8_bias_cast",
        func=matmul_then(lambda t, C, E, S, i, j: t + T.Cast("int32", C[i, j]), bias="int8"),
        reference=lambda A, B, C, E, S: matmul(A, B) + wide(C, "int32"),
        absorbed=("C[vi, vj]",),
        init='T.Cast("int32", C[vi, vj])',
        twin="impure_bias",
    ),
    Case(
        name="float16_bias_cast",
        func=matmul_then(
            lambda t, C, E, S, i, j: T.Cast("float32", C[i, j]) + t,
            acc="float32",
            src="float32",
            bias="float16",
        ),
        reference=lambda A, B, C, E, S: A @ B.T + C,
        absorbed=("C[vi, vj]",),
        init='T.Cast("float32", C[vi, vj])',
        twin="impure_activation",
    ),
]
