"""Programs that come out wrong without one of the checks of reductions, loops and domains."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import s_tir
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from mutation import Mutant, mutant

from .builders import K, M, N, add_rows, sum_rows

# ---------------------------------------------------------------------------------------------
# The reduction's loops
# ---------------------------------------------------------------------------------------------


# What is not computed keeps its value, which the caller has put there; a tail would pass it over.
@T.prim_func(s_tir=True)
def rows_of_a_parameter_left_out(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    P: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
):
    for i, k in T.grid(M - 2, K):
        with T.sblock("mm"):
            vi = T.axis.spatial(M, i)
            vk = T.axis.reduce(K, k)
            with T.init():
                P[vi] = 0
            P[vi] = P[vi] + A[vi, vk]
    add_rows(P, C, D)


# The same by a loop that takes every second row.
@T.prim_func(s_tir=True)
def every_second_row_of_a_parameter(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    P: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
):
    for i in T.serial(0, M, step=2):
        for k in range(K):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    P[vi] = 0
                P[vi] = P[vi] + A[vi, vk]
    add_rows(P, C, D)


# As many rows are computed as are consumed, but two of them in one place.
@T.prim_func(s_tir=True)
def rows_in_pairs_of_a_parameter(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    P: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
):
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                P[vi // 2] = 0
            P[vi // 2] = P[vi // 2] + A[vi, vk]
    add_rows(P, C, D)


# How many rows there are is read from memory, and changed after the sums. The blocks do not say so.
@T.prim_func(s_tir=True)
def number_of_rows_changed_between(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    S: T.Buffer((1,), "int32"),
    D: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(S[0], K):
        with T.sblock("mm"):
            vi = T.axis.spatial(S[0], i)
            vk = T.axis.reduce(K, k)
            T.reads(A[vi, vk])
            T.writes(temp[vi])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    for u in range(1):
        with T.sblock("other"):
            vu = T.axis.spatial(1, u)
            S[vu] = 3
    for i in range(S[0]):
        with T.sblock("add"):
            vi = T.axis.spatial(S[0], i)
            T.reads(temp[vi], C[vi])
            T.writes(D[vi])
            D[vi] = temp[vi] + C[vi]


def all_rows() -> dict[str, np.ndarray]:
    return {"S": np.full(1, M, "int32")}


# The init fires at the last step. What was summed before is thrown away, but not by an init that
# starts from the very buffer in which it was summed.
@T.prim_func(s_tir=True)
def reversed_into_the_bias(A: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32")):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi = T.axis.spatial(M, i)
            vk = T.axis.reduce(K, K - 1 - k)
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    add_rows(temp, D, D)


# On a GPU the threads of a reduction combine what each of them has, starting from the identity.
@T.prim_func(s_tir=True)
def reduction_across_threads(
    A: T.Buffer((M, 32), "float32"), C: T.Buffer((M,), "float32"), D: T.Buffer((M,), "float32")
):
    temp = T.sblock_alloc_buffer((M,), "float32", scope="local")
    for i in T.thread_binding(M, thread="blockIdx.x"):
        for k in T.thread_binding(32, thread="threadIdx.x"):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = T.float32(0)
                temp[vi] = temp[vi] + A[vi, vk]
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]


def not_lowered_for_threads(before: PrimFunc, after: PrimFunc) -> str:
    """Whether TVM can make a reduction across threads of the second function, as of the first."""
    lower = s_tir.transform.LowerCrossThreadReduction()
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
    for func in (before, after):
        mod = tvm.IRModule({"main": func.with_attr("target", target)})
        try:
            lower(mod)
        except Exception:
            assert func is after, "not even the unfused program can be lowered"
            return "does not lower"
    return ""


# ---------------------------------------------------------------------------------------------
# The reduction itself
# ---------------------------------------------------------------------------------------------


# Every step takes the sum twice.
@T.prim_func(s_tir=True)
def sum_in_its_own_term(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 1
            temp[vi] = temp[vi] + temp[vi] * A[vi, vk]
    add_rows(temp, C, D)


# One element is set, another one is summed up.
@T.prim_func(s_tir=True)
def init_of_the_mirrored_element(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for k, i in T.grid(K, M):
        with T.sblock("mm"):
            vk, vi = T.axis.remap("RS", [k, i])
            with T.init():
                temp[M - 1 - vi] = vi
            temp[vi] = temp[vi] + A[vi, vk]
    add_rows(temp, C, D)


# Without a reduction axis the init fires at every step, and only the last term counts.
@T.prim_func(s_tir=True)
def steps_in_order_in_place(A: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32")):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi = T.axis.spatial(M, i)
            vk = T.axis.scan(K, k)
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    add_rows(temp, D, D)


# ---------------------------------------------------------------------------------------------
# The loops of the epilogue
# ---------------------------------------------------------------------------------------------


# What row i reads is, in the first half, what the caller put there.
@T.prim_func(s_tir=True)
def mirrored_within_a_shared_loop(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M, N), "int32"),
    P: T.Buffer((M, N), "int32"),
    D: T.Buffer((M, N), "int32"),
):
    for i in range(M):
        for j, k in T.grid(N, K):
            with T.sblock("mm"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    P[vi, vj] = 0
                P[vi, vj] = P[vi, vj] + A[vi, vk]
        for j in range(N):
            with T.sblock("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = P[M - 1 - vi, vj] + C[vi, vj]


# Whether there is an epilogue at all is for the caller to say.
@T.prim_func(s_tir=True)
def epilogue_if_the_caller_wants(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), s: T.int32, D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            T.where(s > 0)
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]


def not_wanted() -> dict[str, np.ndarray]:
    return {"s": np.int32(0)}


# Behind the first step the sum is not complete.
@T.prim_func(s_tir=True)
def consumed_after_the_first_step(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
        with T.sblock("add"):
            T.where(k < 1)
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]


MUTANTS: list[Mutant] = [
    mutant(
        "reduction-domain",
        "rows that are not computed are still consumed",
        rows_of_a_parameter_left_out,
        keeps=("P",),
    ),
    mutant(
        "reduction-domain",
        "a loop with a step does not visit every row",
        every_second_row_of_a_parameter,
        keeps=("P",),
    ),
    mutant(
        "reduction-domain",
        "every row has an element of its own",
        rows_in_pairs_of_a_parameter,
        keeps=("P",),
    ),
    mutant(
        "reduction-domain",
        "the number of rows is the same for both blocks",
        number_of_rows_changed_between,
        keeps=("S",),
        inputs=all_rows,
        also=("consumer-domain",),
    ),
    mutant(
        "consumer-domain",
        "the epilogue runs for every element",
        epilogue_if_the_caller_wants,
        inputs=not_wanted,
    ),
    mutant(
        "reduction-form",
        "the steps are those of a reduction axis",
        steps_in_order_in_place,
        keeps=("D",),
    ),
    mutant(
        "reduction-order",
        "an init in place must come before the first term",
        reversed_into_the_bias,
        keeps=("D",),
    ),
    mutant(
        "reduction-loop-kind",
        "threads combine sums that start from the identity",
        reduction_across_threads,
        judge=not_lowered_for_threads,
    ),
    mutant(
        "shared-loops",
        "an iteration consumes what it has computed itself",
        mirrored_within_a_shared_loop,
        keeps=("P",),
    ),
    mutant(
        "shared-loops", "sums are complete when they are consumed", consumed_after_the_first_step
    ),
    mutant("reduction-form", "the sum stands in no term", sum_in_its_own_term),
    mutant("reduction-form", "the init is that of the element", init_of_the_mirrored_element),
]
