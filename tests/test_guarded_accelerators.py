"""For CUDA and Trainium, nothing is computed where the function does not compute it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, tirx

import cuda_on_cpu
from cuda_programs import needs_gxx
from fuse_epilogue import neuron, schedules
from fuse_epilogue.kernels.trainium.hoist_loads import once
from fuse_epilogue.neuron import EmitError
from fuse_epilogue.planner import plan
from fuse_epilogue.rewrites.step import NotRewritten
from generated.state import Run
from guarded_functions.chunk import compiled, run_chunk, verdict_of
from guarded_functions.draw import draw
from guarded_functions.spec import Function
from guarded_functions.text import build
from guarded_functions.verdicts import Tally

CUDA = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})


def called(func: Any, arrays: list[np.ndarray]) -> np.ndarray:
    """Run the unscheduled function."""
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    compiled([func])[0](*tensors)
    return tensors[-1].numpy()


# ---- CUDA: lanes of a vector that are not of the row ---------------------------------------------


PADDED = "w[vc, vk] * T.if_then_else(1 <= vi + vk and vi + vk < 38, x[vc, vi + vk - 1], ZERO)"


def odd_rows(dtype: str, result: str, term: str = PADDED) -> tirx.PrimFunc:
    """Return a convolution whose rows do not begin where vectors do."""
    taps = 1 if "truncdiv" in term else 3
    return tvm.script.from_source(f"""
@T.prim_func(s_tir=True)
def main(
    x: T.Buffer((3, 37), "{dtype}"), w: T.Buffer((3, {taps}), "{dtype}"),
    d: T.Buffer((37,), "{dtype}"), y: T.Buffer((3, 37), "{dtype}"),
):
    s = T.sblock_alloc_buffer((3, 37), "{dtype}")
    for c, i, k in T.grid(3, 37, {taps}):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                s[vc, vi] = T.{dtype}(0)
            s[vc, vi] = s[vc, vi] + {term.replace("ZERO", f"T.{dtype}(0)")}
    for c, i in T.grid(3, 37):
        with T.sblock("after"):
            vc, vi = T.axis.remap("SS", [c, i])
            y[vc, vi] = {result}
""")


DIVIDED = {
    "by an element": ("T.truncdiv(s[vc, vi], d[vi])", PADDED),
    "by the sum": ("T.floormod(840, s[vc, vi])", PADDED),
    "nothing, but beyond the row an element that is not there": (
        "s[vc, vi] + T.if_then_else(vi < 0, d[37], 1)",
        PADDED,
    ),
    "by the column": ("s[vc, vi] + T.floordiv(840, vi + 1)", PADDED),
    "by the window": ("s[vc, vi] + d[vi]", "T.truncdiv(w[vc, vk], x[vc, vi + vk])"),
}


def odd_arrays(func: tirx.PrimFunc) -> list[np.ndarray]:
    """Whole numbers from 1 on: no divisor is 0, nor is any sum."""
    rng = np.random.default_rng(1)
    return [
        rng.integers(1, 9, list(map(int, p.ty.shape))).astype(str(p.ty.dtype)) for p in func.params
    ]


@needs_gxx
def test_lanes_outside_of_a_row_divide_and_load_nothing() -> None:
    """A vector at the end of a row has lanes of the next one, whose divisors would be 0."""
    funcs = [odd_rows("int32", *each) for each in DIVIDED.values()]
    rule = schedules.cuda.DepthwiseConv1d()
    choices = [rule.choose(func, CUDA) for func in funcs]
    assert [choice.form for choice in choices] == ["rows, in vectors"] * len(funcs)
    programs = cuda_on_cpu.build_all([choice.schedule.mod["main"] for choice in choices])
    for func, program in zip(funcs, programs, strict=True):
        arrays = odd_arrays(func)
        wanted = called(func, arrays)
        program(*arrays)
        np.testing.assert_array_equal(arrays[-1], wanted)


@pytest.mark.parametrize(
    ("dtype", "result", "conditions"),
    [
        ("int32", "s[vc, vi] + d[vi]", False),
        ("float32", "s[vc, vi] / d[vi]", False),
        ("int32", "T.floordiv(s[vc, vi], 3) + d[vi]", False),
        ("int32", "s[vc, vi] + T.if_then_else(vi < 0, d[36], 1)", False),
        ("int32", "s[vc, vi] + T.if_then_else(vi < 0, d[37], 1)", True),
        ("int32", "s[vc, vi] + T.if_then_else(vc < 0, d[37], 1)", False),
        ("int32", "T.floordiv(s[vc, vi], d[vi])", True),
    ],
)
def test_lanes_have_conditions_only_where_they_need_them(
    dtype: str, result: str, conditions: bool
) -> None:
    func = odd_rows(dtype, result)
    choice = schedules.cuda.DepthwiseConv1d().choose(func, CUDA)
    assert choice.form == "rows, in vectors"
    stores = list[Any]()

    def look(branch: tirx.IfThenElse) -> None:
        if isinstance(branch.then_case, tirx.BufferStore):
            stores.append(branch.then_case.buffer.name)

    tvm_ffi.structural_walk(choice.schedule.mod["main"].body, (tirx.IfThenElse, look))
    assert ("sums" in stores) == conditions


@needs_gxx
def test_rows_are_loaded_into_registers_where_a_table_gives_what_they_start_from() -> None:
    """The table's index is read first, and is no vector."""
    func = tvm.script.from_source("""
@T.prim_func(s_tir=True)
def main(
    x: T.Buffer((8, 64), "float32"), index: T.Buffer((8,), "int32"),
    table: T.Buffer((3,), "float32"), y: T.Buffer((8,), "float32"),
):
    for m, r in T.grid(8, 64):
        with T.sblock("sum"):
            vm, vr = T.axis.remap("SR", [m, r])
            with T.init():
                y[vm] = T.if_then_else(index[vm] < 3, table[index[vm]], T.float32(-3))
            y[vm] = y[vm] + x[vm, vr]
""")
    made = schedules.apply(func, CUDA)["main"]
    assert "x_local" in made.script() and "index_local" not in made.script()
    x = np.arange(512, dtype="float32").reshape(8, 64)
    index, table = np.arange(8, dtype="int32"), np.array([1, 2, 3], "float32")
    y = np.zeros(8, "float32")
    cuda_on_cpu.build(tvm.IRModule({"main": made}))(x, index, table, y)
    starts = np.where(index < 3, table[np.minimum(index, 2)], -3)
    np.testing.assert_array_equal(y, starts + x.sum(axis=1))


