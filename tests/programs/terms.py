"""Accepting programs with several epilogues, an output that is also read, or other work."""

from __future__ import annotations

import numpy as np
from tvm.script import tirx as T

from . import lazy
from .builders import K, M, N, add_rows, sum_products, sum_rows
from .case import IN_PLACE, WITH_F, Case, accepted, matmul, row_sums


# The reference program of the project, at the size its golden test uses.
@lazy.prim_func(s_tir=True)
def reference_program(
    A: T.Buffer((16, 16), "int8"),
    B: T.Buffer((16, 16), "int8"),
    C: T.Buffer((16, 16), "int32"),
    D: T.Buffer((16, 16), "int32"),
):
    temp = T.sblock_alloc_buffer((16, 16), "int32")
    for i, j, k in T.grid(16, 16, 16):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for i, j in T.grid(16, 16):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + C[vi, vj]


@lazy.prim_func(s_tir=True)
def scalar_parameter(
    A: T.Buffer((M, K), "float32"),
    B: T.Buffer((N, K), "float32"),
    s: T.float32,
    D: T.Buffer((M, N), "float32"),
):
    temp = T.sblock_alloc_buffer((M, N), "float32")
    sum_products(A, B, temp)
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + s


@lazy.prim_func(s_tir=True)
def column_bias(
    A: T.Buffer((M, K), "float32"),
    B: T.Buffer((N, K), "float32"),
    C: T.Buffer((M, 1), "float32"),
    D: T.Buffer((M, N), "float32"),
):
    temp = T.sblock_alloc_buffer((M, N), "float32")
    sum_products(A, B, temp)
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + C[vi, 0]


