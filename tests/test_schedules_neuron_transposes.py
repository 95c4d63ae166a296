"""Transpositions on Trainium: every element in its place, in long pieces."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import s_tir, te, topi

from conv_traces import stored
from fuse_epilogue import schedules
from fuse_epilogue.neuron import emit
from fuse_epilogue.schedules.neuron import Elementwise, Transpose
from neuron_rules import kernel_by

DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16}
CASES = [
    ((256, 512), (1, 0), "float32"),
    ((7, 100), (1, 0), "bfloat16"),
    ((1, 128), (1, 0), "float32"),
    ((640, 384), (1, 0), "bfloat16"),
    ((2, 128, 3, 64), (0, 2, 3, 1), "float32"),
    ((3, 256, 128), (2, 0, 1), "float32"),
    ((3, 128, 5), (2, 1, 0), "float32"),
]


def transposed(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str = "float32") -> Any:
    x = te.placeholder(shape, dtype, "x")
    return te.create_prim_func([x, topi.transpose(x, axes)])


@pytest.mark.parametrize(("shape", "axes", "dtype"), CASES, ids=str)
def test_every_element_is_in_its_place(
    shape: tuple[int, ...], axes: tuple[int, ...], dtype: str
) -> None:
    kernel = kernel_by(Transpose(), transposed(shape, axes, dtype))
    x = np.arange(np.prod(shape)).reshape(shape).astype(DTYPES[dtype])
    x.flat[0] = -0.0
    x.flat[-1] = np.inf
    got = kernel(x)
    assert got.tobytes() == np.ascontiguousarray(x.transpose(axes)).tobytes()


@pytest.mark.parametrize(
    ("func", "why"),
    [
        (transposed((4, 8, 16), (1, 0, 2)), "the last axis stays the last"),
        (transposed((64, 300), (1, 0)), "an axis of 300 is neither"),
        (transposed((64, 64), (0, 1)), "the last axis stays the last"),
    ],
    ids=["rows", "ragged", "nothing"],
)
def test_refused(func: Any, why: str) -> None:
    choice = Transpose().choose(func, "trn2")
    assert choice.schedule is None
    assert why in choice.why


def test_what_computes_is_refused() -> None:
    x = te.placeholder((64, 64), "float32", "x")
    doubled = te.compute((64, 64), lambda i, j: x[j, i] * 2)
    diagonal = te.compute((64, 64), lambda i, j: x[j, j])
    for out, why in ((doubled, "it computes something"), (diagonal, "does not read a permutation")):
        assert why in Transpose().choose(te.create_prim_func([x, out]), "trn2").why


def test_on_trn1_data_must_be_finite() -> None:
    """Its tensor engine multiplies with the identity."""
    func = transposed((128, 128), (1, 0))
    assert "Transpose(finite=True)" in Transpose().choose(func, "trn1").why
    assert Transpose(finite=True).choose(func, "trn1").schedule is not None
    # What is left there moves element by element, and says so.
    choice = Elementwise().choose(func, "trn1")
    assert choice.schedule is not None
    assert "it reads 'x' element by element" in choice.why
    assert not Elementwise().choose(transposed((128, 128), (0, 1)), "trn1").why


def test_apply_takes_long_pieces() -> None:
    func = transposed((256, 512), (1, 0))
    kernel = emit(schedules.apply(func, "trn2"))
    sch = Elementwise().apply(func, "trn2")
    assert sch is not None
    assert kernel.predict("trn2").latency_ms < 0.012
    assert emit(sch).predict("trn2").latency_ms > 10 * kernel.predict("trn2").latency_ms


def test_the_trace_replays() -> None:
    func = transposed((256, 640), (1, 0))
    sch = Transpose().apply(func, "trn2")
    assert sch is not None
    again = s_tir.Schedule(func)
    s_tir.schedule.Trace.apply_json_to_schedule(stored(sch), again)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)
