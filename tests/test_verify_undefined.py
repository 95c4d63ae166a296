"""Functions that divide by zero or leave their buffers for some data: there is always a verdict."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import s_tir
from tvm.script import tirx as T
from tvm.tirx import For, PrimFunc
from tvm.tirx.stmt import ForKind

from fuse_epilogue.verify import EvaluationError, NotEquivalent, compile_function, equivalent
from fuse_epilogue.verify.evaluation.compiled import Compiled, without_threads
from fuse_epilogue.verify.evaluation.isolated import Died, run_isolated
from fuse_epilogue.verify.evaluation.scalars import UnsupportedError
from fuse_epilogue.verify.evaluation.watched import REPORT, watched
from tiers import crossed

Value = Callable[..., Any]
if_then_else, truncdiv, Select = T.if_then_else, T.truncdiv, T.Select


def mapped(value: Value, rows: int = 2, dtype: str = "int32") -> PrimFunc:
    """D[i, j] = value(A[i, j], C, S, j), where S is shorter than C."""

    @T.prim_func(s_tir=True)
    def func(
        A: T.Buffer((rows, 8), dtype),
        C: T.Buffer((8,), "int32"),
        S: T.Buffer((3,), dtype),
        D: T.Buffer((rows, 8), dtype),
    ):
        for i, j in T.grid(rows, 8):
            with T.sblock("map"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = value(A[vi, vj], C, S, vj)

    return func


def guarded(a: Any, C: Any, S: Any, j: Any) -> Any:
    return if_then_else(C[j] != 0, a + truncdiv(1000, C[j]), 0)


def short(a: Any, C: Any, S: Any, j: Any) -> Any:
    return if_then_else(j < 3, a + S[j], 0)


def gathered(a: Any, C: Any, S: Any, j: Any) -> Any:
    return if_then_else(C[j] >= 0, if_then_else(C[j] < 3, a + S[C[j]], 0), 0)


LOWEST = T.int32(-(1 << 31))

# The function before, and one that computes the same values, and more than that.
TRAPS: dict[str, tuple[Value, Value, str]] = {
    "division": (
        guarded,
        lambda a, C, S, j: (a + truncdiv(1000, C[j])) * T.cast(C[j] != 0, "int32"),
        "divided by zero",
    ),
    "short": (short, lambda a, C, S, j: (a + S[j]) * T.cast(j < 3, "int32"), "out of bounds"),
    "gather": (
        gathered,
        lambda a, C, S, j: (a + S[C[j]]) * T.cast(T.And(C[j] >= 0, C[j] < 3), "int32"),
        "out of bounds",
    ),
    "quotient": (
        lambda a, C, S, j: if_then_else(C[j] | 1 != -1, truncdiv(LOWEST, C[j] | 1), 0),
        lambda a, C, S, j: truncdiv(LOWEST, C[j] | 1) * T.cast(C[j] | 1 != -1, "int32"),
        "the quotient overflows",
    ),
}


@pytest.mark.parametrize("what", TRAPS)
def test_a_trap_after_is_a_difference(what: str) -> None:
    before, after, reason = TRAPS[what]
    with pytest.raises(NotEquivalent, match=f"the function after: .*{reason}"):
        equivalent(mapped(before), mapped(after))
    report = equivalent(mapped(before), mapped(before))
    assert report.data and all(found.elements for found in report.data.values())


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_a_trap_before_leaves_data_out(dtype: str) -> None:
    """LLVM evaluates both operands of "and": some data have no result."""

    def both(a: Any, C: Any, S: Any, j: Any) -> Any:
        decided = T.And(C[j] != 0, truncdiv(9, C[j]) > T.cast(a, "int32"))
        return T.cast(decided, dtype)

    before = mapped(both, dtype=dtype)
    report = equivalent(before, before)
    assert any(found.undefined for found in report.data.values())
    assert report.data and all(found.elements for found in report.data.values())
    with pytest.raises(NotEquivalent):
        equivalent(before, mapped(lambda *args: both(*args) + T.cast(1, dtype), dtype=dtype))


def assuming(factor: int, more: int = 0) -> PrimFunc:
    """D = A / n + more, for positive n; for others it depends on the factor."""

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((2, 8), "int32"), n: T.int32, D: T.Buffer((2, 8), "int32")):
        T.evaluate(T.assume(n > 0))
        for i, j in T.grid(2, 8):
            with T.sblock("map"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = T.truncdiv(A[vi, vj], T.max(n, 1)) + T.min(n, 0) * factor + more

    return func


def test_data_on_which_an_assumption_does_not_hold_is_left_out() -> None:
    report = equivalent(assuming(1), assuming(2))
    assert any(found.undefined for found in report.data.values())
    assert report.data and all(found.elements for found in report.data.values())
    with pytest.raises(NotEquivalent):
        equivalent(assuming(1), assuming(1, 1))


@pytest.mark.parametrize(("n", "holds"), [(3, True), (0, False)])
def test_assumptions_are_watched(n: int, holds: bool) -> None:
    assert compile_function(assuming(1)).partial
    arrays = {"A": np.ones((2, 8), "int32"), "n": np.int32(n), "D": np.zeros((2, 8), "int32")}
    report = Compiled([watched(assuming(1))]).run(0, {**arrays, REPORT: np.zeros(1, "int32")})
    assert bool(report[REPORT][0]) != holds


def test_floats_whose_operands_are_undefined() -> None:
    """Bounds of a value that is not taken may be anything."""
    for value in (guarded, gathered):
        report = equivalent(mapped(value, dtype="float32"), mapped(value, dtype="float32"))
        assert report.data and all(
            found.elements and not found.open for found in report.data.values()
        )


LARGE = 1 << 14


@pytest.mark.full
@pytest.mark.parametrize("what", TRAPS)
def test_large_functions_are_watched(what: str) -> None:
    """Too large for the evaluator: the process would end, or read garbage."""
    before, after, _ = TRAPS[what]
    with pytest.raises(NotEquivalent, match=r"the function after: it accesses .* or divides"):
        equivalent(mapped(before, LARGE), mapped(after, LARGE))
    report = equivalent(mapped(before, LARGE), mapped(before, LARGE))
    assert report.oracles == ("llvm",)
    assert report.data and all(found.elements for found in report.data.values())


def select(a: Any, C: Any, S: Any, j: Any) -> Any:
    return Select(j < 3, a + S[j], 0)


@pytest.mark.parametrize(
    ("value", "defined"),
    [
        (guarded, True),
        (gathered, True),
        (select, True),
        # Nothing is loaded: LLVM's select computes both.
        (lambda a, C, S, j: Select(j != 0, truncdiv(5, j), 0), False),
        (lambda a, C, S, j: a + S[j], False),
        (lambda a, C, S, j: T.shift_left(1, C[j]), False),
    ],
)
def test_watched_functions_report(value: Value, defined: bool) -> None:
    """The evaluator and the watched code say the same."""
    func = mapped(value)
    arrays: dict[str, Any] = {
        "A": np.ones((2, 8), "int32"),
        "C": np.array([0, -1, 99, 1, 2, 5, -(1 << 31), 0], "int32"),
        "S": np.ones(3, "int32"),
        "D": np.zeros((2, 8), "int32"),
    }
    report = Compiled([watched(func)]).run(0, {**arrays, REPORT: np.zeros(1, "int32")})
    assert int(report[REPORT][0]) == 1 - defined
    program = compile_function(func)
    if defined:
        program.run(arrays)
        assert np.array_equal(report["D"], arrays["D"])
    else:
        with pytest.raises(EvaluationError):
            program.run(arrays)


def test_what_cannot_be_watched_is_not_run() -> None:
    @T.prim_func(s_tir=True)
    def func(C: T.Buffer((8,), "int32"), D: T.Buffer((8,), "int32")):
        for i in range(8):
            with T.sblock("map"):
                vi = T.axis.spatial(8, i)
                T.where(C[i] > 0)
                D[vi] = truncdiv(9, C[vi])

    with pytest.raises(UnsupportedError, match="depends on data"):
        watched(func)


# ---- Overflow, and code that ends the process ----------------------------------------------------


OVERFLOWS: dict[str, Value] = {
    "sum, then comparison": lambda a, C, S, j: T.cast(a + 1 > a, "int32"),
    "sum of data, then comparison": lambda a, C, S, j: T.cast(a + C[j] > a, "int32"),
    "product, then quotient": lambda a, C, S, j: truncdiv(a * 3, 3),
    "sum, then wider": lambda a, C, S, j: T.cast(T.cast(a + C[j], "int64") // T.int64(3), "int32"),
    "product of an axis, then wider": lambda a, C, S, j: T.cast(
        T.cast(if_then_else(C[j] == a, j, j * 500000000), "int64") // T.int64(3), "int32"
    ),
}


@pytest.mark.parametrize("what", OVERFLOWS)
def test_what_llvm_makes_of_an_overflow_is_no_difference(what: str) -> None:
    """LLVM folds ``a + 1 > a``: the machine's numbers do not wrap there, and nothing is defined."""
    func = mapped(OVERFLOWS[what])
    report = equivalent(func, func)
    assert sum(found.undefined for found in report.data.values()) > 0
    assert report.data and all(found.elements for found in report.data.values())
    with pytest.raises(NotEquivalent):
        equivalent(func, mapped(lambda *args: OVERFLOWS[what](*args) + 1))


