"""Operands behind a condition: each program is there with one that is defined without it as well.

That one is absorbed, and the twin's, which may be undefined where the condition does not hold,
stays in the tail. Nothing is refused. C and E hold numbers of int8, so that half of the divisors,
indices and amounts of the twins are wild.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm.script import tirx as T

from . import lazy
from .builders import K, M, N, matmul_then, rows_then, sum_rows
from .case import Case, matmul, row_sums, wide

Formula = Callable[..., np.ndarray]


def _int32(value: Any) -> Any:
    return T.cast(value, "int32")


def _float32(value: Any) -> Any:
    return T.cast(value, "float32")


def _quotient(number: int, divisor: np.ndarray) -> np.ndarray:
    """``number / divisor``, rounded to zero, and 0 for a divisor of 0."""
    return np.trunc(number / np.where(divisor == 0, np.inf, divisor)).astype("int32")


@dataclass(frozen=True)
class Pair:
    """Two epilogues of a product that differ in one operand.

    - `name`: of the case that absorbs the operand; the twin's ends in ``_tail``.
    - `total`, `partial`: the epilogues in TIR, of the product t, of C, E and S, and of the axes i
      and j.
    - `reference`: what the first one computes, of t, C and E, in numpy.
    - `partial_reference`: the same for the twin.
    - `absorbed`: text of what the first one absorbs.
    - `rest`: text of what the twin absorbs all the same, if anything.
    - `tail`: text of the first one's tail; empty if there is none.
    - `accumulators`: types of the two sums.
    """

    name: str
    total: Callable[..., Any]
    partial: Callable[..., Any]
    reference: Formula
    partial_reference: Formula
    absorbed: str
    rest: str = ""
    tail: str = "T.if_then_else("
    accumulators: tuple[str, str] = ("float32", "float32")

    def cases(self) -> list[Case]:
        """The two programs."""
        first, second = self.accumulators
        twin = f"{self.name}_tail"
        return [
            _case(self.name, first, self.total, self.reference, self.absorbed, self.tail),
            _case(twin, second, self.partial, self.partial_reference, self.rest, "x"),
        ]


def _case(
    name: str,
    acc: str,
    epilogue: Callable[..., Any],
    formula: Formula,
    absorbed: str,
    tail: str,
) -> Case:
    return Case(
        name=name,
        func=matmul_then(epilogue, acc=acc, bias="int8"),
        reference=lambda A, B, C, E, S: formula(
            matmul(A, B, acc), C.astype("int32"), E.astype("int32")
        ).astype(acc),
        absorbed=(absorbed,),
        tails={"add": tail} if tail else {},
    )


PAIRS = [
    # A divisor that is a literal; one that the condition keeps from being 0.
    Pair(
        "guarded_quotient",
        lambda t, C, E, S, i, j: T.if_then_else(
            C[i, j] != 0, t + _float32(T.truncdiv(_int32(C[i, j]), 7)), 0.0
        ),
        lambda t, C, E, S, i, j: T.if_then_else(
            C[i, j] != 0, t + _float32(T.truncdiv(1000, _int32(C[i, j]))), 0.0
        ),
        lambda t, C, E: np.where(C != 0, t + np.trunc(C / 7), 0),
        lambda t, C, E: np.where(C != 0, t + _quotient(1000, C), 0),
        "C[vi, vj]",
    ),
    # The remainder of a number that cannot be 0; of one that can.
    Pair(
        "guarded_remainder",
        lambda t, C, E, S, i, j: T.if_then_else(
            E[j] > 0, _float32(T.floormod(100, T.max(_int32(E[j]), 1))) + t, 5.0
        ),
        lambda t, C, E, S, i, j: T.if_then_else(
            E[j] > 0, _float32(T.floormod(100, _int32(E[j]))) + t, 5.0
        ),
        lambda t, C, E: np.where(E > 0, 100 % np.maximum(E, 1) + t, 5),
        lambda t, C, E: np.where(E > 0, 100 % np.maximum(E, 1) + t, 5),
        "100 % T.max(",
    ),
    # An index that is brought into the table; one that the condition keeps in it.
    Pair(
        "guarded_gather",
        lambda t, C, E, S, i, j: T.if_then_else(
            C[i, j] >= 0, t + _float32(E[T.max(T.min(_int32(C[i, j]), N - 1), 0)]), 0.0
        ),
        lambda t, C, E, S, i, j: T.if_then_else(
            T.And(C[i, j] >= 0, C[i, j] < N), t + _float32(E[_int32(C[i, j])]), 0.0
        ),
        lambda t, C, E: np.where(C >= 0, t + E[np.clip(C, 0, N - 1)], 0),
        lambda t, C, E: np.where((C >= 0) & (C < N), t + E[np.clip(C, 0, N - 1)], 0),
        "E[T.max(T.min(",
    ),
    # The same in a select, which TVM makes an if_then_else of where an arm loads something.
    Pair(
        "selected_gather",
        lambda t, C, E, S, i, j: T.Select(
            C[i, j] >= 0, t + _float32(E[T.max(T.min(_int32(C[i, j]), N - 1), 0)]), 0.0
        ),
        lambda t, C, E, S, i, j: T.Select(
            T.And(C[i, j] >= 0, C[i, j] < N), t + _float32(E[_int32(C[i, j])]), 0.0
        ),
        lambda t, C, E: np.where(C >= 0, t + E[np.clip(C, 0, N - 1)], 0),
        lambda t, C, E: np.where((C >= 0) & (C < N), t + E[np.clip(C, 0, N - 1)], 0),
        "E[T.max(T.min(",
        tail="T.if_then_else(",
    ),
    # An amount within the width; one that the condition keeps there.
    Pair(
        "guarded_shift",
        lambda t, C, E, S, i, j: T.if_then_else(
            C[i, j] >= 0, t + _float32(T.shift_left(1, T.bitwise_and(_int32(C[i, j]), 15))), 0.0
        ),
        lambda t, C, E, S, i, j: T.if_then_else(
            T.And(C[i, j] >= 0, C[i, j] < 20), t + _float32(T.shift_left(1, _int32(C[i, j]))), 0.0
        ),
        lambda t, C, E: np.where(C >= 0, t + (1 << (C & 15)), 0),
        lambda t, C, E: np.where((C >= 0) & (C < 20), t + (1 << np.clip(C, 0, 20)), 0),
        "1 << (T.Cast(",
    ),
    # What is added outside of the condition, or before the operand, is absorbed in any case.
    Pair(
        "bias_and_guarded_quotient",
        lambda t, C, E, S, i, j: T.if_then_else(
            C[i, j] != 0, (t + _float32(E[j])) + _float32(T.truncdiv(_int32(C[i, j]), 3)), 0.0
        ),
        lambda t, C, E, S, i, j: T.if_then_else(
            C[i, j] != 0, (t + _float32(E[j])) + _float32(T.truncdiv(1000, _int32(C[i, j]))), 0.0
        ),
        lambda t, C, E: np.where(C != 0, t + E + np.trunc(C / 3), 0),
        lambda t, C, E: np.where(C != 0, t + E + _quotient(1000, C), 0),
        "E[vj]",
        rest="E[vj]",
    ),
    # The condition belongs to the operand, and goes where that goes; it is inside of another one.
    Pair(
        "guard_inside_the_operand",
        lambda t, C, E, S, i, j: (
            t + _float32(T.if_then_else(C[i, j] != 0, T.truncdiv(1000, _int32(C[i, j])), 0))
        ),
        lambda t, C, E, S, i, j: T.if_then_else(
            E[j] > 0,
            T.if_then_else(C[i, j] != 0, t + _float32(T.truncdiv(1000, _int32(C[i, j]))), 0.0),
            1.0,
        ),
        lambda t, C, E: t + np.where(C != 0, _quotient(1000, C), 0),
        lambda t, C, E: np.where(E > 0, np.where(C != 0, t + _quotient(1000, C), 0), 1),
        "T.Div(1000, T.Cast(",
        tail="",
    ),
    # A sum of int32 is itself undefined where it overflows: it keeps even a load behind the guard.
    Pair(
        "guarded_bias",
        lambda t, C, E, S, i, j: T.if_then_else(C[i, j] != 0, t + _float32(E[j]), 0.0),
        lambda t, C, E, S, i, j: T.if_then_else(C[i, j] != 0, t + _int32(E[j]), 0),
        lambda t, C, E: np.where(C != 0, t + E, 0),
        lambda t, C, E: np.where(C != 0, t + E, 0),
        "E[vj]",
        accumulators=("float32", "int32"),
    ),
]


# ---------------------------------------------------------------------------------------------
# Operands of other lengths
# ---------------------------------------------------------------------------------------------


# The axis has no point beyond the bias.
@lazy.prim_func(s_tir=True)
def bias_behind_an_axis(
    A: T.Buffer((M, K), "float32"), C: T.Buffer((M,), "float32"), D: T.Buffer((M,), "float32")
):
    temp = T.sblock_alloc_buffer((M,), "float32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = T.if_then_else(vi < 3, temp[vi] + C[vi], T.float32(0))


# It has some.
@lazy.prim_func(s_tir=True)
def short_bias_behind_an_axis(
    A: T.Buffer((M, K), "float32"), C: T.Buffer((3,), "float32"), D: T.Buffer((M,), "float32")
):
    temp = T.sblock_alloc_buffer((M,), "float32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = T.if_then_else(vi < 3, temp[vi] + C[vi], T.float32(0))


# The bias begins behind the axis.
@lazy.prim_func(s_tir=True)
def bias_from_an_offset(
    A: T.Buffer((M, K), "float32"), C: T.Buffer((M - 2,), "float32"), D: T.Buffer((M,), "float32")
):
    temp = T.sblock_alloc_buffer((M,), "float32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = T.if_then_else(vi >= 2, temp[vi] + C[vi - 2], T.float32(0))


def _short(array: np.ndarray, before: int = 0) -> np.ndarray:
    """The array among zeros, as long as there are rows."""
    return np.pad(array, (before, M - before - len(array)))


def _first(rows: np.ndarray, count: int) -> np.ndarray:
    return np.where(np.arange(M) < count, rows, 0)


ROWS = [
    Case(
        name="bias_behind_an_axis",
        func=bias_behind_an_axis,
        reference=lambda A, C: _first(row_sums(A) + C, 3),
        absorbed=("C[vi]",),
        tails={"add": "T.if_then_else(vi < 3, x, T.float32(0"},
    ),
    Case(
        name="short_bias_behind_an_axis",
        func=short_bias_behind_an_axis,
        reference=lambda A, C: _first(row_sums(A) + _short(C), 3),
        absorbed=("",),
        tails={"add": "x + C[vi]"},
    ),
    Case(
        name="bias_from_an_offset",
        func=bias_from_an_offset,
        reference=lambda A, C: np.where(np.arange(M) >= 2, row_sums(A) + _short(C, 2), 0),
        absorbed=("",),
        tails={"add": "x + C[vi - 2]"},
    ),
]


# ---------------------------------------------------------------------------------------------
# Other reductions
# ---------------------------------------------------------------------------------------------

MAXIMA = [
    Case(
        name=f"guarded_maximum{ending}",
        func=rows_then(
            epilogue,
            update=T.max,
            start=-128,
            src="int8",
        ),
        reference=reference,
        absorbed=(absorbed,),
        tails={"add": "x"},
    )
    for ending, epilogue, reference, absorbed in (
        (
            "",
            lambda x, c, e: T.if_then_else(c != 0, T.max(x, T.truncdiv(e, 5)), 0),
            lambda A, C, E: np.where(
                C != 0, np.maximum(wide(A, "int32").max(axis=1), np.trunc(E / 5)), 0
            ).astype("int32"),
            "E[vi]",
        ),
        (
            "_tail",
            lambda x, c, e: T.if_then_else(c != 0, T.max(x, T.truncdiv(1000, c)), 0),
            lambda A, C, E: np.where(
                C != 0, np.maximum(wide(A, "int32").max(axis=1), _quotient(1000, C)), 0
            ).astype("int32"),
            "",
        ),
    )
]

ACCEPT = [*(case for pair in PAIRS for case in pair.cases()), *ROWS, *MAXIMA]
