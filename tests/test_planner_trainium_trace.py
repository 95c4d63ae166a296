"""Schedules for Trainium as traces: replayed on the function as it is, refused on others."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule, ScheduleError
from tvm.script import from_source

import fuse_epilogue
from conv_traces import read, replayed, steps
from fuse_epilogue import schedules
from fuse_epilogue.kernels.trainium import ladder
from fuse_epilogue.planner.problems.request import Request
from fuse_epilogue.rewrites.prepare import prepare
from fuse_epilogue.rewrites.step import rewrite
from fuse_epilogue.workloads import (
    depthwise_conv1d,
    elementwise,
    matmul,
    relax_depthwise_conv1d,
    row_reduce,
)
from test_planner_trainium import SMALL, TRN1, find_conv, find_finite

FUNCTIONS: dict[str, tuple[Any, Any]] = {
    **{name: SMALL[name][:2] for name in ("conv, finite", "product", "rows", "product, alone")},
    "conv, made by Relax": (
        find_conv,
        relax_depthwise_conv1d(1, 8, 64, 4, padding="causal", activation="silu"),
    ),
    "conv, channels last": (
        find_finite,
        depthwise_conv1d(2, 131, 30, 3, layout="NWC", activation="relu"),
    ),
}
#: TVM's own check of a state takes ragged tiles for wrong, whatever scheduled them.
CHECKS = {name: "none" if "product" in name or "last" in name else "all" for name in FUNCTIONS}
#: What a point has most of, so that all steps are tried.
MOST = ("right", "on_tensor", "images", "width")


@functools.cache
def scheduled(name: str) -> list[Schedule]:
    """One schedule for each way to fuse."""
    find, func = FUNCTIONS[name]
    found = find(Request(func, TRN1))
    points, _ = found.space.feasible()
    names = [name for name in MOST if name in found.space.by_name]
    most = sum((points[name] for name in names), np.zeros(points.size))
    best = {int(points["fusion"][i]): i for i in np.argsort(most, kind="stable")}
    return [found.apply(points.at(int(index))) for index in best.values()]


# ---- Replayed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_trace_replays_on_the_function_as_it_is(name: str) -> None:
    func = FUNCTIONS[name][1]
    made = scheduled(name)
    assert len(made) == (1 if "alone" in name else 2)
    for sch in made:
        again = replayed(sch, func, CHECKS[name])
        tvm.ir.assert_structural_equal(again.mod, sch.mod)
        assert str(again.trace) == str(sch.trace)


def test_the_steps_are_named_with_their_parameters() -> None:
    by_fusion = {name: {tuple(steps(sch)) for sch in scheduled(name)} for name in FUNCTIONS}
    elements = "fuse_epilogue.neuron_elements(loops=2, alone=1)"
    once = "fuse_epilogue.neuron_once(loop=0)"
    assert by_fusion["product"] == {
        (elements, "fuse_epilogue.neuron_product(alone=1)", once),
        ("fuse_epilogue.neuron_product(alone=0)", once, once),
    }
    assert by_fusion["rows"] == {
        (elements, "fuse_epilogue.neuron_rows(alone=1)"),
        ("fuse_epilogue.neuron_rows(alone=0)",),
    }
    convolution = "fuse_epilogue.neuron_conv(partitions=128, on_tensor=3, loops=4, alone=0)"
    assert (convolution,) in by_fusion["conv, finite"]


def test_fusing_is_a_step_of_its_own() -> None:
    for name in ("conv, finite", "product", "rows"):
        kinds = [[inst.kind.name for inst in sch.trace.insts] for sch in scheduled(name)]
        assert sorted("FuseReductionEpilogue" in each for each in kinds) == [False, True]


@pytest.mark.parametrize(
    ("rule", "func"),
    [
        (schedules.neuron.Elementwise, elementwise(30, 500, scale=True, residual=True)),
        (schedules.neuron.RowReduce, row_reduce(30, 500, op="max", bias=True)),
        (schedules.neuron.Matmul, matmul(30, 70, 520, activation="silu")),
        (schedules.neuron.DepthwiseConv1d, depthwise_conv1d(2, 6, 24, 3)),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_the_rules_keep_the_trace(rule: Any, func: Any) -> None:
    sch = rule().apply(func, "trn1")
    assert steps(sch)[0].startswith("fuse_epilogue.neuron_")
    tvm.ir.assert_structural_equal(replayed(sch, func, "none").mod, sch.mod)


def test_the_study_keeps_its_trace() -> None:
    func = depthwise_conv1d(ladder.N, ladder.C, ladder.W, ladder.F, bias=False)
    sch = ladder.schedule(6)
    tvm.ir.assert_structural_equal(replayed(sch, func, "none").mod, sch.mod)


@pytest.mark.full
def test_a_new_process_replays_a_plan(tmp_path: Path) -> None:
    (unfused,) = (sch for sch in scheduled("product") if "alone=1" in str(sch.trace))
    done = read(tmp_path, unfused, FUNCTIONS["product"][1], "import fuse_epilogue")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the same\n"


def test_a_plan_gives_a_schedule_with_its_trace() -> None:
    func = matmul(256, 70, 40, activation="relu")
    sch = fuse_epilogue.plan(func, "trn1").apply(func)
    tvm.ir.assert_structural_equal(replayed(sch, func, "none").mod, sch.mod)


def test_functions_with_several_blocks_of_one_name() -> None:
    for func, rule in (
        (matmul(8, 8, 8, activation="relu"), schedules.neuron.Matmul()),
        (elementwise(8, 8, bias=True, activation="relu"), schedules.neuron.Elementwise()),
    ):
        text = func.script().replace('sblock("relu")', 'sblock("bias")')
        alike = from_source(text)
        assert text.count('sblock("bias")') == 2
        sch = rule.apply(alike, "trn1")
        assert sch is not None
        tvm.ir.assert_structural_equal(replayed(sch, alike, "none").mod, sch.mod)
        tvm.ir.assert_structural_equal(sch.mod, rule.apply(func, "trn1").mod)


# ---- Refused -------------------------------------------------------------------------------------

CONV = depthwise_conv1d(2, 4, 30, 3, activation="relu")
PRODUCT = matmul(8, 8, 8, activation="relu")
#: A step, what it is given, and what the refusal says of it.
OF_A_CONV = {"partitions": 4, "on_tensor": 0, "loops": 4, "alone": 0}
REFUSED: list[tuple[Any, str, dict[str, int], str]] = [
    (CONV, "neuron_product", {"alone": 0}, "not one product of two matrices"),
    (PRODUCT, "neuron_rows", {"alone": 1}, "not one sum or maximum"),
    (PRODUCT, "neuron_elements", {"loops": 2, "alone": 1}, "not computed element by element"),
    (PRODUCT, "neuron_conv", OF_A_CONV, "not a depthwise convolution"),
    (CONV, "neuron_conv", {**OF_A_CONV, "partitions": 0}, "from 1 to 128 channels, not 0"),
    (CONV, "neuron_conv", {**OF_A_CONV, "partitions": 129}, "from 1 to 128 channels, not 129"),
    (CONV, "neuron_conv", {**OF_A_CONV, "on_tensor": 4}, "on_tensor must be from 0 to 3, not 4"),
    (CONV, "neuron_conv", {**OF_A_CONV, "partitions": 3}, "in 3 loops, not in 4"),
    (CONV, "neuron_conv", {**OF_A_CONV, "loops": 5}, "in 4 loops, not in 5"),
    # Something follows that is not fused with it.
    (PRODUCT, "neuron_product", {"alone": 0}, "with what is fused with it"),
]


def refused(sch: Schedule, block: Any, step: str, given: dict[str, int], said: str) -> None:
    module, trace = sch.mod, str(sch.trace)
    with pytest.raises(ScheduleError) as caught:
        rewrite(sch, block, step, **given)
    assert fuse_epilogue.refusal_code(caught.value) == "rewriting"
    assert said in str(caught.value)
    assert sch.mod.same_as(module) and str(sch.trace) == trace


@pytest.mark.parametrize(("func", "step", "given", "said"), REFUSED, ids=str)
def test_another_function_is_refused_and_stays(
    func: Any, step: str, given: dict[str, int], said: str
) -> None:
    prepared = prepare(func)
    assert prepared is not None
    sch, reduction = prepared
    if func is CONV:
        sch.fuse_reduction_epilogue(reduction)
    refused(sch, reduction, step, given, said)


def test_a_trace_on_another_function_is_refused() -> None:
    """Its channels are no whole tiles of 128: there would be one loop less."""
    other = depthwise_conv1d(2, 131, 48, 3, activation="relu")
    for sch in scheduled("conv, finite"):
        fresh = Schedule(other)
        with pytest.raises(ScheduleError, match="in 3 loops, not in 4") as caught:
            sch.trace.apply_to_schedule(fresh, remove_postproc=False)
        assert fuse_epilogue.refusal_code(caught.value) == "rewriting"


# ---- Once ----------------------------------------------------------------------------------------

LOADED = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((4,)), y: T.Buffer((3, 4)), z: T.Buffer((3, 4))):
    a = T.sblock_alloc_buffer((4,))
    b = T.sblock_alloc_buffer((4,))
    for i in range(3):
        for j in range(4):
            with T.sblock("first"):
                v = T.axis.spatial(4, j)
                a[v] = x[v] + T.float32(1)
        for j in range(4):
            with T.sblock("tile"):
                v = T.axis.spatial(4, j)
                b[v] = a[v] * T.float32(2)
        for j in range(4):
            with T.sblock("use"):
                vi, v = T.axis.remap("SS", [i, j])
                y[vi, v] = b[v]
                z[vi, v] = b[v]
"""
FIRST = "a[v] = x[v] + T.float32(1)"
TILE = "b[v] = a[v] * T.float32(2)"
USE = "z[vi, v] = b[v]"
#: What is in its place, and what the refusal says then.
TWINS: dict[str, tuple[str, str, str]] = {
    "depends on the loop": (
        f"v = T.axis.spatial(4, j)\n                {TILE}",
        f"v, w = T.axis.remap('SS', [j, i])\n                {TILE} + x[w]",
        "'tile' cannot run once: it depends on 'i'",
    ),
    "what it reads depends on the loop": (
        f"v = T.axis.spatial(4, j)\n                {FIRST}",
        f"v, w = T.axis.remap('SS', [j, i])\n                {FIRST} + x[w]",
        "'first' cannot run once: it depends on 'i'",
    ),
    "what it reads changes": (
        USE,
        "x[v] = b[v] + T.Cast('float32', vi)",
        "'x' is written after it",
    ),
    "somebody else reads": (USE, "z[vi, v] = a[v]", "'use' reads its results, too"),
    "somebody else writes": (USE, "b[v] = z[vi, v]", "others write 'b', too"),
    "adds to itself": (TILE, f"{TILE} + b[v]", "does not compute element by element"),
    "stores twice": (TILE, f"{TILE}\n                z[0, v] = a[v]", "element by element"),
    "elements meet": (TILE, "b[v // 2] = a[v]", "does not compute element by element"),
    "in parallel": ("i in range(3)", "i in T.parallel(3)", "is not serial"),
    "a condition": (
        '        for j in range(4):\n            with T.sblock("use")',
        '        if i == 1:\n          for j in range(4):\n            with T.sblock("use")',
        "statements other than blocks",
    ),
}


