"""Accepting programs whose accumulator is in special memory, or is not the program's own."""

from __future__ import annotations

from tvm.s_tir import Schedule
from tvm.script import tirx as T

from . import lazy
from .builders import K, M, add_rows, matmul_then, sum_rows
from .case import Case, accepted, matmul, row_sums


@lazy.prim_func(s_tir=True)
def accumulator_in_shared_memory(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32", scope="shared")
    sum_rows(A, temp)
    add_rows(temp, C, D)


# The products are added to what the caller passes, doubled.
@lazy.prim_func(s_tir=True)
def added_to_an_argument(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
    temp: T.Buffer((M,), "int32"),
):
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = temp[vi] * 2
            temp[vi] = temp[vi] + A[vi, vk]
    add_rows(temp, C, D)


def cache_write_local(sch: Schedule) -> None:
    sch.cache_write(sch.get_sblock("mm"), 0, "local")


def cache_output_local(sch: Schedule) -> None:
    sch.cache_write(sch.get_sblock("add"), 0, "local")


ACCEPT = [
    # The bias is absorbed; what is left is a copy from one memory to the other.
    accepted(
        accumulator_in_shared_memory,
        lambda A, C: row_sums(A) + C,
        "C[vi]",
        "C[vi]",
        "accumulator_of_a_tensor_core",
        tails={"add": "x"},
    ),
    # So it is where the copy stands before the bias.
    Case(
        name="accumulator_in_local_memory",
        func=matmul_then(lambda t, C, E, S, i, j: t + C[i, j]),
        schedule=cache_write_local,
        epilogues=("temp_local", "add"),
        reference=lambda A, B, C, E, S: matmul(A, B) + C,
        absorbed=("", "C[vi, vj]"),
        tails={"add": "x"},
        one_by_one=False,
        twin="accumulator_of_a_tensor_core",
    ),
    Case(
        name="output_in_local_memory",
        func=matmul_then(lambda t, C, E, S, i, j: t + C[i, j]),
        schedule=cache_output_local,
        epilogues=("add", "D_local"),
        reference=lambda A, B, C, E, S: matmul(A, B) + C,
        absorbed=("C[vi, vj]", ""),
        twin="accumulator_of_a_tensor_core",
    ),
    accepted(
        added_to_an_argument,
        lambda A, C, temp: {"D": temp * 2 + row_sums(A) + C, "temp": temp * 2 + row_sums(A)},
        "",
        "temp[vi] * 2",
        "intermediate_filled_before",
        tails={"add": "x + C[vi]"},
        kept=("temp",),
        updates=("temp",),
    ),
]