@needs_gxx
def test_threads_that_share_a_row_add_what_it_starts_from_once() -> None:
    """TVM lets a sum across threads and what is computed from it share their memory."""
    func = tvm.script.from_source("""
@T.prim_func(s_tir=True)
def main(
    x: T.Buffer((16, 45), "float32"), p: T.Buffer((16,), "float32"),
    d: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32"),
):
    s = T.sblock_alloc_buffer((16,), "float32")
    for m, r in T.grid(16, 45):
        with T.sblock("sum"):
            vm, vr = T.axis.remap("SR", [m, r])
            with T.init():
                s[vm] = T.if_then_else(d[vm] > T.float32(0), p[vm], T.float32(1))
            s[vm] = s[vm] + x[vm, vr]
    for m in range(16):
        with T.sblock("after"):
            vm = T.axis.spatial(16, m)
            y[vm] = T.if_then_else(vm < 15, s[vm] * d[vm], T.float32(2))
""")
    rng = np.random.default_rng(3)
    arrays = [rng.integers(-4, 5, size).astype("float32") for size in ((16, 45), 16, 16, 16)]
    made = schedules.apply(func, CUDA)["main"]
    assert 'for r_1 in T.thread_binding(45, thread="threadIdx.x")' in made.script()
    found = cuda_on_cpu.build(tvm.IRModule({"main": made}))
    found(*arrays)
    x, p, d, y = arrays
    right = (np.where(d > 0, p, 1) + x.sum(axis=1)) * d
    right[15] = 2
    np.testing.assert_array_equal(y, right)


# ---- Trainium: what is loaded once, and tiles ----------------------------------------------------


def stale(order: str, parameter: bool = False) -> tirx.PrimFunc:
    """A loop with a block that writes `a` and one that copies it to `b`, in an order."""
    blocks = {
        "w": ("write", "a[vj] = c[vj] + T.float32(1)"),
        "l": ("load", "b[vj] = a[vj]"),
        "u": ("use", "y[vi, vj] = b[vj]"),
    }
    body = ""
    for letter in order:
        name, store = blocks[letter]
        body += f"""
        for j in range(8):
            with T.sblock("{name}"):
                vj = T.axis.spatial(8, j)
                {"vi = T.axis.spatial(4, i)" if letter == "u" else ""}
                {store}"""
    first, alloc = 'a: T.Buffer((8,), "float32"), ', ""
    if not parameter:
        first, alloc = "", 'a = T.sblock_alloc_buffer((8,), "float32")'
    return tvm.script.from_source(f"""
@T.prim_func(s_tir=True)
def main({first}c: T.Buffer((8,), "float32"), y: T.Buffer((4, 8), "float32")):
    {alloc}
    b = T.sblock_alloc_buffer((8,), "float32")
    for i in range(4):{body}
""")


def test_what_is_loaded_once_is_the_same_in_all_iterations() -> None:
    func = stale("wlu")
    arrays = [np.arange(8, dtype="float32"), np.zeros((4, 8), "float32")]
    made = once(func, "load", 0)
    assert str(made).count("i == 0") == 2
    np.testing.assert_array_equal(called(made, arrays), called(func, arrays))


