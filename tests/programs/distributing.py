"""Epilogues that distribute over the reduction: they apply to the initial value and to every term.

A difference ``c - x`` of a sum costs nothing more in the terms than it did after it, and is always
taken. What costs work in every term is taken only where the call asks for it (``distribute=True``);
otherwise it is a tail. So most programs are there twice, once for each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script import tirx as T

from . import lazy
from .builders import K, M, literal, matmul_then, rows_then, sum_rows
from .case import IN_PLACE, Case, accepted, matmul, row_sums, wide
from .monoids import (
    BITWISE_AND,
    BITWISE_OR,
    BITWISE_XOR,
    DEPTH,
    LOGICAL_AND,
    LOGICAL_OR,
    MAXIMUM,
    MINIMUM,
    PRODUCT,
    SOURCE,
    SUM,
    Monoid,
    reduced,
)

ALWAYS, ASKED, NEVER = "always", "asked", "never"


@dataclass(frozen=True)
class Row:
    """An epilogue f(x, c, e) of a reduction, and when it goes into the terms.

    - `name`: of the case, before the type.
    - `monoid`, `types`: the reduction, and the types of its accumulator.
    - `epilogue`, `formula`: in TIR (of x, c, e and the type) and in numpy (of x, c and e).
    - `when`: ``ALWAYS``, only if ``ASKED`` for, or ``NEVER``.
    - `absorbed`: text of what is absorbed when it distributes.
    - `first`: text of what is absorbed before the tail when it does not.
    - `first_distributed`: whether a part that costs nothing goes into the terms even then.
    - `changes_terms`: whether the terms are others in the end.
    - `tail`: text of that tail.
    - `special`: as in `Case`.
    """

    name: str
    monoid: Monoid
    types: tuple[str, ...]
    epilogue: Callable[..., Any]
    formula: Callable[..., Any]
    when: str = ASKED
    absorbed: str = ""
    first: str = ""
    first_distributed: bool = False
    changes_terms: bool = True
    tail: str = "x"
    special: str = field(default="")


def _negated() -> Iterator[Row]:
    """A sum that is subtracted; the terms are subtracted instead."""
    narrow = ("int8", "int16", "uint8", "uint16")
    taken = (*narrow, "int32", "int64", "float32", "float64")
    yield Row(
        name="sum_subtracted",
        monoid=SUM,
        types=taken,
        epilogue=lambda x, c, e, d: c - x,
        formula=lambda x, c, e: c - x,
        when=ALWAYS,
        absorbed="C[vi]",
        special="all",
    )
    # Starting from c, a sum of unsigned numbers may be subtracted in any order only modulo 2^n,
    # and the compiler takes it that wide ones do not wrap around.
    yield Row(
        name="sum_subtracted",
        monoid=SUM,
        types=("uint32", "uint64"),
        epilogue=lambda x, c, e, d: (c + literal(1000, d)) - x,
        formula=lambda x, c, e: (c + c.dtype.type(1000)) - x,
        when=NEVER,
        tail="C[vi]",
    )
    yield Row(
        name="negated_sum_plus_value",
        monoid=SUM,
        types=("int32", "float32"),
        epilogue=lambda x, c, e, d: (literal(0, d) - x) + c,
        formula=lambda x, c, e: (0 - x) + c,
        when=ALWAYS,
        absorbed="C[vi]",
        special="all",
    )
    yield Row(
        name="biased_sum_subtracted",
        monoid=SUM,
        types=("int32", "float32"),
        epilogue=lambda x, c, e, d: e - (c + x),
        formula=lambda x, c, e: e - (c + x),
        when=ALWAYS,
        absorbed="C[vi]",
        special="all",
    )
    yield Row(
        name="sum_subtracted_twice",
        monoid=SUM,
        types=("int32", "float32"),
        epilogue=lambda x, c, e, d: c - (e - x),
        formula=lambda x, c, e: c - (e - x),
        when=ALWAYS,
        absorbed="E[vi]",
        changes_terms=False,
        special="all",
    )


def _scaled() -> Iterator[Row]:
    """A sum that is multiplied: every term is, and the compiler has more to do."""
    yield Row(
        name="scaled_sum_plus_value",
        monoid=SUM,
        types=("float32", "float64", "int8", "uint16"),
        epilogue=lambda x, c, e, d: x * literal(3, d) + c,
        formula=lambda x, c, e: x * c.dtype.type(3) + c,
        absorbed="C[vi]",
        tail="x * ",
        special="all",
    )
    # In wide integers every term times 3 could pass the end where the sum times 3 does not.
    yield Row(
        name="scaled_sum_plus_value",
        monoid=SUM,
        types=("int32", "uint64"),
        epilogue=lambda x, c, e, d: x * literal(3, d) + c,
        formula=lambda x, c, e: x * c.dtype.type(3) + c,
        when=NEVER,
        tail="x * ",
    )
    yield Row(
        name="alpha_sum_plus_beta_value",
        monoid=SUM,
        types=("float32",),
        epilogue=lambda x, c, e, d: e * x + literal(0.5, d) * c,
        formula=lambda x, c, e: e * x + 0.5 * c,
        absorbed="C[vi]",
        tail="E[vi] * x",
    )
    yield Row(
        name="biased_sum_scaled",
        monoid=SUM,
        types=("float32",),
        epilogue=lambda x, c, e, d: (x + c) * literal(0.25, d),
        formula=lambda x, c, e: (x + c) * 0.25,
        absorbed="C[vi]",
        first="C[vi]",
        tail="x * ",
        special="all",
    )
    yield Row(
        name="sum_subtracted_and_scaled",
        monoid=SUM,
        types=("float32", "int16"),
        epilogue=lambda x, c, e, d: literal(-2, d) * (c - x),
        formula=lambda x, c, e: c.dtype.type(-2) * (c - x),
        absorbed="C[vi]",
        first="C[vi]",
        first_distributed=True,
        tail=" * x",
        special="all",
    )


def _bounded() -> Iterator[Row]:
    """A maximum or minimum that is bounded from the other side."""
    every = ("float32", "bfloat16", "int8", "int32", "uint32")
    low, high = -1, 2
    yield Row(
        name="minimum_of_max",
        monoid=MAXIMUM,
        types=every,
        epilogue=lambda x, c, e, d: T.min(x, c),
        formula=lambda x, c, e: np.minimum(x, c),
        tail="T.min(x, ",
        special="no NaN",
    )
    yield Row(
        name="maximum_of_min",
        monoid=MINIMUM,
        types=every,
        epilogue=lambda x, c, e, d: T.max(c, x),
        formula=lambda x, c, e: np.maximum(c, x),
        tail="T.max(",
        special="no NaN",
    )
    # What comes first is the maximum's own.
    yield Row(
        name="clipped_max",
        monoid=MAXIMUM,
        types=("float32", "float16", "int32"),
        epilogue=lambda x, c, e, d: T.min(T.max(x, literal(low, d)), literal(high, d)),
        formula=lambda x, c, e: np.minimum(np.maximum(x, c.dtype.type(low)), c.dtype.type(high)),
        absorbed="-1",
        first="-1",
        tail="T.min(x, ",
        special="no NaN",
    )
    yield Row(
        name="clipped_max_upper_end_first",
        monoid=MAXIMUM,
        types=("float32", "int32"),
        epilogue=lambda x, c, e, d: T.max(T.min(x, literal(high, d)), literal(low, d)),
        formula=lambda x, c, e: np.maximum(np.minimum(x, c.dtype.type(high)), c.dtype.type(low)),
        absorbed="-1",
        tail="T.max(T.min(x, ",
        special="no NaN",
    )


def _monotone() -> Iterator[Row]:
    """Functions of a maximum or minimum that keep or turn the order."""
    increasing: list[tuple[str, Callable[..., Any], Callable[..., Any], str]] = [
        ("plus_value", lambda x, c, e, d: x + c, lambda x, c, e: x + c, "C[vi]"),
        ("minus_value", lambda x, c, e, d: x - c, lambda x, c, e: x - c, "C[vi]"),
        ("times_two", lambda x, c, e, d: x * literal(2, d), lambda x, c, e: x * 2, "x * "),
    ]
    decreasing: list[tuple[str, Callable[..., Any], Callable[..., Any], str]] = [
        ("subtracted", lambda x, c, e, d: c - x, lambda x, c, e: c - x, "C[vi] - x"),
        ("times_minus_two", lambda x, c, e, d: x * literal(-2, d), lambda x, c, e: x * -2, "x * "),
    ]
    for monoid in (MAXIMUM, MINIMUM):
        for name, epilogue, formula, tail in (*increasing, *decreasing):
            yield Row(
                name=f"{monoid.name}_{name}",
                monoid=monoid,
                types=("float32",),
                epilogue=epilogue,
                formula=formula,
                tail=tail,
                special="finite",
            )
        # The order of integers is kept only as long as nothing wraps around.
        yield Row(
            name=f"{monoid.name}_plus_value",
            monoid=monoid,
            types=("int8", "int32", "uint16"),
            epilogue=lambda x, c, e, d: x + c,
            formula=lambda x, c, e: x + c,
            when=NEVER,
            tail="x + ",
        )
    # Nobody knows the sign of c, and 0 * infinity is not a number.
    for name, epilogue, formula, tail in [
        ("max_times_value", lambda x, c, e, d: x * c, lambda x, c, e: x * c, "x * "),
        (
            "max_times_zero",
            lambda x, c, e, d: tirx.Mul(x, literal(0, d)),
            lambda x, c, e: x * 0,
            "T.Mul(x, ",
        ),
    ]:
        yield Row(
            name=name,
            monoid=MAXIMUM,
            types=("float32",),
            epilogue=epilogue,
            formula=formula,
            when=NEVER,
            tail=tail,
            special="finite",
        )


def _bits() -> Iterator[Row]:
    """Operations on bits, and on truth values, that go into the terms."""
    every = ("int8", "int32", "uint64")

    def bits(
        name: str, monoid: Monoid, epilogue: Any, formula: Any, tail: str, when: str = ASKED
    ) -> Row:
        return Row(
            name=name,
            monoid=monoid,
            types=every,
            epilogue=lambda x, c, e, d: epilogue(x, c),
            formula=lambda x, c, e: formula(x, c),
            tail=tail,
            when=when,
        )

    def conjunction(x: Any, c: Any) -> Any:
        return x & c

    def disjunction(x: Any, c: Any) -> Any:
        return c | x

    def difference(x: Any, c: Any) -> Any:
        return x ^ c

    yield bits("masked_or", BITWISE_OR, conjunction, conjunction, "x & ")
    yield bits("masked_xor", BITWISE_XOR, conjunction, conjunction, "x & ")
    yield bits("and_with_bits_set", BITWISE_AND, disjunction, disjunction, " | x")
    yield bits("or_with_bits_flipped", BITWISE_OR, difference, difference, "x ^ ", NEVER)
    yield bits("xor_with_bits_set", BITWISE_XOR, disjunction, disjunction, " | x", NEVER)
    for monoid in (BITWISE_AND, BITWISE_OR):
        yield bits(
            f"inverted_{monoid.name}",
            monoid,
            lambda x, c: T.bitwise_not(x),
            lambda x, c: ~x,
            "x",
        )
    for monoid, epilogue, ufunc in [
        (LOGICAL_AND, T.Or, np.logical_or),
        (LOGICAL_OR, T.And, np.logical_and),
    ]:
        yield Row(
            name=f"{monoid.name}_with_the_other",
            monoid=monoid,
            types=("bool",),
            epilogue=lambda x, c, e, d, epilogue=epilogue: epilogue(x, c),
            formula=lambda x, c, e, ufunc=ufunc: ufunc(x, c),
        )
        yield Row(
            name=f"inverted_{monoid.name}",
            monoid=monoid,
            types=("bool",),
            epilogue=lambda x, c, e, d: T.Not(x),
            formula=lambda x, c, e: np.logical_not(x),
        )


def _constants() -> Iterator[Row]:
    """Operands that make every term a constant: the reduction must stay one."""
    every = ("int8", "int32")
    yield Row(
        name="or_masked_by_zero",
        monoid=BITWISE_OR,
        types=every,
        epilogue=lambda x, c, e, d: (x & literal(0, d)) | c,
        formula=lambda x, c, e: c,
        absorbed="C[vi]",
        tail="x & ",
    )
    yield Row(
        name="and_with_every_bit_set",
        monoid=BITWISE_AND,
        types=every,
        epilogue=lambda x, c, e, d: (x | literal(-1, d)) & c,
        formula=lambda x, c, e: c,
        absorbed="C[vi]",
        tail="x | ",
    )
    yield Row(
        name="or_and_false",
        monoid=LOGICAL_OR,
        types=("bool",),
        epilogue=lambda x, c, e, d: tirx.Or(tirx.And(x, literal(False, "bool")), c),
        formula=lambda x, c, e: c,
        absorbed="C[vi]",
    )


def _products() -> Iterator[Row]:
    """A product absorbs factors and nothing else."""
    yield Row(
        name="product_plus_value",
        monoid=PRODUCT,
        types=("float32", "int8"),
        epilogue=lambda x, c, e, d: x + c,
        formula=lambda x, c, e: x + c,
        when=NEVER,
        tail="x + C[vi]",
        special="all",
    )
    yield Row(
        name="product_times_value_plus_value",
        monoid=PRODUCT,
        types=("float32", "int8"),
        epilogue=lambda x, c, e, d: (x * c) + e,
        formula=lambda x, c, e: (x * c) + e,
        when=NEVER,
        first="C[vi]",
        tail="x + E[vi]",
        special="no denormals",
    )


def _cases(row: Row, acc: str) -> Iterator[Case]:
    """The case for the plain call, and that for the call with ``distribute=True``."""
    monoid = row.monoid
    func = rows_then(
        lambda x, c, e: row.epilogue(x, c, e, acc),
        update=monoid.combine,
        start=lambda e: monoid.identity(acc),
        acc=acc,
        src=SOURCE.get(acc, acc),
        depth=DEPTH,
    )

    def reference(A: Any, C: Any, E: Any) -> Any:
        x = reduced(monoid, A, acc)
        return row.formula(x, wide(C, x.dtype), wide(E, x.dtype))

    taken = {"absorbed": (row.absorbed,), "distributed": {"add": ""} if row.changes_terms else {}}
    tail = {
        "absorbed": (row.first,),
        "distributed": {"add": ""} if row.first_distributed else {},
        "tails": {"add": row.tail},
    }
    for asked in (False, True):
        goes_in = row.when == ALWAYS or (row.when == ASKED and asked)
        yield Case(
            name=f"{acc}_{row.name}" + ("_if_asked" if asked else ""),
            func=func,
            reference=reference,
            distribute=asked,
            special=row.special,
            **(taken if goes_in else tail),
        )


def _updates() -> Iterator[Case]:
    """Other ways to write the update: every term is transformed, wherever it stands."""
    sums: list[tuple[str, Callable[..., Any], Callable[..., Any]]] = [
        ("minus_term", lambda acc, t, e: acc - t, lambda mm, E: -mm),
        ("two_terms", lambda acc, t, e: (acc + t) + e, lambda mm, E: mm + K * E),
        ("sum_inside", lambda acc, t, e: (t + acc) - e, lambda mm, E: mm - K * E),
        ("sum_right", lambda acc, t, e: t + (e + acc), lambda mm, E: mm + K * E),
        ("grouped_term", lambda acc, t, e: acc - (t - e), lambda mm, E: K * E - mm),
    ]
    for name, update, total in sums:
        yield Case(
            name=f"subtracted_{name}",
            func=matmul_then(
                lambda t, C, E, S, i, j: C[i, j] - t,
                init=lambda E, S, i, j: S[()],
                update=update,
            ),
            reference=lambda A, B, C, E, S, f=total: C - (S + f(matmul(A, B), E)),
            absorbed=("C[vi, vj]",),
            distributed={"add": ""},
        )
        yield Case(
            name=f"scaled_{name}",
            func=matmul_then(
                lambda t, C, E, S, i, j: T.float32(0.5) * t - C[i, j],
                init=lambda E, S, i, j: S[()],
                update=update,
                acc="float32",
                src="float32",
            ),
            reference=lambda A, B, C, E, S, f=total: 0.5 * (S + f(A @ B.T, E)) - C,
            distribute=True,
            absorbed=("C[vi, vj]",),
            distributed={"add": ""},
        )
    maxima: list[tuple[str, Callable[..., Any]]] = [
        ("term_first", lambda acc, t, e: T.max(t, acc)),
        ("two_terms", lambda acc, t, e: T.max(T.max(acc, t), e)),
        ("max_inside", lambda acc, t, e: T.max(e, T.max(acc, t))),
        ("grouped_terms", lambda acc, t, e: T.max(T.max(e, t), acc)),
    ]
    for name, update in maxima:
        yield Case(
            name=f"maximum_turned_round_{name}",
            func=matmul_then(
                lambda t, C, E, S, i, j: T.max(C[i, j] - t, E[j]),
                init=lambda E, S, i, j: E[j],
                update=update,
                acc="float32",
                src="float32",
            ),
            reference=lambda A, B, C, E, S: np.maximum(
                C - np.maximum((A[:, None, :] * B[None]).max(axis=-1), E), E
            ),
            distribute=True,
            absorbed=("",),
            distributed={"add": "C[vi, vj] - x"},
            special="finite",
        )


# Only some terms are added; all that are must be subtracted.
@lazy.prim_func(s_tir=True)
def conditional_step_subtracted(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 3
            if A[vi, vk] > 0:
                temp[vi] = temp[vi] + A[vi, vk]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = C[vi] - temp[vi]


@lazy.prim_func(s_tir=True)
def subtracted_in_place(A: T.Buffer((M, K), "int32"), D: T.Buffer((M,), "int32")):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = D[vi] - temp[vi]


_FAMILIES = (_negated, _scaled, _bounded, _monotone, _bits, _constants, _products)

ACCEPT = [
    *[
        case
        for family in _FAMILIES
        for row in family()
        for acc in row.types
        for case in _cases(row, acc)
    ],
    *_updates(),
    accepted(
        conditional_step_subtracted,
        lambda A, C: C - (3 + row_sums(np.where(A > 0, A, 0))),
        "C[vi]",
        "",
        "condition_on_the_sum",
        distributed={"add": "-x"},
    ),
    accepted(
        subtracted_in_place,
        lambda A, D: D - row_sums(A),
        "D[vi]",
        "D[vi]",
        "in_place_other_element",
        distributed={"add": "-x"},
        **IN_PLACE,
    ),
]