@T.prim_func(s_tir=True)
def widened(A: T.Buffer((4, 8), "int32"), D: T.Buffer((4,), "int64")):
    temp = T.sblock_alloc_buffer((4,), "int32")
    for i, k in T.grid(4, 8):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(4):
        with T.sblock("wider"):
            vi = T.axis.spatial(4, i)
            D[vi] = T.cast(temp[vi], "int64") * T.int64(3)


def test_a_sum_that_overflows_may_be_widened_before() -> None:
    """LLVM adds in 64 bits what is not stored in between; a sum of smaller numbers is compared."""
    sch = s_tir.Schedule(widened)
    sch.fuse_reduction_epilogue("sum")
    report = equivalent(widened, sch)
    assert report.proved and report.data["exact"].elements


def test_an_overflow_after_alone_is_a_difference() -> None:
    """Numbers that wrap are equal, LLVM's code is not: a fusion must not show LLVM that."""
    before = mapped(lambda a, C, S, j: T.cast(a ^ LOWEST != -1, "int32"))
    after = mapped(lambda a, C, S, j: T.cast(a + 1 > a, "int32"))
    with pytest.raises(NotEquivalent, match="by compiled code"):
        equivalent(before, after)
    assert equivalent(before, after, compiled=False).symbolic.status != "refuted"


