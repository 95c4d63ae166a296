"""`schedules.apply` and `schedules.explain`, and the rule in TVM's own pass."""

from __future__ import annotations

import re
from typing import Any

import pytest
import tvm
from tvm import relax
from tvm.s_tir import Schedule, ScheduleError, dlight
from tvm.script import tirx as T
from tvm.target import Target

from fuse_epilogue import schedules
from fuse_epilogue.kernels.cuda.depthwise.loops import bind_elements
from fuse_epilogue.schedules import cpu, cuda
from fuse_epilogue.workloads import depthwise_conv1d
from fused_block import blocks

LLVM = Target("llvm")


@T.prim_func(s_tir=True)
def doubled(x: T.Buffer((8,)), y: T.Buffer((8,))):
    for i in range(8):
        with T.sblock("y"):
            vi = T.axis.spatial(8, i)
            y[vi] = x[vi] * T.float32(2)


@pytest.mark.parametrize("target", ["llvm", {"kind": "llvm", "opt-level": 1}, LLVM], ids=str)
def test_apply_takes_any_form_of_target(target: Any) -> None:
    mod = schedules.apply(depthwise_conv1d(4, 8, 64, 3), target)
    assert [var.name_hint for var in mod.get_global_vars()] == ["main"]
    assert list(blocks(mod["main"])) == ["rows"]
    assert bool(mod["main"].attrs["tirx.is_scheduled"])


def test_apply_refuses() -> None:
    func = depthwise_conv1d(1, 2, 9, 3)
    with pytest.raises(
        TypeError, match=f"^func must be a PrimFunc or a Schedule, not IRModule: {MODULE}$"
    ):
        schedules.apply(tvm.IRModule({"main": func}), "llvm")
    with pytest.raises(TypeError, match="not Function$"):
        schedules.apply(relax.Function([], relax.ShapeExpr([1])), "llvm")
    with pytest.raises(ValueError, match="target kind 'c', only for cuda, llvm"):
        schedules.apply(func, "c")
    with pytest.raises(ValueError, match="'llvm' knows this function .known: DepthwiseConv1d.: it"):
        schedules.apply(doubled, "llvm")
    with pytest.raises(ValueError, match="^func is already scheduled"):
        schedules.apply(schedules.apply(func, "llvm")["main"], "llvm")


