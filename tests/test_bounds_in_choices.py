"""Bounds that a condition repeats are no proof: TVM leaves them out in vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.script import from_source

from planned_functions.memory import fenced, in_child

pytestmark = pytest.mark.cpp

#: What the epilogue stores, of the finished sum ``s``.
CHOICES = {
    "an index": "T.Select(g[vj] >= 0 and g[vj] < 5, {s} + p[T.max(T.min(g[vj], 4), 0)], {s})",
    "an operand's index": "{s} + "
    "T.Select(g[vj] >= 0 and g[vj] < 5, p[T.max(T.min(g[vj], 4), 0)], 0)",
    "a divisor": "T.Select(g[vj] > 0, T.truncdiv({s}, T.max(g[vj], 1)), {s})",
    "a guard": "T.Select(g[vj] >= 0 and g[vj] < 5, {s} + T.if_then_else("
    "g[vj] >= 0 and g[vj] < 5, p[g[vj]], 0), {s})",
    "a guard of a divisor": "T.Select(g[vj] > 0, {s} + T.if_then_else("
    "g[vj] > 0, T.truncdiv(100, g[vj]), 0), {s})",
}


def product(stored: str) -> Any:
    return from_source(f"""
@T.prim_func(s_tir=True)
def main(
    x: T.Buffer((4, 6), "int32"), w: T.Buffer((6, 16), "int32"), g: T.Buffer((16,), "int32"),
    p: T.Buffer((5,), "int32"), y: T.Buffer((4, 16), "int32"),
):
    s = T.sblock_alloc_buffer((4, 16), "int32")
    for i, k, j in T.grid(4, 6, 16):
        with T.sblock("product"):
            vi, vk, vj = T.axis.remap("SRS", [i, k, j])
            with T.init():
                s[vi, vj] = 0
            s[vi, vj] = s[vi, vj] + x[vi, vk] * w[vk, vj]
    for i, j in T.grid(4, 16):
        with T.sblock("after"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = {stored.replace("{s}", "s[vi, vj]")}
""")


@pytest.mark.parametrize("numerics", ["exact", "reassociate"])
@pytest.mark.parametrize("what", CHOICES)
def test_a_bound_that_a_condition_repeats_is_no_proof(what: str, numerics: Any) -> None:
    func = product(CHOICES[what])
    sch = tvm.s_tir.Schedule(func)
    sch.vectorize(sch.get_loops("product")[-1])
    sch.fuse_reduction_epilogue("product", numerics=numerics)
    rng = np.random.default_rng(1)
    arrays = [rng.integers(-3, 4, shape).astype("int32") for shape in ((4, 6), (6, 16))]
    arrays += [rng.choice(np.array([-(1 << 30), -1, 0, 1, 4, 5, 1 << 30], "int32"), 16)]
    arrays += [np.arange(5, dtype="int32"), np.zeros((4, 16), "int32")]

    results = _results(func, sch.mod, arrays)
    assert results[0] == results[1] and results[0].startswith("[")


def _results(before: Any, after: Any, arrays: list[Any]) -> list[str]:
    """What is stored last by two functions, whose arrays end against unreadable pages."""

    def run(built: Any) -> Any:
        def step() -> str:
            placed = [fenced(each, end=True, alignment=64) for each in arrays]
            built(*(tvm_ffi.from_dlpack(each) for each in placed))
            return str(placed[-1].tolist())

        return step

    builds = [tvm.compile(each, target="llvm")["main"] for each in (before, after)]
    return in_child([run(built) for built in builds])


def test_a_bound_of_which_the_condition_says_nothing_stays_in_a_selection() -> None:
    sch = tvm.s_tir.Schedule(product("T.Select({s} > 0, {s} + p[T.max(T.min(g[vj], 4), 0)], {s})"))
    sch.fuse_reduction_epilogue("product")
    assert "T.Select" in sch.mod.script()


GUARDED_TABLE = from_source("""
@T.prim_func(s_tir=True)
def main(
    X: T.Buffer((3, 2), "int32"), divisor: T.Buffer((3,), "int32"), guard: T.Buffer((3,), "bool"),
    at: T.Buffer((3,), "int32"), table: T.Buffer((16,), "int32"), D: T.Buffer((3,), "bool"),
):
    largest = T.sblock_alloc_buffer((3,), "int32")
    within = T.sblock_alloc_buffer((3,), "bool")
    for i, k in T.grid(3, 2):
        with T.sblock("max"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                largest[vi] = 0
            largest[vi] = T.max(largest[vi], X[vi, vk])
    for i in range(3):
        with T.sblock("first"):
            vi = T.axis.spatial(3, i)
            within[vi] = T.truncdiv(100, divisor[vi]) > largest[vi]
    for i in range(3):
        with T.sblock("second"):
            vi = T.axis.spatial(3, i)
            D[vi] = T.if_then_else(guard[vi], table[at[vi]] > 1 and within[vi], T.bool(False))
""")


def test_no_choice_is_made_that_tvm_joins_with_the_one_around_it() -> None:
    """Of both conditions TVM makes an `and`, and reads the table where the guard is false."""
    sch = tvm.s_tir.Schedule(GUARDED_TABLE)
    sch.fuse_reduction_epilogue("max")
    arrays = [np.ones((3, 2), "int32"), np.array([7, 1, -9], "int32"), np.array([1, 0, 1], bool)]
    arrays += [np.array([3, 1 << 30, 15], "int32"), np.arange(16, dtype="int32"), np.zeros(3, bool)]
    assert _results(GUARDED_TABLE, sch.mod, arrays) == ["[True, False, False]"] * 2
