"""Splitting loops at borders, and how much code that is at most."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call
from tvm.script import tirx as T
from tvm.tirx.stmt import ForKind

from fuse_epilogue.kernels.cpu.depthwise.borders import Borders, split_at_borders
from oracles import compile_together
from test_schedules_cpu import scheduled
from test_schedules_cpu_sizes import BASE
from test_schedules_symbolic import BASE as SYMBOLIC
from test_workloads import check, workload


def nodes(func: Any, kind: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(func.body, (kind, found.append))
    return found


# ---- One loop ------------------------------------------------------------------------------------

# Each element counts how often it is computed, by 100 where a window of 7 around it is all inside.
w = T.Var("w", "int32")


def counting(columns: Any) -> Any:
    @T.prim_func(s_tir=True)
    def main(count: T.Buffer((columns,), "int32")) -> None:
        for tile in T.serial((columns + 7) // 8, annotations={"tile": 1}):
            for lane in T.serial(8):
                with T.sblock("count"):
                    v = T.axis.spatial(columns, tile * 8 + lane)
                    T.where(tile * 8 + lane < columns)
                    count[v] = count[v] + T.if_then_else(v >= 3 and v + 3 < columns, 100, 1)

    return main


def split(columns: Any) -> Any:
    inside = [(1, 1 - columns), (-1, 3), (1, 4 - columns)]
    return split_at_borders(counting(columns), {"tile": Borders("count", 0, inside, False)})


def counted(columns: int) -> Any:
    at = np.arange(columns)
    return np.where((at >= 3) & (at + 3 < columns), 100, 1)


def run(main: Any, columns: int) -> Any:
    count = tvm.runtime.tensor(np.zeros(columns, "int32"))
    main(count)
    return count.numpy()


def test_each_step_is_done_once() -> None:
    """Also where the loop is shorter than its borders."""
    main = compile_together({"f": split(tirx.Var("w", "int32"))})["f"]
    for columns in range(1, 50):
        np.testing.assert_array_equal(run(main, columns), counted(columns), str(columns))


@pytest.mark.full
def test_known_sizes() -> None:
    sizes = range(1, 50)
    built = compile_together({str(size): split(size) for size in sizes})
    for columns in sizes:
        np.testing.assert_array_equal(run(built[str(columns)], columns), counted(columns))


@pytest.mark.parametrize("columns, parts", [(6, [1]), (8, [1]), (32, [1, 2, 1]), (33, [1, 2, 2])])
def test_no_empty_parts(columns: int, parts: list[int]) -> None:
    loops = [loop for loop in nodes(split(columns), tirx.For) if loop.loop_var.name == "tile"]
    assert sorted(int(loop.extent) for loop in loops) == sorted(parts)


# ---- Convolutions --------------------------------------------------------------------------------

CONVOLUTIONS = [
    SYMBOLIC,
    {**SYMBOLIC, "dtype": "float16", "activation": "silu", "n": "n"},
    {**SYMBOLIC, "layout": "NWC", "c": 5},
    {**SYMBOLIC, "layout": "NWC", "c": 5, "dtype": "bfloat16", "dilation": 3},
    {**BASE, "layout": "NWC", "c": 5, "w": 133, "padding": "causal"},
    {**BASE, "stride": 3, "w": 133},
]


@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
def test_no_conditions_between_borders(options: Any) -> None:
    """Else the results are right, and slow."""
    func = scheduled(workload(options), 4, 2)
    free = [
        realize
        for realize in nodes(func, s_tir.SBlockRealize)
        if realize.block.init is not None and not conditions(realize)
    ]
    assert len(free) == 1
    followers = {"cast"} if options["dtype"] != "float32" else set()
    names = [
        realize.block.name_hint
        for realize in nodes(func, s_tir.SBlockRealize)
        if realize.block.name_hint in followers and not conditions(realize)
    ]
    assert len(names) == len(followers)


def conditions(realize: Any) -> list[Any]:
    found = [] if isinstance(realize.predicate, tirx.IntImm) else [realize.predicate]
    calls: list[Any] = []
    tvm_ffi.structural_walk(realize.block, (Call, calls.append))
    return found + [call for call in calls if call.op.name == "prim.if_then_else"]


def test_buffers_are_small() -> None:
    """Each part has sums of its own, or they would be kept for a whole row."""
    func = scheduled(workload({**SYMBOLIC, "dtype": "float16"}), 4, 2)
    sums = [buffer.name for buffer in func.body.block.alloc_buffers]
    assert len(sums) == 3
    for buffer in func.body.block.alloc_buffers:
        users = [
            realize.block.name_hint
            for realize in nodes(func, s_tir.SBlockRealize)
            if any(region.source.same_as(buffer) for region in realize.block.writes)
        ]
        assert users == ["conv"]


# ---- How much is written out ---------------------------------------------------------------------

LONG = [
    {"c": 2, "w": 4000, "f": 3, "dilation": 1000},
    {"c": 2, "w": 2048, "f": 256},
    {"c": 2, "w": 40, "f": 3, "padding": (4000, 4000)},
    {"c": 8, "w": 50, "f": 100, "layout": "NWC"},
    {"c": 8, "w": 50, "f": 16, "layout": "NWC"},
    {"c": 8, "w": 500, "f": 100, "stride": 3},
    {"c": 2, "w": "w", "f": 128, "padding": "causal"},
    {"c": 2, "w": "w", "f": 40},
]


def written(node: Any, times: int = 1) -> int:
    """Stores of a statement, those in unrolled loops as often as these have steps."""
    if isinstance(node, tirx.For):
        unrolled = node.kind == ForKind.UNROLLED
        return written(node.body, times * int(node.extent) if unrolled else times)
    if isinstance(node, tirx.SeqStmt):
        return sum(written(each, times) for each in node.seq)
    if isinstance(node, s_tir.SBlockRealize):
        return written(node.block.body, times)
    return times


@pytest.mark.parametrize("lanes", [4, 16])
@pytest.mark.parametrize("options", LONG, ids=str)
def test_long_filters_and_borders_are_not_written_out(options: Any, lanes: int) -> None:
    """LLVM takes minutes for thousands of statements; the results are what they were."""
    options = {**BASE, "n": 1, "activation": None, **options}
    func = scheduled(workload(options), lanes, 2)
    assert written(func.body) < 1200
    built = compile_together({"f": func}, opt_level=0)["f"]
    sizes = {"w": 77} if options["w"] == "w" else {}
    check(built, options, "exact", **sizes)