@lazy.prim_func(s_tir=True)
def two_blocks(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    C: T.Buffer((M, N), "int32"),
    E: T.Buffer((N,), "int32"),
    D: T.Buffer((M, N), "int32"),
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    mid = T.sblock_alloc_buffer((M, N), "int32")
    sum_products(A, B, temp)
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            mid[vi, vj] = temp[vi, vj] + E[vj]
    for i, j in T.grid(M, N):
        with T.sblock("residual"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = C[vi, vj] + mid[vi, vj]


@lazy.prim_func(s_tir=True)
def three_blocks_transposing(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    C: T.Buffer((N, M), "int32"),
    E: T.Buffer((N,), "int32"),
    D: T.Buffer((M, N), "int32"),
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    mid = T.sblock_alloc_buffer((N, M), "int32")
    turned = T.sblock_alloc_buffer((N, M), "int32")
    sum_products(A, B, temp)
    for i, j in T.grid(N, M):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            mid[vi, vj] = temp[vj, vi] + E[vi]
    for i, j in T.grid(N, M):
        with T.sblock("residual"):
            vi, vj = T.axis.remap("SS", [i, j])
            turned[vi, vj] = mid[vi, vj] - C[vi, vj]
    for i, j in T.grid(M, N):
        with T.sblock("back"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = turned[vj, vi]


@lazy.prim_func(s_tir=True)
def bias_then_relu(
    A: T.Buffer((M, K), "float32"),
    B: T.Buffer((N, K), "float32"),
    E: T.Buffer((N,), "float32"),
    D: T.Buffer((M, N), "float32"),
):
    temp = T.sblock_alloc_buffer((M, N), "float32")
    mid = T.sblock_alloc_buffer((M, N), "float32")
    sum_products(A, B, temp)
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            mid[vi, vj] = temp[vi, vj] + E[vj]
    for i, j in T.grid(M, N):
        with T.sblock("relu"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(mid[vi, vj], T.float32(0))


@lazy.prim_func(s_tir=True)
def residual_of_an_input(
    A: T.Buffer((M, M), "float32"),
    B: T.Buffer((M, M), "float32"),
    D: T.Buffer((M, M), "float32"),
):
    temp = T.sblock_alloc_buffer((M, M), "float32")
    for i, j, k in T.grid(M, M, M):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = T.float32(0)
            temp[vi, vj] = temp[vi, vj] + A[vi, vk] * B[vj, vk]
    for i, j in T.grid(M, M):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + A[vi, vj]


@lazy.prim_func(s_tir=True)
def in_place(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    D: T.Buffer((M, N), "int32"),
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    sum_products(A, B, temp)
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + D[vi, vj]


@lazy.prim_func(s_tir=True)
def in_place_transposed_and_biased(
    A: T.Buffer((M, K), "float32"),
    B: T.Buffer((N, K), "float32"),
    E: T.Buffer((N,), "float32"),
    D: T.Buffer((N, M), "float32"),
):
    temp = T.sblock_alloc_buffer((M, N), "float32")
    sum_products(A, B, temp)
    for i, j in T.grid(N, M):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = D[vi, vj] * T.float32(2) + (temp[vj, vi] - E[vi])


@lazy.prim_func(s_tir=True)
def bias_made_before(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    E: T.Buffer((N,), "int32"),
    D: T.Buffer((M, N), "int32"),
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    bias = T.sblock_alloc_buffer((M, N), "int32")
    for i, j in T.grid(M, N):
        with T.sblock("make_bias"):
            vi, vj = T.axis.remap("SS", [i, j])
            bias[vi, vj] = E[vj] * (vi + 1)
    sum_products(A, B, temp)
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + bias[vi, vj]


@lazy.prim_func(s_tir=True)
def other_work_between(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    C: T.Buffer((M, N), "int32"),
    D: T.Buffer((M, N), "int32"),
    F: T.Buffer((M, N), "int32"),
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    sum_products(A, B, temp)
    for i, j in T.grid(M, N):
        with T.sblock("elsewhere"):
            vi, vj = T.axis.remap("SS", [i, j])
            F[vi, vj] = C[vi, vj] * 3
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + C[vi, vj]


# Two sums of which the second is the reduction and the first its bias.
@lazy.prim_func(s_tir=True)
def second_of_two_summands(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    temp2 = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i, k in T.grid(M, K):
        with T.sblock("mm2"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp2[vi] = 0
            temp2[vi] = temp2[vi] - C[vi, vk]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + temp2[vi]


# Some terms are left out; which ones does not depend on the sum.
@lazy.prim_func(s_tir=True)
def conditional_step(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            if A[vi, vk] > 0:
                temp[vi] = temp[vi] + A[vi, vk]
    add_rows(temp, C, D)


# Only both epilogues together are in place, and at another element: the second is not fused.
@lazy.prim_func(s_tir=True)
def in_place_over_two_blocks(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    mid = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            mid[vi] = temp[vi] + D[M - 1 - vi]
    for i in range(M):
        with T.sblock("back"):
            vi = T.axis.spatial(M, i)
            D[vi] = mid[vi] + C[vi]


# The second bias is made after the sum, so the call stops there.
@lazy.prim_func(s_tir=True)
def bias_then_bias_made_late(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    E: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    mid = T.sblock_alloc_buffer((M,), "int32")
    late = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    add_rows(temp, C, mid)
    for i in range(M):
        with T.sblock("make_late"):
            vi = T.axis.spatial(M, i)
            late[vi] = E[vi] * 2
    for i in range(M):
        with T.sblock("add_late"):
            vi = T.axis.spatial(M, i)
            D[vi] = mid[vi] + late[vi]


@lazy.prim_func(s_tir=True)
def single_step(
    A: T.Buffer((M, 1), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, 1):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk] * 3
    add_rows(temp, C, D)


@lazy.prim_func(s_tir=True)
def single_step_without_loop(
    A: T.Buffer((M, 1), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i in range(M):
        with T.sblock("mm"):
            vi = T.axis.spatial(M, i)
            vk = T.axis.reduce(1, 0)
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk] * 3
    add_rows(temp, C, D)


ACCEPT = [
    accepted(
        reference_program, lambda A, B, C: matmul(A, B) + C, "C[vi, vj]", "C[vi, vj]", "impure_bias"
    ),
    accepted(scalar_parameter, lambda A, B, s: A @ B.T + s, "s", "s", "impure_bias"),
    accepted(column_bias, lambda A, B, C: A @ B.T + C, "C[vi, 0]", "C[vi, 0]", "impure_bias"),
    Case(
        name="two_blocks",
        func=two_blocks,
        epilogues=("add", "residual"),
        reference=lambda A, B, C, E: C + (matmul(A, B) + E),
        absorbed=("E[vj]", "C[vi, vj]"),
        init="C[vi, vj] + E[vj]",
        twin="intermediate_changed_between",
    ),
    Case(
        name="three_blocks_transposing",
        func=three_blocks_transposing,
        epilogues=("add", "residual", "back"),
        reference=lambda A, B, C, E: matmul(A, B) + E - C.T,
        absorbed=("E[vj]", "C[vj, vi]", ""),
        init="E[vj] - C[vj, vi]",
        twin="intermediate_changed_between",
    ),
    Case(
        name="bias_then_relu",
        func=bias_then_relu,
        epilogues=("add", "relu"),
        reference=lambda A, B, E: np.maximum(A @ B.T + E, 0),
        absorbed=("E[vj]", ""),
        tails={"relu": "T.max(x, T.float32(0.0))"},
        init="E[vj]",
        twin="bias_made_between",
    ),
    accepted(
        bias_then_bias_made_late,
        lambda A, C, E: row_sums(A) + C + E * 2,
        "C[vi]",
        "C[vi]",
        "bias_made_between",
        stopped="bias-written-between",
    ),
    accepted(
        in_place_over_two_blocks,
        lambda A, C, D: row_sums(A) + D[::-1] + C,
        "D[7 - vi]",
        "D[7 - vi]",
        "in_place_other_element",
        stopped="output-aliases-input",
        **IN_PLACE,
    ),
    accepted(
        residual_of_an_input,
        lambda A, B: A @ B.T + A,
        "A[vi, vj]",
        "A[vi, vj]",
        "output_is_an_input",
    ),
    accepted(
        in_place,
        lambda A, B, D: matmul(A, B) + D,
        "D[vi, vj]",
        "D[vi, vj]",
        "in_place_other_element",
        **IN_PLACE,
    ),
    accepted(
        in_place_transposed_and_biased,
        lambda A, B, E, D: D * 2 + ((A @ B.T).T - E[:, None]),
        "D[vj, vi]",
        "",
        "in_place_transposed_element",
        **IN_PLACE,
    ),
    accepted(
        bias_made_before,
        lambda A, B, E: matmul(A, B) + E * (np.arange(M, dtype="int32")[:, None] + np.int32(1)),
        "bias[vi, vj]",
        "bias[vi, vj]",
        "bias_made_between",
    ),
    accepted(
        other_work_between,
        lambda A, B, C: {"D": matmul(A, B) + C, "F": C * np.int32(3)},
        "C[vi, vj]",
        "C[vi, vj]",
        "bias_overwritten_between",
        **WITH_F,
    ),
    accepted(
        second_of_two_summands,
        lambda A, C: row_sums(A) - row_sums(C),
        "temp[vi]",
        "temp[vi]",
        "first_of_two_summands",
        reduction="mm2",
    ),
    accepted(
        conditional_step,
        lambda A, C: row_sums(np.where(A > 0, A, 0)) + C,
        "C[vi]",
        "C[vi]",
        "condition_on_the_sum",
    ),
    accepted(single_step, lambda A, C: A[:, 0] * 3 + C, "C[vi]", "C[vi]", "unused_reduction_loop"),
    accepted(
        single_step_without_loop,
        lambda A, C: A[:, 0] * 3 + C,
        "C[vi]",
        "C[vi]",
        "unused_reduction_loop",
    ),
]
