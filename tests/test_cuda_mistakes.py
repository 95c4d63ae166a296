"""Each kind of mistake in CUDA text is found where it is executed on the CPU.

The mistakes are made in the text of a right program, which TVM generated: a barrier less, an index
that is one too large.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm.s_tir import Schedule

import cuda_on_cpu
from cuda_programs import (
    affine,
    built,
    changed,
    convert,
    fault_of,
    matmul,
    needs_gxx,
    numbers,
    row_sums,
    transpose,
    with_body,
)

# Many small processes, and nothing of it is about memory in our own library.
pytestmark = pytest.mark.slow


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