def test_checked_arithmetic_raises_where_integers_overflow() -> None:
    def run(value: Value, dtype: str, content: int) -> Any:
        arrays = {
            "A": np.full((1, 8), content, dtype),
            "C": np.zeros(8, "int32"),
            "S": np.zeros(3, dtype),
            "D": np.zeros((1, 8), dtype),
        }
        compile_function(mapped(value, 1, dtype), "checked").run(arrays)
        return arrays["D"][0, 0]

    for dtype in ("int32", "int64"):
        most = int(np.iinfo(dtype).max)
        one, two = T.IntImm(dtype, 1), T.IntImm(dtype, 2)
        assert run(lambda a, *_, one=one: a + one, dtype, most - 1) == most
        assert run(lambda a, *_, one=one: one - a, dtype, most) == 1 - most
        for value in (
            lambda a, *_, one=one: a + one,
            lambda a, *_, two=two: a * two,
            lambda a, *_, two=two: -two - a,
        ):
            with pytest.raises(EvaluationError, match="overflows"):
                run(value, dtype, most)
    # LLVM is told the same of numbers without a sign. Narrower ones wrap.
    assert run(lambda a, *_: a + T.int8(1), "int8", 127) == -128
    assert run(lambda a, *_: a + T.uint16(1), "uint16", (1 << 16) - 1) == 0
    with pytest.raises(EvaluationError, match="overflows"):
        run(lambda a, *_: a + T.uint32(1), "uint32", (1 << 32) - 1)


