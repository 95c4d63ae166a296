"""Equivalence of two functions: every accepted pair has a twin that differs in one thing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

import oracles
from fuse_epilogue import verify, workloads
from fuse_epilogue.verify import (
    NotEquivalent,
    UnsupportedError,
    equivalent,
    prove,
)
from fuse_epilogue.verify import unknowns as unknowns_module
from programs import ACCEPT, BY_NAME, Case

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


# ---------------------------------------------------------------------------------------------
# The symbolic half
# ---------------------------------------------------------------------------------------------


def only_at(value: int, acc: str = "int32") -> PrimFunc:
    """Wrong for one value of the accumulator only, which occurs in neither function."""
    mask = 0x5A5A5A5

    def finish(x: Any, C: Any, i: Any) -> Any:
        hidden = T.bitwise_xor(x, T.IntImm(acc, mask))
        wrong = hidden == T.IntImm(acc, value ^ mask)
        return x + T.Select(wrong, T.IntImm(acc, 1), T.IntImm(acc, 0))

    return rows(plain, finish=finish, acc=acc)


def test_a_rare_difference_is_found_by_z3() -> None:
    pytest.importorskip("z3")
    before = rows(plain, acc="int32")
    with pytest.raises(NotEquivalent, match="on symbolic data") as caught:
        equivalent(before, only_at(123456789), compiled=False)
    assert caught.value.before == 123456789


def test_without_z3_normal_forms_still_prove(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("proof.prover", "unknowns"):
        monkeypatch.setattr(f"fuse_epilogue.verify.{module}.has_z3", lambda: False)
    assert equivalent(BIAS_LAST, BIAS_FIRST, compiled=False).proved
    assert equivalent(CLIPPED_LAST, CLIPPED_TERMS, compiled=False).proved
    report = equivalent(rows(plain, acc="int32"), only_at(123456789), compiled=False)
    assert not report.proved
    assert report.symbolic.status == "skipped"
    assert "z3 is not installed" in report.symbolic.reason


def test_what_z3_does_not_decide_is_unknown() -> None:
    pytest.importorskip("z3")
    # x * x >= 0 holds for numbers; to z3 a product of unknowns is an unknown.
    before = rows(plain, finish=lambda x, C, i: T.max(C[i] * C[i], f32(0)))
    after = rows(plain, finish=lambda x, C, i: C[i] * C[i])
    report = equivalent(before, after, timeout=0.5)
    assert report.symbolic.status == "unknown"
    assert "element 0 of 'D'" in report.symbolic.reason
    assert "unknown" in str(report)


def test_a_narrowing_cast_is_not_dropped() -> None:
    before = rows(plain, finish=lambda x, C, i: T.Cast("float32", T.Cast("float16", x)))
    assert equivalent(before, before).proved
    with pytest.raises((NotEquivalent, AssertionError)):
        assert equivalent(before, rows(plain), timeout=0.5).proved


def test_constant_extents_that_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknowns_module, "_EFFORT", 10)
    report = equivalent(BIAS_LAST, BIAS_FIRST, compiled=False)
    assert report.symbolic.status == "skipped"
    assert "too large" in report.symbolic.reason


# ---------------------------------------------------------------------------------------------
# Parameters, sizes, programs that are wrong themselves
# ---------------------------------------------------------------------------------------------


def doubled(extent: int, bias: float = 0) -> PrimFunc:
    @T.prim_func(s_tir=True)
    def func(a: T.handle, d: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n, 2), "float32")
        D = T.match_buffer(d, (n,), "float32")
        for i in range(n):
            with T.sblock("double"):
                vi = T.axis.spatial(n, i)
                D[vi] = A[vi, 0] + A[vi, 1] + T.Select(vi >= extent, f32(bias), f32(0))

    return func


def test_symbolic_dimensions() -> None:
    report = equivalent(doubled(0), doubled(1))
    assert report.proved
    assert report.sizes == {"n": 7}
    assert len(report.symbolic.sizes) > 1
    assert equivalent(doubled(0), doubled(1), sizes={"n": 3}).sizes == {"n": 3}
    # Different from the sixth row on: only the size that is given shows it.
    assert equivalent(doubled(0), doubled(5, 1), sizes={"n": 4}).data["exact"].elements
    with pytest.raises(NotEquivalent, match=r"D\[5\]"):
        equivalent(doubled(0), doubled(5, 1), sizes={"n": 6})


def looked_up(default: int) -> PrimFunc:
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((4,), "int32"), I: T.Buffer((6,), "int32"), D: T.Buffer((6,), "int32")):
        for i in range(6):
            with T.sblock("look"):
                vi = T.axis.spatial(6, i)
                D[vi] = A[I[vi]] + default

    return func


def test_ranges_of_indices() -> None:
    ranges = {"I": (0, 3)}
    assert equivalent(looked_up(0), looked_up(0), ranges=ranges).proved
    with pytest.raises(NotEquivalent):
        equivalent(looked_up(0), looked_up(1), ranges=ranges)
    # Without them, wild indices are left out and others are tried.
    report = equivalent(looked_up(0), looked_up(0), compiled=False)
    assert report.data and all(found.undefined and found.elements for found in report.data.values())
    with pytest.raises(NotEquivalent):
        equivalent(looked_up(0), looked_up(1), compiled=False)


def partly(rows_written: int) -> PrimFunc:
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((M,), "float32"), D: T.Buffer((M,), "float32")):
        temp = T.sblock_alloc_buffer((M,), "float32")
        for i in range(rows_written):
            with T.sblock("copy"):
                vi = T.axis.spatial(M, i)
                temp[vi] = A[vi]
        for i in range(M):
            with T.sblock("back"):
                vi = T.axis.spatial(M, i)
                D[vi] = temp[vi]

    return func


def test_unwritten_memory_after_is_a_difference_and_before_there_is_no_result() -> None:
    assert equivalent(partly(M), partly(M)).proved
    with pytest.raises(NotEquivalent, match="the function after: .*never written"):
        equivalent(partly(M), partly(M - 1))
    report = equivalent(partly(M - 1), partly(M - 1))
    assert not report.proved
    assert report.data and all(
        found.undefined and not found.elements for found in report.data.values()
    )
    assert str(report).startswith("NOT PROVED equal, and nothing was compared on data (")
    assert "undefined on" in str(report)
    proved = str(equivalent(partly(M), partly(M)))
    assert proved.startswith("proved equal") and "nothing" not in proved


def test_elements_left_alone_must_be_left_alone() -> None:
    def copied(count: int) -> PrimFunc:
        @T.prim_func(s_tir=True)
        def func(A: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")):
            for i in range(count):
                with T.sblock("copy"):
                    vi = T.axis.spatial(M, i)
                    D[vi] = A[vi]

        return func

    assert equivalent(copied(M - 1), copied(M - 1)).proved
    with pytest.raises(NotEquivalent, match=rf"D\[{M - 1}\]"):
        equivalent(copied(M), copied(M - 1))


def copied_rows() -> PrimFunc:
    @T.prim_func(s_tir=True)
    def func(a: T.handle, d: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n,), "float32")
        D = T.match_buffer(d, (n,), "float32")
        for i in range(n):
            with T.sblock("copy"):
                vi = T.axis.spatial(n, i)
                D[vi] = A[vi]

    return func


def test_parameters_must_be_the_same() -> None:
    with pytest.raises(NotEquivalent, match="parameters differ"):
        equivalent(rows(plain), rows(plain, acc="int32"))
    with pytest.raises(ValueError, match="numerics"):
        equivalent(BIAS_LAST, BIAS_LAST, numerics="fast")


def test_a_proof_refuses_what_it_cannot_compare() -> None:
    """It would take any word for "reassociate", and could prove what was not asked."""
    with pytest.raises(ValueError, match="numerics must be .*exat"):
        prove(BIAS_LAST, BIAS_FIRST, numerics="exat")
    with pytest.raises(ValueError, match=r"A \(float32, 2 dimensions\).*A \(int32, 2 dim"):
        prove(rows(plain), rows(plain, acc="int32"))
    with pytest.raises(ValueError, match="symbolic dimension n, which"):
        prove(partly(M), copied_rows())
    with pytest.raises(ValueError, match=rf"A has the shape \(1,\) and \({M},\) at .*'n': 1"):
        prove(copied_rows(), partly(M))


@pytest.mark.parametrize("compares", [equivalent, prove])
def test_what_is_no_function_is_named(compares: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match="^before must be a PrimFunc or a Schedule, not NoneType$"):
        compares(None, BIAS_FIRST)
    with pytest.raises(TypeError, match=r"^after must be .*, not IRModule: .*pass mod\[name\]$"):
        compares(BIAS_LAST, tvm.IRModule({"main": BIAS_FIRST}))
    with pytest.raises(TypeError, match="^numerics must be .*: None$"):
        compares(BIAS_LAST, BIAS_FIRST, numerics=None)
    with pytest.raises(ValueError, match="^sizes names 'm', which is not in the functions.*none$"):
        compares(BIAS_LAST, BIAS_FIRST, sizes={"m": 3})


def test_ranges_name_parameters() -> None:
    with pytest.raises(ValueError, match="^ranges names 'index', which is not .* have 'A'"):
        equivalent(BIAS_LAST, BIAS_FIRST, ranges={"index": (0, 3)})


def test_a_schedule_is_compared_and_checked_as_its_function() -> None:
    """Its function is "main", the only one, or the one that ``work_on`` named."""
    before = workloads.matmul(4, 4, 2)
    mod = tvm.IRModule({"one": before, "other": workloads.matmul(2, 2, 2)})
    sch = tvm.s_tir.Schedule(mod)
    with pytest.raises(ValueError, match=r"^after: .*no function of one, other: call sch.work_on"):
        equivalent(before, sch)
    sch.work_on("one")
    report = sch.fuse_reduction_epilogue("matmul")
    assert equivalent(tvm.s_tir.Schedule(before), sch).proved
    assert prove(before, sch)[0].status == "proved"
    assert verify.check(before, sch, report.certificate).claims
    assert list(verify.compile_function(sch).sizes) == []
    sch.work_on("other")
    with pytest.raises(NotEquivalent, match="parameters differ"):
        equivalent(before, sch)


@pytest.mark.parametrize("compares", [equivalent, prove])
def test_what_cannot_be_evaluated_is_named(compares: Callable[..., object]) -> None:
    @T.prim_func(s_tir=True)
    def calls(A: T.Buffer((4,), "float32"), D: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("copy"):
                vi = T.axis.spatial(4, i)
                D[vi] = T.call_extern("float32", "unheard_of", A[vi])

    with pytest.raises(UnsupportedError, match="call_extern"):
        compares(calls, calls)


def test_large_functions_run_compiled_only() -> None:
    def big(bias: int) -> PrimFunc:
        @T.prim_func(s_tir=True)
        def func(A: T.Buffer((512, 512), "float32"), D: T.Buffer((512, 512), "float32")):
            for i, j in T.grid(512, 512):
                with T.sblock("copy"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    D[vi, vj] = A[vi, vj] + f32(bias)

        return func

    report = equivalent(big(1), big(1))
    assert report.oracles == ("llvm",)
    assert report.data["exact"].elements == 512 * 512
    assert report.data["normal"].elements == 0
    assert report.symbolic.status == "skipped"
    with pytest.raises(NotEquivalent):
        equivalent(big(1), big(2))


@pytest.mark.parametrize("case", ACCEPT[3::20], ids=lambda case: case.name)
def test_fusions_are_equivalent(case: Case) -> None:
    before = case.scheduled().mod["main"]
    after = oracles.fuse(case)[0].mod["main"]
    report = equivalent(before, after, numerics=case.numerics, sizes=case.sizes[0])
    assert report.proved, str(report)


def test_prove_alone() -> None:
    case = BY_NAME["bias_then_relu"]
    after = oracles.fuse(case)[0].mod["main"]
    found, candidates = prove(case.func, after)
    assert found.status == "proved"
    assert found.by_normal_form == found.elements
    assert not candidates
    assert "proved" in str(found)


def test_the_same_seed_gives_the_same_data() -> None:
    other = rows(plain, start=lambda C, i, zero: C[i] + C[i])
    messages = []
    for seed in (0, 0, 1):
        with pytest.raises(NotEquivalent) as caught:
            equivalent(BIAS_LAST, other, seed=seed, compiled=False)
        messages.append(str(caught.value))
    assert messages[0] == messages[1] != messages[2]
    assert np.isfinite(float(str(caught.value.before)))
