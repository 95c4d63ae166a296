"""What the CPU rule takes for the sum of a convolution, and what not."""

from __future__ import annotations

from typing import Any

import pytest
from tvm.script import tirx as T

from schedule_programs import Programs

PROGRAMS = Programs()


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
