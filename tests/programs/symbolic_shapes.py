"""Accepting programs with symbolic shapes, indices of 64 bits, and each type of accumulator."""

from __future__ import annotations

from tvm.script import tirx as T

from . import lazy
from .builders import K, M, N, matmul_then
from .case import Case, accepted, matmul, wide


@lazy.prim_func(s_tir=True)
def long_indices(
    A: T.Buffer((T.int64(M), T.int64(K)), "int8"),
    B: T.Buffer((T.int64(N), T.int64(K)), "int8"),
    C: T.Buffer((T.int64(N), T.int64(M)), "int32"),
    D: T.Buffer((T.int64(N), T.int64(M)), "int32"),
):
    temp = T.sblock_alloc_buffer((T.int64(M), T.int64(N)), "int32")
    for i, j, k in T.grid(T.int64(M), T.int64(N), T.int64(K)):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for i, j in T.grid(T.int64(N), T.int64(M)):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vj, vi] + C[vi, vj]


@lazy.prim_func(s_tir=True)
def long_indices_flat(
    A: T.Buffer((T.int64(M), T.int64(K)), "int8"),
    B: T.Buffer((T.int64(N), T.int64(K)), "int8"),
    C: T.Buffer((T.int64(M * N),), "int32"),
    D: T.Buffer((T.int64(M * N),), "int32"),
):
    temp = T.sblock_alloc_buffer((T.int64(M), T.int64(N)), "int32")
    for i, j, k in T.grid(T.int64(M), T.int64(N), T.int64(K)):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for f in T.serial(T.int64(M * N)):
        with T.sblock("add"):
            vf = T.axis.spatial(T.int64(M * N), f)
            D[vf] = temp[vf // T.int64(N), vf % T.int64(N)] + C[vf]


# The rows are counted in 32 bits and the columns in 64, in both blocks.
@lazy.prim_func(s_tir=True)
def short_rows_long_columns(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    C: T.Buffer((M, N), "int32"),
    D: T.Buffer((M, N), "int32"),
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    for i in range(M):
        for j in range(T.int64(N)):
            for k in range(K):
                with T.sblock("mm"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        temp[vi, vj] = 0
                    temp[vi, vj] += T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for i in range(M):
        for j in range(T.int64(N)):
            with T.sblock("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = temp[vi, vj] + C[vi, vj]


# The epilogue's axes are converted where it reads the sum.
@lazy.prim_func(s_tir=True)
def short_axes_of_a_long_sum(
    A: T.Buffer((T.int64(M), T.int64(K)), "int8"),
    B: T.Buffer((T.int64(N), T.int64(K)), "int8"),
    C: T.Buffer((M, N), "int32"),
    D: T.Buffer((M, N), "int32"),
):
    temp = T.sblock_alloc_buffer((T.int64(M), T.int64(N)), "int32")
    for i, j, k in T.grid(T.int64(M), T.int64(N), T.int64(K)):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] += T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[T.Cast("int64", vi), T.Cast("int64", vj)] + C[vi, vj]


@lazy.prim_func(s_tir=True)
def long_axes_of_a_short_sum(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    C: T.Buffer((M, N), "int32"),
    D: T.Buffer((M, N), "int32"),
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    for i, j, k in T.grid(M, N, K):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] += T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for i, j in T.grid(T.int64(M), T.int64(N)):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[T.Cast("int32", vi), T.Cast("int32", vj)] + C[vi, vj]


@lazy.prim_func(s_tir=True)
def symbolic(a: T.handle, b: T.handle, c: T.handle, d: T.handle):
    n, m, k = T.int32(), T.int32(), T.int32()
    A = T.match_buffer(a, (n, k), "int8")
    B = T.match_buffer(b, (m, k), "int8")
    C = T.match_buffer(c, (m,), "int32")
    D = T.match_buffer(d, (n, m), "int32")
    temp = T.sblock_alloc_buffer((n, m), "int32")
    for i, j, r in T.grid(n, m, k):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, r])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for i, j in T.grid(n, m):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + C[vj]


@lazy.prim_func(s_tir=True)
def symbolic_transposed(a: T.handle, b: T.handle, c: T.handle, d: T.handle):
    n, m, k = T.int64(), T.int64(), T.int64()
    A = T.match_buffer(a, (n, k), "int8")
    B = T.match_buffer(b, (m, k), "int8")
    C = T.match_buffer(c, (m, n), "int32")
    D = T.match_buffer(d, (m, n), "int32")
    temp = T.sblock_alloc_buffer((n, m), "int32")
    for i, j, r in T.grid(n, m, k):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, r])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for i, j in T.grid(m, n):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vj, vi] - C[vi, vj]


