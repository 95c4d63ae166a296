"""Accepting programs whose epilogue is more than the sum plus something: the rest is a tail.

They are products of matrices; other reductions are in `distributing`, activations and conversions
in files of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script import tirx as T

from . import lazy
from .builders import K, M, N, matmul_then, sum_products
from .case import Case, accepted, matmul

Formula = Callable[..., Any]


@lazy.prim_func(s_tir=True)
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


def _case(name: str, epilogue: Formula, formula: Formula, **more: Any) -> Case:
    return Case(
        name=name,
        func=matmul_then(epilogue),
        reference=lambda A, B, C, E, S: formula(matmul(A, B), C, E, S).astype("int32"),
        twin="impure_call_of_the_sum",
        **more,
    )


def _bent() -> list[Case]:
    """Nothing comes before what bends the sum: name, epilogue, numpy, tail."""
    table: list[tuple[str, Formula, Formula, str]] = [
        (
            "relu",
            lambda t, C, E, S, i, j: T.max(t, 0),
            lambda t, C, E, S: np.maximum(t, 0),
            "T.max(x, 0)",
        ),
        (
            "relu_then_bias",
            lambda t, C, E, S, i, j: T.max(t, 0) + C[i, j],
            lambda t, C, E, S: np.maximum(t, 0) + C,
            "T.max(x, 0) + C[vi, vj]",
        ),
        (
            "clipped",
            lambda t, C, E, S, i, j: T.min(T.max(t, -100), 100),
            lambda t, C, E, S: np.clip(t, -100, 100),
            "T.min(T.max(x, -100), 100)",
        ),
        # The absolute value of an integer is a select that mentions it three times.
        (
            "absolute_value",
            lambda t, C, E, S, i, j: T.abs(t) + C[i, j],
            lambda t, C, E, S: np.abs(t) + C,
            " + C[vi, vj]",
        ),
        (
            "select_of_the_sum",
            lambda t, C, E, S, i, j: T.Select(C[i, j] > 0, t, E[j]),
            lambda t, C, E, S: np.where(C > 0, t, E),
            "T.Select(C[vi, vj] > 0, x, E[vj])",
        ),
        (
            "if_then_else_of_the_sum",
            lambda t, C, E, S, i, j: T.if_then_else(i > 0, t, C[i, j]),
            lambda t, C, E, S: np.where(np.arange(M)[:, None] > 0, t, C),
            "T.if_then_else(vi > 0, x, C[vi, vj])",
        ),
        (
            "sum_as_condition",
            lambda t, C, E, S, i, j: T.Select(t > 0, C[i, j], E[j]),
            lambda t, C, E, S: np.where(t > 0, C, E),
            "T.Select(x > 0, C[vi, vj], E[vj])",
        ),
        (
            "quotient",
            lambda t, C, E, S, i, j: t // 2 + C[i, j],
            lambda t, C, E, S: t // 2 + C,
            "x // 2 + C[vi, vj]",
        ),
        (
            "remainder",
            lambda t, C, E, S, i, j: T.floormod(t, 7),
            lambda t, C, E, S: t % 7,
            "x % 7",
        ),
        (
            "xor_with_a_bias",
            lambda t, C, E, S, i, j: t ^ C[i, j],
            lambda t, C, E, S: t ^ C,
            "x ^ C[vi, vj]",
        ),
        (
            "shifted_left",
            lambda t, C, E, S, i, j: T.shift_left(t, 3) + C[i, j],
            lambda t, C, E, S: (t << 3) + C,
            "(x << 3) + C[vi, vj]",
        ),
    ]
    return [
        _case(name, epilogue, formula, absorbed=("",), tails={"add": tail})
        for name, epilogue, formula, tail in table
    ]


def _scaled() -> list[Case]:
    """Factors, which in 32 bits do not distribute: name, epilogue, numpy, tail."""
    table: list[tuple[str, Formula, Formula, str]] = [
        (
            "scaled",
            lambda t, C, E, S, i, j: t * 2 + C[i, j],
            lambda t, C, E, S: t * 2 + C,
            "x * 2 + C[vi, vj]",
        ),
        (
            "scaled_left",
            lambda t, C, E, S, i, j: C[i, j] + 2 * t,
            lambda t, C, E, S: C + 2 * t,
            "C[vi, vj] + ",
        ),
        (
            "scaled_by_row",
            lambda t, C, E, S, i, j: t * E[j],
            lambda t, C, E, S: t * E,
            "x * E[vj]",
        ),
        (
            "scaled_by_scalar",
            lambda t, C, E, S, i, j: S[()] * t + C[i, j],
            lambda t, C, E, S: S * t + C,
            "S[()] * x + C[vi, vj]",
        ),
        (
            "scaled_by_block_variable",
            lambda t, C, E, S, i, j: t * i + j,
            lambda t, C, E, S: t * np.arange(M, dtype="int32")[:, None] + np.arange(N),
            "x * vi + vj",
        ),
    ]
    return [
        _case(name, epilogue, formula, absorbed=("",), tails={"add": tail})
        for name, epilogue, formula, tail in table
    ]


def _biased_first() -> list[Case]:
    """The bias is absorbed before the rest: name, epilogue, numpy, absorbed, tail."""
    table: list[tuple[str, Formula, Formula, str, str]] = [
        (
            "shifted_right",
            lambda t, C, E, S, i, j: T.shift_right(t + C[i, j], 4),
            lambda t, C, E, S: (t + C) >> 4,
            "C[vi, vj]",
            "x >> 4",
        ),
        (
            "scaled_after_bias",
            lambda t, C, E, S, i, j: (t + C[i, j]) * 3,
            lambda t, C, E, S: (t + C) * 3,
            "C[vi, vj]",
            "x * 3",
        ),
        (
            "two_biases_and_a_mask",
            lambda t, C, E, S, i, j: (E[j] + (t - C[i, j])) & 1023,
            lambda t, C, E, S: (E + (t - C)) & 1023,
            "C[vi, vj]",
            " & ",
        ),
        # What is done with the biased sum twice is still done to one biased sum.
        (
            "square_of_the_biased_sum",
            lambda t, C, E, S, i, j: (t + C[i, j]) * (t + C[i, j]),
            lambda t, C, E, S: (t + C) * (t + C),
            "C[vi, vj]",
            "x * x",
        ),
        (
            "biased_sum_and_its_half",
            lambda t, C, E, S, i, j: (C[i, j] + t) - T.shift_right(C[i, j] + t, 1),
            lambda t, C, E, S: (C + t) - ((C + t) >> 1),
            "C[vi, vj]",
            "x - (x >> 1)",
        ),
        (
            "subtracted_then_masked",
            lambda t, C, E, S, i, j: (C[i, j] - t) & 255,
            lambda t, C, E, S: (C - t) & 255,
            "C[vi, vj]",
            " & ",
        ),
    ]
    return [
        _case(
            name,
            epilogue,
            formula,
            absorbed=(absorbed,),
            distributed={"add": ""} if name == "subtracted_then_masked" else {},
            tails={"add": tail},
        )
        for name, epilogue, formula, absorbed, tail in table
    ]


def _used_twice() -> list[Case]:
    """The sum stands in several places, and not in the same expression everywhere."""
    table: list[tuple[str, Formula, Formula, str]] = [
        (
            "sum_added_twice",
            lambda t, C, E, S, i, j: t + t,
            lambda t, C, E, S: t + t,
            "x + x",
        ),
        (
            "product_of_two_sums",
            lambda t, C, E, S, i, j: (t + C[i, j]) * (t + E[j]),
            lambda t, C, E, S: (t + C) * (t + E),
            "(x + C[vi, vj]) * (x + E[vj])",
        ),
        (
            "squared",
            lambda t, C, E, S, i, j: t * t + C[i, j],
            lambda t, C, E, S: t * t + C,
            "x * x + C[vi, vj]",
        ),
        (
            "sum_minus_itself",
            lambda t, C, E, S, i, j: (t + C[i, j]) - t,
            lambda t, C, E, S: C + t - t,
            "x + C[vi, vj] - x",
        ),
        (
            "sum_in_the_index_of_the_bias",
            lambda t, C, E, S, i, j: t + E[T.floormod(t, N)],
            lambda t, C, E, S: t + E[t % N],
            "x + E[x % 7]",
        ),
        (
            "sum_as_index",
            lambda t, C, E, S, i, j: C[i, T.floormod(t, N)],
            lambda t, C, E, S: np.take_along_axis(C, t % N, axis=1),
            "C[vi, x % 7]",
        ),
        (
            "bias_that_depends_on_the_sum",
            lambda t, C, E, S, i, j: t + T.Select(t > 0, C[i, j], E[j]),
            lambda t, C, E, S: t + np.where(t > 0, C, E),
            "x + T.Select(x > 0, C[vi, vj], E[vj])",
        ),
    ]
    return [
        _case(name, epilogue, formula, absorbed=("",), tails={"add": tail})
        for name, epilogue, formula, tail in table
    ]


def _negated() -> list[Case]:
    """The sum is subtracted, so its terms are, and nothing is left over."""
    table: list[tuple[str, Formula, Formula, str]] = [
        (
            "negated",
            lambda t, C, E, S, i, j: C[i, j] - t,
            lambda t, C, E, S: C - t,
            "C[vi, vj]",
        ),
        (
            "negated_inside",
            lambda t, C, E, S, i, j: C[i, j] - (t + E[j]),
            lambda t, C, E, S: C - (t + E),
            "C[vi, vj]",
        ),
        ("constant_minus_sum", lambda t, C, E, S, i, j: 7 - t, lambda t, C, E, S: 7 - t, "7"),
        (
            "zero_minus_sum",
            lambda t, C, E, S, i, j: (0 - t) + C[i, j],
            lambda t, C, E, S: -t + C,
            "C[vi, vj]",
        ),
    ]
    cases = [
        _case(name, epilogue, formula, absorbed=(absorbed,), distributed={"add": ""})
        for name, epilogue, formula, absorbed in table
    ]
    floats: list[tuple[str, Formula, Formula, str]] = [
        ("float_negated", lambda t, c: c - t, lambda t, C: C - t, "C[vi, vj]"),
        ("float_constant_minus_sum", lambda t, c: T.float32(1) - t, lambda t, C: 1 - t, "1.0"),
    ]
    return [
        *cases,
        *[
            Case(
                name=name,
                func=matmul_then(
                    lambda t, C, E, S, i, j, f=epilogue: f(t, C[i, j]), acc="float32", src="float32"
                ),
                reference=lambda A, B, C, E, S, f=formula: f(A @ B.T, C),
                absorbed=(absorbed,),
                distributed={"add": ""},
                twin="impure_bias",
            )
            for name, epilogue, formula, absorbed in floats
        ],
    ]


def _overflowing() -> list[Case]:
    """Sums that could pass the end of their type on the way, where the program itself does not.

    The compiler takes it that 32-bit and wider integers never overflow. A sum that starts from
    the wrapped-around ``0 - C`` of an unsigned type, or next to the end of a signed one, does: so
    that part stays behind the sum.
    """

    def case(
        name: str, func: Any, reference: Formula, tail: str, absorbed: tuple[str, ...] = ("",)
    ) -> Case:
        return Case(
            name=name, func=func, reference=reference, absorbed=absorbed, tails={"add": tail}
        )

    # The bias is short, so that the unfused program does not wrap around.
    short: dict[str, Any] = {"src": "uint8", "bias": "uint8"}
    return [
        *[
            case(
                f"{acc}_minus_bias",
                matmul_then(
                    lambda t, C, E, S, i, j, acc=acc: (t + T.cast(255, acc)) - T.cast(C[i, j], acc),
                    acc=acc,
                    **short,
                ),
                lambda A, B, C, E, S, acc=acc: matmul(A, B, acc) + np.dtype(acc).type(255) - C,
                " - ",
                absorbed=("255",),
            )
            for acc in ("uint32", "uint64")
        ],
        case(
            "uint32_body_that_subtracts",
            matmul_then(
                lambda t, C, E, S, i, j: t + T.cast(C[i, j], "uint32"),
                init=lambda E, S, i, j: T.uint32(10**6),
                update=lambda acc, t, e: acc - t,
                acc="uint32",
                **short,
            ),
            lambda A, B, C, E, S: np.uint32(10**6) - matmul(A, B, "uint32") + C,
            "x + ",
        ),
        case(
            "too_large_constant",
            matmul_then(lambda t, C, E, S, i, j: t + 2**30),
            lambda A, B, C, E, S: matmul(A, B) + 2**30,
            "x + 1073741824",
        ),
        case(
            "too_large_start",
            matmul_then(
                lambda t, C, E, S, i, j: t + C[i, j], init=lambda E, S, i, j: T.int32(2**31 - 1)
            ),
            lambda A, B, C, E, S: matmul(A, B) + np.int32(2**31 - 1) + C,
            "x + C[vi, vj]",
        ),
    ]


ACCEPT = [
    *_bent(),
    *_scaled(),
    *_biased_first(),
    *_used_twice(),
    *_negated(),
    *_overflowing(),
    accepted(
        relu_after_bias,
        lambda A, B, C: np.maximum(A @ B.T + C, 0),
        "C[vi, vj]",
        "C[vi, vj]",
        "impure_activation",
        tails={"add": "T.max(x, T.float32(0.0))"},
    ),
    Case(
        name="negated_twice",
        func=matmul_then(lambda t, C, E, S, i, j: C[i, j] - (E[j] - t)),
        reference=lambda A, B, C, E, S: C - (E - matmul(A, B)),
        absorbed=("C[vi, vj]",),
        twin="impure_bias",
    ),
]


def _with_a_name(value: Any, use: Callable[[Any], Any]) -> Any:
    """``use(value)`` with the value bound to a name inside the expression."""
    name = tirx.Var("named", "int32")
    return tirx.Let(name, value, use(name))


# Programs whose report may be one of several: simplifying first gives another tail, or none.
EITHER = [
    # The name means nothing outside of the expression.
    Case(
        name="bias_with_a_name",
        func=matmul_then(lambda t, C, E, S, i, j: _with_a_name(C[i, j] * 2, lambda bias: t + bias)),
        reference=lambda A, B, C, E, S: matmul(A, B) + C * 2,
        either=True,
    ),
    Case(
        name="biased_sum_with_a_name",
        func=matmul_then(
            lambda t, C, E, S, i, j: _with_a_name(t + C[i, j], lambda total: total * total + E[j])
        ),
        reference=lambda A, B, C, E, S: np.square(matmul(A, B) + C) + E,
        either=True,
    ),
    Case(
        name="two_names_for_the_sum",
        func=matmul_then(
            lambda t, C, E, S, i, j: (
                _with_a_name(t, lambda total: total + C[i, j])
                & _with_a_name(t + C[i, j], lambda total: total)
            )
        ),
        reference=lambda A, B, C, E, S: matmul(A, B) + C,
        either=True,
    ),
    Case(
        name="scaled_by_one",
        func=matmul_then(lambda t, C, E, S, i, j: tirx.Mul(t, T.int32(1)) + C[i, j]),
        reference=lambda A, B, C, E, S: matmul(A, B) + C,
        either=True,
    ),
    Case(
        name="sum_in_both_branches",
        func=matmul_then(lambda t, C, E, S, i, j: T.Select(E[j] > 0, t + C[i, j], C[i, j] + t)),
        reference=lambda A, B, C, E, S: matmul(A, B) + C,
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
        name="bias_divided_by_an_input",
        # Reading it is safe only as often as the epilogue does: once per element, as T.init.
        func=matmul_then(
            lambda t, C, E, S, i, j: t + T.if_then_else(E[j] != 0, C[i, j] // E[j], 0)
        ),
        reference=lambda A, B, C, E, S: (
            matmul(A, B) + np.where(E != 0, C // np.where(E == 0, 1, E), 0)
        ),
        code=("impure",),
        either=True,
    ),
]
