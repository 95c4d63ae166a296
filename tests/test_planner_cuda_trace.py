"""Plans of convolutions for GPUs as traces: replayed from JSON, refused where they do not fit."""

from __future__ import annotations

import pytest
import tvm
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import Trace
from tvm.script import tirx as T
from tvm.target import Target

import fuse_epilogue
from fuse_epilogue.planner.machines.gpu import gpu
from fuse_epilogue.planner.problems.cuda import find_conv
from fuse_epilogue.planner.problems.cuda.depthwise_forms import LABELS
from fuse_epilogue.planner.problems.request import Request
from fuse_epilogue.rewrites.prepare import prepare
from fuse_epilogue.rewrites.step import rewrite
from fuse_epilogue.workloads import depthwise_conv1d, matmul

GPU = gpu(Target({"kind": "cuda", "arch": "sm_90"}))
FUNCTIONS = {
    "rows": depthwise_conv1d(2, 6, 33, 3, activation="relu"),
    "rows of bytes": depthwise_conv1d(1, 8, 64, 3, dtype="int8"),
    "stride": depthwise_conv1d(1, 8, 64, 3, stride=2),
    "channels last": depthwise_conv1d(2, 16, 40, 4, layout="NWC"),
}
#: The forms that each of them has, by the names of their steps; "loops" are TVM's primitives.
STEPS = {"rows": "cuda_rows", "channels": "cuda_channels", "elements": "cuda_elements"}


def one_of_each_form(name):
    """Return a problem, and a point of each form that it has."""
    problem = find_conv(Request(FUNCTIONS[name], GPU))
    points, _ = problem.space.feasible()
    each = {int(points["form"][i]): points.at(i) for i in range(points.size)}
    return problem, {problem.space.by_name["form"].label(form): at for form, at in each.items()}


def test_all_forms_are_tried():
    found = {form for name in FUNCTIONS for form in one_of_each_form(name)[1]}
    assert found == set(LABELS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_form_replays_from_json(name):
    problem, points = one_of_each_form(name)
    for form, point in points.items():
        sch = problem.apply(point)
        again = Schedule(FUNCTIONS[name])
        Trace.apply_json_to_schedule(sch.trace.as_json(), again)
        tvm.ir.assert_structural_equal(again.mod, sch.mod)
        for label, step in STEPS.items():
            assert (f"fuse_epilogue.{step}(" in str(sch.trace)) == (form == label)


@T.prim_func(s_tir=True)
def DOUBLE(x: T.Buffer((8,), "int8"), y: T.Buffer((8,), "int8")):
    for i in range(8):
        with T.sblock("y"):
            vi = T.axis.spatial(8, i)
            y[vi] = x[vi] * T.int8(2)


def test_narrow_integers_are_widened_by_a_step():
    sch, again = Schedule(DOUBLE), Schedule(DOUBLE)
    rewrite(sch, sch.get_sblock("root"), "wrapping")
    assert 'T.Cast("int8", T.Cast("int32", x[vi]) * 2)' in sch.mod.script()
    Trace.apply_json_to_schedule(sch.trace.as_json(), again)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)


@pytest.mark.parametrize(
    "name, step, given, message",
    [
        ("stride", "cuda_rows", {"vectors": 1, "threads": 128}, "cannot load rows"),
        ("rows", "cuda_channels", {"tile": 1, "threads": 128}, "cannot load channels"),
        ("rows", "cuda_rows", {"vectors": 0, "threads": 128}, "at least 1 part"),
        ("rows", "cuda_rows", {"vectors": 1, "threads": 2048}, "from 1 to 1024 threads"),
        ("rows", "cuda_elements", {"threads": 0}, "from 1 to 1024 threads"),
    ],
)
def test_what_a_step_is_not_for_is_refused(name, step, given, message):
    sch, conv = prepare(FUNCTIONS[name])
    sch.fuse_reduction_epilogue(conv)
    module, trace = sch.mod, str(sch.trace)
    with pytest.raises(tvm.s_tir.ScheduleError, match=message) as caught:
        rewrite(sch, conv, step, **given)
    assert fuse_epilogue.refusal_code(caught.value) == "rewriting"
    assert sch.mod.same_as(module) and str(sch.trace) == trace


def test_a_product_is_no_convolution():
    sch, block = prepare(matmul(8, 8, 8))
    with pytest.raises(tvm.s_tir.ScheduleError, match="not a depthwise convolution"):
        rewrite(sch, block, "cuda_elements", threads=128)