LARGER_TAIL = """
@T.prim_func(s_tir=True)
def f(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), s: T.Buffer((3, 20)), y: T.Buffer((3, 20))):
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
"""
CUDA = {"kind": "cuda", "arch": "sm_80"}
#: What to pass of a module, as a pattern.
MODULE = r"of a module, pass mod\[name\]"
EXPLAINED = {
    "rows": (depthwise_conv1d(1, 2, 16, 3), "rows, in vectors", "rows, in vectors"),
    "stride": (
        depthwise_conv1d(1, 2, 9, 3, stride=2),
        "tiles of loops; not in rows: its stride is 2, not 1",
        "a thread for each element",
    ),
    "odd rows of one image": (
        depthwise_conv1d(1, 2, 9, 3),
        "rows, in vectors",
        "rows, in vectors",
    ),
    "symbolic": (
        depthwise_conv1d(1, 2, "w", 3),
        "tiles of loops; not in rows: the length of its rows is not known before it runs",
        "rows, in vectors",
    ),
    "channels": (
        depthwise_conv1d(1, 8, 9, 3, layout="NWC"),
        "tiles of loops; not in rows: the columns of its input are not neighbours in memory",
        "vectors of channels",
    ),
    "one column": (
        depthwise_conv1d(1, 2, 1, 3),
        "tiles of loops; not in rows: a row of one element is not a vector",
        "a thread for each element",
    ),
    "no convolution": (
        doubled,
        "not scheduled: it must have exactly one reduction",
        "not scheduled: it must have exactly one reduction",
    ),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_what_the_rules_choose(name: str) -> None:
    func, *lines = EXPLAINED[name]
    rules = (cpu.DepthwiseConv1d(), LLVM), (cuda.DepthwiseConv1d(), Target(CUDA))
    for (rule, target), line in zip(rules, lines, strict=True):
        said = str(rule.choose(func, target))
        assert said.startswith(line)
        assert said.endswith(line) or func is doubled


def test_several_kernels() -> None:
    """A result that others read stays: the tail cannot become part of the pass."""
    func = tvm.script.from_source(LARGER_TAIL, {"T": T})
    said = str(cuda.DepthwiseConv1d().choose(func, Target(CUDA)))
    assert said.startswith("2 kernels, one for each block; not in registers: ")


@pytest.mark.parametrize("change", ["split", "fuse"])
def test_a_follower_that_was_scheduled_before_has_no_kernel_of_its_own(change: str) -> None:
    """Where it cannot be fused, its loops would have to be those of its axes."""
    mirrored = LARGER_TAIL.replace("T.max(s[vc, vi], T.float32(0))", "s[vc, vi] + s[vc, 19 - vi]")
    assert mirrored != LARGER_TAIL
    sch = Schedule(tvm.script.from_source(mirrored, {"T": T}))
    assert cuda.DepthwiseConv1d().choose(sch.mod["main"], Target(CUDA)).schedule is not None
    rows, columns = sch.get_loops("relu")
    if change == "split":
        sch.split(columns, [None, 4])
    else:
        sch.fuse(rows, columns)
    said = str(cuda.DepthwiseConv1d().choose(sch.mod["main"], Target(CUDA)))
    assert said.startswith("not scheduled: ") and said.endswith("not those of its axes")
    with pytest.raises(ValueError, match="no schedule for 'cuda' knows this function"):
        schedules.apply(sch.mod["main"], CUDA)
    with pytest.raises(
        ScheduleError, match=r"^'relu' has axes for 2 loops and is in [13]: .* scheduled; pass"
    ):
        bind_elements(sch, sch.get_sblock("relu"))


def test_explain_refuses_as_apply_does() -> None:
    with pytest.raises(
        TypeError, match=f"^func must be a PrimFunc or a Schedule, not IRModule: {MODULE}$"
    ):
        schedules.explain(tvm.IRModule(), "llvm")
    with pytest.raises(ValueError, match="target kind 'c', only for cuda, llvm"):
        schedules.explain(doubled, "c")


@pytest.mark.parametrize("wrong", [0, -1, -4, 1.5, True, "2"])
def test_choices_are_checked(wrong: Any) -> None:
    said = re.escape(f"must be an int >= 1: {wrong!r}")
    with pytest.raises(ValueError, match=f"^unroll {said}$"):
        cpu.DepthwiseConv1d(unroll=wrong)
    with pytest.raises(ValueError, match=f"^lanes {said}$"):
        cpu.DepthwiseConv1d(lanes=wrong)
    with pytest.raises(ValueError, match=f"^threads {said}$"):
        schedules.host(wrong)


def test_lanes_are_a_power_of_two() -> None:
    with pytest.raises(ValueError, match="^lanes must be a power of two: 3$"):
        cpu.DepthwiseConv1d(lanes=3)


@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"padding": "causal", "layout": "NWC"}])
def test_apply_leaves_its_argument_alone(options: dict) -> None:
    func = depthwise_conv1d(1, 2, 9, 3, activation="silu", **options)
    schedules.apply(func, "llvm")
    again = depthwise_conv1d(1, 2, 9, 3, activation="silu", **options)
    tvm.ir.assert_structural_equal(func, again)


def test_other_kinds_of_targets() -> None:
    func = depthwise_conv1d(1, 2, 9, 3)
    for target in ({"kind": "cuda", "arch": "sm_80"}, "c"):
        assert cpu.DepthwiseConv1d().apply(func, Target(target)) is None


def test_in_a_module() -> None:
    """What the rule does not know stays as it is, under its name and at its place."""
    conv = depthwise_conv1d(1, 2, 9, 3)
    given = schedules.apply(depthwise_conv1d(1, 2, 9, 5), "llvm")["main"]
    functions = {"z": conv, "a": doubled, "done": given, "m": depthwise_conv1d(1, 2, 9, 4)}
    before = tvm.IRModule(
        {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
    )
    with LLVM:
        after = dlight.ApplyDefaultSchedule(cpu.DepthwiseConv1d())(before)
    assert list(map(str, after.functions)) == list(map(str, before.functions))
    for name in ("a", "done"):
        tvm.ir.assert_structural_equal(after[name], before[name])
    for name in ("z", "m"):
        assert list(blocks(after[name])) == ["rows"]
        assert after[name].attrs["global_symbol"] == name
