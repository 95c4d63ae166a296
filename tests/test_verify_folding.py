"""`check` refuses what TVM's simplifier would compute otherwise in one expression than in two."""

from __future__ import annotations

import pytest
import tvm
from tvm.s_tir import Schedule
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from fuse_epilogue import verify
from mutation import without
from programs.mutants_decisions import comparisons_negated_later

_PROGRAM = """
@T.prim_func(s_tir=True)
def main(
    A: T.Buffer((8, 5), "float32"), B: T.Buffer((8,), "float32"), D: T.Buffer((8,), "{type}")
):
    S = T.sblock_alloc_buffer((8,), "float32")
    U = T.sblock_alloc_buffer((8,), "{type}")
    for i, k in T.grid(8, 5):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = T.float32(0)
            S[vi] = S[vi] + A[vi, vk]
    for i in range(8):
        with T.sblock("first"):
            vi = T.axis.spatial(8, i)
            U[vi] = {first}
    for i in range(8):
        with T.sblock("second"):
            vi = T.axis.spatial(8, i)
            D[vi] = {second}
"""


def _program(first: str, second: str, type: str = "float32") -> PrimFunc:
    text = _PROGRAM.format(first=first, second=second, type=type)
    return tvm.script.from_source(text, {"T": T})


@pytest.mark.parametrize(
    ("func", "merges"),
    [
        (_program("S[vi] + B[vi]", "U[vi] - B[vi]"), False),
        (_program("S[vi] - S[vi]", "U[vi] * B[vi]"), False),
        (_program("S[vi] < B[vi]", "not U[vi]", "bool"), False),
        (_program("S[vi] < B[vi]", "U[vi] or B[vi] <= S[vi]", "bool"), False),
        (_program("S[vi] + B[vi]", "U[vi] * B[vi]"), True),
        (_program("S[vi] < B[vi]", "U[vi] and A[vi, 0] < B[vi]", "bool"), True),
    ],
)
def test_two_stores_become_one_only_where_nothing_is_folded(func: PrimFunc, merges: bool) -> None:
    sch = Schedule(func)
    report = sch.fuse_reduction_epilogue("sum", numerics="exact")
    assert len(report.certificate.tails) == (1 if merges else 2)
    verify.check(func, sch.mod["main"], report.certificate)
    if merges:
        return
    with without("merged-folded"):
        sch = Schedule(func)
        report = sch.fuse_reduction_epilogue("sum", numerics="exact")
    with pytest.raises(verify.CertificateError, match="takes floats for numbers"):
        verify.check(func, sch.mod["main"], report.certificate)


def test_a_negation_moves_into_no_comparison_of_floats() -> None:
    with without("folded-logic"):
        sch = Schedule(comparisons_negated_later)
        report = sch.fuse_reduction_epilogue("mm", distribute=True)
    with pytest.raises(verify.CertificateError, match="distributed: TVM's simplifier"):
        verify.check(comparisons_negated_later, sch.mod["main"], report.certificate)
