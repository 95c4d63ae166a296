"""Refusing programs in which other blocks write the bias, or use the output, in between.

They are row sums, ``temp[i] = sum of A[i, k]``: what matters is what else is there.
"""

from __future__ import annotations

import numpy as np
from tvm.script import tirx as T

from . import lazy
from .builders import K, M, add_rows, sum_rows
from .case import IN_PLACE, KEEPING_D, WITH_F, matmul, refused, row_sums


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


@lazy.prim_func(s_tir=True)
def output_declared_read_between(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    with T.sblock("look"):
        T.reads(D[0:M])
        T.writes()
        T.evaluate(T.call_extern("int32", "abs", 3))
    add_rows(temp, C, D)


# Beside the epilogue, each row's old value of the next row is kept.
@lazy.prim_func(s_tir=True)
def output_read_ahead_beside_the_epilogue(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M + 1,), "int32"),
    F: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]
        with T.sblock("ahead"):
            vi = T.axis.spatial(M, i)
            F[vi] = D[vi + 1]


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


@lazy.prim_func(s_tir=True)
def output_read_between(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
    F: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("keep"):
            vi = T.axis.spatial(M, i)
            F[vi] = D[vi]
    add_rows(temp, C, D)


# In each row the old value is kept after the sum, before the epilogue replaces it.
@lazy.prim_func(s_tir=True)
def output_read_between_in_a_shared_loop(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
    F: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i in range(M):
        for k in range(K):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
        with T.sblock("keep"):
            vi = T.axis.spatial(M, i)
            F[vi] = D[vi]
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]


# The loop over i is shared with a block before the sum, which reads a later row's old output.
@lazy.prim_func(s_tir=True)
def output_of_an_earlier_row_read_before_the_sum(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
    F: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i in range(M):
        with T.sblock("keep"):
            vi = T.axis.spatial(M, i)
            F[vi] = D[M - 1 - vi]
        for k in range(K):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
    add_rows(temp, C, D)


@lazy.prim_func(s_tir=True)
def output_written_between(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M + 1,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M + 1):
        with T.sblock("zero"):
            vi = T.axis.spatial(M + 1, i)
            D[vi] = 0
    add_rows(temp, C, D)


@lazy.prim_func(s_tir=True)
def output_changed_after(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    add_rows(temp, C, D)
    for i in range(2):
        with T.sblock("change"):
            vi = T.axis.spatial(2, i)
            D[vi] = C[vi]


@lazy.prim_func(s_tir=True)
def output_is_an_input(D: T.Buffer((M, M), "int32"), B: T.Buffer((M, M), "int32")):
    temp = T.sblock_alloc_buffer((M, M), "int32")
    for i, j, k in T.grid(M, M, M):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + D[vi, vk] * B[vj, vk]
    for i, j in T.grid(M, M):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + B[vi, vj]


# The reduction reads just the element it will be stored to, but at every step.
@lazy.prim_func(s_tir=True)
def output_read_at_every_step(A: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32")):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk] * D[vi]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + 1


@lazy.prim_func(s_tir=True)
def init_reads_the_output(A: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32")):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = D[M - 1 - vi]
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + 1


@lazy.prim_func(s_tir=True)
def in_place_other_element(A: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32")):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + D[M - 1 - vi]


@lazy.prim_func(s_tir=True)
def in_place_transposed_element(
    A: T.Buffer((M, K), "int32"), B: T.Buffer((M, K), "int32"), D: T.Buffer((M, M), "int32")
):
    temp = T.sblock_alloc_buffer((M, M), "int32")
    for i, j, k in T.grid(M, M, K):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + A[vi, vk] * B[vj, vk]
    for i, j in T.grid(M, M):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + D[vj, vi]


@lazy.prim_func(s_tir=True)
def in_place_broadcast(A: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32")):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + (D[vi] + D[0])


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
    refused(output_declared_read_between, ("output-used-between", "opaque-access")),
    refused(
        output_read_ahead_beside_the_epilogue,
        "output-used-between",
        reference=lambda A, C, D: {"D": np.append(row_sums(A) + C, D[-1:]), "F": D[1:]},
        **KEEPING_D,
    ),
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
    *[
        refused(
            func,
            "output-used-between",
            reference=lambda A, C, D: {"D": row_sums(A) + C, "F": D},
            **KEEPING_D,
        )
        for func in (output_read_between, output_read_between_in_a_shared_loop)
    ],
    refused(
        output_of_an_earlier_row_read_before_the_sum,
        "output-used-between",
        reference=lambda A, C, D: {"D": row_sums(A) + C, "F": D[::-1]},
        **KEEPING_D,
    ),
    refused(
        output_written_between,
        ("output-writers", "output-used-between"),
        reference=lambda A, C: np.append(row_sums(A) + C, np.int32(0)),
    ),
    refused(
        output_changed_after,
        "output-writers",
        reference=lambda A, C: np.append(C[:2], (row_sums(A) + C)[2:]),
    ),
    refused(
        output_is_an_input,
        "output-aliases-input",
        reference=lambda D, B: matmul(D, B) + B,
        **IN_PLACE,
    ),
    refused(
        output_read_at_every_step,
        "output-aliases-input",
        reference=lambda A, D: row_sums(A) * D + 1,
        **IN_PLACE,
    ),
    refused(
        init_reads_the_output,
        "output-aliases-input",
        reference=lambda A, D: D[::-1] + row_sums(A) + 1,
        **IN_PLACE,
    ),
    # The epilogues of the next three read what an earlier instance of them may have written:
    # their order matters, and numpy has none.
    refused(in_place_other_element, "output-aliases-input", **IN_PLACE),
    refused(in_place_transposed_element, "output-aliases-input", **IN_PLACE),
    refused(in_place_broadcast, "output-aliases-input", **IN_PLACE),
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


# The sum starts from the element it ends up in, which nobody else reads.
@lazy.prim_func(s_tir=True)
def init_reads_the_same_element(A: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32")):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = D[vi]
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + 1


# The output's halves have one writer each.
@lazy.prim_func(s_tir=True)
def output_in_two_halves(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M * 2,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    add_rows(temp, C, D)
    for i in range(M):
        with T.sblock("upper"):
            vi = T.axis.spatial(M, i)
            D[vi + M] = C[vi]


# Beside the epilogue, each row is used as soon as it is finished.
@lazy.prim_func(s_tir=True)
def output_read_beside_the_epilogue(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
    F: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]
        with T.sblock("use"):
            vi = T.axis.spatial(M, i)
            F[vi] = D[vi] * 2


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
        output_read_beside_the_epilogue,
        ("output-used-between",),
        reference=lambda A, C: {"D": row_sums(A) + C, "F": (row_sums(A) + C) * 2},
        either=True,
        **WITH_F,
    ),
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
    refused(
        init_reads_the_same_element,
        "output-aliases-input",
        reference=lambda A, D: D + row_sums(A) + 1,
        either=True,
        **IN_PLACE,
    ),
    refused(
        output_in_two_halves,
        "output-writers",
        reference=lambda A, C: np.append(row_sums(A) + C, C),
        either=True,
    ),
]
