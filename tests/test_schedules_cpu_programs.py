"""Programs by hand around the CPU rule: each is scheduled as it says and computes the same.

Most of them look like a depthwise convolution with an epilogue and differ from one in a detail that
a schedule must see. What is no such convolution is refused (None); never may a result be wrong.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

from fuse_epilogue.schedules import cpu
from oracles import assert_same_bits, assert_same_special_values, compile_together, make

LLVM = tvm.target.Target("llvm")


class Programs(dict[str, tuple[Any, str | None]]):
    """By name, with the form of the schedule: "rows", "loops", or None where there is none."""

    # A method, since TVM's parser looks at the attributes of all decorators.
    def add(self, form: str | None) -> Any:
        def put(func: Any) -> Any:
            name = func.attrs["global_symbol"]
            assert name not in self
            self[name] = (func, form)
            return func

        return put


PROGRAMS = Programs()


# ---- What the sum is -----------------------------------------------------------------------------


@PROGRAMS.add("rows")
@T.prim_func(s_tir=True)
def alone(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + x[vc, vi + vk] * w[vc, vk]


@PROGRAMS.add("rows")
@T.prim_func(s_tir=True)
def not_from_zero(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = w[vc, 1] + T.float32(2)
            y[vc, vi] = w[vc, vk] * x[vc, vi + vk] + y[vc, vi]


@PROGRAMS.add("rows")
@T.prim_func(s_tir=True)
def any_term(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + T.max(x[vc, vi + vk] - w[vc, vk], w[vc, 0])


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def maximum(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = T.max(y[vc, vi], x[vc, vi + vk] * w[vc, vk])


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def subtracted(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] - x[vc, vi + vk] * w[vc, vk]


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def dense(x: T.Buffer((3, 22)), w: T.Buffer((3, 3, 3)), y: T.Buffer((3, 20))):
    for c, i, d, k in T.grid(3, 20, 3, 3):
        with T.sblock("conv"):
            vc, vi, vd, vk = T.axis.remap("SSRR", [c, i, d, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + x[vd, vi + vk] * w[vc, vd, vk]


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def squared(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + x[vc, vi + vk] * x[vc, vi + vk] * w[vc, vk]


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def two_windows(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + (x[vc, vi + vk] + x[vc, vi]) * w[vc, vk]


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def weighted_by_column(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + x[vc, vi + vk] * w[vc, vk] * T.Cast("float32", vi)


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def flipped(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + x[vc, vi - vk + 2] * w[vc, vk]


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def reversed_columns(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + x[vc, 19 - vi + vk] * w[vc, vk]


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def wrapped(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 22))):
    for c, i, k in T.grid(3, 22, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + x[vc, (vi + vk) % 22] * w[vc, vk]


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def gathered(
    x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), at: T.Buffer((22,), "int8"), y: T.Buffer((3, 20))
):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + w[vc, vk] * x[vc, T.Cast("int32", at[vi + vk]) % 8]


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def window_on_both_axes(x: T.Buffer((22, 22)), w: T.Buffer((3,)), y: T.Buffer((20,))):
    for i, k in T.grid(20, 3):
        with T.sblock("conv"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vi] = T.float32(0)
            y[vi] = y[vi] + x[vi + vk, vi] * w[vk]


# ---- Where x is read -----------------------------------------------------------------------------


@PROGRAMS.add("rows")
@T.prim_func(s_tir=True)
def guarded(x: T.Buffer((3, 20)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + w[vc, vk] * T.if_then_else(
                vi + vk < 21 and 0 < vi + vk, x[vc, vi + vk - 1], T.float32(0)
            )


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def guarded_too_late(x: T.Buffer((3, 20)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + w[vc, vk] * T.if_then_else(
                vi + vk >= 2 and vi + vk < 21, x[vc, vi + vk - 1], T.float32(0)
            )


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def guarded_too_early(x: T.Buffer((3, 20)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + w[vc, vk] * T.if_then_else(
                vi + vk >= 1 and vi + vk < 20, x[vc, vi + vk - 1], T.float32(0)
            )


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def guarded_by_something_else(x: T.Buffer((3, 30)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    """As if x had 20 columns: it has more, and they are not to be read."""
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + w[vc, vk] * T.if_then_else(
                vi + vk >= 1 and vi + vk < 21, x[vc, vi + vk - 1], T.float32(0)
            )


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def guarded_and_masked(
    x: T.Buffer((3, 20)), w: T.Buffer((3, 3)), m: T.Buffer((3,), "int8"), y: T.Buffer((3, 20))
):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + w[vc, vk] * T.if_then_else(
                vi + vk >= 1 and vi + vk < 21 and m[vc] > T.int8(0),
                x[vc, vi + vk - 1],
                T.float32(0),
            )


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def guarded_by_channel(x: T.Buffer((3, 20)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + w[vc, vk] * T.if_then_else(
                vc >= 1 and vi + vk >= 1 and vi + vk < 21, x[vc - 1, vi + vk - 1], T.float32(0)
            )


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def inside_out(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + w[vc, vk] * T.if_then_else(
                vi + vk >= 5, T.float32(0), x[vc, vi + vk]
            )


@PROGRAMS.add("loops")
@T.prim_func(s_tir=True)
def padded_with_one(x: T.Buffer((3, 20)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + w[vc, vk] * T.if_then_else(
                vi + vk >= 1 and vi + vk < 21, x[vc, vi + vk - 1], T.float32(1)
            )


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def padded_with_a_load(x: T.Buffer((3, 20)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + w[vc, vk] * T.if_then_else(
                vi + vk >= 1 and vi + vk < 21, x[vc, vi + vk - 1], w[vc, 0]
            )


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


# ---- What follows the sum ------------------------------------------------------------------------


@PROGRAMS.add("rows")
@T.prim_func(s_tir=True)
def residual(
    x: T.Buffer((3, 22)),
    w: T.Buffer((3, 3)),
    b: T.Buffer((3,)),
    r: T.Buffer((3, 20)),
    y: T.Buffer((3, 20)),
):
    s = T.sblock_alloc_buffer((3, 20))
    t = T.sblock_alloc_buffer((3, 20))
    u = T.sblock_alloc_buffer((3, 20))
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                s[vc, vi] = T.float32(0)
            s[vc, vi] = s[vc, vi] + x[vc, vi + vk] * w[vc, vk]
    for c, i in T.grid(3, 20):
        with T.sblock("bias"):
            vc, vi = T.axis.remap("SS", [c, i])
            t[vc, vi] = s[vc, vi] + b[vc]
    for c, i in T.grid(3, 20):
        with T.sblock("residual"):
            vc, vi = T.axis.remap("SS", [c, i])
            u[vc, vi] = t[vc, vi] + r[vc, vi]
    for c, i in T.grid(3, 20):
        with T.sblock("relu"):
            vc, vi = T.axis.remap("SS", [c, i])
            y[vc, vi] = T.max(u[vc, vi], T.float32(0))


@PROGRAMS.add("rows")
@T.prim_func(s_tir=True)
def gated(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), r: T.Buffer((3, 20)), y: T.Buffer((3, 20))):
    s = T.sblock_alloc_buffer((3, 20))
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                s[vc, vi] = T.float32(0)
            s[vc, vi] = s[vc, vi] + x[vc, vi + vk] * w[vc, vk]
    for c, i in T.grid(3, 20):
        with T.sblock("gate"):
            vc, vi = T.axis.remap("SS", [c, i])
            y[vc, vi] = s[vc, vi] * r[vc, vi] + s[vc, vi]


@PROGRAMS.add("loops")
@T.prim_func(s_tir=True)
def intermediate_is_a_result(
    x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), s: T.Buffer((3, 20)), y: T.Buffer((3, 20))
):
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                s[vc, vi] = T.float32(0)
            s[vc, vi] = s[vc, vi] + x[vc, vi + vk] * w[vc, vk]
    for c, i in T.grid(3, 20):
        with T.sblock("relu"):
            vc, vi = T.axis.remap("SS", [c, i])
            y[vc, vi] = T.max(s[vc, vi], T.float32(0))


@PROGRAMS.add("loops")
@T.prim_func(s_tir=True)
def two_results(
    x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20)), z: T.Buffer((3, 20))
):
    s = T.sblock_alloc_buffer((3, 20))
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                s[vc, vi] = T.float32(0)
            s[vc, vi] = s[vc, vi] + x[vc, vi + vk] * w[vc, vk]
    for c, i in T.grid(3, 20):
        with T.sblock("relu"):
            vc, vi = T.axis.remap("SS", [c, i])
            y[vc, vi] = T.max(s[vc, vi], T.float32(0))
    for c, i in T.grid(3, 20):
        with T.sblock("negative"):
            vc, vi = T.axis.remap("SS", [c, i])
            z[vc, vi] = T.min(s[vc, vi], T.float32(0))


@PROGRAMS.add("rows")
@T.prim_func(s_tir=True)
def result_larger_than_the_tail(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((4, 25))):
    s = T.sblock_alloc_buffer((3, 20))
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                s[vc, vi] = T.float32(0)
            s[vc, vi] = s[vc, vi] + x[vc, vi + vk] * w[vc, vk]
    for c, i in T.grid(3, 20):
        with T.sblock("relu"):
            vc, vi = T.axis.remap("SS", [c, i])
            y[vc + 1, vi] = T.max(s[vc, vi], T.float32(0))


@PROGRAMS.add("loops")
@T.prim_func(s_tir=True)
def tail_is_larger(
    x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), b: T.Buffer((3,)), y: T.Buffer((3, 25))
):
    s = T.sblock_alloc_buffer((3, 20))
    t = T.sblock_alloc_buffer((3, 20))
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                s[vc, vi] = T.float32(0)
            s[vc, vi] = s[vc, vi] + x[vc, vi + vk] * w[vc, vk]
    for c, i in T.grid(3, 20):
        with T.sblock("bias"):
            vc, vi = T.axis.remap("SS", [c, i])
            t[vc, vi] = s[vc, vi] + b[vc]
    for c, i in T.grid(3, 25):
        with T.sblock("padded"):
            vc, vi = T.axis.remap("SS", [c, i])
            y[vc, vi] = T.if_then_else(vi < 20, t[vc, vi], T.float32(1))


@PROGRAMS.add("loops")
@T.prim_func(s_tir=True)
def tail_is_smaller(
    x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), b: T.Buffer((3,)), y: T.Buffer((3, 20))
):
    s = T.sblock_alloc_buffer((3, 20))
    t = T.sblock_alloc_buffer((3, 20))
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                s[vc, vi] = T.float32(0)
            s[vc, vi] = s[vc, vi] + x[vc, vi + vk] * w[vc, vk]
    for c, i in T.grid(3, 20):
        with T.sblock("bias"):
            vc, vi = T.axis.remap("SS", [c, i])
            t[vc, vi] = s[vc, vi] + b[vc]
    for c, i in T.grid(3, 10):
        with T.sblock("relu"):
            vc = T.axis.spatial(3, c)
            vi = T.axis.spatial(20, i + 5)
            y[vc, vi] = T.max(t[vc, vi], T.float32(1))


@PROGRAMS.add("loops")
@T.prim_func(s_tir=True)
def tail_reads_two_elements(
    x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), b: T.Buffer((3,)), y: T.Buffer((3, 20))
):
    s = T.sblock_alloc_buffer((3, 20))
    t = T.sblock_alloc_buffer((3, 20))
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                s[vc, vi] = T.float32(0)
            s[vc, vi] = s[vc, vi] + x[vc, vi + vk] * w[vc, vk]
    for c, i in T.grid(3, 20):
        with T.sblock("bias"):
            vc, vi = T.axis.remap("SS", [c, i])
            t[vc, vi] = s[vc, vi] + b[vc]
    for c, i in T.grid(3, 20):
        with T.sblock("mirrored"):
            vc, vi = T.axis.remap("SS", [c, i])
            y[vc, vi] = t[vc, vi] + t[vc, 19 - vi]


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def tail_reads_its_own_result(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 21))):
    s = T.sblock_alloc_buffer((3, 20))
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                s[vc, vi] = T.float32(0)
            s[vc, vi] = s[vc, vi] + x[vc, vi + vk] * w[vc, vk]
    for c, i in T.grid(3, 20):
        with T.sblock("running"):
            vc, vi = T.axis.remap("SS", [c, i])
            y[vc, vi] = T.max(s[vc, vi], T.float32(0)) + y[vc, vi + 1]


@PROGRAMS.add("loops")
@T.prim_func(s_tir=True)
def in_place(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 19))):
    """19 columns: in vectors of 4 the last one would overlap, and add to some elements twice."""
    s = T.sblock_alloc_buffer((3, 19))
    for c, i, k in T.grid(3, 19, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                s[vc, vi] = T.float32(0)
            s[vc, vi] = s[vc, vi] + x[vc, vi + vk] * w[vc, vk]
    for c, i in T.grid(3, 19):
        with T.sblock("added"):
            vc, vi = T.axis.remap("SS", [c, i])
            y[vc, vi] = y[vc, vi] + T.max(s[vc, vi], T.float32(0))


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def tail_skips_elements(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    s = T.sblock_alloc_buffer((3, 20))
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                s[vc, vi] = T.float32(0)
            s[vc, vi] = s[vc, vi] + x[vc, vi + vk] * w[vc, vk]
    for c, i in T.grid(3, 20):
        with T.sblock("relu"):
            vc, vi = T.axis.remap("SS", [c, i])
            T.where(i % 3 == 0)
            y[vc, vi] = T.max(s[vc, vi], T.float32(0))


@PROGRAMS.add("loops")
@T.prim_func(s_tir=True)
def transposed(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((20, 3))):
    s = T.sblock_alloc_buffer((3, 20))
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                s[vc, vi] = T.float32(0)
            s[vc, vi] = s[vc, vi] + x[vc, vi + vk] * w[vc, vk]
    for c, i in T.grid(3, 20):
        with T.sblock("relu"):
            vc, vi = T.axis.remap("SS", [c, i])
            y[vi, vc] = T.max(s[vc, vi], T.float32(0))


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def two_convolutions(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 18))):
    s = T.sblock_alloc_buffer((3, 20))
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("first"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                s[vc, vi] = T.float32(0)
            s[vc, vi] = s[vc, vi] + x[vc, vi + vk] * w[vc, vk]
    for c, i, k in T.grid(3, 18, 3):
        with T.sblock("second"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + s[vc, vi + vk] * w[vc, vk]


# ---- What stands before it -----------------------------------------------------------------------


@PROGRAMS.add("loops")
@T.prim_func(s_tir=True)
def padded_and_strided(x: T.Buffer((3, 20)), w: T.Buffer((3, 3)), y: T.Buffer((3, 10))):
    p = T.sblock_alloc_buffer((3, 22))
    for c, i in T.grid(3, 22):
        with T.sblock("pad"):
            vc, vi = T.axis.remap("SS", [c, i])
            p[vc, vi] = T.if_then_else(vi >= 1 and vi < 21, x[vc, vi - 1], T.float32(0))
    for c, i, k in T.grid(3, 10, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + p[vc, vi * 2 + vk] * w[vc, vk]


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def padding_is_a_result(
    x: T.Buffer((3, 20)), w: T.Buffer((3, 3)), p: T.Buffer((3, 22)), y: T.Buffer((3, 20))
):
    for c, i in T.grid(3, 22):
        with T.sblock("pad"):
            vc, vi = T.axis.remap("SS", [c, i])
            p[vc, vi] = T.if_then_else(vi >= 1 and vi < 21, x[vc, vi - 1], T.float32(0))
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + p[vc, vi + vk] * w[vc, vk]


def scheduled(func: Any) -> Any:
    sch = cpu.DepthwiseConv1d(unroll=2, lanes=4).apply(func, LLVM)
    return None if sch is None else sch.mod["main"]


def form_of(func: Any) -> str | None:
    if func is None:
        return None
    return "rows" if 'T.sblock("rows")' in func.script() else "loops"


@pytest.mark.parametrize("name", PROGRAMS)
def test_form(name: str) -> None:
    func, form = PROGRAMS[name]
    assert form_of(scheduled(func)) == form


@pytest.fixture(scope="module")
def built() -> Any:
    functions = {}
    for name, (func, _) in PROGRAMS.items():
        after = scheduled(func)
        if after is not None:
            functions[name] = func
            functions[f"{name}_scheduled"] = after
    return compile_together(functions, opt_level=0)


@pytest.mark.parametrize("name", [name for name, (_, form) in PROGRAMS.items() if form])
def test_computes_the_same(built: Any, name: str) -> None:
    """What is written, and what is not: the results hold other numbers before."""
    func, _ = PROGRAMS[name]
    for kind in ("exact", "nasty"):
        rng = np.random.default_rng(zlib.crc32(f"{name}/{kind}".encode()))
        shapes = [(str(p.ty.dtype), tuple(map(int, p.ty.shape))) for p in func.params]
        inputs = [make(kind, dtype, shape, rng) for dtype, shape in shapes]
        before, after = ([tvm.runtime.tensor(a) for a in inputs] for _ in range(2))
        built[name](*before)
        built[f"{name}_scheduled"](*after)
        for param, one, other in zip(func.params, before, after, strict=True):
            what = f"{name}, {kind} data, {param.name}"
            if kind == "exact":
                assert_same_bits(other.numpy(), one.numpy(), what)
            else:
                assert_same_special_values(other.numpy(), one.numpy(), what)
