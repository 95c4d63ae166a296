"""Sums with several readers: fused together where all can be, and kept alive where one stays.

They are row sums, ``temp[i] = sum of A[i, k]``: what matters is who reads them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm.script import tirx as T

from . import lazy
from .builders import K, M, add_rows, sum_rows
from .case import WITH_F, Case, Reference, refused, row_sums
from .lazy import Program, name_of

# ---------------------------------------------------------------------------------------------
# All readers are fused
# ---------------------------------------------------------------------------------------------


@lazy.prim_func(s_tir=True)
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


@lazy.prim_func(s_tir=True)
def three_readers_each_in_its_way(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
    F: T.Buffer((4, M // 4), "int32"),
    G: T.Buffer((M,), "int8"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    add_rows(temp, C, D)
    for i, j in T.grid(4, M // 4):
        with T.sblock("square"):
            vi, vj = T.axis.remap("SS", [i, j])
            F[vi, vj] = temp[vi * (M // 4) + vj] * temp[vi * (M // 4) + vj]
    for i in range(M):
        with T.sblock("narrow"):
            vi = T.axis.spatial(M, i)
            G[M - 1 - vi] = T.Cast("int8", temp[vi])


# One of the readers reads the other's result, too.
@lazy.prim_func(s_tir=True)
def sum_and_its_double(
    A: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32"), F: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("double"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] * 2
    for i in range(M):
        with T.sblock("both"):
            vi = T.axis.spatial(M, i)
            F[vi] = D[vi] - temp[vi]


@lazy.prim_func(s_tir=True)
def bias_then_two_readers(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
    F: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    mid = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    add_rows(temp, C, mid)
    for i in range(M):
        with T.sblock("double"):
            vi = T.axis.spatial(M, i)
            D[vi] = mid[vi] * 2
    for i in range(M):
        with T.sblock("add_one"):
            vi = T.axis.spatial(M, i)
            F[vi] = mid[vi] + 1


# ---------------------------------------------------------------------------------------------
# One reader stays, so the sum stays alive
# ---------------------------------------------------------------------------------------------


@lazy.prim_func(s_tir=True)
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


@lazy.prim_func(s_tir=True)
def intermediate_read_in_between(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
    F: T.Buffer((M - 1,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M - 1):
        with T.sblock("differences"):
            vi = T.axis.spatial(M - 1, i)
            F[vi] = temp[vi + 1] - temp[vi]
    add_rows(temp, C, D)


# The other reader stands inside another block, where its read is not the outer block's own.
@lazy.prim_func(s_tir=True)
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


@lazy.prim_func(s_tir=True)
def sum_is_a_parameter(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
    temp: T.Buffer((M,), "int32"),
):
    sum_rows(A, temp)
    add_rows(temp, C, D)


@lazy.prim_func(s_tir=True)
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


@lazy.prim_func(s_tir=True)
def output_read_afterwards(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
    F: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    add_rows(temp, C, D)
    for i in range(M):
        with T.sblock("add_one"):
            vi = T.axis.spatial(M, i)
            F[vi] = D[vi] + 1


# The bias of the second reader is made after the sum: it cannot come with the first.
@lazy.prim_func(s_tir=True)
def second_reader_with_a_late_bias(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
    F: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    late = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    add_rows(temp, C, D)
    for i in range(M):
        with T.sblock("make_late"):
            vi = T.axis.spatial(M, i)
            late[vi] = C[vi] * 2
    for i in range(M):
        with T.sblock("add_late"):
            vi = T.axis.spatial(M, i)
            F[vi] = temp[vi] + late[vi]


@lazy.prim_func(s_tir=True)
def first_reader_with_a_late_bias(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
    F: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    late = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("make_late"):
            vi = T.axis.spatial(M, i)
            late[vi] = C[vi] * 2
    for i in range(M):
        with T.sblock("add_late"):
            vi = T.axis.spatial(M, i)
            F[vi] = temp[vi] + late[vi]
    add_rows(temp, C, D)


# The second reader wants only the first rows.
@lazy.prim_func(s_tir=True)
def second_reader_of_a_few_rows(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
    F: T.Buffer((2,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = T.max(temp[vi], C[vi])
    for i in range(2):
        with T.sblock("few"):
            vi = T.axis.spatial(2, i)
            F[vi] = temp[vi]


# ---------------------------------------------------------------------------------------------
# Readers that get in each other's way
# ---------------------------------------------------------------------------------------------


# The second reader overwrites what the first reads, element by element.
@lazy.prim_func(s_tir=True)
def second_reader_overwrites_the_bias(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    add_rows(temp, C, D)
    for i in range(M):
        with T.sblock("overwrite"):
            vi = T.axis.spatial(M, i)
            C[vi] = temp[vi] * 2


# Here the first reads it the other way round: together, it would read what the second has written.
@lazy.prim_func(s_tir=True)
def second_reader_overwrites_another_element(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[M - 1 - vi]
    for i in range(M):
        with T.sblock("overwrite"):
            vi = T.axis.spatial(M, i)
            C[vi] = temp[vi] * 2


# The second reader reads what the first writes, at another element.
@lazy.prim_func(s_tir=True)
def second_reader_reads_another_element(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
    F: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    add_rows(temp, C, D)
    for i in range(M):
        with T.sblock("mirror"):
            vi = T.axis.spatial(M, i)
            F[vi] = temp[vi] + D[M - 1 - vi]


# Both write the same output, the second over the first.
@lazy.prim_func(s_tir=True)
def two_readers_with_one_output(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    add_rows(temp, C, D)
    for i in range(M):
        with T.sblock("again"):
            vi = T.axis.spatial(M, i)
            D[M - 1 - vi] = temp[vi] * 2


# A tail in every row would overwrite the input of the next one.
@lazy.prim_func(s_tir=True)
def second_reader_overwrites_an_input(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    add_rows(temp, C, D)
    for i in range(M - 1):
        with T.sblock("overwrite"):
            vi = T.axis.spatial(M - 1, i)
            A[vi + 1, 0] = temp[vi]


def _overwritten_input(A: np.ndarray, C: np.ndarray) -> dict[str, np.ndarray]:
    after = A.copy()
    after[1:, 0] = row_sums(A)[:-1]
    return {"D": row_sums(A) + C, "A": after}


def _with(func: Program, reference: Reference, **more: Any) -> Case:
    """An accepting case in which nothing is absorbed, unless `more` says so."""
    options = {"absorbed": ("",) * len(more.get("epilogues", ("add",))), "one_by_one": False}
    return Case(
        name=name_of(func),
        func=func,
        reference=reference,
        **{**options, **WITH_F, **more},
    )


ALL_FUSED = [
    _with(
        intermediate_read_twice,
        lambda A, C: {"D": row_sums(A) + C, "F": row_sums(A) + C},
        epilogues=("add", "other"),
        tails={"add": "x + C[vi]", "other": "x + C[vi]"},
        twin="intermediate_changed_between",
    ),
    _with(
        three_readers_each_in_its_way,
        lambda A, C: {
            "D": row_sums(A) + C,
            "F": np.square(row_sums(A)).reshape(4, M // 4),
            "G": row_sums(A)[::-1].astype("int8"),
        },
        epilogues=("add", "square", "narrow"),
        tails={"add": "x + C[vi]", "square": "x * x", "narrow": 'T.Cast("int8", x)'},
        outputs=("D", "F", "G"),
        twin="intermediate_changed_between",
    ),
    _with(
        sum_and_its_double,
        lambda A: {"D": row_sums(A) * 2, "F": row_sums(A)},
        epilogues=("double", "both"),
        tails={"double": "x * 2", "both": ""},
        twin="intermediate_changed_between",
    ),
    _with(
        bias_then_two_readers,
        lambda A, C: {"D": (row_sums(A) + C) * 2, "F": row_sums(A) + C + 1},
        epilogues=("add", "double", "add_one"),
        absorbed=("C[vi]", "", ""),
        tails={"double": "x * 2", "add_one": "x + 1"},
        twin="intermediate_changed_between",
    ),
]

SUM_KEPT = [
    _with(
        intermediate_read_by_a_reduction,
        lambda A, C: {"D": row_sums(A) + C, "F": A.sum(dtype="int32").reshape(1)},
        tails={"add": "x + C[vi]"},
        kept=("temp",),
        stopped="consumer-form",
        twin="intermediate_changed_between",
    ),
    _with(
        intermediate_read_in_between,
        lambda A, C: {"D": row_sums(A) + C, "F": np.diff(row_sums(A))},
        tails={"add": "x + C[vi]"},
        kept=("temp",),
        stopped="domain",
        twin="intermediate_changed_between",
    ),
    _with(
        intermediate_read_in_an_inner_block,
        lambda A, C: {"D": row_sums(A) + C, "F": row_sums(A)},
        tails={"add": "x + C[vi]"},
        kept=("temp",),
        stopped="structure",
        twin="epilogue_in_another_scope",
    ),
    _with(
        sum_is_a_parameter,
        lambda A, C: {"D": row_sums(A) + C, "temp": row_sums(A)},
        tails={"add": "x + C[vi]"},
        kept=("temp",),
        outputs=("D", "temp"),
        one_by_one=True,
        twin="intermediate_changed_between",
    ),
    _with(
        allocated_outside,
        lambda A, C: A.sum(axis=2, dtype="int32") + C,
        tails={"add": "x + C[vi]"},
        kept=("temp",),
        outputs=("D",),
        one_by_one=True,
        twin="epilogue_in_another_scope",
    ),
    _with(
        output_read_afterwards,
        lambda A, C: {"D": row_sums(A) + C, "F": row_sums(A) + C + 1},
        epilogues=("add", "add_one"),
        absorbed=("C[vi]", ""),
        tails={"add_one": "x + 1"},
        kept=("D",),
        twin="intermediate_changed_between",
    ),
    _with(
        second_reader_with_a_late_bias,
        lambda A, C: {"D": row_sums(A) + C, "F": row_sums(A) + C * 2},
        tails={"add": "x + C[vi]"},
        kept=("temp",),
        stopped="bias-written-between",
        twin="bias_made_between",
    ),
    _with(
        first_reader_with_a_late_bias,
        lambda A, C: {"D": row_sums(A) + C, "F": row_sums(A) + C * 2},
        tails={"add": "x + C[vi]"},
        kept=("temp",),
        stopped="bias-written-between",
        twin="bias_made_between",
    ),
    _with(
        second_reader_of_a_few_rows,
        lambda A, C: {"D": np.maximum(row_sums(A), C), "F": row_sums(A)[:2]},
        tails={"add": "T.max(x, C[vi])"},
        kept=("temp",),
        stopped="domain",
        twin="corner",
    ),
]

ACCEPT = [*ALL_FUSED, *SUM_KEPT]


def _either(func: Program, reference: Reference, **more: Any) -> Case:
    return refused(func, more.pop("code", ()), reference=reference, either=True, **more)


# Fusing the first alone is right, and so is fusing both where the order of the elements allows it.
EITHER = [
    _either(
        second_reader_overwrites_the_bias,
        lambda A, C: {"D": row_sums(A) + C, "C": row_sums(A) * 2},
        updates=("C",),
    ),
    _either(
        second_reader_overwrites_another_element,
        lambda A, C: {"D": row_sums(A) + C[::-1], "C": row_sums(A) * 2},
        updates=("C",),
    ),
    _either(
        second_reader_reads_another_element,
        lambda A, C: {"D": row_sums(A) + C, "F": row_sums(A) + (row_sums(A) + C)[::-1]},
        **WITH_F,
    ),
    _either(
        two_readers_with_one_output,
        lambda A, C: row_sums(A)[::-1] * 2,
        code=("output-writers",),
    ),
    _either(
        second_reader_overwrites_an_input,
        _overwritten_input,
        updates=("A",),
    ),
]
