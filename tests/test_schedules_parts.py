"""The parts of the schedules: unread columns and guards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.target import Target

from fuse_epilogue.recognize.depthwise import find_depthwise_conv
from fuse_epilogue.rewrites.prepare import prepare
from fuse_epilogue.rewrites.shrink_buffers import without_unread
from fuse_epilogue.workloads import depthwise_conv1d
from fused_block import blocks
from oracles import compile_together

LLVM = Target("llvm")

# ---- Unread --------------------------------------------------------------------------------------


def two_blocks(read: str, columns: Any = 6, more: str = "") -> Any:
    """A function with s[4, 10] = x * 2, and y[3, columns] = what `read` says."""
    lines = f"""
@T.prim_func(s_tir=True)
def f(x: T.Buffer((4, 10)), p: T.Buffer((10,), "int32"), y: T.Buffer((4, 40)),
      z: T.Buffer((4, 40))):
    s = T.sblock_alloc_buffer((4, 10))
    for c, i in T.grid(4, 10):
        with T.sblock("s"):
            vc, vi = T.axis.remap("SS", [c, i])
            s[vc, vi] = x[vc, vi] * T.float32(2)
    {more}
    for c, i in T.grid(3, {columns}):
        with T.sblock("y"):
            vc, vi = T.axis.remap("SS", [c, i])
            y[vc, vi] = {read}
"""
    return tvm.script.from_source(lines, {"T": T})


ANOTHER = """for c, i in T.grid(2, 9):
        with T.sblock("z"):
            vc, vi = T.axis.remap("SS", [c, i])
            z[vc, vi] = s[vc, vi]"""
WRITER = """for c, i in T.grid(4, 2):
        with T.sblock("w"):
            vc, vi = T.axis.remap("SS", [c, i])
            s[vc, vi] = x[vc, vi]"""
OPAQUE = """for c in range(1):
        with T.sblock("o"):
            vc = T.axis.spatial(1, c)
            T.reads(s[0, 0:10])
            T.writes(z[0, 0])
            T.evaluate(T.call_extern("int32", "g", T.address_of(s[0, 0]), T.address_of(z[0, 0])))"""

UNREAD = {
    "a corner": ("s[vc, vi]", 6, "", (3, 6)),
    "from an offset": ("s[vc + 1, vi + 2]", 6, "", (4, 8)),
    "every second": ("s[vc, vi * 2]", 4, "", (3, 7)),
    "a sum of axes": ("s[vc, vi + vc]", 6, "", (3, 8)),
    "two loads": ("s[vc, vi] + s[0, vi + 1]", 6, "", (3, 7)),
    "one element": ("s[2, 3]", 6, "", (3, 4)),
    "all": ("s[vc + 1, vi]", 10, "", (4, 10)),
    "reversed": ("s[vc, 9 - vi]", 6, "", (3, 10)),
    "an unknown index": ("s[vc, p[vi]]", 6, "", (3, 10)),
    "another reader": ("s[vc, vi]", 6, ANOTHER, (3, 9)),
    "another writer": ("s[vc, vi]", 6, WRITER, (4, 10)),
    "an address taken": ("s[vc, vi]", 6, OPAQUE, (4, 10)),
    "modulo": ("s[vc, (vi + 7) % 10]", 6, "", (3, 10)),
    "under a condition": ("T.if_then_else(vi < 6, s[vc, vi], T.float32(0))", 12, "", (3, 10)),
}


def shape_of_s(func: Any) -> tuple[int, ...]:
    (s,) = (buffer for buffer in func.body.block.alloc_buffers if buffer.name == "s")
    return tuple(int(size) for size in s.ty.shape)


@pytest.mark.parametrize("name", UNREAD)
def test_unread_elements_are_left_out(name: str) -> None:
    """The writer's loops and axes, and the buffer, end where the readers do."""
    read, columns, more, shape = UNREAD[name]
    before = two_blocks(read, columns, more)
    after = without_unread(before)
    assert shape_of_s(after) == shape
    assert (after is before) == (shape == (4, 10))
    writer = blocks(after)["s"]
    assert tuple(int(axis.dom.extent) for axis in writer.iter_vars) == shape
    if "extern" in more:
        return
    built = compile_together({"before": before, "after": after}, opt_level=0)
    rng = np.random.default_rng(1)
    arrays = [
        rng.standard_normal((4, 10)).astype("float32"),
        rng.integers(0, 10, 10).astype("int32"),
        *np.zeros((2, 4, 40), "float32"),
    ]
    one, other = ([tvm.runtime.tensor(a) for a in arrays] for _ in range(2))
    built["before"](*one)
    built["after"](*other)
    for index in (2, 3):
        np.testing.assert_array_equal(one[index].numpy(), other[index].numpy())


