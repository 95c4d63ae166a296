"""Equivalence of two functions on data: each pair has a twin that differs in one thing."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from fuse_epilogue import workloads
from fuse_epilogue.verify import (
    NotEquivalent,
    equivalent,
)
from rows_of_sums import (
    BIAS_FIRST,
    BIAS_LAST,
    CLIPPED_LAST,
    CLIPPED_TERMS,
    SCALED_LAST,
    SCALED_TERMS,
    M,
    f32,
    plain,
    rows,
)

# Two functions that compute the same up to the order of float operations, and a third one that does
# not compute the same.
TRIPLES: dict[str, tuple[PrimFunc, PrimFunc, PrimFunc]] = {
    "bias": (BIAS_LAST, BIAS_FIRST, rows(plain, start=lambda C, i, zero: C[i] + C[i])),
    "scale": (SCALED_LAST, SCALED_TERMS, rows(lambda a, c: a * f32(3.001))),
    "negated": (
        rows(plain, finish=lambda x, C, i: C[i] - x),
        rows(lambda a, c: f32(0) - a, start=lambda C, i, zero: C[i]),
        rows(plain, start=lambda C, i, zero: C[i]),
    ),
    "clip of a max": (
        CLIPPED_LAST,
        CLIPPED_TERMS,
        rows(
            lambda a, c: T.min(T.max(a, f32(-1)), f32(1)),
            start=lambda C, i, zero: f32(-2),
            combine=T.max,
        ),
    ),
    "max and min": (
        rows(plain, combine=T.max, finish=lambda x, C, i: C[i] - x),
        rows(lambda a, c: c - a, combine=T.min, start=lambda C, i, zero: C[i] - zero),
        rows(lambda a, c: c - a, combine=T.max, start=lambda C, i, zero: C[i] - zero),
    ),
    "sigmoid": (
        rows(plain, finish=lambda x, C, i: T.sigmoid(x + C[i])),
        rows(plain, start=lambda C, i, zero: C[i], finish=lambda x, C, i: T.sigmoid(x)),
        rows(plain, start=lambda C, i, zero: C[i], finish=lambda x, C, i: T.tanh(x)),
    ),
    "int32": (
        rows(plain, finish=lambda x, C, i: x * C[i], acc="int32"),
        rows(lambda a, c: a * c, acc="int32"),
        rows(lambda a, c: a * c + a, acc="int32"),
    ),
    "int8 bits": (
        rows(plain, combine=lambda x, t: x | t, finish=lambda x, C, i: x & C[i], acc="int8"),
        rows(lambda a, c: a & c, combine=lambda x, t: x | t, acc="int8"),
        rows(lambda a, c: a | c, combine=lambda x, t: x | t, acc="int8"),
    ),
    **{
        f"{acc} inverted": (
            rows(plain, combine=lambda x, t: x & t, finish=lambda x, C, i: ~x, acc=acc),
            rows(
                lambda a, c: ~a,
                combine=lambda x, t: x | t,
                start=lambda C, i, zero: ~zero,
                acc=acc,
            ),
            rows(lambda a, c: ~a, combine=lambda x, t: x | t, acc=acc),
        )
        for acc in ("uint8", "int8")
    },
}


@pytest.mark.parametrize("name", TRIPLES)
def test_equal_and_proved(name: str) -> None:
    before, after, _ = TRIPLES[name]
    report = equivalent(before, after)
    assert report.proved, str(report)
    assert report.oracles == ("llvm", "evaluator")
    for kind, found in report.data.items():
        # Two oracles, each of them compared in every element of three runs.
        assert found.elements == found.identical + found.bounded + found.open == 3 * 2 * M
        assert kind == "nasty" or found.open == 0


@pytest.mark.parametrize("name", TRIPLES)
@pytest.mark.parametrize("compiled", [True, False])
def test_different(name: str, compiled: bool) -> None:
    before, _, other = TRIPLES[name]
    with pytest.raises(NotEquivalent) as caught:
        equivalent(before, other, compiled=compiled)
    error = caught.value
    assert error.buffer == "D"
    assert 0 <= error.element[0] < M
    assert f"D[{error.element[0]}]: before {error.before}, after {error.after}" in str(error)


@pytest.mark.parametrize("name", TRIPLES)
def test_integers_are_exact_and_floats_are_not(name: str) -> None:
    before, after, _ = TRIPLES[name]
    if name in ("int32", "int8 bits", "uint8 inverted", "int8 inverted"):
        assert equivalent(before, after, numerics="exact").proved
        return
    # On ordinary data the rounding differs, or it is not proved that it does not.
    try:
        report = equivalent(before, after, numerics="exact", timeout=0.5)
    except NotEquivalent:
        return
    assert not report.proved


EXACT_PAIRS = {
    "same operations": (BIAS_LAST, rows(plain, finish=lambda x, C, i: x + C[i])),
    "operands swapped": (BIAS_LAST, rows(plain, finish=lambda x, C, i: C[i] + x)),
    "relu": (
        rows(plain, finish=lambda x, C, i: T.max(x, f32(0))),
        rows(plain, finish=lambda x, C, i: T.max(x, f32(0))),
    ),
}


@pytest.mark.parametrize("name", EXACT_PAIRS)
def test_exact(name: str) -> None:
    report = equivalent(*EXACT_PAIRS[name], numerics="exact")
    assert report.proved
    assert report.data and all(found.identical == 3 * 2 * M for found in report.data.values())


@pytest.mark.parametrize(
    "after",
    [
        BIAS_FIRST,
        rows(plain, finish=lambda x, C, i: f32(0) - (f32(0) - (x + C[i]))),
    ],
    ids=["reassociated", "signed zero"],
)
def test_exact_tells_what_reassociate_does_not(after: PrimFunc) -> None:
    assert equivalent(BIAS_LAST, after).proved
    with pytest.raises((NotEquivalent, AssertionError)):
        assert equivalent(BIAS_LAST, after, numerics="exact").proved


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("of", ["parameter", "sum", "maximum"])
def test_a_number_of_the_functions_is_tried(of: str, compiled: bool) -> None:
    """Wrong for one value only, of which exact arithmetic has no model to find."""
    combine = T.max if of == "maximum" else (lambda x, t: x + t)

    def finish(x: Any, C: Any, i: Any) -> Any:
        decides = C[i] if of == "parameter" else x
        return T.Select(decides == f32(77.125), f32(0), x + C[i])

    before = rows(plain, combine=combine, finish=lambda x, C, i: x + C[i])
    after = rows(plain, combine=combine, finish=finish)
    with pytest.raises(NotEquivalent, match="on literals data"):
        equivalent(before, after, numerics="exact", compiled=compiled)


def test_a_report_without_a_proof_says_so_first() -> None:
    after = rows(plain, finish=lambda x, C, i: T.Select(x >= f32(0), T.max(x, f32(0)), f32(0)))
    before = rows(plain, finish=lambda x, C, i: T.max(x, f32(0)))
    report = equivalent(before, after, numerics="exact", timeout=0.5)
    assert not report.proved
    assert str(report).startswith("NOT PROVED equal")
    assert str(report).splitlines()[0].endswith(" (numerics: exact)")
    proved = str(equivalent(before, before, numerics="exact"))
    assert proved.startswith("proved equal") and "NOT PROVED" not in proved


def test_what_is_too_large_to_prove_points_to_the_certificate() -> None:
    def func(rows: int) -> PrimFunc:
        return workloads.matmul(rows, 32, 16)

    small, large = str(equivalent(func(2), func(2))), str(equivalent(func(256), func(256)))
    assert small.startswith("proved equal")
    assert re.match(r"no difference on [\d,]+ values; too large to prove; use `check` \(", large)
    # Only what was found is listed.
    assert not re.search(r"\b0 (identical|within|open)", small + large)


def test_operands_of_a_maximum_matter_for_nan() -> None:
    before = rows(plain, finish=lambda x, C, i: T.max(x, C[i]))
    swapped = rows(plain, finish=lambda x, C, i: T.max(C[i], x))
    assert equivalent(before, swapped).proved
    with pytest.raises(NotEquivalent, match="on nasty data"):
        equivalent(before, swapped, numerics="exact")


def test_what_tvm_makes_of_a_nan_before_is_no_difference() -> None:
    """TVM takes x == x for true, a NaN too: so does what it compiles of the function before."""

    def finish(bias: Any) -> PrimFunc:
        return rows(
            plain, finish=lambda x, C, i: T.if_then_else(C[i] == C[i], x + C[i] * f32(bias), f32(0))
        )

    assert equivalent(finish(1), finish(1)).proved
    with pytest.raises(NotEquivalent):
        equivalent(finish(1), finish(1.001))


def test_what_depends_on_the_order_is_counted_as_open() -> None:
    before = rows(plain, combine=T.max, finish=lambda x, C, i: T.max(x, C[i]))
    after = rows(plain, combine=T.max, start=lambda C, i, zero: T.max(zero, C[i]))
    report = equivalent(before, after)
    assert report.proved
    assert report.data["nasty"].open > 0
    assert report.data["normal"].open == 0


def bits(more: int, kind: str = "int32", scale: float = 1) -> PrimFunc:
    """The bits of numbers, and some more."""

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((M,), "float32"), D: T.Buffer((M,), kind)):
        for i in range(M):
            with T.sblock("bits"):
                vi = T.axis.spatial(M, i)
                D[vi] = T.reinterpret(kind, A[vi] * f32(scale)) + T.cast(more, kind)

    return func


@pytest.mark.parametrize("kind", ["int32", "uint32"])
@pytest.mark.parametrize("compiled", [True, False])
def test_the_bits_of_numbers_are_compared(kind: str, compiled: bool) -> None:
    report = equivalent(bits(0, kind), bits(0, kind), compiled=compiled)
    assert report.data["normal"].identical == report.data["normal"].elements
    for more in (1, 1 << 20):
        with pytest.raises(NotEquivalent, match="on exact data"):
            equivalent(bits(0, kind), bits(more, kind), compiled=compiled)
    # The last bits of a product are those of its rounding.
    assert equivalent(bits(0, kind, 3), bits(0, kind, 3), compiled=compiled).data["normal"].bounded
    with pytest.raises(NotEquivalent):
        equivalent(bits(0, kind, 3), bits(1 << 20, kind, 3), compiled=compiled)


def test_an_integer_of_which_nothing_is_known_is_counted_as_open() -> None:
    """A number between two integers may become either; one that may be any becomes anything."""
    huge = rows(plain, finish=lambda x, C, i: T.cast(x * f32(1e30), "int32"), out="int32")
    report = equivalent(huge, huge)
    assert report.data["normal"].open
    assert report.data and all(found.bounded == 0 or found.open for found in report.data.values())


def test_a_rounding_more_is_within_the_bound_and_an_error_is_not() -> None:
    """The bound is that of rounding: a relative error of 1e-5 in the bias is found."""
    after = rows(plain, start=lambda C, i, zero: C[i] * f32(1.00001))
    with pytest.raises(NotEquivalent, match="on exact data"):
        equivalent(BIAS_LAST, after, compiled=False)
    # One rounding more, of the product with a number that is a power of two, is none.
    after = rows(plain, start=lambda C, i, zero: C[i] * f32(2) * f32(0.5))
    assert equivalent(BIAS_LAST, after).proved


def test_the_same_seed_gives_the_same_data() -> None:
    other = rows(plain, start=lambda C, i, zero: C[i] + C[i])
    messages = []
    for seed in (0, 0, 1):
        with pytest.raises(NotEquivalent) as caught:
            equivalent(BIAS_LAST, other, seed=seed, compiled=False)
        messages.append(str(caught.value))
    assert messages[0] == messages[1] != messages[2]
    assert np.isfinite(float(str(caught.value.before)))
