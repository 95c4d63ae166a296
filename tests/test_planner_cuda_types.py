"""Types that TVM's code for GPUs takes in single elements only, or in a single thread of a row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

import cuda_on_cpu
import fuse_epilogue
from cuda_on_cpu.lowered import lower
from cuda_runs import no_gxx
from fuse_epilogue.planner.problems.request import Request
from planner_cuda import FIND, TARGET, machine
from planner_problems import as_it_is

pytestmark = pytest.mark.slow


# fmt: off
@T.prim_func(s_tir=True)
def rows_of_bool(x: T.Buffer((64, 32), "bool"), y: T.Buffer((64,), "int32")):
    for i, j in T.grid(64, 32):
        with T.sblock("count"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                y[vi] = 0
            y[vi] = y[vi] + T.Cast("int32", x[vi, vj])


@T.prim_func(s_tir=True)
def rows_of_bytes(x: T.Buffer((4, 64), "int8"), y: T.Buffer((4,), "int8")):
    for i, j in T.grid(4, 64):
        with T.sblock("sum"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                y[vi] = T.int8(0)
            y[vi] = y[vi] + x[vi, vj]


@T.prim_func(s_tir=True)
def product_of_bool(
    a: T.Buffer((16, 8), "bool"), b: T.Buffer((8, 32), "bool"), y: T.Buffer((16, 32), "int32")
):
    for i, j, k in T.grid(16, 32, 8):
        with T.sblock("matmul"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                y[vi, vj] = 0
            y[vi, vj] = y[vi, vj] + T.Cast("int32", a[vi, vk]) * T.Cast("int32", b[vk, vj])


@T.prim_func(s_tir=True)
def product_to_bool(
    a: T.Buffer((16, 8)), b: T.Buffer((8, 32)), y: T.Buffer((16, 32), "bool")
):
    s = T.sblock_alloc_buffer((16, 32))
    for i, j, k in T.grid(16, 32, 8):
        with T.sblock("matmul"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                s[vi, vj] = T.float32(0)
            s[vi, vj] = s[vi, vj] + a[vi, vk] * b[vk, vj]
    for i, j in T.grid(16, 32):
        with T.sblock("above"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = s[vi, vj] > T.float32(0)


@T.prim_func(s_tir=True)
def conv_of_bool(
    x: T.Buffer((2, 4, 66), "bool"), w: T.Buffer((4, 3), "int32"), y: T.Buffer((2, 4, 64), "int32")
):
    for n, c, i, t in T.grid(2, 4, 64, 3):
        with T.sblock("conv"):
            vn, vc, vi, vt = T.axis.remap("SSSR", [n, c, i, t])
            with T.init():
                y[vn, vc, vi] = 0
            y[vn, vc, vi] = y[vn, vc, vi] + T.Cast("int32", x[vn, vc, vi + vt]) * w[vc, vt]
# fmt: on


BOOL = {
    "rows": rows_of_bool,
    "product": product_of_bool,
    "product, of its result": product_to_bool,
    "conv": conv_of_bool,
}


def filled(func):
    """Return arrays for a function: the last one is none of its results."""
    rng = np.random.default_rng(0)
    types = [param.ty for param in func.params]
    return [rng.integers(0, 2, tuple(map(int, ty.shape))).astype(str(ty.dtype)) for ty in types]


@no_gxx
@pytest.mark.parametrize("name", BOOL)
def test_nothing_is_a_vector_of_bool(name):
    func = BOOL[name]
    arrays = filled(func)
    right = as_it_is(func, [tvm.runtime.tensor(array) for array in arrays])
    plan = fuse_epilogue.plan(func, TARGET)
    points, _ = plan.known.space.feasible()
    if "vector" in points.values:
        points = points.take(points["vector"] == points["vector"].max())
    last = points.at(points.size - 1)
    found = [*(each.point for each in plan.found.by_fusion.values()), plan.point, last]
    for point in {tuple(each.items()): each for each in found}.values():
        arrays[-1][...] = right == 0
        cuda_on_cpu.build(plan.known.apply(point).mod["main"])(*arrays)
        np.testing.assert_array_equal(arrays[-1], right, err_msg=str(point))


@no_gxx
def test_several_threads_of_a_row_would_be_a_race_without_shuffles():
    """What the constraint "shuffles" forbids, the harness finds; one thread of a row is right."""
    func = rows_of_bytes
    found = FIND["rows"](Request(func, machine()))
    assert set(found.space.feasible()[0]["lanes"].tolist()) == {1}
    several = {"fusion": 0, "lanes": 32, "rows": 1, "vector": 1, "unroll": 1}
    with pytest.raises(ValueError, match="'shuffles', which has 1: TVM does not shuffle int8"):
        found.apply(several)
    x = np.random.default_rng(0).integers(-2, 3, (4, 64)).astype("int8")
    y = np.empty(4, "int8")
    # Taken for numbers of 32 bits, it is free to.
    free = replace(found, bits=32)
    with pytest.raises(cuda_on_cpu.CudaFault, match="race"):
        cuda_on_cpu.build(free.apply(several).mod["main"])(x, y)
    assert "__shfl_down_sync" not in lower(free.apply(several).mod["main"], "sm_90").source
    cuda_on_cpu.build(fuse_epilogue.plan(func, TARGET).apply(func).mod["main"])(x, y)
    np.testing.assert_array_equal(y, x.sum(1, dtype="int8"))
