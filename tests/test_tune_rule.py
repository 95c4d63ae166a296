"""Fusion in MetaSchedule's search space: both are explored, and every candidate is right."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.script import tirx as T

from fuse_epilogue import tune, workloads
from fused_block import COLS, DEPTH, PROGRAM, ROWS, assert_right, blocks
from oracles import Builds
from programs import BY_NAME, Case
from programs.case import matmul
from test_init_reads import IN_PLACE, RESIDUAL
from tuning import TARGET, candidates, context, is_fused, split, without_intrinsics

pytestmark = pytest.mark.usefixtures(without_intrinsics.__name__)
__all__ = ["without_intrinsics"]


@T.prim_func(s_tir=True)
def summed_bias(
    A: T.Buffer((ROWS, DEPTH), "int8"),
    B: T.Buffer((COLS, DEPTH), "int8"),
    E: T.Buffer((COLS, 3), "int32"),
    D: T.Buffer((ROWS, COLS), "int32"),
):
    C = T.sblock_alloc_buffer((COLS,), "int32")
    temp = T.sblock_alloc_buffer((ROWS, COLS), "int32")
    for j, k in T.grid(COLS, 3):
        with T.sblock("bias"):
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                C[vj] = 1
            C[vj] += E[vj, vk]
    for i, j, k in T.grid(ROWS, COLS, DEPTH):
        with T.sblock("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] += T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vj, vk])
    for i, j in T.grid(ROWS, COLS):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + C[vj]


# TVM inlines what computes a bias, unless it is a reduction: that it may move into any loop.
SUMMED_BIAS = Case(
    name="summed_bias",
    func=summed_bias,
    reference=lambda A, B, E: matmul(A, B) + E.sum(1, dtype=np.int32) + 1,
)


def built(schedules: list[Schedule]) -> list[Any]:
    builds = Builds({f"candidate_{i}": sch.mod["main"] for i, sch in enumerate(schedules)})
    return [builds[f"candidate_{i}"] for i in range(len(schedules))]


def wrong(schedules: list[Schedule], case: Case) -> int:
    """How many of the schedules compute something else than the program's reference."""
    count = 0
    for function in built(schedules):
        try:
            assert_right(function, case, case.name)
        except AssertionError:
            count += 1
    return count


# ---------------------------------------------------------------------------------------------
# The space
# ---------------------------------------------------------------------------------------------

FUNCTIONS = {
    "matmul": workloads.matmul(16, 16, 16),
    "matmul, relu": workloads.matmul(16, 16, 16, activation="relu"),
    "conv1d, silu": workloads.depthwise_conv1d(2, 8, 32, 3, activation="silu"),
}


def steps(schedules: list[Schedule]) -> list[str]:
    """The traces without what was drawn."""
    return [re.sub(r", decision=[^)]*", "", str(sch.trace)) for sch in schedules]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_space_has_what_tvms_has_and_as_much_fused(name: str) -> None:
    func = FUNCTIONS[name]
    tvms = context(func, ms.space_generator.PostOrderApply()).generate_design_space()
    fused, unfused = split(context(func, tune.space(TARGET)).generate_design_space())
    assert steps(unfused) == steps(tvms)
    assert len(fused) == len(unfused)
    without = context(func, tune.space(TARGET, fuse=False)).generate_design_space()
    assert steps(without) == steps(tvms)


def test_the_same_seed_proposes_the_same_candidates() -> None:
    func = FUNCTIONS["matmul, relu"]
    first, second = (
        [str(s.trace) for s in candidates(func, tune.space(TARGET), 8, seed=3, threads=1)]
        for _ in range(2)
    )
    assert first == second


def test_arguments_that_nobody_understands_are_refused_at_once() -> None:
    makers = (tune.FuseReductionEpilogue, tune.DlightFuse, partial(tune.space, TARGET, fuse=False))
    for make in makers:
        with pytest.raises(ValueError, match="numerics must be one of .*: 'exat'"):
            make(numerics="exat")
    with pytest.raises(ValueError, match="'llvm' does not say its num-cores"):
        tune.space("llvm")
    with pytest.raises(ValueError, match="no rules for the target 'c'"):
        tune.space("c")


def test_exact_leaves_floats_alone() -> None:
    for func, absorbed in ((FUNCTIONS["matmul"], False), (PROGRAM.func, True)):
        space = tune.space(TARGET, numerics="exact")
        found = context(func, space).generate_design_space()
        assert any(is_fused(s) for s in found) == absorbed


