"""Which elements a convolution computes, in which shapes and layouts, for the CPU rule."""

from __future__ import annotations

from typing import Any

import pytest
from tvm.script import tirx as T

from schedule_programs import Programs

PROGRAMS = Programs()


# ---- Which elements are computed -----------------------------------------------------------------


@PROGRAMS.add("rows")
@T.prim_func(s_tir=True)
def columns_outermost(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for i, k, c in T.grid(20, 3, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + x[vc, vi + vk] * w[vc, vk]


@PROGRAMS.add("loops")
@T.prim_func(s_tir=True)
def strided_columns_outermost(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 10))):
    for i, k, c in T.grid(10, 3, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + x[vc, vi * 2 + vk] * w[vc, vk]


@PROGRAMS.add("loops")
@T.prim_func(s_tir=True)
def no_loop_for_one_channel(x: T.Buffer((1, 22)), w: T.Buffer((1, 3)), y: T.Buffer((1, 10))):
    for i, k in T.grid(10, 3):
        with T.sblock("conv"):
            vc = T.axis.spatial(1, 0)
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + x[vc, vi * 2 + vk] * w[vc, vk]


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def every_second(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            T.where(i % 2 == 0)
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + x[vc, vi + vk] * w[vc, vk]


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def in_the_middle(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for c, i, k in T.grid(3, 10, 3):
        with T.sblock("conv"):
            vc, vk = T.axis.remap("SR", [c, k])
            vi = T.axis.spatial(20, i + 3)
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + x[vc, vi + vk] * w[vc, vk]


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def half_of_the_taps(x: T.Buffer((3, 23)), w: T.Buffer((3, 4)), y: T.Buffer((3, 20))):
    for c, i, k in T.grid(3, 20, 2):
        with T.sblock("conv"):
            vc, vi = T.axis.remap("SS", [c, i])
            vk = T.axis.reduce(4, k)
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + x[vc, vi + vk] * w[vc, vk]


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def some_channels(
    x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), m: T.Buffer((3,), "int8"), y: T.Buffer((3, 20))
):
    for c in range(3):
        if m[c] > T.int8(0):
            for i, k in T.grid(20, 3):
                with T.sblock("conv"):
                    vc, vi, vk = T.axis.remap("SSR", [c, i, k])
                    with T.init():
                        y[vc, vi] = T.float32(0)
                    y[vc, vi] = y[vc, vi] + x[vc, vi + vk] * w[vc, vk]


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def one_loop_for_two_axes(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for both, k in T.grid(60, 3):
        with T.sblock("conv"):
            vc = T.axis.spatial(3, both // 20)
            vi = T.axis.spatial(20, both % 20)
            vk = T.axis.reduce(3, k)
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + x[vc, vi + vk] * w[vc, vk]


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def two_channels_into_one(x: T.Buffer((4, 22)), w: T.Buffer((4, 3)), y: T.Buffer((2, 20))):
    """The second of two channels overwrites the first: in parallel, whichever comes last."""
    for c, i, k in T.grid(4, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc // 2, vi] = T.float32(0)
            y[vc // 2, vi] = y[vc // 2, vi] + x[vc, vi + vk] * w[vc, vk]


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def already_parallel(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for c in T.parallel(3):
        for i, k in T.grid(20, 3):
            with T.sblock("conv"):
                vc, vi, vk = T.axis.remap("SSR", [c, i, k])
                with T.init():
                    y[vc, vi] = T.float32(0)
                y[vc, vi] = y[vc, vi] + x[vc, vi + vk] * w[vc, vk]


# ---- Shapes and layouts --------------------------------------------------------------------------


@PROGRAMS.add("rows")
@T.prim_func(s_tir=True)
def one_row(x: T.Buffer((22,)), w: T.Buffer((3,)), y: T.Buffer((20,))):
    for i, k in T.grid(20, 3):
        with T.sblock("conv"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vi] = T.float32(0)
            y[vi] = y[vi] + x[vi + vk] * w[vk]


@PROGRAMS.add("loops")
@T.prim_func(s_tir=True)
def one_row_strided(x: T.Buffer((22,)), w: T.Buffer((3,)), y: T.Buffer((10,))):
    for i, k in T.grid(10, 3):
        with T.sblock("conv"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vi] = T.float32(0)
            y[vi] = y[vi] + x[vi * 2 + vk] * w[vk]


@PROGRAMS.add("rows")
@T.prim_func(s_tir=True)
def four_axes(x: T.Buffer((2, 3, 2, 11)), w: T.Buffer((3, 2, 4)), y: T.Buffer((2, 3, 2, 8))):
    for a, b, c, i, k in T.grid(2, 3, 2, 8, 4):
        with T.sblock("conv"):
            va, vb, vc, vi, vk = T.axis.remap("SSSSR", [a, b, c, i, k])
            with T.init():
                y[va, vb, vc, vi] = T.float32(0)
            y[va, vb, vc, vi] = y[va, vb, vc, vi] + x[va, vb, vc, vi + vk] * w[vb, vc, vk]


@PROGRAMS.add("rows")
@T.prim_func(s_tir=True)
def images_behind_channels(x: T.Buffer((3, 2, 11)), w: T.Buffer((4, 3)), y: T.Buffer((2, 3, 8))):
    for n, c, i, k in T.grid(2, 3, 8, 4):
        with T.sblock("conv"):
            vn, vc, vi, vk = T.axis.remap("SSSR", [n, c, i, k])
            with T.init():
                y[vn, vc, vi] = T.float32(0)
            y[vn, vc, vi] = y[vn, vc, vi] + x[vc, vn, vi + vk] * w[vk, vc]


@PROGRAMS.add("rows")
@T.prim_func(s_tir=True)
def two_filters_each(x: T.Buffer((3, 22)), w: T.Buffer((6, 3)), y: T.Buffer((6, 20))):
    for c, i, k in T.grid(6, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + x[vc // 2, vi + vk] * w[vc, vk]


@PROGRAMS.add("loops")
@T.prim_func(s_tir=True)
def columns_first(x: T.Buffer((22, 5)), w: T.Buffer((5, 3)), y: T.Buffer((20, 5))):
    for i, c, k in T.grid(20, 5, 3):
        with T.sblock("conv"):
            vi, vc, vk = T.axis.remap("SSR", [i, c, k])
            with T.init():
                y[vi, vc] = T.float32(0)
            y[vi, vc] = y[vi, vc] + x[vi + vk, vc] * w[vc, vk]


@PROGRAMS.add("rows")
@T.prim_func(s_tir=True)
def axes_of_two_types(
    x: T.Buffer((T.int64(2), 3, T.int64(22))), w: T.Buffer((3, 3)), y: T.Buffer((2, 3, 20))
):
    for n in range(T.int64(2)):
        for c, i, k in T.grid(3, T.int64(20), T.int64(3)):
            with T.sblock("conv"):
                vn, vc, vi, vk = T.axis.remap("SSSR", [n, c, i, k])
                with T.init():
                    y[vn, vc, vi] = T.float32(0)
                y[vn, vc, vi] = y[vn, vc, vi] + x[vn, vc, vi + vk] * w[vc, vk]


@PROGRAMS.add("rows")
@T.prim_func(s_tir=True)
def part_of_a_larger_result(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((2, 7, 25))):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[1, vc * 2 + 1, vi] = T.float32(0)
            y[1, vc * 2 + 1, vi] = y[1, vc * 2 + 1, vi] + x[vc, vi + vk] * w[vc, vk]


# ---- The tests -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_form(name: str) -> None:
    PROGRAMS.check_form(name)


@pytest.fixture(scope="module")
def built() -> Any:
    return PROGRAMS.compile()


@pytest.mark.parametrize("name", PROGRAMS.known())
def test_computes_the_same(built: Any, name: str) -> None:
    PROGRAMS.check_result(built, name)
