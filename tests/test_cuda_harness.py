"""Executing CUDA text on the CPU: right programs run right, and each kind of mistake is found.

The mistakes are made in the text of a right program, which TVM generated: a barrier less, an index
that is one too large. The tests need g++; those of `nvcc.usage` need nvcc.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV
from tvm.script import tirx as T

import cuda_on_cpu
from cuda_on_cpu import CudaFault, CudaProgram, UnsupportedCuda, nvcc
from cuda_on_cpu.lowered import lower

# Many small processes, and nothing of it is about memory in our own library.
pytestmark = pytest.mark.slow

needs_gxx = pytest.mark.skipif(cuda_on_cpu.missing() is not None, reason=str(cuda_on_cpu.missing()))


# ---------------------------------------------------------------------------------------------
# Programs
# ---------------------------------------------------------------------------------------------


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


# ---------------------------------------------------------------------------------------------
# Right programs
# ---------------------------------------------------------------------------------------------

VECTORS = [
    *[("float32", lanes) for lanes in (1, 2, 4)],
    *[(dtype, lanes) for dtype in ("float16", "bfloat16") for lanes in (1, 2, 4, 8)],
    *[("int8", lanes) for lanes in (1, 2, 4)],
]


@needs_gxx
@pytest.mark.parametrize(("dtype", "lanes"), VECTORS)
def test_vectors_of_every_type(dtype: str, lanes: int):
    numpy_type = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    x = numbers((8, 128), np.float32) / (1 if dtype == "int8" else 7)
    x = x.astype(numpy_type)
    y = np.full_like(x, 77)
    built(affine, dtype, lanes)(x, y)
    scale, offset, zero = (numpy_type.type(v) for v in (3, 1 if dtype == "int8" else 0.1, 0))
    np.testing.assert_array_equal(y, np.maximum((x * scale).astype(numpy_type) + offset, zero))


@needs_gxx
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_every_16_bit_float_is_read_right(dtype: type):
    x = np.arange(65536, dtype=np.uint16).view(dtype)
    y = np.zeros(65536, np.float32)
    built(convert, np.dtype(dtype).name, "float32", 65536)(x, y, orders=["forward"])
    np.testing.assert_array_equal(y, x.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(y), np.signbit(x))


def smallest(dtype: str) -> Schedule:
    """Minima and maxima of an index, of floats and of 16 bits, in one kernel."""

    @T.prim_func(s_tir=True)
    def main(
        x: T.Buffer((64,), dtype), table: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")
    ):
        for i in range(64):
            with T.sblock("y"):
                vi = T.axis.spatial(64, i)
                y[vi] = T.min(table[T.max(T.min(vi, 40), 7)], T.float32(30)) + T.Cast(
                    "float32", T.max(x[vi], T.Cast(dtype, 1))
                )

    sch = Schedule(main)
    sch.bind(sch.get_loops("y")[0], "threadIdx.x")
    return sch


@needs_gxx
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_minima_of_integers_beside_those_of_16_bits(dtype: str):
    """TVM's text overloads min and max for 16 bits: the other overloads must stay in sight."""
    x = np.arange(-32, 32).astype(dtype)
    table, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    built(smallest, dtype)(x, table, y, orders=["forward"])
    expected = np.minimum(table[np.clip(np.arange(64), 7, 40)], 30) + np.maximum(
        np.arange(-32, 32), 1
    )
    np.testing.assert_array_equal(y, expected)


