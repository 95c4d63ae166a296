"""Row programs compute what the unscheduled functions compute, and write nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, topi
from tvm.ir import TensorLoad, prim
from tvm.relax import op

import row_operators
from fuse_epilogue.kernels.cpu import row_program
from fuse_epilogue.kernels.cpu.row_program.blocks import BLOCK, LEAST_ROW
from fuse_epilogue.recognize.stages import read_program
from fuse_epilogue.rewrites.branches import with_branches
from fuse_epilogue.schedules import host
from fuse_epilogue.schedules.cpu import for_llvm
from kernel_runs import Result, fenced
from tiers import crossed

SIZES = (17, 129, 7, 1, 2, 3, 33)


def run(func: Any, like: Any, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Run on inputs at unreadable pages; check the zones after the outputs, those of `like`."""
    program = read_program(with_branches(like))
    assert program is not None
    given = iter(arrays)
    results, arguments = [], []
    for param in like.params:
        if any(param.same_as(each) for each in program.inputs):
            arguments.append(fenced(next(given)))
            continue
        results.append(Result(map(int, param.shape), str(param.dtype)))
        arguments.append(results[-1].tensor)
    tvm.compile(func.with_attr("global_symbol", "main"), host(2))["main"](*arguments)
    return [each.read() for each in results]


def scheduled(func: Any, threads: int = 1) -> Any:
    program = read_program(with_branches(func))
    assert program is not None
    found = next(row_program.alternatives(program, host(threads), threads), None)
    assert found is not None
    return for_llvm(found.func)


def inputs_of(func: Any, draw: Callable[..., np.ndarray]) -> list[np.ndarray]:
    program = read_program(with_branches(func))
    assert program is not None
    return [
        draw(tuple(int(size) for size in each.shape)).astype(str(each.dtype))
        for each in program.inputs
    ]


@pytest.mark.usefixtures("free_threads")
@crossed(name=tuple({**row_operators.ROWS, **row_operators.AVERAGES}), n=SIZES, threads=(1, 2))
def test_operators_of_floats(name: str, n: int, threads: int) -> None:
    rule, shapes = {**row_operators.ROWS, **row_operators.AVERAGES}[name]
    func = row_operators.function(rule, shapes(n))
    rng = np.random.default_rng(n)
    arrays = inputs_of(func, rng.standard_normal)
    for got, expected in zip(
        run(scheduled(func, threads), func, arrays), run(func, func, arrays), strict=True
    ):
        # A variance or a norm that is zero divides by zero.
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.usefixtures("free_threads")
@crossed(name=tuple({**row_operators.EXACT, **row_operators.POOLS}), n=SIZES, threads=(1, 2))
def test_exact_operators_are_equal_in_every_bit(name: str, n: int, threads: int) -> None:
    rule, shapes = {**row_operators.EXACT, **row_operators.POOLS}[name]
    func = row_operators.function(rule, shapes(n))
    rng = np.random.default_rng(n)
    arrays = inputs_of(func, lambda shape: rng.integers(-8, 9, shape))
    for got, expected in zip(
        run(scheduled(func, threads), func, arrays), run(func, func, arrays), strict=True
    ):
        assert np.array_equal(got, expected)


TYPES = ("float16", "int8", "uint8", "int32", "int64", "float64")


@crossed(
    name=(
        "sum-last",
        "sum-first",
        "max-last",
        "min-first",
        "argmax-last",
        "argmin-first",
        "centred",
    ),
    dtype=TYPES,
    n=(33, 129, 5),
)
def test_types(name: str, dtype: str, n: int) -> None:
    rule, shapes = row_operators.EXACT[name]
    if name == "centred":
        rule = centred
    func = row_operators.function(rule, shapes(n), dtype)
    rng = np.random.default_rng(n)
    low = 0 if dtype.startswith("u") else -3
    # Sums of whole numbers that float16 holds exactly, in every order.
    arrays = inputs_of(func, lambda shape: rng.integers(low, 4, shape))
    (got,) = run(scheduled(func), func, arrays)
    (expected,) = run(func, func, arrays)
    assert np.array_equal(got, expected)


def centred(x: Any) -> Any:
    return op.subtract(x, op.sum(x, [-1], keepdims=True))


@pytest.mark.parametrize("rows", [8, 20])
@pytest.mark.parametrize("name", ["softmax", "log-softmax"])
def test_pairs_that_a_pass_stores_and_sums(name: str, rows: int) -> None:
    """Exponentials of rows of two: every second element is loaded after it is stored."""
    rule, _ = row_operators.ROWS[name]
    func = row_operators.function(rule, [(rows, 2)])
    arrays = inputs_of(func, np.random.default_rng(rows).standard_normal)
    (got,) = run(scheduled(func), func, arrays)
    (expected,) = run(func, func, arrays)
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("rule", [topi.all, topi.any], ids=["all", "any"])
@pytest.mark.parametrize("axis", [0, 1])
def test_conditions(rule: Callable[..., Any], axis: int) -> None:
    x = te.placeholder((33, 17), "bool", "x")
    func = te.create_prim_func([x, rule(x, [axis])]).with_attr("tirx.noalias", True)
    rng = np.random.default_rng(axis)
    array = rng.integers(0, 2, (33, 17)) if rule is topi.any else np.ones((33, 17))
    array[:, 3] = array[7] = 0
    array[3, 1] = array[7, 9] = 1
    (got,) = run(scheduled(func), func, [array.astype(bool)])
    (expected,) = run(func, func, [array.astype(bool)])
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("n", [5, 33, 257])
@pytest.mark.parametrize("name", ["softmax", "log-softmax", "layer-norm", "max-last", "sum-last"])
def test_special_values(name: str, n: int) -> None:
    """A row each with infinities of both signs, with NaN, with zeros of both signs, and usual."""
    rule, shapes = {**row_operators.ROWS, **row_operators.EXACT}[name]
    func = row_operators.function(rule, shapes(n))
    arrays = inputs_of(func, np.random.default_rng(n).standard_normal)
    rows = arrays[0]
    rows[0, 1] = np.inf
    rows[1, 2] = -np.inf
    rows[2] = -np.inf
    rows[3, -1] = np.nan
    rows[4] = np.where(np.arange(n) % 3, 0.0, -0.0)
    (got,) = run(scheduled(func), func, arrays)
    (expected,) = run(func, func, arrays)
    if name == "max-last":
        # TVM's maximum forgets a NaN that is not the last element: here, it may be another's turn.
        assert np.isnan(got[3]) or got[3] in rows[3]
        got[3] = expected[3]
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)


