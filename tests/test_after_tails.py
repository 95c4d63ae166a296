"""A tail is an ordinary block: TVM's other primitives do with it, and beside it, what they should.

Every sequence of primitives is followed by a build and a comparison, bit for bit, and by a replay.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
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
    ROWS,
    Steps,
    assert_right,
    blocks,
    decompose,
    each,
    loops,
    move,
    move_back,
    replayed,
    schedule,
    tile,
)
from oracles import Builds
from programs import Case
from programs.case import matmul

pytestmark = pytest.mark.cpp


@T.prim_func(s_tir=True)
def requantized_product(
    A: T.Buffer((ROWS, DEPTH), "int8"),
    B: T.Buffer((COLS, DEPTH), "int8"),
    E: T.Buffer((COLS,), "int32"),
    R: T.Buffer((ROWS, COLS), "int32"),
    F: T.Buffer((COLS, ROWS), "int8"),
    D: T.Buffer((ROWS, COLS), "int8"),
):
    C = T.sblock_alloc_buffer((COLS,), "int32")
    temp = T.sblock_alloc_buffer((ROWS, COLS), "int32")
    biased = T.sblock_alloc_buffer((ROWS, COLS), "int32")
    clipped = T.sblock_alloc_buffer((COLS, ROWS), "int32")
    narrow = T.sblock_alloc_buffer((ROWS, COLS), "int8")
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
    for j, i in T.grid(COLS, ROWS):
        with T.sblock("relu"):
            vj, vi = T.axis.remap("SS", [j, i])
            clipped[vj, vi] = T.max(biased[vi, vj], R[vi, vj])
    for i, j in T.grid(ROWS, COLS):
        with T.sblock("narrow"):
            vi, vj = T.axis.remap("SS", [i, j])
            narrow[vi, vj] = T.Cast("int8", T.shift_right(clipped[vj, vi], 3) & 127)
    for i, j in T.grid(ROWS, COLS):
        with T.sblock("next"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = narrow[vi, vj] ^ F[vj, vi]


def requantized(A: Any, B: Any, E: Any, R: Any, F: Any) -> np.ndarray:
    clipped = np.maximum(matmul(A, B) + E * 3 + 1, R)
    return ((clipped >> 3) & 127).astype("int8") ^ F.T


PROGRAM = Case(name="requantized_product", func=requantized_product, reference=requantized)
# All that is fused here: what is left of it becomes the tail "narrow". The block "next" stays.
FUSED = ("add", "relu", "narrow")


# ---------------------------------------------------------------------------------------------
# Loops before the fusion, so that the tail gets a place of one kind or another
# ---------------------------------------------------------------------------------------------


def as_it_is(sch: Schedule) -> None:
    """i, j, then k and the tail side by side."""


def row(sch: Schedule) -> None:
    """i, then k, j and the tail's own j side by side."""
    _, j, k = loops(sch, "mm")
    sch.reorder(k, j)


def vectors(sch: Schedule) -> None:
    """Vectors of rows inside the reduction: the tail gets vectors of its own."""
    i, j, k = loops(sch, "mm")
    i0, i1 = sch.split(i, [None, 4])
    sch.reorder(i0, k, j, i1)
    sch.vectorize(i1)


def fused_after(prepare: Steps) -> Schedule:
    """Prepared, then all of `FUSED` fused; blocks: bias, mm, narrow (the tail), next."""
    sch = schedule(PROGRAM)
    prepare(sch)
    for epilogue in FUSED:
        report = sch.fuse_reduction_epilogue("mm", epilogue)
        *merged, last = report.steps
        assert last.epilogue == epilogue
        assert all(step.merged_into == epilogue for step in merged)
    assert list(blocks(sch.mod["main"])) == ["bias", "mm", "narrow", "next"]
    return sch


def tail_loop(sch: Schedule) -> Any:
    """The innermost loop around the tail."""
    return loops(sch, "narrow")[-1]


# ---------------------------------------------------------------------------------------------
# Sequences that are accepted
# ---------------------------------------------------------------------------------------------


def untouched(sch: Schedule) -> None:
    pass


def vectorized(sch: Schedule) -> None:
    sch.vectorize(tail_loop(sch))


def parallel_and_unrolled(sch: Schedule) -> None:
    sch.parallel(loops(sch, "mm")[0])
    sch.unroll(tail_loop(sch))


def split_and_vectorized(sch: Schedule) -> None:
    _, inner = sch.split(tail_loop(sch), [None, 5])
    sch.vectorize(inner)


