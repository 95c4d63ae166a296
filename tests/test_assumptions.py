"""What a fusion assumes of its caller and of the machine: docs/concepts/contract.rst names each.

Each test shows where an assumption is checked, that nothing rests on it, or what comes of breaking
it, and then that TVM's own scheduling rests on it as well.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.s_tir import Schedule, ScheduleError
from tvm.script import tirx as T

from fuse_epilogue.verify import CertificateError, check
from fused_block import blocks
from mutation import without

ROWS, TERMS = 4, 16  # a row of int32 is as long as the alignment


@T.prim_func(s_tir=True)
def bias(
    A: T.Buffer((4, 16), "int32"),
    C: T.Buffer((4,), "int32"),
    D: T.Buffer((4,), "int32"),
):
    temp = T.sblock_alloc_buffer((4,), "int32")
    for i, k in T.grid(4, 16):
        with T.sblock("total"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] += A[vi, vk]
    for i in range(4):
        with T.sblock("bias"):
            vi = T.axis.spatial(4, i)
            D[vi] = temp[vi] + C[vi]


@T.prim_func(s_tir=True)
def any_size(a: T.handle, c: T.handle, d: T.handle):
    m, n = T.int32(), T.int32()
    A = T.match_buffer(a, (m, n), "int32")
    C = T.match_buffer(c, (m,), "int32")
    D = T.match_buffer(d, (m,), "int32")
    temp = T.sblock_alloc_buffer((m,), "int32")
    for i, k in T.grid(m, n):
        with T.sblock("total"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] += A[vi, vk]
    for i in range(m):
        with T.sblock("bias"):
            vi = T.axis.spatial(m, i)
            D[vi] = temp[vi] + C[vi]


@T.prim_func(s_tir=True)
def scaled(
    A: T.Buffer((4, 16), "float32"),
    C: T.Buffer((4,), "float32"),
    D: T.Buffer((4,), "float32"),
):
    temp = T.sblock_alloc_buffer((4,), "float32")
    for i, k in T.grid(4, 16):
        with T.sblock("total"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = T.float32(0)
            temp[vi] += A[vi, vk] * T.float32(0.1)
    for i in range(4):
        with T.sblock("bias"):
            vi = T.axis.spatial(4, i)
            D[vi] = temp[vi] * T.float32(0.3) + C[vi]


def with_strides(strides: tuple[int, ...]) -> tirx.PrimFunc:
    """A bias on sums whose result has strides."""

    @T.prim_func(s_tir=True)
    def stored_by_strides(A: T.Buffer((4, 3, 8), "int32"), d: T.handle):
        D = T.match_buffer(d, (4, 3), "int32", strides=strides)
        temp = T.sblock_alloc_buffer((4, 3), "int32")
        for i, j, k in T.grid(4, 3, 8):
            with T.sblock("total"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    temp[vi, vj] = 0
                temp[vi, vj] += A[vi, vj, vk]
        for i, j in T.grid(4, 3):
            with T.sblock("bias"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = temp[vi, vj] + vi

    return stored_by_strides


def fused(func: tirx.PrimFunc, **options: Any) -> tirx.PrimFunc:
    sch = Schedule(func, debug_mask="all")
    sch.fuse_reduction_epilogue("total", **options)
    return sch.mod["main"]


def built(**functions: tirx.PrimFunc) -> dict[str, Callable[..., None]]:
    """Compiled with the checks of their arguments."""
    named = {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
    module = tvm.compile(tvm.IRModule(named), target="llvm")
    return {name: module[name] for name in functions}


def given(*shape: int, fill: float = 1, dtype: str = "int32") -> Any:
    return tvm.runtime.tensor(np.full(shape, fill, dtype))


def aligned(count: int) -> np.ndarray:
    memory = np.zeros(4 * count + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + 4 * count].view("int32")


# ---- Memory --------------------------------------------------------------------------------------


def test_parameters_do_not_overlap() -> None:
    """The caller's duty, as for TVM's own primitives: they move stores past loads as well."""
    moved = Schedule(bias)
    moved.reverse_compute_at("bias", moved.get_loops("total")[0])
    functions = built(unfused=bias, fused=fused(bias), by_tvm=moved.mod["main"])
    results = {}
    for name, function in functions.items():
        memory = aligned(ROWS * TERMS)
        memory[:] = 1
        second_row = memory[TERMS : TERMS + ROWS]
        passed = [tvm.runtime.from_dlpack(a) for a in (memory.reshape(ROWS, TERMS), second_row)]
        function(passed[0], given(ROWS, fill=100), passed[1])
        results[name] = second_row.tolist()
    assert results["unfused"] == [116] * ROWS
    assert results["by_tvm"][1] != 116
    assert results["fused"][1] != 116


@pytest.mark.parametrize("func", [bias, any_size])
def test_what_is_passed_stays_as_it_is_declared(func: tirx.PrimFunc) -> None:
    """Alignment, strides and offsets are those of the function before: the same parameters."""
    after = fused(func)
    assert all(a.same_as(b) for a, b in zip(func.params, after.params, strict=True))
    assert len(func.params) == len(after.params)


def test_arrays_are_aligned_and_contiguous() -> None:
    """TVM takes no other ones, so that no function gets one, fused or not."""
    memory = aligned(64)
    assert tvm.runtime.from_dlpack(memory).shape == (64,)
    with pytest.raises(RuntimeError, match="not aligned to 64 bytes"):
        tvm.runtime.from_dlpack(memory[1:])
    with pytest.raises(RuntimeError, match="not contiguous"):
        tvm.runtime.from_dlpack(memory[::2])


def test_arrays_are_as_large_as_they_are_declared() -> None:
    """Compiled functions check it: what is in its declared buffer is in memory."""
    for function in built(before=bias, after=fused(bias)).values():
        function(given(ROWS, TERMS), given(ROWS), given(ROWS))
        with pytest.raises(ValueError, match=r"Invalid C.shape\[0\]"):
            function(given(ROWS, TERMS), given(ROWS - 1), given(ROWS))


@pytest.mark.parametrize("strides", [(4, 1), (1, 4), (12, 4)])
def test_elements_may_be_apart(strides: tuple[int, ...]) -> None:
    """Rows that are padded, and columns that are stored first, are places of their own."""
    sch = Schedule(with_strides(strides))
    before = sch.mod["main"]
    certificate = sch.fuse_reduction_epilogue("total").certificate
    check(before, sch.mod["main"], certificate)


@pytest.mark.parametrize("strides", [(0, 1), (2, 1), (1, 0), (1, 3)])
def test_elements_of_a_buffer_do_not_overlap(strides: tuple[int, ...]) -> None:
    """The sums of elements in one place would meet there; the unfused program stores the last."""
    sch = Schedule(with_strides(strides))
    before = sch.mod["main"]
    with pytest.raises(ScheduleError, match=r"\[output-write\] buffer 'D', which"):
        sch.fuse_reduction_epilogue("total")
    with without("output-write"):
        certificate = sch.fuse_reduction_epilogue("total").certificate
    with pytest.raises(CertificateError, match="strides put elements of 'D' into one place"):
        check(before, sch.mod["main"], certificate)


def cascade_with_stride(stride: int) -> tirx.PrimFunc:
    """The sum of exponentials of rows, which is stored by a stride."""

    @T.prim_func(s_tir=True)
    def stored_by_stride(X: T.Buffer((4, 16), "float32"), d: T.handle):
        D = T.match_buffer(d, (4,), "float32", strides=(stride,))
        top = T.sblock_alloc_buffer((4,), "float32")
        for i, k in T.grid(4, 16):
            with T.sblock("top"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    top[vi] = T.min_value("float32")
                top[vi] = T.max(top[vi], X[vi, vk])
        for i, k in T.grid(4, 16):
            with T.sblock("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    D[vi] = T.float32(0)
                D[vi] += T.exp(X[vi, vk] - top[vi])

    return stored_by_stride


def test_results_of_a_cascade_do_not_overlap() -> None:
    before = cascade_with_stride(2)
    sch = Schedule(before)
    certificate = sch.fuse_cascaded_reductions("sum").certificate
    check(before, sch.mod["main"], certificate)
    before = cascade_with_stride(0)
    sch = Schedule(before)
    with pytest.raises(ScheduleError, match=r"\[output-write\] buffer 'D', which"):
        sch.fuse_cascaded_reductions("sum")
    with without("output-write"):
        certificate = sch.fuse_cascaded_reductions("sum").certificate
    with pytest.raises(CertificateError, match="different elements of 'D' may be one place"):
        check(before, sch.mod["main"], certificate)


def test_outputs_are_written_more_than_once() -> None:
    """They hold partial sums until the function returns: nobody else may read or write them."""
    after = fused(bias)
    (stored,) = {str(store.source.name) for store in blocks(after)["total"].writes}
    assert stored == "D"
    assert [str(store.source.name) for store in blocks(bias)["total"].writes] == ["temp"]


# ---- Sizes ---------------------------------------------------------------------------------------


def test_a_sum_of_no_terms_has_no_result() -> None:
    """`T.init` runs with the first term: unfused, the epilogue reads what was never written."""
    functions = built(before=any_size, after=fused(any_size))
    for function in functions.values():
        result = given(3, fill=77)
        function(given(3, 2), given(3, fill=5), result)
        assert result.numpy().tolist() == [7] * 3
        function(given(0, 2), given(0), given(0))  # without elements there is nothing to do
    result = given(3, fill=77)
    functions["after"](given(3, 0), given(3, fill=5), result)
    assert result.numpy().tolist() == [77] * 3


# ---- Arithmetic ----------------------------------------------------------------------------------


def test_partial_sums_of_integers_wrap() -> None:
    """Absorbed, 16 * 2**28 - 2**31 begins where one more term with a minus would overflow."""
    start = np.int64(-(2**31))
    for terms in (2**28, -(2**28)):
        wanted = (16 * terms + start + 2**31) % 2**32 - 2**31
        for function in built(before=bias, after=fused(bias)).values():
            result = given(ROWS)
            function(given(ROWS, TERMS, fill=terms), given(ROWS, fill=int(start)), result)
            assert result.numpy().tolist() == [wanted] * ROWS


FOLDED: dict[str, Callable[[Any, Any], Any]] = {
    "x * 0": lambda x, factor: x * factor,
    "0 / x": lambda x, factor: factor / x,
    "x + 0": lambda x, factor: x + factor,
}


@pytest.mark.parametrize("name", FOLDED)
def test_tvm_folds_operations_with_a_literal_zero(name: str) -> None:
    """Also where a factor becomes one, because its loop is unrolled: as written, it does not."""

    def first(kind: Any) -> Any:
        @T.prim_func(s_tir=True)
        def func(X: T.Buffer((4,), "float32"), D: T.Buffer((4,), "float32")):
            for i in kind(4):
                with T.sblock("map"):
                    vi = T.axis.spatial(4, i)
                    D[vi] = FOLDED[name](X[vi], T.Cast("float32", vi))

        return func

    functions = built(before=first(T.serial), after=first(T.unroll))
    differ = 0
    for x in (np.nan, np.inf, -1.0, 0.0, -0.0):
        results = {}
        for key, function in functions.items():
            results[key] = given(4, fill=0, dtype="float32")
            function(given(4, fill=x, dtype="float32"), results[key])
        before, after = (results[key].numpy()[:1] for key in ("before", "after"))
        assert after.tobytes() == np.array([x if name == "x + 0" else 0.0], "float32").tobytes()
        differ += before.tobytes() != after.tobytes()
    assert differ > 0


def test_an_analyzer_that_has_failed_at_an_unsigned_comparison_is_of_no_use() -> None:
    x = tirx.Var("x", "uint32")
    zero, half = tirx.const(0, "uint32"), tirx.floordiv(x, tirx.const(2, "uint32"))
    analyzer = tvm.sym.Analyzer()
    assert analyzer.simplify(half).same_as(half)
    with pytest.raises(tvm.error.InternalError, match="negative uint"):
        analyzer.simplify(tirx.Select(x < zero, 1, 2))
    assert int(analyzer.simplify(half)) == 0
    assert tvm.sym.Analyzer().simplify(half).same_as(half)


class _Environment(ctypes.Structure):
    """glibc's ``fenv_t`` on x86-64: the last word is MXCSR."""

    _fields_ = (("x87", ctypes.c_uint32 * 7), ("mxcsr", ctypes.c_uint32))


