"""Batches of products on Trainium: kernels that check, and compute what numpy says bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax, s_tir, te
from tvm.relax import op

import fuse_epilogue
from conv_traces import stored
from fuse_epilogue import schedules
from fuse_epilogue.neuron import emit
from fuse_epilogue.planner import Plan
from fuse_epilogue.planner.problems.cost import Weights
from fuse_epilogue.schedules.neuron import Matmul
from neuron_rules import kernel_by
from row_operators import function

Shapes = list[tuple[int, ...]]


def attention_scores(q: Any, k: Any) -> Any:
    return op.matmul(op.permute_dims(q, [0, 2, 1, 3]), op.permute_dims(k, [0, 2, 3, 1]))


def masked(a: Any, b: Any, mask: Any) -> Any:
    return op.add(op.multiply(op.matmul(a, b), relax.const(0.5)), mask)


def masked_oracle(a: Any, b: Any, mask: Any) -> Any:
    return a @ b * 0.5 + mask


def rectified(a: Any, b: Any, bias: Any) -> Any:
    return op.nn.relu(op.add(op.matmul(a, b), bias))


#: The operators, the shapes of their inputs, and numpy.
CASES: dict[str, tuple[Callable[..., Any], Shapes, Callable[..., Any]]] = {
    "ragged": (op.matmul, [(3, 130, 70), (3, 70, 96)], np.matmul),
    "transposed": (
        lambda a, b: op.matmul(a, op.permute_dims(b, [0, 1, 3, 2])),
        [(2, 3, 130, 64), (2, 3, 200, 64)],
        lambda a, b: a @ b.swapaxes(-1, -2),
    ),
    "heads in the middle": (
        attention_scores,
        [(1, 128, 4, 64), (1, 96, 4, 64)],
        lambda q, k: q.transpose(0, 2, 1, 3) @ k.transpose(0, 2, 3, 1),
    ),
    "one matrix for all": (
        rectified,
        [(4, 130, 70), (70, 96), (96,)],
        lambda a, b, bias: np.maximum(a @ b + bias, 0),
    ),
    "a mask for the heads": (
        masked,
        [(2, 3, 130, 70), (2, 3, 70, 96), (2, 1, 130, 96)],
        masked_oracle,
    ),
    "a row for the heads": (
        masked,
        [(2, 3, 130, 70), (2, 3, 70, 96), (2, 1, 1, 96)],
        masked_oracle,
    ),
    "more than a bank": (op.matmul, [(2, 260, 256), (2, 256, 600)], np.matmul),
}


kernel_of = partial(kernel_by, Matmul())


def integers(shapes: Shapes, dtype: Any = np.float32) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(-3, 4, size=shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("name", CASES)
def test_computes_the_products(name: str) -> None:
    make, shapes, oracle = CASES[name]
    arrays = integers(shapes)
    np.testing.assert_array_equal(kernel_of(function(make, shapes))(*arrays), oracle(*arrays))


def narrow(dtype: str, batch: int = 3, reduced: int = 64) -> Any:
    """Products of a batch in a type of 16 bits, summed in float32."""
    a = te.placeholder((batch, 40, reduced), dtype, "a")
    b = te.placeholder((batch, reduced, 72), dtype, "b")
    k = te.reduce_axis((0, reduced), "k")
    y = te.compute(
        (batch, 40, 72),
        lambda e, i, j: te.sum(
            a[e, i, k].astype("float32") * b[e, k, j].astype("float32"), axis=[k]
        ),
        "y",
    )
    return te.create_prim_func([a, b, y])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_types(dtype: str) -> None:
    kernel = kernel_of(narrow(dtype))
    kind = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    a, b = integers([(3, 40, 64), (3, 64, 72)], kind)
    expected = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(kernel(a, b), expected)


def test_what_is_the_same_for_all_is_loaded_once() -> None:
    func = function(CASES["one matrix for all"][0], CASES["one matrix for all"][1])
    trace = kernel_of(func).trace()
    loaded = [s.line for s in trace.steps if s.op == "dma_copy"]
    # Two tiles of rows of each of four matrices, loaded and stored; the shared matrix; the bias.
    assert len(loaded) == 4 * 2 * 2 + 1 + 1


def test_planned_fused_and_unfused() -> None:
    """The unfused build computes the same bits; the plan says what each takes."""
    shapes: Shapes = [(2, 130, 64), (2, 64, 96), (130, 96)]
    func = function(masked, shapes)
    plan = fuse_epilogue.plan(func, "trn2")
    assert (plan.kind, plan.sizes) == ("products", {"batch": 2, "m": 130, "n": 96, "k": 64})
    assert "fusion: fused" in plan.explain()
    assert Plan.from_json(plan.to_json()) == plan
    problem = plan.problem(func)
    unfused = {**plan.point, "fusion": 0, "rest": 96}
    arrays = integers(shapes)
    expected = masked_oracle(*arrays)
    for point in (plan.point, unfused):
        kernel = emit(problem.apply(point))
        kernel.check("trn2")
        np.testing.assert_array_equal(kernel(*arrays), expected)
    assert problem.exact(plan.point) < problem.exact(unfused)


def test_apply_takes_the_plan() -> None:
    func = function(op.matmul, [(2, 32, 64), (2, 64, 96)])
    emit(schedules.apply(func, "trn1")).check("trn1")
    assert "products of float32, batch = 2" in schedules.explain(func, "trn1")


def summed_twice() -> Any:
    a = te.placeholder((32, 4, 16), "float32", "a")
    b = te.placeholder((4, 16, 24), "float32", "b")
    k, h = te.reduce_axis((0, 16), "k"), te.reduce_axis((0, 4), "h")
    y = te.compute((32, 24), lambda i, j: te.sum(a[i, h, k] * b[h, k, j], axis=[h, k]), "y")
    return te.create_prim_func([a, b, y])


def of_last_axis(in_result: bool) -> Any:
    """Products numbered by the last axis, of the result or of a matrix."""
    a = te.placeholder((8, 16, 4), "float32", "a")
    b = te.placeholder((4, 16, 24), "float32", "b")
    k = te.reduce_axis((0, 16), "k")
    if in_result:
        other = te.placeholder((4, 8, 16), "float32", "a")
        y = te.compute(
            (8, 24, 4), lambda i, j, e: te.sum(other[e, i, k] * b[e, k, j], axis=[k]), "y"
        )
        return te.create_prim_func([other, b, y])
    y = te.compute((4, 8, 24), lambda e, i, j: te.sum(a[i, k, e] * b[e, k, j], axis=[k]), "y")
    return te.create_prim_func([a, b, y])


@pytest.mark.parametrize(
    "func",
    [
        summed_twice(),
        of_last_axis(True),
        of_last_axis(False),
        function(op.nn.conv2d, [(2, 16, 8, 8), (24, 16, 1, 1)]),
    ],
    ids=["two axes are summed", "stored by element", "loaded by element", "an image"],
)
def test_refused(func: Any) -> None:
    choice = Matmul().choose(func, "trn2")
    assert choice.schedule is None
    assert choice.why == (
        "it is not one product of matrices, or a batch of them with rows that are contiguous, "
        "summed in float32"
    )


def test_the_trace_replays() -> None:
    make, shapes, _ = CASES["one matrix for all"]
    func = function(make, shapes)
    sch = Matmul().apply(func, "trn2")
    assert sch is not None
    again = s_tir.Schedule(func)
    s_tir.schedule.Trace.apply_json_to_schedule(stored(sch), again)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)


def test_a_bound_is_below_the_latency() -> None:
    shapes: Shapes = [(4, 130, 64), (64, 96), (96,)]
    plan = fuse_epilogue.plan(function(rectified, shapes), "trn1")
    problem = plan.problem(function(rectified, shapes))
    feasible, _ = problem.space.feasible()
    bounds = Weights().cost(problem.cost(feasible))
    for index in range(0, feasible.size, 5):
        assert 0 < bounds[index] <= problem.exact(feasible.at(index)) * (1 + 1e-9)
