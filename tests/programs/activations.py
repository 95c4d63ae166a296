"""Epilogues that bend the finished sum: the bias is absorbed, the activation is a tail.

Exact on small integers are those that only compare, add and halve; the others are approximated by
the compiler and by numpy in different ways, and are compared within a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script import tirx as T

from .builders import literal, matmul_then
from .case import Case, matmul

Function = Callable[..., Any]

FLOATS = {"acc": "float32", "src": "float32"}


def f32(value: float) -> Any:
    return literal(value, "float32")


# ---------------------------------------------------------------------------------------------
# In TIR and in numpy
# ---------------------------------------------------------------------------------------------


def gelu_by_erf(x: Any) -> Any:
    return f32(0.5) * x * (f32(1) + T.erf(x * f32(0.5**0.5)))


def gelu_by_tanh(x: Any) -> Any:
    inner = f32(0.7978845608) * (x + f32(0.044715) * x * x * x)
    return f32(0.5) * x * (f32(1) + T.tanh(inner))


def softplus(x: Any) -> Any:
    return T.max(x, f32(0)) + T.log(f32(1) + T.exp(f32(0) - T.fabs(x)))


def np_sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


np_erf = np.vectorize(math.erf, otypes=["float64"])


def np_gelu_by_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def _of_the_biased_sum(
    name: str, activation: Function, formula: Function, tail: str, **more: Any
) -> Case:
    """``activation(A @ B.T + C)`` with the argument written out as often as it is used."""
    return Case(
        name=name,
        func=matmul_then(lambda t, C, E, S, i, j: activation(t + C[i, j]), **FLOATS),
        reference=lambda A, B, C, E, S: formula(A @ B.T + C),
        absorbed=("C[vi, vj]",),
        tails={"add": tail},
        init="C[vi, vj]",
        twin="impure_activation",
        **more,
    )


def _piecewise_linear() -> list[Case]:
    zero, eighth = f32(0), f32(0.125)
    table: list[tuple[str, Function, Function, str]] = [
        ("relu_of_the_biased_sum", lambda x: T.max(x, zero), lambda x: np.maximum(x, 0), "T.max(x"),
        (
            "relu_the_other_way_round",
            lambda x: T.max(zero, x),
            lambda x: np.maximum(0, x),
            ", x)",
        ),
        (
            "relu6",
            lambda x: T.min(T.max(x, zero), f32(6)),
            lambda x: np.minimum(np.maximum(x, 0), 6),
            "T.min(T.max(x, ",
        ),
        (
            "leaky_relu_by_select",
            lambda x: T.Select(x > zero, x, x * eighth),
            lambda x: np.where(x > 0, x, x * 0.125),
            "T.Select(x > ",
        ),
        (
            "leaky_relu_by_if_then_else",
            lambda x: T.if_then_else(x > zero, x, x * eighth),
            lambda x: np.where(x > 0, x, x * 0.125),
            "T.if_then_else(x > ",
        ),
        (
            "hard_swish",
            lambda x: x * T.min(T.max(x + f32(3), zero), f32(6)) * eighth,
            lambda x: x * np.minimum(np.maximum(x + 3, 0), 6) * 0.125,
            "x * ",
        ),
        ("squared_sum", lambda x: x * x, lambda x: x * x, "x * x"),
        ("absolute_sum", T.fabs, np.abs, "T.fabs(x)"),
    ]
    # How much an error in the sum grows until it is in the output.
    growth: dict[str, Function] = {
        "relu6": lambda x: x,
        "hard_swish": lambda x: 6 * x + x * x,
        "squared_sum": lambda x: 2 * x * x,
        "leaky_relu_by_select": lambda x: x,
        "leaky_relu_by_if_then_else": lambda x: x,
    }
    return [
        _of_the_biased_sum(
            name,
            activation,
            formula,
            tail,
            magnitude=_magnitude(growth[name]) if name in growth else None,
        )
        for name, activation, formula, tail in table
    ]


def _magnitude(growth: Function) -> Function:
    """A bound on what is rounded, times its effect, as a function of the biased sum's terms."""
    return lambda A, B, C, E, S: growth(A @ B.T + C)