def test_results_are_not_shrunk() -> None:
    """What is a parameter is read by the caller."""

    @T.prim_func(s_tir=True)
    def func(x: T.Buffer((10,)), s: T.Buffer((10,)), y: T.Buffer((6,))):
        for i in range(10):
            with T.sblock("s"):
                vi = T.axis.spatial(10, i)
                s[vi] = x[vi]
        for i in range(6):
            with T.sblock("y"):
                vi = T.axis.spatial(6, i)
                y[vi] = s[vi]

    assert without_unread(func) is func


def test_unread_in_a_chain() -> None:
    """What a shrunk block no longer reads is left out as well."""

    @T.prim_func(s_tir=True)
    def func(x: T.Buffer((12,)), y: T.Buffer((6,))):
        r = T.sblock_alloc_buffer((12,))
        s = T.sblock_alloc_buffer((10,))
        for i in range(12):
            with T.sblock("r"):
                vi = T.axis.spatial(12, i)
                r[vi] = x[vi]
        for i in range(10):
            with T.sblock("s"):
                vi = T.axis.spatial(10, i)
                s[vi] = r[vi] + r[vi + 2]
        for i in range(6):
            with T.sblock("y"):
                vi = T.axis.spatial(6, i)
                y[vi] = s[vi]

    after = without_unread(func)
    assert [int(b.ty.shape[0]) for b in after.body.block.alloc_buffers] == [8, 6]


def test_unread_of_symbolic_size() -> None:
    func = depthwise_conv1d("n", 3, "w", 3, padding="causal")
    assert without_unread(func) is func


# ---- Guards of a symbolic width ------------------------------------------------------------------


def symbolic(condition: str, columns: str = "w") -> Any:
    lines = f"""
@T.prim_func(s_tir=True)
def f(xx: T.handle, ww: T.handle, yy: T.handle):
    w = T.int64()
    x = T.match_buffer(xx, (3, w))
    weight = T.match_buffer(ww, (3, 3))
    y = T.match_buffer(yy, (3, {columns}))
    for c, i, k in T.grid(3, {columns}, T.int64(3)):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + weight[vc, vk] * {condition}
"""
    return tvm.script.from_source(lines, {"T": T})


GUARDS = {
    "T.if_then_else({0} >= 1 and {0} < w + 1, x[vc, {0} - 1], T.float32(0))": True,
    "T.if_then_else({0} > 0 and {0} <= w, x[vc, {0} - 1], T.float32(0))": True,
    "T.if_then_else({0} >= 1 and {0} < w, x[vc, {0} - 1], T.float32(0))": False,
    "T.if_then_else({0} >= 1 and {0} < w + 2, x[vc, {0} - 1], T.float32(0))": False,
    "T.if_then_else({0} >= 0 and {0} < w + 1, x[vc, {0} - 1], T.float32(0))": False,
    "T.if_then_else({0} >= 2 and {0} < w + 1, x[vc, {0} - 1], T.float32(0))": False,
    "T.if_then_else({0} < w + 1, x[vc, {0} - 1], T.float32(0))": False,
    "T.if_then_else({0} >= 1, x[vc, {0} - 1], T.float32(0))": False,
    "T.if_then_else({0} >= 1 and {0} < w + 1, x[vc, {0} - 1], T.Cast('float32', vi))": False,
    "x[vc, {0}]": False,
}


@pytest.mark.parametrize("guard", GUARDS)
def test_guard_of_a_symbolic_width(guard: str) -> None:
    prepared = prepare(symbolic(guard.format("vi + vk")))
    assert prepared is not None
    sch, conv = prepared
    assert (find_depthwise_conv(sch.get(conv)) is not None) == GUARDS[guard]


def test_no_guard_of_a_symbolic_width() -> None:
    sch, conv = prepare(symbolic("x[vc, vi + vk]", "w - 2"))
    found = find_depthwise_conv(sch.get(conv))
    assert found.outside is None and found.taps == 3


@pytest.mark.parametrize("stride, dilation, start", [(1, 1, 0), (7, 1, 2), (1, 90, 5), (5, 13, 40)])
def test_numbers(stride: int, dilation: int, start: int) -> None:
    func = depthwise_conv1d(2, 3, 99, 4, stride=stride, dilation=dilation, padding=(start, 300))
    sch, conv = prepare(func)
    found = find_depthwise_conv(sch.get(conv))
    assert (found.stride, found.dilation, found.start) == (stride, dilation, -start)
    assert (found.taps, found.width, found.axis) == (4, 99, 2)
