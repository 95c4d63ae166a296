"""Accepting programs whose loops were scheduled before fusing: tiled, bound, computed at, ...

The first part is one product with a bias and a list of schedules. The second has programs in
which both blocks stand inside common loops from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm.s_tir import Schedule
from tvm.script import tirx as T

from . import lazy
from .case import Case, matmul, replace
from .lazy import name_of
from .scheduling_steps import (
    TWINS,
    all_three_at_row,
    all_three_at_tile,
    all_three_at_uneven_tile,
    cached_inputs,
    cached_output,
    packed_sum_with_bias,
    producers_at_relu,
    tile_symbolic,
    tile_symbolic_epilogue,
    tile_symbolic_shared,
)

# Composite extents with different factors.
ROWS, COLS, DEPTH = 16, 12, 10


@lazy.prim_func(s_tir=True)
def product_and_bias(
    A: T.Buffer((ROWS, DEPTH), "float32"),
    B: T.Buffer((COLS, DEPTH), "float32"),
    C: T.Buffer((ROWS, COLS), "float32"),
    D: T.Buffer((ROWS, COLS), "float32"),
):
    temp = T.sblock_alloc_buffer((ROWS, COLS), "float32")
    for i, j, k in T.grid(ROWS, COLS, DEPTH):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = T.float32(0)
            temp[vi, vj] = temp[vi, vj] + A[vi, vk] * B[vj, vk]
    for i, j in T.grid(ROWS, COLS):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + C[vi, vj]


@lazy.prim_func(s_tir=True)
def product_bias_and_relu(
    A: T.Buffer((ROWS, DEPTH), "float32"),
    B: T.Buffer((COLS, DEPTH), "float32"),
    C: T.Buffer((COLS,), "float32"),
    D: T.Buffer((ROWS, COLS), "float32"),
):
    temp = T.sblock_alloc_buffer((ROWS, COLS), "float32")
    mid = T.sblock_alloc_buffer((ROWS, COLS), "float32")
    for i, j, k in T.grid(ROWS, COLS, DEPTH):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = T.float32(0)
            temp[vi, vj] = temp[vi, vj] + A[vi, vk] * B[vj, vk]
    for i, j in T.grid(ROWS, COLS):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            mid[vi, vj] = temp[vi, vj] + C[vj]
    for i, j in T.grid(ROWS, COLS):
        with T.sblock("relu"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(mid[vi, vj], T.float32(0))


@lazy.prim_func(s_tir=True)
def symbolic_product_and_bias(a: T.handle, b: T.handle, c: T.handle, d: T.handle):
    n, m, k = T.int32(), T.int32(), T.int32()
    A = T.match_buffer(a, (n, k), "float32")
    B = T.match_buffer(b, (m, k), "float32")
    C = T.match_buffer(c, (m,), "float32")
    D = T.match_buffer(d, (n, m), "float32")
    temp = T.sblock_alloc_buffer((n, m), "float32")
    for i, j, r in T.grid(n, m, k):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, r])
            with T.init():
                temp[vi, vj] = T.float32(0)
            temp[vi, vj] = temp[vi, vj] + A[vi, vk] * B[vj, vk]
    for i, j in T.grid(n, m):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + C[vj]


@lazy.prim_func(s_tir=True)
def rows_in_common(
    A: T.Buffer((ROWS, DEPTH), "int8"),
    B: T.Buffer((COLS, DEPTH), "int8"),
    C: T.Buffer((COLS,), "int32"),
    D: T.Buffer((ROWS, COLS), "int32"),
):
    temp = T.sblock_alloc_buffer((ROWS, COLS), "int32")
    for i in range(ROWS):
        for j, k in T.grid(COLS, DEPTH):
            with T.sblock("mm"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    temp[vi, vj] = 0
                temp[vi, vj] += T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
        for j in range(COLS):
            with T.sblock("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = temp[vi, vj] + C[vj]


# The row is a parameter of both index maps, with different offsets.
@lazy.prim_func(s_tir=True)
def rows_in_common_with_offsets(
    A: T.Buffer((ROWS, DEPTH), "int8"),
    B: T.Buffer((COLS, DEPTH), "int8"),
    C: T.Buffer((COLS,), "int32"),
    D: T.Buffer((COLS, ROWS), "int32"),
):
    temp = T.sblock_alloc_buffer((ROWS + 3, COLS), "int32")
    for i in T.serial(1, ROWS + 1):
        for k, j in T.grid(DEPTH, COLS):
            with T.sblock("mm"):
                vi = T.axis.spatial((3, ROWS + 3), i + 2)
                vk, vj = T.axis.remap("RS", [k, j])
                with T.init():
                    temp[vi, vj] = 0
                temp[vi, vj] += T.Cast("int32", A[vi - 3, vk]) * T.Cast("int32", B[vj, vk])
        for j in range(COLS):
            with T.sblock("add"):
                vj = T.axis.spatial(COLS, j)
                vi = T.axis.spatial(ROWS, i - 1)
                D[vj, vi] = C[vj] + temp[vi + 3, vj]


# Sum and bias in registers; only the finished element goes to memory.
@lazy.prim_func(s_tir=True)
def in_registers(
    A: T.Buffer((ROWS, DEPTH), "int8"),
    B: T.Buffer((COLS, DEPTH), "int8"),
    C: T.Buffer((COLS,), "int32"),
    D: T.Buffer((ROWS, COLS), "int32"),
):
    temp = T.sblock_alloc_buffer((ROWS, COLS), "int32", scope="local")
    mid = T.sblock_alloc_buffer((ROWS, COLS), "int32", scope="local")
    for i in T.thread_binding(ROWS, thread="blockIdx.x"):
        for j in T.thread_binding(COLS, thread="threadIdx.x"):
            for k in range(DEPTH):
                with T.sblock("mm"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        temp[vi, vj] = 0
                    temp[vi, vj] += T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
            with T.sblock("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                mid[vi, vj] = temp[vi, vj] + C[vj]
            with T.sblock("store"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = mid[vi, vj]


# The loops over the columns and over the steps are one.
@lazy.prim_func(s_tir=True)
def columns_and_steps_fused(
    A: T.Buffer((ROWS, DEPTH), "int8"),
    B: T.Buffer((COLS, DEPTH), "int8"),
    C: T.Buffer((COLS,), "int32"),
    D: T.Buffer((ROWS, COLS), "int32"),
):
    temp = T.sblock_alloc_buffer((ROWS, COLS), "int32")
    for i, f in T.grid(ROWS, COLS * DEPTH):
        with T.sblock("mm"):
            vi = T.axis.spatial(ROWS, i)
            vj = T.axis.spatial(COLS, f // DEPTH)
            vk = T.axis.reduce(DEPTH, f % DEPTH)
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] += T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for i, j in T.grid(ROWS, COLS):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + C[vj]


# One row of intermediate, used again for every row: the row is not an index of it, but the shared
# loop keeps the rows apart.
@lazy.prim_func(s_tir=True)
def one_row_reused(
    A: T.Buffer((ROWS, DEPTH), "int8"),
    B: T.Buffer((COLS, DEPTH), "int8"),
    C: T.Buffer((COLS,), "int32"),
    D: T.Buffer((ROWS, COLS), "int32"),
):
    temp = T.sblock_alloc_buffer((COLS,), "int32")
    for i in range(ROWS):
        for j, k in T.grid(COLS, DEPTH):
            with T.sblock("mm"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    temp[vj] = 0
                temp[vj] += T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
        for j in range(COLS):
            with T.sblock("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = temp[vj] + C[vj]


@lazy.prim_func(s_tir=True)
def inside_an_outer_block(
    A: T.Buffer((ROWS, DEPTH), "int8"),
    B: T.Buffer((COLS, DEPTH), "int8"),
    C: T.Buffer((COLS,), "int32"),
    D: T.Buffer((ROWS, COLS), "int32"),
):
    for i in range(ROWS):
        with T.sblock("row"):
            vi = T.axis.spatial(ROWS, i)
            T.reads(A[vi, 0:DEPTH], B[0:COLS, 0:DEPTH], C[0:COLS])
            T.writes(D[vi, 0:COLS])
            temp = T.sblock_alloc_buffer((COLS,), "int32")
            for j, k in T.grid(COLS, DEPTH):
                with T.sblock("mm"):
                    vj, vk = T.axis.remap("SR", [j, k])
                    with T.init():
                        temp[vj] = 0
                    temp[vj] += T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
            for j in range(COLS):
                with T.sblock("add"):
                    vj = T.axis.spatial(COLS, j)
                    D[vi, vj] = temp[vj] + C[vj]


def _scheduled(steps: Callable[[Schedule], None], absorbed: str = "C[", **more: Any) -> Case:
    """`product_and_bias` after `steps`."""
    return Case(
        name=steps.__name__,
        func=product_and_bias,
        schedule=steps,
        reference=lambda A, B, C: A @ B.T + C,
        absorbed=(absorbed,),
        **more,
    )


def _with_relu(steps: Callable[[Schedule], None]) -> Case:
    """`product_bias_and_relu` after `steps`: the bias is absorbed, the ReLU becomes a tail."""
    return Case(
        name=steps.__name__,
        func=product_bias_and_relu,
        schedule=steps,
        epilogues=("add", "relu"),
        reference=lambda A, B, C: np.maximum(A @ B.T + C, 0),
        absorbed=("C[vj]", ""),
        tails={"relu": "T.max(x, T.float32(0.0))"},
        init="C[vj]",
        twin="partial_sums_in_the_tile",
    )


def _symbolic(steps: Callable[[Schedule], None]) -> Case:
    """`symbolic_product_and_bias` after `steps`, at sizes that the tiles divide or not."""
    return Case(
        name=steps.__name__,
        func=symbolic_product_and_bias,
        schedule=steps,
        reference=lambda A, B, C: A @ B.T + C,
        absorbed=("C[vj]",),
        init="C[vj]",
        sizes=({"n": 8, "m": 4, "k": 12}, {"n": 5, "m": 11, "k": 3}, {"n": 1, "m": 1, "k": 1}),
        twin="symbolic_corner",
    )


def _shared(func: Any, reference: Callable[..., Any], init: str, twin: str) -> Case:
    return Case(
        name=name_of(func),
        func=func,
        reference=reference,
        absorbed=(init,),
        init=init,
        twin=twin,
    )


ACCEPT = [
    *[_scheduled(steps, twin=twin) for steps, twin in TWINS.items()],
    _scheduled(cached_inputs, "C_global[vi, vj]", twin="bias_made_between"),
    # The copy made by cache_write is an epilogue that adds nothing.
    replace(
        _scheduled(cached_output, twin="diagonal_read"),
        epilogues=("temp_global", "add"),
        absorbed=("", "C[vi, vj]"),
    ),
    *[_with_relu(steps) for steps in (packed_sum_with_bias, producers_at_relu)],
    # The ReLU stands where a tail would: what is left to do is the bias.
    *[
        replace(_with_relu(steps), epilogues=("add",), absorbed=("C[vj]",), tails={})
        for steps in (all_three_at_tile, all_three_at_uneven_tile)
    ],
    # A tile further out it does not.
    _with_relu(all_three_at_row),
    *[_symbolic(steps) for steps in (tile_symbolic, tile_symbolic_epilogue)],
    _shared(
        rows_in_common,
        lambda A, B, C: matmul(A, B) + C,
        "C[vj]",
        "previous_row_in_a_shared_loop",
    ),
    _shared(
        rows_in_common_with_offsets,
        lambda A, B, C: (matmul(A, B) + C).T,
        "C[vj]",
        "previous_row_in_a_shared_loop",
    ),
    _shared(
        in_registers,
        lambda A, B, C: matmul(A, B) + C,
        "C[vj]",
        "partial_sums_at_the_reduction_loop",
    ),
    _shared(
        inside_an_outer_block,
        lambda A, B, C: matmul(A, B) + C,
        "C[vj]",
        "epilogue_in_another_scope",
    ),
]


EITHER = [
    Case(
        name="columns_and_steps_fused",
        func=columns_and_steps_fused,
        reference=lambda A, B, C: matmul(A, B) + C,
        code="reduction-order",
        either=True,
    ),
    Case(
        name="one_row_reused",
        func=one_row_reused,
        reference=lambda A, B, C: matmul(A, B) + C,
        code=("index-map", "domain", "reduction-domain", "shared-loops"),
        either=True,
    ),
    # The epilogue's loop extents and offsets are minima and maxima of the unknown extents.
    replace(
        _symbolic(tile_symbolic_shared),
        code=("shared-loops", "domain", "consumer-domain"),
        either=True,
    ),
]