def _curved() -> list[Case]:
    # name, activation, numpy, text of the tail, growth of an error plus the values' own magnitude
    table: list[tuple[str, Function, Function, str, Function]] = [
        ("sigmoid_of_the_biased_sum", T.sigmoid, np_sigmoid, "T.sigmoid(x)", lambda x: 1 + x / 4),
        ("tanh_of_the_biased_sum", T.tanh, np.tanh, "T.tanh(x)", lambda x: 1 + x),
        (
            "exponential_of_the_negated_square",
            lambda x: T.exp(f32(0) - x * x),
            lambda x: np.exp(-x * x),
            "T.exp(",
            lambda x: 1 + x,
        ),
        (
            "silu_of_the_biased_sum",
            lambda x: x * T.sigmoid(x),
            lambda x: x * np_sigmoid(x),
            "x * T.sigmoid(x)",
            lambda x: 1.1 * x,
        ),
        (
            "gelu_by_erf",
            gelu_by_erf,
            lambda x: 0.5 * x * (1 + np_erf(x * 0.5**0.5)),
            "T.erf(",
            lambda x: 4 * x,
        ),
        ("gelu_by_tanh", gelu_by_tanh, np_gelu_by_tanh, "T.tanh(", lambda x: 4 * x),
        ("softplus", softplus, lambda x: np.logaddexp(0, x), "T.log(", lambda x: 1 + x),
        (
            "mish",
            lambda x: x * T.tanh(softplus(x)),
            lambda x: x * np.tanh(np.logaddexp(0, x)),
            "T.tanh(",
            lambda x: 4 * x + 1,
        ),
    ]
    return [
        _of_the_biased_sum(
            name, activation, formula, tail, magnitude=_magnitude(growth), approximate=True
        )
        for name, activation, formula, tail, growth in table
    ]


def _of_the_bare_sum() -> list[Case]:
    """Nothing to absorb, or nothing that can be: the whole epilogue is the tail."""
    zero, one = f32(0), f32(1)
    table: list[tuple[str, Function, Function, str, dict[str, Any]]] = [
        (
            "float_relu",
            lambda t, c, e: T.max(t, zero) + c,
            lambda t, c, e: np.maximum(t, 0) + c,
            "T.max(x, ",
            {},
        ),
        (
            "float_minimum_with_bias",
            lambda t, c, e: T.min(t, c),
            lambda t, c, e: np.minimum(t, c),
            "T.min(x, C[vi, vj])",
            {"magnitude": lambda A, B, C, E, S: A @ B.T + C},
        ),
        (
            "float_relu_as_select",
            lambda t, c, e: T.Select(t > zero, t, zero),
            lambda t, c, e: np.maximum(t, 0),
            "T.Select(x > ",
            {},
        ),
        (
            "float_quotient",
            lambda t, c, e: t / T.float32(2) + c,
            lambda t, c, e: t / 2 + c,
            "x / ",
            {},
        ),
        (
            "quotient_of_the_squares",
            lambda t, c, e: one / (one + t * t),
            lambda t, c, e: 1 / (1 + t * t),
            "x * x",
            {"magnitude": lambda A, B, C, E, S: 1 + A @ B.T, "approximate": True},
        ),
        (
            "tanh_plus_bias",
            lambda t, c, e: T.tanh(t) + c,
            lambda t, c, e: np.tanh(t) + c,
            "T.tanh(x) + C[vi, vj]",
            {"magnitude": lambda A, B, C, E, S: 1 + A @ B.T + C, "approximate": True},
        ),
        (
            "silu",
            lambda t, c, e: t * T.sigmoid(t),
            lambda t, c, e: t * np_sigmoid(t),
            "x * T.sigmoid(x)",
            {"magnitude": lambda A, B, C, E, S: 1.1 * (A @ B.T), "approximate": True},
        ),
        # The two arguments differ: neither bias is common to all that is done with the sum.
        (
            "gated_by_another_bias",
            lambda t, c, e: (t + c) * T.max(t + e, zero),
            lambda t, c, e: (t + c) * np.maximum(t + e, 0),
            "(x + C[vi, vj]) * T.max(x + E[vj], ",
            {"magnitude": lambda A, B, C, E, S: 2 * (A @ B.T + C) * (A @ B.T + E)},
        ),
        # A condition that does not look at the sum still decides what becomes of it.
        (
            "float_select_by_an_input",
            lambda t, c, e: T.Select(c > zero, t, e),
            lambda t, c, e: np.where(c > 0, t, e),
            "T.Select(C[vi, vj] > ",
            {"magnitude": lambda A, B, C, E, S: A @ B.T + E},
        ),
    ]
    return [
        Case(
            name=name,
            func=matmul_then(lambda t, C, E, S, i, j, f=epilogue: f(t, C[i, j], E[j]), **FLOATS),
            reference=lambda A, B, C, E, S, f=formula: f(A @ B.T, C, E),
            absorbed=("",),
            tails={"add": tail},
            twin="impure_activation",
            **more,
        )
        for name, epilogue, formula, tail, more in table
    ]


