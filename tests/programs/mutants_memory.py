"""Programs that come out wrong without one of the checks of memory, calls, numbers and order."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from mutation import Mutant, mutant

from .builders import K, M, N, add_rows, sum_rows

# ---------------------------------------------------------------------------------------------
# What is read and where it is stored
# ---------------------------------------------------------------------------------------------


# Two elements that are not finished together.
@T.prim_func(s_tir=True)
def sum_and_mirror(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = T.max(temp[vi], temp[M - 1 - vi]) + C[vi]


# Two rows meet in one place, and with the steps outermost the second one does not come last.
@T.prim_func(s_tir=True)
def rows_collide_at_every_step(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M // 2,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for k, i in T.grid(K, M):
        with T.sblock("mm"):
            vk, vi = T.axis.remap("RS", [k, i])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi // 2] = temp[vi] + C[vi]


# With the steps outermost, all rows start before any of them is finished.
@T.prim_func(s_tir=True)
def mirrored_in_place_at_every_step(A: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32")):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for k, i in T.grid(K, M):
        with T.sblock("mm"):
            vk, vi = T.axis.remap("RS", [k, i])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + D[M - 1 - vi]


# The epilogue reads what the last call left; the sum comes after it.
@T.prim_func(s_tir=True)
def old_sum_first(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    P: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
):
    add_rows(P, C, D)
    sum_rows(A, P)


# In the loop of the epilogue, behind it: at row 7 - i it overwrites what that row has stored or is
# yet to store.
@T.prim_func(s_tir=True)
def output_overwritten_behind_the_epilogue(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]
        with T.sblock("other"):
            vi = T.axis.spatial(M, i)
            D[M - 1 - vi] = 5


# With the clipping in its loop, nothing of the sums is left outside of it.
@T.prim_func(s_tir=True)
def sums_of_two_rows(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i in range(M):
        for k in range(K):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
        with T.sblock("two"):
            vi = T.axis.spatial(M, i)
            C[vi] = temp[vi] + temp[vi // 2]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = T.max(temp[vi], 0)


# A reduction over a single step; what it starts from must not be lost.
@T.prim_func(s_tir=True)
def consumer_that_starts_from_seven(A: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32")):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i, r in T.grid(M, 1):
        with T.sblock("add"):
            vi, vr = T.axis.remap("SR", [i, r])
            with T.init():
                D[vi] = 7
            D[vi] = D[vi] + temp[vi]


# The axis of the epilogue is narrower than that of the reduction, which is to take its place, and
# their extent is not a number.
@T.prim_func(s_tir=True)
def narrow_axis_in_the_value(a: T.handle, c: T.handle, d: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n, K), "int32")
    C = T.match_buffer(c, (n,), "int32")
    D = T.match_buffer(d, (n,), "int32")
    temp = T.sblock_alloc_buffer((n,), "int32")
    for i, k in T.grid(T.Cast("int64", n), T.int64(K)):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(n):
        with T.sblock("add"):
            vi = T.axis.spatial(n, i)
            D[vi] = temp[vi] + C[vi] * vi // 2


# The columns are cut into halves, and within a half they share a loop with the steps: elements of
# the second half are not finished when the first one is.
@T.prim_func(s_tir=True)
def halves_of_columns_and_steps_in_one_loop(
    A: T.Buffer((8, K), "int32"), D: T.Buffer((8,), "int32")
):
    temp = T.sblock_alloc_buffer((8,), "int32")
    for j, f in T.grid(2, 4 * K):
        with T.sblock("mm"):
            vi = T.axis.spatial(8, j * 4 + f // K)
            vk = T.axis.reduce(K, f % K)
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(8):
        with T.sblock("add"):
            vi = T.axis.spatial(8, i)
            D[vi] = T.max(temp[vi], D[vi])


# ---------------------------------------------------------------------------------------------
# Names and calls
# ---------------------------------------------------------------------------------------------


# Around the scope of the two blocks, the bias has a second name, by which it is changed between.
@T.prim_func(s_tir=True)
def bias_changed_under_an_outer_name(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    for u in range(1):
        with T.sblock("outer"):
            vu = T.axis.spatial(1, u)
            T.reads(A[0:M, 0:K], C[vu * M : vu * M + M])
            T.writes(D[0:M], C[vu * M : vu * M + M])
            part = T.match_buffer(C[vu * M : vu * M + M], (M,), "int32", offset_factor=1)
            for w in range(1):
                with T.sblock("inner"):
                    vw = T.axis.spatial(1, w)
                    T.reads(A[0:M, 0:K], C[vw * M : vw * M + M])
                    T.writes(D[0:M], part[vw * M : vw * M + M])
                    temp = T.sblock_alloc_buffer((M,), "int32")
                    sum_rows(A, temp)
                    for i in range(M):
                        with T.sblock("change"):
                            vi = T.axis.spatial(M, i)
                            part[vi] = 5
                    add_rows(temp, C, D)


# Inside its block, the output has another name.
@T.prim_func(s_tir=True)
def output_under_an_inner_name(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            T.reads(temp[vi], C[vi])
            T.writes(D[0:M])
            part = T.match_buffer(D[0:M], (M,), "int32", offset_factor=1)
            part[vi] = temp[vi] + C[vi]


COUNTER = "fuse_epilogue.test.next_number"
_numbers = {"next": 0}


def _next_number() -> int:
    _numbers["next"] += 1
    return _numbers["next"]


tvm_ffi.register_global_func(COUNTER, _next_number, override=True)


def count_from_the_start() -> None:
    _numbers["next"] = 0


# Every call returns another number: the order of the calls must stay.
@T.prim_func(s_tir=True)
def numbered_column_by_column(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M, N), "int32")
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    for i, j, k in T.grid(M, N, K):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + A[vi, vk]
    for j, i in T.grid(N, M):
        with T.sblock("add"):
            vj, vi = T.axis.remap("SS", [j, i])
            D[vi, vj] = temp[vi, vj] + T.call_packed(COUNTER)


# ---------------------------------------------------------------------------------------------
# Numbers
# ---------------------------------------------------------------------------------------------


# ---------------------------------------------------------------------------------------------
# The pipeline
# ---------------------------------------------------------------------------------------------


def not_compiled(before: PrimFunc, after: PrimFunc) -> str:
    for func in (before, after):
        try:
            tvm.compile(tvm.IRModule({"main": func}), target="llvm")
        except Exception:
            assert func is after, "not even the unfused program compiles"
            return "does not compile"
    return ""


@T.prim_func(s_tir=True)
def pipelined_rows(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i in T.serial(
        M, annotations={"software_pipeline_stage": [0, 1], "software_pipeline_order": [0, 1]}
    ):
        for k in range(K):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]


# ---------------------------------------------------------------------------------------------
# Later primitives
# ---------------------------------------------------------------------------------------------


@T.prim_func(s_tir=True)
def sum_and_its_bias(
    A: T.Buffer((M, K), "int32"), E: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    C = T.sblock_alloc_buffer((M,), "int32")
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i in range(M):
        with T.sblock("bias"):
            vi = T.axis.spatial(M, i)
            C[vi] = E[vi] * 3
    sum_rows(A, temp)
    add_rows(temp, C, D)


@T.prim_func(s_tir=True)
def sum_into_its_bias(A: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32")):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    add_rows(temp, D, D)


def fused_with_the_bias_at_every_step(sch: Schedule) -> None:
    sch.fuse_reduction_epilogue("mm")
    sch.compute_at(sch.get_sblock("bias"), sch.get_loops(sch.get_sblock("mm"))[1])


def fused(sch: Schedule) -> None:
    sch.fuse_reduction_epilogue("mm")


def decomposed_at_the_steps(sch: Schedule) -> None:
    block = sch.get_sblock("mm")
    sch.decompose_reduction(block, sch.get_loops(block)[1])


def blockized_and_the_bias_moved_below(sch: Schedule) -> None:
    outer = sch.blockize(sch.get_loops(sch.get_sblock("mm"))[1])
    sch.compute_at(sch.get_sblock("bias"), sch.get_loops(outer)[0])
    sch.decompose_reduction(outer, sch.get_loops(outer)[0])


def output_cached(sch: Schedule) -> None:
    sch.cache_write("mm", 0, "global")


# A tail in the loop of the rows, without a loop of its own.
@T.prim_func(s_tir=True)
def clipped_sum(A: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32")):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("clip"):
            vi = T.axis.spatial(M, i)
            D[vi] = T.max(temp[vi], 0)


def loops_of_the_sum(sch: Schedule) -> list[LoopRV]:
    return list(sch.get_loops(sch.get_sblock("mm")))


def rows_vectorized(sch: Schedule) -> None:
    sch.vectorize(loops_of_the_sum(sch)[0])


def rows_padded(sch: Schedule) -> None:
    sch.pad_einsum("mm", [M - 1, 1])


def steps_factored(sch: Schedule) -> None:
    sch.rfactor(loops_of_the_sum(sch)[1], 0)


# The intermediate has two axes, the output one.
@T.prim_func(s_tir=True)
def table_stored_in_a_row(A: T.Buffer((M, N, K), "int32"), E: T.Buffer((M * N,), "int32")):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    mid = T.sblock_alloc_buffer((M * N,), "int32")
    for i, j, k in T.grid(M, N, K):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + A[vi, vj, vk]
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            mid[vi * N + vj] = temp[vi, vj] + 1
    for i in range(M * N):
        with T.sblock("relu"):
            vi = T.axis.spatial(M * N, i)
            E[vi] = T.max(mid[vi], 0)


def aligned_by_columns(sch: Schedule) -> None:
    sch.storage_align("mm", 0, 1, 8, 1)


MUTANTS: list[Mutant] = [
    mutant(
        "output-aliases-input",
        "no other element of the output is read",
        mirrored_in_place_at_every_step,
        keeps=("D",),
    ),
    mutant("opaque-access", "the output has one name", output_under_an_inner_name),
    mutant("index-map", "all loads are of the element that is finished", sum_and_mirror),
    mutant("output-write", "no two elements meet in one place", rows_collide_at_every_step),
    mutant("order", "the epilogue comes after the sum", old_sum_first, keeps=("P",)),
    mutant(
        "output-writers",
        "nobody else writes the output between its stores",
        output_overwritten_behind_the_epilogue,
    ),
    mutant(
        "opaque-access",
        "no buffer has another name around the scope",
        bias_changed_under_an_outer_name,
        keeps=("C",),
    ),
    mutant(
        "carried-value",
        "a buffer lives as long as its values are read",
        sums_of_two_rows,
        keeps=("C",),
        reduction="add",
        compiled=True,
    ),
    mutant(
        "impure",
        "calls with effects stay in their order",
        numbered_column_by_column,
        before_call=count_from_the_start,
    ),
    mutant(
        "structure",
        "the stages of a pipeline are its statements",
        pipelined_rows,
        judge=not_compiled,
    ),
    mutant("consumer-form", "a consumer's own init is not lost", consumer_that_starts_from_seven),
    mutant(
        "index-type", "indices have one type", narrow_axis_in_the_value, sizes=({"n": 5}, {"n": 8})
    ),
    mutant(
        "storage-align",
        "an alignment has the axes of its buffer",
        table_stored_in_a_row,
        schedule=aligned_by_columns,
        judge=not_compiled,
    ),
    mutant(
        "tail-place",
        "a tail has spatial loops of its own",
        halves_of_columns_and_steps_in_one_loop,
        keeps=("D",),
    ),
    mutant(
        "init-reads",
        "decompose_reduction: no init before its bias",
        sum_and_its_bias,
        schedule=fused_with_the_bias_at_every_step,
        act=decomposed_at_the_steps,
    ),
    mutant(
        "init-reads",
        "blockize: no init that nobody sees reading",
        sum_and_its_bias,
        schedule=fused,
        act=blockized_and_the_bias_moved_below,
    ),
    mutant(
        "init-reads",
        "cache_write: no init that reads what nobody has written",
        sum_into_its_bias,
        keeps=("D",),
        schedule=fused,
        act=output_cached,
    ),
    mutant(
        "vector-lanes",
        "lanes do not share an accumulator",
        clipped_sum,
        schedule=fused,
        act=rows_vectorized,
        compiled=True,
    ),
    mutant(
        "not-alone",
        "pad_einsum: a tail does not go on where its rows end",
        clipped_sum,
        schedule=fused,
        act=rows_padded,
    ),
    mutant(
        "not-alone",
        "rfactor: what TVM takes for the sum is the sum",
        clipped_sum,
        schedule=fused,
        act=steps_factored,
    ),
]