def fused_and_split(sch: Schedule) -> None:
    *_, i, j = loops(sch, "narrow")
    outer, inner = sch.split(sch.fuse(i, j), [None, 6])
    sch.vectorize(inner)
    sch.unroll(outer)


def reordered(sch: Schedule) -> None:
    *_, i, j = loops(sch, "narrow")
    sch.reorder(j, i)


def bound_to_threads(sch: Schedule) -> None:
    i, _, j = loops(sch, "mm")
    sch.bind(i, "blockIdx.x")
    sch.bind(j, "threadIdx.x")
    sch.bind(tail_loop(sch), "threadIdx.x")


def next_in_the_same_place(sch: Schedule) -> None:
    move_back(sch, "next", "mm", 0)


def next_inside_the_tail(sch: Schedule) -> None:
    sch.reverse_compute_at("next", tail_loop(sch))


def next_inlined_into_the_tail(sch: Schedule) -> None:
    sch.reverse_compute_inline("next")


def tail_inlined_into_next(sch: Schedule) -> None:
    sch.compute_inline("narrow")


def tail_in_the_row_of_next(sch: Schedule) -> None:
    move(sch, "narrow", "next", 0)


def everything_in_the_loops_of_next(sch: Schedule) -> None:
    move(sch, "narrow", "next", 1)
    move(sch, "mm", "next", 1)
    move(sch, "bias", "next", 0)


def bias_in_the_row(sch: Schedule) -> None:
    move(sch, "bias", "mm", 0)


def inputs_cached(sch: Schedule) -> None:
    sch.cache_read("mm", 0, "global")  # the bias
    sch.cache_read("mm", 1, "global")
    move(sch, "C_global", "mm", 0)
    move(sch, "A_global", "mm", 1)


def output_cached(sch: Schedule) -> None:
    sch.cache_write("narrow", 0, "local")


def output_cached_in_the_row(sch: Schedule) -> None:
    sch.cache_write("narrow", 0, "local")
    move_back(sch, "narrow_local", "narrow", 0)


def accumulator_cached(sch: Schedule) -> None:
    sch.cache_write("mm", 0, "local")
    sch.cache_read("narrow", 0, "shared")


def accumulator_in_registers(sch: Schedule) -> None:
    sch.set_scope("mm", 0, "local")


