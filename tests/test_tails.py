"""What a tail is good for, and what several calls do about the tails of one reduction."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir
from tvm.s_tir import Schedule
from tvm.script import tirx as T
from tvm.tirx import ForKind

import fuse_epilogue
from fuse_epilogue import verify
from fused_block import blocks
from oracles import assert_same_bits, compile_together, expected, fused, make_inputs, run
from programs import BY_NAME, Case
from programs.positions import FOR_A_GPU
from programs.scheduling_steps import BOUND_FIRST

BOUND = [f"tail_{steps.__name__}" for steps in (*FOR_A_GPU, *BOUND_FIRST)]


# ---------------------------------------------------------------------------------------------
# What that is good for
# ---------------------------------------------------------------------------------------------


def allocated(sch: Schedule) -> dict[str, int]:
    """How many elements each intermediate has after TVM's lowering."""
    passes = [
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
    ]
    lowered = tvm.transform.Sequential(passes)(sch.mod)
    found: dict[str, int] = {}

    def enter(block: s_tir.SBlock) -> None:
        for buffer in block.alloc_buffers:
            found[buffer.name] = int(np.prod([int(extent) for extent in buffer.ty.shape]))

    tvm_ffi.structural_walk(lowered["main"], [(s_tir.SBlock, enter)])
    return found


@pytest.mark.parametrize(
    ("name", "elements"),
    [
        ("tail_reduction_innermost", 1),
        ("tail_row_form", 12),
        ("tail_reduction_split_outside", 12),
        ("tail_reduction_split_outside_of_a_tile", 4),
        ("tail_uneven_tiles", 40),
        ("tail_spatial_loops_fused", 1),
        ("tail_inside_a_vectorized_part", 4),
        ("tail_reduction_outermost", 192),
        ("silu_of_two_blocks", 1),
        ("quantised_layer", 1),
        ("intermediate_read_twice", 1),
        # Somebody else reads it, in full.
        ("intermediate_read_by_a_reduction", 8),
    ],
)
def test_the_intermediate_shrinks_to_the_tile(name: str, elements: int) -> None:
    sch, report = fused(name)
    assert allocated(sch)[report.output] == elements


@pytest.mark.parametrize("name", BOUND)
def test_is_compiled_for_a_gpu_in_one_kernel(name: str) -> None:
    sch, report = fused(name)
    assert report.output.endswith("_local")
    built = tvm.compile(sch.mod, target={"kind": "cuda", "arch": "sm_90"})
    source = built.mod.imports[0].inspect_source()
    assert source.count('extern "C" __global__ void') - source.count(";  // declaration") >= 1
    # The declaration and the definition of one kernel.
    assert source.count("__launch_bounds__") == 2


# ---------------------------------------------------------------------------------------------
# One reader of several
# ---------------------------------------------------------------------------------------------


def check(case: Case, sch: Schedule) -> None:
    """What `sch` has become of the case's program computes what numpy says."""
    built = compile_together({"after": sch.mod["main"]})["after"]
    inputs = make_inputs(case, "exact", {})
    for name, value in expected(case, inputs).items():
        assert_same_bits(run(built, case, inputs, {})[name], value, f"{case.name}, {name}")


@pytest.mark.cpp
@pytest.mark.parametrize("epilogue", ["add", "other"])
def test_a_pair_leaves_the_other_reader_its_sum(epilogue: str) -> None:
    case = BY_NAME["intermediate_read_twice"]
    sch = case.scheduled()
    report = sch.fuse_reduction_epilogue("mm", epilogue)
    assert report.kept == ("temp",)
    assert [(step.epilogue, step.absorbed, step.tail) for step in report.steps] == [
        (epilogue, "", "x + C[vi]")
    ]
    assert allocated(sch) == {"temp": 8}
    check(case, sch)


@pytest.mark.cpp
def test_then_the_other_one_comes_as_well() -> None:
    case = BY_NAME["intermediate_read_twice"]
    sch = case.scheduled()
    sch.fuse_reduction_epilogue("mm", "add")
    report = sch.fuse_reduction_epilogue("mm", "other")
    assert report.kept == ()
    assert allocated(sch) == {"temp": 1}
    check(case, sch)


@pytest.mark.cpp
def test_a_later_call_absorbs_what_an_exact_one_left() -> None:
    case = BY_NAME["bias_then_relu"]
    sch = case.scheduled()
    first = sch.fuse_reduction_epilogue("mm", "add", numerics="exact")
    assert [(step.absorbed, step.tail) for step in first.steps] == [("", "x + E[vj]")]
    assert str(blocks(sch.mod["main"])["mm"].init.value) == "T.float32(0.0)"
    second = sch.fuse_reduction_epilogue("mm", "add")
    assert [(step.absorbed, step.tail) for step in second.steps] == [("E[vj]", "")]
    third = sch.fuse_reduction_epilogue("mm")
    assert [step.epilogue for step in third.steps] == ["relu"]
    tvm.ir.assert_structural_equal(sch.mod, fused(case.name)[0].mod)


def test_nothing_is_absorbed_in_front_of_an_exact_tail() -> None:
    case = BY_NAME["bias_residual_relu"]
    sch = case.scheduled()
    report = sch.fuse_reduction_epilogue("mm", numerics="exact")
    assert [step.absorbed for step in report.steps] == ["", "", ""]
    assert report.steps[-1].tail == "T.max(x + E[vj] + C[vi, vj], T.float32(0.0))"
    assert set(blocks(sch.mod["main"])) == {"mm", "relu"}
    check(case, sch)


