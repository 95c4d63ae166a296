"""Divisions under conditions, which two consumers or an unrolled loop repeat.

In one loop TVM computes an operation that is repeated once, in front of both conditions, unless it
loads or calls something. It simplifies first: how an operation is written does not matter. The
divisor of such an operation is therefore passed through calls in the fused program.
"""

from __future__ import annotations

import numpy as np
from tvm.script import tirx as T

from . import lazy
from .builders import K, M, N
from .case import Case


@lazy.prim_func(s_tir=True)
def quotients_of_two_consumers(
    A: T.Buffer((M, K, N), "int32"),
    n: T.int32,
    P: T.Buffer((M, N), "int32"),
    D: T.Buffer((M, N), "int32"),
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    for i, j, k in T.grid(M, N, K):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + A[vi, vk, vj]
    for i, j in T.grid(M, N):
        with T.sblock("largest"):
            vi, vj = T.axis.remap("SS", [i, j])
            P[vi, vj] = T.if_then_else(vj != n, T.max(temp[vi, vj], T.truncdiv(1000, vj - n)), 0)
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.if_then_else(
                vj != n, T.min(temp[vi, vj], T.truncdiv(1000, vj + 1 - n - 1)), 1
            )


@lazy.prim_func(s_tir=True)
def quotients_of_data(
    A: T.Buffer((M, K, N), "int32"),
    C: T.Buffer((N,), "int32"),
    P: T.Buffer((M, N), "int32"),
    D: T.Buffer((M, N), "int32"),
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    for i, j, k in T.grid(M, N, K):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + A[vi, vk, vj]
    for i, j in T.grid(M, N):
        with T.sblock("largest"):
            vi, vj = T.axis.remap("SS", [i, j])
            P[vi, vj] = T.if_then_else(C[vj] != 0, T.max(temp[vi, vj], T.truncdiv(1000, C[vj])), 0)
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.if_then_else(C[vj] != 0, T.min(temp[vi, vj], T.truncdiv(1000, C[vj])), 1)


@lazy.prim_func(s_tir=True)
def quotient_in_unrolled_rows(
    A: T.Buffer((M, K, N), "int32"), n: T.int32, D: T.Buffer((M, N), "int32")
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    for i in T.unroll(M):
        for j, k in T.grid(N, K):
            with T.sblock("mm"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    temp[vi, vj] = 0
                temp[vi, vj] = temp[vi, vj] + A[vi, vk, vj]
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.if_then_else(n != 0, temp[vi, vj] + T.truncdiv(1000, n), 0)


# No condition guards the division, but an assertion.
@lazy.prim_func(s_tir=True)
def quotient_after_an_assertion(
    A: T.Buffer((M, K, N), "int32"), n: T.int32, D: T.Buffer((M, N), "int32")
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    for i in T.unroll(M):
        for j, k in T.grid(N, K):
            with T.sblock("mm"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    temp[vi, vj] = 0
                temp[vi, vj] = temp[vi, vj] + A[vi, vk, vj]
    assert n != 0, "a divisor"
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + T.truncdiv(1000, n)


@lazy.prim_func(s_tir=True)
def quotient_in_rows(A: T.Buffer((M, K, N), "int32"), n: T.int32, D: T.Buffer((M, N), "int32")):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    for i, j, k in T.grid(M, N, K):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] = temp[vi, vj] + A[vi, vk, vj]
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.if_then_else(n != 0, temp[vi, vj] + T.truncdiv(1000, n), 0)


def quotients(divisor: np.ndarray) -> np.ndarray:
    """``1000 / divisor``, rounded to zero; anything for a divisor of 0."""
    return np.trunc(1000 / np.where(divisor == 0, 1, divisor)).astype("int32")


def with_quotient(A: np.ndarray, n: int) -> dict[str, np.ndarray]:
    """Sums and a quotient; zeros for a divisor of 0."""
    sums = A.sum(1, dtype="int32")
    return {"D": sums + np.trunc(1000 / n).astype("int32") if n else sums * 0}


def of_two_consumers(A: np.ndarray, divisor: np.ndarray) -> dict[str, np.ndarray]:
    """The larger and the smaller of a sum and a quotient, where the divisor is not 0."""
    sums, found = A.sum(1, dtype="int32"), quotients(divisor)
    return {
        "P": np.where(divisor != 0, np.maximum(sums, found), 0),
        "D": np.where(divisor != 0, np.minimum(sums, found), 1),
    }


PINNED = 'T.reinterpret("int32", T.reinterpret("uint32", {} ^ 0))'

ACCEPT = [
    Case(
        name="quotients_of_data",
        func=quotients_of_data,
        epilogues=("largest", "add"),
        reference=lambda A, C: of_two_consumers(A, C),
        outputs=("P", "D"),
        absorbed=("", ""),
        tails={"largest": "T.Div(1000, C[vj])", "add": "T.Div(1000, C[vj])"},
        twin="quotient_after_an_assertion",
    ),
    Case(
        name="quotients_of_two_consumers",
        func=quotients_of_two_consumers,
        epilogues=("largest", "add"),
        reference=lambda A, n: of_two_consumers(A, np.arange(N) - n),
        outputs=("P", "D"),
        absorbed=("", ""),
        tails={
            "largest": f"T.Div(1000, {PINNED.format('vj - n')})",
            "add": f"T.Div(1000, {PINNED.format('vj + 1 - n - 1')})",
        },
        twin="quotient_after_an_assertion",
    ),
    Case(
        name="quotient_in_rows",
        func=quotient_in_rows,
        reference=with_quotient,
        absorbed=("",),
        tails={"add": f"T.Div(1000, {PINNED.format('n')})"},
        twin="quotient_after_an_assertion",
    ),
    Case(
        name="quotient_in_unrolled_rows",
        func=quotient_in_unrolled_rows,
        reference=with_quotient,
        absorbed=("",),
        tails={"add": f"T.Div(1000, {PINNED.format('n')})"},
        twin="quotient_after_an_assertion",
    ),
]

REFUSE = [
    Case(
        name="quotient_after_an_assertion",
        func=quotient_after_an_assertion,
        code="structure",
    )
]