def accumulator_in_another_layout(sch: Schedule) -> None:
    sch.transform_layout("mm", ("write", 0), lambda i, j: (j // 4, i, j % 4))
    sch.storage_align("mm", 0, axis=1, factor=16, offset=8)


def copies_at_loops(sch: Schedule) -> None:
    i = loops(sch, "narrow")[0]
    sch.read_at(i, sch.get_sblock("narrow"), 1, "global")
    sch.write_at(i, sch.get_sblock("narrow"), 0, "global")


def annotated(sch: Schedule) -> None:
    sch.annotate(sch.get_sblock("narrow"), "note", 1)
    sch.annotate(tail_loop(sch), "pragma_unroll_explicit", 0)


def tail_in_a_block(sch: Schedule) -> None:
    sch.blockize(tail_loop(sch))


def decomposed_at_the_top(sch: Schedule) -> None:
    decompose(sch, 0)


def decomposed_in_the_row(sch: Schedule) -> None:
    decompose(sch, 1)
    sch.vectorize(loops(sch, "mm_init")[-1])
    sch.vectorize(tail_loop(sch))


def decomposed_at_the_tiles(sch: Schedule) -> None:
    decompose(sch, 1)
    sch.unroll(loops(sch, "mm_update")[1])


def decomposed_at_every_step(sch: Schedule) -> None:
    decompose(sch, 2)


def decomposed_in_tiles(sch: Schedule) -> None:
    decompose(sch, 2)
    move(sch, "bias", "mm_init", 1)
    sch.vectorize(loops(sch, "mm_init")[-1])
    sch.vectorize(tail_loop(sch))
    sch.unroll(loops(sch, "mm_update")[-1])


def decomposed_in_registers(sch: Schedule) -> None:
    decompose(sch, 2)
    sch.set_scope("mm_init", 0, "local")
    sch.cache_write("narrow", 0, "local")


# Where the tail shares the loop over single elements with the reduction, that loop is no loop of
# the tail alone.
ANYWHERE: list[Steps] = [
    untouched,
    parallel_and_unrolled,
    next_in_the_same_place,
    next_inside_the_tail,
    next_inlined_into_the_tail,
    tail_inlined_into_next,
    tail_in_the_row_of_next,
    everything_in_the_loops_of_next,
    bias_in_the_row,
    inputs_cached,
    output_cached,
    output_cached_in_the_row,
    accumulator_cached,
    accumulator_in_registers,
    accumulator_in_another_layout,
    annotated,
    decomposed_at_the_top,
]


def partial_sums(sch: Schedule) -> None:
    """Before the row: its tail stays after the sum of the partial sums."""
    sch.rfactor(loops(sch, "mm")[1], 0)


ACCEPTED: dict[str, tuple[Steps, Steps]] = {
    f"{prepare.__name__}-{steps.__name__}": (prepare, steps)
    for prepare, sequences in {
        as_it_is: [*ANYWHERE, copies_at_loops, decomposed_at_every_step, decomposed_in_registers],
        row: [
            *ANYWHERE,
            copies_at_loops,
            vectorized,
            split_and_vectorized,
            bound_to_threads,
            partial_sums,
            tail_in_a_block,
            decomposed_in_the_row,
        ],
        tile: [
            *ANYWHERE,
            vectorized,
            split_and_vectorized,
            fused_and_split,
            reordered,
            tail_in_a_block,
            decomposed_in_the_row,
            decomposed_at_every_step,
            decomposed_in_tiles,
            decomposed_in_registers,
        ],
        vectors: [
            untouched,
            bias_in_the_row,
            tail_inlined_into_next,
            output_cached,
            accumulator_in_registers,
            decomposed_at_the_top,
            decomposed_at_the_tiles,
        ],
    }.items()
    for steps in sequences
}


def built_after(sequences: Mapping[str, Callable[[], Schedule]]) -> Builds:
    """Schedules compiled together; one that cannot be made is left to its own test."""
    functions = {}
    for name, make in sequences.items():
        with contextlib.suppress(Exception):
            functions[name.replace("-", "_")] = make().mod["main"]
    return Builds(functions)


def after(name: str) -> Schedule:
    prepare, steps = ACCEPTED[name]
    sch = fused_after(prepare)
    steps(sch)
    return sch


@pytest.fixture(scope="module")
def built() -> Builds:
    return built_after({name: functools.partial(after, name) for name in ACCEPTED})


@pytest.mark.parametrize("name", ACCEPTED)
def test_is_accepted_and_right(name: str, built: Builds) -> None:
    sch = after(name)
    verify_well_formed(sch.mod["main"])
    assert_right(built[name.replace("-", "_")], PROGRAM, name)
    tvm.ir.assert_structural_equal(replayed(sch, PROGRAM).mod, sch.mod)


# ---------------------------------------------------------------------------------------------
# The bias's producer and the init, beside a tail
# ---------------------------------------------------------------------------------------------

# Before which of the loops around the place the init is put, and in which the bias is computed.
POSITIONS = [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize("prepare", [as_it_is, row, tile], ids=lambda steps: steps.__name__)
@pytest.mark.parametrize(("init", "bias"), POSITIONS)
def test_the_bias_comes_before_its_init(init: int, bias: int, prepare: Steps) -> None:
    """As without a tail: the init moves out of no loop in which its bias is computed."""
    sch = fused_after(prepare)
    move(sch, "bias", "mm", bias)
    module = sch.mod
    if bias >= init:
        with pytest.raises(s_tir.ScheduleError) as caught:
            decompose(sch, init)
        assert fuse_epilogue.refusal_code(caught.value) == "init-reads"
        assert sch.mod.same_as(module)
        return
    decompose(sch, init)
    assert_right(Builds({"moved": sch.mod["main"]})["moved"], PROGRAM, "moved")
    tvm.ir.assert_structural_equal(replayed(sch, PROGRAM).mod, sch.mod)


# What comes before the refused step, the step, and the code of the refusal if it is one of ours.
REFUSED: dict[str, tuple[Steps, Steps, str | None]] = {
    "tail into the reduction": (row, lambda s: s.reverse_compute_inline("narrow"), None),
    "tail before the reduction": (row, lambda s: move(s, "narrow", "mm", 1), None),
    "accumulator inlined": (row, lambda s: s.compute_inline("mm"), None),
    "rfactor": (as_it_is, lambda s: s.rfactor(loops(s, "mm")[2], 0), "not-alone"),
    "vectors around both": (as_it_is, lambda s: s.vectorize(tail_loop(s)), "vector-lanes"),
    "padded": (as_it_is, lambda s: s.pad_einsum("mm", [1, 5, 1]), "not-alone"),
    "blockize both": (as_it_is, lambda s: s.blockize(tail_loop(s)), "init-reads"),
    "blockize the tile": (tile, lambda s: s.blockize(loops(s, "mm")[2]), "init-reads"),
    "the tail again": (row, lambda s: s.fuse_reduction_epilogue("mm", "narrow"), "already-fused"),
    "the bias": (row, lambda s: s.fuse_reduction_epilogue("mm", "bias"), "wrong-pair"),
    "the tail as a reduction": (
        row,
        lambda s: s.fuse_reduction_epilogue("narrow", "next"),
        "not-a-reduction",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_and_changes_nothing(name: str) -> None:
    prepare, step, code = REFUSED[name]
    sch = fused_after(prepare)
    module = sch.mod
    with pytest.raises(s_tir.ScheduleError) as caught:
        step(sch)
    assert fuse_epilogue.refusal_code(caught.value) == code
    assert sch.mod.same_as(module)


# ---------------------------------------------------------------------------------------------
# Fusing more after a tail
# ---------------------------------------------------------------------------------------------


def all_at_once(sch: Schedule) -> None:
    assert len(sch.fuse_reduction_epilogue("mm").steps) == 4


def one_by_one(sch: Schedule) -> None:
    for epilogue in (*FUSED, "next"):
        sch.fuse_reduction_epilogue("mm", epilogue)


def pair_and_the_rest(sch: Schedule) -> None:
    sch.fuse_reduction_epilogue("mm", "add")
    sch.fuse_reduction_epilogue("mm", "relu")
    sch.fuse_reduction_epilogue("mm")


def named_by_the_last(sch: Schedule) -> None:
    for epilogue in FUSED:
        sch.fuse_reduction_epilogue("mm", epilogue)
    sch.fuse_reduction_epilogue("next")


def tiled_between(sch: Schedule) -> None:
    sch.fuse_reduction_epilogue("mm", "add")
    tile(sch)
    sch.fuse_reduction_epilogue("mm", "relu")
    sch.vectorize(loops(sch, "relu")[-1])
    sch.fuse_reduction_epilogue("mm")


def next_moved_to_the_tail_first(sch: Schedule) -> None:
    row(sch)
    for epilogue in FUSED:
        sch.fuse_reduction_epilogue("mm", epilogue)
    sch.reverse_compute_at("next", tail_loop(sch))
    sch.fuse_reduction_epilogue("mm", "next")


def output_cached_between(sch: Schedule) -> None:
    for epilogue in FUSED:
        sch.fuse_reduction_epilogue("mm", epilogue)
    sch.cache_write("narrow", 0, "global")
    assert len(sch.fuse_reduction_epilogue("mm").steps) == 3  # the tail, its copy, its reader


def accumulator_cached_between(sch: Schedule) -> None:
    sch.fuse_reduction_epilogue("mm", "add")
    sch.cache_write("mm", 0, "global")
    row(sch)
    sch.fuse_reduction_epilogue("mm")


FURTHER: list[Steps] = [
    all_at_once,
    one_by_one,
    pair_and_the_rest,
    named_by_the_last,
    tiled_between,
    next_moved_to_the_tail_first,
    output_cached_between,
    accumulator_cached_between,
]


def further(steps: Steps) -> Schedule:
    sch = schedule(PROGRAM)
    steps(sch)
    return sch


@pytest.fixture(scope="module")
def built_further() -> Builds:
    return built_after({s.__name__: functools.partial(further, s) for s in FURTHER})


@each(FURTHER)
def test_fusing_more(steps: Steps, built_further: Builds) -> None:
    sch = further(steps)
    assert list(blocks(sch.mod["main"])) == ["bias", "mm", "next"]
    verify_well_formed(sch.mod["main"])
    assert_right(built_further[steps.__name__], PROGRAM, steps.__name__)
    tvm.ir.assert_structural_equal(replayed(sch, PROGRAM).mod, sch.mod)


@each([one_by_one, pair_and_the_rest, named_by_the_last])
def test_one_by_one_is_all_at_once(steps: Steps) -> None:
    at_once = schedule(PROGRAM)
    all_at_once(at_once)
    tvm.ir.assert_structural_equal(further(steps).mod, at_once.mod)


def test_a_tail_may_be_fused_again_where_it_has_been_moved() -> None:
    """Out of the place and back: the same program."""
    sch, fused = fused_after(row), fused_after(row)
    move(sch, "narrow", "next", 0)
    moved = sch.mod
    sch.fuse_reduction_epilogue("mm", "narrow")
    assert not sch.mod.same_as(moved)
    tvm.ir.assert_structural_equal(sch.mod, fused.mod)
