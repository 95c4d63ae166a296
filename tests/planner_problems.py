"""Small problems for the tests of the planner, and a machine that is the same everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule
from tvm.tirx import PrimFunc

from fuse_epilogue.planner.machines.cpu import Cpu, cpu
from fuse_epilogue.planner.problems.cpu import find_conv, find_product, find_rows
from fuse_epilogue.planner.problems.request import Request
from fuse_epilogue.planner.problems.space import Space
from fuse_epilogue.schedules import host
from fuse_epilogue.workloads import depthwise_conv1d, matmul, row_reduce
from tiers import enough

FIND = {"product": find_product, "rows": find_rows, "conv": find_conv}

#: name -> kind, function.
SMALL: dict[str, tuple[str, PrimFunc]] = {
    "product": ("product", matmul(16, 32, 8, activation="relu")),
    "product, nothing follows": ("product", matmul(8, 32, 12, bias=False)),
    "product, bias only": ("product", matmul(12, 48, 8)),
    "product of a row": ("product", matmul(1, 64, 16, activation="relu")),
    "product, odd sizes": ("product", matmul(7, 15, 9, activation="relu")),
    "product, both turned": (
        "product",
        matmul(16, 32, 8, activation="relu", transpose_a=True, transpose_b=True),
    ),
    "product, bias of rows": ("product", matmul(16, 32, 8, bias_axis="m", activation="relu")),
    "product of bytes": ("product", matmul(16, 32, 8, dtype="int8", activation="relu")),
    "rows": ("rows", row_reduce(12, 64, bias=True, activation="relu")),
    "rows, nothing follows": ("rows", row_reduce(12, 64)),
    "rows, largest": ("rows", row_reduce(16, 32, op="max", bias=True)),
    "rows, scaled": ("rows", row_reduce(16, 48, scale=True, bias=True)),
    "rows of bytes": ("rows", row_reduce(16, 48, dtype="int8", bias=True, activation="relu")),
    "conv": ("conv", depthwise_conv1d(2, 3, 64, 3, activation="relu")),
    "conv, bias only": ("conv", depthwise_conv1d(2, 3, 36, 3)),
    "conv, nothing follows": ("conv", depthwise_conv1d(2, 3, 36, 3, bias=False)),
    "conv, stride": ("conv", depthwise_conv1d(2, 3, 64, 3, stride=2)),
}


def machine(**changed: Any) -> Cpu:
    """Return a machine with vectors of 512 bits and two cores, whatever this one is."""
    made = cpu({"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2})
    return replace(made, **{"cores": 2, **changed})


def here() -> Cpu:
    """Return the machine at hand, whose code it can run."""
    return replace(cpu(host(2)), cores=2)


def problem(name: str, on: Cpu | None = None) -> Any:
    """Return one of the small problems."""
    kind, func = SMALL[name]
    found = FIND[kind](Request(func, machine() if on is None else on))
    assert found is not None, name
    return found


def as_it_is(func: PrimFunc, arrays: list[Any]) -> np.ndarray:
    """Return what a function computes without a schedule."""
    tvm.compile(func, target=host(2))(*arrays)
    return arrays[-1].numpy().copy()


def of_each_kind(problems: Mapping[str, tuple[str, PrimFunc]]) -> list[Any]:
    """Names as parameters of a test; the quick tier keeps one of each kind, and one of bytes."""
    rows = [{"kind": kind, "bytes": "bytes" in name} for name, (kind, _) in problems.items()]
    return [
        pytest.param(name, marks=() if kept else pytest.mark.full)
        for name, kept in zip(problems, enough(rows), strict=True)
    ]


def assert_constraints_prune(space: Space) -> None:
    """Assert that a space leaves out just the points that its constraints forbid."""
    everything = space.points()
    kept, pruned = space.feasible()
    allowed = np.ones(everything.size, bool)
    for constraint in space.constraints:
        allowed &= np.broadcast_to(constraint.used(everything) <= constraint.limit, allowed.shape)
    assert kept.size == np.count_nonzero(allowed) > 0
    assert everything.size - sum(pruned.values()) == kept.size
    assert everything.size == prod(len(v.choices) for v in space.variables)
    for index in range(0, kept.size, max(1, kept.size // 9)):
        space.check(kept.at(index))


def assert_traced(found: Any) -> None:
    """Assert that the traces of some schedules make them again from the function."""
    points, _ = found.space.feasible()
    for index in range(0, points.size, max(1, points.size // 5)):
        sch = found.apply(points.at(index))
        again = Schedule(found.func)
        sch.trace.apply_to_schedule(again, remove_postproc=False)
        tvm.ir.assert_structural_equal(again.mod, sch.mod)
