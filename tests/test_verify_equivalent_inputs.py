"""Equivalence of functions: parameters, sizes, ranges, and programs that are wrong themselves."""

from __future__ import annotations

from collections.abc import Callable

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
from programs import ACCEPT, Case
from rows_of_sums import (
    BIAS_FIRST,
    BIAS_LAST,
    M,
    f32,
    plain,
    rows,
)
from tiers import one_in

Compares = Callable[..., object]


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
    for large in (2**28, 2**31 - 1):
        with pytest.raises(ValueError, match=f"^'A' has {2 * large:,} elements, too many"):
            equivalent(doubled(0), doubled(1), sizes={"n": large})


def looked_up(default: int) -> PrimFunc:
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((4,), "int32"), I: T.Buffer((6,), "int32"), D: T.Buffer((6,), "int32")):
        for i in range(6):
            with T.sblock("look"):
                vi = T.axis.spatial(6, i)
                D[vi] = A[I[vi]] + default

    return func


@T.prim_func(s_tir=True)
def divided_by_its_size(a: T.handle, d: T.handle, n: T.int32):
    A = T.match_buffer(a, (n,), "int32")
    D = T.match_buffer(d, (n,), "int32")
    for i in range(n):
        with T.sblock("divide"):
            vi = T.axis.spatial(n, i)
            D[vi] = T.if_then_else(n > 1, T.truncdiv(A[vi], n - 1), 7)


def test_a_size_that_is_passed_as_a_number_too() -> None:
    report = equivalent(divided_by_its_size, divided_by_its_size, sizes={"n": 3})
    assert report.data["exact"].elements and report.oracles == ("llvm", "evaluator")


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
    sizes = r"number 1 is 'A: float32\[5, 4\]' before, 'A: int32\[5, 4\]' after"
    with pytest.raises(NotEquivalent, match=f"parameters differ: {sizes}"):
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
def test_what_is_no_function_is_named(compares: Compares) -> None:
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
def test_what_cannot_be_evaluated_is_named(compares: Compares) -> None:
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


@pytest.mark.parametrize("case", one_in(3, ACCEPT[3::20], lambda case: case.name))
def test_fusions_are_equivalent(case: Case) -> None:
    before = case.scheduled().mod["main"]
    after = oracles.fuse(case)[0].mod["main"]
    report = equivalent(before, after, numerics=case.numerics, sizes=case.sizes[0])
    assert report.proved, str(report)


def test_a_parameter_that_one_has_alone_is_named() -> None:
    @T.prim_func(s_tir=True)
    def fewer(A: T.Buffer((4,), "int32")):
        A[0] = 1

    @T.prim_func(s_tir=True)
    def more(A: T.Buffer((4,), "int32"), B: T.Buffer((2,), "int32")):
        A[0] = B[0]

    with pytest.raises(NotEquivalent, match=r"number 2 is missing before, 'B: int32\[2\]' after"):
        equivalent(fewer, more)
