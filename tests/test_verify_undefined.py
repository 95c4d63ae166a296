"""Functions that divide by zero or leave their buffers for some data: there is always a verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from fuse_epilogue.verify import EvaluationError, NotEquivalent, compile_function, equivalent
from fuse_epilogue.verify.compiled import Compiled
from fuse_epilogue.verify.scalars import UnsupportedError
from fuse_epilogue.verify.watched import REPORT, watched

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
    assert all(found.elements for found in report.data.values())


def test_a_trap_before_leaves_data_out() -> None:
    """LLVM evaluates both operands of "and": some data have no result."""

    def both(a: Any, C: Any, S: Any, j: Any) -> Any:
        return T.cast(T.And(C[j] != 0, truncdiv(9, C[j]) > a), "int32")

    report = equivalent(mapped(both), mapped(both))
    assert any(found.undefined for found in report.data.values())
    assert all(found.elements for found in report.data.values())
    with pytest.raises(NotEquivalent):
        equivalent(mapped(both), mapped(lambda *args: both(*args) + 1))


def test_floats_whose_operands_are_undefined() -> None:
    """Bounds of a value that is not taken may be anything."""
    for value in (guarded, gathered):
        report = equivalent(mapped(value, dtype="float32"), mapped(value, dtype="float32"))
        assert all(found.elements and not found.open for found in report.data.values())


LARGE = 1 << 14


@pytest.mark.parametrize("what", TRAPS)
def test_large_functions_are_watched(what: str) -> None:
    """Too large for the evaluator: the process would end, or read garbage."""
    before, after, _ = TRAPS[what]
    with pytest.raises(NotEquivalent, match=r"the function after: it accesses .* or divides"):
        equivalent(mapped(before, LARGE), mapped(after, LARGE))
    report = equivalent(mapped(before, LARGE), mapped(before, LARGE))
    assert report.oracles == ("llvm",)
    assert all(found.elements for found in report.data.values())


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
