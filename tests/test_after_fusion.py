"""A fused block is an ordinary reduction block: TVM's other primitives do with it what they should.

Every sequence of primitives is followed by a build and a comparison with numpy, bit for bit, and
by a replay. What TVM does with an init that is no constant is in `test_init_reads.py`.
"""

from __future__ import annotations

import pytest
import tvm
from tvm import s_tir
from tvm.s_tir import Schedule
from tvm.s_tir.analysis import verify_well_formed
from tvm.script import tirx as T

import fuse_epilogue
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
    each,
    fused,
    loops,
    move,
    move_back,
    nothing,
    reduction_outermost,
    relu_in_the_row,
    replayed,
    schedule,
    tile,
)
from oracles import Builds
from programs import Case
from programs.case import matmul

pytestmark = pytest.mark.cpp

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


def copies_at_loops(sch: Schedule) -> None:
    i, j, k = loops(sch, "mm")
    block = sch.get_sblock("mm")
    sch.read_at(k, block, 0, "global")  # the bias, at every step
    sch.read_at(i, block, 1, "global")
    sch.write_at(j, block, 0, "global")


def merged_with_relu(sch: Schedule) -> None:
    sch.merge(loops(sch, "mm")[1], loops(sch, "relu")[1])


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


def decomposed_with_copies_at_loops(sch: Schedule) -> None:
    decompose(sch, 1)
    sch.read_at(loops(sch, "mm_init")[0], sch.get_sblock("mm_init"), 0, "global")


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


def decomposed_and_tensorized(sch: Schedule) -> None:
    sch.split(loops(sch, "mm")[2], [None, 5])
    decompose(sch, 2)
    sch.tensorize(loops(sch, "mm_update")[3], INTRINSIC)


def partial_sums(sch: Schedule) -> None:
    sch.rfactor(loops(sch, "mm")[2], 0)


def partial_sums_decomposed(sch: Schedule) -> None:
    sch.rfactor(loops(sch, "mm")[2], 0)
    decompose(sch, 2)


