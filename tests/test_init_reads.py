"""An init that reads a buffer, and TVM's primitives, which take every init for a constant.

Taking the init and the rest apart, and giving the output another name, must come out right or be
refused, live and in a replayed trace.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import Instruction, InstructionKind
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

import fuse_epilogue
from fuse_epilogue import tune
from fused_block import (
    COLS,
    DEPTH,
    INTRINSIC,
    PROGRAM,
    ROWS,
    Steps,
    assert_right,
    blocks,
    decompose,
    fused,
    loops,
    move,
    move_back,
    nothing,
    reduction_outermost,
    replayed,
    schedule,
    tile,
)
from oracles import Builds
from programs import Case
from programs.case import matmul

pytestmark = pytest.mark.cpp

# ---------------------------------------------------------------------------------------------
# The bias's producer, and an init that becomes a block
# ---------------------------------------------------------------------------------------------


def test_a_decomposed_block_in_full() -> None:
    @T.prim_func(s_tir=True)
    def after(
        A: T.Buffer((ROWS, DEPTH), "int8"),
        B: T.Buffer((COLS, DEPTH), "int8"),
        E: T.Buffer((COLS,), "int32"),
        R: T.Buffer((ROWS, COLS), "int32"),
        D: T.Buffer((ROWS, COLS), "int32"),
    ):
        T.func_attr({"global_symbol": "bias_product_relu"})
        C = T.sblock_alloc_buffer((COLS,), "int32")
        biased = T.sblock_alloc_buffer((ROWS, COLS), "int32")
        for j in range(COLS):
            with T.sblock("bias"):
                vj = T.axis.spatial(COLS, j)
                T.reads(E[vj])
                T.writes(C[vj])
                C[vj] = E[vj] * 3 + 1
        for i in range(ROWS):
            for j in range(COLS):
                with T.sblock("mm_init"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(C[vj])
                    T.writes(biased[vi, vj])
                    biased[vi, vj] = C[vj]
            for j, k in T.grid(COLS, DEPTH):
                with T.sblock("mm_update"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    T.reads(biased[vi, vj], A[vi, vk], B[vj, vk])
                    T.writes(biased[vi, vj])
                    biased[vi, vj] = biased[vi, vj] + T.Cast("int32", A[vi, vk]) * T.Cast(
                        "int32", B[vj, vk]
                    )
        for i, j in T.grid(ROWS, COLS):
            with T.sblock("relu"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(biased[vi, vj], R[vi, vj])
                T.writes(D[vi, vj])
                D[vi, vj] = T.max(biased[vi, vj], R[vi, vj])

    sch = fused()
    decompose(sch, 1)
    tvm.ir.assert_structural_equal(sch.mod["main"], after)


def names_of(sch: Schedule, found: list[Any]) -> set[str]:
    return {sch.get(block).name_hint for block in found}


def test_dependences_are_seen() -> None:
    sch = fused()
    assert names_of(sch, sch.get_producers("mm")) == {"bias"}
    assert names_of(sch, sch.get_consumers("bias")) == {"mm"}
    decompose(sch, 1)
    assert names_of(sch, sch.get_producers("mm_init")) == {"bias"}
    assert names_of(sch, sch.get_consumers("bias")) == {"mm_init"}
    assert names_of(sch, sch.get_producers("mm_update")) == {"mm_init"}


def record(
    sch: Schedule, kind: str, inputs: list[Any], attrs: list[Any], outputs: Any = ()
) -> None:
    """Put a step on the trace that has not been carried out, as a trace from elsewhere has it."""
    instruction = Instruction(InstructionKind.get(kind), inputs, attrs, list(outputs))
    sch.trace.append(instruction)


# Where the init is put (before which loop of mm), and inside which loop the bias is computed. The
# loops before the init are around both blocks, and there the bias comes first.
POSITIONS = [(init, bias) for init in range(3) for bias in range(3)]
TILED = pytest.mark.parametrize("prepare", [nothing, tile], ids=["as it is", "tiled"])


@TILED
@pytest.mark.parametrize(("init", "bias"), POSITIONS)
def test_the_bias_moves_after_decomposing(init: int, bias: int, prepare: Steps) -> None:
    sch = fused()
    prepare(sch)
    decompose(sch, init)
    block, loop = sch.get_sblock("bias"), loops(sch, "mm_update")[bias]
    module, elsewhere = sch.mod, sch.copy()
    record(elsewhere, "ComputeAt", [block, loop], [False, -1])
    if bias < init:
        sch.compute_at(block, loop)
        assert list(blocks(sch.mod["main"])) == ["bias", "mm_init", "mm_update", "relu"]
        assert_right(Builds({"moved": sch.mod["main"]})["moved"], PROGRAM, "moved")
        tvm.ir.assert_structural_equal(replayed(elsewhere).mod, sch.mod)
        return
    with pytest.raises(s_tir.ScheduleError):
        sch.compute_at(block, loop)
    assert sch.mod.same_as(module)
    with pytest.raises(s_tir.ScheduleError):
        replayed(elsewhere)


@TILED
@pytest.mark.parametrize(("init", "bias"), POSITIONS)
def test_the_bias_moves_before_decomposing(init: int, bias: int, prepare: Steps) -> None:
    sch = fused()
    prepare(sch)
    move(sch, "bias", "mm", bias)
    block, loop = sch.get_sblock("mm"), loops(sch, "mm")[init]
    module, elsewhere = sch.mod, sch.copy()
    record(elsewhere, "DecomposeReduction", [block, loop], [], [s_tir.schedule.SBlockRV()])
    if bias < init:
        sch.decompose_reduction(block, loop)
        assert_right(Builds({"moved": sch.mod["main"]})["moved"], PROGRAM, "moved")
        tvm.ir.assert_structural_equal(replayed(elsewhere).mod, sch.mod)
        return
    with pytest.raises(s_tir.ScheduleError) as caught:
        sch.decompose_reduction(block, loop)
    assert fuse_epilogue.refusal_code(caught.value) == "init-reads"
    assert sch.mod.same_as(module)
    with pytest.raises(s_tir.ScheduleError) as caught:
        replayed(elsewhere)
    assert fuse_epilogue.refusal_code(caught.value) == "init-reads"


@pytest.mark.parametrize("kind", ["Blockize", "Tensorize"])
def test_an_init_is_not_taken_along_in_a_replay(kind: str) -> None:
    decomposed, whole = fused(), fused()
    for sch in (decomposed, whole):
        sch.split(loops(sch, "mm")[2], [None, 5])
    decompose(decomposed, 2)
    for sch, block in ((decomposed, "mm_update"), (whole, "mm")):
        loop = loops(sch, block)[3]
        if kind == "Blockize":
            record(sch, kind, [loop], [True], [s_tir.schedule.SBlockRV()])
        else:
            record(sch, kind, [loop], [INTRINSIC, True])
    assert "mm_update_o" in blocks(replayed(decomposed).mod["main"])
    with pytest.raises(s_tir.ScheduleError) as caught:
        replayed(whole)
    assert fuse_epilogue.refusal_code(caught.value) == "init-reads"


def test_why_this_needs_care() -> None:
    """TVM's own decompose_reduction, which takes the init for a constant, lets the bias move."""
    tvm_alone = tvm_ffi.get_global_func("s_tir.schedule.ScheduleDecomposeReduction")
    sch = fused()
    tvm_alone(sch, sch.get_sblock("mm"), loops(sch, "mm")[2])
    assert not blocks(sch.mod["main"])["mm_init"].reads
    move(sch, "bias", "mm_update", 2)
    assert list(blocks(sch.mod["main"])) == ["mm_init", "bias", "mm_update", "relu"]

    sch = fused()
    move(sch, "bias", "mm", 2)
    tvm_alone(sch, sch.get_sblock("mm"), loops(sch, "mm")[2])
    assert list(blocks(sch.mod["main"])) == ["mm_init", "bias", "mm_update", "relu"]


