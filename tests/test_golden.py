"""Programs before and after the fusion, in full, each beside its refusing twin.

Here all of the epilogue is absorbed; ``test_golden_tails.py`` has those of which something is left.
A twin is the same program with one thing changed, the argument of the function that makes it. That
one thing makes the fusion unsound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tvm import s_tir
from tvm.s_tir.schedule.testing import assert_structural_equal_ignore_global_symbol
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

import fuse_epilogue

pytestmark = pytest.mark.cpp

Epilogue = Callable[..., Any]


# ---------------------------------------------------------------------------------------------
# The reference: 8-bit inputs, 32-bit sums, a bias
# ---------------------------------------------------------------------------------------------


def product_then(epilogue: Epilogue) -> PrimFunc:
    @T.prim_func(s_tir=True)
    def before(
        A: T.Buffer((16, 16), "int8"),
        B: T.Buffer((16, 16), "int8"),
        C: T.Buffer((16, 16), "int32"),
        D: T.Buffer((16, 16), "int32"),
    ):
        temp = T.sblock_alloc_buffer((16, 16), "int32")
        for i, j, k in T.grid(16, 16, 16):
            with T.sblock("mm"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    temp[vi, vj] = 0
                temp[vi, vj] += T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
        for i, j in T.grid(16, 16):
            with T.sblock("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = epilogue(temp[vi, vj], C[vi, vj])

    return before


@T.prim_func(s_tir=True)
def product_with_bias(
    A: T.Buffer((16, 16), "int8"),
    B: T.Buffer((16, 16), "int8"),
    C: T.Buffer((16, 16), "int32"),
    D: T.Buffer((16, 16), "int32"),
):
    for i, j, k in T.grid(16, 16, 16):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.reads(C[vi, vj], A[vi, vk], B[vj, vk])
            T.writes(D[vi, vj])
            with T.init():
                D[vi, vj] = C[vi, vj]
            D[vi, vj] = D[vi, vj] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])


# ---------------------------------------------------------------------------------------------
# What is added
# ---------------------------------------------------------------------------------------------


def row_sums_then(epilogue: Epilogue) -> PrimFunc:
    @T.prim_func(s_tir=True)
    def before(
        A: T.Buffer((8, 6), "int32"), C: T.Buffer((8,), "int32"), D: T.Buffer((8,), "int32")
    ):
        temp = T.sblock_alloc_buffer((8,), "int32")
        for i, k in T.grid(8, 6):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
        for i in range(8):
            with T.sblock("add"):
                vi = T.axis.spatial(8, i)
                D[vi] = epilogue(temp[vi], C, D, vi)

    return before


@T.prim_func(s_tir=True)
def row_sums_minus_c(
    A: T.Buffer((8, 6), "int32"), C: T.Buffer((8,), "int32"), D: T.Buffer((8,), "int32")
):
    for i, k in T.grid(8, 6):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.reads(C[vi], A[vi, vk])
            T.writes(D[vi])
            with T.init():
                D[vi] = 0 - C[vi]
            D[vi] = D[vi] + A[vi, vk]


@T.prim_func(s_tir=True)
def c_minus_row_sums(
    A: T.Buffer((8, 6), "int32"), C: T.Buffer((8,), "int32"), D: T.Buffer((8,), "int32")
):
    for i, k in T.grid(8, 6):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.reads(C[vi], A[vi, vk])
            T.writes(D[vi])
            with T.init():
                D[vi] = C[vi]
            D[vi] = D[vi] - A[vi, vk]


@T.prim_func(s_tir=True)
def row_sums_plus_constant(
    A: T.Buffer((8, 6), "int32"), C: T.Buffer((8,), "int32"), D: T.Buffer((8,), "int32")
):
    for i, k in T.grid(8, 6):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.reads(A[vi, vk])
            T.writes(D[vi])
            with T.init():
                D[vi] = 5
            D[vi] = D[vi] + A[vi, vk]


@T.prim_func(s_tir=True)
def row_sums_added_to_d(
    A: T.Buffer((8, 6), "int32"), C: T.Buffer((8,), "int32"), D: T.Buffer((8,), "int32")
):
    for i, k in T.grid(8, 6):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.reads(D[vi], A[vi, vk])
            T.writes(D[vi])
            with T.init():
                D[vi] = D[vi]
            D[vi] = D[vi] + A[vi, vk]


def row_sums_then_wide_bias(bias: Epilogue) -> PrimFunc:
    @T.prim_func(s_tir=True)
    def before(A: T.Buffer((8, 6), "int32"), C: T.Buffer((8,), "int8"), D: T.Buffer((8,), "int32")):
        temp = T.sblock_alloc_buffer((8,), "int32")
        for i, k in T.grid(8, 6):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
        for i in range(8):
            with T.sblock("add"):
                vi = T.axis.spatial(8, i)
                D[vi] = temp[vi] + T.Cast("int32", bias(C[vi]))

    return before


@T.prim_func(s_tir=True)
def row_sums_with_wide_bias(
    A: T.Buffer((8, 6), "int32"), C: T.Buffer((8,), "int8"), D: T.Buffer((8,), "int32")
):
    for i, k in T.grid(8, 6):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.reads(C[vi], A[vi, vk])
            T.writes(D[vi])
            with T.init():
                D[vi] = T.Cast("int32", C[vi])
            D[vi] = D[vi] + A[vi, vk]


def row_sums_then_two_biases(row: Epilogue) -> PrimFunc:
    @T.prim_func(s_tir=True)
    def before(
        A: T.Buffer((8, 6), "int32"),
        C: T.Buffer((8,), "int32"),
        E: T.Buffer((8,), "int32"),
        D: T.Buffer((8,), "int32"),
    ):
        temp = T.sblock_alloc_buffer((8,), "int32")
        mid = T.sblock_alloc_buffer((8,), "int32")
        for i, k in T.grid(8, 6):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
        for i in range(8):
            with T.sblock("add"):
                vi = T.axis.spatial(8, i)
                mid[vi] = temp[row(vi)] + C[vi]
        for i in range(8):
            with T.sblock("add_again"):
                vi = T.axis.spatial(8, i)
                D[vi] = E[vi] + mid[vi]

    return before


@T.prim_func(s_tir=True)
def row_sums_with_two_biases(
    A: T.Buffer((8, 6), "int32"),
    C: T.Buffer((8,), "int32"),
    E: T.Buffer((8,), "int32"),
    D: T.Buffer((8,), "int32"),
):
    for i, k in T.grid(8, 6):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.reads(E[vi], C[vi], A[vi, vk])
            T.writes(D[vi])
            with T.init():
                D[vi] = E[vi] + C[vi]
            D[vi] = D[vi] + A[vi, vk]


def row_sums_from(start: Epilogue) -> PrimFunc:
    @T.prim_func(s_tir=True)
    def before(
        A: T.Buffer((8, 6), "int32"),
        C: T.Buffer((8,), "int32"),
        E: T.Buffer((8,), "int32"),
        D: T.Buffer((8,), "int32"),
    ):
        temp = T.sblock_alloc_buffer((8,), "int32")
        for i, k in T.grid(8, 6):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = start(vk, E[vi])
                temp[vi] = temp[vi] + A[vi, vk]
        for i in range(8):
            with T.sblock("add"):
                vi = T.axis.spatial(8, i)
                D[vi] = temp[vi] + C[vi]

    return before


@T.prim_func(s_tir=True)
def row_sums_from_doubled_e(
    A: T.Buffer((8, 6), "int32"),
    C: T.Buffer((8,), "int32"),
    E: T.Buffer((8,), "int32"),
    D: T.Buffer((8,), "int32"),
):
    for i, k in T.grid(8, 6):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.reads(E[vi], C[vi], A[vi, vk])
            T.writes(D[vi])
            with T.init():
                D[vi] = E[vi] * 2 + C[vi]
            D[vi] = D[vi] + A[vi, vk]


# ---------------------------------------------------------------------------------------------
# Where it is added
# ---------------------------------------------------------------------------------------------


def transposed(columns: Epilogue) -> PrimFunc:
    @T.prim_func(s_tir=True)
    def before(
        A: T.Buffer((8, 6), "int32"),
        B: T.Buffer((7, 6), "int32"),
        C: T.Buffer((7, 8), "int32"),
        D: T.Buffer((7, 8), "int32"),
    ):
        temp = T.sblock_alloc_buffer((8, 7), "int32")
        for i, j, k in T.grid(8, 7, 6):
            with T.sblock("mm"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    temp[vi, vj] = 0
                temp[vi, vj] = temp[vi, vj] + A[vi, vk] * B[vj, vk]
        for j, i in T.grid(7, 8):
            with T.sblock("add"):
                vj, vi = T.axis.remap("SS", [j, i])
                D[vj, vi] = temp[vi, columns(vj)] + C[vj, vi]

    return before


@T.prim_func(s_tir=True)
def transposed_fused(
    A: T.Buffer((8, 6), "int32"),
    B: T.Buffer((7, 6), "int32"),
    C: T.Buffer((7, 8), "int32"),
    D: T.Buffer((7, 8), "int32"),
):
    for i, j, k in T.grid(8, 7, 6):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.reads(C[vj, vi], A[vi, vk], B[vj, vk])
            T.writes(D[vj, vi])
            with T.init():
                D[vj, vi] = C[vj, vi]
            D[vj, vi] = D[vj, vi] + A[vi, vk] * B[vj, vk]


def in_a_loop_over_rows(row: Epilogue) -> PrimFunc:
    @T.prim_func(s_tir=True)
    def before(
        A: T.Buffer((8, 6), "int32"),
        B: T.Buffer((7, 6), "int32"),
        C: T.Buffer((7,), "int32"),
        D: T.Buffer((8, 7), "int32"),
    ):
        temp = T.sblock_alloc_buffer((8, 7), "int32")
        for i in range(8):
            for j, k in T.grid(7, 6):
                with T.sblock("mm"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        temp[vi, vj] = 0
                    temp[vi, vj] = temp[vi, vj] + A[vi, vk] * B[vj, vk]
            for j in range(7):
                with T.sblock("add"):
                    vi = T.axis.spatial(8, row(i))
                    vj = T.axis.spatial(7, j)
                    D[vi, vj] = temp[vi, vj] + C[vj]

    return before


@T.prim_func(s_tir=True)
def in_a_loop_over_rows_fused(
    A: T.Buffer((8, 6), "int32"),
    B: T.Buffer((7, 6), "int32"),
    C: T.Buffer((7,), "int32"),
    D: T.Buffer((8, 7), "int32"),
):
    for i in range(8):
        for j, k in T.grid(7, 6):
            with T.sblock("mm"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(C[vj], A[vi, vk], B[vj, vk])
                T.writes(D[vi, vj])
                with T.init():
                    D[vi, vj] = C[vj]
                D[vi, vj] = D[vi, vj] + A[vi, vk] * B[vj, vk]


def of_any_size(columns: Epilogue) -> PrimFunc:
    @T.prim_func(s_tir=True)
    def before(a: T.handle, b: T.handle, c: T.handle, d: T.handle):
        n, m, k = T.int32(), T.int32(), T.int32()
        A = T.match_buffer(a, (n, k), "float32")
        B = T.match_buffer(b, (m, k), "float32")
        C = T.match_buffer(c, (m,), "float32")
        D = T.match_buffer(d, (n, m), "float32")
        temp = T.sblock_alloc_buffer((n, m), "float32")
        for i, j, r in T.grid(n, m, k):
            with T.sblock("mm"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, r])
                with T.init():
                    temp[vi, vj] = T.float32(0)
                temp[vi, vj] = temp[vi, vj] + A[vi, vk] * B[vj, vk]
        for i, j in T.grid(n, columns(m)):
            with T.sblock("add"):
                vi = T.axis.spatial(n, i)
                vj = T.axis.spatial(columns(m), j)
                D[vi, vj] = temp[vi, vj] + C[vj]

    return before


@T.prim_func(s_tir=True)
def of_any_size_fused(a: T.handle, b: T.handle, c: T.handle, d: T.handle):
    n, m, k = T.int32(), T.int32(), T.int32()
    A = T.match_buffer(a, (n, k), "float32")
    B = T.match_buffer(b, (m, k), "float32")
    C = T.match_buffer(c, (m,), "float32")
    D = T.match_buffer(d, (n, m), "float32")
    for i, j, r in T.grid(n, m, k):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, r])
            T.reads(C[vj], A[vi, vk], B[vj, vk])
            T.writes(D[vi, vj])
            with T.init():
                D[vi, vj] = C[vj]
            D[vi, vj] = D[vi, vj] + A[vi, vk] * B[vj, vk]


# ---------------------------------------------------------------------------------------------
# The pairs and their twins
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Golden:
    """A program, what it becomes, and its twin with the code of the refusal."""

    before: PrimFunc
    after: PrimFunc
    twin: PrimFunc
    code: str


def effectful(value: Any) -> Any:
    """A function of `value` that may have side effects."""
    return T.call_extern("int32", "abs", value)


GOLDEN: dict[str, Golden] = {
    "reference": Golden(
        product_then(lambda temp, c: temp + c),
        product_with_bias,
        product_then(lambda temp, c: temp + effectful(c)),
        "impure",
    ),
    "reference, the other way round": Golden(
        product_then(lambda temp, c: c + temp),
        product_with_bias,
        product_then(lambda temp, c: c + effectful(temp)),
        "impure",
    ),
    "difference": Golden(
        row_sums_then(lambda temp, C, D, vi: temp - C[vi]),
        row_sums_minus_c,
        row_sums_then(lambda temp, C, D, vi: temp - D[vi // 2]),
        "output-aliases-input",
    ),
    "negated": Golden(
        row_sums_then(lambda temp, C, D, vi: C[vi] - temp),
        c_minus_row_sums,
        row_sums_then(lambda temp, C, D, vi: D[vi ^ 1] - temp),
        "output-aliases-input",
    ),
    "constant": Golden(
        row_sums_then(lambda temp, C, D, vi: temp + 5),
        row_sums_plus_constant,
        row_sums_then(lambda temp, C, D, vi: temp + effectful(5)),
        "impure",
    ),
    "in place": Golden(
        row_sums_then(lambda temp, C, D, vi: temp + D[vi]),
        row_sums_added_to_d,
        row_sums_then(lambda temp, C, D, vi: temp + D[7 - vi]),
        "output-aliases-input",
    ),
    "bias of another type": Golden(
        row_sums_then_wide_bias(lambda c: c),
        row_sums_with_wide_bias,
        row_sums_then_wide_bias(effectful),
        "impure",
    ),
    "two biases": Golden(
        row_sums_then_two_biases(lambda vi: vi),
        row_sums_with_two_biases,
        row_sums_then_two_biases(lambda vi: vi // 2),
        "index-map",
    ),
    "init that is not 0": Golden(
        row_sums_from(lambda vk, e: e * 2),
        row_sums_from_doubled_e,
        row_sums_from(lambda vk, e: e * vk),
        "reduction-form",
    ),
    "transposed": Golden(
        transposed(lambda vj: vj), transposed_fused, transposed(lambda vj: vj // 2), "index-map"
    ),
    "shared loop": Golden(
        in_a_loop_over_rows(lambda i: i),
        in_a_loop_over_rows_fused,
        in_a_loop_over_rows(lambda i: 7 - i),
        "shared-loops",
    ),
    "symbolic": Golden(
        of_any_size(lambda m: m), of_any_size_fused, of_any_size(lambda m: m // 2), "domain"
    ),
}

EACH = pytest.mark.parametrize("golden", [pytest.param(g, id=name) for name, g in GOLDEN.items()])


@EACH
def test_becomes(golden: Golden) -> None:
    sch = s_tir.Schedule(golden.before, debug_mask="all")
    sch.fuse_reduction_epilogue("mm")
    assert_structural_equal_ignore_global_symbol(sch.mod["main"], golden.after)


@EACH
def test_twin_is_refused_and_stays(golden: Golden) -> None:
    sch = s_tir.Schedule(golden.twin, debug_mask="all")
    module = sch.mod
    with pytest.raises(s_tir.ScheduleError) as caught:
        sch.fuse_reduction_epilogue("mm")
    assert fuse_epilogue.refusal_code(caught.value) == golden.code
    assert sch.mod.same_as(module)
    assert_structural_equal_ignore_global_symbol(sch.mod["main"], golden.twin)
    assert not sch.trace.insts


def test_the_reference_in_print() -> None:
    """What a user reads, at the one place where it matters most."""
    sch = s_tir.Schedule(GOLDEN["reference"].before)
    report = sch.fuse_reduction_epilogue("mm")
    assert report.sentences == ("'mm' absorbed C[vi, vj] from 'add' into T.init; 'temp' is gone.",)
    lines = [line.strip() for line in sch.mod["main"].script().splitlines()]
    start = lines.index('with T.sblock("mm"):')
    assert lines[start - 1 :] == [
        "for i, j, k in T.grid(16, 16, 16):",
        'with T.sblock("mm"):',
        'vi, vj, vk = T.axis.remap("SSR", [i, j, k])',
        "T.reads(C[vi, vj], A[vi, vk], B[vj, vk])",
        "T.writes(D[vi, vj])",
        "with T.init():",
        "D[vi, vj] = C[vi, vj]",
        'D[vi, vj] = D[vi, vj] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])',
    ]
