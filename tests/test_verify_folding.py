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
    with pytest.raises(verify.CertificateError, match="TVM's simplifier"):
        verify.check(func, sch.mod["main"], report.certificate)


def test_a_negation_moves_into_no_comparison_of_floats() -> None:
    with without("folded-step"):
        sch = Schedule(comparisons_negated_later)
        report = sch.fuse_reduction_epilogue("mm", distribute=True)
    with pytest.raises(verify.CertificateError, match="distributed: TVM's simplifier"):
        verify.check(comparisons_negated_later, sch.mod["main"], report.certificate)


_INTEGERS = """
@T.prim_func(s_tir=True)
def main(
    A: T.Buffer((4, 8), "{a}"), C: T.Buffer((4,), "int8"), B: T.Buffer((4,), "float32"),
    D: T.Buffer((4,), "{d}")
):
    S = T.sblock_alloc_buffer((4,), "{s}")
    Y = T.sblock_alloc_buffer((4,), "{y}")
    for i, k in T.grid(4, 8):
        with T.sblock("largest"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = T.min_value("{s}")
            S[vi] = T.max(S[vi], {term})
    for i in range(4):
        with T.sblock("first"):
            vi = T.axis.spatial(4, i)
            Y[vi] = {first}
    for i in range(4):
        with T.sblock("second"):
            vi = T.axis.spatial(4, i)
            D[vi] = {second}
"""


def _integers(
    first: str, second: str, *, s: str, y: str = "int32", term: str = "A[vi, vk]", **types: str
) -> PrimFunc:
    types = {"a": s, "d": "int32", **types}
    text = _INTEGERS.format(first=first, second=second, s=s, y=y, term=term, **types)
    return tvm.script.from_source(text, {"T": T})


_BELOW = "T.Cast('int32', C[vi] + T.int8(1))"
#: What TVM bounds as if it did not wrap around, in one store though not in two.
_WRAPPING = {
    "a sign is taken for a number": (
        _integers("T.Cast('int8', S[vi])", "T.max(T.Cast('int32', Y[vi]), 0)", s="uint8", y="int8"),
        "tails",
    ),
    "the same in the first store": (
        _integers("T.Cast('int32', T.Cast('int8', S[vi]))", "T.max(Y[vi], 0)", s="uint8"),
        "tails",
    ),
    "a sum of 8 bits": (
        _integers(
            "S[vi] + T.int8(1)", "T.Select(T.Cast('int32', Y[vi]) > -128, 1, 2)", s="int8", y="int8"
        ),
        "tails",
    ),
    "a sum of 8 bits of what is bounded": (
        _integers(
            "T.floormod(S[vi], 8) + 3",
            "T.max(T.Cast('int32', C[vi] + T.Cast('int8', Y[vi])), -125)",
            s="int32",
        ),
        "tails",
    ),
    "a float times what is zero": (
        _integers("S[vi] - S[vi]", "T.Cast('float32', Y[vi]) * B[vi]", s="int32", d="float32"),
        "tails",
    ),
    "in the start": (_integers(f"T.max(S[vi], {_BELOW})", "T.max(Y[vi], -127)", s="int32"), "init"),
    "in the terms": (
        _integers(
            "S[vi]", "T.min(Y[vi], 126)", s="int32", a="int8",
            term="T.Cast('int32', A[vi, vk] - T.int8(1))",
        ),
        "distributed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _WRAPPING)
def test_integers_that_wrap_around_are_not_folded(name: str) -> None:
    func, claim = _WRAPPING[name]
    with without("merged-folded", "folded-step"):
        sch = Schedule(func)
        report = sch.fuse_reduction_epilogue("largest", distribute=True)
    with pytest.raises(verify.CertificateError, match=f"{claim}.*TVM's simplifier"):
        verify.check(func, sch.mod["main"], report.certificate)


@pytest.mark.parametrize("name", _WRAPPING)
def test_they_stay_apart_where_the_primitive_sees_it(name: str) -> None:
    func, _ = _WRAPPING[name]
    sch = Schedule(func)
    report = sch.fuse_reduction_epilogue("largest", distribute=True)
    verify.check(func, sch.mod["main"], report.certificate)


def test_clipped_and_narrowed_twice_is_proved() -> None:
    first = "T.Cast('int8', T.min(T.max(S[vi] + 3, -128), 127))"
    func = _integers(first, "T.max(T.Cast('int32', Y[vi]), 0)", s="int32", y="int8")
    with without("merged-folded"):
        sch = Schedule(func)
        report = sch.fuse_reduction_epilogue("largest")
    assert len(report.certificate.tails) == 1
    verify.check(func, sch.mod["main"], report.certificate)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("T.bitwise_and(S[vi], 6) // 5", "T.Cast('int8', T.max(Y[vi], -128))"),
        ("T.floormod(S[vi], 9)", "T.Cast('int8', T.min(Y[vi] + 1, 127))"),
    ],
)
def test_a_clip_without_effect_is_dropped_where_nothing_wraps(first: str, second: str) -> None:
    func = _integers(first, second, s="int32", d="int8")
    sch = Schedule(func)
    report = sch.fuse_reduction_epilogue("largest")
    assert len(report.certificate.tails) == 1
    verify.check(func, sch.mod["main"], report.certificate)


def test_a_start_is_folded_as_the_whole_epilogue_was() -> None:
    first = "T.max(S[vi], T.Select(not B[vi] >= T.float32(0), 4, 5))"
    func = _integers(first, "Y[vi]", s="int32")
    sch = Schedule(func)
    report = sch.fuse_reduction_epilogue("largest")
    assert not report.certificate.tails
    verify.check(func, sch.mod["main"], report.certificate)


@pytest.mark.parametrize(("factor", "merges"), [(1073741828, False), (107374182, True)])
def test_literals_that_would_leave_their_type_stay_apart(factor: int, merges: bool) -> None:
    func = _integers(f"S[vi] * {factor}", "Y[vi] * 4", s="int32")
    sch = Schedule(func)
    report = sch.fuse_reduction_epilogue("largest")
    assert len(report.certificate.tails) == (1 if merges else 2)
    tvm.compile(sch.mod, target="llvm")
    verify.check(func, sch.mod["main"], report.certificate)


def test_literals_that_no_signed_integer_holds() -> None:
    first = "T.bitwise_and(S[vi], T.max_value('uint64'))"
    func = _integers(first, "Y[vi] + T.uint64(1)", s="uint64", y="uint64", d="uint64")
    sch = Schedule(func)
    report = sch.fuse_reduction_epilogue("largest")
    assert len(report.certificate.epilogues) == 2
    verify.check(func, sch.mod["main"], report.certificate)
