"""Asynchronous copies ("cp.async") on the CPU, and the schedule step that makes them.

A right program is a pipeline: the copies of a step are under way while those of the step before are
used. Each mistake that can be made with them is made in its text, and must be found.
"""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule, ScheduleError
from tvm.s_tir.schedule import Trace
from tvm.script import tirx as T

import cuda_on_cpu
import cuda_programs
import fuse_epilogue
from cuda_on_cpu import CudaFault, CudaProgram, UnsupportedCuda, nvcc
from cuda_on_cpu.lowered import lower
from cuda_programs import changed, needs_gxx
from fuse_epilogue.kernels.cuda.copies import has_copies
from fuse_epilogue.rewrites.step import rewrite

pytestmark = pytest.mark.slow

BLOCKS, STEPS, ROWS, COLUMNS = 2, 4, 8, 16
#: How TVM's text waits until some groups of copies are left, and ends a group.
WAIT = "tvm_builtin_ptx_cp_async_wait_group_async_wait_group_"
COMMIT = "tvm_builtin_ptx_cp_async_commit_group_async_commit_group();"


@functools.cache
def turned(dtype: str = "float32"):
    """Return a function that turns matrices: other threads store than those that load."""

    shape, result = (BLOCKS, STEPS, ROWS, COLUMNS), (BLOCKS, STEPS, COLUMNS, ROWS)

    @T.prim_func(s_tir=True)
    def main(x: T.Buffer(shape, dtype), y: T.Buffer(result, dtype)):
        for b, s, i, j in T.grid(BLOCKS, STEPS, COLUMNS, ROWS):
            with T.sblock("turn"):
                vb, vs, vi, vj = T.axis.remap("SSSS", [b, s, i, j])
                y[vb, vs, vi, vj] = x[vb, vs, vj, vi] * T.Cast(dtype, 2)

    return main


def loaded(dtype: str = "float32") -> tuple[Schedule, object, object]:
    """Return a schedule whose matrices are loaded into shared memory, the block, and the step."""
    sch = Schedule(turned(dtype))
    tile = sch.cache_read("turn", 0, "shared")
    block, step, i, j = sch.get_loops("turn")
    sch.reorder(block, i, j, step)
    sch.bind(block, "blockIdx.x")
    sch.bind(sch.fuse(i, j), "threadIdx.x")
    sch.compute_at(tile, step)
    return sch, tile, step


def pipelined(lanes: int, buffers: int = 2, dtype: str = "float32") -> Schedule:
    """Return the function with tiles that are copied before they are used."""
    sch, tile, step = loaded(dtype)
    rows, columns = sch.get_loops(tile)[-2:]
    columns, _ = sch.split(columns, [None, lanes])
    rewrite(sch, tile, "cuda_copies")
    _, thread = sch.split(sch.fuse(rows, columns), [None, ROWS * COLUMNS])
    sch.bind(thread, "threadIdx.x")
    sch.annotate(step, "software_pipeline_stage", [0, buffers - 1])
    sch.annotate(step, "software_pipeline_order", [0, 1])
    sch.annotate(step, "software_pipeline_async_stages", [0])
    return sch


@functools.cache
def built(lanes: int = 1, buffers: int = 2, dtype: str = "float32") -> CudaProgram:
    return cuda_on_cpu.build(pipelined(lanes, buffers, dtype).mod)


def matrices(dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    x = np.arange(BLOCKS * STEPS * ROWS * COLUMNS) % 61
    x = x.reshape(BLOCKS, STEPS, ROWS, COLUMNS).astype(dtype)
    return x, np.full((BLOCKS, STEPS, COLUMNS, ROWS), 99, dtype)


def fault_of(program: CudaProgram, **options: object) -> CudaFault:
    return cuda_programs.fault_of(program, *matrices(), **options)


# ---- Right programs ------------------------------------------------------------------------------


@pytest.mark.full
@needs_gxx
@pytest.mark.parametrize(
    ("dtype", "lanes", "buffers"),
    [
        *[("float32", lanes, 2) for lanes in (1, 2, 4)],
        *[("float16", lanes, 3) for lanes in (2, 4, 8)],
        *[("int8", lanes, 2) for lanes in (4, 8, 16)],
        ("int32", 4, 4),
    ],
)
def test_copies_of_every_size(dtype: str, lanes: int, buffers: int):
    program = built(lanes, buffers, dtype)
    size = lanes * np.dtype(dtype).itemsize
    way = "cg" if size == 16 else "ca"
    assert f"cp.async.{way}.shared.global [%0], [%1], {size};" in program.source
    assert f"x_shared_ptr[{buffers * ROWS * COLUMNS}]" in program.source
    x, y = matrices(dtype)
    program(x, y)
    np.testing.assert_array_equal(y, 2 * x.swapaxes(2, 3))


@needs_gxx
def test_a_wait_for_all():
    program = changed(built(), f"{WAIT}0();", 'asm volatile("cp.async.wait_all;");')
    x, y = matrices()
    program(x, y)
    np.testing.assert_array_equal(y, 2 * x.swapaxes(2, 3))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_nvcc_takes_them(arch: str):
    if nvcc.missing(arch):
        pytest.skip(str(nvcc.missing(arch)))
    for lanes in (1, 2, 4):
        [kernel] = nvcc.usage(lower(pipelined(lanes).mod, arch).source, arch).values()
        assert kernel.shared - 2 * 4 * ROWS * COLUMNS in (0, 1024) and kernel.spill_stores == 0


def test_the_step_replays_from_json():
    sch, again = pipelined(4), Schedule(turned())
    assert "fuse_epilogue.cuda_copies()" in str(sch.trace)
    Trace.apply_json_to_schedule(sch.trace.as_json(), again)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)


