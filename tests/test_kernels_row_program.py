"""Row programs compute what the unscheduled functions compute, and write nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm

import row_operators
from fuse_epilogue.kernels.cpu import row_program
from fuse_epilogue.kernels.cpu.row_program import group
from fuse_epilogue.recognize.stages import read_program
from fuse_epilogue.schedules import host
from fuse_epilogue.schedules.branches import with_branches
from fuse_epilogue.schedules.cpu import with_vector_functions
from generated.fences import Fenced
from tiers import crossed

SIZES = (17, 129, 7, 1, 2, 3, 33)
#: Bytes that TVM asks a tensor to be aligned to.
ALIGNED = 64
#: Elements after an output, and what they hold.
ZONE, UNTOUCHED = 64, 99


def run(func: Any, like: Any, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Run on inputs at unreadable pages; check the zones after the outputs, those of `like`."""
    program = read_program(with_branches(like))
    assert program is not None
    inputs = [Fenced(x, "beginning" if x.nbytes % ALIGNED else "end") for x in arrays]
    given = iter(inputs)
    results, arguments = [], []
    for param in like.params:
        if any(param.same_as(each) for each in program.inputs):
            arguments.append(next(given).tensor())
            continue
        shape = tuple(int(size) for size in param.shape)
        size = math.prod(shape)
        full = np.full(size + ZONE, UNTOUCHED).astype(str(param.dtype))
        memory = tvm.runtime.tensor(full)
        arguments.append(memory._create_view(shape))
        results.append((memory, size, shape))
    tvm.compile(func.with_attr("global_symbol", "main"), host(2))["main"](*arguments)
    found = []
    for memory, size, shape in results:
        content = memory.numpy()
        assert (content[size:] == np.full(1, UNTOUCHED).astype(content.dtype)).all()
        found.append(content[:size].reshape(shape))
    return found


def scheduled(func: Any, threads: int = 1) -> Any:
    program = read_program(with_branches(func))
    assert program is not None
    found = row_program.schedule(program, host(threads), threads)
    assert found is not None
    return with_vector_functions(found.func)


def inputs_of(func: Any, draw: Callable[..., np.ndarray]) -> list[np.ndarray]:
    program = read_program(with_branches(func))
    assert program is not None
    return [
        draw(tuple(int(size) for size in each.shape)).astype(str(each.dtype))
        for each in program.inputs
    ]


@crossed(name=tuple({**row_operators.ROWS, **row_operators.AVERAGES}), n=SIZES, threads=(1, 2))
def test_operators_of_floats(
    name: str, n: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "PARALLEL_FROM", 1)
    rule, shapes = {**row_operators.ROWS, **row_operators.AVERAGES}[name]
    func = row_operators.function(rule, shapes(n))
    rng = np.random.default_rng(n)
    arrays = inputs_of(func, rng.standard_normal)
    for got, expected in zip(
        run(scheduled(func, threads), func, arrays), run(func, func, arrays), strict=True
    ):
        # A variance or a norm that is zero divides by zero.
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)


@crossed(name=tuple({**row_operators.EXACT, **row_operators.POOLS}), n=SIZES, threads=(1, 2))
def test_exact_operators_are_equal_in_every_bit(
    name: str, n: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "PARALLEL_FROM", 1)
    rule, shapes = {**row_operators.EXACT, **row_operators.POOLS}[name]
    func = row_operators.function(rule, shapes(n))
    rng = np.random.default_rng(n)
    arrays = inputs_of(func, lambda shape: rng.integers(-8, 9, shape))
    for got, expected in zip(
        run(scheduled(func, threads), func, arrays), run(func, func, arrays), strict=True
    ):
        assert np.array_equal(got, expected)
