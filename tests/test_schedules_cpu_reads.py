"""Where a convolution reads its input: guards, and what stands before it, for the CPU rule."""

from __future__ import annotations

from typing import Any

import pytest
from tvm.script import tirx as T

from schedule_programs import Programs

PROGRAMS = Programs()


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
