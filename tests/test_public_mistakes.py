"""Mistakes that a primitive of this kind has made before, one test each.

TVM 0.27 brings a primitive of the same name that accepts all of these programs and compiles them
into something else (or, where it refuses, has changed the module by then). Here each of them is
refused, or fused into what it computed before.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import s_tir
from tvm.script import tirx as T

import fuse_epilogue
from oracles import check_fused, compile_together, make_inputs, run
from programs import BY_NAME, Case
from programs.builders import K, M, add_rows, sum_rows
from programs.case import accepted, row_sums

pytestmark = pytest.mark.cpp

# What is wrong with fusing it blindly, the program, and the code of the refusal.
REFUSED = {
    "a corner of the sum, stored out of bounds elsewhere": ("corner", "domain"),
    "a corner of a symbolic shape": ("symbolic_corner", "domain"),
    "a bias made between the two blocks": ("bias_made_between", "bias-written-between"),
    "an output that the reduction reads": ("output_is_an_input", "output-aliases-input"),
}

# Programs that were compiled into something else, and that fuse right.
FUSED = {
    "a ReLU after the bias, done at every step": "relu_after_bias",
    "a ReLU of the sum, done at every step": "float_relu",
    "a tanh of the sum, done at every step": "tanh_plus_bias",
    "a bias from which the sum is subtracted": "float_negated",
    "a sum that is scaled": "scaled",
    "a max-reduction, taken to start from 0": "int32_max_plus_value",
    "a max-reduction whose bias is another candidate": "float32_max",
    "a product, taken to start from 0": "float32_product_plus_value",
    "a second reader, left with a buffer that nobody writes": "intermediate_read_twice",
    "the sum read transposed, its variables paired by position": "transposed_square",
    "the sum read transposed, of another shape": "transposed_read",
    "an init other than 0, never read": "init_constant",
    "an init that is loaded, never read": "init_loaded",
    "a bias of another type behind a cast": "int8_bias_cast",
    "block variables in another order": "block_variables_swapped",
    "a symbolic shape": "symbolic",
    "a bias that swallows the terms of a short sum": "float16_sum",
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_is_refused(mistake: str) -> None:
    name, code = REFUSED[mistake]
    case = BY_NAME[name]
    sch = case.scheduled()
    module, trace = sch.mod, str(sch.trace)
    with pytest.raises(s_tir.ScheduleError) as caught:
        sch.fuse_reduction_epilogue(case.reduction, case.epilogues[0])
    assert fuse_epilogue.refusal_code(caught.value) == code
    assert sch.mod.same_as(module)
    assert str(sch.trace) == trace


@pytest.mark.parametrize("mistake", FUSED)
def test_is_fused_right(mistake: str) -> None:
    check_after_fusing(BY_NAME[FUSED[mistake]])


def check_after_fusing(case: Case) -> None:
    """Fuse the case's epilogues one by one, then compare with the unfused build and numpy."""
    sch = case.scheduled()
    for epilogue in case.epilogues:
        sch.fuse_reduction_epilogue(case.reduction, epilogue)
    built = compile_together({"before": case.func, "after": sch.mod["main"]})
    check_fused(case, built["before"], built["after"])


# Both epilogues are absorbed one after the other: the second starts from the first, not from 0.
@T.prim_func(s_tir=True)
def two_biases(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    E: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    mid = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    add_rows(temp, C, mid)
    for i in range(M):
        with T.sblock("add_second"):
            vi = T.axis.spatial(M, i)
            D[vi] = mid[vi] + E[vi]


def test_fusing_twice_keeps_the_first_bias() -> None:
    case = accepted(two_biases, lambda A, C, E: row_sums(A) + C + E, "", "", "")
    sch = case.scheduled()
    sch.fuse_reduction_epilogue("mm", "add")
    sch.fuse_reduction_epilogue("mm", "add_second")
    (block,) = [sch.get(b) for b in sch.get_child_blocks(sch.get_sblock("root"))]
    assert str(block.init.value) == "C[vi] + E[vi]"
    built = compile_together({"before": case.func, "after": sch.mod["main"]})
    check_fused(case, built["before"], built["after"])


def test_the_dead_intermediate_is_not_left_allocated() -> None:
    case = BY_NAME["reference_program"]
    sch = case.scheduled()
    sch.fuse_reduction_epilogue("mm", "add")
    assert len(sch.get(sch.get_sblock("root")).alloc_buffers) == 0


def test_a_schedule_still_works_after_a_refusal() -> None:
    """A refused call used to leave the module half rewritten."""
    case = BY_NAME["bias_then_bias_made_late"]
    sch = case.scheduled()
    late = sch.get_sblock("add_late")
    with pytest.raises(s_tir.ScheduleError):
        sch.fuse_reduction_epilogue("mm", "add_late")
    sch.fuse_reduction_epilogue("mm", "add")
    with pytest.raises(s_tir.ScheduleError):
        sch.fuse_reduction_epilogue("mm", late)
    (loop,) = sch.get_loops(late)
    sch.parallel(loop)
    built = compile_together({"before": case.func, "after": sch.mod["main"]})
    check_fused(case, built["before"], built["after"])


@pytest.mark.parametrize("block", ["nowhere", "mm "])
def test_an_unknown_block_is_a_schedule_error(block: str) -> None:
    sch = BY_NAME["reference_program"].scheduled()
    for call in ((block,), (block, "add"), ("mm", block)):
        with pytest.raises(s_tir.ScheduleError):
            sch.fuse_reduction_epilogue(*call)


def test_data_between_0_and_1_would_hide_the_mistakes() -> None:
    """The corpus's data has both signs: on it, a ReLU at every step is not one at the end."""
    case = BY_NAME["relu_after_bias"]
    inputs = make_inputs(case, "exact", {})
    at_the_end = run(compile_together({"f": case.func})["f"], case, inputs, {})["D"]
    stepwise = np.maximum(inputs["C"], 0)
    for k in range(K):
        stepwise = np.maximum(stepwise + np.outer(inputs["A"][:, k], inputs["B"][:, k]), 0)
    assert not np.array_equal(stepwise, at_the_end)

    hidden = {name: np.abs(value) for name, value in inputs.items()}
    at_the_end = run(compile_together({"f": case.func})["f"], case, hidden, {})["D"]
    stepwise = np.maximum(hidden["C"], 0)
    for k in range(K):
        stepwise = np.maximum(stepwise + np.outer(hidden["A"][:, k], hidden["B"][:, k]), 0)
    np.testing.assert_array_equal(stepwise, at_the_end)
