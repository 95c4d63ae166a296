"""Right programs for CUDA, one of each kind, and how to make mistakes in their text."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV
from tvm.script import tirx as T

import cuda_on_cpu
from cuda_on_cpu import CudaFault, CudaProgram

needs_gxx = pytest.mark.skipif(cuda_on_cpu.missing() is not None, reason=str(cuda_on_cpu.missing()))


def bind(sch: Schedule, loops: dict[str, LoopRV]) -> None:
    for tag, loop in loops.items():
        sch.bind(loop, tag)


def affine(dtype: str, lanes: int) -> Schedule:
    """``y = max(x * 3 + 0.1, 0)``, `lanes` elements at a time."""
    offset = 1 if dtype == "int8" else 0.1

    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((8, 128), dtype), y: T.Buffer((8, 128), dtype)):
        for i, j in T.grid(8, 128):
            with T.sblock("affine"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = T.max(
                    x[vi, vj] * T.Cast(dtype, 3) + T.Cast(dtype, offset), T.Cast(dtype, 0)
                )

    sch = Schedule(main)
    i, j = sch.get_loops("affine")
    outer, inner = sch.split(j, [None, lanes])
    sch.bind(i, "blockIdx.x")
    sch.bind(outer, "threadIdx.x")
    sch.vectorize(inner)
    return sch


def convert(source: str, target: str, n: int) -> Schedule:
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((n,), source), y: T.Buffer((n,), target)):
        for i in range(n):
            with T.sblock("convert"):
                vi = T.axis.spatial(n, i)
                y[vi] = T.Cast(target, x[vi])

    sch = Schedule(main)
    (i,) = sch.get_loops("convert")
    block, thread = sch.split(i, [None, 256])
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    return sch


def functions() -> Schedule:
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((64,), "float32"), y: T.Buffer((5, 64), "float32")):
        for i in range(64):
            with T.sblock("all"):
                vi = T.axis.spatial(64, i)
                y[0, vi] = T.exp(x[vi])
                y[1, vi] = T.tanh(x[vi])
                y[2, vi] = T.sigmoid(x[vi])
                y[3, vi] = T.erf(x[vi])
                y[4, vi] = T.sqrt(T.fabs(x[vi]))

    sch = Schedule(main)
    sch.bind(sch.get_loops("all")[0], "threadIdx.x")
    return sch


def transpose(scope: str) -> Schedule:
    """A tile of 16 x 16 through shared memory, threads in two dimensions."""

    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((32, 48), "float32"), y: T.Buffer((48, 32), "float32")):
        for i, j in T.grid(48, 32):
            with T.sblock("transpose"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vj, vi]

    sch = Schedule(main)
    i, j = sch.get_loops("transpose")
    by, ty, bx, tx = *sch.split(i, [None, 16]), *sch.split(j, [None, 16])
    sch.reorder(by, bx, ty, tx)
    tile = sch.cache_read("transpose", 0, scope)
    sch.compute_at(tile, bx)
    bind(sch, {"blockIdx.y": by, "blockIdx.x": bx, "threadIdx.y": ty, "threadIdx.x": tx})
    rows, columns = sch.get_loops(tile)[-2:]
    sch.bind(rows, "threadIdx.y")
    sch.bind(columns, "threadIdx.x")
    return sch


def matmul() -> Schedule:
    """Tiles of both operands in shared memory, loaded by vectors, used up and loaded again."""

    @T.prim_func(s_tir=True)
    def main(
        a: T.Buffer((32, 64), "float32"),
        b: T.Buffer((64, 32), "float32"),
        y: T.Buffer((32, 32), "float32"),
    ):
        for i, j, k in T.grid(32, 32, 64):
            with T.sblock("multiply"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    y[vi, vj] = T.float32(0)
                y[vi, vj] += a[vi, vk] * b[vk, vj]

    sch = Schedule(main)
    i, j, k = sch.get_loops("multiply")
    bi, ti, bj, tj = *sch.split(i, [None, 8]), *sch.split(j, [None, 8])
    outer, inner = sch.split(k, [None, 32])
    sch.reorder(bi, bj, ti, tj, outer, inner)
    sch.bind(bi, "blockIdx.y")
    sch.bind(bj, "blockIdx.x")
    threads = sch.fuse(ti, tj)
    sch.bind(threads, "threadIdx.x")
    local = sch.cache_write("multiply", 0, "local")
    sch.reverse_compute_at(local, threads)
    for operand in range(2):
        tile = sch.cache_read("multiply", operand, "shared")
        sch.compute_at(tile, outer)
        elements = sch.fuse(*sch.get_loops(tile)[-2:])
        thread, vector = sch.split(elements, [64, 4])
        sch.bind(thread, "threadIdx.x")
        sch.vectorize(vector)
    return sch


def row_sums(threads: int) -> Schedule:
    """Sums of rows by shuffles; more than a warp also by shared memory."""

    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((4, 512), "float32"), y: T.Buffer((4,), "float32")):
        for i, k in T.grid(4, 512):
            with T.sblock("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    y[vi] = T.float32(0)
                y[vi] += x[vi, vk]

    sch = Schedule(main)
    i, k = sch.get_loops("sum")
    sch.bind(i, "blockIdx.x")
    sch.bind(sch.split(k, [None, threads])[1], "threadIdx.x")
    return sch


def two_kernels() -> Schedule:
    """The second kernel reads a workspace that the first one wrote; n is known only at the call."""

    @T.prim_func(s_tir=True)
    def main(x: T.handle, y: T.handle):
        n = T.int64()
        X = T.match_buffer(x, (n, 64), "float16")
        Y = T.match_buffer(y, (n, 64), "float16")
        doubled = T.sblock_alloc_buffer((n, 64), "float16")
        for i, j in T.grid(n, 64):
            with T.sblock("double"):
                vi, vj = T.axis.remap("SS", [i, j])
                doubled[vi, vj] = X[vi, vj] + X[vi, vj]
        for i, j in T.grid(n, 64):
            with T.sblock("mirror"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = doubled[n - 1 - vi, 63 - vj] + X[vi, vj]

    sch = Schedule(main)
    for block in ("double", "mirror"):
        i, j = sch.get_loops(block)
        sch.bind(i, "blockIdx.x")
        sch.bind(j, "threadIdx.x")
    return sch


def shared_in_vectors(dtype: str) -> Schedule:
    """Both kernels access the workspace in vectors alone, of which its type is then one."""

    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((8, 64), dtype), y: T.Buffer((8, 64), dtype)):
        doubled = T.sblock_alloc_buffer((8, 64), dtype)
        for i, j in T.grid(8, 64):
            with T.sblock("double"):
                vi, vj = T.axis.remap("SS", [i, j])
                doubled[vi, vj] = x[vi, vj] + x[vi, vj]
        for i, j in T.grid(8, 64):
            with T.sblock("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = doubled[vi, vj] + x[vi, vj]

    sch = Schedule(main)
    for block in ("double", "add"):
        i, j = sch.get_loops(block)
        thread, lane = sch.split(j, [None, 4])
        sch.bind(i, "blockIdx.x")
        sch.bind(thread, "threadIdx.x")
        sch.vectorize(lane)
    return sch


def guarded() -> Schedule:
    """100 elements for 128 threads; indices in three dimensions of the grid."""

    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((2, 3, 100), "int32"), y: T.Buffer((2, 3, 100), "int32")):
        for i, j, k in T.grid(2, 3, 100):
            with T.sblock("copy"):
                vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                y[vi, vj, vk] = x[1 - vi, vj, vk]

    sch = Schedule(main)
    i, j, k = sch.get_loops("copy")
    outer, inner = sch.split(k, [None, 64])
    bind(sch, {"blockIdx.z": i, "blockIdx.y": j, "blockIdx.x": outer, "threadIdx.z": inner})
    return sch


@functools.cache
def built(schedule: Callable[..., Schedule], *arguments: object) -> CudaProgram:
    return cuda_on_cpu.build(schedule(*arguments).mod)


def changed(program: CudaProgram, old: str, new: str, number: int = 0) -> CudaProgram:
    """The program with `old`, at the `number`-th place in its kernels, replaced by `new`."""
    start = program.source.rindex("__launch_bounds__")
    for _ in range(number + 1):
        assert old in program.source[start:], program.source
        at = program.source.index(old, start)
        start = at + len(old)
    return program.with_source(program.source[:at] + new + program.source[start:])


def with_body(program: CudaProgram, statements: str) -> CudaProgram:
    """The program with other statements in its only kernel."""
    begin = program.source.index("{", program.source.rindex("__launch_bounds__"))
    return program.with_source(f"{program.source[: begin + 1]}\n{statements}\n}}\n")


def fault_of(program: CudaProgram, *arrays: np.ndarray, **options: object) -> CudaFault:
    with pytest.raises(CudaFault) as caught:
        program(*arrays, **options)
    return caught.value


def numbers(shape: tuple[int, ...], dtype: object = np.float32) -> np.ndarray:
    """Small integers: their sums are exact in any order."""
    return np.random.default_rng(1).integers(-8, 9, shape).astype(dtype)
