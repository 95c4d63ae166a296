"""Refusing programs in which others read or write the sum, or nobody can.

They are row sums, ``temp[i] = sum of A[i, k]``: what matters is what else is there.
"""

from __future__ import annotations

from tvm.script import tirx as T

from .builders import K, M, add_rows, sum_rows
from .case import WITH_F, refused, row_sums


@T.prim_func(s_tir=True)
def intermediate_read_twice(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
    F: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    add_rows(temp, C, D)
    for i in range(M):
        with T.sblock("other"):
            vi = T.axis.spatial(M, i)
            F[vi] = temp[vi] + C[vi]


@T.prim_func(s_tir=True)
def intermediate_read_by_a_reduction(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
    F: T.Buffer((1,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    add_rows(temp, C, D)
    for i in range(M):
        with T.sblock("total"):
            vi = T.axis.reduce(M, i)
            with T.init():
                F[0] = 0
            F[0] = F[0] + temp[vi]


# The other reader stands inside another block, where its read is not the outer block's own.
@T.prim_func(s_tir=True)
def intermediate_read_in_an_inner_block(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
    F: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    add_rows(temp, C, D)
    for i in range(M // 4):
        with T.sblock("outer"):
            vo = T.axis.spatial(M // 4, i)
            for u in range(4):
                with T.sblock("inner"):
                    vu = T.axis.spatial(4, u)
                    F[vo * 4 + vu] = temp[vo * 4 + vu]


@T.prim_func(s_tir=True)
def intermediate_changed_between(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("change"):
            vi = T.axis.spatial(M, i)
            temp[vi] = temp[vi] * 2
    add_rows(temp, C, D)


@T.prim_func(s_tir=True)
def intermediate_overwritten_between(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(2):
        with T.sblock("change"):
            vi = T.axis.spatial(2, i)
            temp[vi] = C[vi]
    add_rows(temp, C, D)


@T.prim_func(s_tir=True)
def intermediate_filled_before(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i in range(M):
        with T.sblock("fill"):
            vi = T.axis.spatial(M, i)
            temp[vi] = C[vi]
    sum_rows(A, temp)
    add_rows(temp, C, D)


@T.prim_func(s_tir=True)
def nobody_reads_the_sum(A: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32")):
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                D[vi] = 0
            D[vi] = D[vi] + A[vi, vk]


@T.prim_func(s_tir=True)
def sum_is_a_parameter(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
    temp: T.Buffer((M,), "int32"),
):
    sum_rows(A, temp)
    add_rows(temp, C, D)


@T.prim_func(s_tir=True)
def allocated_outside(
    A: T.Buffer((4, M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((4, M), "int32")
):
    temp = T.sblock_alloc_buffer((4, M), "int32")
    for b in range(4):
        with T.sblock("batch"):
            vb = T.axis.spatial(4, b)
            T.reads(A[vb, 0:M, 0:K], C[0:M])
            T.writes(temp[vb, 0:M], D[vb, 0:M])
            for i, k in T.grid(M, K):
                with T.sblock("mm"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        temp[vb, vi] = 0
                    temp[vb, vi] = temp[vb, vi] + A[vb, vi, vk]
            for i in range(M):
                with T.sblock("add"):
                    vi = T.axis.spatial(M, i)
                    D[vb, vi] = temp[vb, vi] + C[vi]


@T.prim_func(s_tir=True)
def two_reductions(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
    F: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    temp2 = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i, k in T.grid(M, K):
        with T.sblock("mm2"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp2[vi] = 0
            temp2[vi] = temp2[vi] - A[vi, vk]
    add_rows(temp, C, D)
    for i in range(M):
        with T.sblock("add2"):
            vi = T.axis.spatial(M, i)
            F[vi] = temp2[vi] + C[vi]


REFUSE = [
    refused(
        intermediate_read_twice,
        "other-reader",
        reference=lambda A, C: {"D": row_sums(A) + C, "F": row_sums(A) + C},
        **WITH_F,
    ),
    refused(
        intermediate_read_by_a_reduction,
        "other-reader",
        reference=lambda A, C: {"D": row_sums(A) + C, "F": A.sum(dtype="int32").reshape(1)},
        **WITH_F,
    ),
    refused(
        intermediate_read_in_an_inner_block,
        "other-reader",
        reference=lambda A, C: {"D": row_sums(A) + C, "F": row_sums(A)},
        **WITH_F,
    ),
    refused(
        intermediate_changed_between,
        ("other-writer", "other-reader"),
        reference=lambda A, C: 2 * row_sums(A) + C,
    ),
    refused(intermediate_overwritten_between, "other-writer"),
    refused(
        intermediate_filled_before,
        "other-writer",
        reference=lambda A, C: row_sums(A) + C,
    ),
    refused(nobody_reads_the_sum, "no-consumer", calls=(("mm",),)),
    refused(
        sum_is_a_parameter,
        "intermediate-escapes",
        outputs=("D", "temp"),
        reference=lambda A, C: {"D": row_sums(A) + C, "temp": row_sums(A)},
    ),
    refused(
        allocated_outside,
        "intermediate-escapes",
        reference=lambda A, C: A.sum(axis=2, dtype="int32") + C,
    ),
    refused(
        two_reductions,
        "wrong-pair",
        reference=lambda A, C: {"D": row_sums(A) + C, "F": C - row_sums(A)},
        calls=(("mm", "add2"), ("mm2", "add")),
        **WITH_F,
    ),
]
