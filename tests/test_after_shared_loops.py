"""TVM's primitives on loops in which a reduction and another block stand, a tail for example.

Some of them take such loops for the reduction's own. Where that would be wrong they are refused,
live and in a replayed trace; where it is right they are not.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import s_tir
from tvm.s_tir import Schedule
from tvm.script import tirx as T

import fuse_epilogue
from fused_block import (
    COLS,
    DEPTH,
    ROWS,
    Steps,
    assert_right,
    loops,
    move,
    move_back,
    nothing,
    replayed,
    schedule,
    tile,
)
from mutation import switch_off
from oracles import Builds
from programs import Case
from programs.case import matmul

pytestmark = pytest.mark.cpp


@T.prim_func(s_tir=True)
def product_relu(
    A: T.Buffer((ROWS, DEPTH), "int8"),
    B: T.Buffer((COLS, DEPTH), "int8"),
    D: T.Buffer((ROWS, COLS), "int32"),
):
    temp = T.sblock_alloc_buffer((ROWS, COLS), "int32")
    for i, j, k in T.grid(ROWS, COLS, DEPTH):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] += T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for i, j in T.grid(ROWS, COLS):
        with T.sblock("relu"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(temp[vi, vj], 0)


PROGRAM = Case(
    name="product_relu",
    func=product_relu,
    reference=lambda A, B: np.maximum(matmul(A, B), 0),
)

# ---------------------------------------------------------------------------------------------
# Where the two blocks are
# ---------------------------------------------------------------------------------------------


def fused(sch: Schedule) -> None:
    """i, j, then k and the tail."""
    sch.fuse_reduction_epilogue("mm")


def row(sch: Schedule) -> None:
    """i, then k, j and the tail's own j."""
    _, j, k = loops(sch, "mm")
    sch.reorder(k, j)
    fused(sch)


def tiles(sch: Schedule) -> None:
    """Tiles that divide no extent but one; the tail has the two inner loops of its own."""
    tile(sch)
    fused(sch)


