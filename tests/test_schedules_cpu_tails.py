"""What follows a convolution: what the CPU rule fuses, and what it leaves."""

from __future__ import annotations

from typing import Any

import pytest
from tvm.script import tirx as T

from schedule_programs import Programs

PROGRAMS = Programs()


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
