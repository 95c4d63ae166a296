"""Refusing programs whose epilogue block or its loops do not fit the reduction.

Most are the same row sum, ``temp[i] = sum of A[i, k]``, with something else around it.
"""

from __future__ import annotations

from tvm.script import tirx as T

from . import lazy
from .builders import K, M, N, sum_rows
from .case import IN_PLACE, WITH_F, refused, row_sums


@lazy.prim_func(s_tir=True)
def output_element_collides(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((1,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[0] = temp[vi] + C[vi]


@lazy.prim_func(s_tir=True)
def running_total(A: T.Buffer((M, K), "int32"), D: T.Buffer((1,), "int32")):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[0] = D[0] + temp[vi]


# Every element is updated twice.
@lazy.prim_func(s_tir=True)
def unused_epilogue_loop(A: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32")):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i, _ in T.grid(M, 2):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = D[vi] + temp[vi]


@lazy.prim_func(s_tir=True)
def epilogue_instance_repeated(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M * 2):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i // 2)
            D[vi] = temp[vi] + C[vi]


@lazy.prim_func(s_tir=True)
def second_reduction_consumes(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M, N), "int32"), D: T.Buffer((N,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for j, i in T.grid(N, M):
        with T.sblock("add"):
            vj, vi = T.axis.remap("SR", [j, i])
            with T.init():
                D[vj] = 0
            D[vj] = D[vj] + temp[vi] * C[vi, vj]


@lazy.prim_func(s_tir=True)
def two_stores_in_the_epilogue(
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
            F[vi] = C[vi]


@lazy.prim_func(s_tir=True)
def conditional_store(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            if C[vi] > 0:
                D[vi] = temp[vi] + C[vi]


@lazy.prim_func(s_tir=True)
def loop_inside_the_epilogue(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M // 4):
        with T.sblock("add"):
            vi = T.axis.spatial(M // 4, i)
            for u in range(4):
                D[vi * 4 + u] = temp[vi * 4 + u] + C[vi * 4 + u]


@lazy.prim_func(s_tir=True)
def scan_like_epilogue(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.scan(M, i)
            D[vi] = temp[vi] + C[vi]


# As many rows as an int32 counts, in int64. The number is not known here; that it fits follows from
# its type alone.
@lazy.prim_func(s_tir=True)
def mixed_index_types(a: T.handle, c: T.handle, d: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n, K), "int32")
    C = T.match_buffer(c, (n,), "int32")
    D = T.match_buffer(d, (n,), "int32")
    temp = T.sblock_alloc_buffer((n,), "int32")
    for i, k in T.grid(T.Cast("int64", n), T.int64(K)):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(n):
        with T.sblock("add"):
            vi = T.axis.spatial(n, i)
            D[vi] = temp[vi] + C[vi]


# The sum says where to store, not what.
@lazy.prim_func(s_tir=True)
def sum_as_store_index(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[T.floormod(temp[vi], M)] = C[vi]


@lazy.prim_func(s_tir=True)
def predicate_on_the_sum(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            T.where(temp[i] > 0)
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]


@lazy.prim_func(s_tir=True)
def masked_epilogue(
    A: T.Buffer((M, K), "int32"),
    mask: T.Buffer((M,), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            T.where(mask[i] > 0)
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]


# The predicate cuts off the end of the last tile, as it should, and a row of every tile.
@lazy.prim_func(s_tir=True)
def predicate_with_holes(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i0, i1 in T.grid(3, 3):
        with T.sblock("add"):
            T.where(i0 * 3 + i1 < M and i1 < 2)
            vi = T.axis.spatial(M, i0 * 3 + i1)
            D[vi] = temp[vi] + C[vi]


# The block has all rows, its loop goes over some.
@lazy.prim_func(s_tir=True)
def epilogue_rows_left_out(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M - 2):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]


REFUSE = [
    refused(output_element_collides, "output-write"),
    refused(
        running_total,
        ("output-write", "output-aliases-input"),
        reference=lambda A, D: D + A.sum(dtype="int32"),
        **IN_PLACE,
    ),
    refused(
        unused_epilogue_loop,
        "consumer-domain",
        reference=lambda A, D: D + 2 * row_sums(A),
        **IN_PLACE,
    ),
    refused(
        epilogue_instance_repeated,
        "consumer-domain",
        reference=lambda A, C: row_sums(A) + C,
    ),
    refused(sum_as_store_index, ("output-write", "consumer-form", "index-map")),
    refused(predicate_on_the_sum, ("consumer-domain", "consumer-form")),
    refused(masked_epilogue, "consumer-domain"),
    refused(predicate_with_holes, "consumer-domain"),
    refused(epilogue_rows_left_out, "consumer-domain"),
    refused(
        two_stores_in_the_epilogue,
        "consumer-form",
        reference=lambda A, C: {"D": row_sums(A) + C, "F": C},
        **WITH_F,
    ),
    refused(second_reduction_consumes, "consumer-form"),
    refused(conditional_store, "consumer-form"),
    refused(loop_inside_the_epilogue, "consumer-form"),
    refused(scan_like_epilogue, "consumer-form"),
    refused(
        mixed_index_types,
        "index-type",
        sizes=({"n": 5}, {"n": 1}),
        reference=lambda A, C: row_sums(A) + C,
    ),
]


# Four elements at once. Fusing needs an index map over vectors.
@lazy.prim_func(s_tir=True)
def epilogue_on_vectors(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M // 4):
        with T.sblock("add"):
            vi = T.axis.spatial(M // 4, i)
            D[T.ramp(vi * 4, 1, 4)] = temp[T.ramp(vi * 4, 1, 4)] + C[T.ramp(vi * 4, 1, 4)]


EITHER = [
    refused(
        epilogue_on_vectors,
        ("output-write", "index-map", "consumer-form"),
        reference=lambda A, C: row_sums(A) + C,
        either=True,
    ),
]
