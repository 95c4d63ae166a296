"""Refusing programs in which other blocks, or the reduction itself, use or write the output.

They are row sums, ``temp[i] = sum of A[i, k]``: what matters is what else is there.
"""

from __future__ import annotations

import numpy as np
from tvm.script import tirx as T

from . import lazy
from .builders import K, M, add_rows, sum_rows
from .case import IN_PLACE, KEEPING_D, WITH_F, matmul, refused, row_sums


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
    refused(output_declared_read_between, ("output-used-between", "opaque-access")),
    refused(
        output_read_ahead_beside_the_epilogue,
        "output-used-between",
        reference=lambda A, C, D: {"D": np.append(row_sums(A) + C, D[-1:]), "F": D[1:]},
        **KEEPING_D,
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


EITHER = [
    refused(
        output_read_beside_the_epilogue,
        ("output-used-between",),
        reference=lambda A, C: {"D": row_sums(A) + C, "F": (row_sums(A) + C) * 2},
        either=True,
        **WITH_F,
    ),
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
