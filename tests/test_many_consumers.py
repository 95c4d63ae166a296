"""Many consumers of one reduction in one call, which the schedule sees as one replacement."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from calls import calls
from fuse_epilogue import verify

ROWS, DEPTH, COUNT = 8, 5, 12
# Counts of consumers from which it shows whether work grows with them or with their square.
COUNTS = (16, 32, 64)

_HEAD = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((8, 5), "int32"), C: T.Buffer(({count}, 8), "int32"), {outputs}):
    total = T.sblock_alloc_buffer((8,), "int32")
{buffers}
    for i, k in T.grid(8, 5):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                total[vi] = 0
            total[vi] = total[vi] + A[vi, vk]
"""
_BLOCK = """
    for i in range(8):
        with T.sblock("use{number}"):
            vi = T.axis.spatial(8, i)
            {store}
"""


def _function(names: list[str], stores: list[str], num_outputs: int) -> PrimFunc:
    outputs = ", ".join(f'{name}: T.Buffer((8,), "int32")' for name in names[-num_outputs:])
    buffers = "".join(
        f'    {name} = T.sblock_alloc_buffer((8,), "int32")\n' for name in names[:-num_outputs]
    )
    blocks = "".join(
        _BLOCK.format(number=number, store=store) for number, store in enumerate(stores)
    )
    text = _HEAD.format(outputs=outputs, buffers=buffers, count=len(names)) + blocks
    return tvm.script.from_source(text, {"T": T})


def _chain(value: str, count: int = COUNT) -> PrimFunc:
    names = [f"t{number}" for number in range(count)]
    reads = ["total", *names]
    stores = [
        f"{names[n]}[vi] = " + value.format(x=f"{reads[n]}[vi]", c=f"C[{n}, vi]")
        for n in range(count)
    ]
    return _function(names, stores, 1)


def _siblings(count: int = COUNT) -> PrimFunc:
    names = [f"t{number}" for number in range(count)]
    stores = [f"{name}[vi] = total[vi] * C[{n}, vi]" for n, name in enumerate(names)]
    return _function(names, stores, count)


def _run(func: PrimFunc) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    operands = tuple(map(int, func.params[1].ty.shape))
    values = [rng.integers(-9, 9, (ROWS, DEPTH)), rng.integers(-9, 9, operands)]
    values += [np.zeros(ROWS) for _ in func.params[2:]]
    arrays = [tvm.runtime.tensor(value.astype("int32")) for value in values]
    tvm.compile(func, target="llvm")["main"](*arrays)
    return [array.numpy() for array in arrays[2:]]


@pytest.mark.parametrize(
    ("func", "num_blocks"),
    [
        (_chain("{x} + {c}"), 1),
        (_chain("T.max({x} * {c}, 3)"), 2),
        (_siblings(), COUNT + 1),
    ],
    ids=["absorbed", "merged", "siblings"],
)
def test_one_call_fuses_all_of_them(func: PrimFunc, num_blocks: int) -> None:
    sch = Schedule(func, debug_mask="all")
    report = sch.fuse_reduction_epilogue("sum")
    after = sch.mod["main"]
    assert len(report.steps) == COUNT
    assert len(sch.get_child_blocks(sch.get_sblock("root"))) == num_blocks
    verify.check(func, after, report.certificate)
    for unfused, fused in zip(_run(func), _run(after), strict=True):
        np.testing.assert_array_equal(fused, unfused)


def test_a_long_chain_becomes_several_tails() -> None:
    """One of all steps would be simplified again with each of them."""
    count = 5 * COUNT
    func = _chain("T.max({x}, {c}) - 1", count)
    sch = Schedule(func, debug_mask="all")
    report = sch.fuse_reduction_epilogue("sum")
    tails = len(sch.get_child_blocks(sch.get_sblock("root"))) - 1
    assert 1 < tails < count / COUNT
    assert len(report.steps) == count
    verify.check(func, sch.mod["main"], report.certificate)
    for unfused, fused in zip(_run(func), _run(sch.mod["main"]), strict=True):
        np.testing.assert_array_equal(fused, unfused)


@pytest.mark.parametrize(
    "make",
    [
        lambda count: _chain("{x} + {c}", count),
        lambda count: _chain("T.max({x} * {c}, 3)", count),
        _siblings,
    ],
    ids=["absorbed", "merged", "siblings"],
)
def test_checking_takes_as_much_for_each_of_them(make: Callable[[int], PrimFunc]) -> None:
    taken = []
    for count in COUNTS:
        func = make(count)
        sch = Schedule(func)
        certificate = sch.fuse_reduction_epilogue("sum").certificate
        taken.append(calls(partial(verify.check, func, sch.mod["main"], certificate)))
    few, many = taken[1] - taken[0], taken[2] - taken[1]
    assert many < 2.15 * few


def test_random_variables_of_what_is_gone_are_not_valid() -> None:
    # The first block becomes a tail, which the second one takes in: only the last one remains.
    sch = Schedule(_chain("T.max({x} * {c}, 3)"), debug_mask="all")
    total, first, last = (sch.get_sblock(name) for name in ("sum", "use0", f"use{COUNT - 1}"))
    sch.fuse_reduction_epilogue(total)
    assert sch.get(last).name_hint == f"use{COUNT - 1}"
    assert sch.get(total).name_hint == "sum"
    with pytest.raises((IndexError, ValueError)):
        sch.get(first)


def test_a_refused_call_changes_nothing() -> None:
    sch = Schedule(_chain("T.call_extern('int32', 'abs', {x}) + {c}"), debug_mask="all")
    before = sch.mod
    with pytest.raises(tvm.s_tir.ScheduleError):
        sch.fuse_reduction_epilogue("sum")
    assert sch.mod.same_as(before)
