"""Refusing programs whose reduction does not visit all steps of all elements, or not in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.script import tirx as T

from . import lazy
from .builders import K, M
from .case import Case, wide
from .lazy import Program


def sum_over(
    visit: Callable[..., Any],
    extents: tuple[int, int, int],
    *,
    where: Callable[..., Any] | None = None,
    depth: int = K,
    wrap: Callable[[int], Any] | None = None,
) -> Program:
    """A row sum whose block is visited in an unusual way.

    - `visit`: ``visit(i, k, r) -> (value of vi, value of vk)``.
    - `extents`: of the loops i, k and r.
    - `where`: ``where(i, k, r)``: the predicate of the block.
    - `depth`: extent of the block's reduction variable.
    - `wrap`: makes the loop over k, for example `T.parallel`.
    """
    i_extent, k_extent, r_extent = extents
    loop = wrap or T.serial
    predicate = where or (lambda _i, _k, _r: tirx.const(True, "bool"))

    @lazy.prim_func(s_tir=True)
    def func(
        A: T.Buffer((M, depth), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
    ):
        temp = T.sblock_alloc_buffer((M,), "int32")
        for i in T.serial(i_extent):
            for k in loop(k_extent):
                for r in T.serial(r_extent):
                    with T.sblock("mm"):
                        vi = T.axis.spatial(M, visit(i, k, r)[0])
                        vk = T.axis.reduce(depth, visit(i, k, r)[1])
                        T.where(predicate(i, k, r))
                        with T.init():
                            temp[vi] = 0
                        temp[vi] = temp[vi] + A[vi, vk]
        for i in range(M):
            with T.sblock("add"):
                vi = T.axis.spatial(M, i)
                D[vi] = temp[vi] + C[vi]

    return func


def _threads(extent: int) -> Any:
    return T.thread_binding(extent, thread="threadIdx.x")


def _virtual_threads(extent: int) -> Any:
    return T.thread_binding(extent, thread="vthread.x")


def _visits() -> list[Case]:
    """Reductions whose loops leave out, repeat, reverse or share their steps."""
    domain = "reduction-domain"
    order = "reduction-order"
    kind = "reduction-loop-kind"
    either = (domain, order)
    table: list[tuple[str, Program, Any]] = [
        ("unused_reduction_loop", sum_over(lambda i, k, r: (i, k), (M, K, 2)), domain),
        ("step_taken_twice", sum_over(lambda i, k, r: (i, k // 2), (M, K * 2, 1)), domain),
        ("row_taken_twice", sum_over(lambda i, k, r: (i // 2, k), (M * 2, K, 1)), domain),
        ("rows_left_out", sum_over(lambda i, k, r: (i, k), (M - 2, K, 1)), domain),
        ("steps_left_out", sum_over(lambda i, k, r: (i, k), (M, K - 2, 1)), either),
        ("every_second_step", sum_over(lambda i, k, r: (i, k * 2), (M, K // 2, 1)), either),
        (
            "rows_behind_a_predicate",
            sum_over(lambda i, k, r: (i, k), (M, K, 1), where=lambda i, k, r: i < M - 2),
            domain,
        ),
        (
            "early_end_of_the_reduction",
            sum_over(lambda i, k, r: (i, k), (M, K, 1), where=lambda i, k, r: k < K - 1),
            either,
        ),
        (
            "late_start_of_the_reduction",
            sum_over(lambda i, k, r: (i, k), (M, K, 1), where=lambda i, k, r: k >= 3),
            either,
        ),
        (
            "triangular_reduction",
            sum_over(lambda i, k, r: (i, k), (M, K, 1), where=lambda i, k, r: k <= i),
            either,
        ),
        ("reversed_reduction", sum_over(lambda i, k, r: (i, K - 1 - k), (M, K, 1)), order),
        (
            "rotated_reduction",
            sum_over(lambda i, k, r: (i, (k + 3) % K), (M, K, 1)),
            either,
        ),
        (
            "reversed_inner_part",
            sum_over(lambda i, k, r: (i, k * 2 + (1 - r)), (M, K // 2, 2)),
            either,
        ),
        (
            "parallel_reduction",
            sum_over(lambda i, k, r: (i, k), (M, K, 1), wrap=T.parallel),
            kind,
        ),
        (
            "vectorized_reduction",
            sum_over(lambda i, k, r: (i, k), (M, 8, 1), wrap=T.vectorized, depth=8),
            kind,
        ),
        (
            "thread_bound_reduction",
            sum_over(lambda i, k, r: (i, k), (M, K, 1), wrap=_threads),
            kind,
        ),
        (
            "virtually_threaded_reduction",
            sum_over(lambda i, k, r: (i, k), (M, K, 1), wrap=_virtual_threads),
            kind,
        ),
        (
            "parallel_outer_part",
            sum_over(lambda i, k, r: (i, k * 2 + r), (M, K // 2, 2), wrap=T.parallel),
            kind,
        ),
    ]
    return [Case(name=name, func=func, code=code) for name, func, code in table]


REFUSE = [
    *_visits(),
]


# The steps come in another order, but the first is still the one that starts the sum.
EITHER = [
    Case(
        name="steps_interleaved",
        func=sum_over(lambda i, k, r: (i, r * 2 + k), (M, 2, K // 2)),
        reference=lambda A, C: A.sum(axis=1, dtype="int32") + C,
        code=("reduction-order", "reduction-domain"),
        either=True,
    ),
    Case(
        name="steps_permuted",
        func=sum_over(lambda i, k, r: (i, k % 2 * 3 + k // 2), (M, K, 1)),
        reference=lambda A, C: A.sum(axis=1, dtype="int32") + C,
        code=("reduction-order", "reduction-domain"),
        either=True,
    ),
    # The block of the last row runs through its steps like any other.
    Case(
        name="rows_reversed",
        func=sum_over(lambda i, k, r: (M - 1 - i, k), (M, K, 1)),
        reference=lambda A, C: wide(A, "int32").sum(axis=1, dtype="int32") + C,
        code=("reduction-order", "reduction-domain"),
        either=True,
    ),
]
