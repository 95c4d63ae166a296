"""Executing CUDA text on the CPU: right programs run right, and what is not supported is named.

What mistakes come to is in `test_cuda_mistakes`. The tests need g++; those of `nvcc.usage` need
nvcc.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from tvm.s_tir import Schedule
from tvm.script import tirx as T

import cuda_on_cpu
from cuda_on_cpu import UnsupportedCuda, nvcc
from cuda_on_cpu.lowered import lower
from cuda_programs import (
    affine,
    built,
    changed,
    convert,
    functions,
    guarded,
    matmul,
    needs_gxx,
    numbers,
    row_sums,
    shared_in_vectors,
    transpose,
    two_kernels,
    with_body,
)

# Many small processes, and nothing of it is about memory in our own library.
pytestmark = pytest.mark.slow


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
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_a_workspace_of_vectors(dtype: str):
    x, y = numbers((8, 64), dtype), np.zeros((8, 64), dtype)
    built(shared_in_vectors, dtype)(x, y)
    np.testing.assert_array_equal(y, 3 * x)


@needs_gxx
def test_functions_compiled_together():
    programs = cuda_on_cpu.build_all([f().mod["main"] for f in (guarded, matmul)])
    x, y = numbers((2, 3, 100), np.int32), np.zeros((2, 3, 100), np.int32)
    programs[0](x, y)
    np.testing.assert_array_equal(y, x[::-1])
    a, b, y = numbers((32, 64)), numbers((64, 32)), np.zeros((32, 32), np.float32)
    programs[1](a, b, y)
    np.testing.assert_array_equal(y, a @ b)


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