@pytest.mark.parametrize(
    ("func", "why"),
    [
        (stale("lwu", parameter=True), "'a' is written after it"),
        (stale("luw", parameter=True), "'a' is written after it"),
        (stale("wlu", parameter=True), "'a', which it reads, has values before the loop"),
    ],
)
def test_what_changes_after_it_was_loaded_is_loaded_again(func: Any, why: str) -> None:
    with pytest.raises(NotRewritten, match=re.escape(why)):
        once(func, "load", 0)


@pytest.mark.parametrize(("index", "there"), [(2, True), (3, False)])
def test_an_element_that_is_not_there_is_not_loaded(index: int, there: bool) -> None:
    """A tile is loaded whatever the condition says; which buffer it is about, the plan says."""
    func = tvm.script.from_source(f"""
@T.prim_func(s_tir=True)
def main(
    x: T.Buffer((16, 32), "float32"), p: T.Buffer((3,), "float32"),
    y: T.Buffer((16,), "float32"),
):
    s = T.sblock_alloc_buffer((16,), "float32")
    for m, n in T.grid(16, 32):
        with T.sblock("sum"):
            vm, vn = T.axis.remap("SR", [m, n])
            with T.init():
                s[vm] = T.float32(0)
            s[vm] = s[vm] + x[vm, vn]
    for m in range(16):
        with T.sblock("after"):
            vm = T.axis.spatial(16, m)
            y[vm] = s[vm] + T.if_then_else(vm < 0, p[{index}], T.float32(2))
""")
    if not there:
        with pytest.raises(ValueError, match=re.escape("'p' is read beyond its end")):
            plan(func, "trn1")
        return
    arrays = [np.ones((16, 32), "float32"), np.ones(3, "float32"), np.zeros(16, "float32")]
    found = neuron.emit(plan(func, "trn1").apply(func))(*arrays[:-1])
    np.testing.assert_array_equal(np.ravel(found), called(func, arrays))


@pytest.mark.parametrize(("size", "fits"), [(128, True), (300, False)])
def test_a_cast_of_an_index_cuts_nothing_off(size: int, fits: bool) -> None:
    """An emitted index is an integer of any size; TIR's int8 begins again at -128."""
    func = tvm.script.from_source(f"""
@T.prim_func(s_tir=True)
def main(x: T.Buffer((1, 300), "float32"), y: T.Buffer((1, {size}), "float32")):
    t = T.sblock_alloc_buffer((1, {size}), "float32", scope="trn.sbuf")
    for i, j in T.grid(1, {size}):
        with T.sblock("load"):
            vi, vj = T.axis.remap("SS", [i, j])
            t[vi, vj] = x[vi, T.Cast("int32", T.Cast("int8", vj))]
    for i, j in T.grid(1, {size}):
        with T.sblock("store"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = t[vi, vj]
""")
    sch = s_tir.Schedule(func)
    for name in ("load", "store"):
        partition, free = sch.get_loops(name)
        sch.annotate(partition, "nki_dim", "P")
        sch.annotate(free, "nki_dim", "F")
    if not fits:
        with pytest.raises(EmitError, match="does not hold all values from 0 to 299"):
            neuron.emit(sch)
        return
    x = np.arange(300, dtype="float32").reshape(1, 300)
    np.testing.assert_array_equal(neuron.emit(sch)(x), x[:, :size])


# ---- A sample of what `make fuzz-cuda` and `make fuzz-neuron` do ---------------------------------


@pytest.mark.parametrize(
    ("machine", "count"), [pytest.param("cuda", 6, marks=needs_gxx), ("neuron", 12)]
)
def test_some_guarded_functions(machine: str, count: int, tmp_path: Path) -> None:
    folder = tmp_path / machine
    folder.mkdir()
    counts = run_chunk(Run(5, count, folder=folder), 0, count)
    tally = Tally()
    tally.merge(counts)
    assert not counts["failures"]
    assert tally.summary()["functions"] == count
    assert counts["verdicts"]["equal"] >= 2


def test_a_function_is_its_json() -> None:
    for number in range(20):
        function = draw(f"json {number}", ("conv", "product", "rows"), ("float32", "int8"))
        assert Function.from_json(function.to_json()) == function
        assert build(function).params[-1].name == "y"


def test_a_verdict_sees_bits() -> None:
    zeros, ones = np.zeros((2, 2), "float32"), np.ones((2, 2), "float32")
    nothing = np.full((2, 2), np.nan, "float32")
    assert verdict_of(zeros, ones, False).kind == "different"
    assert verdict_of(zeros, -zeros, True).kind == "different"
    assert verdict_of(zeros, -zeros, False).kind == "equal"
    assert verdict_of(nothing, -nothing, True).kind == "equal"
    assert verdict_of(nothing, ones, False).kind == "different"
