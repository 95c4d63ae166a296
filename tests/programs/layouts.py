"""Accepting programs in which the epilogue goes over the elements in its own way."""

from __future__ import annotations

import numpy as np
from tvm.script import tirx as T

from . import lazy
from .builders import K, M, N, sum_products
from .case import Case, accepted, matmul


@lazy.prim_func(s_tir=True)
def transposed_read(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    C: T.Buffer((N, M), "int32"),
    D: T.Buffer((N, M), "int32"),
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    sum_products(A, B, temp)
    for i, j in T.grid(N, M):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vj, vi] + C[vi, vj]


@lazy.prim_func(s_tir=True)
def transposed_write(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    C: T.Buffer((M, N), "int32"),
    D: T.Buffer((N, M), "int32"),
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    sum_products(A, B, temp)
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vj, vi] = temp[vi, vj] + C[vi, vj]


# Square, so that an index swapped by mistake stays inside the buffers.
@lazy.prim_func(s_tir=True)
def transposed_square(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((M, K), "int8"),
    C: T.Buffer((M, M), "int32"),
    D: T.Buffer((M, M), "int32"),
):
    temp = T.sblock_alloc_buffer((M, M), "int32")
    for i, j, k in T.grid(M, M, K):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for i, j in T.grid(M, M):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vj, vi] + C[vi, vj]