@crossed(dies=[(0,), (1,), (0, 1)], rows=[2, LARGE])
def test_code_that_ends_the_process(
    dies: tuple[int, ...], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What TVM makes of a function may trap where the function as written does not."""
    run = Compiled.run

    def trap(self: Compiled, place: int, arrays: Any) -> Any:
        if place in dies and REPORT not in arrays:
            os.kill(os.getpid(), signal.SIGFPE)
        return run(self, place, arrays)

    monkeypatch.setattr(Compiled, "run", trap)
    if dies == (1,):
        with pytest.raises(NotEquivalent, match="the function after: .* by SIGFPE"):
            equivalent(mapped(guarded, rows), mapped(guarded, rows))
        return
    report = equivalent(mapped(guarded, rows), mapped(guarded, rows))
    assert report.data and all(
        found.undefined and not found.elements for found in report.data.values()
    )


def test_a_child_returns_raises_or_is_ended() -> None:
    assert np.array_equal(run_isolated(lambda: np.arange(1 << 18)), np.arange(1 << 18))
    with pytest.raises(Died, match="raises ValueError: invalid"):
        run_isolated(lambda: int("no"))
    with pytest.raises(Died, match="SIGSEGV"):
        run_isolated(lambda: ctypes.string_at(0))
    with pytest.raises(Died, match="does not end within 1 s"):
        run_isolated(lambda: time.sleep(30), limit=1)


def test_a_handler_of_this_process_does_not_keep_a_child_alive() -> None:
    before = signal.signal(signal.SIGFPE, signal.SIG_IGN)
    try:
        with pytest.raises(Died, match="SIGFPE"):
            run_isolated(lambda: os.kill(os.getpid(), signal.SIGFPE))
    finally:
        signal.signal(signal.SIGFPE, before)


def test_parallel_loops_run_in_a_child() -> None:
    """A child has none of TVM's threads: loops that wait for them would not end."""

    @T.prim_func(s_tir=True)
    def func(C: T.Buffer((8,), "int32"), D: T.Buffer((8,), "int32")):
        for i in T.parallel(8):
            with T.sblock("map"):
                vi = T.axis.spatial(8, i)
                D[vi] = if_then_else(C[vi] != 0, truncdiv(9, C[vi]), 0)

    loops: list[Any] = []
    tvm_ffi.structural_walk(without_threads(func).body, (For, loops.append))
    assert [loop.kind for loop in loops] == [ForKind.SERIAL]
    report = equivalent(func, func)
    assert report.data and all(found.elements for found in report.data.values())


def test_what_tvm_does_not_compile() -> None:
    """TVM folds a division by an axis of one value, although nothing evaluates it."""

    def func(divides: bool, rows: int = 4) -> PrimFunc:
        @T.prim_func(s_tir=True)
        def main(A: T.Buffer((rows, 1), "int32"), D: T.Buffer((rows, 1), "int32")):
            for i, j in T.grid(rows, 1):
                with T.sblock("map"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    D[vi, vj] = if_then_else(vj > 0, truncdiv(9, vj if divides else 2), A[vi, vj])

        return main

    assert equivalent(func(True), func(True)).oracles == ("evaluator",)
    assert equivalent(func(True), func(False)).oracles == ("evaluator",)
    with pytest.raises(NotEquivalent, match="the function after: TVM does not compile it"):
        equivalent(func(False), func(True))
    large = equivalent(func(True, 8 * LARGE), func(True, 8 * LARGE))
    assert large.oracles == () and "not run" in str(large) and not large.proved
