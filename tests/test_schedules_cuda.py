"""Schedules for CUDA compute what numpy says: the text executed by the CPU, and on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm.s_tir import dlight
from tvm.script import tirx as T

import fuse_epilogue
import test_workloads_relax as relax
from cuda_runs import CUDA, on_machines, scheduled
from depthwise import Options, covering
from fuse_epilogue import schedules
from fuse_epilogue.kernels.cuda import launch
from fuse_epilogue.schedules import cuda
from test_workloads import BASE, RUNS, SYMBOLIC, check, name_of, possible, workload
from tiers import crossed, one_in, tiered

# Many small processes, and nothing of it is about memory in our own library.
pytestmark = pytest.mark.slow

CHOICES = {
    "n": [1, 3],
    "c": [1, 5, 16],
    "w": [1, 2, 7, 16, 33, 64, 197],
    "f": [1, 2, 3, 4, 7, 16],
    "padding": ["same", "valid", "causal", (2, 0), (5, 40)],
    "stride": [1, 1, 1, 2],
    "dilation": [1, 1, 3, 17],
    "dtype": ["float32", "float16", "bfloat16", "int8"],
    "bias": [True, False],
    "activation": [None, "relu", "silu"],
    "layout": ["NCW", "NCW", "NWC"],
    "shift": [0, 7, 31],
}
CASES = covering(CHOICES, possible)


def kinds(options: Options) -> tuple[str, ...]:
    return ("exact",) if options["dtype"] == "int8" else ("exact", "normal", "nasty")


@on_machines
@pytest.mark.parametrize("index", tiered(CASES, name_of))
def test_computes_the_convolution(machine: Any, index: int, monkeypatch: Any) -> None:
    """Half of them as if there was enough to do: then a thread has more of the result."""
    if index % 2:
        monkeypatch.setattr(launch, "ENOUGH_THREADS", 1)
    options = CASES[index]
    run = machine(scheduled(workload(options)))
    for kind in kinds(options):
        check(run, options, kind)


# Rows as they come: of whole vectors, of an odd length, shorter than a vector, shorter than the
# filter; and rows of x and y that differ. All kinds of kernels are among them, see below.
ROWS: list[Options] = [
    {"w": 64, "padding": "causal", "activation": "silu"},
    {"w": 61, "padding": "same", "activation": "relu"},
    {"w": 130, "padding": "same", "f": 16},
    {"w": 9, "padding": "same", "f": 16},
    {"w": 3, "padding": "causal"},
    {"w": 40, "padding": (1, 2), "f": 4},
    {"w": 41, "padding": (0, 1), "f": 3},
]


@on_machines
@crossed(more=ROWS, dtype=["float32", "float16", "bfloat16", "int8"])
def test_rows(machine: Any, more: Options, dtype: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(launch, "ENOUGH_THREADS", 1)
    options = {**BASE, "n": 3, "c": 3, **more, "dtype": dtype}
    if dtype == "int8" and options["activation"] == "silu":
        options["activation"] = "relu"
    run = machine(scheduled(workload(options)))
    for kind in kinds(options):
        check(run, options, kind)


NAMES = [{"n": "n", "w": "w"}] * len(SYMBOLIC) + [{"n": "n"}, {"w": "w"}]


@on_machines
@pytest.mark.parametrize("index", one_in(2, range(len(NAMES))))
def test_symbolic_sizes(machine: Any, index: int) -> None:
    """One kernel serves all N and W; threads have as much as they can have."""
    options = {**BASE, **SYMBOLIC[index % len(SYMBOLIC)]}
    run = machine(scheduled(workload(options, **NAMES[index])))
    for sizes in [*RUNS, {"n": 2, "w": 1030}]:
        own = {size: value for size, value in sizes.items() if size in NAMES[index]}
        check(run, options, "exact", **own)
    if options["dtype"] != "int8":
        check(run, options, "nasty", **own)


@on_machines
@pytest.mark.parametrize("index", one_in(2, range(len(relax.CASES)), relax.IDS.__getitem__))
def test_what_relax_makes(machine: Any, index: int) -> None:
    options = relax.CASES[index][0]
    run = machine(scheduled(relax.layer(options)))
    for kind in ("exact", "normal"):
        relax.check(run, options, kind)


@T.prim_func(s_tir=True)
def residual(
    x: T.Buffer((3, 5, 37), "float32"),
    weight: T.Buffer((5, 3), "float32"),
    skip: T.Buffer((3, 5, 37), "float32"),
    y: T.Buffer((3, 5, 37), "float32"),
):
    """Half of the channels share a filter, and another array is added to the result."""
    total = T.sblock_alloc_buffer((3, 5, 37), "float32")
    for n, c, i, k in T.grid(3, 5, 37, 3):
        with T.sblock("any_name"):
            vn, vc, vi, vk = T.axis.remap("SSSR", [n, c, i, k])
            with T.init():
                total[vn, vc, vi] = T.float32(0)
            total[vn, vc, vi] = total[vn, vc, vi] + weight[vc // 2, vk] * T.if_then_else(
                1 <= vi + vk and vi + vk < 38, x[vn, vc, vi + vk - 1], T.float32(0)
            )
    for n, c, i in T.grid(3, 5, 37):
        with T.sblock("another"):
            vn, vc, vi = T.axis.remap("SSS", [n, c, i])
            y[vn, vc, vi] = T.max(total[vn, vc, vi], T.float32(0)) + skip[vn, vc, vi]


@on_machines
def test_any_epilogue(machine: Any) -> None:
    """What is added needs not be a bias; found by what is computed."""
    rng = np.random.default_rng(1)
    x, weight, skip = (
        rng.integers(-8, 9, shape).astype("float32") for shape in [(3, 5, 37), (5, 3), (3, 5, 37)]
    )
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1)])
    filters = weight[np.arange(5) // 2]
    total = sum(padded[:, :, k : k + 37] * filters[:, k, None] for k in range(3))
    arguments = [tvm.runtime.tensor(a) for a in (x, weight, skip, np.full_like(x, np.nan))]
    machine(scheduled(residual))(*arguments)
    np.testing.assert_array_equal(arguments[-1].numpy(), np.maximum(total, 0) + skip)


@T.prim_func(s_tir=True)
def cut(
    x: T.Buffer((3, 5, 40), "float32"),
    weight: T.Buffer((5, 4), "float32"),
    y: T.Buffer((3, 5, 36), "float32"),
):
    """What follows does not take the first column, so that it cannot be fused."""
    total = T.sblock_alloc_buffer((3, 5, 37), "float32")
    for n, c, i, k in T.grid(3, 5, 37, 4):
        with T.sblock("conv"):
            vn, vc, vi, vk = T.axis.remap("SSSR", [n, c, i, k])
            with T.init():
                total[vn, vc, vi] = T.float32(0)
            total[vn, vc, vi] = total[vn, vc, vi] + x[vn, vc, vi + vk] * weight[vc, vk]
    for n, c, i in T.grid(3, 5, 36):
        with T.sblock("cut"):
            vn, vc, vi = T.axis.remap("SSS", [n, c, i])
            y[vn, vc, vi] = T.max(total[vn, vc, vi + 1], T.float32(0))


@on_machines
def test_what_cannot_be_fused(machine: Any) -> None:
    """A kernel for each of the two."""
    rng = np.random.default_rng(1)
    x, weight = (rng.integers(-8, 9, s).astype("float32") for s in [(3, 5, 40), (5, 4)])
    total = sum(x[:, :, k : k + 37] * weight[:, k, None] for k in range(4))
    result = np.full((3, 5, 36), np.nan, "float32")
    arguments = [tvm.runtime.tensor(a) for a in (x, weight, result)]
    machine(scheduled(cut))(*arguments)
    np.testing.assert_array_equal(arguments[-1].numpy(), np.maximum(total[:, :, 1:], 0))


@on_machines
def test_as_a_rule_of_dlight(machine: Any) -> None:
    options = {**BASE, "activation": "relu"}
    with CUDA:
        rule = dlight.ApplyDefaultSchedule(cuda.DepthwiseConv1d())
        mod = rule(tvm.IRModule({"main": workload(options)}))
    check(machine(mod["main"]), options, "exact")


# ---- What is not a depthwise convolution ---------------------------------------------------------


@T.prim_func(s_tir=True)
def matmul(
    x: T.Buffer((8, 8), "float32"), w: T.Buffer((8, 8), "float32"), y: T.Buffer((8, 8), "float32")
):
    for i, j, k in T.grid(8, 8, 8):
        with T.sblock("conv"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                y[vi, vj] = T.float32(0)
            y[vi, vj] = y[vi, vj] + x[vi, vk] * w[vk, vj]


@T.prim_func(s_tir=True)
def pool(x: T.Buffer((8, 10), "float32"), y: T.Buffer((8, 8), "float32")):
    for i, j, k in T.grid(8, 8, 3):
        with T.sblock("conv"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                y[vi, vj] = T.min_value("float32")
            y[vi, vj] = T.max(y[vi, vj], x[vi, vj + vk])


@T.prim_func(s_tir=True)
def dense(
    x: T.Buffer((4, 10), "float32"),
    w: T.Buffer((4, 4, 3), "float32"),
    y: T.Buffer((4, 8), "float32"),
):
    for o, j, c, k in T.grid(4, 8, 4, 3):
        with T.sblock("conv"):
            vo, vj, vc, vk = T.axis.remap("SSRR", [o, j, c, k])
            with T.init():
                y[vo, vj] = T.float32(0)
            y[vo, vj] = y[vo, vj] + x[vc, vj + vk] * w[vo, vc, vk]


@T.prim_func(s_tir=True)
def copy(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.sblock("conv"):
            vi = T.axis.spatial(8, i)
            y[vi] = x[vi]


@T.prim_func(s_tir=True)
def in_place(y: T.Buffer((8, 10), "float32"), w: T.Buffer((3,), "float32")):
    for i, j, k in T.grid(8, 8, 3):
        with T.sblock("conv"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                y[vi, vj] = T.float32(0)
            y[vi, vj] = y[vi, vj] + y[vi, vj + vk] * w[vk]


@pytest.mark.parametrize(
    "func", [matmul, pool, dense, copy, in_place], ids=lambda f: f.attrs["global_symbol"]
)
def test_what_is_not_a_depthwise_convolution(func: Any) -> None:
    assert cuda.DepthwiseConv1d().apply(func, CUDA) is None
    if func.same_as(matmul):
        # The planner knows that one.
        assert schedules.apply(func, CUDA)["main"].attrs["tirx.is_scheduled"]
        return
    with pytest.raises(ValueError, match="no schedule for 'cuda' knows this function"):
        schedules.apply(func, CUDA)


def test_another_target() -> None:
    assert cuda.DepthwiseConv1d().apply(workload(BASE), tvm.target.Target("llvm")) is None


def test_apply() -> None:
    """By a plan where sizes are known, and else by the rule."""
    planned = fuse_epilogue.plan(workload(BASE), CUDA).apply(workload(BASE)).mod["main"]
    symbolic = workload(BASE, n="n", w="w")
    for func, body in ((workload(BASE), planned.body), (symbolic, scheduled(symbolic).body)):
        mod = schedules.apply(func, {"kind": "cuda", "arch": "sm_90"})
        assert mod["main"].attrs["tirx.is_scheduled"]
        tvm.ir.assert_structural_equal(mod["main"].body, body, map_free_vars=True)