def test_several_epilogues_are_absorbed_and_a_tail_is_left() -> None:
    sch = BY_NAME["bias_residual_relu"].scheduled()
    before = list(blocks(sch.mod["main"]))
    reduction, *epilogues = before
    gone = tune.absorb(sch, sch.get_sblock(reduction))
    assert gone == epilogues[:-1]
    assert list(blocks(sch.mod["main"])) == [reduction, epilogues[-1]]


# ---------------------------------------------------------------------------------------------
# What is not fused
# ---------------------------------------------------------------------------------------------


def absorbed_by(case: Case) -> list[str]:
    sch = case.scheduled()
    root = sch.get_sblock("root")
    return [name for block in sch.get_child_blocks(root) for name in tune.absorb(sch, block)]


@pytest.mark.parametrize(
    "name",
    ["scalar_buffer", "bias_carried_from_round_to_round", "every_second_row", "flat_epilogue"],
)
def test_left_to_the_primitive_where_tvms_rules_could_not_go_on(name: str) -> None:
    case = BY_NAME[name]
    sch = case.scheduled()
    before = str(sch.trace)
    assert not absorbed_by(case)
    assert str(sch.trace) == before
    assert sch.fuse_reduction_epilogue("mm").steps


def test_why_an_output_written_in_part_is_left() -> None:
    """TVM's cache_write copies all that lies between the first and the last element written."""
    case = BY_NAME["every_second_row"]
    sch = Schedule(case.func)  # without the debug mask, which would tell
    sch.fuse_reduction_epilogue("mm", "add")
    assert wrong([sch], case) == 0
    sch.cache_write("mm", 0, "global")
    assert wrong([sch], case) == 1


@pytest.mark.parametrize("case", [IN_PLACE, RESIDUAL], ids=lambda case: case.name)
def test_what_would_start_from_its_own_output(case: Case) -> None:
    # In both, somebody reads the output: that alone is a reason.
    assert absorbed_by(case) == []
    sch = case.scheduled()
    sch.fuse_reduction_epilogue("mm", "add")
    assert tune.rule._starts_from_output(sch.get(sch.get_sblock("mm"))) == (case is IN_PLACE)


GPU = tvm.target.Target(
    {
        "kind": "cuda",
        "arch": "sm_60",  # without tensor cores, whose rules need TVM's intrinsics
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 49152,
        "thread_warp_size": 32,
    }
)


#: The programs of the corpus in parts, of which the quick tests take one.
PARTS = 12


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", [pytest.param(n, marks=pytest.mark.full if n else ()) for n in range(PARTS)]
)
@pytest.mark.parametrize("target", [TARGET, GPU], ids=lambda target: target.kind.name)
def test_no_program_stops_a_search_that_tvm_would_go_on_with(target: Any, part: int) -> None:
    generators = {fuse: tune.space(target, fuse=fuse) for fuse in (False, True)}
    spaces = {False: 0, True: 0}
    for case in list(BY_NAME.values())[part::PARTS]:
        try:
            func = case.scheduled().mod["main"]
            plain = context(func, generators[False].clone(), target=target).generate_design_space()
        except Exception:
            continue  # TVM's own rules stop at it
        both = context(func, generators[True].clone(), target=target).generate_design_space()
        spaces[False] += len(plain)
        spaces[True] += len(both)
    assert spaces[True] > 1.2 * spaces[False] > 0


# ---------------------------------------------------------------------------------------------
# Every candidate is right
# ---------------------------------------------------------------------------------------------


def test_candidates_fused_and_unfused_are_right() -> None:
    mod = tvm.IRModule({"main": PROGRAM.func.with_attr("global_symbol", "main")})
    found = candidates(mod, tune.space(TARGET), 24)
    fused, unfused = split(found)
    assert fused and unfused
    assert wrong(found, PROGRAM) == 0
    for sch in fused:
        fresh = Schedule(mod, debug_mask="all")
        sch.trace.apply_to_schedule(fresh, remove_postproc=False)
        tvm.ir.assert_structural_equal(fresh.mod, sch.mod)


def already_fused() -> Any:
    sch = Schedule(summed_bias)
    sch.fuse_reduction_epilogue("mm")
    return sch.mod["main"].with_attr("global_symbol", "main")


def test_a_bias_that_the_search_moves_comes_before_the_init() -> None:
    found = candidates(already_fused(), tune.space(TARGET), 48, threads=1)
    assert wrong(found, SUMMED_BIAS) == 0