_FLUSHING = 0x8040  # results and operands that are denormal become zero
MODES = {"nearest": 0, "down": 0x2000, "up": 0x4000, "to zero": 0x6000, "flush": _FLUSHING}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the modes are those of MXCSR")
def test_exact_numerics_keep_every_bit_in_every_rounding_mode() -> None:
    libm = ctypes.CDLL("libm.so.6")
    default = _Environment()
    libm.fegetenv(ctypes.byref(default))
    rng = np.random.default_rng(3)
    terms = rng.standard_normal((ROWS, TERMS)).astype("float32")
    terms[0] *= np.float32(1e-39)
    offsets = np.array([1e-40, 0.3, 1, 2], "float32")
    functions = built(before=scaled, after=fused(scaled, numerics="exact"))
    seen = set()
    for bits in MODES.values():
        results = []
        for function in functions.values():
            a, c, d = map(tvm.runtime.tensor, (terms, offsets, np.zeros(ROWS, "float32")))
            changed = _Environment.from_buffer_copy(default)
            changed.mxcsr |= bits
            libm.fesetenv(ctypes.byref(changed))
            function(a, c, d)
            libm.fesetenv(ctypes.byref(default))
            results.append(d.numpy().tobytes())
        assert results[0] == results[1]
        seen.add(results[0])
    assert len(seen) > 2  # the modes do make a difference
