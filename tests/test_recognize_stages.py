"""Functions read as stages: which are, what a stage has, and what inlining makes of them."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

from fuse_epilogue.kernels.cpu import row_program
from fuse_epilogue.recognize.inlining import inlined
from fuse_epilogue.recognize.stages import read_program
from fuse_epilogue.schedules import host
from fuse_epilogue.workloads import matmul


@T.prim_func(s_tir=True)
def transposed(a: T.Buffer((8, 4), "float32"), b: T.Buffer((4, 2, 4), "float32")) -> None:
    c = T.sblock_alloc_buffer((2, 4, 4))
    for i, j, k in T.grid(2, 4, 4):
        with T.sblock("reshape"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            c[vi, vj, vk] = a[(vi * 16 + vj * 4 + vk) // 4, (vi * 16 + vj * 4 + vk) % 4]
    for i, j, k in T.grid(4, 2, 4):
        with T.sblock("transpose"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            b[vi, vj, vk] = c[vj, vi, vk]


@T.prim_func(s_tir=True)
def at_an_offset(x: T.handle, b: T.Buffer((8,), "float32")) -> None:
    start = T.int64()
    a = T.match_buffer(x, (8,), "float32", elem_offset=start)
    for i in range(8):
        with T.sblock("copy"):
            vi = T.axis.spatial(8, i)
            b[vi] = a[vi]


@T.prim_func(s_tir=True)
def argmax(
    a: T.Buffer((8, 4), "float32"), b: T.Buffer((8,), "int32"), c: T.Buffer((8,), "float32")
) -> None:
    for i, k in T.grid(8, 4):
        with T.sblock("argmax"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                b[vi] = 0
                c[vi] = T.min_value("float32")
            best: T.let[T.int32] = T.Select(c[vi] < a[vi, vk], vk, b[vi])
            value: T.let[T.float32] = T.max(c[vi], a[vi, vk])
            b[vi] = best
            c[vi] = value


@T.prim_func(s_tir=True)
def half_written(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")) -> None:
    for i in range(4):
        with T.sblock("half"):
            vi = T.axis.spatial(4, i)
            b[vi] = a[vi]


@T.prim_func(s_tir=True)
def predicated(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")) -> None:
    for i in range(8):
        with T.sblock("predicated"):
            vi = T.axis.spatial(8, i)
            T.where(i < 7)
            b[vi] = a[vi]


@T.prim_func(s_tir=True)
def reads_later(
    a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32"), c: T.Buffer((8,), "float32")
) -> None:
    for i in range(8):
        with T.sblock("first"):
            vi = T.axis.spatial(8, i)
            b[vi] = a[vi] + c[vi]
    for i in range(8):
        with T.sblock("second"):
            vi = T.axis.spatial(8, i)
            c[vi] = a[vi]


@T.prim_func(s_tir=True)
def written_twice(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")) -> None:
    for i in range(8):
        with T.sblock("first"):
            vi = T.axis.spatial(8, i)
            b[vi] = a[vi]
    for i in range(8):
        with T.sblock("second"):
            vi = T.axis.spatial(8, i)
            b[vi] = a[vi] * T.float32(2)


@T.prim_func(s_tir=True)
def reads_between(
    a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32"), c: T.Buffer((8,), "float32")
) -> None:
    for i, k in T.grid(8, 1):
        with T.sblock("pair"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                b[vi] = T.float32(0)
                c[vi] = T.float32(0)
            b[vi] = b[vi] + a[vi]
            c[vi] = c[vi] + b[vi]


@T.prim_func(s_tir=True)
def running_sum(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")) -> None:
    c = T.sblock_alloc_buffer((4,))
    for i, k in T.grid(4, 8):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                c[vi] = T.float32(0)
            c[vi] = c[vi] + a[vi, vk]
        with T.sblock("so_far"):
            vi, vk = T.axis.remap("SS", [i, k])
            b[vi, vk] = c[vi]


@T.prim_func(s_tir=True)
def reads_before_it_is_stored(
    a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32"), c: T.Buffer((8,), "float32")
) -> None:
    for i in range(8):
        with T.sblock("first"):
            vi = T.axis.spatial(8, i)
            b[vi] = a[vi]
        with T.sblock("second"):
            vi = T.axis.spatial(8, i)
            c[vi] = b[7 - vi]


@T.prim_func(s_tir=True)
def in_shared_loops(
    a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32"), c: T.Buffer((4,), "float32")
) -> None:
    for i in range(4):
        for k in range(8):
            with T.sblock("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    c[vi] = T.float32(0)
                c[vi] = c[vi] + a[vi, vk]
        for k in range(8):
            with T.sblock("less"):
                vi, vk = T.axis.remap("SS", [i, k])
                b[vi, vk] = a[vi, vk] - c[vi]


def test_blocks_may_share_the_loops_around_a_sum() -> None:
    program = read_program(in_shared_loops)
    assert program is not None
    assert [stage.name for stage in program.stages] == ["sum", "less"]


def test_stages_have_axes_values_and_starts() -> None:
    program = read_program(matmul(4, 5, 6, activation="relu"))
    assert program is not None
    product, bias, relu = program.stages
    assert (product.shape, [axis.extent for axis in product.reduced]) == ((4, 5), [6])
    assert product.init is not None and relu.init is None
    assert [stage.name for stage in program.readers(product.output)] == [bias.name]
    assert program.stage_of(relu.output) is relu and program.outputs == (relu.output,)
    assert not program.is_param(product.output) and len(program.inputs) == 3


def test_inlining_simplifies_indices() -> None:
    program = read_program(transposed)
    assert program is not None
    (stage,) = inlined(program).stages
    assert str(stage.value) == "a[vj * 4 + vi, vk]"


def test_only_wanted_stages_are_inlined() -> None:
    program = read_program(transposed)
    assert program is not None
    assert inlined(program, lambda stage, readers: len(readers) > 1) is program


def test_a_reduction_of_two_buffers_is_one_stage() -> None:
    program = read_program(argmax)
    assert program is not None
    (stage,) = program.stages
    assert [str(store.buffer.name) for store in stage.stores] == ["b", "c"]
    assert str(stage.stores[1].init) != str(stage.stores[0].init)


@pytest.mark.parametrize(
    "func",
    [
        half_written,
        predicated,
        reads_later,
        written_twice,
        reads_between,
        running_sum,
        reads_before_it_is_stored,
    ],
    ids=lambda func: str(func.attrs["global_symbol"]),
)
def test_other_functions_are_not_read(func: tirx.PrimFunc) -> None:
    assert read_program(func) is None


def test_a_buffer_that_begins_anywhere_is_not_read() -> None:
    assert read_program(at_an_offset) is None


@T.prim_func(s_tir=True)
def cancelled(a: T.Buffer((8, 4), "float32"), b: T.Buffer((8,), "float32")) -> None:
    c = T.sblock_alloc_buffer((8, 4))
    for i, k in T.grid(8, 4):
        with T.sblock("more"):
            vi, vk = T.axis.remap("SS", [i, k])
            c[vi, vk] = a[vi, vk] + T.float32(1)
    for i, k in T.grid(8, 4):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                b[vi] = T.float32(0)
            b[vi] = b[vi] + (c[vi, vk] - a[vi, vk])


@T.prim_func(s_tir=True)
def multiplied(a: T.Buffer((8, 4), "float32"), b: T.Buffer((8,), "float32")) -> None:
    c = T.sblock_alloc_buffer((8, 4))
    for i, k in T.grid(8, 4):
        with T.sblock("more"):
            vi, vk = T.axis.remap("SS", [i, k])
            c[vi, vk] = a[vi, vk] + T.float32(1)
    for i, k in T.grid(8, 4):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                b[vi] = T.float32(0)
            b[vi] = b[vi] + c[vi, vk] * a[vi, vk]


def test_what_would_cancel_in_its_reader_is_not_inlined() -> None:
    """TVM's simplifier makes 1 of (x + 1) - x, which is NaN for an infinite x."""
    program, twin = read_program(cancelled), read_program(multiplied)
    assert program is not None and twin is not None
    assert [each.name for each in inlined(program).stages] == ["more", "sum"]
    assert [each.name for each in inlined(twin).stages] == ["sum"]


def test_kernels_have_the_nan_of_infinite_elements_that_cancel() -> None:
    x = np.ones((8, 4), "float32")
    x[2, 3] = np.inf
    program = read_program(cancelled)
    assert program is not None
    made = next(row_program.alternatives(program, host(1)), None)
    assert made is not None
    for func in (cancelled, made.func):
        out = tvm.runtime.tensor(np.zeros(8, "float32"))
        built = tvm.compile(func.with_attr("global_symbol", "main"), host(1))
        built["main"](tvm.runtime.tensor(x), out)
        assert np.isnan(out.numpy()[2]) and (np.delete(out.numpy(), 2) == 4).all()
