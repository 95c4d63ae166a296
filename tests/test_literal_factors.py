"""Literal factors that their type does not hold, or whose product it does not.

Folded into one literal, such factors would turn the terms into zeros or infinities.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import tirx
from tvm.s_tir import Schedule
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from oracles import compile_together, run
from programs import Case
from programs.builders import M, literal, rows_then
from programs.monoids import DEPTH

pytestmark = pytest.mark.cpp


def scaled_sum(dtype: str, first: float, second: float) -> PrimFunc:
    """``D[i] = sum(A[i, k] * first) * second``."""
    return rows_then(
        lambda x, c, e: tirx.Mul(x, literal(second, dtype)),
        update=lambda acc, t: acc + t * literal(first, dtype),
        acc=dtype,
        depth=DEPTH,
    ).func


def scaled_max(dtype: str, make: Any, operand: float) -> PrimFunc:
    """``D[i] = make(max(A[i, k]), operand)``."""
    return rows_then(
        lambda x, c, e: make(x, literal(operand, dtype)),
        update=lambda acc, t: T.max(acc, t),
        start=-1.0,
        acc=dtype,
        depth=DEPTH,
    ).func


# The type, two factors, and data with which every step of the program as written is normal.
UNHELD = [
    ("float32", 1e-30, 1e-30, 1e35),
    ("float32", 1e30, 1e30, 1e-35),
    ("float32", -1.5e-23, 1e-22, 1e38),
    ("float64", 1e-200, 1e-200, 1e300),
    ("float64", 1e200, -1e200, 1e-290),
]
HELD = [
    ("float32", 0.5, 0.25, 1.0),
    ("float32", 1e30, 1e-30, 1.0),
    ("float64", 1e-200, 1e-100, 1e200),
]


@pytest.mark.parametrize(("dtype", "first", "second", "size"), UNHELD)
@pytest.mark.parametrize("distribute", [False, True])
def test_factors_are_folded_only_if_their_type_holds_the_product(
    dtype: str, first: float, second: float, size: float, distribute: bool
) -> None:
    before = scaled_sum(dtype, first, second)
    sch = Schedule(before)
    (step,) = sch.fuse_reduction_epilogue("mm", distribute=distribute).steps
    if distribute:
        # Both factors are there, one after the other.
        assert step.distributed
        return
    assert (step.distributed, bool(step.tail)) == ("", True)
    rows = np.arange(1, DEPTH + 1, dtype=dtype) / DEPTH * np.asarray(size, dtype)
    inputs = {name: np.zeros(M, dtype) for name in "CED"}
    inputs["A"] = np.tile(rows, (M, 1))
    exact = sum(np.longdouble(x) for x in rows) * np.longdouble(first) * np.longdouble(second)
    assert np.isfinite(exact) and exact != 0
    built = compile_together({"before": before, "after": sch.mod["main"]})
    for name in ("before", "after"):
        got = run(built[name], Case(name=name, func=before), inputs, {})["D"]
        np.testing.assert_allclose(got, float(exact), rtol=1e-5)


@pytest.mark.parametrize(("dtype", "first", "second", "size"), HELD)
def test_factors_are_folded_if_their_type_holds_the_product(
    dtype: str, first: float, second: float, size: float
) -> None:
    sch = Schedule(scaled_sum(dtype, first, second))
    (step,) = sch.fuse_reduction_epilogue("mm").steps
    assert step.distributed
    assert not step.tail


@pytest.mark.parametrize("make", [tirx.Mul, tirx.Div])
@pytest.mark.parametrize("operand", [float("inf"), float("-inf"), float("nan"), 0.0, 1e-50])
def test_what_is_no_number_to_scale_by_stays_behind_the_reduction(
    make: Any, operand: float
) -> None:
    if make is tirx.Div and operand == 0:
        pytest.skip("TVM does not print a division by the literal 0, whoever asks for it")
    for func in (
        scaled_max("float32", make, operand),
        rows_then(
            lambda x, c, e: make(x, literal(operand, "float32")),
            update=lambda acc, t: acc + t,
            acc="float32",
            depth=DEPTH,
        ).func,
    ):
        (step,) = Schedule(func).fuse_reduction_epilogue("mm", distribute=True).steps
        assert (step.distributed, bool(step.tail)) == ("", True)
