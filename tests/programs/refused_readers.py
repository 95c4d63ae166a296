"""Refusing programs in which others write the sum, nobody reads it, or somebody reads it later.

They are row sums, ``temp[i] = sum of A[i, k]``: what matters is what else is there.
"""

from __future__ import annotations

import numpy as np
from tvm.script import tirx as T

from . import lazy
from .builders import K, M, add_rows, sum_rows
from .case import WITH_F, refused, row_sums


@lazy.prim_func(s_tir=True)
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


@lazy.prim_func(s_tir=True)
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


@lazy.prim_func(s_tir=True)
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


@lazy.prim_func(s_tir=True)
def nobody_reads_the_sum(A: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32")):
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                D[vi] = 0
            D[vi] = D[vi] + A[vi, vk]


@lazy.prim_func(s_tir=True)
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


# "clip" is the last to stand outside of the loop that carries a sum to the next row.
@lazy.prim_func(s_tir=True)
def sum_of_the_row_before(
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
        with T.sblock("before"):
            vi = T.axis.spatial(M, i)
            F[vi] = T.if_then_else(vi > 0, temp[vi - 1], C[vi])
    for i in range(M):
        with T.sblock("clip"):
            vi = T.axis.spatial(M, i)
            D[vi] = T.max(temp[vi], 0)


def _with_the_row_before(A, C):
    sums = row_sums(A)
    return {"D": np.maximum(sums, 0), "F": np.append(C[:1], sums[:-1])}


REFUSE = [
    refused(
        sum_of_the_row_before,
        "carried-value",
        reference=_with_the_row_before,
        calls=(("mm", "clip"), ("clip",)),
        epilogues=("clip",),
        **WITH_F,
    ),
    refused(
        intermediate_changed_between,
        "other-writer",
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
        two_reductions,
        "wrong-pair",
        reference=lambda A, C: {"D": row_sums(A) + C, "F": C - row_sums(A)},
        calls=(("mm", "add2"), ("mm2", "add")),
        **WITH_F,
    ),
]