ACCEPTED: list[Steps] = [
    loop_kinds,
    fused_and_split_loops,
    reduction_outermost,
    bound_to_threads,
    copies_of_everything,
    copies_at_loops,
    merged_with_relu,
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
    decomposed_with_copies_at_loops,
    decomposed_with_the_bias_inlined,
    decomposed_after_inlining,
    decomposed_with_other_layouts,
    decomposed_and_in_blocks,
    decomposed_and_tensorized,
    partial_sums,
    partial_sums_decomposed,
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


# What comes before the refused step, the step, and the code of the refusal if it is one of ours.
REFUSED: dict[str, tuple[Steps, Steps, str | None]] = {
    "parallel over the reduction": (nothing, lambda s: s.parallel(loops(s, "mm")[2]), None),
    "vectors over the reduction": (nothing, lambda s: s.vectorize(loops(s, "mm")[2]), None),
    "inlining the reduction": (nothing, lambda s: s.compute_inline("mm"), None),
    "relu into the reduction": (nothing, lambda s: s.reverse_compute_inline("relu"), None),
    # Of a split that leaves a rest, where TVM's primitive leaves inits unwritten.
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
    "fuse the bias again": (
        nothing,
        lambda s: s.fuse_reduction_epilogue("mm", "bias"),
        "wrong-pair",
    ),
    "fuse again": (
        lambda s: s.fuse_reduction_epilogue("mm"),
        lambda s: s.fuse_reduction_epilogue("mm"),
        "already-fused",
    ),
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
# Fusing into a block that has been fused into
# ---------------------------------------------------------------------------------------------


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


CHAIN = Case(
    name="two_biases_and_copy",
    func=two_biases_and_copy,
    reference=lambda A, B, E, R: matmul(A, B) + 7 + E - R,
    epilogues=("add", "subtract", "copy"),
)


def pairs(sch: Schedule) -> None:
    for epilogue in CHAIN.epilogues:
        sch.fuse_reduction_epilogue("mm", epilogue)


def pair_and_the_rest(sch: Schedule) -> None:
    sch.fuse_reduction_epilogue("mm", "add")
    sch.fuse_reduction_epilogue("mm")


def named_by_the_epilogues(sch: Schedule) -> None:
    # A two-argument call first, because a call that names an epilogue goes on to the end.
    sch.fuse_reduction_epilogue("mm", "add")
    sch.fuse_reduction_epilogue("mm", "subtract")
    sch.fuse_reduction_epilogue("copy")


def tiled_between(sch: Schedule) -> None:
    sch.fuse_reduction_epilogue("mm", "add")
    tile(sch)
    sch.fuse_reduction_epilogue("mm", "subtract")
    sch.parallel(loops(sch, "mm")[0])
    sch.fuse_reduction_epilogue("mm", "copy")


def epilogues_in_the_row(sch: Schedule) -> None:
    sch.fuse_reduction_epilogue("mm", "add")
    move_back(sch, "subtract", "mm", 0)
    move_back(sch, "copy", "mm", 0)
    sch.fuse_reduction_epilogue("mm")


def cached_between(sch: Schedule) -> None:
    sch.fuse_reduction_epilogue("mm", "add")
    sch.cache_write("mm", 0, "global")
    sch.fuse_reduction_epilogue("mm", "mid_global")
    sch.cache_read("mm", 0, "global")
    sch.fuse_reduction_epilogue("mm")


def other_layout_between(sch: Schedule) -> None:
    sch.fuse_reduction_epilogue("mm", "add")
    sch.transform_layout("mm", ("write", 0), lambda j, i: (i // 4, j, i % 4))
    sch.fuse_reduction_epilogue("mm")


@pytest.fixture(scope="module")
def built_chains() -> Builds:
    functions = {}
    for steps in CHAINS:
        sch = schedule(CHAIN)
        try:
            steps(sch)
        except Exception:  # noqa: S112
            continue
        functions[steps.__name__] = sch.mod["main"]
    return Builds(functions)


CHAINS: list[Steps] = [
    pairs,
    pair_and_the_rest,
    named_by_the_epilogues,
    tiled_between,
    epilogues_in_the_row,
    cached_between,
    other_layout_between,
]


@each(CHAINS)
def test_one_epilogue_after_the_other(steps: Steps, built_chains: Builds) -> None:
    sch = schedule(CHAIN)
    steps(sch)
    assert [name for name in blocks(sch.mod["main"]) if not name.endswith("_global")] == ["mm"]
    assert_right(built_chains[steps.__name__], CHAIN, steps.__name__)
    tvm.ir.assert_structural_equal(replayed(sch, CHAIN).mod, sch.mod)


@each([pairs, pair_and_the_rest, named_by_the_epilogues])
def test_one_by_one_is_all_at_once(steps: Steps) -> None:
    sch, at_once = schedule(CHAIN), schedule(CHAIN)
    steps(sch)
    at_once.fuse_reduction_epilogue("mm")
    tvm.ir.assert_structural_equal(sch.mod, at_once.mod)
    # 7, then the bias, then minus the residual: no term is lost on the way.
    assert str(blocks(sch.mod["main"])["mm"].init.value) == "7 + E[vj] - R_1[vi, vj]"


@pytest.mark.parametrize("position", range(3))
def test_a_second_epilogue_after_decomposing_is_refused(position: int) -> None:
    sch = schedule(CHAIN)
    sch.fuse_reduction_epilogue("mm", "add")
    decompose(sch, position)
    module = sch.mod
    for call in (("mm_update",), ("mm_update", "subtract")):
        with pytest.raises(s_tir.ScheduleError) as caught:
            sch.fuse_reduction_epilogue(*call)
        assert fuse_epilogue.refusal_code(caught.value) == "no-init"
        assert sch.mod.same_as(module)
