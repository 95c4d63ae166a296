"""Buffers of the tiles of a product on a GPU: what is chosen from, costs, and right results."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule, ScheduleError
from tvm.s_tir.schedule import Trace
from tvm.script import tirx as T

import fuse_epilogue
from cuda_on_cpu import nvcc
from cuda_on_cpu.lowered import lower
from cuda_runs import on_machines
from fuse_epilogue.planner.measurement.measure import arguments
from fuse_epilogue.planner.problems.cost import Weights
from fuse_epilogue.planner.problems.cuda.product_cost import kernel
from fuse_epilogue.planner.problems.request import Request
from fuse_epilogue.planner.problems.space import Points
from fuse_epilogue.workloads import matmul
from planner_cuda import FIND, SMALL, TARGET, machine, problem, shared_bytes
from planner_problems import as_it_is

PRODUCTS = [name for name in SMALL if name.startswith("product")]
COPIED = (4, 8, 16)
LARGE = matmul(256, 256, 512, activation="relu")
#: Of LARGE: a block for each multiprocessor, and some more.
POINT = {
    "fusion": 1,
    "rows": 4,
    "columns": 4,
    "threads_m": 4,
    "threads_n": 8,
    "step": 16,
    "vector": 2,
    "buffers": 2,
}


def product(func, **changed):
    found = FIND["product"](Request(func, machine(**changed)))
    assert found is not None
    return found


def with_two(found):
    """Return the feasible points with two buffers."""
    points, _ = found.space.feasible()
    return points.take(points["buffers"] == 2)


# ---- Spaces --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_second_buffer_is_filled_by_whole_copies(name):
    found = problem(name)
    points, counts = found.space.feasible()
    two = with_two(found)
    assert two.size and np.any(points["buffers"] == 1)
    for operand in (found.a, found.b):
        assert set((two["vector"] * operand.bytes).tolist()) <= set(COPIED)
    assert (counts["asynchronous copies"] > 0) == (found.a.bytes < 4)
    assert counts["buffers"] > 0 and np.all(found.sizes["k"] // two["step"] >= 2)


def test_a_single_step_has_no_second_buffer():
    found = product(matmul(16, 32, 1))
    assert with_two(found).size == 0
    assert with_two(product(matmul(16, 32, 2))).size > 0
    point = {**POINT, "rows": 2, "columns": 2, "step": 1, "vector": 1}
    with pytest.raises(ValueError, match="at least as many steps of k as buffers"):
        found.apply(point)


def test_copies_of_two_bytes_are_none():
    found = product(matmul(64, 64, 64, dtype="float16", activation="relu"))
    with pytest.raises(ValueError, match="copy 4, 8 or 16 bytes"):
        found.apply({**POINT, "vector": 1})
    found.apply({**POINT, "vector": 2})


def test_an_old_gpu_has_one_buffer():
    """Asynchronous copies are there from sm_80 on."""
    found = product(LARGE, arch="sm_70")
    assert found.space.by_name["buffers"].choices == (1,)
    assert product(LARGE, arch="sm_80").space.by_name["buffers"].choices == (1, 2)
    plan = fuse_epilogue.plan(LARGE, {"kind": "cuda", "arch": "sm_70"})
    assert plan.point["buffers"] == 1


def offset_by(strides, offset):
    @T.prim_func(s_tir=True)
    def main(x: T.handle, b: T.Buffer((8, 32), "float32"), y: T.Buffer((16, 32), "float32")):
        a = T.match_buffer(x, (16, 8), "float32", strides=strides, elem_offset=offset)
        for i, j, k in T.grid(16, 32, 8):
            with T.sblock("matmul"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    y[vi, vj] = T.float32(0)
                y[vi, vj] = y[vi, vj] + a[vi, vk] * b[vk, vj]

    return main


@pytest.mark.parametrize(("strides", "offset"), [([9, 1], 0), (None, 3)])
def test_vectors_of_which_tvm_does_not_see_where_they_begin(strides, offset):
    """They would be copies from addresses that are no multiples of their bytes: TVM refuses."""
    found = product(offset_by(strides, offset))
    assert found.space.by_name["buffers"].choices == (1,)
    point = {"fusion": 0, "rows": 2, "columns": 8, "threads_m": 8, "threads_n": 2, "step": 4}
    point |= {"vector": 4, "buffers": 2}
    # That it would, but for this, be scheduled: the check is what keeps it out.
    wrong = found.scheduled(point)
    with pytest.raises(RuntimeError, match="offset_factor"):
        lower(wrong.mod["main"], "sm_90")


def test_the_largest_space_stays_within_what_is_planned_in_a_second():
    found = product(matmul(4096, 4096, 4096, dtype="float16", activation="silu"))
    assert prod(len(v.choices) for v in found.space.variables) < 100_000


# ---- Costs ---------------------------------------------------------------------------------------


def both(found, point):
    """Return the kernels of a point with one buffer and with two."""
    return (kernel(found, Points.of([{**point, "buffers": count}])) for count in (1, 2))


def test_shared_memory_is_that_of_all_buffers():
    found = product(LARGE)
    one, two = both(found, POINT)
    assert two.shared == 2 * one.shared == 2 * 4 * 16 * (16 + 32)
    assert two.resident(machine(shared=32 * 1024)) < one.resident(machine(shared=32 * 1024))
    few = product(LARGE, block_shared=int(one.shared[0]))
    assert few.space.used({**POINT, "buffers": 1})["shared memory"] == few.machine.block_shared
    with pytest.raises(ValueError, match="of 'shared memory'"):
        few.apply(POINT)


@pytest.mark.parametrize(("l2_latency", "waits"), [(100.0, False), (10_000.0, True)])
def test_loads_of_the_next_step_go_on_meanwhile(l2_latency, waits):
    """Of a step, either what it computes counts, or what it waits for; not their sum."""
    found = product(LARGE, l2_latency=l2_latency, shared_latency=30.0, memory_latency=0.0)
    one, two = both(found, POINT)
    steps, copies = 512 / 16, (16 * 16 + 32 * 16) / 32 / 2
    comes = l2_latency + 30.0
    # With two buffers a tile's elements are not stored by instructions of their own.
    computes = one.chain[0] / steps - comes - 30.0 - copies
    after = found.machine.chip.latency * found.epilogue.operations
    computes -= after / steps
    expected = comes + steps * (comes if waits else computes + 30.0) + after
    assert waits == (comes > computes + 30.0)
    np.testing.assert_allclose(two.chain[0], expected)
    assert two.chain < one.chain


def test_a_second_buffer_is_taken_where_waiting_counts():
    """Many blocks compute while others wait, few do not."""
    few, many = (matmul(size, size, 4096, activation="relu") for size in (256, 2048))
    gains = []
    for func in (few, many):
        found = product(func)
        points, _ = found.space.feasible()
        costs = Weights().cost(found.cost(points))
        gains.append(costs[points["buffers"] == 1].min() / costs.min() - 1)
    assert gains[0] > 0.05 > gains[1] >= 0
    assert fuse_epilogue.plan(few, TARGET).point["buffers"] == 2


def test_buffers_are_explained():
    plan = fuse_epilogue.plan(matmul(256, 256, 4096), TARGET)
    text = plan.explain(verbose=True)
    assert "buffers 2\n" in text
    assert "  buffers: buffers of a tile; all but one are loaded while that one is used" in text
    text = fuse_epilogue.plan(matmul(256, 256, 4096, dtype="float16"), TARGET).explain(verbose=True)
    assert "asynchronous copies: where a tile has several buffers" in text


# ---- Schedules -----------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.slow
@on_machines
@pytest.mark.parametrize("name", PRODUCTS)
def test_two_buffers_are_right(machine, name):
    """Of each vector a point, in which threads load different numbers of elements if any do."""
    found = problem(name)
    arrays = arguments(found.func)
    right = as_it_is(found.func, arrays)
    two = with_two(found)
    cut = found.block_rows(two) * two["step"] % (two["threads_m"] * two["threads_n"])
    assert np.any(cut > 0) or name != "product, odd sizes"
    for vector in np.unique(two["vector"]):
        some = two.take(two["vector"] == vector)
        uneven = some.take(cut[two["vector"] == vector] > 0)
        for points in (some, uneven) if uneven.size else (some,):
            point = points.at(points.size // 2)
            arrays[-1].copyfrom(np.full(right.shape, 99, right.dtype))
            machine(found.apply(point).mod["main"])(*arrays)
            np.testing.assert_array_equal(arrays[-1].numpy(), right, err_msg=str(point))


@pytest.mark.parametrize("name", ["product", "product of halves", "product of bytes"])
def test_tiles_are_copied_as_the_point_says(name):
    found = problem(name)
    two = with_two(found)
    for vector in np.unique(two["vector"]):
        point = two.take(two["vector"] == vector).at(0)
        source = lower(found.apply(point).mod["main"], "sm_90").source
        size = vector * found.a.bytes
        way = "cg" if size == 16 else "ca"
        assert f"cp.async.{way}.shared.global [%0], [%1], {size};" in source
        one = {**point, "buffers": 1}
        before = lower(found.apply(one).mod["main"], "sm_90").source
        assert "cp.async" not in before
        used = found.space.used(point)["shared memory"]
        assert shared_bytes(source) == used == 2 * shared_bytes(before)
        if nvcc.missing("sm_90") is None:
            [usage] = [u for u in nvcc.usage(source, "sm_90").values() if u.shared]
            assert usage.spill_stores == 0 and used <= usage.shared < used + 64


def test_a_pipeline_replays_from_json():
    found = product(LARGE)
    for buffers in (1, 2):
        sch, again = found.apply({**POINT, "buffers": buffers}), Schedule(LARGE)
        Trace.apply_json_to_schedule(sch.trace.as_json(), again)
        tvm.ir.assert_structural_equal(again.mod, sch.mod)
        assert ("software_pipeline_async_stages" in str(sch.trace)) == (buffers > 1)


# ---- What TVM does of what a constraint forbids --------------------------------------------------


def test_without_a_next_step_the_second_buffer_is_never_used():
    found = product(matmul(16, 32, 8))
    for step, begun in ((8, 1), (4, 2)):
        point = {**POINT, "rows": 2, "columns": 2, "step": step, "vector": 1}
        source = lower(found.scheduled(point).mod["main"], "sm_90").source
        assert shared_bytes(source) == 2 * 4 * step * (8 + 16)
        kernel = source[source.rindex("__global__") :]
        assert len(re.findall(r"shared_global_4\(.*&\(a_shared", kernel)) == begun


def test_copies_of_other_sizes_cannot_be_scheduled():
    found = product(matmul(64, 64, 64, dtype="float16", activation="relu"))
    with pytest.raises(ScheduleError, match="copies 1 of float16"):
        found.scheduled({**POINT, "vector": 1})
    found = replace(found, machine=machine(arch="sm_70"))
    with pytest.raises(ValueError, match=r"'buffers' is one of \(1,\)"):
        found.apply({**POINT, "vector": 2})