def test_architectures_that_have_them():
    has = {arch: has_copies(arch) for arch in ("sm_70", "sm_75", "sm_80", "sm_90a", "sm_100", "")}
    assert has == dict.fromkeys(("sm_80", "sm_90a", "sm_100"), True) | dict.fromkeys(
        ("sm_70", "sm_75", ""), False
    )


# ---- Mistakes ------------------------------------------------------------------------------------


@needs_gxx
@pytest.mark.parametrize("order", cuda_on_cpu.ORDERS)
@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_wait(number: int, order: str):
    fault = fault_of(changed(built(), f"{WAIT}{1 - number}();", ""), orders=[order])
    assert fault.kind == "race" and "copies with no wait and barrier between" in str(fault)


@needs_gxx
def test_a_wait_for_too_few():
    fault = fault_of(changed(built(), f"{WAIT}0();", f"{WAIT}1();"))
    assert fault.kind == "race" and "copies with no wait and barrier between" in str(fault)


@needs_gxx
def test_copies_of_no_group_are_not_waited_for():
    fault = fault_of(changed(built(), COMMIT, "", 1))
    assert fault.kind == "race" and "copies with no wait and barrier between" in str(fault)


@needs_gxx
@pytest.mark.parametrize("order", cuda_on_cpu.ORDERS)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_missing_barrier(number: int, order: str):
    """In front of the copies, behind the wait, behind the last one."""
    fault = fault_of(changed(built(), "__syncthreads();", "", number), orders=[order])
    assert fault.kind == "race" and re.search("with no (wait and )?barrier between", str(fault))


@needs_gxx
def test_a_barrier_in_front_of_the_wait_is_none():
    program = changed(built(), f"{WAIT}0();", "")
    fault = fault_of(changed(program, "__syncthreads();", f"__syncthreads(); {WAIT}0();", 2))
    assert fault.kind == "race" and "no wait and barrier between" in str(fault)


@needs_gxx
def test_what_is_copied_may_not_change_meanwhile():
    program = changed(built(), COMMIT, f"{COMMIT} x_ptr[threadIdx.x] = 7.0f; __syncthreads();")
    fault = fault_of(program)
    assert fault.kind == "race" and "x_ptr[" in str(fault)


COPY = "x_shared_ptr[((int)threadIdx.x)]"


@needs_gxx
@pytest.mark.parametrize(
    ("new", "kind", "message"),
    [
        (f"{COPY[:-1]} + 999]", "out-of-bounds", "copies 4 bytes at x_shared_ptr[999], but shared"),
        ("x_ptr[((int)threadIdx.x)]", "out-of-bounds", "is no address of shared memory"),
        ("((char*)x_shared_ptr)[threadIdx.x * 4 + 2]", "misaligned", "a copy of 4 bytes"),
        ("x_shared_ptr[0]", "race", "copies to x_shared_ptr[0], which"),
    ],
)
def test_other_mistakes(new: str, kind: str, message: str):
    fault = fault_of(changed(built(), COPY, new), orders=["forward"])
    assert fault.kind == kind and message in str(fault)


@needs_gxx
def test_other_ways_to_copy_are_named():
    for other in ("cp.async.cg.shared.global [%0], [%1], 4;", "cp.async.bulk [%0], [%1], 4;"):
        source = built().source.replace("cp.async.ca.shared.global [%0], [%1], 4;", other)
        with pytest.raises(UnsupportedCuda, match="inline PTX"):
            built().with_source(source)


# ---- What the step refuses -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "lanes", "message"),
    [
        ("float16", 1, "copies 1 of float16: an instruction copies 4, 8 or 16 bytes"),
        ("float32", 8, "copies 8 of float32"),
    ],
)
def test_copies_of_other_sizes_are_refused(dtype: str, lanes: int, message: str):
    with pytest.raises(ScheduleError, match=message) as caught:
        pipelined(lanes, dtype=dtype)
    assert fuse_epilogue.refusal_code(caught.value) == "rewriting"


def test_only_copies_to_shared_memory_are_made():
    sch, _, _ = loaded()
    with pytest.raises(ScheduleError, match="'turn' is not a copy in a loop"):
        rewrite(sch, sch.get_sblock("turn"), "cuda_copies")
    sch = Schedule(turned())
    tile = sch.cache_read("turn", 0, "local")
    with pytest.raises(ScheduleError, match="does not copy from global to shared memory"):
        rewrite(sch, tile, "cuda_copies")


def test_elements_that_do_not_lie_side_by_side_are_refused():
    sch, tile, _ = loaded()
    rows, columns = sch.get_loops(tile)[-2:]
    rows, four = sch.split(rows, [None, 4])
    sch.reorder(rows, columns, four)
    module = sch.mod
    with pytest.raises(ScheduleError, match="does not copy 4 elements side by side"):
        rewrite(sch, tile, "cuda_copies")
    assert sch.mod.same_as(module)
