"""What a report says about an epilogue that is not absorbed, in full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tvm.s_tir import Schedule
from tvm.script import tirx as T

import fuse_epilogue
from programs.builders import K, M, add_rows, matmul_then, sum_rows

pytestmark = pytest.mark.cpp

FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "a call": (lambda x, c: T.popcount(x) + c, "T.popcount(x) does not distribute over a sum"),
    "a call of three": (
        lambda x, c: T.if_then_else(c > 0, x, 0) + c,
        "T.if_then_else(C[vi, vj] > 0, x, 0) does not distribute over a sum",
    ),
    "all that is left": (lambda x, c: T.popcount(x + c), "it does not distribute over a sum"),
    "several uses": (lambda x, c: T.max(x, x * c), "it uses the finished value in several ways"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_reason_names_what_does_not_go_in(name: str) -> None:
    epilogue, reason = FUNCTIONS[name]
    sch = Schedule(matmul_then(lambda x, C, E, S, i, j: epilogue(x, C[i, j])).func)
    (step,) = sch.fuse_reduction_epilogue("mm").steps
    assert step.reason == reason


def test_two_signs_are_none() -> None:
    """The terms of c - (e - x) are those of x."""
    sch = Schedule(matmul_then(lambda x, C, E, S, i, j: C[i, j] - (E[j] - x)).func)
    (step,) = sch.fuse_reduction_epilogue("mm").steps
    assert (step.absorbed, step.distributed) == ("C[vi, vj] - E[vj]", "")


@T.prim_func(s_tir=True)
def relu_then_scaled_bias(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    mid = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("relu"):
            vi = T.axis.spatial(M, i)
            mid[vi] = T.max(temp[vi], 0)
    for i in range(M):
        with T.sblock("last"):
            vi = T.axis.spatial(M, i)
            D[vi] = T.max(mid[vi] * 3, C[vi])


@pytest.mark.parametrize("block", ["mm", "relu", "last"])
def test_any_block_of_the_chain_may_be_named(block: str) -> None:
    """With the steps outermost, "relu" already stands where a tail would: the rest is left."""
    sch = Schedule(relu_then_scaled_bias)
    i, k = sch.get_loops(sch.get_sblock("mm"))
    sch.reorder(k, i)
    report = sch.fuse_reduction_epilogue(block)
    assert [step.epilogue for step in report.steps] == ["relu", "last"]
    assert report.steps[0].merged_into == "last"
    # Now nothing is left to do, and the reason is about the block that is named.
    if block != "relu":
        stopped = fuse_epilogue.analyze(sch, "mm").stopped
        assert stopped is not None
        assert (stopped.code, stopped.block) == ("already-fused", "last")


@T.prim_func(s_tir=True)
def bias_read_twice_in_full(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
    F: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    mid = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    add_rows(temp, C, mid)
    for i in range(M):
        with T.sblock("relu"):
            vi = T.axis.spatial(M, i)
            D[vi] = T.max(mid[vi], 0)
    for i in range(M):
        with T.sblock("negated"):
            vi = T.axis.spatial(M, i)
            F[vi] = T.min(mid[vi], 0)


def test_readers_of_what_stays_in_full_are_told() -> None:
    """With the steps outermost and no loop around them, tails work on whole buffers."""
    sch = Schedule(bias_read_twice_in_full)
    i, k = sch.get_loops(sch.get_sblock("mm"))
    sch.reorder(k, i)
    report = sch.fuse_reduction_epilogue("mm")
    assert [step.epilogue for step in report.steps] == ["add"]
    assert report.stopped is not None
    assert (report.stopped.code, report.stopped.block) == ("already-fused", "relu")


@T.prim_func(s_tir=True)
def relu_summed_up(A: T.Buffer((M, K), "int32"), S: T.Buffer((1,), "int32")):
    temp = T.sblock_alloc_buffer((M,), "int32")
    mid = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("relu"):
            vi = T.axis.spatial(M, i)
            mid[vi] = T.max(temp[vi], 0)
    for i in range(M):
        with T.sblock("total"):
            vi = T.axis.reduce(M, i)
            with T.init():
                S[0] = 0
            S[0] = S[0] + mid[vi]


def test_what_a_tail_stores_and_others_read_is_kept() -> None:
    report = Schedule(relu_summed_up).fuse_reduction_epilogue("mm")
    assert report.kept == ("mid",)
    assert report.stopped is not None
    assert "'total' reads what a tail makes of the result of 'mm'" in report.stopped.message


@T.prim_func(s_tir=True)
def rows_read_flat(a: T.handle, d: T.handle):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n, m, K), "int32")
    D = T.match_buffer(d, (n * m,), "int32")
    temp = T.sblock_alloc_buffer((n, m), "int32")
    for i, j, k in T.grid(n, m, K):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + A[vi, vj, vk]
    for i in T.serial(n * m):
        with T.sblock("add"):
            vi = T.axis.spatial(n * m, i)
            D[vi] = T.max(temp[vi // m, vi % m], 3)


def test_what_is_only_not_proved_is_not_called_wrong() -> None:
    stopped = fuse_epilogue.analyze(Schedule(rows_read_flat), "mm").stopped
    assert stopped is not None
    assert stopped.code == "domain"
    assert stopped.message.startswith("it is not proved that ")