def loaded(before: str = "", after: str = "") -> tuple[Schedule, Any]:
    assert before in LOADED
    sch = Schedule(from_source(LOADED.replace(before, after)))
    return sch, sch.get_sblock("tile")


def test_what_stays_is_loaded_once() -> None:
    sch, tile = loaded()
    plain = sch.mod
    rewrite(sch, tile, "neuron_once", loop=0)
    text = sch.mod.script()
    assert text.count("T.where(i == 0)") == 2
    # What is between both stays for nobody; what it gives belongs to all iterations.
    assert text.count("v_once") == 1 and sch.get(tile).iter_vars[-1].var.name == "v_once"
    x = np.arange(4, dtype="float32")
    for mod in (plain, sch.mod):
        y, z = (tvm.runtime.empty((3, 4), "float32") for _ in range(2))
        tvm.compile(mod, target="llvm")["main"](tvm.runtime.tensor(x), y, z)
        np.testing.assert_array_equal(y.numpy(), np.tile(2 * (x + 1), (3, 1)))
    fresh, _ = loaded()
    tvm.ir.assert_structural_equal(replayed(sch, fresh.mod["main"]).mod, sch.mod)
    refused(sch, tile, "neuron_once", {"loop": 0}, "it depends on 'i'")


@pytest.mark.parametrize("name", TWINS)
def test_what_would_not_be_the_same_is_not_loaded_once(name: str) -> None:
    before, after, said = TWINS[name]
    refused(*loaded(before, after), "neuron_once", {"loop": 0}, said)


def test_there_must_be_such_a_loop() -> None:
    for loop in (-1, 2):
        refused(*loaded(), "neuron_once", {"loop": loop}, f"has no loop {loop} around it")
