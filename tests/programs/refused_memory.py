"""Refusing programs in which memory has another scope or another name."""

from __future__ import annotations

from tvm.s_tir import Schedule
from tvm.script import tirx as T

from . import lazy
from .builders import K, M, add_rows, matmul_then, sum_rows
from .case import IN_PLACE, KEEPING_D, WITH_F, Case, matmul, refused, row_sums


# Memory that single elements cannot be loaded from.
@lazy.prim_func(s_tir=True)
def accumulator_of_a_tensor_core(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32", scope="wmma.accumulator")
    sum_rows(A, temp)
    add_rows(temp, C, D)


@lazy.prim_func(s_tir=True)
def alias_of_the_output(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M // 4):
        with T.sblock("add"):
            vi = T.axis.spatial(M // 4, i)
            T.reads(temp[vi * 4 : vi * 4 + 4], C[vi * 4 : vi * 4 + 4])
            T.writes(D[vi * 4 : vi * 4 + 4])
            part = T.match_buffer(D[vi * 4 : vi * 4 + 4], (4,), "int32", offset_factor=1)
            for u in range(4):
                part[u] = temp[vi * 4 + u] + C[vi * 4 + u]


@lazy.prim_func(s_tir=True)
def intermediate_of_a_statement(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    add_rows(temp, C, D)


@lazy.prim_func(s_tir=True)
def alias_of_the_intermediate(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            T.reads(temp[vi], C[vi])
            T.writes(D[vi])
            part = T.match_buffer(temp[vi], (), "int32", offset_factor=1)
            D[vi] = part[()] + C[vi]


# Somebody else looks at the intermediate through another name.
@lazy.prim_func(s_tir=True)
def alias_in_another_reader(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
    F: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    add_rows(temp, C, D)
    for i in range(M // 4):
        with T.sblock("other"):
            vi = T.axis.spatial(M // 4, i)
            T.reads(temp[vi * 4 : vi * 4 + 4])
            T.writes(F[vi * 4 : vi * 4 + 4])
            part = T.match_buffer(temp[vi * 4 : vi * 4 + 4], (4,), "int32", offset_factor=1)
            for u in range(4):
                F[vi * 4 + u] = part[u]


@lazy.prim_func(s_tir=True)
def pointer_to_the_intermediate(
    A: T.Buffer((M, K), "float32"),
    C: T.Buffer((M,), "float32"),
    D: T.Buffer((M,), "float32"),
    F: T.Buffer((M,), "float32"),
):
    temp = T.sblock_alloc_buffer((M,), "float32")
    sum_rows(A, temp)
    add_rows(temp, C, D)
    with T.sblock("other"):
        T.reads(temp[0:M])
        T.writes(F[0:M])
        T.evaluate(T.call_extern("int32", "memcpy", F.access_ptr("w"), temp.access_ptr("r"), 4 * M))


@lazy.prim_func(s_tir=True)
def undeclared_pointer_to_the_intermediate(
    A: T.Buffer((M, K), "float32"),
    C: T.Buffer((M,), "float32"),
    D: T.Buffer((M,), "float32"),
    F: T.Buffer((M,), "float32"),
):
    temp = T.sblock_alloc_buffer((M,), "float32")
    sum_rows(A, temp)
    with T.sblock("keep"):
        T.reads()
        T.writes()
        T.evaluate(T.call_extern("int32", "memcpy", F.access_ptr("w"), temp.access_ptr("r"), 4 * M))
    add_rows(temp, C, D)


# The output has two names: the reduction reads one, the epilogue writes the other.
@lazy.prim_func(s_tir=True)
def output_is_a_matched_region(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    for u in range(1):
        with T.sblock("whole"):
            vu = T.axis.spatial(1, u)
            T.reads(A[0:M, 0:K], C[0:M], D[vu * M : vu * M + M])
            T.writes(D[vu * M : vu * M + M])
            part = T.match_buffer(D[vu * M : vu * M + M], (M,), "int32", offset_factor=1)
            temp = T.sblock_alloc_buffer((M,), "int32")
            for i, k in T.grid(M, K):
                with T.sblock("mm"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        temp[vi] = 0
                    temp[vi] = temp[vi] + A[vi, vk] * D[vk]
            for i in range(M):
                with T.sblock("add"):
                    vi = T.axis.spatial(M, i)
                    part[vi] = temp[vi] + C[vi]


# Declared as touching nothing: only the pointer in its body tells.
@lazy.prim_func(s_tir=True)
def undeclared_pointer_to_the_output(
    A: T.Buffer((M, K), "float32"),
    C: T.Buffer((M,), "float32"),
    D: T.Buffer((M,), "float32"),
    F: T.Buffer((M,), "float32"),
):
    temp = T.sblock_alloc_buffer((M,), "float32")
    sum_rows(A, temp)
    with T.sblock("keep"):
        T.reads()
        T.writes()
        T.evaluate(T.call_extern("int32", "memcpy", F.access_ptr("w"), D.access_ptr("r"), 4 * M))
    add_rows(temp, C, D)


@lazy.prim_func(s_tir=True)
def bias_written_through_a_pointer(
    A: T.Buffer((M, K), "float32"),
    C: T.Buffer((M,), "float32"),
    F: T.Buffer((M,), "float32"),
    D: T.Buffer((M,), "float32"),
):
    temp = T.sblock_alloc_buffer((M,), "float32")
    sum_rows(A, temp)
    with T.sblock("fill"):
        T.reads(F[0:M])
        T.writes(C[0:M])
        T.evaluate(T.call_extern("int32", "memcpy", C.access_ptr("w"), F.access_ptr("r"), 4 * M))
    add_rows(temp, C, D)


@lazy.prim_func(s_tir=True)
def undeclared_pointer_to_the_bias(
    A: T.Buffer((M, K), "float32"),
    C: T.Buffer((M,), "float32"),
    F: T.Buffer((M,), "float32"),
    D: T.Buffer((M,), "float32"),
):
    temp = T.sblock_alloc_buffer((M,), "float32")
    sum_rows(A, temp)
    with T.sblock("fill"):
        T.reads()
        T.writes()
        T.evaluate(T.call_extern("int32", "memcpy", C.data, F.data, 4 * M))
    add_rows(temp, C, D)


# An address is of one element, but what is done with it may be anywhere.
@lazy.prim_func(s_tir=True)
def bias_written_through_an_address(
    A: T.Buffer((M, K), "float32"),
    C: T.Buffer((M,), "float32"),
    F: T.Buffer((M,), "float32"),
    D: T.Buffer((M,), "float32"),
):
    temp = T.sblock_alloc_buffer((M,), "float32")
    sum_rows(A, temp)
    with T.sblock("fill"):
        T.reads(F[0:M])
        T.writes(C[0:M])
        T.evaluate(T.call_extern("int32", "memcpy", T.address_of(C[0]), T.address_of(F[0]), 4 * M))
    add_rows(temp, C, D)


@lazy.prim_func(s_tir=True)
def intermediate_changed_through_an_address(
    A: T.Buffer((M, K), "float32"),
    C: T.Buffer((M,), "float32"),
    F: T.Buffer((M,), "float32"),
    D: T.Buffer((M,), "float32"),
):
    temp = T.sblock_alloc_buffer((M,), "float32")
    sum_rows(A, temp)
    with T.sblock("fill"):
        T.reads(F[0:M])
        T.writes(temp[0:M])
        T.evaluate(
            T.call_extern("int32", "memcpy", T.address_of(temp[0]), T.address_of(F[0]), 4 * M)
        )
    add_rows(temp, C, D)


@lazy.prim_func(s_tir=True)
def output_read_through_an_address(
    A: T.Buffer((M, K), "float32"),
    C: T.Buffer((M,), "float32"),
    F: T.Buffer((M,), "float32"),
    D: T.Buffer((M,), "float32"),
):
    temp = T.sblock_alloc_buffer((M,), "float32")
    sum_rows(A, temp)
    with T.sblock("keep"):
        T.reads(D[0:M])
        T.writes(F[0:M])
        T.evaluate(T.call_extern("int32", "memcpy", T.address_of(F[0]), T.address_of(D[0]), 4 * M))
    add_rows(temp, C, D)


# The reduction itself works through another name.
@lazy.prim_func(s_tir=True)
def alias_of_the_accumulator(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.reads(A[vi, vk])
            T.writes(temp[vi])
            part = T.match_buffer(temp[vi], (), "int32", offset_factor=1)
            with T.init():
                part[()] = 0
            part[()] = part[()] + A[vi, vk]
    add_rows(temp, C, D)


# Elements of several lanes.
@lazy.prim_func(s_tir=True)
def vectors_summed_up(
    A: T.Buffer((M, K), "int32x4"), C: T.Buffer((M,), "int32x4"), D: T.Buffer((M,), "int32x4")
):
    temp = T.sblock_alloc_buffer((M,), "int32x4")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = T.Broadcast(0, 4)
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = C[vi] - temp[vi]


@lazy.prim_func(s_tir=True)
def sums_spread_over_lanes(A: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32x4")):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = T.Broadcast(temp[vi], 4)


def align_the_intermediate(sch: Schedule) -> None:
    sch.storage_align("mm", 0, 0, 8, 1)


def blockize_the_reduction(sch: Schedule) -> None:
    sch.blockize(sch.get_loops(sch.get_sblock("mm"))[1])


REFUSE = [
    refused(accumulator_of_a_tensor_core, "storage-scope"),
    Case(
        name="reduction_made_a_block_of_blocks",
        func=matmul_then(lambda t, C, E, S, i, j: t + C[i, j]),
        schedule=blockize_the_reduction,
        code=("structure", "no-consumer", "no-init", "reduction-form"),
        calls=(("mm",), ("mm_o",), ("mm", "add"), ("mm_o", "add")),
        reference=lambda A, B, C, E, S: matmul(A, B) + C,
    ),
    Case(
        name="intermediate_aligned",
        func=matmul_then(lambda t, C, E, S, i, j: t + C[i, j]),
        schedule=align_the_intermediate,
        code="storage-align",
        reference=lambda A, B, C, E, S: matmul(A, B) + C,
    ),
    refused(alias_of_the_accumulator, "opaque-access", calls=(("mm",),)),
    refused(vectors_summed_up, "reduction-form"),
    refused(sums_spread_over_lanes, "consumer-form"),
    refused(alias_of_the_output, ("opaque-access", "consumer-form")),
    refused(alias_of_the_intermediate, "opaque-access"),
    refused(intermediate_of_a_statement, "opaque-access"),
    refused(
        alias_in_another_reader,
        "opaque-access",
        reference=lambda A, C: {"D": row_sums(A) + C, "F": row_sums(A)},
        **WITH_F,
    ),
    refused(pointer_to_the_intermediate, "opaque-access", **WITH_F),
    refused(
        undeclared_pointer_to_the_intermediate,
        "opaque-access",
        reference=lambda A, C: {"D": row_sums(A) + C, "F": row_sums(A)},
        **WITH_F,
    ),
    refused(
        output_is_a_matched_region,
        "opaque-access",
        reference=lambda A, C, D: A @ D[:K] + C,
        **IN_PLACE,
    ),
    refused(
        undeclared_pointer_to_the_output,
        ("opaque-access", "output-used-between"),
        **KEEPING_D,
    ),
    refused(
        undeclared_pointer_to_the_bias,
        "opaque-access",
        reference=lambda A, C, F: {"D": row_sums(A) + F, "C": F},
        updates=("C",),
    ),
    refused(
        bias_written_through_an_address,
        ("opaque-access", "bias-written-between"),
        reference=lambda A, C, F: {"D": row_sums(A) + F, "C": F},
        updates=("C",),
    ),
    refused(
        intermediate_changed_through_an_address,
        ("opaque-access", "other-writer"),
        reference=lambda A, C, F: F + C,
    ),
    refused(
        output_read_through_an_address,
        ("opaque-access", "output-used-between"),
        reference=lambda A, C, D: {"D": row_sums(A) + C, "F": D},
        **KEEPING_D,
    ),
    refused(
        bias_written_through_a_pointer,
        ("opaque-access", "bias-written-between"),
        updates=("C",),
    ),
]