def test_a_constant_init_is_left_to_tvm() -> None:
    """Nothing changes for a block whose init reads nothing, whatever stands in the loops."""
    sch = schedule()
    move(sch, "mm", "add", 0)
    move(sch, "bias", "add", 0)
    alone = sch.copy()
    decompose(sch, 0)
    tvm_alone = tvm_ffi.get_global_func("s_tir.schedule.ScheduleDecomposeReduction")
    tvm_alone(alone, alone.get_sblock("mm"), loops(alone, "mm")[0])
    tvm.ir.assert_structural_equal(sch.mod, alone.mod)
    blockized = schedule()
    blockized.blockize(loops(blockized, "mm")[0])
    assert {"mm_o", "mm"} <= set(blocks(blockized.mod["main"]))


@pytest.mark.parametrize("bias", [None, 0, 1, 2], ids=["before", "per row", "per sum", "per step"])
def test_a_postprocessor_decomposes(bias: int | None) -> None:
    """MetaSchedule's own is TVM's, in C++, past ours: one in front of it takes such blocks."""
    sch = fused()
    if bias is not None:
        move(sch, "bias", "mm", bias)
    module = sch.mod
    sch.enter_postproc()
    done = [
        postproc.apply(sch)
        for postproc in tune.with_decompose_fused([ms.postproc.RewriteReductionBlock()])
    ]
    if bias == 2:
        assert done == [False, True]  # MetaSchedule stops at the first that says no
        return
    assert done == [True, True]
    assert not sch.mod.same_as(module)
    assert blocks(sch.mod["main"])["mm_init"].reads
    assert_right(Builds({"done": sch.mod["main"]})["done"], PROGRAM, "done")
    tvm.ir.assert_structural_equal(replayed(sch).mod, sch.mod)