def log_sum_exp(x: Any) -> Any:
    highest = topi.max(x, -1, keepdims=True)
    return topi.log(topi.sum(topi.exp(x - highest), -1)) + topi.squeeze(highest, -1)


@pytest.mark.usefixtures("free_threads")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("n", [LEAST_ROW, LEAST_ROW + 1, 20_001])
@pytest.mark.parametrize("rule", [topi.nn.softmax, topi.nn.log_softmax, log_sum_exp])
def test_long_rows_are_computed_in_blocks(rule: Callable[..., Any], n: int, threads: int) -> None:
    """A block without a finite element, infinities, NaN, and a maximum in any block."""
    x = te.placeholder((7, n), "float32", "x")
    func = te.create_prim_func([x, rule(x)]).with_attr("tirx.noalias", True)
    rows = np.random.default_rng(n).standard_normal((7, n)).astype("float32")
    rows[0, : BLOCK + 9] = -np.inf
    rows[1] = -np.inf
    rows[2, n - 1] = np.inf
    rows[3, 2 * BLOCK] = np.nan
    rows[4] = np.linspace(-300, 300, n)
    rows[5] = np.linspace(3e38, -3e38, n)
    made = scheduled(func, threads)
    assert "of_block" in str(made)
    (got,) = run(made, func, [rows])
    (expected,) = run(func, func, [rows])
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "rule",
    [
        lambda x: topi.exp(x - topi.min(x, -1, keepdims=True)),
        lambda x: topi.sum(topi.exp(x - topi.sum(x, -1, keepdims=True)), -1),
        lambda x: topi.sum(topi.exp(x + topi.max(x, -1, keepdims=True)), -1),
        lambda x: topi.sum(x - topi.max(x, -1, keepdims=True), -1),
        lambda x: topi.max(topi.nn.softmax(x), -1),
    ],
)
def test_other_long_rows_are_not(rule: Callable[..., Any]) -> None:
    x = te.placeholder((2, LEAST_ROW), "float32", "x")
    assert "of_block" not in str(scheduled(te.create_prim_func([x, rule(x)])))


def test_taps_beside_each_other_share_their_loads() -> None:
    """Every second element of two vectors, and the others: two loads for both."""
    rule, shapes = row_operators.POOLS["max-2-2-NCHW"]
    func = row_operators.function(rule, shapes(129))
    program = read_program(with_branches(func))
    assert program is not None
    found: list[Any] = []

    def load(node: Any) -> None:
        if isinstance(node.indices[0], prim.Ramp) and not str(node.source.name).startswith("strid"):
            found.append(str(node))

    made = next(row_program.alternatives(program, host(1)), None)
    assert made is not None
    tvm_ffi.structural_walk(made.func.body, (TensorLoad, load))
    counts = Counter(found)
    assert counts
    assert all(count % 2 == 0 for count in counts.values())


@pytest.mark.parametrize(
    ("rule", "length", "by_llvm"),
    [
        (lambda x: topi.sum(x, 1), 7, True),
        (lambda x: topi.nn.rms_norm(x, te.compute((7,), lambda _: 1.0, "one"), [1]), 7, True),
        (lambda x: topi.sum(x, 1), 9, False),
        (lambda x: topi.nn.softmax(x), 7, True),
        (lambda x: topi.nn.softmax(x), 9, False),
    ],
)
def test_short_rows_are_left_to_llvm(rule: Callable[..., Any], length: int, by_llvm: bool) -> None:
    x = te.placeholder((100, length), "float32", "x")
    found = next(
        row_program.alternatives(read_program(te.create_prim_func([x, rule(x)])), host(1)), None
    )
    assert found is not None
    assert ("T.vectorized" not in str(found.func) and "T.Ramp" not in str(found.func)) == by_llvm


@pytest.mark.parametrize(("rows", "size", "fetched"), [(3, 4096, True), (3, 768, False)])
def test_the_next_long_row_is_fetched_meanwhile(rows: int, size: int, fetched: bool) -> None:
    x = te.placeholder((rows, size), "float32")
    func = te.create_prim_func([x, topi.nn.softmax(x)])
    made = next(row_program.alternatives(read_program(func), host(1)))
    text = made.func.script()
    assert ("llvm.prefetch" in text) == fetched
    # After the last row there is none.
    assert (f"T.min(outer_0 + T.int64(1), T.int64({rows - 1}))" in text) == fetched