@needs_gxx
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_floats_are_rounded_to_16_bits_right(dtype: type):
    # Every 16-bit number and what lies beside and halfway to the next.
    with np.errstate(over="ignore", invalid="ignore"):
        exact = np.arange(65536, dtype=np.uint16).view(dtype).astype(np.float32)
        following = np.nextafter(exact, np.float32(np.inf))
        halfway = (exact[:-1] + exact[1:]) / 2
        wide = np.array([65519.9, 65520, 7e4, 1e38, 3.4e38, 2.0**-25, 2.0**-26, 1e-45], np.float32)
        x = np.concatenate([exact, following, -following, halfway, np.nextafter(halfway, 0), wide])
        x = np.resize(x, -(-x.size // 256) * 256).astype(np.float32)
        expected = x.astype(dtype)
    y = np.zeros(x.size, dtype)
    built(convert, "float32", np.dtype(dtype).name, x.size)(x, y, orders=["forward"])
    np.testing.assert_array_equal(y.astype(np.float32), expected.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(y)[~np.isnan(x)], np.signbit(expected)[~np.isnan(x)])


@needs_gxx
def test_functions():
    x = np.linspace(-4, 4, 64, dtype=np.float32)
    y = np.full((5, 64), np.nan, np.float32)
    built(functions)(x, y)
    wide = x.astype(np.float64)
    erf = np.vectorize(math.erf)
    expected = [np.exp(wide), np.tanh(wide), 1 / (1 + np.exp(-wide)), erf(wide), np.sqrt(abs(wide))]
    np.testing.assert_allclose(y, np.array(expected), rtol=2**-21)


@needs_gxx
@pytest.mark.parametrize("scope", ["shared", "shared.dyn"])
def test_shared_memory(scope: str):
    program = built(transpose, scope)
    assert ("extern __shared__" in program.source) == (scope == "shared.dyn")
    x, y = numbers((32, 48)), np.full((48, 32), np.nan, np.float32)
    program(x, y)
    np.testing.assert_array_equal(y, x.T)


@needs_gxx
def test_tiles_reloaded_in_a_loop():
    a, b, y = numbers((32, 64)), numbers((64, 32)), np.full((32, 32), np.nan, np.float32)
    built(matmul)(a, b, y)
    np.testing.assert_array_equal(y, a @ b)


@needs_gxx
@pytest.mark.parametrize("threads", [8, 32, 64, 512])
def test_shuffles(threads: int):
    program = built(row_sums, threads)
    assert "__shfl_down_sync" in program.source
    x, y = numbers((4, 512)), np.full(4, np.nan, np.float32)
    program(x, y)
    np.testing.assert_array_equal(y, x.sum(1))


@needs_gxx
@pytest.mark.parametrize("n", [1, 7])
def test_two_kernels_a_workspace_and_a_symbolic_size(n: int):
    x, y = numbers((n, 64), np.float16), np.full((n, 64), np.nan, np.float16)
    built(two_kernels)(x, y)
    np.testing.assert_array_equal(y, 2 * x[::-1, ::-1] + x)


@needs_gxx
def test_three_dimensions_and_a_guard():
    x, y = numbers((2, 3, 100), np.int32), np.zeros((2, 3, 100), np.int32)
    built(guarded)(x, y)
    np.testing.assert_array_equal(y, x[::-1])


# ---------------------------------------------------------------------------------------------
# Shuffles and votes that TVM's reductions do not use
# ---------------------------------------------------------------------------------------------

LANE = np.arange(64) % 32


@needs_gxx
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("__shfl_sync(~0u, lane, 5)", np.full(64, 5)),
        ("__shfl_sync(~0u, lane, 9, 8)", LANE // 8 * 8 + 1),
        ("__shfl_up_sync(~0u, lane, 3)", np.where(LANE < 3, LANE, LANE - 3)),
        ("__shfl_down_sync(~0u, lane, 3, 16)", np.where(LANE % 16 < 13, LANE + 3, LANE)),
        ("__shfl_xor_sync(~0u, lane, 1)", LANE ^ 1),
        ("__popc(__ballot_sync(~0u, lane < 7))", np.full(64, 7)),
        ("__any_sync(~0u, lane == 31) + 2 * __all_sync(~0u, lane < 31)", np.full(64, 1)),
        # Two halves of a warp that have diverged, each with a mask of its own.
        (
            "lane < 16 ? __shfl_sync(0xffffu, lane, 3) : __shfl_sync(0xffff0000u, lane, 20)",
            np.where(LANE < 16, 3, 20),
        ),
        ("lane < 4 ? __popc(__activemask()) : -1", np.where(LANE < 4, 4, -1)),
        # Written and read by different lanes, ordered by a barrier of the warp alone.
        ("(cell[threadIdx.x] = lane, __syncwarp(), cell[threadIdx.x ^ 1])", LANE ^ 1),
    ],
)
def test_operations_of_a_warp(expression: str, expected: np.ndarray):
    program = with_body(
        built(convert, "int32", "int32", 256),
        "__shared__ alignas(64) int cell[256];\n"
        "int lane = (int)threadIdx.x % 32;\n"
        f"int value = {expression};\n"
        "y_ptr[(int)threadIdx.x] = value;",
    )
    y = np.zeros(256, np.int32)
    program(np.zeros(256, np.int32), y)
    np.testing.assert_array_equal(y, np.tile(expected, 4))


# ---------------------------------------------------------------------------------------------
# Mistakes
# ---------------------------------------------------------------------------------------------


def arrays_of(schedule: Callable[..., Schedule]) -> list[np.ndarray]:
    if schedule is matmul:
        return [numbers((32, 64)), numbers((64, 32)), np.zeros((32, 32), np.float32)]
    if schedule is transpose:
        return [numbers((32, 48)), np.zeros((48, 32), np.float32)]
    return [numbers((4, 512)), np.zeros(4, np.float32)]


BARRIERS = [
    (transpose, ("shared",), 1),
    (transpose, ("shared.dyn",), 1),
    (matmul, (), 2),
    # The second one is not needed: thread 0 reads what thread 0 wrote.
    (row_sums, (64,), 1),
]


@needs_gxx
@pytest.mark.parametrize("order", cuda_on_cpu.ORDERS)
@pytest.mark.parametrize(
    ("schedule", "arguments", "number"),
    [(schedule, given, i) for schedule, given, count in BARRIERS for i in range(count)],
)
def test_a_missing_barrier(
    schedule: Callable[..., Schedule], arguments: tuple[str, ...], number: int, order: str
):
    program = changed(built(schedule, *arguments), "__syncthreads();", "", number)
    fault = fault_of(program, *arrays_of(schedule), orders=[order])
    assert fault.kind == "race", fault
    assert "_kernel" in str(fault) and f"order {order}" in str(fault)


# In the transposition: what is replaced, by what, and what the message says.
OUTSIDE = [
    ("= x_ptr[", "= x_ptr[-1 + ", "reads 4 bytes at x_ptr[-1]"),
    ("= x_ptr[", "= x_ptr[1 + ", "reads 4 bytes at x_ptr[1536], but x_ptr has 1536 elements"),
    ("= x_ptr[", "= x_ptr[(1 << 20) + ", "x_ptr[1048576]"),
    ("  y_ptr[", "  y_ptr[1 + ", "writes 4 bytes at y_ptr[1536]"),
    ("  y_ptr[", "  y_ptr[-1 + ", "writes 4 bytes at y_ptr[-1]"),
    ("= x_shared", "= 1[&x_shared", "reads 4 bytes at x_shared"),
    ("  x_shared", "  (-1)[&x_shared", "writes 4 bytes at x_shared"),
]


@needs_gxx
@pytest.mark.parametrize("scope", ["shared", "shared.dyn"])
@pytest.mark.parametrize(("old", "new", "message"), OUTSIDE)
def test_an_access_outside_an_array(scope: str, old: str, new: str, message: str):
    program = built(transpose, scope)
    if "shared" in old:  # &a[i] becomes (&a[i])[1], which is a[i + 1]
        begin = program.source.index(old, program.source.rindex("__launch_bounds__"))
        end = program.source.index("];" if old.startswith("=") else "] =", begin) + 1
        text = program.source[begin:end]
        program = program.with_source(program.source.replace(text, text.replace(old, new) + "]", 1))
    else:
        program = changed(program, old, new)
    fault = fault_of(program, *arrays_of(transpose))
    assert fault.kind == "out-of-bounds"
    assert message in str(fault)
    assert "kernel main_kernel, block (" in str(fault) and "thread (" in str(fault)
    assert "\n  line " in str(fault)


@needs_gxx
def test_a_vector_that_begins_inside_and_ends_outside():
    program = built(affine, "float32", 4)
    x, y = numbers((8, 128)), np.zeros((8, 128), np.float32)
    fault = fault_of(changed(program, "*(float4*)(x_ptr + ", "*(float4*)(x_ptr + 4 + "), x, y)
    assert fault.kind == "out-of-bounds" and "x_ptr[1024]" in str(fault)
    fault = fault_of(changed(program, "*(float4*)(y_ptr + ", "*(float4*)(y_ptr + 2 + "), x, y)
    assert fault.kind == "misaligned" and "multiple of 16" in str(fault)


IN_TRANSPOSE = [
    # A barrier that not all threads reach, or that they reach at different places.
    ("__syncthreads(); if (threadIdx.x < 3) __syncthreads();", "divergent barrier", "has finished"),
    ("if (threadIdx.x < 3) __syncthreads(); else\n __syncthreads();", "divergent barrier", "line"),
    ("__syncthreads(); if (threadIdx.x == 7) return; __syncthreads();", "divergent barrier", ""),
    # Shuffles without all their lanes.
    ("__syncthreads(); if (threadIdx.x < 3) __shfl_sync(~0u, 1, 0);", "deadlock", "shuffle"),
    ("__syncthreads(); __shfl_sync(1u, 1, 0);", "deadlock", "not in the mask"),
    # A local array; the index is not known to the compiler.
    ("__syncthreads(); volatile float a[4]; a[threadIdx.x] = 1;", "out-of-bounds", "index 4"),
    # Threads or blocks that store different values, or that read what another one writes.
    ("__syncthreads(); x_ptr[1535] = threadIdx.x;", "race", "another value"),
    ("__syncthreads(); if (threadIdx.y == 3) x_ptr[1535] = blockIdx.x;", "race", "another block"),
    ("__syncthreads(); volatile int zero = 0; zero = 7 / zero;", "crash", "signal"),
]  # fmt: skip


@needs_gxx
@pytest.mark.parametrize(("new", "kind", "message"), IN_TRANSPOSE)
def test_other_mistakes(new: str, kind: str, message: str):
    program = changed(built(transpose, "shared"), "__syncthreads();", new)
    fault = fault_of(program, *arrays_of(transpose))
    assert fault.kind == kind, fault
    assert message in str(fault)


@needs_gxx
def test_equal_values_may_be_stored_twice():
    program = with_body(
        built(convert, "int32", "int32", 512),
        "y_ptr[threadIdx.x] = 7 * (int)threadIdx.x; y_ptr[511] = 7;\n"
        # The second thread stores one of two elements again.
        "if (threadIdx.x == 0) y_ptr[301] = 5;\n"
        "if (threadIdx.x == 1) *(int2*)(y_ptr + 300) = make_int2(5, 5);",
    )
    x, y = np.zeros(512, np.int32), np.zeros(512, np.int32)
    program(x, y)
    assert (y[255], y[256], y[300], y[301], y[511]) == (7 * 255, 0, 5, 5, 7)


@needs_gxx
def test_what_nobody_wrote_differs_between_the_orders():
    # The barrier stays, and the store goes: every thread reads shared memory as it was.
    program = built(transpose, "shared")
    program = changed(program, "  x_shared_ptr[", "  float unused_ptr[256]; unused_ptr[")
    assert fault_of(program, *arrays_of(transpose)).kind == "order"
    program(*arrays_of(transpose), orders=["forward"])


@needs_gxx
def test_a_loop_without_end():
    program = changed(built(transpose, "shared"), "__syncthreads();", "for (;;) __syncthreads();")
    assert fault_of(program, *arrays_of(transpose), timeout=0.5).kind == "timeout"


@needs_gxx
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("__launch_bounds__(256)", "__launch_bounds__(128)", "16 x 16 x 1 threads exceed"),
        ("float x_shared_ptr[256]", "float x_shared_ptr[12289]", "49152 bytes of static shared"),
    ],
)
def test_sizes_that_cuda_refuses(old: str, new: str, message: str):
    program = changed(built(transpose, "shared"), old, new)
    fault = fault_of(program, *arrays_of(transpose))
    assert fault.kind == "launch" and message in str(fault)