def _over_other_reductions() -> list[Case]:
    """The reduction itself is not a sum."""
    return [
        Case(
            name="sigmoid_of_a_maximum",
            func=matmul_then(
                lambda t, C, E, S, i, j: T.sigmoid(T.max(t, C[i, j])),
                update=lambda acc, t, e: T.max(acc, t),
                init=lambda E, S, i, j: T.min_value("float32"),
                **FLOATS,
            ),
            reference=lambda A, B, C, E, S: np_sigmoid(
                np.maximum((A[:, None, :] * B[None]).max(axis=-1), C)
            ),
            absorbed=("C[vi, vj]",),
            tails={"add": "T.sigmoid(x)"},
            special="",
            magnitude=lambda A, B, C, E, S: 1 + (A[:, None, :] * B[None]).max(axis=-1) + C,
            approximate=True,
        ),
        Case(
            name="integer_select_of_a_minimum",
            func=matmul_then(
                lambda t, C, E, S, i, j: T.Select(
                    tirx.all(t > -100, t < 100), t, T.max(C[i, j], E[j])
                ),
                update=lambda acc, t, e: T.min(acc, t),
                init=lambda E, S, i, j: T.max_value("int32"),
            ),
            reference=lambda A, B, C, E, S: _selected(
                (matmul_terms(A, B)).min(axis=-1), np.maximum(C, E)
            ),
            absorbed=("",),
            tails={"add": "T.Select("},
        ),
    ]


def matmul_terms(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """The terms of a product of matrices; the last axis is that of the reduction."""
    return A.astype("int32")[:, None, :] * B.astype("int32")[None]


def _selected(least: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    return np.where((least > -100) & (least < 100), least, otherwise)


ACCEPT = [
    *_piecewise_linear(),
    *_curved(),
    *_of_the_bare_sum(),
    *_over_other_reductions(),
    Case(
        name="relu_of_an_exact_sum",
        func=matmul_then(lambda t, C, E, S, i, j: T.max(t + C[i, j], f32(0)), **FLOATS),
        reference=lambda A, B, C, E, S: np.maximum(matmul(A, B) + C, 0),
        numerics="exact",
        absorbed=("",),
        tails={"add": "T.max(x + C[vi, vj], "},
        init="T.float32(0.0)",
        twin="impure_activation",
    ),
]

REFUSE = [
    # A function that may do anything, such as writing what the reduction reads.
    Case(
        name="impure_activation",
        func=matmul_then(
            lambda t, C, E, S, i, j: T.call_extern("float32", "fabsf", t + C[i, j]), **FLOATS
        ),
        reference=lambda A, B, C, E, S: np.abs(A @ B.T + C),
        code="impure",
    ),
]
