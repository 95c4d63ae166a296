"""Where a tail is placed: one program, a product with a bias and a ReLU in one block, rescheduled.

The tail must stand in the innermost loop around all reduction loops, above vectorized loops,
directly behind the reduction's own, whatever was done to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm.s_tir import Schedule
from tvm.script import tirx as T

from . import lazy
from .builders import part
from .case import IN_PLACE, Case, matmul, replace, row_sums
from .lazy import Program
from .scheduled import COLS, DEPTH, ROWS
from .scheduling_steps import BOUND_FIRST, PLACED_FIRST

Steps = Callable[[Schedule], Any]


def product_then(epilogue: Callable[..., Any], dtype: str) -> Program:
    """``D = epilogue(A @ B.T, C)``, with sums in `dtype`, in a block called "add"."""

    @lazy.prim_func(s_tir=True)
    def func(
        A: T.Buffer((ROWS, DEPTH), dtype),
        B: T.Buffer((COLS, DEPTH), dtype),
        C: T.Buffer((ROWS, COLS), dtype),
        D: T.Buffer((ROWS, COLS), dtype),
    ):
        temp = T.sblock_alloc_buffer((ROWS, COLS), dtype)
        for i, j, k in T.grid(ROWS, COLS, DEPTH):
            with T.sblock("mm"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    temp[vi, vj] = T.cast(0, dtype)
                temp[vi, vj] = temp[vi, vj] + A[vi, vk] * B[vj, vk]
        for i, j in T.grid(ROWS, COLS):
            with T.sblock("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = epilogue(temp[vi, vj], C[vi, vj])

    return func


@part
def sum_rows_of(A, temp):
    """Block "mm": ``temp[i]`` is the sum of ``A[i, k]`` over k."""
    for i, k in T.grid(ROWS, DEPTH):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]


def relu(total: Any, bias: Any) -> Any:
    return T.max(total + bias, T.cast(0, total.ty.dtype))


FLOAT = product_then(relu, "float32")
INTEGER = product_then(relu, "int16")


# ---------------------------------------------------------------------------------------------
# Schedules of the reduction
# ---------------------------------------------------------------------------------------------


def _loops(sch: Schedule, block: str = "mm") -> list[Any]:
    return list(sch.get_loops(sch.get_sblock(block)))


def reduction_innermost(sch: Schedule) -> None:
    pass


def row_form(sch: Schedule) -> None:
    i, j, k = _loops(sch)
    sch.reorder(i, k, j)
    sch.vectorize(j)


def row_form_in_parallel(sch: Schedule) -> None:
    row_form(sch)
    sch.parallel(_loops(sch)[0])


def reduction_split_outside(sch: Schedule) -> None:
    i, j, k = _loops(sch)
    k0, k1 = sch.split(k, [None, 5])
    sch.reorder(i, k0, j, k1)


def reduction_split_outside_of_a_tile(sch: Schedule) -> None:
    i, j, k = _loops(sch)
    j0, j1 = sch.split(j, [None, 4])
    k0, k1 = sch.split(k, [None, 5])
    sch.reorder(i, j0, k0, k1, j1)
    sch.vectorize(j1)


def reduction_outermost(sch: Schedule) -> None:
    i, j, k = _loops(sch)
    sch.reorder(k, i, j)


def reduction_outermost_of_columns(sch: Schedule) -> None:
    i, j, k = _loops(sch)
    sch.reorder(k, j, i)
    sch.parallel(j)
    sch.vectorize(i)


def spatial_loops_fused(sch: Schedule) -> None:
    i, j, _ = _loops(sch)
    sch.parallel(sch.fuse(i, j))


def spatial_loops_fused_inside(sch: Schedule) -> None:
    i, j, k = _loops(sch)
    sch.reorder(k, i, j)
    sch.vectorize(sch.fuse(i, j))


def uneven_tiles(sch: Schedule) -> None:
    i, j, k = _loops(sch)
    (i0, i1), (j0, j1), (k0, k1) = (sch.split(x, [None, f]) for x, f in ((i, 5), (j, 8), (k, 4)))
    sch.reorder(i0, j0, k0, i1, k1, j1)


def uneven_rows_reduction_innermost(sch: Schedule) -> None:
    i, j, _ = _loops(sch)
    sch.split(i, [None, 7])
    sch.split(j, [None, 5])


def inside_a_vectorized_loop(sch: Schedule) -> None:
    sch.vectorize(_loops(sch)[1])


def inside_a_vectorized_part(sch: Schedule) -> None:
    i, j, k = _loops(sch)
    j0, j1 = sch.split(j, [None, 4])
    sch.reorder(i, j0, j1, k)
    sch.vectorize(j1)


def unit_loops(sch: Schedule) -> None:
    i, _, k = _loops(sch)
    sch.split(i, [1, None])
    sch.split(k, [None, 1])
    sch.add_unit_loop(sch.get_sblock("mm"))


def unrolled(sch: Schedule) -> None:
    i, j, k = _loops(sch)
    j0, j1 = sch.split(j, [None, 3])
    sch.reorder(i, j0, k, j1)
    sch.unroll(j1)
    sch.unroll(k)


def epilogue_in_the_row(sch: Schedule) -> None:
    row_form(sch)
    sch.reverse_compute_at(sch.get_sblock("add"), _loops(sch)[0])


def epilogue_outside_of_the_place(sch: Schedule) -> None:
    sch.reverse_compute_at(sch.get_sblock("add"), _loops(sch)[0])


def epilogue_in_a_tile_of_its_own(sch: Schedule) -> None:
    i, j = _loops(sch, "add")
    i0, i1 = sch.split(i, [None, 4])
    j0, j1 = sch.split(j, [None, 6])
    sch.reorder(j0, i0, j1, i1)
    sch.parallel(j0)


def input_copied_in_the_reduction_loop(sch: Schedule) -> None:
    i, j, k = _loops(sch)
    k0, k1 = sch.split(k, [None, 5])
    sch.reorder(i, k0, j, k1)
    sch.cache_read(sch.get_sblock("mm"), 1, "global")
    sch.compute_at(sch.get_sblock("B_global"), k0)


def input_copied_in_the_row(sch: Schedule) -> None:
    sch.cache_read(sch.get_sblock("mm"), 0, "global")
    sch.compute_at(sch.get_sblock("A_global"), _loops(sch)[0])


def threads(sch: Schedule) -> None:
    i, j, _ = _loops(sch)
    sch.bind(i, "blockIdx.x")
    sch.bind(j, "threadIdx.x")
    for loop, thread in zip(_loops(sch, "add"), ("blockIdx.x", "threadIdx.x"), strict=True):
        sch.bind(loop, thread)


def thread_tiles(sch: Schedule) -> None:
    i, j, k = _loops(sch)
    i0, i1 = sch.split(i, [None, 4])
    j0, j1 = sch.split(j, [None, 2])
    k0, k1 = sch.split(k, [None, 5])
    sch.reorder(i0, j0, i1, k0, k1, j1)
    sch.bind(i0, "blockIdx.x")
    sch.bind(j0, "vthread.x")
    sch.bind(i1, "threadIdx.x")
    sch.unroll(j1)
    sch.bind(_loops(sch, "add")[0], "threadIdx.x")


FOR_A_CPU: tuple[Steps, ...] = (
    reduction_innermost,
    row_form,
    row_form_in_parallel,
    reduction_split_outside,
    reduction_split_outside_of_a_tile,
    reduction_outermost,
    reduction_outermost_of_columns,
    spatial_loops_fused,
    spatial_loops_fused_inside,
    uneven_tiles,
    uneven_rows_reduction_innermost,
    inside_a_vectorized_loop,
    inside_a_vectorized_part,
    unit_loops,
    unrolled,
    epilogue_in_the_row,
    epilogue_outside_of_the_place,
    epilogue_in_a_tile_of_its_own,
    input_copied_in_the_reduction_loop,
    input_copied_in_the_row,
)
FOR_A_GPU: tuple[Steps, ...] = (threads, thread_tiles)


def _case(steps: Steps, **more: Any) -> Case:
    return Case(
        name=f"tail_{steps.__name__}",
        func=FLOAT,
        schedule=steps,
        reference=lambda A, B, C: np.maximum(A @ B.T + C, 0),
        absorbed=("C[",),
        tails={"add": "T.max(x, "},
        twin="partial_sums_in_the_tile",
        **more,
    )


def _exact(case: Case) -> Case:
    """The same call by call with nothing absorbed."""
    return replace(
        case,
        name=f"{case.name}_exactly",
        numerics="exact",
        absorbed=("",),
        tails={"add": "T.max(x + C["},
    )


def _of_integers(case: Case) -> Case:
    return replace(
        case,
        name=f"{case.name}_of_integers",
        func=INTEGER,
        reference=lambda A, B, C: np.maximum(matmul(A, B, "int16") + C, 0),
    )


# ---------------------------------------------------------------------------------------------
# Blocks that have no loop, or share theirs
# ---------------------------------------------------------------------------------------------


@lazy.prim_func(s_tir=True)
def total_of_everything(
    A: T.Buffer((ROWS, DEPTH), "int32"), C: T.Buffer((), "int32"), D: T.Buffer((), "int8")
):
    temp = T.sblock_alloc_buffer((), "int32")
    for i, k in T.grid(ROWS, DEPTH):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("RR", [i, k])
            with T.init():
                temp[()] = 0
            temp[()] = temp[()] + A[vi, vk]
    with T.sblock("add"):
        D[()] = T.Cast("int8", temp[()] + C[()])


# The reduction has a single step and no loop for it.
@lazy.prim_func(s_tir=True)
def no_reduction_loop(A: T.Buffer((ROWS, 1), "int32"), D: T.Buffer((ROWS,), "int32")):
    temp = T.sblock_alloc_buffer((ROWS,), "int32")
    for i in range(ROWS):
        with T.sblock("mm"):
            vi = T.axis.spatial(ROWS, i)
            vk = T.axis.reduce(1, 0)
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk] * 3
    for i in range(ROWS):
        with T.sblock("add"):
            vi = T.axis.spatial(ROWS, i)
            D[vi] = T.max(temp[vi], 7)


# The tail replaces what it reads.
@lazy.prim_func(s_tir=True)
def bent_in_place(A: T.Buffer((ROWS, DEPTH), "int32"), D: T.Buffer((ROWS,), "int32")):
    temp = T.sblock_alloc_buffer((ROWS,), "int32")
    sum_rows_of(A, temp)
    for i in range(ROWS):
        with T.sblock("add"):
            vi = T.axis.spatial(ROWS, i)
            D[vi] = T.max(temp[vi], D[vi]) & 1023


# What it reads is replaced by a tail before it, or after it: that depends on the order.
@lazy.prim_func(s_tir=True)
def bent_in_place_of_another(A: T.Buffer((ROWS, DEPTH), "int32"), D: T.Buffer((ROWS,), "int32")):
    temp = T.sblock_alloc_buffer((ROWS,), "int32")
    sum_rows_of(A, temp)
    for i in range(ROWS):
        with T.sblock("add"):
            vi = T.axis.spatial(ROWS, i)
            D[vi] = T.max(temp[vi], D[ROWS - 1 - vi])


# In the end the first column of the input is replaced; until then it is needed.
@lazy.prim_func(s_tir=True)
def bent_into_an_input(A: T.Buffer((ROWS, DEPTH), "int32")):
    temp = T.sblock_alloc_buffer((ROWS,), "int32")
    for i, k in T.grid(ROWS, DEPTH):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[ROWS - 1 - vi, vk]
    for i in range(ROWS):
        with T.sblock("add"):
            vi = T.axis.spatial(ROWS, i)
            A[vi, 0] = T.max(temp[vi], 7)


# Other work stands in the same loop, before and after the reduction's own.
@lazy.prim_func(s_tir=True)
def other_work_in_the_row(
    A: T.Buffer((ROWS, DEPTH), "int32"),
    C: T.Buffer((ROWS,), "int32"),
    D: T.Buffer((ROWS,), "int32"),
    F: T.Buffer((ROWS,), "int32"),
):
    temp = T.sblock_alloc_buffer((ROWS,), "int32")
    bias = T.sblock_alloc_buffer((ROWS,), "int32")
    for i in range(ROWS):
        with T.sblock("make_bias"):
            vi = T.axis.spatial(ROWS, i)
            bias[vi] = C[vi] * 2
        for k in range(DEPTH):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
        with T.sblock("elsewhere"):
            vi = T.axis.spatial(ROWS, i)
            F[vi] = C[vi] + 1
    for i in range(ROWS):
        with T.sblock("add"):
            vi = T.axis.spatial(ROWS, i)
            D[vi] = T.max(temp[vi], 7)


@lazy.prim_func(s_tir=True)
def any_size(a: T.handle, b: T.handle, d: T.handle):
    n, m, k = T.int32(), T.int32(), T.int32()
    A = T.match_buffer(a, (n, k), "float32")
    B = T.match_buffer(b, (m, k), "float32")
    D = T.match_buffer(d, (m, n), "float32")
    temp = T.sblock_alloc_buffer((n, m), "float32")
    for i, r, j in T.grid(n, k, m):
        with T.sblock("mm"):
            vi, vk, vj = T.axis.remap("SRS", [i, r, j])
            with T.init():
                temp[vi, vj] = T.float32(0)
            temp[vi, vj] = temp[vi, vj] + A[vi, vk] * B[vj, vk]
    for j, i in T.grid(m, n):
        with T.sblock("add"):
            vj, vi = T.axis.remap("SS", [j, i])
            D[vj, vi] = T.max(temp[vi, vj], T.float32(0))


def split_any_size(sch: Schedule) -> None:
    i, r, j = _loops(sch)
    i0, i1 = sch.split(i, [None, 4])
    r0, r1 = sch.split(r, [None, 4])
    sch.reorder(i0, r0, i1, r1, j)


# The loops over the columns and over the steps are one: behind it, no loop over columns is there
# to be copied, and the row has to get one of its own.
@lazy.prim_func(s_tir=True)
def columns_and_steps_in_one_loop(
    A: T.Buffer((ROWS, DEPTH), "int32"), D: T.Buffer((ROWS, COLS), "int32")
):
    temp = T.sblock_alloc_buffer((ROWS, COLS), "int32")
    for i, f in T.grid(ROWS, COLS * DEPTH):
        with T.sblock("mm"):
            vi = T.axis.spatial(ROWS, i)
            vj = T.axis.spatial(COLS, f // DEPTH)
            vk = T.axis.reduce(DEPTH, f % DEPTH)
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + A[vi, vk] * vj
    for i, j in T.grid(ROWS, COLS):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(temp[vi, vj], 7)


# The loops over the columns' tiles and over the steps are one, those in a tile are not.
@lazy.prim_func(s_tir=True)
def part_of_the_columns_and_steps_in_one_loop(
    A: T.Buffer((ROWS, DEPTH), "int32"), D: T.Buffer((ROWS, COLS), "int32")
):
    temp = T.sblock_alloc_buffer((ROWS, COLS), "int32")
    for i, f, j in T.grid(ROWS, COLS // 4 * DEPTH, 4):
        with T.sblock("mm"):
            vi = T.axis.spatial(ROWS, i)
            vj = T.axis.spatial(COLS, f // DEPTH * 4 + j)
            vk = T.axis.reduce(DEPTH, f % DEPTH)
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + A[vi, vk] * vj
    for i, j in T.grid(ROWS, COLS):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(temp[vi, vj], 7)


def _first_column_replaced(A: np.ndarray) -> np.ndarray:
    return np.hstack([np.maximum(row_sums(A)[::-1], 7)[:, None], A[:, 1:]])


def _by_column(A: np.ndarray) -> np.ndarray:
    return np.maximum(row_sums(A)[:, None] * np.arange(COLS, dtype="int32"), 7)


_ON_CPU = [_case(steps) for steps in FOR_A_CPU]
_ON_GPU = [_case(steps, local=True) for steps in FOR_A_GPU]
# Here the epilogue stands where a tail would, and without a bias to absorb nothing is left to do.
_IN_PLACE = (
    reduction_outermost,
    reduction_outermost_of_columns,
    spatial_loops_fused_inside,
    epilogue_in_the_row,
)
_SIZES = ({"n": 5, "m": 4, "k": 3}, {"n": 1, "m": 9, "k": 1}, {"n": 17, "m": 1, "k": 8})
_ANY_SIZE = Case(
    name="tail_of_any_size",
    func=any_size,
    reference=lambda A, B: np.maximum(A @ B.T, 0).T,
    absorbed=("",),
    tails={"add": "T.max(x, "},
    sizes=_SIZES,
    twin="symbolic_corner",
)

ACCEPT = [
    *_ON_CPU,
    *_ON_GPU,
    *[_exact(case) for case in (*_ON_CPU, *_ON_GPU) if case.schedule not in _IN_PLACE],
    *[_of_integers(case) for case in _ON_CPU[::3]],
    # The schedules of the plain bias, for a bias and a ReLU.
    *[_case(steps, local=steps in BOUND_FIRST) for steps in PLACED_FIRST],
    Case(
        name="total_of_everything",
        func=total_of_everything,
        reference=lambda A, C: np.asarray(A.sum(dtype="int32") + C).astype("int8"),
        absorbed=("C[()]",),
        tails={"add": 'T.Cast("int8", x)'},
    ),
    Case(
        name="no_reduction_loop",
        func=no_reduction_loop,
        reference=lambda A: np.maximum(A[:, 0] * 3, 7),
        absorbed=("",),
        tails={"add": "T.max(x, 7)"},
        twin="unused_reduction_loop",
    ),
    Case(
        name="bent_in_place",
        func=bent_in_place,
        reference=lambda A, D: np.maximum(row_sums(A), D) & 1023,
        absorbed=("",),
        tails={"add": "T.max(x, D[vi]) & 1023"},
        twin="bent_in_place_of_another",
        **IN_PLACE,
    ),
    Case(
        name="other_work_in_the_row",
        func=other_work_in_the_row,
        reference=lambda A, C: {"D": np.maximum(row_sums(A), 7), "F": C + 1},
        outputs=("D", "F"),
        absorbed=("",),
        tails={"add": "T.max(x, 7)"},
        twin="bias_made_between_in_a_shared_loop",
    ),
    _ANY_SIZE,
    replace(_ANY_SIZE, name="tail_of_any_size_in_tiles", schedule=split_any_size),
]

EITHER = [
    Case(
        name="columns_and_steps_in_one_loop",
        func=columns_and_steps_in_one_loop,
        reference=_by_column,
        code=("reduction-order", "tail-place"),
        either=True,
    ),
]

REFUSE = [
    *[
        replace(_exact(_case(steps)), absorbed=(), tails={}, code="already-fused")
        for steps in _IN_PLACE
    ],
    Case(
        name="part_of_the_columns_and_steps_in_one_loop",
        func=part_of_the_columns_and_steps_in_one_loop,
        reference=_by_column,
        code="tail-place",
    ),
    Case(
        name="bent_in_place_of_another",
        func=bent_in_place_of_another,
        code="output-aliases-input",
        **IN_PLACE,
    ),
    Case(
        name="bent_into_an_input",
        func=bent_into_an_input,
        reference=_first_column_replaced,
        code="output-aliases-input",
        outputs=(),
        updates=("A",),
    ),
]