def test_why_this_needs_a_postprocessor() -> None:
    """TVM's own takes the init out of loops in which its bias is computed."""
    safe = tune.space(TARGET)
    tvms = ms.space_generator.PostOrderApply(
        sch_rules=list(safe.sch_rules), postprocs="llvm", mutator_probs="llvm"
    )
    found = candidates(already_fused(), tvms, 48, threads=1)
    assert wrong(found, SUMMED_BIAS) > 0


# ---------------------------------------------------------------------------------------------
# The postprocessor by itself
# ---------------------------------------------------------------------------------------------


def test_loops_bound_to_threads_start_from_the_identity() -> None:
    """`bind` has taken the bias out of the init, which TVM then decomposes by itself."""
    sch = Schedule(PROGRAM.func)
    sch.fuse_reduction_epilogue("mm", "add")
    sch.bind(sch.get_loops("mm")[2], "threadIdx.x")
    module = sch.mod
    assert tune.decompose_fused().apply(sch)
    assert sch.mod.same_as(module)


def test_an_init_with_a_bias_under_a_loop_of_threads_is_no_candidate() -> None:
    """MetaSchedule binds loops in C++, past the method that takes the bias out."""
    fused = Schedule(PROGRAM.func)
    fused.fuse_reduction_epilogue("mm", "add")
    reduction = fused.get(fused.get_loops("mm")[2])
    axis = tirx.IterVar(None, "threadIdx.x", tirx.IterVar.ThreadIndex, "threadIdx.x")

    def bound(loop: tirx.For) -> tirx.For:
        if not loop.same_as(reduction):
            return loop
        kind = tirx.ForKind.THREAD_BINDING
        return tirx.For(loop.loop_var, loop.min, loop.extent, kind, loop.body, axis)

    func = fused.mod["main"]
    sch = Schedule(func.with_body(tvm_ffi.structural_map(func.body, (tirx.For, bound))))
    module = sch.mod
    assert not tune.decompose_fused().apply(sch)
    assert sch.mod.same_as(module)


def test_a_constant_init_is_left_to_tvm() -> None:
    sch = Schedule(PROGRAM.func)
    module = sch.mod
    assert tune.decompose_fused().apply(sch)
    assert sch.mod.same_as(module)
    assert tune.with_decompose_fused([]) == []


def test_other_errors_than_refusals_are_not_swallowed() -> None:
    with pytest.raises(TypeError):
        tune.decompose_fused().apply("not a schedule")


# ---------------------------------------------------------------------------------------------
# dlight
# ---------------------------------------------------------------------------------------------


class Tiles(s_tir.dlight.ScheduleRule):
    """A rule that tiles the product, with a choice if there may be one."""

    def __init__(self, blockize: bool = False) -> None:
        self.blockize = blockize

    def apply(self, func: Any, target: Any, tunable: bool) -> Schedule:
        sch = Schedule(func)
        block = sch.get_sblock("matmul")
        i, j, k = sch.get_loops(block)
        factors = sch.sample_perfect_tile(j, 2) if tunable else [None, 4]
        sch.split(j, factors)
        if self.blockize:
            sch.blockize(k)
        else:
            sch.decompose_reduction(block, k)
        return sch


def test_dlight_schedules_the_fused_function() -> None:
    func = FUNCTIONS["matmul"].with_attr("global_symbol", "main")
    rule = tune.DlightFuse(Tiles())
    with TARGET:
        mod = s_tir.dlight.ApplyDefaultSchedule(rule)(tvm.IRModule({"main": func}))
    assert mod["main"].attrs["tirx.is_scheduled"]
    text = mod.script()
    assert "bias[v_n]" in text and "summed" not in text
    assert "matmul_update" in text


def test_dlight_offers_both_to_a_search() -> None:
    func = FUNCTIONS["matmul"].with_attr("global_symbol", "main")
    spaces = tune.DlightFuse(Tiles()).apply(func, TARGET, True)
    assert [is_fused(sch) for sch in spaces] == [False, True]
    for sch in spaces:
        fresh = Schedule(tvm.IRModule({"main": func}))
        sch.trace.apply_to_schedule(fresh, remove_postproc=False)
        tvm.ir.assert_structural_equal(fresh.mod["main"], sch.mod["main"])


def test_dlight_falls_back_to_the_function_as_it_is() -> None:
    func = FUNCTIONS["matmul"].with_attr("global_symbol", "main")
    sch = tune.DlightFuse(Tiles(blockize=True)).apply(func, TARGET, False)
    assert not is_fused(sch)
    assert tune.DlightFuse(s_tir.dlight.gpu.GEMV()).apply(func, TARGET, False) is None
    assert is_fused(tune.DlightFuse().apply(func, TARGET, False))