# One dimension symbolic, the flat index made of it and a known one.
@lazy.prim_func(s_tir=True)
def symbolic_flat(a: T.handle, b: T.handle, c: T.handle, d: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n, K), "int8")
    B = T.match_buffer(b, (N, K), "int8")
    C = T.match_buffer(c, (n * N,), "int32")
    D = T.match_buffer(d, (n * N,), "int32")
    temp = T.sblock_alloc_buffer((n, N), "int32")
    for i, j, r in T.grid(n, N, K):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, r])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for f in T.serial(n * N):
        with T.sblock("add"):
            vf = T.axis.spatial(n * N, f)
            D[vf] = temp[vf // N, vf % N] + C[vf]


_SIZES = ({"n": 5, "m": 4, "k": 3}, {"n": 1, "m": 9, "k": 1}, {"n": 17, "m": 1, "k": 8})


def _types() -> list[Case]:
    """One accumulator type each: integers wrap around, floats are added in some order."""
    # accumulator, inputs
    table = [
        ("int32", "int8"),
        ("int64", "int32"),
        ("uint8", "uint8"),
        ("int8", "int8"),
        ("int16", "int8"),
        ("float32", "float32"),
        ("float32", "float16"),
        ("float64", "float32"),
    ]
    cases = [
        Case(
            name=f"{acc}_sum_of_{src}",
            func=matmul_then(lambda t, C, E, S, i, j: (t + C[i, j]) - E[j], acc=acc, src=src),
            # Types are named: numpy would widen the sum of two short integers.
            reference=lambda A, B, C, E, S, acc=acc: (
                matmul(A, B, acc) + wide(C, acc) - wide(E, acc)
            ),
            absorbed=("C[vi, vj] - E[vj]",),
            init="C[vi, vj] - E[vj]",
        )
        for acc, src in table
    ]
    # Wide unsigned sums may only be added to.
    cases += [
        Case(
            name=f"{acc}_sum_of_{src}",
            func=matmul_then(lambda t, C, E, S, i, j: (t + C[i, j]) + E[j], acc=acc, src=src),
            reference=lambda A, B, C, E, S, acc=acc: matmul(A, B, acc) + C + E,
            absorbed=("C[vi, vj] + E[vj]",),
            init="C[vi, vj] + E[vj]",
        )
        for acc, src in [
            ("uint32", "uint8"),
            ("uint64", "uint16"),
        ]
    ]
    return cases


ACCEPT = [
    accepted(
        long_indices,
        lambda A, B, C: matmul(A, B).T + C,
        "C[vj, vi]",
        "C[vj, vi]",
        "mixed_index_types",
    ),
    accepted(
        long_indices_flat,
        lambda A, B, C: matmul(A, B).reshape(-1) + C,
        "C[vi * 7 + vj]",
        "C[vi * T.int64(7) + vj]",
        "mixed_index_types",
    ),
    accepted(
        short_rows_long_columns,
        lambda A, B, C: matmul(A, B) + C,
        "C[vi, vj]",
        "C[vi, vj]",
        "mixed_index_types",
    ),
    *(
        accepted(
            func,
            lambda A, B, C: matmul(A, B) + C,
            f'C[T.Cast("{index}", vi), T.Cast("{index}", vj)]',
            f'C[T.Cast("{index}", vi), T.Cast("{index}", vj)]',
            "mixed_index_types",
        )
        for func, index in (
            (short_axes_of_a_long_sum, "int32"),
            (long_axes_of_a_short_sum, "int64"),
        )
    ),
    accepted(
        symbolic,
        lambda A, B, C: matmul(A, B) + C,
        "C[vj]",
        "C[vj]",
        "symbolic_corner",
        sizes=_SIZES,
    ),
    accepted(
        symbolic_transposed,
        lambda A, B, C: matmul(A, B).T - C,
        "C[vj, vi]",
        "0 - C[vj, vi]",
        "symbolic_corner",
        sizes=_SIZES,
    ),
    accepted(
        symbolic_flat,
        lambda A, B, C: matmul(A, B).reshape(-1) + C,
        "C[vi * 7 + vj]",
        "C[vi * 7 + vj]",
        "symbolic_corner",
        sizes=({"n": 1}, {"n": 6}),
    ),
    *_types(),
]


# The same flat index with both dimensions symbolic: `f // m` and `f % m` are the row and column,
# but it takes an argument about products of unknowns to see that.
@lazy.prim_func(s_tir=True)
def symbolic_flat_product(a: T.handle, b: T.handle, c: T.handle, d: T.handle):
    n, m = T.int32(), T.int32()
    A = T.match_buffer(a, (n, K), "int8")
    B = T.match_buffer(b, (m, K), "int8")
    C = T.match_buffer(c, (n * m,), "int32")
    D = T.match_buffer(d, (n * m,), "int32")
    temp = T.sblock_alloc_buffer((n, m), "int32")
    for i, j, r in T.grid(n, m, K):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, r])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for f in T.serial(n * m):
        with T.sblock("add"):
            vf = T.axis.spatial(n * m, f)
            D[vf] = temp[vf // m, vf % m] + C[vf]


EITHER = [
    accepted(
        symbolic_flat_product,
        lambda A, B, C: matmul(A, B).reshape(-1) + C,
        "C[",
        "",
        "",
        sizes=({"n": 3, "m": 4}, {"n": 1, "m": 6}),
        code=("index-map", "domain", "consumer-domain"),
        either=True,
    ),
]
