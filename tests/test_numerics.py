"""What ``numerics`` promises: bit for bit, or within the bound that any order of additions has.

`test_corpus.py` has both for every program.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

import fuse_epilogue
from oracles import (
    accumulator,
    compile_together,
    fused,
)
from programs import BY_NAME
from programs.builders import literal


def sums_of(count: int, dtype: str, *, absorbed: bool = False) -> PrimFunc:
    """Two sums of `count` numbers in `dtype` plus C: in two blocks, or with C as the first term."""
    if absorbed:

        @T.prim_func(s_tir=True)
        def one_block(
            A: T.Buffer((2, count), dtype), C: T.Buffer((2,), dtype), D: T.Buffer((2,), dtype)
        ):
            for i, k in T.grid(2, count):
                with T.sblock("sum"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        D[vi] = C[vi]
                    D[vi] = D[vi] + A[vi, vk]

        return one_block

    @T.prim_func(s_tir=True)
    def two_blocks(
        A: T.Buffer((2, count), dtype), C: T.Buffer((2,), dtype), D: T.Buffer((2,), dtype)
    ):
        temp = T.sblock_alloc_buffer((2,), dtype)
        for i, k in T.grid(2, count):
            with T.sblock("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = literal(0, dtype)
                temp[vi] = temp[vi] + A[vi, vk]
        for i in range(2):
            with T.sblock("add"):
                vi = T.axis.spatial(2, i)
                D[vi] = temp[vi] + C[vi]

    return two_blocks


def value_of(func: PrimFunc, terms: list[float], bias: float, dtype: str) -> float:
    built = compile_together({"f": func})["f"]
    out = tvm.runtime.tensor(np.zeros(2, dtype))
    built(*(tvm.runtime.tensor(np.array(x, dtype)) for x in ([terms] * 2, [bias] * 2)), out)
    return float(out.numpy()[1])


def test_the_example_of_the_documentation() -> None:
    terms, bias = [1e8, 1.0, -1e8], 0.5
    as_written = sums_of(3, "float32")
    results = {}
    for numerics in ("reassociate", "exact"):
        sch = Schedule(as_written, debug_mask="all")
        sch.fuse_reduction_epilogue("sum", numerics=numerics)
        results[numerics] = value_of(sch.mod["main"], terms, bias, "float32")
    assert value_of(as_written, terms, bias, "float32") == 0.5
    assert results == {"reassociate": 0.0, "exact": 0.5}
    bound = 4 * 2**-24 * (2e8 + 1.5)
    assert abs(results["reassociate"] - 1.5) <= bound


# ---------------------------------------------------------------------------------------------
# Accumulators of 16 bits
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_why_short_accumulators_are_refused(dtype: str) -> None:
    """Terms of 1 vanish beside a bias of 4096, and make 16 when they are added first."""
    terms, bias = [1.0] * 16, 4096.0
    first = value_of(sums_of(16, dtype, absorbed=True), terms, bias, dtype)
    last = value_of(sums_of(16, dtype), terms, bias, dtype)
    assert first == 4096.0
    assert last == (4112.0 if dtype == "float16" else 4096.0)
    # So far apart that the order of so few terms does not matter, in single precision.
    assert value_of(sums_of(16, "float32", absorbed=True), terms, bias, "float32") == 4112.0


@pytest.mark.cpp
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_bias_of_a_short_sum_is_a_tail_and_the_report_says_why(dtype: str) -> None:
    sch, exact = Schedule(sums_of(4, dtype)), Schedule(sums_of(4, dtype))
    [step] = sch.fuse_reduction_epilogue("sum").steps
    exact.fuse_reduction_epilogue("sum", numerics="exact")
    tvm.ir.assert_structural_equal(sch.mod, exact.mod)
    assert not step.absorbed
    assert f"small terms of a {dtype} sum" in step.reason


@pytest.mark.parametrize("name", ["float16_max", "bfloat16_min", "float16_sum_relu"])
def test_short_accumulators_that_lose_nothing_are_not_refused(name: str) -> None:
    assert accumulator(BY_NAME[name]) in {"float16", "bfloat16"}
    assert fused(name)[1].fusable


# ---------------------------------------------------------------------------------------------
# The argument
# ---------------------------------------------------------------------------------------------


@pytest.mark.cpp
@pytest.mark.parametrize("numerics", ["fast", "", None, True, "Exact"])
def test_there_are_only_two(numerics: Any) -> None:
    sch = BY_NAME["bias_then_relu"].scheduled()
    module = sch.mod
    error = ValueError if isinstance(numerics, str) else TypeError
    with pytest.raises(error, match="reassociate"):
        sch.fuse_reduction_epilogue("mm", numerics=numerics)
    with pytest.raises(error, match="reassociate"):
        fuse_epilogue.analyze(sch, "mm", numerics=numerics)
    assert sch.mod.same_as(module)
    assert not sch.trace.insts
