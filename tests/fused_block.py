"""A program to fuse, and parts of schedules for what comes after: for the tests of fused blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir
from tvm.s_tir import Schedule, Trace
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from oracles import assert_same_bits, expected, make_inputs, run
from programs import Case
from programs.case import matmul

ROWS, COLS, DEPTH = 8, 12, 10

Steps = Callable[[Schedule], Any]


@T.prim_func(s_tir=True)
def bias_product_relu(
    A: T.Buffer((ROWS, DEPTH), "int8"),
    B: T.Buffer((COLS, DEPTH), "int8"),
    E: T.Buffer((COLS,), "int32"),
    R: T.Buffer((ROWS, COLS), "int32"),
    D: T.Buffer((ROWS, COLS), "int32"),
):
    C = T.sblock_alloc_buffer((COLS,), "int32")
    temp = T.sblock_alloc_buffer((ROWS, COLS), "int32")
    biased = T.sblock_alloc_buffer((ROWS, COLS), "int32")
    for j in range(COLS):
        with T.sblock("bias"):
            vj = T.axis.spatial(COLS, j)
            C[vj] = E[vj] * 3 + 1
    for i, j, k in T.grid(ROWS, COLS, DEPTH):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] += T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for i, j in T.grid(ROWS, COLS):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            biased[vi, vj] = temp[vi, vj] + C[vj]
    for i, j in T.grid(ROWS, COLS):
        with T.sblock("relu"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(biased[vi, vj], R[vi, vj])


PROGRAM = Case(
    name="bias_product_relu",
    func=bias_product_relu,
    reference=lambda A, B, E, R: np.maximum(matmul(A, B) + E * 3 + 1, R),
)


# ---------------------------------------------------------------------------------------------
# Parts of schedules
# ---------------------------------------------------------------------------------------------


def nothing(sch: Schedule) -> None:
    pass


def schedule(case: Case = PROGRAM) -> Schedule:
    return Schedule(case.func, debug_mask="all")


def fused() -> Schedule:
    """`PROGRAM` with the bias absorbed; blocks: bias, mm, relu."""
    sch = schedule()
    report = sch.fuse_reduction_epilogue("mm", "add")
    assert [step.epilogue for step in report.steps] == ["add"]
    return sch


def loops(sch: Schedule, block: str) -> list[Any]:
    return list(sch.get_loops(sch.get_sblock(block)))


def blocks(func: PrimFunc) -> dict[str, s_tir.SBlock]:
    """The blocks of `func` by name, without the root."""
    found: dict[str, s_tir.SBlock] = {}
    tvm_ffi.structural_walk(func, [(s_tir.SBlock, lambda b: found.update({b.name_hint: b}))])
    del found["root"]
    return found


def tile(sch: Schedule) -> None:
    """Tiles that divide no extent but one, the reduction between the two levels."""
    i, j, k = loops(sch, "mm")
    (i0, i1), (j0, j1), (k0, k1) = (sch.split(x, [None, f]) for x, f in ((i, 5), (j, 4), (k, 4)))
    sch.reorder(i0, j0, k0, i1, j1, k1)


def decompose(sch: Schedule, position: int) -> None:
    """Blocks mm_init and mm_update out of mm, the init before its loop number `position`."""
    sch.decompose_reduction(sch.get_sblock("mm"), loops(sch, "mm")[position])


def move(sch: Schedule, block: str, to: str, position: int) -> None:
    """Compute `block` inside loop number `position` of block `to`."""
    sch.compute_at(sch.get_sblock(block), loops(sch, to)[position])


def move_back(sch: Schedule, block: str, to: str, position: int) -> None:
    """The same for a block that comes after `to`."""
    sch.reverse_compute_at(sch.get_sblock(block), loops(sch, to)[position])


def reduction_outermost(sch: Schedule) -> None:
    i, j, k = loops(sch, "mm")
    sch.reorder(k, j, i)
    sch.vectorize(i)


def relu_in_the_row(sch: Schedule) -> None:
    move_back(sch, "relu", "mm", 0)


@T.prim_func(s_tir=True)
def dot_of_five(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (5,), "int8", offset_factor=1)
    B = T.match_buffer(b, (5,), "int8", offset_factor=1)
    C = T.match_buffer(c, (1,), "int32", offset_factor=1)
    with T.sblock("root"):
        T.reads(C[0], A[0:5], B[0:5])
        T.writes(C[0])
        for k in range(5):
            with T.sblock("step"):
                vk = T.axis.reduce(5, k)
                C[0] = C[0] + T.Cast("int32", A[vk]) * T.Cast("int32", B[vk])


@T.prim_func(s_tir=True)
def dot_of_five_unrolled(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (5,), "int8", offset_factor=1)
    B = T.match_buffer(b, (5,), "int8", offset_factor=1)
    C = T.match_buffer(c, (1,), "int32", offset_factor=1)
    with T.sblock("root"):
        T.reads(C[0], A[0:5], B[0:5])
        T.writes(C[0])
        C[0] = (
            C[0]
            + T.Cast("int32", A[0]) * T.Cast("int32", B[0])
            + T.Cast("int32", A[1]) * T.Cast("int32", B[1])
            + T.Cast("int32", A[2]) * T.Cast("int32", B[2])
            + T.Cast("int32", A[3]) * T.Cast("int32", B[3])
            + T.Cast("int32", A[4]) * T.Cast("int32", B[4])
        )


INTRINSIC = "fuse_epilogue.test.dot_of_five"
s_tir.TensorIntrin.register(INTRINSIC, dot_of_five, dot_of_five_unrolled, override=True)


# ---------------------------------------------------------------------------------------------
# Checks
# ---------------------------------------------------------------------------------------------


def assert_right(function: Any, case: Case, what: str) -> None:
    """A built function computes what its program's reference says, bit for bit."""
    inputs = make_inputs(case, "exact", {})
    for name, value in expected(case, inputs).items():
        assert_same_bits(run(function, case, inputs, {})[name], value, what)


def replayed(sch: Schedule, case: Case = PROGRAM) -> Schedule:
    """The trace of `sch` on a fresh schedule of the program, by way of JSON text."""
    fresh = schedule(case)
    stored = tvm.ir.save_json(sch.trace.as_json())
    Trace.apply_json_to_schedule(tvm.ir.load_json(stored), fresh)
    return fresh


def each(sequences: list[Steps]) -> Any:
    return pytest.mark.parametrize("steps", [pytest.param(s, id=s.__name__) for s in sequences])
