"""Certificates of fusions that evaluate something where the program did not: all are refused.

The fusions are made with the rewriter's own decision switched off; with it they are right, and
their certificates are accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from certified import Certified
from fuse_epilogue.verify import CertificateError, check
from mutation import without

M, N, K = 2, 8, 3
if_then_else, truncdiv, Select = T.if_then_else, T.truncdiv, T.Select
Finish = Callable[..., Any]


def program(
    finish: Finish,
    dtype: str = "int32",
    combine: Callable[[Any, Any], Any] = lambda x, t: x + t,
    initial: float = 0,
) -> PrimFunc:
    """D = finish(temp, C, I, F, S, i, j), where temp is reduced from A and B."""

    @T.prim_func(s_tir=True)
    def func(
        A: T.Buffer((M, K), dtype),
        B: T.Buffer((K, N), dtype),
        C: T.Buffer((N,), "int32"),
        I: T.Buffer((N,), "int32"),
        F: T.Buffer((N,), "float32"),
        S: T.Buffer((3,), dtype),
        D: T.Buffer((M, N), dtype),
    ):
        temp = T.sblock_alloc_buffer((M, N), dtype)
        for i, j, k in T.grid(M, N, K):
            with T.sblock("red"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    temp[vi, vj] = T.cast(initial, dtype)
                temp[vi, vj] = combine(temp[vi, vj], A[vi, vk] * B[vk, vj])
        for i, j in T.grid(M, N):
            with T.sblock("epi"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = finish(temp[vi, vj], C, I, F, S, vi, vj)

    return func


def fused(before: PrimFunc, *off: str, **options: Any) -> Certified:
    """The fusion, without some of the rewriter's decisions."""
    sch = tvm.s_tir.Schedule(before)
    start = sch.mod["main"]
    with without(*off):
        report = sch.fuse_reduction_epilogue("red", **options)
    return Certified(start, sch.mod["main"], report.certificate)


def checked(given: Certified) -> None:
    check(given.before, given.after, given.certificate)


def refused(given: Certified, claim: str, reason: str) -> None:
    with pytest.raises(CertificateError, match=f"^{claim}: .*{reason}$"):
        checked(given)


def literal(value: float) -> Any:
    """A literal that is converted when the program runs, unless TVM folds it."""
    return T.Cast("int32", T.float32(value))


