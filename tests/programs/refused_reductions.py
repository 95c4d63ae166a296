"""Refusing programs whose reduction is none, or does not start with its T.init."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.s_tir import Schedule
from tvm.script import tirx as T

from . import lazy
from .builders import K, M, N, add_rows, matmul_then
from .case import IN_PLACE, Case, matmul, refused, row_sums
from .lazy import Program, name_of


@lazy.prim_func(s_tir=True)
def two_elementwise_blocks(
    A: T.Buffer((M, N), "int32"), C: T.Buffer((M, N), "int32"), D: T.Buffer((M, N), "int32")
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    for i, j in T.grid(M, N):
        with T.sblock("mm"):
            vi, vj = T.axis.remap("SS", [i, j])
            temp[vi, vj] = A[vi, vj] * 2
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + C[vi, vj]


@lazy.prim_func(s_tir=True)
def relu_inside_the_reduction(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = T.max(temp[vi] + A[vi, vk], 0)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]


@lazy.prim_func(s_tir=True)
def guarded_last_step(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    F: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
            if vk == K - 1:
                F[vi] = temp[vi] * 2
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]


# What is added depends on what there is already.
@lazy.prim_func(s_tir=True)
def condition_on_the_sum(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            if temp[vi] < 100:
                temp[vi] = temp[vi] + A[vi, vk]
    add_rows(temp, C, D)


@lazy.prim_func(s_tir=True)
def scanning_reduction(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi = T.axis.scan(M, i)
            vk = T.axis.reduce(K, k)
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    add_rows(temp, C, D)


# Each step has an element of its own, of which only the first is started.
@lazy.prim_func(s_tir=True)
def element_for_every_step(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M, K), "int32"), D: T.Buffer((M, K), "int32")
):
    temp = T.sblock_alloc_buffer((M, K), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi, vk] = 0
            temp[vi, vk] = temp[vi, vk] + A[vi, vk]
    for i, k in T.grid(M, K):
        with T.sblock("add"):
            vi, vk = T.axis.remap("SS", [i, k])
            D[vi, vk] = temp[vi, vk] + C[vi, vk]


@lazy.prim_func(s_tir=True)
def init_depends_on_the_step(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = vk
            temp[vi] = temp[vi] + A[vi, vk]
    add_rows(temp, C, D)


# The first three steps, before the init, would be added to the old output.
@lazy.prim_func(s_tir=True)
def rotated_reduction_in_place(A: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32")):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi = T.axis.spatial(M, i)
            vk = T.axis.reduce(K, (k + 3) % K)
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    add_rows(temp, D, D)


@lazy.prim_func(s_tir=True)
def reversed_through_division(A: T.Buffer((M, 3, 2), "int32"), D: T.Buffer((M,), "int32")):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, 6):
        with T.sblock("mm"):
            vi = T.axis.spatial(M, i)
            vk = T.axis.reduce(3, (5 - k) // 2)
            vr = T.axis.reduce(2, (5 - k) % 2)
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk, vr]
    add_rows(temp, D, D)


# Rows that the mask leaves out are not computed, but consumed.
@lazy.prim_func(s_tir=True)
def masked_rows(
    A: T.Buffer((M, K), "int32"),
    mask: T.Buffer((M,), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            T.where(mask[i] > 0)
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    add_rows(temp, C, D)


@lazy.prim_func(s_tir=True)
def sum_of_booleans(
    A: T.Buffer((M, K), "bool"), C: T.Buffer((M,), "bool"), D: T.Buffer((M,), "bool")
):
    temp = T.sblock_alloc_buffer((M,), "bool")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = False
            temp[vi] = temp[vi] + A[vi, vk]
    add_rows(temp, C, D)


# A running sum: each element starts from its neighbour.
@lazy.prim_func(s_tir=True)
def accumulator_of_the_neighbour(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M + 1,), "int32"), D: T.Buffer((M + 1,), "int32")
):
    temp = T.sblock_alloc_buffer((M + 1,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi + 1] = 0
            temp[vi + 1] = temp[vi] + A[vi, vk]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi + 1] + C[vi]


@lazy.prim_func(s_tir=True)
def init_of_another_element(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[M - 1 - vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]


@lazy.prim_func(s_tir=True)
def no_init(A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]


@lazy.prim_func(s_tir=True)
def argmax(
    A: T.Buffer((M, K), "float32"), C: T.Buffer((M,), "float32"), D: T.Buffer((M,), "float32")
):
    where = T.sblock_alloc_buffer((M,), "int32")
    temp = T.sblock_alloc_buffer((M,), "float32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                where[vi] = -1
                temp[vi] = T.min_value("float32")
            best_where: T.let[T.int32] = T.Select(temp[vi] >= A[vi, vk], where[vi], vk)
            best: T.let[T.float32] = T.Select(temp[vi] >= A[vi, vk], temp[vi], A[vi, vk])
            where[vi] = best_where
            temp[vi] = best
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]


# Two rows go to one element: of each two, the second row's sum is left.
@lazy.prim_func(s_tir=True)
def two_rows_in_one_element(A: T.Buffer((M, K), "int32"), D: T.Buffer((M // 2,), "int32")):
    temp = T.sblock_alloc_buffer((M // 2,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi // 2] = 0
            temp[vi // 2] = temp[vi // 2] + A[vi, vk]
    for i in range(M // 2):
        with T.sblock("add"):
            vi = T.axis.spatial(M // 2, i)
            D[vi] = temp[vi] + D[vi]


@lazy.prim_func(s_tir=True)
def reduction_loop_with_a_step(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i in range(M):
        for k in T.serial(0, K, step=2):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
    add_rows(temp, C, D)


# Every input goes into several sums; the last two sums are never started.
@lazy.prim_func(s_tir=True)
def scattered(
    A: T.Buffer((M, 3), "int32"), C: T.Buffer((M + 2,), "int32"), D: T.Buffer((M + 2,), "int32")
):
    temp = T.sblock_alloc_buffer((M + 2,), "int32")
    for i, k in T.grid(M, 3):
        with T.sblock("mm"):
            vi = T.axis.spatial(M + 2, i + k)
            vk = T.axis.reduce(3, k)
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi - vk, vk]
    for i in range(M + 2):
        with T.sblock("add"):
            vi = T.axis.spatial(M + 2, i)
            D[vi] = temp[vi] + C[vi]


# The first of two reduction axes goes forwards, the second backwards.
@lazy.prim_func(s_tir=True)
def one_of_two_axes_reversed(
    A: T.Buffer((M, 2, 3), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k, r in T.grid(M, 2, 3):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            vr = T.axis.reduce(3, 2 - r)
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk, vr]
    add_rows(temp, C, D)


@lazy.prim_func(s_tir=True)
def fused_loop_in_parallel(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for f in T.parallel(M * K):
        with T.sblock("mm"):
            vi = T.axis.spatial(M, f // K)
            vk = T.axis.reduce(K, f % K)
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    add_rows(temp, C, D)


def row_reduction(
    update: Callable[..., Any], start: int, dtype: str = "int32", extent: int = K
) -> Program:
    """``temp[i] = update(temp[i], A[i, k])`` from `start`, then ``D[i] = temp[i] + C[i]``."""

    @lazy.prim_func(s_tir=True)
    def func(A: T.Buffer((M, extent), dtype), C: T.Buffer((M,), dtype), D: T.Buffer((M,), dtype)):
        temp = T.sblock_alloc_buffer((M,), dtype)
        for i, k in T.grid(M, extent):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = T.Cast(dtype, start)
                temp[vi] = update(temp[vi], A[vi, vk])
        for i in range(M):
            with T.sblock("add"):
                vi = T.axis.spatial(M, i)
                D[vi] = temp[vi] + C[vi]

    return func


def _other_updates() -> list[Case]:
    """Updates that are not associative and commutative: name, update, start, numpy."""
    table: list[tuple[str, Callable[..., Any], int, Callable[..., Any] | None]] = [
        ("body_minus_sum", lambda a, x: x - a, 0, None),
        ("horner", lambda a, x: a * 3 + x, 0, None),
        ("decaying", lambda a, x: T.shift_right(a, 1) + x, 0, None),
        ("sum_of_itself", lambda a, x: a + a * x, 1, None),
        ("last_one", lambda a, x: x, 0, lambda A: A[:, -1]),
        ("saturating", lambda a, x: T.min(a + x, 100), 0, None),
    ]
    return [
        Case(
            name=name,
            func=row_reduction(update, start),
            reference=formula and (lambda A, C, f=formula: f(A) + C),
            code="reduction-form",
        )
        for name, update, start, formula in table
    ]


def decompose(sch: Schedule) -> None:
    block = sch.get_sblock("mm")
    sch.decompose_reduction(block, sch.get_loops(block)[2])


def decompose_outside(sch: Schedule) -> None:
    block = sch.get_sblock("mm")
    sch.decompose_reduction(block, sch.get_loops(block)[0])


def _plain_bias(t: Any, C: Any, E: Any, S: Any, i: Any, j: Any) -> Any:
    return t + C[i, j]


REFUSE = [
    Case(name="two_elementwise_blocks", func=two_elementwise_blocks, code="not-a-reduction"),
    Case(
        name="pair_in_the_wrong_order",
        func=matmul_then(_plain_bias),
        code=("not-a-reduction", "wrong-pair"),
        calls=(("add", "mm"),),
    ),
    Case(
        name="root_block",
        func=matmul_then(_plain_bias),
        code=("not-a-reduction", "structure"),
        calls=(("root",), ("root", "add")),
    ),
    *[
        Case(name=name_of(func), func=func, code="reduction-form")
        for func in (
            guarded_last_step,
            condition_on_the_sum,
            scanning_reduction,
            element_for_every_step,
            init_depends_on_the_step,
            accumulator_of_the_neighbour,
            init_of_another_element,
        )
    ],
    Case(
        name="relu_inside_the_reduction",
        func=relu_inside_the_reduction,
        code="reduction-form",
    ),
    Case(name="no_init", func=no_init, code="no-init"),
    Case(
        name="decomposed_reduction",
        func=matmul_then(_plain_bias),
        schedule=decompose,
        reduction="mm_update",
        code="no-init",
        reference=lambda A, B, C, E, S: matmul(A, B) + C,
    ),
    Case(
        name="decomposed_outside_all_loops",
        func=matmul_then(_plain_bias),
        schedule=decompose_outside,
        reduction="mm_update",
        code="no-init",
        reference=lambda A, B, C, E, S: matmul(A, B) + C,
    ),
    refused(
        rotated_reduction_in_place,
        ("reduction-order", "reduction-domain"),
        reference=lambda A, D: row_sums(A[:, :3]) + D,
        **IN_PLACE,
    ),
    refused(
        reversed_through_division,
        ("reduction-order", "reduction-domain"),
        reference=lambda A, D: A[:, 0, 0] + D,
        **IN_PLACE,
    ),
    refused(
        two_rows_in_one_element,
        ("reduction-domain", "reduction-form"),
        reference=lambda A, D: row_sums(A)[1::2] + D,
        **IN_PLACE,
    ),
    refused(
        reduction_loop_with_a_step,
        "reduction-domain",
        reference=lambda A, C: row_sums(A[:, ::2]) + C,
    ),
    refused(masked_rows, "reduction-domain"),
    refused(sum_of_booleans, "reduction-form"),
    refused(scattered, "reduction-domain"),
    refused(one_of_two_axes_reversed, "reduction-order"),
    refused(fused_loop_in_parallel, ("reduction-loop-kind", "reduction-order")),
    Case(name="argmax", func=argmax, code="tuple-reduction"),
    *_other_updates(),
]
