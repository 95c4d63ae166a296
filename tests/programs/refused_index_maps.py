"""Refusing programs whose epilogue reads or writes other elements than the reduction computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script import tirx as T

from . import lazy
from .builders import K, M, N, sum_rows
from .case import IN_PLACE, Case, matmul, refused, row_sums
from .lazy import Program


def two_dimensional(
    read: Callable[..., Any],
    write: Callable[..., Any],
    *,
    loops: tuple[int, int] = (M, N),
    where: Callable[..., Any] | None = None,
) -> Program:
    """A product M x N of which the epilogue reads ``temp[read(i, j)]``, writes ``D[write(i, j)]``.

    `loops` are the epilogue's extents, `where` is the block's predicate (on its loop variables). C
    has the index that D has.
    """
    predicate = where or (lambda _i, _j: tirx.const(True, "bool"))

    @lazy.prim_func(s_tir=True)
    def func(
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
        for i, j in T.grid(loops[0], loops[1]):
            with T.sblock("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.where(predicate(i, j))
                D[write(vi, vj)[0], write(vi, vj)[1]] = (
                    temp[read(vi, vj)[0], read(vi, vj)[1]] + C[write(vi, vj)[0], write(vi, vj)[1]]
                )

    return func


def _same(i: Any, j: Any) -> tuple[Any, Any]:
    return i, j


def _index_maps() -> list[Case]:
    """Reads and writes that do not pair every element with one other."""
    table: list[tuple[str, Program, Any]] = [
        # What the reduction computes and what the epilogue consumes are different sets.
        ("corner", two_dimensional(_same, _same, loops=(M - 2, N - 2)), "domain"),
        ("half_of_the_rows", two_dimensional(_same, _same, loops=(M // 2, N)), "domain"),
        (
            "every_second_column",
            two_dimensional(lambda i, j: (i, j * 2), _same, loops=(M, (N + 1) // 2)),
            ("domain", "index-map"),
        ),
        ("first_column", two_dimensional(lambda i, j: (i, 0), _same, loops=(M, 1)), "domain"),
        (
            "rows_shifted_out",
            two_dimensional(lambda i, j: (i + 1, j), _same, loops=(M - 1, N)),
            "domain",
        ),
        (
            "predicated_epilogue",
            two_dimensional(_same, _same, where=lambda i, j: i < M - 2),
            ("consumer-domain", "domain"),
        ),
        (
            "triangular_epilogue",
            two_dimensional(_same, _same, where=lambda i, j: j <= i),
            ("consumer-domain", "domain"),
        ),
        # One element is read by several instances, or the inverse is not affine.
        (
            "halved_index",
            two_dimensional(lambda i, j: (i // 2, j), _same),
            ("index-map", "domain"),
        ),
        (
            "diagonal_read",
            two_dimensional(lambda i, j: (i, i % N), _same),
            ("index-map", "domain"),
        ),
        (
            "broadcast_read",
            two_dimensional(lambda i, j: (i, 3), _same),
            ("index-map", "domain"),
        ),
        (
            "strided_permutation",
            two_dimensional(lambda i, j: (i * 3 % M, j), _same),
            "index-map",
        ),
        (
            "wrapped_around",
            two_dimensional(lambda i, j: (i, (j + 1) % N), _same),
            ("index-map", "domain"),
        ),
        (
            "product_of_variables",
            two_dimensional(lambda i, j: (i * j % M, j), _same),
            "index-map",
        ),
        # Several elements go to one place.
        (
            "output_rows_collide",
            two_dimensional(_same, lambda i, j: (i // 2, j)),
            "output-write",
        ),
        ("output_column_collides", two_dimensional(_same, lambda i, j: (i, 0)), "output-write"),
        (
            "diagonal_write",
            two_dimensional(_same, lambda i, j: (i, i % N)),
            "output-write",
        ),
        ("output_overlaps", two_dimensional(_same, lambda i, j: ((i + j) % M, j // 2)), None),
    ]
    return [
        Case(name=name, func=func, code=code or ("output-write", "index-map"))
        for name, func, code in table
    ]


@lazy.prim_func(s_tir=True)
def overlapping_split(
    A: T.Buffer((24, K), "int32"), C: T.Buffer((6, 4), "int32"), D: T.Buffer((6, 4), "int32")
):
    temp = T.sblock_alloc_buffer((24,), "int32")
    for i, k in T.grid(24, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    for i0, i1 in T.grid(6, 4):
        with T.sblock("add"):
            v0, v1 = T.axis.remap("SS", [i0, i1])
            D[v0, v1] = temp[v0 * 3 + v1] + C[v0, v1]


@lazy.prim_func(s_tir=True)
def broadcasting_epilogue(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M, N), "int32"), D: T.Buffer((M, N), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi] + C[vi, vj]


@lazy.prim_func(s_tir=True)
def indirect_read(
    A: T.Buffer((M, K), "int32"),
    index: T.Buffer((M,), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[index[vi]] + C[vi]


@lazy.prim_func(s_tir=True)
def indirect_write(
    A: T.Buffer((M, K), "int32"),
    index: T.Buffer((M,), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[index[vi]] = temp[vi] + C[vi]


# Ten rows are computed, the first and the last of which only serve as a halo.
@lazy.prim_func(s_tir=True)
def shifted_read(
    A: T.Buffer((M + 2, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M + 2,), "int32")
    for i, k in T.grid(M + 2, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi + 1] + C[vi]


# As many rows are consumed as are computed, but they are others.
@lazy.prim_func(s_tir=True)
def rows_further_down(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M + 2,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi + 2] + C[vi]


# Every row that is computed is consumed, and then some.
@lazy.prim_func(s_tir=True)
def more_rows_consumed_than_computed(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M + 2,), "int32"), D: T.Buffer((M + 2,), "int32")
):
    temp = T.sblock_alloc_buffer((M + 2,), "int32")
    sum_rows(A, temp)
    for i in range(M + 2):
        with T.sblock("add"):
            vi = T.axis.spatial(M + 2, i)
            D[vi] = temp[vi] + C[vi]


# Only every second row is consumed.
@lazy.prim_func(s_tir=True)
def epilogue_loop_with_a_step(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in T.serial(0, M, step=2):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]


@lazy.prim_func(s_tir=True)
def stencil(
    A: T.Buffer((M + 2, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M + 2,), "int32")
    for i, k in T.grid(M + 2, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = (temp[vi] + temp[vi + 2]) + C[vi]


# More elements come out than were computed: the rest is padding.
@lazy.prim_func(s_tir=True)
def padding_epilogue(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M + 2,), "int32"), D: T.Buffer((M + 2,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M + 2):
        with T.sblock("add"):
            vi = T.axis.spatial(M + 2, i)
            D[vi] = T.if_then_else(vi >= 1 and vi < M + 1, temp[vi - 1], 0) + C[vi]


@lazy.prim_func(s_tir=True)
def symbolic_corner(a: T.handle, b: T.handle, c: T.handle, d: T.handle):
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
    for i, j in T.grid(n, m - 1):
        with T.sblock("add"):
            vi = T.axis.spatial(n, i)
            vj = T.axis.spatial(m - 1, j)
            D[vi, vj] = temp[vi, vj] + C[vj]


# Right only where n == m, which nobody promises.
@lazy.prim_func(s_tir=True)
def symbolic_of_another_extent(a: T.handle, b: T.handle, c: T.handle, d: T.handle):
    n, m, k = T.int32(), T.int32(), T.int32()
    A = T.match_buffer(a, (n, k), "int8")
    B = T.match_buffer(b, (m, k), "int8")
    C = T.match_buffer(c, (m,), "int32")
    D = T.match_buffer(d, (m, m), "int32")
    temp = T.sblock_alloc_buffer((n, m), "int32")
    for i, j, r in T.grid(n, m, k):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, r])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for i, j in T.grid(m, m):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + C[vj]


REFUSE = [
    *_index_maps(),
    refused(overlapping_split, ("index-map", "domain")),
    refused(
        broadcasting_epilogue,
        ("index-map", "domain"),
        reference=lambda A, C: row_sums(A)[:, None] + C,
    ),
    refused(indirect_read, ("index-map", "opaque-access")),
    refused(indirect_write, "output-write"),
    refused(shifted_read, "domain", reference=lambda A, C: row_sums(A)[1:-1] + C),
    refused(rows_further_down, "domain"),
    refused(more_rows_consumed_than_computed, "domain"),
    refused(
        epilogue_loop_with_a_step,
        "consumer-domain",
        reference=lambda A, C, D: np.where(np.arange(M) % 2, D, row_sums(A) + C),
        **IN_PLACE,
    ),
    refused(
        stencil,
        ("index-map", "domain"),
        reference=lambda A, C: row_sums(A)[:-2] + row_sums(A)[2:] + C,
    ),
    refused(
        padding_epilogue,
        ("domain", "index-map"),
        reference=lambda A, C: np.pad(row_sums(A), 1) + C,
    ),
    refused(symbolic_corner, "domain", sizes=({"n": 3, "m": 4, "k": 2},)),
    refused(
        symbolic_of_another_extent,
        "domain",
        sizes=({"n": 4, "m": 4, "k": 2}, {"n": 5, "m": 4, "k": 2}),
        reference=lambda A, B, C: matmul(A, B)[: len(C)] + C,
    ),
]