def halves(sch: Schedule) -> None:
    """i, j by halves, then k and the tail."""
    sch.split(loops(sch, "mm")[1], [None, COLS // 2])
    fused(sch)


def single(sch: Schedule) -> None:
    """i, j, a loop of one iteration, then k and the tail."""
    sch.split(loops(sch, "mm")[1], [None, 1])
    fused(sch)


def vectors_first(sch: Schedule) -> None:
    _, j, k = loops(sch, "mm")
    sch.reorder(k, j)
    sch.vectorize(j)
    fused(sch)


def placed_by_tvm(sch: Schedule) -> None:
    move_back(sch, "relu", "mm", 1)


def cache(index: int, position: int) -> Steps:
    """The row of A (0) or of B (1) that the elements of a loop need, copied in that loop."""

    def steps(sch: Schedule) -> None:
        sch.cache_read("mm", index, "local")
        move(sch, ("A_local", "B_local")[index], "mm", position)

    return steps


def decomposed(sch: Schedule) -> None:
    row(sch)
    sch.decompose_reduction(sch.get_sblock("mm"), loops(sch, "mm")[1])


def vectorize(block: str, position: int) -> Steps:
    return lambda sch: sch.vectorize(loops(sch, block)[position])


def pad(*multiples: int) -> Steps:
    return lambda sch: sch.pad_einsum("mm", list(multiples))


def rfactor(position: int) -> Steps:
    return lambda sch: sch.rfactor(loops(sch, "mm")[position], 0)


# What comes before the step, the step, its code, and what the message names.
REFUSED: dict[str, tuple[Steps, Steps, str, tuple[str, ...]]] = {
    "vectors: columns": (fused, vectorize("relu", 1), "vector-lanes", ("temp", "j", "mm", "relu")),
    "vectors: rows": (fused, vectorize("relu", 0), "vector-lanes", ("temp", "i", "mm", "relu")),
    "vectors: whole rows": (row, vectorize("mm", 0), "vector-lanes", ("temp", "i", "mm", "relu")),
    "vectors: halves": (halves, vectorize("mm", 2), "vector-lanes", ("temp", "mm", "relu")),
    "vectors: tiles": (tiles, vectorize("mm", 1), "vector-lanes", ("temp", "mm", "relu")),
    "vectors: placed by TVM": (placed_by_tvm, vectorize("mm", 1), "vector-lanes", ("temp",)),
    "vectors: copies": (cache(1, 1), vectorize("mm", 1), "vector-lanes", ("B_local", "j")),
    "padding: rows": (fused, pad(3, 1, 1), "not-alone", ("relu", "i", "mm")),
    "padding: columns": (fused, pad(1, 5, 1), "not-alone", ("relu", "j", "mm")),
    "padding: whole rows": (row, pad(3, 5, 4), "not-alone", ("relu", "i", "mm")),
    "rfactor": (fused, rfactor(2), "not-alone", ("relu", "mm")),
    "rfactor: placed by TVM": (placed_by_tvm, rfactor(2), "not-alone", ("relu", "mm")),
}

ACCEPTED: dict[str, tuple[Steps, Steps]] = {
    "vectors: columns of the product": (row, vectorize("mm", 2)),
    "vectors: columns of the tail": (row, vectorize("relu", 1)),
    "vectors: both": (row, lambda s: [vectorize("mm", 2)(s), vectorize("relu", 1)(s)]),
    "vectors: first": (vectors_first, nothing),
    "vectors: a single lane": (single, vectorize("mm", 2)),
    "vectors: init alone": (decomposed, vectorize("mm_init", 1)),
    "vectors: the same copy in all lanes": (cache(0, 1), vectorize("mm", 1)),
    "vectors: not fused": (nothing, vectorize("mm", 1)),
    "parallel": (fused, lambda s: s.parallel(loops(s, "mm")[1])),
    "unrolled": (fused, lambda s: s.unroll(loops(s, "mm")[1])),
    "virtual threads": (fused, lambda s: s.bind(loops(s, "mm")[1], "vthread.x")),
    "padding: steps": (fused, pad(1, 1, 4)),
    "padding: nothing": (fused, pad(4, 6, 1)),
    "padding: columns of the product": (row, pad(4, 5, 4)),
    "padding: first": (lambda s: pad(3, 5, 4)(s), nothing),
    "rfactor: whole rows": (row, rfactor(1)),
    "rfactor: first": (lambda s: [rfactor(2)(s), s.fuse_reduction_epilogue("mm")], nothing),
}


def after(prepare: Steps, steps: Steps) -> Schedule:
    sch = schedule(PROGRAM)
    prepare(sch)
    steps(sch)
    return sch


def named(name: str) -> str:
    return re.sub(r"\W+", "_", name)


@pytest.fixture(scope="module")
def built() -> Builds:
    return Builds({named(name): after(*both).mod["main"] for name, both in ACCEPTED.items()})


@pytest.mark.parametrize("name", ACCEPTED)
def test_is_accepted_and_right(name: str, built: Builds) -> None:
    assert_right(built[named(name)], PROGRAM, name)
    sch = after(*ACCEPTED[name])
    tvm.ir.assert_structural_equal(replayed(sch, PROGRAM).mod, sch.mod)


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_and_changes_nothing(name: str) -> None:
    prepare, step, code, words = REFUSED[name]
    sch = after(prepare, nothing)
    module, length = sch.mod, len(sch.trace.insts)
    with pytest.raises(s_tir.ScheduleError) as caught:
        step(sch)
    assert fuse_epilogue.refusal_code(caught.value) == code
    message = str(caught.value).rpartition("Error message: ")[2]
    for word in words:
        assert f"'{word}'" in message
    assert sch.mod.same_as(module)
    # get_sblock and get_loops are on the trace as well; the step is not.
    assert {i.kind.name for i in sch.trace.insts[length:]} <= {"GetSBlock", "GetLoops"}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_in_a_replay(name: str) -> None:
    """Of a trace that comes from where nothing is checked."""
    prepare, step, code, _ = REFUSED[name]
    sch = after(prepare, nothing)
    if code == "not-alone" and name.startswith("rfactor"):
        # TVM dies of it, and nothing would be on the trace.
        _record_rfactor(sch)
    else:
        switch_off([code])
        try:
            step(sch)
        finally:
            switch_off([])
    with pytest.raises(s_tir.ScheduleError) as caught:
        replayed(sch, PROGRAM)
    assert fuse_epilogue.refusal_code(caught.value) == code


def _record_rfactor(sch: Schedule) -> None:
    kind: Any = s_tir.schedule.InstructionKind.get("RFactor")
    inputs, outputs = [loops(sch, "mm")[2]], [s_tir.schedule.SBlockRV()]
    sch.trace.append(s_tir.schedule.Instruction(kind, inputs, [0], outputs))


@pytest.mark.parametrize("step", [rfactor(2)])
def test_without_the_check_rfactor_dies(step: Steps) -> None:
    sch = after(fused, nothing)
    switch_off(["not-alone"])
    try:
        with pytest.raises(tvm.error.InternalError):
            step(sch)
    finally:
        switch_off([])
