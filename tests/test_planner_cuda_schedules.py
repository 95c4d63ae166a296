"""Points of spaces for GPUs compute what numpy says: the CUDA text on the CPU, and on a GPU."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule

import cuda_on_cpu
import fuse_epilogue
from cuda_on_cpu import nvcc
from cuda_on_cpu.lowered import lower
from cuda_runs import CUDA, no_gpu, no_gxx, on_machines
from fuse_epilogue import workloads
from fuse_epilogue.planner.measurement.measure import arguments
from fuse_epilogue.planner.problems.request import Request
from fuse_epilogue.rewrites.epilogue import ABSORBED, NONE, TAIL
from planner_cuda import NUMPY, SMALL, TARGET, covering, machine, problem, shared_bytes
from planner_problems import as_it_is, assert_traced, of_each_kind
from tiers import one_in

# Many small processes, and nothing of it is about memory in our own library.
pytestmark = pytest.mark.slow

#: Of the other problems, only some points.
COVERED = ("product", "rows", "conv", "conv, channels last")


def text_of(func):
    """Return the kernels of the CUDA text, without what declares them."""
    parts = lower(func, "sm_90").source.split('extern "C" __global__')[1:]
    return "".join(part for part in parts if "{" in part)


@pytest.mark.full
@on_machines
@pytest.mark.parametrize("name", one_in(3, SMALL))
def test_points_are_right(machine, name):
    found = problem(name)
    arrays = arguments(found.func)
    right = as_it_is(found.func, arrays)
    if name in NUMPY:
        expected = NUMPY[name](*(array.numpy() for array in arrays[:-1]))
        np.testing.assert_array_equal(right, expected)
    assert np.any(right != 0)
    points = covering(found, 6)
    for point in points if name in COVERED else points[:3]:
        arrays[-1].copyfrom(np.full(right.shape, 99, right.dtype))
        machine(found.apply(point).mod["main"])(*arrays)
        np.testing.assert_array_equal(arrays[-1].numpy(), right, err_msg=str(point))


@on_machines
@pytest.mark.parametrize("name", of_each_kind(SMALL))
def test_plans_are_right(machine, name):
    func = SMALL[name][1]
    plan = fuse_epilogue.plan(func, TARGET)
    arrays = arguments(func)
    right = as_it_is(func, arrays)
    for each in plan.found.by_fusion.values():
        arrays[-1].copyfrom(np.full(right.shape, 99, right.dtype))
        machine(plan.known.apply(each.point).mod["main"])(*arrays)
        np.testing.assert_array_equal(arrays[-1].numpy(), right, err_msg=str(each.point))


@pytest.mark.gpu
@no_gpu
@pytest.mark.parametrize("name", ["product", "rows", "conv"])
def test_compiled_for_a_gpu_it_computes_the_same(name):
    func = SMALL[name][1]
    arrays = arguments(func)
    right = as_it_is(func, arrays)
    on_gpu = [tvm.runtime.tensor(array.numpy(), tvm.cuda()) for array in arrays]
    target = tvm.target.Target.from_device("cuda")
    fuse_epilogue.compile(func, target)(*on_gpu)
    np.testing.assert_array_equal(on_gpu[-1].numpy(), right)


@pytest.mark.parametrize("name", ["product", "rows", "rows, scaled", "conv", "conv, channels last"])
def test_what_is_fused_is_one_kernel(name):
    found = problem(name)
    points, _ = found.space.feasible()
    for mode in found.epilogue.modes:
        some = points.take(points["fusion"] == mode)
        for index in range(0, some.size, max(1, some.size // 4)):
            kernels = lower(found.apply(some.at(index)).mod["main"], "sm_90").launches
            assert len(kernels) == (2 if mode == NONE else 1), some.at(index)


@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_nothing_between_the_blocks_of_a_tail_is_in_memory(activation):
    for func in (
        workloads.matmul(16, 32, 8, activation=activation),
        workloads.row_reduce(8, 32, bias=True, activation=activation),
        workloads.depthwise_conv1d(2, 3, 64, 3, activation=activation),
    ):
        plan = fuse_epilogue.plan(func, TARGET)
        for label in ("tail", "absorbed"):
            text = text_of(plan.known.apply(plan.found.by_fusion[label].point).mod["main"])
            pointers = re.findall(r"\* __restrict__ (\w+)_ptr", text)
            assert sorted(pointers) == sorted(str(param.name) for param in func.params)


@pytest.mark.parametrize("name", ["product", "product, both turned"])
def test_a_product_is_in_shared_memory_by_vectors(name):
    found = problem(name)
    points, _ = found.space.feasible()
    for vector in (1, 2, 4):
        some = points.take((points["vector"] == vector) & (points["buffers"] == 1))
        point = some.at(some.size // 2)
        used = found.space.used(point)
        text = text_of(found.apply(point).mod["main"])
        assert shared_bytes(text) == used["shared memory"]
        assert (f"*(float{vector}*)" in text) == (vector > 1)
        assert f"__launch_bounds__({point['threads_m'] * point['threads_n']})" in text


LARGE = {
    "product": workloads.matmul(4096, 2048, 1024, activation="relu"),
    "product of halves": workloads.matmul(1024, 1024, 4096, dtype="float16", activation="silu"),
    "rows": workloads.row_reduce(4096, 4096, bias=True, activation="relu"),
    "short rows": workloads.row_reduce(1 << 20, 4, bias=True),
    "conv": workloads.depthwise_conv1d(8, 512, 2048, 3, activation="relu"),
    "conv, channels last": workloads.depthwise_conv1d(8, 512, 2048, 3, layout="NWC"),
}


@pytest.mark.parametrize("name", LARGE)
def test_plans_of_large_functions_are_generated_as_they_say(name):
    plan = fuse_epilogue.plan(LARGE[name], TARGET)
    used = plan.known.space.used(plan.point)
    source = lower(plan.apply(LARGE[name]).mod["main"], "sm_90").source
    text = text_of(plan.apply(LARGE[name]).mod["main"])
    assert f"__launch_bounds__({used['threads']})" in text
    assert shared_bytes(text) == used["shared memory"]
    # Every array of a thread has a place in its registers. Of the windows of a convolution nvcc
    # keeps a part only: benchmarks/cuda_registers.py.
    local = re.findall(r"^ *alignas\(64\) (\w+) \w+\[(\d+)\];", text, re.MULTILINE)
    sizes = {"half": 2}
    words = sum(sizes.get(kind, 4) * int(count) for kind, count in local) / 4
    assert local and (words <= used["registers"] or name.startswith("conv"))
    if nvcc.missing("sm_90") is None:
        for kernel in nvcc.usage(source, "sm_90").values():
            assert kernel.registers <= 255 and kernel.spill_stores == 0
            assert kernel.shared == used["shared memory"]


@pytest.mark.parametrize("lanes", [1, 4, 8, 64])
def test_lanes_are_threads_of_a_row(lanes):
    found = problem("rows")
    points, _ = found.space.feasible()
    some = points.take(
        (points["lanes"] == lanes) & (points["fusion"] == TAIL) & (points["rows"] == 4)
    )
    point = max(map(some.at, range(some.size)), key=lambda each: each["unroll"] * each["vector"])
    text = text_of(found.apply(point).mod["main"])
    # Of what the lanes load in turns, a thread holds its own.
    assert f"float x_local_ptr[{point['vector']}];" in text
    assert f"__launch_bounds__({lanes * point['rows']})" in text
    assert ("__shfl_down_sync" in text) == (lanes > 1)
    assert shared_bytes(text) == found.space.used(point)["shared memory"]


def test_threads_of_a_convolution_are_those_of_the_point():
    found = problem("conv")
    points, _ = found.space.feasible()
    for form in found.space.by_name["form"].choices:
        for threads in (32, 128):
            some = points.take((points["form"] == form) & (points["threads"] == threads))
            text = text_of(found.apply(some.at(0)).mod["main"])
            total = found.space.used(some.at(0))["threads"]
            assert f"__launch_bounds__({total})" in text


@pytest.mark.parametrize("name", ["product", "rows"])
def test_a_schedule_is_traced_from_the_function_as_it_is(name):
    assert_traced(problem(name))


# ---- What TVM does of what a constraint forbids --------------------------------------------------


def absorbed():
    """Return a reduction of rows that starts from a bias, its columns split."""
    sch = Schedule(workloads.row_reduce(4, 64, bias=True))
    sch.fuse_reduction_epilogue("reduce", numerics="reassociate")
    rows, columns = sch.get_loops("reduce")
    return sch, rows, sch.split(columns, [None, 32])[1]


def test_a_cross_thread_reduction_adds_the_bias_once():
    """The threads' sums start from 0; in one thread the sum starts from the bias."""
    sch, rows, lane = absorbed()
    sch.bind(rows, "blockIdx.x")
    sch.bind(lane, "threadIdx.x")
    text = text_of(sch.mod["main"])
    assert text.count("bias_ptr[") == 1 and "__shfl_down_sync" in text
    sch, rows, _ = absorbed()
    sch.bind(rows, "threadIdx.x")
    assert "bias_ptr[((int)threadIdx.x)]" in text_of(sch.mod["main"])


