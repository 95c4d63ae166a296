"""Conditions that couple loops, such as causal masks, become `affine_select`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from fuse_epilogue.neuron import EmitError, emit


def masked(condition: Any, otherwise: Any = None, space: str = "trn.sbuf") -> PrimFunc:
    """Write ``y[i, j] = x[i, j] if condition(i, j) else otherwise(x, i, j)`` on the chip."""

    @T.prim_func(s_tir=True)
    def func(x: T.Buffer((40, 70), "float32"), y: T.Buffer((40, 70), "float32")):
        a = T.sblock_alloc_buffer((40, 70), scope="trn.sbuf")
        b = T.sblock_alloc_buffer((40, 70), scope=space)
        c = T.sblock_alloc_buffer((40, 70), scope="trn.sbuf")
        for i in T.serial(40, annotations={"nki_dim": "P"}):
            for j in T.serial(70, annotations={"nki_dim": "F"}):
                with T.sblock("load"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    a[vi, vj] = x[vi, vj]
        for i in T.serial(40, annotations={"nki_dim": "P"}):
            for j in T.serial(70, annotations={"nki_dim": "F"}):
                with T.sblock("mask"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    b[vi, vj] = T.Select(
                        condition(vi, vj), a[vi, vj] * T.float32(2), otherwise(a, vi, vj)
                    )
        for i in T.serial(40, annotations={"nki_dim": "P"}):
            for j in T.serial(70, annotations={"nki_dim": "F"}):
                with T.sblock("copy"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    c[vi, vj] = b[vi, vj]
        for i in T.serial(40, annotations={"nki_dim": "P"}):
            for j in T.serial(70, annotations={"nki_dim": "F"}):
                with T.sblock("store"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    y[vi, vj] = c[vi, vj]

    return func


def number(a: Any, i: Any, j: Any) -> Any:
    return T.float32(-3)


CASES = {
    "causal": (lambda i, j: j <= i, lambda i, j: j <= i, 1),
    "later": (lambda i, j: j > i + 5, lambda i, j: j > i + 5, 1),
    "a band": (
        lambda i, j: T.And(j <= i * 2, i - 7 < j),
        lambda i, j: (j <= i * 2) & (i - 7 < j),
        2,
    ),
    "and a column": (lambda i, j: T.And(j <= i, j < 12), lambda i, j: (j <= i) & (j < 12), 1),
    "a diagonal": (lambda i, j: i == j, lambda i, j: i == j, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mask(name: str) -> None:
    condition, oracle, count = CASES[name]
    kernel = emit(masked(condition, number))
    kernel.check("trn1")
    x = np.random.default_rng(0).normal(size=(40, 70)).astype(np.float32)
    x[3, 5], x[4, 60] = np.nan, np.inf
    i, j = np.indices(x.shape)
    np.testing.assert_array_equal(kernel(x), np.where(oracle(i, j), x * 2, np.float32(-3)))
    assert sum(step.op == "affine_select" for step in kernel.trace().steps) == count


def test_one_loop_needs_none() -> None:
    kernel = emit(masked(lambda i, j: j < 30, number))
    assert "affine_select" not in kernel.source


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"otherwise": lambda a, i, j: a[i, j]}, "a condition couples the loops"),
        ({"otherwise": number, "space": "trn.psum"}, "goes to SBUF, not to psum"),
    ],
    ids=["no number", "PSUM"],
)
def test_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(EmitError, match=why):
        emit(masked(lambda i, j: j <= i, **options))


def loaded(index: Any, condition: Any, size: int) -> PrimFunc:
    """Load ``x[index(i, j)]`` where a condition holds, and 0 elsewhere."""

    @T.prim_func(s_tir=True)
    def func(x: T.Buffer((size,), "float32"), y: T.Buffer((10, 24), "float32")):
        a = T.sblock_alloc_buffer((10, 24), scope="trn.sbuf")
        for i in T.serial(10, annotations={"nki_dim": "P"}):
            for j in T.serial(24, annotations={"nki_dim": "F"}):
                with T.sblock("load"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    a[vi, vj] = T.if_then_else(condition(vi, vj), x[index(vi, vj)], T.float32(0))
        for i in T.serial(10, annotations={"nki_dim": "P"}):
            for j in T.serial(24, annotations={"nki_dim": "F"}):
                with T.sblock("store"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    y[vi, vj] = a[vi, vj]

    return func


@pytest.mark.parametrize(
    ("condition", "size", "inside"),
    [
        (lambda i, j: i + j < 20, 33, True),
        (lambda i, j: i + j < 20, 32, False),
        (lambda i, j: T.And(i + j < 20, j < 11), 20, True),
        (lambda i, j: T.And(i + j < 20, j < 12), 20, False),
    ],
)
def test_what_a_mask_replaces_is_loaded_as_well(condition: Any, size: int, inside: bool) -> None:
    """All is computed, and replaced where the condition does not hold: all must be there."""
    func = loaded(lambda i, j: i + j, condition, size)
    if not inside:
        with pytest.raises(EmitError, match="only a condition of several loops keeps an index"):
            emit(func)
        return
    kernel = emit(func)
    kernel.check("trn1")
    x = np.arange(1, size + 1, dtype="float32")
    i, j = np.indices((10, 24))
    held = (i + j < 20) & ((j < 11) | (size > 20))
    wanted = np.where(held, x[np.minimum(i + j, size - 1)], 0)
    np.testing.assert_array_equal(kernel(x), wanted)


@pytest.mark.parametrize("rows", [3, 39, 40])
def test_rows_that_a_number_fills_start_where_instructions_may(rows: int) -> None:
    kernel = emit(masked(lambda i, j: i < rows, number))
    kernel.check("trn2")
    x = np.random.default_rng(0).normal(size=(40, 70)).astype("float32")
    below = np.arange(40)[:, None] < rows
    np.testing.assert_array_equal(kernel(x), np.where(below, 2 * x, np.float32(-3)))


OTHER_CONDITIONS = {
    "all columns but one": lambda i, j, any_, all_: j != 5,
    "one of two rows": lambda i, j, any_, all_: any_(i < 3, i == 37),
    "not a range": lambda i, j, any_, all_: all_(j < 60, any_(j > 40, i != 0)),
}


@pytest.mark.parametrize("name", OTHER_CONDITIONS)
def test_conditions_that_are_not_conjunctions(name: str) -> None:
    condition = OTHER_CONDITIONS[name]
    kernel = emit(masked(lambda i, j: condition(i, j, T.Or, T.And), number))
    x = np.random.default_rng(0).normal(size=(40, 70)).astype("float32")
    places = np.arange(40)[:, None], np.arange(70)[None]
    holds = condition(*places, np.logical_or, np.logical_and)
    np.testing.assert_array_equal(kernel(x), np.where(holds, 2 * x, np.float32(-3)))


def test_rows_above_stay_where_their_own_start_is_allowed() -> None:
    kernel = emit(masked(lambda i, j: i >= 32, number))
    kernel.check("trn2")
    assert "memset(b[0:32, 0:70], -3.0)" in kernel.source
