"""A fused block is an ordinary reduction block: TVM's other primitives do with it what they should.

Every sequence of primitives is followed by a build and a comparison with numpy, bit for bit. What
TVM takes for granted about a T.init, that it is a constant, does not hold for a fused block:
taking the init and the rest apart must come out right or be refused, live and in a replay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir
from tvm.s_tir import Schedule, Trace
from tvm.s_tir.analysis import get_sblock_read_write_region, verify_well_formed
from tvm.s_tir.schedule import Instruction, InstructionKind
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

import fuse_epilogue
from oracles import Builds, assert_same_bits, expected, fuse, make_inputs, run
from programs import ACCEPT, Case
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


@T.prim_func(s_tir=True)
def two_biases_and_copy(
    A: T.Buffer((ROWS, DEPTH), "int8"),
    B: T.Buffer((COLS, DEPTH), "int8"),
    E: T.Buffer((COLS,), "int32"),
    R: T.Buffer((ROWS, COLS), "int32"),
    D: T.Buffer((ROWS, COLS), "int32"),
):
    temp = T.sblock_alloc_buffer((ROWS, COLS), "int32")
    mid = T.sblock_alloc_buffer((COLS, ROWS), "int32")
    last = T.sblock_alloc_buffer((COLS, ROWS), "int32")
    for i, j, k in T.grid(ROWS, COLS, DEPTH):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 7
            temp[vi, vj] += T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for j, i in T.grid(COLS, ROWS):
        with T.sblock("add"):
            vj, vi = T.axis.remap("SS", [j, i])
            mid[vj, vi] = temp[vi, vj] + E[vj]
    for j, i in T.grid(COLS, ROWS):
        with T.sblock("subtract"):
            vj, vi = T.axis.remap("SS", [j, i])
            last[vj, vi] = mid[vj, vi] - R[vi, vj]
    for i, j in T.grid(ROWS, COLS):
        with T.sblock("copy"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = last[vj, vi]


PROGRAM = Case(
    name="bias_product_relu",
    func=bias_product_relu,
    reference=lambda A, B, E, R: np.maximum(matmul(A, B) + E * 3 + 1, R),
)
CHAIN = Case(
    name="two_biases_and_copy",
    func=two_biases_and_copy,
    reference=lambda A, B, E, R: matmul(A, B) + 7 + E - R,
    epilogues=("add", "subtract", "copy"),
)


# ---------------------------------------------------------------------------------------------
# Parts of schedules
# ---------------------------------------------------------------------------------------------


def schedule(case: Case = PROGRAM) -> Schedule:
    return Schedule(case.func, debug_mask="all")


def fused() -> Schedule:
    """`PROGRAM` with the bias absorbed; blocks: bias, mm, relu."""
    sch = schedule()
    report = sch.fuse_reduction_epilogue("mm")
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


# ---------------------------------------------------------------------------------------------
# Sequences that are accepted
# ---------------------------------------------------------------------------------------------


def loop_kinds(sch: Schedule) -> None:
    tile(sch)
    i0, _, k0, _, j1, k1 = loops(sch, "mm")
    sch.reorder(k0, k1, j1)
    sch.parallel(i0)
    sch.vectorize(j1)
    sch.unroll(k1)


def fused_and_split_loops(sch: Schedule) -> None:
    i, j, _ = loops(sch, "mm")
    outer, inner = sch.split(sch.fuse(i, j), [None, 7])
    sch.parallel(outer)
    sch.add_unit_loop(inner)


def reduction_outermost(sch: Schedule) -> None:
    i, j, k = loops(sch, "mm")
    sch.reorder(k, j, i)
    sch.vectorize(i)


def bound_to_threads(sch: Schedule) -> None:
    for block in ("mm", "relu"):
        i, j = loops(sch, block)[:2]
        sch.bind(i, "blockIdx.x")
        sch.bind(j, "threadIdx.x")


def copies_of_everything(sch: Schedule) -> None:
    for index in range(3):  # the bias, A, B
        sch.cache_read("mm", index, "global")
    sch.cache_write("mm", 0, "global")
    tile(sch)
    move(sch, "C_global", "mm", 1)
    move(sch, "A_global", "mm", 2)
    move(sch, "B_global", "mm", 0)
    move_back(sch, "biased_global", "mm", 1)
    move_back(sch, "relu", "biased_global", 0)


def accumulator_in_registers(sch: Schedule) -> None:
    sch.cache_write("mm", 0, "local")
    move_back(sch, "biased_local", "mm", 1)


def bias_in_local_memory(sch: Schedule) -> None:
    move(sch, "bias", "mm", 1)
    sch.set_scope("bias", 0, "local")


def bias_at_every_step(sch: Schedule) -> None:
    move(sch, "bias", "mm", 2)


def bias_inlined(sch: Schedule) -> None:
    sch.compute_inline("bias")
    tile(sch)


def relu_in_the_row(sch: Schedule) -> None:
    move_back(sch, "relu", "mm", 0)


def product_in_the_row_of_relu(sch: Schedule) -> None:
    move(sch, "mm", "relu", 0)
    move(sch, "bias", "relu", 0)


def layouts(sch: Schedule) -> None:
    sch.transform_layout("bias", ("write", 0), lambda j: (j // 4, j % 4))
    sch.transform_layout("mm", ("write", 0), lambda i, j: (j // 3, i, j % 3))
    sch.transform_block_layout("mm", lambda i, j, k: (j, i, k))


def reindexed(sch: Schedule) -> None:
    for what in (("read", 1), ("read", 2), ("write", 0)):
        sch.reindex("mm", what)


def padded(sch: Schedule) -> None:
    sch.pad_einsum("mm", [1, 8, 4])


def annotated(sch: Schedule) -> None:
    sch.storage_align("mm", 0, axis=0, factor=16, offset=8)
    sch.annotate(sch.get_sblock("mm"), "note", 1)
    sch.annotate(loops(sch, "mm")[0], "pragma_unroll_explicit", 0)


def neighbours_in_blocks(sch: Schedule) -> None:
    sch.blockize(loops(sch, "bias")[0])
    sch.blockize(loops(sch, "relu")[1])


def decomposed_at_every_step(sch: Schedule) -> None:
    decompose(sch, 2)
    sch.unroll(loops(sch, "mm_update")[2])


def decomposed_at_the_row(sch: Schedule) -> None:
    i, j, k = loops(sch, "mm")
    sch.reorder(k, j)
    sch.parallel(i)
    sch.vectorize(j)
    decompose(sch, 1)
    sch.vectorize(loops(sch, "mm_init")[1])
    sch.split(loops(sch, "mm_update")[1], [None, 3])


def decomposed_at_the_top(sch: Schedule) -> None:
    decompose(sch, 0)
    sch.parallel(sch.fuse(*loops(sch, "mm_init")))
    sch.reorder(*reversed(loops(sch, "mm_update")))


def decomposed_in_tiles(sch: Schedule) -> None:
    tile(sch)
    decompose(sch, 2)
    sch.vectorize(loops(sch, "mm_init")[-1])
    move(sch, "bias", "mm_init", 1)
    move_back(sch, "relu", "mm_update", 1)


def decomposed_with_the_bias_in_the_row(sch: Schedule) -> None:
    move(sch, "bias", "mm", 0)
    decompose(sch, 1)


def decomposed_with_the_bias_in_the_init(sch: Schedule) -> None:
    decompose(sch, 0)
    move(sch, "bias", "mm_init", 1)


def decomposed_with_copies(sch: Schedule) -> None:
    decompose(sch, 1)
    sch.cache_read("mm_init", 0, "global")
    sch.cache_read("mm_update", 1, "global")
    move(sch, "C_global", "mm_init", 1)
    move(sch, "A_global", "mm_update", 2)


def decomposed_with_the_bias_inlined(sch: Schedule) -> None:
    decompose(sch, 1)
    sch.compute_inline("bias")


def decomposed_after_inlining(sch: Schedule) -> None:
    sch.compute_inline("bias")
    decompose(sch, 2)


def decomposed_with_other_layouts(sch: Schedule) -> None:
    decompose(sch, 2)
    sch.transform_layout("bias", ("write", 0), lambda j: (j % 3, j // 3))
    sch.transform_layout("mm_init", ("write", 0), lambda i, j: (j, i))
    sch.reindex("mm_init", ("read", 0))


def decomposed_and_in_blocks(sch: Schedule) -> None:
    i, j, k = loops(sch, "mm")
    (j0, j1), (k0, k1) = sch.split(j, [None, 4]), sch.split(k, [None, 5])
    sch.reorder(i, j0, k0, j1, k1)
    decompose(sch, 2)
    sch.blockize(loops(sch, "mm_init")[-1])
    sch.blockize(loops(sch, "mm_update")[-2])


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


def decomposed_and_tensorized(sch: Schedule) -> None:
    sch.split(loops(sch, "mm")[2], [None, 5])
    decompose(sch, 2)
    sch.tensorize(loops(sch, "mm_update")[3], INTRINSIC)


ACCEPTED: list[Steps] = [
    loop_kinds,
    fused_and_split_loops,
    reduction_outermost,
    bound_to_threads,
    copies_of_everything,
    accumulator_in_registers,
    bias_in_local_memory,
    bias_at_every_step,
    bias_inlined,
    relu_in_the_row,
    product_in_the_row_of_relu,
    layouts,
    reindexed,
    padded,
    annotated,
    neighbours_in_blocks,
    decomposed_at_every_step,
    decomposed_at_the_row,
    decomposed_at_the_top,
    decomposed_in_tiles,
    decomposed_with_the_bias_in_the_row,
    decomposed_with_the_bias_in_the_init,
    decomposed_with_copies,
    decomposed_with_the_bias_inlined,
    decomposed_after_inlining,
    decomposed_with_other_layouts,
    decomposed_and_in_blocks,
    decomposed_and_tensorized,
]


@pytest.fixture(scope="module")
def built() -> Builds:
    """The accepted sequences, compiled together; one that fails is left to its own test."""
    functions = {}
    for steps in ACCEPTED:
        sch = fused()
        try:
            steps(sch)
        except Exception:  # noqa: S112
            continue
        functions[steps.__name__] = sch.mod["main"]
    return Builds(functions)


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


@each(ACCEPTED)
def test_is_accepted_and_right(steps: Steps, built: Builds) -> None:
    sch = fused()
    steps(sch)
    verify_well_formed(sch.mod["main"])
    assert_right(built[steps.__name__], PROGRAM, steps.__name__)
    tvm.ir.assert_structural_equal(replayed(sch).mod, sch.mod)


# ---------------------------------------------------------------------------------------------
# Steps that are refused
# ---------------------------------------------------------------------------------------------


def nothing(sch: Schedule) -> None:
    pass


# What comes before the refused step, the step, and the code of the refusal if it is one of ours.
REFUSED: dict[str, tuple[Steps, Steps, str | None]] = {
    "parallel over the reduction": (nothing, lambda s: s.parallel(loops(s, "mm")[2]), None),
    "vectors over the reduction": (nothing, lambda s: s.vectorize(loops(s, "mm")[2]), None),
    "inlining the reduction": (nothing, lambda s: s.compute_inline("mm"), None),
    "relu into the reduction": (nothing, lambda s: s.reverse_compute_inline("relu"), None),
    "rfactor": (nothing, lambda s: s.rfactor(loops(s, "mm")[2], 0), None),
    "rfactor of a part": (tile, lambda s: s.rfactor(loops(s, "mm")[5], 2), None),
    "reindexed bias": (nothing, lambda s: s.reindex("mm", ("read", 0)), None),
    "blockize all": (nothing, lambda s: s.blockize(loops(s, "mm")[0]), "init-reads"),
    "blockize the steps": (nothing, lambda s: s.blockize(loops(s, "mm")[2]), "init-reads"),
    "blockize a block": (nothing, lambda s: s.blockize([s.get_sblock("mm")]), "init-reads"),
    "blockize a tile": (tile, lambda s: s.blockize(loops(s, "mm")[3]), "init-reads"),
    "tensorize": (
        lambda s: s.split(loops(s, "mm")[2], [None, 5]),
        lambda s: s.tensorize(loops(s, "mm")[3], INTRINSIC),
        "init-reads",
    ),
    "decompose twice": (
        lambda s: decompose(s, 2),
        lambda s: s.decompose_reduction(s.get_sblock("mm_update"), loops(s, "mm_update")[2]),
        None,
    ),
    "decompose inside the reduction": (
        lambda s: s.split(loops(s, "mm")[2], [None, 5]),
        lambda s: decompose(s, 3),
        None,
    ),
    "fuse again": (nothing, lambda s: s.fuse_reduction_epilogue("mm"), "tail"),
    "fuse after decomposing": (
        lambda s: decompose(s, 2),
        lambda s: s.fuse_reduction_epilogue("mm_update"),
        "no-init",
    ),
    "fuse the init": (
        lambda s: decompose(s, 0),
        lambda s: s.fuse_reduction_epilogue("mm_init"),
        "not-a-reduction",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_and_changes_nothing(name: str) -> None:
    before, step, code = REFUSED[name]
    sch = fused()
    before(sch)
    module = sch.mod
    with pytest.raises(s_tir.ScheduleError) as caught:
        step(sch)
    assert fuse_epilogue.refusal_code(caught.value) == code
    assert sch.mod.same_as(module)


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
