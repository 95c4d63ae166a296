"""Functions that reduce the rows of a matrix, for tests of equivalence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.script import tirx as T
from tvm.tirx import PrimFunc

M, K = 5, 4
Build = Callable[..., PrimFunc]


def rows(
    term: Any,
    *,
    start: Any = lambda C, i, zero: zero,
    finish: Any = lambda x, C, i: x,
    combine: Any = lambda x, t: x + t,
    acc: str = "float32",
    out: str | None = None,
) -> PrimFunc:
    """A reduction of ``term(A[i, k], C[i])`` from `start`, and `finish` of every element."""
    out = out or acc

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((M, K), acc), C: T.Buffer((M,), acc), D: T.Buffer((M,), out)):
        temp = T.sblock_alloc_buffer((M,), acc)
        for i in range(M):
            for k in range(K):
                with T.sblock("sum"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        temp[vi] = start(C, vi, T.cast(0, acc))
                    temp[vi] = combine(temp[vi], term(A[vi, vk], C[vi]))
            with T.sblock("finish"):
                vi = T.axis.spatial(M, i)
                D[vi] = finish(temp[vi], C, vi)

    return func


def plain(a: Any, c: Any) -> Any:
    return a


def f32(value: float) -> Any:
    return T.float32(value)


BIAS_LAST = rows(plain, finish=lambda x, C, i: x + C[i])
BIAS_FIRST = rows(plain, start=lambda C, i, zero: C[i])
SCALED_LAST = rows(plain, finish=lambda x, C, i: x * f32(3))
SCALED_TERMS = rows(lambda a, c: a * f32(3))
CLIPPED_LAST = rows(plain, combine=T.max, finish=lambda x, C, i: T.min(T.max(x, f32(-1)), f32(1)))
CLIPPED_TERMS = rows(
    lambda a, c: T.min(T.max(a, f32(-1)), f32(1)),
    start=lambda C, i, zero: T.min(T.max(zero, f32(-1)), f32(1)),
    combine=T.max,
)
