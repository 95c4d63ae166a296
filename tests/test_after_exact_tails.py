"""Tails of floating reductions, scheduled on: with ``numerics="exact"`` not a bit changes.

Each schedule is built and compared with the unfused program: ``"exact"`` ones bit for bit on
ordinary and on nasty data, the others bit for bit where every sum is exact.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule
from tvm.script import tirx as T

import fuse_epilogue
from fused_block import (
    COLS,
    DEPTH,
    ROWS,
    Steps,
    blocks,
    decompose,
    loops,
    move,
    replayed,
    schedule,
    tile,
)
from oracles import Builds, assert_identical, check_identical, make_inputs, run
from programs import Case

pytestmark = pytest.mark.cpp


@T.prim_func(s_tir=True)
def product_silu(
    A: T.Buffer((ROWS, DEPTH), "float32"),
    B: T.Buffer((COLS, DEPTH), "float32"),
    E: T.Buffer((COLS,), "float32"),
    D: T.Buffer((ROWS, COLS), "float32"),
):
    C = T.sblock_alloc_buffer((COLS,), "float32")
    temp = T.sblock_alloc_buffer((ROWS, COLS), "float32")
    biased = T.sblock_alloc_buffer((ROWS, COLS), "float32")
    gate = T.sblock_alloc_buffer((ROWS, COLS), "float32")
    for j in range(COLS):
        with T.sblock("bias"):
            vj = T.axis.spatial(COLS, j)
            C[vj] = E[vj] * T.float32(3)
    for i, j, k in T.grid(ROWS, COLS, DEPTH):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = T.float32(0)
            temp[vi, vj] += A[vi, vk] * B[vj, vk]
    for i, j in T.grid(ROWS, COLS):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            biased[vi, vj] = temp[vi, vj] + C[vj]
    for i, j in T.grid(ROWS, COLS):
        with T.sblock("gate"):
            vi, vj = T.axis.remap("SS", [i, j])
            gate[vi, vj] = T.float32(1) / (T.float32(1) + T.abs(biased[vi, vj]))
    for i, j in T.grid(ROWS, COLS):
        with T.sblock("mul"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = biased[vi, vj] * gate[vi, vj]


def gated(A: Any, B: Any, E: Any) -> np.ndarray:
    biased = A @ B.T + E * 3
    return biased * (1 / (1 + np.abs(biased)))


@T.prim_func(s_tir=True)
def product_and_mirror(
    A: T.Buffer((ROWS, DEPTH), "float32"),
    B: T.Buffer((COLS, DEPTH), "float32"),
    E: T.Buffer((COLS,), "float32"),
    D: T.Buffer((ROWS, COLS), "float32"),
    F: T.Buffer((ROWS, COLS), "float32"),
):
    C = T.sblock_alloc_buffer((COLS,), "float32")
    temp = T.sblock_alloc_buffer((ROWS, COLS), "float32")
    for j in range(COLS):
        with T.sblock("bias"):
            vj = T.axis.spatial(COLS, j)
            C[vj] = E[vj] * T.float32(3)
    for i, j, k in T.grid(ROWS, COLS, DEPTH):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = T.float32(0)
            temp[vi, vj] += A[vi, vk] * B[vj, vk]
    for i, j in T.grid(ROWS, COLS):
        with T.sblock("mul"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + C[vj]
    # Two elements that are not finished together: this block stays, and keeps temp alive.
    for i, j in T.grid(ROWS, COLS):
        with T.sblock("mirror"):
            vi, vj = T.axis.remap("SS", [i, j])
            F[vi, vj] = temp[vi, vj] - temp[7 - vi, vj]


def with_mirror(A: Any, B: Any, E: Any) -> dict[str, np.ndarray]:
    temp = A @ B.T
    return {"D": temp + E * 3, "F": temp - temp[::-1]}


def cases(numerics: str) -> dict[str, Case]:
    return {
        "silu": Case(name="product_silu", func=product_silu, reference=gated, numerics=numerics),
        "kept": Case(
            name="product_and_mirror",
            func=product_and_mirror,
            reference=with_mirror,
            outputs=("D", "F"),
            numerics=numerics,
        ),
    }


CASES = {
    f"{name}-{numerics}": case
    for numerics in ("reassociate", "exact")
    for name, case in cases(numerics).items()
}
# The blocks that the call leaves. Where the sum may be reordered, the bias is in its init, unless
# the sum without it is needed elsewhere.
LEFT = {
    "silu-reassociate": ["bias", "mm", "mul"],
    "silu-exact": ["bias", "mm", "add", "mul"],
    "kept-reassociate": ["bias", "mm", "mul", "mirror"],
    "kept-exact": ["bias", "mm", "mul", "mirror"],
}


# ---------------------------------------------------------------------------------------------
# Steps after the fusion: "mm" stands in loops (row, rest of mm), its last tail is "mul"
# ---------------------------------------------------------------------------------------------


def as_fused(sch: Schedule) -> None:
    pass


def vectors(sch: Schedule) -> None:
    sch.vectorize(loops(sch, "mul")[-1])
    sch.parallel(loops(sch, "mul")[0])


def split_and_unrolled(sch: Schedule) -> None:
    outer, inner = sch.split(loops(sch, "mul")[-1], [None, 3])
    sch.unroll(inner)
    sch.parallel(loops(sch, "mm")[0])


def in_registers(sch: Schedule) -> None:
    sch.set_scope("mm", 0, "local")


def cached(sch: Schedule) -> None:
    sch.cache_write("mul", 0, "local")
    sch.cache_read("mm", 0, "global")


def decomposed(sch: Schedule) -> None:
    decompose(sch, 1)
    sch.vectorize(loops(sch, "mm_init")[-1])
    sch.vectorize(loops(sch, "mul")[-1])


def bias_at_the_row(sch: Schedule) -> None:
    move(sch, "bias", "mm", 0)


STEPS: list[Steps] = [
    as_fused,
    vectors,
    split_and_unrolled,
    in_registers,
    cached,
    decomposed,
    bias_at_the_row,
]


def row(sch: Schedule) -> None:
    _, j, k = loops(sch, "mm")
    sch.reorder(k, j)


def scheduled(name: str, prepare: Steps, steps: Steps) -> Schedule:
    case = CASES[name]
    sch = schedule(case)
    prepare(sch)
    report = sch.fuse_reduction_epilogue("mm", **case.options)
    assert report.kept == (("temp",) if name.startswith("kept") else ())
    assert list(blocks(sch.mod["main"])) == LEFT[name]
    steps(sch)
    return sch


ALL = {
    f"{name}-{prepare.__name__}-{steps.__name__}": (name, prepare, steps)
    for name in CASES
    for prepare in (row, tile)
    for steps in STEPS
}


@pytest.fixture(scope="module")
def built() -> Builds:
    functions = {case.name: case.func for case in CASES.values()}
    for name, how in ALL.items():
        with contextlib.suppress(Exception):
            functions[name.replace("-", "_")] = scheduled(*how).mod["main"]
    return Builds(functions)


@pytest.mark.parametrize("name", ALL)
def test_not_a_bit_changes(name: str, built: Builds) -> None:
    case = CASES[ALL[name][0]]
    sch = scheduled(*ALL[name])
    tvm.ir.assert_structural_equal(replayed(sch, case).mod, sch.mod)
    unfused, after = built[case.name], built[name.replace("-", "_")]
    if case.numerics == "exact" or name.startswith("kept"):
        check_identical(case, unfused, after)
        return
    inputs = make_inputs(case, "exact", {})
    for output, value in run(unfused, case, inputs, {}).items():
        assert_identical(run(after, case, inputs, {})[output], value, f"{name}, {output}")


@pytest.mark.parametrize("name", CASES)
def test_what_is_left(name: str) -> None:
    """The kinds of data above would not show it if the option made no difference."""
    case = CASES[name]
    report = fuse_epilogue.analyze(schedule(case), "mm", **case.options)
    absorbed = [step.absorbed for step in report.steps]
    assert any(absorbed) == (name == "silu-reassociate")