# What is guarded, and why it may not be evaluated for all elements.
UNDEFINED: dict[str, tuple[Finish, str]] = {
    "division": (
        lambda x, C, I, F, S, i, j: if_then_else(C[j] != 0, x + truncdiv(1000, C[j]), 0),
        "the divisor may be 0",
    ),
    "remainder": (
        lambda x, C, I, F, S, i, j: if_then_else(C[j] != 0, x + T.truncmod(i, C[j]), 0),
        "the divisor may be 0",
    ),
    "quotient": (
        lambda x, C, I, F, S, i, j: if_then_else(C[j] != 3, x + truncdiv(C[j], -1), 0),
        "the quotient may overflow",
    ),
    "gather": (
        lambda x, C, I, F, S, i, j: if_then_else(T.And(I[j] >= 0, I[j] < 3), x + S[I[j]], 0),
        "the index may be out of bounds",
    ),
    "short": (
        lambda x, C, I, F, S, i, j: if_then_else(j < 3, x + S[j], 0),
        "the index may be out of bounds",
    ),
    "select": (
        lambda x, C, I, F, S, i, j: Select(j < 3, x + S[j], 0),
        "the index may be out of bounds",
    ),
    "nested": (
        lambda x, C, I, F, S, i, j: if_then_else(j < 3, if_then_else(C[j] > 0, x + S[j], 1), 0),
        "the index may be out of bounds",
    ),
    "second arm": (
        lambda x, C, I, F, S, i, j: if_then_else(C[j] == 0, 7, x + truncdiv(1000, C[j])),
        "the divisor may be 0",
    ),
    "and": (
        lambda x, C, I, F, S, i, j: T.cast(T.And(C[j] != 0, x + truncdiv(9, C[j]) > 3), "int32"),
        "the divisor may be 0",
    ),
    "or": (
        lambda x, C, I, F, S, i, j: T.cast(T.Or(C[j] == 0, x + truncdiv(9, C[j]) > 3), "int32"),
        "the divisor may be 0",
    ),
    "minus": (
        lambda x, C, I, F, S, i, j: if_then_else(j < 3, S[j] - x, 0),
        "the index may be out of bounds",
    ),
    "conversion": (
        lambda x, C, I, F, S, i, j: if_then_else(
            T.And(F[j] > -9.0, F[j] < 9.0), x + T.cast(F[j], "int32"), 0
        ),
        "the number may not fit",
    ),
    "shift": (
        lambda x, C, I, F, S, i, j: if_then_else(C[j] > 0, x + T.shift_left(1, C[j]), 0),
        "the type may have no more bits than that",
    ),
    "call": (
        lambda x, C, I, F, S, i, j: if_then_else(
            C[j] > 0, x + T.q_multiply_shift(C[j], 3, 31, 1), 0
        ),
        "the function may not be defined there",
    ),
    "product": (
        lambda x, C, I, F, S, i, j: if_then_else(C[j] < 100, x + C[j] * C[j], 0),
        "the result may overflow",
    ),
    "remainder by a negative number": (
        lambda x, C, I, F, S, i, j: if_then_else(C[j] > 0, x + S[T.truncmod(I[j], -3) + 1], 0),
        "the index may be out of bounds",
    ),
    "floored remainder by a negative number": (
        lambda x, C, I, F, S, i, j: if_then_else(C[j] > 0, x + S[T.floormod(I[j], -4) + 2], 0),
        "the index may be out of bounds",
    ),
    "quotient by a negative number": (
        lambda x, C, I, F, S, i, j: if_then_else(
            C[j] > 0, x + S[truncdiv(T.bitwise_and(I[j], 15), -4) + 2], 0
        ),
        "the index may be out of bounds",
    ),
    "floored quotient by a negative number": (
        lambda x, C, I, F, S, i, j: if_then_else(
            C[j] > 0, x + S[T.floordiv(T.bitwise_and(I[j], 15), -7) + 2], 0
        ),
        "the index may be out of bounds",
    ),
    "index that overflows and is divided": (
        lambda x, C, I, F, S, i, j: if_then_else(
            j < 3, x + S[T.floordiv(j * 715827883, 2000000000)], 0
        ),
        "the index may be out of bounds",
    ),
    "index that overflows and is compared": (
        lambda x, C, I, F, S, i, j: if_then_else(j < 3, x + S[T.min(j * 715827883, 2)], 0),
        "the index may be out of bounds",
    ),
    "divisor that overflows": (
        lambda x, C, I, F, S, i, j: if_then_else(j < 3, x + truncdiv(7, (j + 1) * 1073741824), 0),
        "the divisor may be 0",
    ),
    "converted literal as an index": (
        lambda x, C, I, F, S, i, j: if_then_else(C[j] > 0, x + S[literal(3.5)], 0),
        "the index may be out of bounds",
    ),
    "converted literal that does not fit": (
        lambda x, C, I, F, S, i, j: if_then_else(C[j] > 0, x + literal(1e20), 0),
        "the number may not fit",
    ),
}


@pytest.mark.parametrize("what", UNDEFINED)
def test_what_is_guarded_is_not_absorbed(what: str) -> None:
    finish, reason = UNDEFINED[what]
    before = program(finish)
    refused(fused(before, "undefined-operand"), "init", reason)
    checked(fused(before))


def test_floats_too() -> None:
    before = program(UNDEFINED["short"][0], "float32")
    refused(fused(before, "undefined-operand"), "init", "out of bounds")
    checked(fused(before))


@pytest.mark.parametrize("name", ["max", "min"])
def test_other_monoids(name: str) -> None:
    combine = getattr(tirx, name)
    before = program(
        lambda x, C, I, F, S, i, j: if_then_else(j < 3, combine(x, S[j]), 0),
        combine=combine,
        initial=-(1 << 31) if name == "max" else (1 << 31) - 1,
    )
    refused(fused(before, "undefined-operand"), "init", "out of bounds")
    checked(fused(before))