def test_why_it_has_to_come_first() -> None:
    sch = fused()
    move(sch, "bias", "mm", 2)
    assert ms.postproc.RewriteReductionBlock().apply(sch)
    assert list(blocks(sch.mod["main"])) == ["mm_init", "bias", "mm_update", "relu"]


# ---------------------------------------------------------------------------------------------
# In place: the init reads what the block writes
# ---------------------------------------------------------------------------------------------


def product_and_residual(in_place: bool) -> PrimFunc:
    @T.prim_func(s_tir=True)
    def func(
        A: T.Buffer((ROWS, DEPTH), "int8"),
        B: T.Buffer((COLS, DEPTH), "int8"),
        R: T.Buffer((ROWS, COLS), "int32"),
        D: T.Buffer((ROWS, COLS), "int32"),
        F: T.Buffer((ROWS, COLS), "int32"),
    ):
        temp = T.sblock_alloc_buffer((ROWS, COLS), "int32")
        for i, j, k in T.grid(ROWS, COLS, DEPTH):
            with T.sblock("mm"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    temp[vi, vj] = 0
                temp[vi, vj] += T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
        for i, j in T.grid(ROWS, COLS):
            with T.sblock("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                if in_place:
                    D[vi, vj] = temp[vi, vj] + D[vi, vj]
                else:
                    D[vi, vj] = temp[vi, vj] + R[vi, vj]
        for i, j in T.grid(ROWS, COLS):
            with T.sblock("twice"):
                vi, vj = T.axis.remap("SS", [i, j])
                F[vi, vj] = D[vi, vj] * 2

    return func


def both(total: np.ndarray) -> dict[str, np.ndarray]:
    return {"D": total, "F": total * 2}


IN_PLACE = Case(
    name="in_place",
    func=product_and_residual(in_place=True),
    reference=lambda A, B, R, D: both(matmul(A, B) + D),
    outputs=("F",),
    updates=("D",),
)
# The twin, for which the same steps are right.
RESIDUAL = Case(
    name="residual",
    func=product_and_residual(in_place=False),
    reference=lambda A, B, R: both(matmul(A, B) + R),
    outputs=("D", "F"),
)

# Steps for both, and steps that give the output another name: TVM does so in the init, too, which
# would then read a buffer that nobody has written.
ON_BOTH: dict[str, Steps] = {
    "nothing": nothing,
    "tiled": tile,
    "reduction outermost": reduction_outermost,
    "consumer in the row": lambda s: move_back(s, "twice", "mm", 0),
    "inputs cached": lambda s: [s.cache_read("mm", index, "global") for index in (1, 2)],
    "residual cached": lambda s: s.cache_read("mm", 0, "global"),
    "decomposed at 0": lambda s: decompose(s, 0),
    "decomposed at 1": lambda s: decompose(s, 1),
    "decomposed at 2": lambda s: decompose(s, 2),
    "tiled, decomposed": lambda s: [tile(s), decompose(s, 1)],
}
RENAMING: dict[str, Steps] = {
    "cache_write": lambda s: s.cache_write("mm", 0, "global"),
    "write_at": lambda s: s.write_at(loops(s, "mm")[0], s.get_sblock("mm"), 0, "global"),
    "reindex": lambda s: s.reindex("mm", ("write", 0)),
    "reindex_cache_write": lambda s: s.reindex_cache_write(
        "mm", 0, "global", lambda i, j, k: (j, i)
    ),
    # TVM dies of this one on any block that reads what it writes.
    "reindex_cache_read": lambda s: s.reindex_cache_read("mm", 0, "global", lambda i, j, k: (j, i)),
    "pad_einsum": lambda s: s.pad_einsum("mm", [5, 8, 4]),
}
# Steps before one of those. Inlining something makes TVM declare the reads anew, without that of
# the output.
PREPARING: dict[str, Steps] = {
    "pad_einsum": lambda s: [s.cache_read("mm", 1, "global"), s.compute_inline("A_global")],
}


def fused_then(steps: Steps, case: Case) -> Schedule:
    sch = schedule(case)
    sch.fuse_reduction_epilogue("mm", "add")
    steps(sch)
    return sch


def prepared(name: str, steps: Steps) -> Steps:
    """The steps after those that prepare them."""
    return lambda sch: [PREPARING.get(name, nothing)(sch), steps(sch)]


@pytest.fixture(scope="module")
def built_in_place() -> Builds:
    functions = {f"{n}/in_place": fused_then(s, IN_PLACE).mod["main"] for n, s in ON_BOTH.items()}
    for name, steps in {**ON_BOTH, **RENAMING}.items():
        functions[f"{name}/residual"] = fused_then(prepared(name, steps), RESIDUAL).mod["main"]
    return Builds({re.sub(r"\W", "_", name): func for name, func in functions.items()})


@pytest.mark.parametrize("name", ON_BOTH)
@pytest.mark.parametrize("case", [IN_PLACE, RESIDUAL], ids=lambda case: case.name)
def test_in_place_and_not(name: str, case: Case, built_in_place: Builds) -> None:
    assert_right(built_in_place[re.sub(r"\W", "_", f"{name}/{case.name}")], case, name)


@pytest.mark.parametrize("name", RENAMING)
def test_an_output_that_the_init_reads_keeps_its_name(name: str, built_in_place: Builds) -> None:
    assert_right(built_in_place[f"{name}_residual"], RESIDUAL, name)
    sch = fused_then(PREPARING.get(name, nothing), IN_PLACE)
    module = sch.mod
    with pytest.raises(s_tir.ScheduleError) as caught:
        RENAMING[name](sch)
    assert fuse_epilogue.refusal_code(caught.value) == "init-reads"
    assert sch.mod.same_as(module)
    # And in a trace that comes from elsewhere.
    with pytest.raises(s_tir.ScheduleError) as caught:
        replayed(fused_then(prepared(name, RENAMING[name]), RESIDUAL), IN_PLACE)
    assert fuse_epilogue.refusal_code(caught.value) == "init-reads"
