"""What ``numerics`` promises: bit for bit, or within the bound that any order of additions has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

import fuse_epilogue
from oracles import (
    Builds,
    accumulator,
    assert_identical,
    check_identical,
    compile_together,
    fuse,
    fused,
    make_inputs,
    parameters,
    run,
)
from programs import ACCEPT, BY_NAME, Case
from programs.builders import literal


def computes_with_floats(case: Case) -> bool:
    types = {param.dtype for param in parameters(case.func, case.sizes[0])}
    return any("float" in dtype for dtype in types)


def each(cases: list[Case]) -> Any:
    return pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in cases])


FLOATING = [case for case in ACCEPT if computes_with_floats(case)]
OF_INTEGERS = [case for case in ACCEPT if "float" not in accumulator(case)]

# In these the schedule has done what an exact call could do.
IN_PLACE = {
    "conv2d_to_channels_first",
    *("tail_reduction_outermost", "tail_reduction_outermost_of_columns"),
    *("tail_spatial_loops_fused_inside", "tail_epilogue_in_the_row"),
    *(
        f"{prefix}{steps}"
        for prefix in ("", "tail_")
        for steps in (
            "reduction_axis_outside",
            "epilogue_at_element",
            "epilogue_at_middle_tile",
            "epilogue_at_middle_tile_unevenly",
            "reduction_at_element",
        )
    ),
}
EXACTLY = [
    replace(case, name=f"{case.name}_bit_for_bit", numerics="exact")
    for case in FLOATING
    if case.numerics != "exact" and not case.distribute and case.name not in IN_PLACE
]


# ---------------------------------------------------------------------------------------------
# Exact
# ---------------------------------------------------------------------------------------------


@each(EXACTLY)
def test_exact_gives_the_same_bits(case: Case, builds: Builds) -> None:
    """On ordinary numbers, signed zeros, infinities, NaN and denormals."""
    assert f"{case.name}_fused" in builds, f"{case.name} has not been fused"
    check_identical(case, builds[case.name], builds[f"{case.name}_fused"])


@each([case for case in FLOATING if case.name in IN_PLACE])
def test_what_stands_where_a_tail_would_is_left_there(case: Case) -> None:
    report = fuse_epilogue.analyze(case.scheduled(), case.reduction, numerics="exact")
    assert report.stopped is not None
    assert report.stopped.code == "already-fused"


@pytest.mark.cpp
@each([case for case in EXACTLY if "float" in accumulator(case)])
def test_exact_absorbs_nothing_of_a_float(case: Case) -> None:
    _, (report,) = fuse(case)
    assert report.numerics == "exact"
    assert {step.absorbed for step in report.steps} == {""}
    assert {step.distributed for step in report.steps} == {""}
    assert not report.certificate.reassociates


@each([case for case in OF_INTEGERS if case.numerics == "reassociate"])
def test_exact_makes_no_difference_to_integers(case: Case) -> None:
    sch, _ = fuse(replace(case, numerics="exact"))
    tvm.ir.assert_structural_equal(sch.mod, fused(case.name)[0].mod)
    assert not fused(case.name)[1].certificate.reassociates


# ---------------------------------------------------------------------------------------------
# Reassociating
# ---------------------------------------------------------------------------------------------


@each([case for case in FLOATING if "float" in accumulator(case)])
def test_the_certificate_says_whether_floats_were_reassociated(case: Case) -> None:
    _, report = fused(case.name)
    reassociated = any(step.absorbed or step.distributed for step in report.steps)
    assert report.certificate.reassociates == reassociated


@each([case for case in FLOATING if case.special in {"no NaN", "finite"}])
def test_a_maximum_selects_the_same_number(case: Case, builds: Builds) -> None:
    """Adding to all candidates, or bounding them, rounds to what it does to the largest."""
    inputs = make_inputs(case, "normal", {})
    before = run(builds[case.name], case, inputs, {})
    after = run(builds[f"{case.name}_fused"], case, inputs, {})
    for name in before:
        assert_identical(after[name], before[name], f"{case.name}, {name}")


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