def test_what_is_distributed() -> None:
    """A factor of every term is evaluated in every step."""
    before = program(lambda x, C, I, F, S, i, j: if_then_else(j < 3, x * S[j], 0), "float32")
    refused(fused(before, "undefined-operand", distribute=True), "distributed", "out of bounds")
    checked(fused(before, distribute=True))


DEFINED: dict[str, Finish] = {
    "load": lambda x, C, I, F, S, i, j: if_then_else(C[j] != 0, x + C[j], 0),
    "unguarded division": lambda x, C, I, F, S, i, j: x + truncdiv(1000, C[j]),
    "by a number": lambda x, C, I, F, S, i, j: if_then_else(C[j] != 0, x + truncdiv(C[j], 7), 0),
    "by more than an index": lambda x, C, I, F, S, i, j: if_then_else(
        C[j] != 0, x + truncdiv(j, j + 1), 0
    ),
    "lowest number": lambda x, C, I, F, S, i, j: if_then_else(
        C[j] != 0, x + truncdiv(j + T.int32(-(1 << 31)), j + 1), 0
    ),
    "clipped index": lambda x, C, I, F, S, i, j: if_then_else(
        C[j] != 0, x + S[T.max(0, T.min(2, I[j]))], 0
    ),
    "masked index": lambda x, C, I, F, S, i, j: if_then_else(
        C[j] != 0, x + S[T.bitwise_and(I[j], 1)], 0
    ),
    "masked shift": lambda x, C, I, F, S, i, j: if_then_else(
        C[j] > 0, x + T.shift_left(1, T.bitwise_and(C[j], 15)), 0
    ),
    "remainder by a negative number": lambda x, C, I, F, S, i, j: if_then_else(
        C[j] > 0, x + S[T.truncmod(I[j], -2) + 1], 0
    ),
    "floored remainder by a negative number": lambda x, C, I, F, S, i, j: if_then_else(
        C[j] > 0, x + S[T.floormod(I[j], -3) + 2], 0
    ),
    "quotient by a negative number": lambda x, C, I, F, S, i, j: if_then_else(
        C[j] > 0, x + S[truncdiv(T.bitwise_and(I[j], 7), -4) + 1], 0
    ),
    "floored quotient by a negative number": lambda x, C, I, F, S, i, j: if_then_else(
        C[j] > 0, x + S[T.floordiv(T.bitwise_and(I[j], 7), -7) + 2], 0
    ),
    "converted literal as an index": lambda x, C, I, F, S, i, j: if_then_else(
        C[j] > 0, x + S[literal(2.5)], 0
    ),
    "index that is divided": lambda x, C, I, F, S, i, j: if_then_else(
        C[j] != 0, x + S[T.floordiv(j * 268435456, 805306368)], 0
    ),
    "converted literal as a divisor": lambda x, C, I, F, S, i, j: if_then_else(
        C[j] > 0, x + truncdiv(C[j], literal(-2.5)), 0
    ),
    "of the finished sum": lambda x, C, I, F, S, i, j: if_then_else(x != 0, truncdiv(9, x), 0),
    "in both arms": lambda x, C, I, F, S, i, j: if_then_else(
        F[j] > T.float32(0), x + truncdiv(1000, C[j]), truncdiv(1000, C[j])
    ),
    "twice": lambda x, C, I, F, S, i, j: if_then_else(
        truncdiv(1000, C[j]) > 3, x + truncdiv(1000, C[j]), 0
    ),
}


@pytest.mark.parametrize("what", DEFINED)
def test_what_is_defined_may_be_absorbed(what: str) -> None:
    checked(fused(program(DEFINED[what]), "undefined-operand"))


# ---- Functions after that are changed by hand ----------------------------------------------------


