"""What has no kernel on Trainium is refused with the reason and the way out, on every path."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import s_tir
from tvm.script import from_source

import fuse_epilogue
from fuse_epilogue import neuron, schedules, workloads
from fuse_epilogue.neuron import emit
from fuse_epilogue.planner.problems.trainium.product import TrainiumProduct

_PRODUCT = """@T.prim_func(s_tir=True)
def main(a: T.Buffer((16, {k})), b: T.Buffer(({k}, 16)), y: T.Buffer({out})):
    s = T.sblock_alloc_buffer((16, 16))
    for i, j, k in T.grid(16, 16, {k}):
        with T.sblock("product"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                s[vi, vj] = T.float32(0)
            s[vi, vj] = s[vi, vj] + a[vi, vk] * b[vk, vj]
    for i, j in T.grid{out}:
        with T.sblock("after"):
            vi, vj = T.axis.remap("SS", [i, j])
            {target}[vi, vj] = {value}
"""
_ROWS = """@T.prim_func(s_tir=True)
def main(x: T.Buffer((16, 64))):
    s = T.sblock_alloc_buffer((16,))
    for i, j in T.grid(16, 64):
        with T.sblock("rows"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                s[vi] = T.float32(0)
            s[vi] = s[vi] + x[vi, vj]
    for i in range(16):
        with T.sblock("after"):
            vi = T.axis.spatial(16, i)
            x[vi, 0] = s[vi] * T.float32(2)
"""
_CONV = """@T.prim_func(s_tir=True)
def main(x: T.Buffer((2, 4, {width})), w: T.Buffer((4, 3))):
    s = T.sblock_alloc_buffer((2, 4, {columns}))
    for n, c, i, k in T.grid(2, 4, {columns}, 3):
        with T.sblock("conv"):
            vn, vc, vi, vk = T.axis.remap("SSSR", [n, c, i, k])
            with T.init():
                s[vn, vc, vi] = T.float32(0)
            s[vn, vc, vi] = s[vn, vc, vi] + {x} * w[vc, vk]
    for n, c, i in T.grid(2, 4, {columns}):
        with T.sblock("after"):
            vn, vc, vi = T.axis.remap("SSS", [n, c, i])
            {target} = s[vn, vc, vi] * T.float32(2)
"""
_SAME = "T.if_then_else(vi + vk >= 1 and vi + vk < 33, x[vn, vc, vi + vk - 1], T.float32(0))"


def product(
    value: str = "s[vi, vj] * T.float32(2)",
    target: str = "y",
    out: tuple[int, int] = (16, 16),
    k: int = 16,
) -> Any:
    return from_source(_PRODUCT.format(value=value, target=target, out=out, k=k))


def conv(width: int, columns: int, x: str, target: str) -> Any:
    return from_source(_CONV.format(width=width, columns=columns, x=x, target=target))


#: What is overwritten, and the function.
IN_PLACE = {
    "left": ("a", product(target="a")),
    "right": ("b", product(target="b")),
    "rows": ("x", from_source(_ROWS)),
    "part of the data": ("x", conv(34, 32, "x[vn, vc, vi + vk]", "x[vn, vc, vi]")),
    "weights": ("w", conv(3, 1, "x[vn, vc, vi + vk]", "w[vc, vn]")),
}


@pytest.mark.parametrize("machine", ["trn1", "trn2"])
@pytest.mark.parametrize("name", IN_PLACE)
def test_what_overwrites_an_operand_is_refused(name: str, machine: str) -> None:
    written, func = IN_PLACE[name]
    says = rf"writes '{written}', which the reduction reads.*write a buffer of its own, or plan"
    with pytest.raises(ValueError, match=says):
        fuse_epilogue.plan(func, machine)
    # No rule knows it either; what is said has the planner's reason, and is no IR.
    with pytest.raises(ValueError, match=says) as refused:
        schedules.apply(func, machine)
    assert "T.prim_func" not in str(refused.value)
    assert schedules.explain(func, machine).startswith("no plan: what follows the reduction writes")


def test_data_that_is_overwritten_whole_is_a_result_of_its_own() -> None:
    """A kernel returns what it computes, and reads the data as it was."""
    func = conv(32, 32, _SAME, "x[vn, vc, vi]")
    kernel = emit(schedules.apply(func, "trn2"))
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-8, 9, shape).astype("float32") for shape in ((2, 4, 32), (4, 3)))
    overwritten = tvm.runtime.tensor(x)
    tvm.compile(func, target="llvm")["main"](overwritten, tvm.runtime.tensor(w))
    np.testing.assert_array_equal(kernel(x, w), overwritten.numpy())


#: What is read beyond its end but for a condition, and the function.
BEYOND = {
    "the sums": (
        "s",
        product("T.if_then_else(vi < 16 and vj < 16, s[vi, vj], T.float32(7))", out=(20, 20)),
    ),
    "an operand": (
        "b",
        product("s[vi, vj] + T.if_then_else(vi < 12, b[vi, vj], T.float32(7))", k=12),
    ),
}


@pytest.mark.parametrize("name", BEYOND)
def test_what_is_read_under_a_condition_only_is_refused(name: str) -> None:
    """A tile is loaded as a whole, with what is not there."""
    read, func = BEYOND[name]
    says = f"'{read}' is read beyond its end but for a condition.*pad in a function of its own, or"
    with pytest.raises(ValueError, match=says):
        fuse_epilogue.plan(func, "trn1")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (s_tir.ScheduleError("long\nError message: no"), "TVM refuses its loops: no"),
        (neuron.KernelError(7, "no"), "its kernel, line 7: no"),
    ],
    ids=["schedule", "kernel"],
)
def test_a_way_that_is_refused_is_left_out(monkeypatch: Any, error: Exception, says: str) -> None:
    """Where TVM refuses one way, or its kernel cannot be run, the plan is the other one."""
    func, cut = workloads.matmul(64, 64, 64, activation="relu"), TrainiumProduct.cut
    refused = {1}

    def fails(self: Any, sch: Any, found: Any, point: Any, alone: bool) -> None:
        if point["fusion"] in refused:
            raise error
        cut(self, sch, found, point, alone)

    monkeypatch.setattr(TrainiumProduct, "cut", fails)
    assert set(fuse_epilogue.plan(func, "trn1").found.by_fusion) == {"none"}
    refused.add(0)
    with pytest.raises(ValueError, match=f"possible for this product: {says}; schedule it"):
        fuse_epilogue.plan(func, "trn1")


#: What no engine computes, and the reason.
NO_KERNEL = {
    "a condition on a square": (
        product("T.if_then_else(vj * vj <= vi, s[vi, vj], T.float32(-5))"),
        r"block 'out': '.*' is not a sum of the loops .* \[not-affine\]",
    ),
    "indices as numbers": (
        product('s[vi, vj] + T.Cast("float32", vi * 3 + vj)'),
        r"block 'out': no instruction computes .* \[expression\]",
    ),
}


@pytest.mark.parametrize("name", NO_KERNEL)
def test_a_refusal_has_the_reason_and_the_way_out(name: str) -> None:
    func, reason = NO_KERNEL[name]
    # In one line: "." is no end of a line.
    says = f"^none of the .* possible for this product: .*{reason}; schedule it by hand, or plan"
    with pytest.raises(ValueError, match=f"{says} for another target$"):
        fuse_epilogue.plan(func, "trn1")


def test_an_empty_axis_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="'vk' of 'product' has the size 0: there is nothing"):
            fuse_epilogue.plan(product(k=0), "trn1")
        with pytest.raises(ValueError, match="has a size of 0: there is nothing to schedule"):
            schedules.apply(product(k=0), "trn1")


@pytest.mark.parametrize(
    "func",
    [
        workloads.matmul(2**31, 2**31, 2**31),
        workloads.row_reduce(2**31, 2**31),
        workloads.depthwise_conv1d(2**20, 2**20, 2**21, 3),
    ],
    ids=["product", "rows", "conv"],
)
def test_sizes_that_cannot_be_counted_are_refused(func: Any) -> None:
    with pytest.raises(ValueError, match=r"more than the 1\.15e\+18 that are counted: make"):
        fuse_epilogue.plan(func, "trn1")


def test_sizes_up_to_that_are_planned() -> None:
    plan = fuse_epilogue.plan(workloads.matmul(2**20, 2**20, 2**20), "trn1")
    assert plan.found.estimated and 0 < plan.cost < float("inf")