@needs_gxx
def test_arguments_are_checked_by_tvm():
    program = built(transpose, "shared")
    x, y = arrays_of(transpose)
    fault = fault_of(program, x, y[:5])
    assert fault.kind == "arguments" and "y.shape[0]" in str(fault)
    with pytest.raises(ValueError, match="contiguous"):
        program(x.T, y)
    with pytest.raises(ValueError, match="orders"):
        program(x, y, orders=["sideways"])


# ---------------------------------------------------------------------------------------------
# What is not supported
# ---------------------------------------------------------------------------------------------

UNSUPPORTED = [
    ("atomicAdd(y_ptr, 1.0f);", "atomicAdd"),
    ('asm volatile("cp.async.bulk.wait_group 0;");', "inline PTX (cp.async.bulk.wait_group)"),
    (
        '__asm__ __volatile__("{ .reg .pred p; @p mbarrier.init.b64 [%0], 1; }" :: "r"(1));',
        "inline PTX (mbarrier.init.b64)",
    ),
    ("nvcuda::wmma::fragment<int> tile;", "nvcuda"),
    ("cooperative_groups::this_grid().sync();", "cooperative_groups"),
    ("float v = tex1Dfetch(0, 1);", "tex1Dfetch"),
    ("__nanosleep(5);", "__nanosleep"),
    ("int v = __dp4a(1u, -1, 0); y_ptr[0] = v;", "inline PTX"),
]