def in_tail(change: Callable[[Any], Any]) -> Callable[[Certified], Certified]:
    """The tail's value changed, in the function and in the certificate."""

    def apply(given: Certified) -> Certified:
        def block(node: Any) -> Any:
            if node.name_hint != "epi":
                return node
            store = node.body
            body = tirx.BufferStore(store.buffer, change(store.value), list(store.indices))
            return with_body(node, body)

        body = tvm_ffi.structural_map(given.after.body, (tvm.s_tir.SBlock, block))
        claimed = change(given.certificate.tails[0].value)
        return given.storing(lambda func: func.with_body(body)).tail(0, value=claimed)

    return apply


def with_body(block: Any, body: Any) -> Any:
    return tvm.s_tir.SBlock(
        block.iter_vars, block.reads, block.writes, block.name_hint, body, block.init,
        block.alloc_buffers, block.match_buffers, block.annotations,
    )  # fmt: skip


def call_to_select(node: Any) -> Any:
    if str(node.op.name) != "prim.if_then_else":
        return node
    return tvm.ir.prim.Select(*node.args)


def lazy(value: Any) -> Any:
    return tvm_ffi.structural_map(value, (tvm.ir.Call, call_to_select))


TAILS: dict[str, tuple[Finish, Callable[[Any], Any], str]] = {
    # Some targets evaluate both values of a select.
    "select": (
        lambda x, C, I, F, S, i, j: if_then_else(x != 0, truncdiv(9, x), 0),
        lazy,
        "the divisor may be 0",
    ),
    # What is added is nothing, and divides all the same.
    "nothing added": (
        lambda x, C, I, F, S, i, j: T.max(x, 0),
        lambda value: value + (truncdiv(9, value) - truncdiv(9, value)),
        "the divisor may be 0",
    ),
}


@T.prim_func(s_tir=True)
def any_quotient(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "bool")
):
    temp = T.sblock_alloc_buffer((M,), "bool")
    for i, k in T.grid(M, K):
        with T.sblock("red"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = T.bool(False)
            temp[vi] = temp[vi] or T.truncdiv(6, A[vi, vk]) > 2
    for i in range(M):
        with T.sblock("epi"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] and C[vi] != 0


def test_terms_that_the_accumulator_guards() -> None:
    """A term of a disjunction is evaluated until one is true: with C in each, longer."""
    checked(fused(any_quotient))
    checked(fused(any_quotient, distribute=True))
    unguarded = fused(any_quotient, "operand-guards-term", distribute=True)
    refused(unguarded, "distributed", "the divisor may be 0")


def test_literals_that_tvm_does_not_fold() -> None:
    """Its analyzer fails on them; then nothing is known of the expression."""

    def finish(x: Any, C: Any, I: Any, F: Any, S: Any, i: Any, j: Any) -> Any:
        divisor = T.min(C[j], j - j)
        return if_then_else(C[j] > 0, x + S[T.max(T.min(T.truncmod(C[j], divisor), 2), 0)], 0)

    checked(fused(program(finish)))


@pytest.mark.parametrize("what", TAILS)
def test_tails_that_evaluate_more(what: str) -> None:
    finish, change, reason = TAILS[what]
    given = fused(program(finish))
    checked(given)
    refused(in_tail(change)(given), r"tails\[0\].value", reason)


@T.prim_func(s_tir=True)
def any_or_in_the_first_rows(x: T.handle, S: T.Buffer((3,), "int32"), d: T.handle) -> None:
    n, m = T.int32(), T.int32()
    X = T.match_buffer(x, (n, m), "bool")
    D = T.match_buffer(d, (n,), "bool")
    found = T.sblock_alloc_buffer((n,), "bool")
    for i, k in T.grid(n, m):
        with T.sblock("any"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                found[vi] = T.bool(False)
            found[vi] = found[vi] or X[vi, vk]
    for i in range(n):
        with T.sblock("epi"):
            vi = T.axis.spatial(n, i)
            D[vi] = found[vi] or T.if_then_else(vi < 3, S[vi] > 1, T.bool(True))


def test_an_axis_of_unknown_length_begins_somewhere() -> None:
    before = any_or_in_the_first_rows
    sch = tvm.s_tir.Schedule(before)
    report = sch.fuse_reduction_epilogue("any")
    assert not report.certificate.tails
    check(before, sch.mod["main"], report.certificate)
