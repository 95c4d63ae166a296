"""Vectors of one length share their variable when a model is lowered; other loops keep theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
import tvm.ir.instrument
from tvm import tirx
from tvm.script import tirx as T

from fuse_epilogue.tir.walk import handle, parts_of
from fuse_epilogue.transform.shared_lanes import keeping_lanes, share_lanes


@T.prim_func(s_tir=True)
def vectors(x: T.Buffer((24,), "float32"), y: T.Buffer((24,), "float32")) -> None:
    for first in T.vectorized(8):
        y[first] = x[first] + T.float32(1)
    for second in T.vectorized(8):
        y[second + 8] = x[second + 8] * T.float32(2)
    for third in T.vectorized(4):
        y[third + 16] = x[third + 16]
    for i in range(4):
        y[i + 20] = x[i]
    for j in range(4):
        y[j + 20] = y[j + 20] - x[j + 20]


def variables(mod: tvm.IRModule) -> list[Any]:
    return [handle(loop.loop_var) for loop in parts_of(mod["main"].body, tirx.For)]


def test_vectors_of_one_length_have_one_variable() -> None:
    mod = tvm.IRModule({"main": vectors})
    shared = share_lanes(mod)
    assert len(set(variables(mod))) == len(variables(mod)) == 5
    first, second, *others = variables(shared)
    assert first == second and len({first, *others}) == 4
    x = np.arange(24, dtype="float32")
    y = tvm.runtime.tensor(np.zeros(24, "float32"))
    with keeping_lanes():
        tvm.compile(shared, target="llvm")["main"](tvm.runtime.tensor(x), y)
    right = np.concatenate([x[:8] + 1, x[8:16] * 2, x[16:20], x[:4] - x[20:]])
    assert np.array_equal(y.numpy(), right)


@T.prim_func(s_tir=True)
def nested(x: T.Buffer((8, 8), "float32"), y: T.Buffer((8, 8), "float32")) -> None:
    for i in T.vectorized(8):
        for j in T.vectorized(8):
            y[i, j] = x[i, j]


def test_a_vector_in_a_vector_has_its_own_variable() -> None:
    mod = tvm.IRModule({"main": nested})
    tvm.ir.assert_structural_equal(share_lanes(mod), mod)


def test_they_share_it_until_tvm_makes_vectors() -> None:
    renaming = tvm.s_tir.transform.InjectSoftwarePipeline()
    shared = share_lanes(tvm.IRModule({"main": vectors}))
    assert len(set(variables(renaming(shared)))) == 5
    with tvm.transform.PassContext(opt_level=1, config={"tirx.disable_cse_tir": True}):
        with keeping_lanes() as context:
            assert context.opt_level == 1 and context.config["tirx.disable_cse_tir"]
            assert len(set(variables(tvm.transform.Sequential([renaming])(shared)))) == 4


def test_instruments_go_on_measuring() -> None:
    timing = tvm.ir.instrument.PassTimingInstrument()
    with tvm.transform.PassContext(instruments=[timing]):
        with keeping_lanes():
            tvm.compile(tvm.IRModule({"main": vectors}), target="llvm")
        assert "FlattenBuffer" in timing.render()