@needs_gxx
@pytest.mark.parametrize(("new", "name"), UNSUPPORTED)
def test_an_unsupported_construct_is_named(new: str, name: str):
    program = built(transpose, "shared")
    helper = (
        "static inline __device__ int __dp4a(unsigned a, int b, int c) {\n"
        '  int d; asm volatile("dp4a.u32.s32 %0, %1, %2, %3;"\n : "=r"(d) : "r"(a)); return d;\n}\n'
    )
    at = program.source.index('extern "C"')
    program = program.with_source(program.source[:at] + helper + program.source[at:])
    with pytest.raises(UnsupportedCuda) as caught:
        changed(program, "__syncthreads();", "__syncthreads(); " + new)
    assert caught.value.constructs == (name,)


@needs_gxx
def test_a_text_that_is_no_cuda():
    # TVM 0.27 writes eight numbers into an int2; nvcc refuses the text as well.
    with pytest.raises(
        UnsupportedCuda, match="too many arguments to function 'int2 make_int2"
    ) as why:
        cuda_on_cpu.build(affine("int8", 8).mod)
    assert "(signed char)3" in str(why.value)


@needs_gxx
def test_a_function_without_threads():
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((4,), "int32"), y: T.Buffer((4,), "int32")):
        for i in range(4):
            with T.sblock("copy"):
                y[i] = x[i]

    with pytest.raises(Exception, match="memory|kernel|bind"):
        cuda_on_cpu.build(main)