# ---------------------------------------------------------------------------------------------
# Names and variables
# ---------------------------------------------------------------------------------------------


def test_a_block_variable_becomes_that_of_the_tail() -> None:
    sch = BY_NAME["tail_annotated"].scheduled()
    epilogue = sch.get_sblock("add")
    sch.fuse_reduction_epilogue("mm")
    tail = sch.get(epilogue)
    assert tail.same_as(sch.get(sch.get_sblock("add")))
    assert [read.source.name for read in tail.reads] == ["temp"]
    assert dict(tail.annotations) == {"some.note": 2}
    assert len(sch.get_loops(epilogue)) == 2


@pytest.mark.parametrize("gone", ["bias", "relu", "residual", "scale"])
def test_a_merged_block_is_gone(gone: str) -> None:
    sch = BY_NAME["bias_relu_residual_scale_cast"].scheduled()
    block = sch.get_sblock(gone)
    sch.fuse_reduction_epilogue("mm")
    with pytest.raises(ValueError):
        sch.get(block)


@pytest.mark.cpp
@pytest.mark.parametrize("name", ["intermediate_read_twice", "three_readers_each_in_its_way"])
def test_any_reader_stands_for_the_reduction(name: str) -> None:
    case = BY_NAME[name]
    for epilogue in case.epilogues:
        sch = case.scheduled()
        sch.fuse_reduction_epilogue(epilogue)
        tvm.ir.assert_structural_equal(sch.mod, fused(name)[0].mod)


@pytest.mark.cpp
def test_a_tail_can_be_scheduled() -> None:
    case = BY_NAME["tail_row_form"]
    sch = case.scheduled()
    sch.fuse_reduction_epilogue("mm")
    i, j = sch.get_loops(sch.get_sblock("add"))
    sch.parallel(i)
    assert sch.get(j).kind == ForKind.VECTORIZED
    sch.decompose_reduction(sch.get_sblock("mm"), sch.get_loops(sch.get_sblock("mm"))[1])
    check(case, sch)


def test_once_is_enough() -> None:
    case = BY_NAME["bias_then_relu"]
    sch = case.scheduled()
    sch.fuse_reduction_epilogue("mm", "add")
    sch.fuse_reduction_epilogue("mm", "relu")
    with pytest.raises(s_tir.ScheduleError) as caught:
        sch.fuse_reduction_epilogue("mm", "relu")
    assert fuse_epilogue.refusal_code(caught.value) == "already-fused"


@T.prim_func(s_tir=True)
def looked_up(
    X: T.Buffer((4, 3), "uint32"), table: T.Buffer((251,), "uint8"), D: T.Buffer((4,), "uint8")
) -> None:
    """The index is an unsigned difference: TVM ends with an InternalError when it bounds it."""
    bits = T.sblock_alloc_buffer((4,), "uint32")
    low = T.sblock_alloc_buffer((4,), "uint8")
    for i, k in T.grid(4, 3):
        with T.sblock("bits"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                bits[vi] = T.uint32(0)
            bits[vi] = bits[vi] ^ X[vi, vk]
    for i in range(4):
        with T.sblock("low"):
            vi = T.axis.spatial(4, i)
            low[vi] = T.cast(bits[vi], "uint8")
    for i in range(4):
        with T.sblock("looked_up"):
            vi = T.axis.spatial(4, i)
            T.reads(low[vi], table[0:251])
            T.writes(D[vi])
            D[vi] = table[T.cast(T.max(low[vi] ^ T.uint8(6), T.uint8(0)) - T.uint8(5), "int32")]


def test_regions_that_tvm_cannot_compute() -> None:
    sch = Schedule(looked_up, debug_mask="all")
    sch.fuse_reduction_epilogue("bits")
    fused = compile_together({"fused": sch.mod["main"]})["fused"]
    rng = np.random.default_rng(0)
    x = rng.integers(0, 64, (4, 3)).astype("uint32") | np.array([64, 0, 0], "uint32")
    table = rng.integers(0, 256, 251).astype("uint8")
    result = tvm.runtime.tensor(np.zeros(4, "uint8"))
    fused(tvm.runtime.tensor(x), tvm.runtime.tensor(table), result)
    index = (np.bitwise_xor.reduce(x, axis=1) ^ 6) - 5
    np.testing.assert_array_equal(result.numpy(), table[index])


@T.prim_func(s_tir=True)
def wrapped(X: T.Buffer((4, 3), "int64"), c: T.int64, D: T.Buffer((4,), "int64")) -> None:
    """The product of the factors exceeds int64: TVM's simplifier raises a ValueError."""
    total = T.sblock_alloc_buffer((4,), "int64")
    for i, k in T.grid(4, 3):
        with T.sblock("total"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                total[vi] = T.int64(0)
            total[vi] = total[vi] + X[vi, vk]
    for i in range(4):
        with T.sblock("chosen"):
            vi = T.axis.spatial(4, i)
            T.reads(total[vi])
            T.writes(D[vi])
            D[vi] = T.if_then_else(
                total[vi] * T.int64(4) * T.int64(4611686018427387908) > T.int64(0), c, T.int64(5)
            )


def test_factors_whose_product_no_type_holds() -> None:
    sch = Schedule(wrapped, debug_mask="all")
    report = sch.fuse_reduction_epilogue("total")
    verify.check(wrapped, sch.mod["main"], report.certificate)
    # TVM compiles neither of the two.
    verify.equivalent(wrapped, sch.mod["main"])
