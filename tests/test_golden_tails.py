"""Programs before and after the fusion, in full, where something of the epilogue is left.

It stays a block of its name, right behind the reduction's loops. The programs are products of an
8 x 6 and a 7 x 6 matrix, and sums and maxima of the rows of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tvm.s_tir import Schedule
from tvm.s_tir.schedule.testing import assert_structural_equal_ignore_global_symbol
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

pytestmark = pytest.mark.cpp

# ---------------------------------------------------------------------------------------------
# A bias and a ReLU
# ---------------------------------------------------------------------------------------------


@T.prim_func(s_tir=True)
def bias_and_relu(
    A: T.Buffer((8, 6), "float32"),
    B: T.Buffer((7, 6), "float32"),
    C: T.Buffer((7,), "float32"),
    D: T.Buffer((8, 7), "float32"),
):
    temp = T.sblock_alloc_buffer((8, 7), "float32")
    mid = T.sblock_alloc_buffer((8, 7), "float32")
    for i, j, k in T.grid(8, 7, 6):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = T.float32(0)
            temp[vi, vj] = temp[vi, vj] + A[vi, vk] * B[vj, vk]
    for i, j in T.grid(8, 7):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            mid[vi, vj] = temp[vi, vj] + C[vj]
    for i, j in T.grid(8, 7):
        with T.sblock("relu"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(mid[vi, vj], T.float32(0))


@T.prim_func(s_tir=True)
def bias_and_relu_fused(
    A: T.Buffer((8, 6), "float32"),
    B: T.Buffer((7, 6), "float32"),
    C: T.Buffer((7,), "float32"),
    D: T.Buffer((8, 7), "float32"),
):
    mid = T.sblock_alloc_buffer((8, 7), "float32")
    for i, j in T.grid(8, 7):
        for k in range(6):
            with T.sblock("mm"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(C[vj], A[vi, vk], B[vj, vk])
                T.writes(mid[vi, vj])
                with T.init():
                    mid[vi, vj] = C[vj]
                mid[vi, vj] = mid[vi, vj] + A[vi, vk] * B[vj, vk]
        with T.sblock("relu"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(mid[vi, vj])
            T.writes(D[vi, vj])
            D[vi, vj] = T.max(mid[vi, vj], T.float32(0))


# Bit for bit: the two epilogues are one tail.
@T.prim_func(s_tir=True)
def bias_and_relu_fused_exactly(
    A: T.Buffer((8, 6), "float32"),
    B: T.Buffer((7, 6), "float32"),
    C: T.Buffer((7,), "float32"),
    D: T.Buffer((8, 7), "float32"),
):
    temp = T.sblock_alloc_buffer((8, 7), "float32")
    for i, j in T.grid(8, 7):
        for k in range(6):
            with T.sblock("mm"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(A[vi, vk], B[vj, vk])
                T.writes(temp[vi, vj])
                with T.init():
                    temp[vi, vj] = T.float32(0)
                temp[vi, vj] = temp[vi, vj] + A[vi, vk] * B[vj, vk]
        with T.sblock("relu"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(temp[vi, vj], C[vj])
            T.writes(D[vi, vj])
            D[vi, vj] = T.max(temp[vi, vj] + C[vj], T.float32(0))


def row_form(sch: Schedule) -> None:
    i, j, k = sch.get_loops(sch.get_sblock("mm"))
    sch.reorder(i, k, j)
    sch.vectorize(j)


@T.prim_func(s_tir=True)
def bias_and_relu_fused_in_row_form(
    A: T.Buffer((8, 6), "float32"),
    B: T.Buffer((7, 6), "float32"),
    C: T.Buffer((7,), "float32"),
    D: T.Buffer((8, 7), "float32"),
):
    mid = T.sblock_alloc_buffer((8, 7), "float32")
    for i in range(8):
        for k in range(6):
            for j in T.vectorized(7):
                with T.sblock("mm"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    T.reads(C[vj], A[vi, vk], B[vj, vk])
                    T.writes(mid[vi, vj])
                    with T.init():
                        mid[vi, vj] = C[vj]
                    mid[vi, vj] = mid[vi, vj] + A[vi, vk] * B[vj, vk]
        for j in T.vectorized(7):
            with T.sblock("relu"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(mid[vi, vj])
                T.writes(D[vi, vj])
                D[vi, vj] = T.max(mid[vi, vj], T.float32(0))


def uneven_tiles(sch: Schedule) -> None:
    i, j, k = sch.get_loops(sch.get_sblock("mm"))
    i0, i1 = sch.split(i, [None, 3])
    sch.reorder(i0, k, i1, j)


@T.prim_func(s_tir=True)
def bias_and_relu_fused_in_uneven_tiles(
    A: T.Buffer((8, 6), "float32"),
    B: T.Buffer((7, 6), "float32"),
    C: T.Buffer((7,), "float32"),
    D: T.Buffer((8, 7), "float32"),
):
    mid = T.sblock_alloc_buffer((8, 7), "float32")
    for i0 in range(3):
        for k, i1, j in T.grid(6, 3, 7):
            with T.sblock("mm"):
                vi = T.axis.spatial(8, i0 * 3 + i1)
                vj, vk = T.axis.remap("SR", [j, k])
                T.where(i0 * 3 + i1 < 8)
                T.reads(C[vj], A[vi, vk], B[vj, vk])
                T.writes(mid[vi, vj])
                with T.init():
                    mid[vi, vj] = C[vj]
                mid[vi, vj] = mid[vi, vj] + A[vi, vk] * B[vj, vk]
        for i1, j in T.grid(3, 7):
            with T.sblock("relu"):
                vi = T.axis.spatial(8, i0 * 3 + i1)
                vj = T.axis.spatial(7, j)
                T.where(i0 * 3 + i1 < 8)
                T.reads(mid[vi, vj])
                T.writes(D[vi, vj])
                D[vi, vj] = T.max(mid[vi, vj], T.float32(0))


# ---------------------------------------------------------------------------------------------
# Requantisation, transposed
# ---------------------------------------------------------------------------------------------


@T.prim_func(s_tir=True)
def requantised(
    A: T.Buffer((8, 6), "int8"),
    B: T.Buffer((7, 6), "int8"),
    C: T.Buffer((7,), "int32"),
    D: T.Buffer((7, 8), "int8"),
):
    temp = T.sblock_alloc_buffer((8, 7), "int32")
    for i, j, k in T.grid(8, 7, 6):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] += T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for j, i in T.grid(7, 8):
        with T.sblock("requantise"):
            vj, vi = T.axis.remap("SS", [j, i])
            D[vj, vi] = T.Cast(
                "int8", T.min(T.max(T.shift_right(temp[vi, vj] + C[vj] + 8, 4), -128), 127)
            )


@T.prim_func(s_tir=True)
def requantised_fused(
    A: T.Buffer((8, 6), "int8"),
    B: T.Buffer((7, 6), "int8"),
    C: T.Buffer((7,), "int32"),
    D: T.Buffer((7, 8), "int8"),
):
    temp = T.sblock_alloc_buffer((8, 7), "int32")
    for i, j in T.grid(8, 7):
        for k in range(6):
            with T.sblock("mm"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(C[vj], A[vi, vk], B[vj, vk])
                T.writes(temp[vi, vj])
                with T.init():
                    temp[vi, vj] = C[vj] + 8
                temp[vi, vj] = temp[vi, vj] + T.Cast("int32", A[vi, vk]) * T.Cast(
                    "int32", B[vj, vk]
                )
        with T.sblock("requantise"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(temp[vi, vj])
            T.writes(D[vj, vi])
            D[vj, vi] = T.Cast("int8", T.min(T.max(T.shift_right(temp[vi, vj], 4), -128), 127))


# ---------------------------------------------------------------------------------------------
# A maximum that is clipped
# ---------------------------------------------------------------------------------------------


@T.prim_func(s_tir=True)
def clipped_max(A: T.Buffer((8, 6), "float32"), D: T.Buffer((8,), "float32")):
    temp = T.sblock_alloc_buffer((8,), "float32")
    for i, k in T.grid(8, 6):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = T.min_value("float32")
            temp[vi] = T.max(temp[vi], A[vi, vk])
    for i in range(8):
        with T.sblock("clip"):
            vi = T.axis.spatial(8, i)
            D[vi] = T.min(T.max(temp[vi], T.float32(0)), T.float32(6))


@T.prim_func(s_tir=True)
def clipped_max_fused(A: T.Buffer((8, 6), "float32"), D: T.Buffer((8,), "float32")):
    temp = T.sblock_alloc_buffer((8,), "float32")
    for i in range(8):
        for k in range(6):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(A[vi, vk])
                T.writes(temp[vi])
                with T.init():
                    temp[vi] = T.float32(0)
                temp[vi] = T.max(temp[vi], A[vi, vk])
        with T.sblock("clip"):
            vi = T.axis.spatial(8, i)
            T.reads(temp[vi])
            T.writes(D[vi])
            D[vi] = T.min(temp[vi], T.float32(6))


@T.prim_func(s_tir=True)
def clipped_max_distributed(A: T.Buffer((8, 6), "float32"), D: T.Buffer((8,), "float32")):
    for i, k in T.grid(8, 6):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.reads(A[vi, vk])
            T.writes(D[vi])
            with T.init():
                D[vi] = T.float32(0)
            D[vi] = T.max(D[vi], T.min(A[vi, vk], T.float32(6)))


# ---------------------------------------------------------------------------------------------
# Several readers
# ---------------------------------------------------------------------------------------------


@T.prim_func(s_tir=True)
def two_readers(
    A: T.Buffer((8, 6), "int32"),
    C: T.Buffer((8,), "int32"),
    D: T.Buffer((8,), "int32"),
    F: T.Buffer((8,), "int32"),
):
    temp = T.sblock_alloc_buffer((8,), "int32")
    for i, k in T.grid(8, 6):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(8):
        with T.sblock("add"):
            vi = T.axis.spatial(8, i)
            D[vi] = temp[vi] + C[vi]
    for i in range(8):
        with T.sblock("double"):
            vi = T.axis.spatial(8, i)
            F[7 - vi] = temp[vi] * 2


@T.prim_func(s_tir=True)
def two_readers_fused(
    A: T.Buffer((8, 6), "int32"),
    C: T.Buffer((8,), "int32"),
    D: T.Buffer((8,), "int32"),
    F: T.Buffer((8,), "int32"),
):
    temp = T.sblock_alloc_buffer((8,), "int32")
    for i in range(8):
        for k in range(6):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(A[vi, vk])
                T.writes(temp[vi])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
        with T.sblock("add"):
            vi = T.axis.spatial(8, i)
            T.reads(temp[vi], C[vi])
            T.writes(D[vi])
            D[vi] = temp[vi] + C[vi]
        with T.sblock("double"):
            vi = T.axis.spatial(8, i)
            T.reads(temp[vi])
            T.writes(F[7 - vi])
            F[7 - vi] = temp[vi] * 2


# Only the first is fused: the sum stays as it is, for the second.
@T.prim_func(s_tir=True)
def first_of_two_readers_fused(
    A: T.Buffer((8, 6), "int32"),
    C: T.Buffer((8,), "int32"),
    D: T.Buffer((8,), "int32"),
    F: T.Buffer((8,), "int32"),
):
    temp = T.sblock_alloc_buffer((8,), "int32")
    for i in range(8):
        for k in range(6):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(A[vi, vk])
                T.writes(temp[vi])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
        with T.sblock("add"):
            vi = T.axis.spatial(8, i)
            T.reads(temp[vi], C[vi])
            T.writes(D[vi])
            D[vi] = temp[vi] + C[vi]
    for i in range(8):
        with T.sblock("double"):
            vi = T.axis.spatial(8, i)
            F[7 - vi] = temp[vi] * 2


# The biased sum has two readers, of which one reads the other's result: SiLU.
@T.prim_func(s_tir=True)
def silu(
    A: T.Buffer((8, 6), "float32"), C: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")
):
    temp = T.sblock_alloc_buffer((8,), "float32")
    biased = T.sblock_alloc_buffer((8,), "float32")
    gate = T.sblock_alloc_buffer((8,), "float32")
    for i, k in T.grid(8, 6):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = T.float32(0)
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(8):
        with T.sblock("add"):
            vi = T.axis.spatial(8, i)
            biased[vi] = temp[vi] + C[vi]
    for i in range(8):
        with T.sblock("sigmoid"):
            vi = T.axis.spatial(8, i)
            gate[vi] = T.sigmoid(biased[vi])
    for i in range(8):
        with T.sblock("multiply"):
            vi = T.axis.spatial(8, i)
            D[vi] = biased[vi] * gate[vi]


@T.prim_func(s_tir=True)
def silu_fused(
    A: T.Buffer((8, 6), "float32"), C: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")
):
    biased = T.sblock_alloc_buffer((8,), "float32")
    for i in range(8):
        for k in range(6):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(C[vi], A[vi, vk])
                T.writes(biased[vi])
                with T.init():
                    biased[vi] = C[vi]
                biased[vi] = biased[vi] + A[vi, vk]
        with T.sblock("multiply"):
            vi = T.axis.spatial(8, i)
            T.reads(biased[vi])
            T.writes(D[vi])
            D[vi] = biased[vi] * T.sigmoid(biased[vi])


# ---------------------------------------------------------------------------------------------
# The pairs
# ---------------------------------------------------------------------------------------------


def unscheduled(sch: Schedule) -> None:
    pass


@dataclass(frozen=True)
class Golden:
    """A program, what is done to it, and what it becomes."""

    before: PrimFunc
    after: PrimFunc
    call: Callable[[Schedule], Any] = lambda sch: sch.fuse_reduction_epilogue("mm")
    schedule: Callable[[Schedule], None] = unscheduled


GOLDEN: dict[str, Golden] = {
    "ReLU": Golden(bias_and_relu, bias_and_relu_fused),
    "ReLU, exactly": Golden(
        bias_and_relu,
        bias_and_relu_fused_exactly,
        lambda sch: sch.fuse_reduction_epilogue("mm", numerics="exact"),
    ),
    "ReLU in row form": Golden(bias_and_relu, bias_and_relu_fused_in_row_form, schedule=row_form),
    "ReLU in uneven tiles": Golden(
        bias_and_relu, bias_and_relu_fused_in_uneven_tiles, schedule=uneven_tiles
    ),
    "requantisation": Golden(requantised, requantised_fused),
    "clip of a maximum": Golden(clipped_max, clipped_max_fused),
    "clip of a maximum, in every term": Golden(
        clipped_max,
        clipped_max_distributed,
        lambda sch: sch.fuse_reduction_epilogue("mm", distribute=True),
    ),
    "two readers": Golden(two_readers, two_readers_fused),
    "one of two readers": Golden(
        two_readers,
        first_of_two_readers_fused,
        lambda sch: sch.fuse_reduction_epilogue("mm", "add"),
    ),
    "SiLU": Golden(silu, silu_fused),
}


@pytest.mark.parametrize("golden", [pytest.param(g, id=name) for name, g in GOLDEN.items()])
def test_becomes(golden: Golden) -> None:
    sch = Schedule(golden.before, debug_mask="all")
    golden.schedule(sch)
    golden.call(sch)
    assert_structural_equal_ignore_global_symbol(sch.mod["main"], golden.after)