# ---------------------------------------------------------------------------------------------
# nvcc
# ---------------------------------------------------------------------------------------------

ARCHITECTURES = [
    pytest.param(
        arch,
        marks=pytest.mark.skipif(nvcc.missing(arch) is not None, reason=str(nvcc.missing(arch))),
    )
    for arch in ("sm_80", "sm_90", "sm_100")
]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_nvcc_tells_what_a_kernel_takes(arch: str):
    usage = nvcc.usage(lower(transpose("shared").mod, arch).source, arch)
    assert list(usage) == ["main_kernel"]
    kernel = usage["main_kernel"]
    # ptxas adds to what the text declares: sm_90 and later keep 1 KiB for the system.
    assert kernel.shared - 16 * 16 * 4 in (0, 1024)
    assert 0 < kernel.registers <= 255
    assert (kernel.stack, kernel.spill_stores, kernel.spill_loads) == (0, 0, 0)


@pytest.mark.parametrize("arch", ARCHITECTURES[1:2])
def test_nvcc_tells_of_spills(arch: str):
    # 1024 threads leave 64 registers to each; 100 values are alive at once.
    values = "".join(f"float v{i} = x[threadIdx.x * 100 + {i}];\n" for i in range(100))
    uses = "".join(f"x[threadIdx.x * 100 + {i}] = v{99 - i};\n" for i in range(100))
    usage = nvcc.usage(
        f'extern "C" __global__ void __launch_bounds__(1024) k(float* x) {{\n{values}'
        f"__syncthreads();\n{uses}}}\n",
        arch,
    )
    assert usage["k"].registers <= 64
    assert usage["k"].spill_stores > 0 and usage["k"].spill_loads > 0


@pytest.mark.parametrize("arch", ARCHITECTURES[1:2])
def test_nvcc_refuses(arch: str):
    with pytest.raises(nvcc.NvccError, match="too many arguments"):
        nvcc.usage(lower(affine("int8", 8).mod, arch).source, arch)