@no_gxx
def test_a_row_of_broken_warps_would_be_a_race():
    """What the constraint "whole warps" forbids, the harness finds; its twin runs."""
    func = workloads.row_reduce(4, 200)
    found = replace(problem("rows"), request=Request(func, machine()), sizes={"m": 4, "n": 200})
    point = {"fusion": NONE, "lanes": 50, "rows": 1, "vector": 1, "unroll": 1}
    with pytest.raises(ValueError, match="whole warps"):
        found.apply(point)
    x = np.arange(800, dtype="float32").reshape(4, 200) % 7
    for rows, breaks in ((1, True), (2, False)):
        # On a machine whose warps are single threads, the constraint forbids nothing.
        free = replace(found, machine=machine(warp=1))
        program = cuda_on_cpu.build(free.apply({**point, "rows": rows}).mod["main"])
        y = np.full(4, np.nan, "float32")
        if breaks:
            with pytest.raises(cuda_on_cpu.CudaFault, match="race"):
                program(x, y)
        else:
            program(x, y)
            np.testing.assert_array_equal(y, x.sum(1))


def test_absorbed_points_start_from_the_bias():
    found = problem("rows")
    points, _ = found.space.feasible()
    text = text_of(found.apply(points.take(points["fusion"] == ABSORBED).at(0)).mod["main"])
    assert text.index("bias_ptr[") < text.index("x_ptr[")
    text = text_of(found.apply(points.take(points["fusion"] == TAIL).at(0)).mod["main"])
    assert text.index("bias_ptr[", text.index("{")) > text.index("x_ptr[", text.index("{"))


def test_the_target_of_the_tests_is_the_one_of_the_plans():
    assert CUDA.attrs["arch"] == TARGET["arch"] == machine().chip.arch