@lazy.prim_func(s_tir=True)
def block_variables_swapped(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    C: T.Buffer((M, N), "int32"),
    D: T.Buffer((M, N), "int32"),
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    for i, j, k in T.grid(M, N, K):
        with T.sblock("mm"):
            vj = T.axis.spatial(N, j)
            vk = T.axis.reduce(K, k)
            vi = T.axis.spatial(M, i)
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for j, i in T.grid(N, M):
        with T.sblock("add"):
            vj = T.axis.spatial(N, j)
            vi = T.axis.spatial(M, i)
            D[vi, vj] = temp[vi, vj] + C[vi, vj]


@lazy.prim_func(s_tir=True)
def permuted_three_axes(
    A: T.Buffer((2, 3, K), "int8"),
    B: T.Buffer((5, K), "int8"),
    C: T.Buffer((5, 2, 3), "int32"),
    D: T.Buffer((3, 5, 2), "int32"),
):
    temp = T.sblock_alloc_buffer((2, 3, 5), "int32")
    for a, b, c, k in T.grid(2, 3, 5, K):
        with T.sblock("mm"):
            va, vb, vc, vk = T.axis.remap("SSSR", [a, b, c, k])
            with T.init():
                temp[va, vb, vc] = 0
            temp[va, vb, vc] = temp[va, vb, vc] + T.Cast("int32", A[va, vb, vk]) * T.Cast(
                "int32", B[vc, vk]
            )
    for x, y, z in T.grid(5, 2, 3):
        with T.sblock("add"):
            vx, vy, vz = T.axis.remap("SSS", [x, y, z])
            D[vz, vx, vy] = temp[vy, vz, vx] + C[vx, vy, vz]


@lazy.prim_func(s_tir=True)
def flat_epilogue(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((16, K), "int8"),
    C: T.Buffer((M * 16,), "int32"),
    D: T.Buffer((M * 16,), "int32"),
):
    temp = T.sblock_alloc_buffer((M, 16), "int32")
    for i, j, k in T.grid(M, 16, K):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for f in T.serial(M * 16):
        with T.sblock("add"):
            v = T.axis.spatial(M * 16, f)
            D[v] = temp[v // 16, v % 16] + C[v]


@lazy.prim_func(s_tir=True)
def flat_epilogue_transposing(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    C: T.Buffer((M * N,), "int32"),
    D: T.Buffer((M * N,), "int32"),
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    sum_products(A, B, temp)
    for f in T.serial(M * N):
        with T.sblock("add"):
            v = T.axis.spatial(M * N, f)
            D[v] = temp[v % M, v // M] + C[v]


@lazy.prim_func(s_tir=True)
def splitting_epilogue(
    A: T.Buffer((24, K), "int8"),
    B: T.Buffer((K,), "int8"),
    C: T.Buffer((4, 6), "int32"),
    D: T.Buffer((6, 4), "int32"),
):
    temp = T.sblock_alloc_buffer((24,), "int32")
    for i, k in T.grid(24, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vk])
    for i0, i1 in T.grid(6, 4):
        with T.sblock("add"):
            v0, v1 = T.axis.remap("SS", [i0, i1])
            D[v0, v1] = temp[v0 * 4 + v1] + C[v1, v0]


@lazy.prim_func(s_tir=True)
def unit_axis_of_the_intermediate(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    C: T.Buffer((N,), "int32"),
    D: T.Buffer((M, N), "int32"),
):
    temp = T.sblock_alloc_buffer((M, 1, N), "int32")
    for i, u, j, k in T.grid(M, 1, N, K):
        with T.sblock("mm"):
            vi, vu, vj, vk = T.axis.remap("SSSR", [i, u, j, k])
            with T.init():
                temp[vi, vu, vj] = 0
            temp[vi, vu, vj] = temp[vi, vu, vj] + T.Cast("int32", A[vi, vk]) * T.Cast(
                "int32", B[vj, vk]
            )
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, 0, vj] + C[vj]


@lazy.prim_func(s_tir=True)
def unit_axis_added(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    C: T.Buffer((1, N), "int32"),
    D: T.Buffer((M, 1, N, 1), "int32"),
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    sum_products(A, B, temp)
    for i, u, j in T.grid(M, 1, N):
        with T.sblock("add"):
            vi, vu, vj = T.axis.remap("SSS", [i, u, j])
            D[vi, vu, vj, 0] = temp[vi, vj] + C[vu, vj]


@lazy.prim_func(s_tir=True)
def unit_row(
    A: T.Buffer((1, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    C: T.Buffer((1, N), "int32"),
    D: T.Buffer((1, N), "int32"),
):
    temp = T.sblock_alloc_buffer((1, N), "int32")
    for j, k in T.grid(N, K):
        with T.sblock("mm"):
            vi = T.axis.spatial(1, 0)
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for i, j in T.grid(1, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + C[vi, vj]


@lazy.prim_func(s_tir=True)
def reversed_read(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    C: T.Buffer((M, N), "int32"),
    D: T.Buffer((M, N), "int32"),
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    sum_products(A, B, temp)
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[M - 1 - vi, vj] + C[vi, vj]


@lazy.prim_func(s_tir=True)
def reversed_write(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    C: T.Buffer((M, N), "int32"),
    D: T.Buffer((M, N), "int32"),
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    sum_products(A, B, temp)
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, N - 1 - vj] = temp[vi, vj] + C[vi, vj]


@lazy.prim_func(s_tir=True)
def reversed_loop(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    C: T.Buffer((M, N), "int32"),
    D: T.Buffer((M, N), "int32"),
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    for i, j, k in T.grid(M, N, K):
        with T.sblock("mm"):
            vi = T.axis.spatial(M, M - 1 - i)
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + C[vi, vj]


# Rows 2 to 9 of a larger intermediate are computed and consumed; D and C start elsewhere.
@lazy.prim_func(s_tir=True)
def offset_domains(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    C: T.Buffer((M + 1, N), "int32"),
    D: T.Buffer((M, N), "int32"),
):
    temp = T.sblock_alloc_buffer((M + 4, N), "int32")
    for i, j, k in T.grid(M, N, K):
        with T.sblock("mm"):
            vi = T.axis.spatial((2, M + 2), i + 2)
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + T.Cast("int32", A[vi - 2, vk]) * T.Cast(
                "int32", B[vj, vk]
            )
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi + 2, vj] + C[vi + 1, vj]


@lazy.prim_func(s_tir=True)
def offset_loops(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    C: T.Buffer((M, N), "int32"),
    D: T.Buffer((M, N), "int32"),
):
    temp = T.sblock_alloc_buffer((M + 3, N), "int32")
    for i in T.serial(3, M + 3):
        for j, k in T.grid(N, K):
            with T.sblock("mm"):
                vi = T.axis.spatial((3, M + 3), i)
                vj, vk = T.axis.remap("SR", [j, k])
                with T.init():
                    temp[vi, vj] = 0
                temp[vi, vj] = temp[vi, vj] + T.Cast("int32", A[vi - 3, vk]) * T.Cast(
                    "int32", B[vj, vk]
                )
    for i in T.serial(3, M + 3):
        for j in T.serial(1, N + 1):
            with T.sblock("add"):
                vi = T.axis.spatial((3, M + 3), i)
                vj = T.axis.spatial((1, N + 1), j)
                D[vi - 3, vj - 1] = temp[vi, vj - 1] + C[vi - 3, vj - 1]


# D has a border that nobody writes.
@lazy.prim_func(s_tir=True)
def inside_a_larger_output(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    C: T.Buffer((M, N), "int32"),
    D: T.Buffer((M + 2, N + 3), "int32"),
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    sum_products(A, B, temp)
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi + 1, vj + 2] = temp[vi, vj] + C[vi, vj]


@lazy.prim_func(s_tir=True)
def reduction_over_fused_loop(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    C: T.Buffer((M, N), "int32"),
    D: T.Buffer((M, N), "int32"),
):
    temp = T.sblock_alloc_buffer((M * N,), "int32")
    for f, k in T.grid(M * N, K):
        with T.sblock("mm"):
            vf, vk = T.axis.remap("SR", [f, k])
            with T.init():
                temp[vf] = 0
            temp[vf] = temp[vf] + T.Cast("int32", A[vf // N, vk]) * T.Cast("int32", B[vf % N, vk])
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi * N + vj] + C[vi, vj]


# The reduction's own store is not at its plain block variables.
@lazy.prim_func(s_tir=True)
def reduction_storing_transposed(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    C: T.Buffer((M, N), "int32"),
    D: T.Buffer((M, N), "int32"),
):
    temp = T.sblock_alloc_buffer((N, M + 1), "int32")
    for i, j, k in T.grid(M, N, K):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vj, vi + 1] = 0
            temp[vj, vi + 1] = temp[vj, vi + 1] + T.Cast("int32", A[vi, vk]) * T.Cast(
                "int32", B[vj, vk]
            )
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vj, vi + 1] + C[vi, vj]


def _inside(A, B, C):
    """`inside_a_larger_output` in numpy: the garbage around it stays."""
    out = np.full((M + 2, N + 3), np.frombuffer(b"\xa5\xa5\xa5\xa5", "int32")[0])
    out[1 : M + 1, 2 : N + 2] = matmul(A, B) + C
    return out


ACCEPT = [
    accepted(
        transposed_read,
        lambda A, B, C: matmul(A, B).T + C,
        "C[vj, vi]",
        "C[vj, vi]",
        "diagonal_read",
    ),
    accepted(
        transposed_write,
        lambda A, B, C: (matmul(A, B) + C).T,
        "C[vi, vj]",
        "C[vi, vj]",
        "diagonal_write",
    ),
    accepted(
        transposed_square,
        lambda A, B, C: matmul(A, B).T + C,
        "C[vj, vi]",
        "C[vj, vi]",
        "diagonal_read",
    ),
    accepted(
        block_variables_swapped,
        lambda A, B, C: matmul(A, B) + C,
        "C[vi, vj]",
        "C[vi, vj]",
        "diagonal_read",
    ),
    accepted(
        permuted_three_axes,
        lambda A, B, C: (np.einsum("abk,ck->cab", A.astype("int32"), B) + C).transpose(2, 0, 1),
        "C[vc, va, vb]",
        "C[vc, va, vb]",
        "broadcasting_epilogue",
    ),
    accepted(
        flat_epilogue,
        lambda A, B, C: matmul(A, B).reshape(-1) + C,
        "C[vi * 16 + vj]",
        "C[vi * 16 + vj]",
        "halved_index",
    ),
    accepted(
        flat_epilogue_transposing,
        lambda A, B, C: matmul(A, B).T.reshape(-1) + C,
        "C[vj * 8 + vi]",
        "C[vj * 8 + vi]",
        "strided_permutation",
    ),
    accepted(
        splitting_epilogue,
        lambda A, B, C: (A.astype("int32") @ B.astype("int32")).reshape(6, 4) + C.T,
        "C[vi % 4, vi // 4]",
        "C[vi % 4, vi // 4]",
        "overlapping_split",
    ),
    accepted(
        unit_axis_of_the_intermediate,
        lambda A, B, C: matmul(A, B) + C,
        "C[vj]",
        "C[vj]",
        "broadcasting_epilogue",
    ),
    accepted(
        unit_axis_added,
        lambda A, B, C: (matmul(A, B) + C)[:, None, :, None],
        "C[0, vj]",
        "C[0, vj]",
        "broadcasting_epilogue",
    ),
    accepted(
        unit_row,
        lambda A, B, C: matmul(A, B) + C,
        ", vj]",
        "",
        "broadcasting_epilogue",
    ),
    accepted(
        reversed_read,
        lambda A, B, C: matmul(A, B)[::-1] + C,
        "C[7 - vi, vj]",
        "C[7 - vi, vj]",
        "reversed_within_a_shared_loop",
    ),
    accepted(
        reversed_write,
        lambda A, B, C: (matmul(A, B) + C)[:, ::-1],
        "C[vi, vj]",
        "C[vi, vj]",
        "reversed_within_a_shared_loop",
    ),
    accepted(
        reversed_loop,
        lambda A, B, C: matmul(A, B) + C,
        "C[vi, vj]",
        "C[vi, vj]",
        "reversed_reduction",
    ),
    accepted(
        offset_domains,
        lambda A, B, C: matmul(A, B) + C[1:],
        "C[vi - 1, vj]",
        "C[vi - 1, vj]",
        "shifted_read",
    ),
    accepted(
        offset_loops,
        lambda A, B, C: matmul(A, B) + C,
        "C[vi - 3, vj]",
        "C[vi - 3, vj]",
        "shifted_read",
    ),
    accepted(
        inside_a_larger_output,
        _inside,
        "C[vi, vj]",
        "C[vi, vj]",
        "output_rows_collide",
    ),
    accepted(
        reduction_over_fused_loop,
        lambda A, B, C: matmul(A, B) + C,
        "C[vf // 7, vf % 7]",
        "C[vf // 7, vf % 7]",
        "overlapping_split",
    ),
    accepted(
        reduction_storing_transposed,
        lambda A, B, C: matmul(A, B) + C,
        "C[vi, vj]",
        "C[vi, vj]",
        "shifted_read",
    ),
]


# Every second row of the output is written. No two elements are stored to one place, so fusing is
# right; a checker that only knows dense writes may refuse.
@lazy.prim_func(s_tir=True)
def every_second_row(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    C: T.Buffer((M, N), "int32"),
    D: T.Buffer((M * 2, N), "int32"),
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    sum_products(A, B, temp)
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi * 2, vj] = temp[vi, vj] + C[vi, vj]


def _every_second(A, B, D, C):
    out = D.copy()
    out[::2] = matmul(A, B) + C
    return out


EITHER = [
    Case(
        name="every_second_row",
        func=every_second_row,
        reference=_every_second,
        outputs=(),
        updates=("D",),
        code=("output-write",),
        either=True,
    ),
]
