"""A tail stands right behind the reduction's loops, in the innermost loop around all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir import Schedule
from tvm.tirx import For, ForKind, PrimFunc, SeqStmt, Stmt

import fuse_epilogue
from fused_block import blocks
from oracles import assert_same_bits, compile_together, expected, fused, make_inputs, run
from programs import ACCEPT, BY_NAME, Case
from programs.positions import FOR_A_GPU
from programs.scheduled import BOUND_FIRST

WITH_TAILS = [case for case in ACCEPT if case.tails]
EACH = pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in WITH_TAILS])
BOUND = [f"tail_{steps.__name__}" for steps in (*FOR_A_GPU, *BOUND_FIRST)]


# ---------------------------------------------------------------------------------------------
# Where it stands
# ---------------------------------------------------------------------------------------------


def path_to(func: PrimFunc, name: str) -> list[Stmt]:
    """The statements from the body of the enclosing block down to the realize of block `name`."""

    def search(stmt: Stmt, path: list[Stmt]) -> list[Stmt] | None:
        here = [*path, stmt]
        if isinstance(stmt, s_tir.SBlockRealize):
            if stmt.block.name_hint == name:
                return here
            return search(stmt.block.body, [])
        if isinstance(stmt, SeqStmt):
            return next((found for s in stmt.seq if (found := search(s, here))), None)
        return search(stmt.body, here) if isinstance(stmt, For) else None

    found = search(func.body, [])
    assert found is not None, f"no block {name}"
    return found


def variables(expression: Any) -> set[tirx.Var]:
    found: set[tirx.Var] = set()
    tvm_ffi.structural_walk(expression, [(tirx.Var, found.add)])
    return found


def split_at_the_place(path: list[Stmt]) -> int:
    """Where the path of a reduction enters its first reduction loop or vectorized loop."""
    realize = path[-1]
    reducing: set[tirx.Var] = set()
    for iter_var, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if iter_var.iter_type == tirx.IterVar.CommReduce:
            reducing |= variables(value)
    for position, stmt in enumerate(path):
        if isinstance(stmt, For):
            if stmt.loop_var in reducing or stmt.kind == ForKind.VECTORIZED:
                return position
    return len(path) - 1


def spatial_loops(path: list[Stmt]) -> list[For]:
    """The loops that the spatial axes, and the predicates on them, are made of."""
    realize = path[-1]
    spatial: set[tirx.Var] = set()
    reducing: set[tirx.Var] = set()
    for iter_var, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        reduces = iter_var.iter_type == tirx.IterVar.CommReduce
        (reducing if reduces else spatial).update(variables(value))
    return [s for s in path if isinstance(s, For) and s.loop_var in spatial - reducing]


def in_terms_of(expression: Any, names: dict[tirx.Var, tirx.Var]) -> Any:
    """`expression` with variables renamed."""
    return tvm_ffi.structural_map(expression, [(tirx.Var, lambda var: names.get(var, var))])


@EACH
def test_stands_right_behind_the_reduction(case: Case) -> None:
    func = fused(case.name)[0].mod["main"]
    path = path_to(func, case.reduction)
    place = split_at_the_place(path)
    sequence = path[place - 1]
    assert isinstance(sequence, SeqStmt)
    first = next(i for i, stmt in enumerate(sequence.seq) if stmt.same_as(path[place])) + 1
    for position, name in enumerate(case.tails, first):
        tail = path_to(func, name)
        # The same statements around both; then this one, and nothing in it but the tail.
        assert [s.same_as(t) for s, t in zip(path[:place], tail[:place], strict=True)] == (
            [True] * place
        )
        assert tail[place].same_as(sequence.seq[position])
        assert all(isinstance(stmt, For) for stmt in tail[place:-1])


@EACH
def test_has_copies_of_the_spatial_loops(case: Case) -> None:
    func = fused(case.name)[0].mod["main"]
    path = path_to(func, case.reduction)
    place = split_at_the_place(path)
    mirrored = spatial_loops([*path[place:-1], path[-1]])
    realize = path[-1]
    for name in case.tails:
        tail = path_to(func, name)
        copies = tail[place:-1]
        assert [str(c.extent) for c in copies] == [str(m.extent) for m in mirrored]
        assert [c.kind for c in copies] == [m.kind for m in mirrored]
        to_copies = {m.loop_var: c.loop_var for m, c in zip(mirrored, copies, strict=True)}

        spatial = [
            (v, in_terms_of(value, to_copies))
            for v, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
            if v.iter_type != tirx.IterVar.CommReduce
        ]
        axes = tail[-1].block.iter_vars
        assert {v.iter_type for v in axes} <= {tirx.IterVar.DataPar}
        assert [str(v.dom) for v in axes] == [str(v.dom) for v, _ in spatial]
        for bound, (_, value) in zip(tail[-1].iter_values, spatial, strict=True):
            tvm.ir.assert_structural_equal(bound, value)


@EACH
def test_reads_the_finished_element(case: Case) -> None:
    sch, report = fused(case.name)
    after = blocks(sch.mod["main"])
    available = {report.output} | {after[name].writes[0].source.name for name in case.tails}
    for name in case.tails:
        assert available & {read.source.name for read in after[name].reads}
        assert after[name].init is None


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
