"""Families of programs, and the parts that most programs have in common.

`matmul_then` and `rows_then` make a whole program of functions on expressions. The others are
written in place of their loops and blocks inside a program, where what they stand for is not what
it is about.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.script import tirx as T

from . import lazy
from .lazy import Program

# Extents of the product: all different, so that a swapped index shows.
M, N, K = 8, 7, 6

Term = Callable[..., Any]


def part(body: Callable[..., Any]) -> Callable[..., Any]:
    """A `T.inline` made anew for every use, so that its blocks keep their names.

    TVM numbers the blocks of one inline over all of its uses (``mm``, ``mm_1``, ...).
    """

    def written_out(*args: Any) -> Any:
        return T.inline(body)(*args)

    return written_out


@part
def sum_rows(A, temp):
    """Block "mm": ``temp[i]`` is the sum of ``A[i, k]`` over k, for an A of shape (M, K)."""
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = T.cast(0, temp.dtype)
            temp[vi] = temp[vi] + A[vi, vk]


@part
def add_rows(temp, C, D):
    """Block "add": ``D[i] = temp[i] + C[i]``."""
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]


@part
def sum_products(A, B, temp):
    """Block "mm": ``temp = A @ B.T`` for an A of shape (M, K) and a B of shape (N, K)."""
    for i, j, k in T.grid(M, N, K):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = T.cast(0, temp.dtype)
            temp[vi, vj] = temp[vi, vj] + T.cast(A[vi, vk], temp.dtype) * T.cast(
                B[vj, vk], temp.dtype
            )


def matmul_then(
    epilogue: Term,
    *,
    acc: str = "int32",
    src: str = "int8",
    bias: str | None = None,
    init: Term | None = None,
    update: Term | None = None,
    out: str | None = None,
) -> Program:
    """A product, then an epilogue over every element of it.

    ``temp[i, j] = init(I, S, i, j); temp[i, j] = update(temp[i, j], t, E[j])`` with ``t = A[i, k]
    * B[j, k]``, then ``D[i, j] = epilogue(temp[i, j], C, E, S, i, j)``.

    - `epilogue`, `init`, `update`: functions on expressions; `init` defaults to 0 and `update` to
      ``acc + t``.
    - `acc`, `src`, `bias`, `out`: types of the accumulator, of A and B, of C, E and S, and of D.
    """
    start = init or (lambda _i_buf, _s, _i, _j: T.cast(0, acc))
    step = update or (lambda total, term, _e: total + term)
    bias_type = bias or acc
    out_type = out or acc

    @lazy.prim_func(s_tir=True)
    def func(
        A: T.Buffer((M, K), src),
        B: T.Buffer((N, K), src),
        C: T.Buffer((M, N), bias_type),
        E: T.Buffer((N,), bias_type),
        S: T.Buffer((), bias_type),
        D: T.Buffer((M, N), out_type),
    ):
        temp = T.sblock_alloc_buffer((M, N), acc)
        for i, j, k in T.grid(M, N, K):
            with T.sblock("mm"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    temp[vi, vj] = start(E, S, vi, vj)
                temp[vi, vj] = step(
                    temp[vi, vj], T.cast(A[vi, vk], acc) * T.cast(B[vj, vk], acc), E[vj]
                )
        for i, j in T.grid(M, N):
            with T.sblock("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = epilogue(temp[vi, vj], C, E, S, vi, vj)

    return func


def literal(value: float, dtype: str) -> Any:
    """A constant of any type, integers as integers."""
    return tirx.const(value if "float" in dtype else int(value), dtype)


def rows_then(
    epilogue: Term,
    *,
    update: Term,
    start: Term | float = 0,
    acc: str = "int32",
    src: str | None = None,
    depth: int = K,
) -> Program:
    """A reduction of each row, then an epilogue over every result.

    ``temp[i] = start; temp[i] = update(temp[i], A[i, k])``, then ``D[i] = epilogue(temp[i], c, e)``
    with the elements c of C and e of E, all in the accumulator's type.

    - `epilogue`, `update`: functions on expressions.
    - `start`: a number, or a function of e.
    - `acc`, `src`: types of the accumulator and of D, and of A, C and E, which is `acc` by default.
    - `depth`: length of a row.
    """
    src_type = src or acc
    first = start if callable(start) else (lambda _e: literal(start, acc))

    @lazy.prim_func(s_tir=True)
    def func(
        A: T.Buffer((M, depth), src_type),
        C: T.Buffer((M,), src_type),
        E: T.Buffer((M,), src_type),
        D: T.Buffer((M,), acc),
    ):
        temp = T.sblock_alloc_buffer((M,), acc)
        for i, k in T.grid(M, depth):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = first(T.cast(E[vi], acc))
                temp[vi] = update(temp[vi], T.cast(A[vi, vk], acc))
        for i in range(M):
            with T.sblock("add"):
                vi = T.axis.spatial(M, i)
                D[vi] = epilogue(temp[vi], T.cast(C[vi], acc), T.cast(E[vi], acc))

    return func
