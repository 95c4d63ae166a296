"""Refusing programs with loops in common, or with other statements around the blocks."""

from __future__ import annotations

import numpy as np
from tvm.script import tirx as T

from . import lazy
from .builders import K, M, add_rows, sum_rows
from .case import IN_PLACE, refused, row_sums


@lazy.prim_func(s_tir=True)
def partial_sums_at_the_reduction_loop(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]


@lazy.prim_func(s_tir=True)
def partial_sums_in_the_tile(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i0, k0 in T.grid(M // 4, K // 2):
        for i1, k1 in T.grid(4, 2):
            with T.sblock("mm"):
                vi = T.axis.spatial(M, i0 * 4 + i1)
                vk = T.axis.reduce(K, k0 * 2 + k1)
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
        for i1 in range(4):
            with T.sblock("add"):
                vi = T.axis.spatial(M, i0 * 4 + i1)
                D[vi] = temp[vi] + C[vi]


# Each partial sum is added to the output: not even the last one alone would be right.
@lazy.prim_func(s_tir=True)
def partial_sums_accumulated(A: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32")):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = D[vi] + temp[vi]


# All partial sums end up in the output: the epilogue has the step as a dimension.
@lazy.prim_func(s_tir=True)
def prefix_sums(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M, K), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
        with T.sblock("add"):
            vi, vk = T.axis.remap("SS", [i, k])
            D[vi, vk] = temp[vi] + C[vi]


@lazy.prim_func(s_tir=True)
def previous_row_in_a_shared_loop(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i in range(M + 1):
        for k in range(K):
            with T.sblock("mm"):
                T.where(i < M)
                vi = T.axis.spatial(M, i)
                vk = T.axis.reduce(K, k)
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
        with T.sblock("add"):
            T.where(i >= 1)
            vi = T.axis.spatial(M, i - 1)
            D[vi] = temp[vi] + C[vi]


@lazy.prim_func(s_tir=True)
def reversed_within_a_shared_loop(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i in range(M):
        for k in range(K):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[M - 1 - vi] + C[vi]


@lazy.prim_func(s_tir=True)
def epilogue_first(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    add_rows(temp, C, D)
    sum_rows(A, temp)


# In one loop: row i is consumed before it is summed, that is, as the last time round left it.
@lazy.prim_func(s_tir=True)
def epilogue_first_in_a_shared_loop(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]
        for k in range(K):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]


@lazy.prim_func(s_tir=True)
def conditional_epilogue(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    s: T.int32,
    D: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    if s > 0:
        for i in range(M):
            with T.sblock("add"):
                vi = T.axis.spatial(M, i)
                D[vi] = temp[vi] + C[vi]


@lazy.prim_func(s_tir=True)
def conditional_reduction(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    s: T.int32,
    D: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    if s > 0:
        for i, k in T.grid(M, K):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
    add_rows(temp, C, D)


@lazy.prim_func(s_tir=True)
def condition_inside_the_loops(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        if i < 5:
            with T.sblock("add"):
                vi = T.axis.spatial(M, i)
                D[vi] = temp[vi] + C[vi]


@lazy.prim_func(s_tir=True)
def epilogue_in_a_while_loop(
    A: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32"), rounds: T.Buffer((1,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    while rounds[0] > 0:
        for i in range(M):
            with T.sblock("add"):
                vi = T.axis.spatial(M, i)
                D[vi] = temp[vi] + D[vi]
        with T.sblock("count"):
            rounds[0] = rounds[0] - 1


@lazy.prim_func(s_tir=True)
def epilogue_in_another_scope(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M // 4):
        with T.sblock("outer"):
            vo = T.axis.spatial(M // 4, i)
            for u in range(4):
                with T.sblock("add"):
                    vu = T.axis.spatial(4, u)
                    D[vo * 4 + vu] = temp[vo * 4 + vu] + C[vo * 4 + vu]


@lazy.prim_func(s_tir=True)
def reduction_in_another_scope(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i in range(M // 4):
        with T.sblock("outer"):
            vo = T.axis.spatial(M // 4, i)
            for u, k in T.grid(4, K):
                with T.sblock("mm"):
                    vu, vk = T.axis.remap("SR", [u, k])
                    with T.init():
                        temp[vo * 4 + vu] = 0
                    temp[vo * 4 + vu] = temp[vo * 4 + vu] + A[vo * 4 + vu, vk]
    add_rows(temp, C, D)


# Rows below the limit are summed, but skip the epilogue.
@lazy.prim_func(s_tir=True)
def jump_over_the_epilogue(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i in range(M):
        for k in range(K):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
        if i < 2:
            continue
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]


# The number of rows is read again for the epilogue, and may have changed.
@lazy.prim_func(s_tir=True)
def extents_from_memory(
    A: T.Buffer((M, K), "int32"),
    rows: T.Buffer((1,), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i in range(rows[0]):
        for k in range(K):
            with T.sblock("mm"):
                vi = T.axis.spatial(rows[0], i)
                vk = T.axis.reduce(K, k)
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
    with T.sblock("fewer"):
        rows[0] = rows[0] - 1
    for i in range(rows[0]):
        with T.sblock("add"):
            vi = T.axis.spatial(rows[0], i)
            D[vi] = temp[vi] + C[vi]


@lazy.prim_func(s_tir=True)
def predicate_of_a_parameter(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    s: T.int32,
    D: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            T.where(s > 0)
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]


# The annotation numbers the statements of the loop, of which one would be gone.
@lazy.prim_func(s_tir=True)
def software_pipelined(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i in T.serial(
        M,
        annotations={"software_pipeline_stage": [0, 0], "software_pipeline_order": [0, 1]},
    ):
        for k in range(K):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]


# The bias is a variable that has its value only after the sum.
@lazy.prim_func(s_tir=True)
def bias_bound_between(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    bias: T.let[T.int32] = C[0] * 2
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + bias


@lazy.prim_func(s_tir=True)
def bias_bound_in_the_loop(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        bias: T.let[T.int32] = C[i] * 2
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + bias


REFUSE = [
    *[
        refused(func, "shared-loops", reference=lambda A, C: row_sums(A) + C)
        for func in (partial_sums_at_the_reduction_loop, partial_sums_in_the_tile)
    ],
    refused(
        partial_sums_accumulated,
        "shared-loops",
        reference=lambda A, D: D + row_sums(np.cumsum(A, axis=1, dtype="int32")),
        **IN_PLACE,
    ),
    refused(
        prefix_sums,
        ("shared-loops", "index-map"),
        reference=lambda A, C: np.cumsum(A, axis=1, dtype="int32") + C[:, None],
    ),
    # TVM keeps one row of an intermediate that is used in one loop only, so what the next three
    # compute is not defined.
    refused(previous_row_in_a_shared_loop, ("shared-loops", "consumer-domain")),
    refused(reversed_within_a_shared_loop, "shared-loops"),
    refused(epilogue_first, "order"),
    refused(epilogue_first_in_a_shared_loop, "order"),
    refused(conditional_epilogue, "structure"),
    refused(conditional_reduction, "structure"),
    refused(condition_inside_the_loops, "structure"),
    refused(
        epilogue_in_a_while_loop,
        "structure",
        outputs=(),
        updates=("D", "rounds"),
    ),
    refused(software_pipelined, "structure"),
    refused(jump_over_the_epilogue, "structure"),
    refused(extents_from_memory, ("reduction-domain", "consumer-domain", "domain")),
    refused(predicate_of_a_parameter, "consumer-domain"),
    refused(
        epilogue_in_another_scope,
        "structure",
        reference=lambda A, C: row_sums(A) + C,
    ),
    refused(
        reduction_in_another_scope,
        ("structure", "no-consumer"),
        reference=lambda A, C: row_sums(A) + C,
    ),
    refused(
        bias_bound_between,
        ("structure", "bias-written-between"),
        reference=lambda A, C: row_sums(A) + C[0] * np.int32(2),
    ),
    refused(
        bias_bound_in_the_loop,
        ("structure", "bias-written-between"),
        reference=lambda A, C: row_sums(A) + C * 2,
    ),
]


# Here it has its value before the sum.
@lazy.prim_func(s_tir=True)
def bias_bound_before(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    bias: T.let[T.int32] = C[0] * 2
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + bias


EITHER = [
    refused(
        bias_bound_before,
        ("structure", "bias-written-between"),
        reference=lambda A, C: row_sums(A) + C[0] * np.int32(2),
        either=True,
    ),
]
