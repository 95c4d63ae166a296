"""Refusing programs in which other blocks write the bias in between.

They are row sums, ``temp[i] = sum of A[i, k]``: what matters is what else is there.
"""

from __future__ import annotations

import numpy as np
from tvm.script import tirx as T

from . import lazy
from .builders import K, M, add_rows, sum_rows
from .case import refused, row_sums


@lazy.prim_func(s_tir=True)
def bias_made_between(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    bias = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("make_bias"):
            vi = T.axis.spatial(M, i)
            bias[vi] = C[vi] * 2
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + bias[vi]


@lazy.prim_func(s_tir=True)
def bias_made_between_in_a_shared_loop(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    bias = T.sblock_alloc_buffer((M,), "int32")
    for i in range(M):
        for k in range(K):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
        with T.sblock("make_bias"):
            vi = T.axis.spatial(M, i)
            bias[vi] = C[vi] * 2
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + bias[vi]


@lazy.prim_func(s_tir=True)
def bias_overwritten_between(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("double_bias"):
            vi = T.axis.spatial(M, i)
            C[vi] = C[vi] * 2
    add_rows(temp, C, D)


# The bias is a second sum that is ready only after the first.
@lazy.prim_func(s_tir=True)
def bias_reduced_between(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    bias = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i, k in T.grid(M, K):
        with T.sblock("make_bias"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                bias[vi] = 0
            bias[vi] = bias[vi] + C[vi, vk]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + bias[vi]


# Both sums and the bias's producer share the loop over i; the bias of row i is made in iteration
# i, but after the sum.
@lazy.prim_func(s_tir=True)
def bias_index_made_between(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    where = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("make_index"):
            vi = T.axis.spatial(M, i)
            where[vi] = M - 1 - vi
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[where[vi]]


# The reduction consumes what is made in the same iteration of its own inner loops: the bias is
# complete when the epilogue reads it, but not yet when T.init would.
@lazy.prim_func(s_tir=True)
def bias_made_inside_the_reduction_loops(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    bias = T.sblock_alloc_buffer((M,), "int32")
    for i in range(M):
        for k in range(K):
            with T.sblock("make_bias"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    bias[vi] = 0
                bias[vi] = bias[vi] + C[vi, vk]
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + bias[vi]


# The sum is the first of two summands: the second is ready only later.
@lazy.prim_func(s_tir=True)
def first_of_two_summands(
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


# What a block declares counts, whether or not its body shows it (here a call that hides it).
@lazy.prim_func(s_tir=True)
def bias_declared_written_between(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    with T.sblock("fill"):
        T.reads()
        T.writes(C[0:M])
        T.evaluate(T.call_extern("int32", "abs", 3))
    add_rows(temp, C, D)


# The bias of each row is made in the loop of the sum, before it, but in the opposite order: half
# of the rows are summed before their bias is there.
@lazy.prim_func(s_tir=True)
def bias_made_in_reverse_beside_the_sum(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    bias = T.sblock_alloc_buffer((M,), "int32")
    for i in range(M):
        with T.sblock("make_bias"):
            vi = T.axis.spatial(M, M - 1 - i)
            bias[vi] = C[vi] * 2
        for k in range(K):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + bias[vi]


REFUSE = [
    *[
        refused(func, "bias-written-between", reference=lambda A, C: row_sums(A) + C * 2)
        for func in (
            bias_made_between,
            bias_made_between_in_a_shared_loop,
            bias_made_in_reverse_beside_the_sum,
        )
    ],
    refused(
        bias_overwritten_between,
        "bias-written-between",
        reference=lambda A, C: {"D": row_sums(A) + C * 2, "C": C * 2},
        updates=("C",),
    ),
    refused(
        bias_reduced_between,
        "bias-written-between",
        reference=lambda A, C: row_sums(A) + row_sums(C),
    ),
    refused(
        first_of_two_summands,
        "bias-written-between",
        reference=lambda A, C: row_sums(A) - row_sums(C),
    ),
    refused(bias_declared_written_between, ("bias-written-between", "opaque-access")),
    refused(
        bias_index_made_between,
        "bias-written-between",
        reference=lambda A, C: row_sums(A) + C[::-1],
    ),
    refused(
        bias_made_inside_the_reduction_loops,
        "bias-written-between",
        reference=lambda A, C: row_sums(A) + row_sums(C),
    ),
]


# The bias of a row is made in the same iteration, before the sum: nothing comes between.
@lazy.prim_func(s_tir=True)
def bias_made_first_in_a_shared_loop(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    bias = T.sblock_alloc_buffer((M,), "int32")
    for i in range(M):
        with T.sblock("make_bias"):
            vi = T.axis.spatial(M, i)
            bias[vi] = C[vi] * 2
        for k in range(K):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + bias[vi]


# As before, but the epilogue comes after the loop. T.init of row i still runs after bias i.
@lazy.prim_func(s_tir=True)
def bias_made_row_by_row_before(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    bias = T.sblock_alloc_buffer((M,), "int32")
    for i in range(M):
        with T.sblock("make_bias"):
            vi = T.axis.spatial(M, i)
            bias[vi] = C[vi] * 2
        for k in range(K):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + bias[vi]


# Each round starts from what the last one left in the bias; within a round nothing comes between.
@lazy.prim_func(s_tir=True)
def bias_carried_from_round_to_round(
    A: T.Buffer((3, M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((3, M), "int32")
):
    temp = T.sblock_alloc_buffer((3, M), "int32")
    for r in range(3):
        for i, k in T.grid(M, K):
            with T.sblock("mm"):
                vr, vi, vk = T.axis.remap("SSR", [r, i, k])
                with T.init():
                    temp[vr, vi] = 0
                temp[vr, vi] = temp[vr, vi] + A[vr, vi, vk]
        for i in range(M):
            with T.sblock("add"):
                vr, vi = T.axis.remap("SS", [r, i])
                D[vr, vi] = temp[vr, vi] + C[vi]
        for i in range(M):
            with T.sblock("carry"):
                vr, vi = T.axis.remap("SS", [r, i])
                C[vi] = D[vr, vi]


def _rounds(A, C):
    out = np.empty((3, M), "int32")
    for r in range(3):
        out[r] = C = row_sums(A[r]) + C
    return {"D": out, "C": C}


EITHER = [
    refused(
        bias_carried_from_round_to_round,
        ("bias-written-between", "output-used-between"),
        reference=_rounds,
        updates=("C",),
        either=True,
    ),
    *[
        refused(
            func,
            "bias-written-between",
            reference=lambda A, C: row_sums(A) + C * 2,
            either=True,
        )
        for func in (bias_made_first_in_a_shared_loop, bias_made_row_by_row_before)
    ],
]
