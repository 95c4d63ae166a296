"""Operators of Relax that are written in others, beside TVM's own build and numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import fuse_epilogue
from fuse_epilogue.models.graph.cleanup import FoldNoOps
from fuse_epilogue.models.graph.one_function import one_function
from test_models_reshapes import operators

op = relax.op


def model(rule: Callable[[Any], Any], shape: tuple[int, ...]) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(rule(x)))
    return builder.get()


@pytest.mark.parametrize("name", ["sinh", "cosh"])
def test_hyperbolic_functions(name: str) -> None:
    """As precise near zero as elsewhere, and finite for as long as the result is."""
    x = np.array([0, 1e-6, -1e-3, 0.3, -0.99, 1, 1.01, -7, 88.9, -89.3, 90, -np.inf], np.float32)
    found = fuse_epilogue.compile(model(getattr(op, name), x.shape), threads=1)(x)
    with np.errstate(over="ignore"):
        expected = getattr(np, name)(x.astype("float64")).astype("float32")
    np.testing.assert_allclose(found, expected, rtol=2e-6)


@pytest.mark.parametrize("value", [-np.inf, np.nan, 2.0])
def test_tensors_of_one_value(value: float) -> None:
    made = model(lambda x: op.full_like(x, relax.const(value, "float32")), (3, 4))
    found = fuse_epilogue.compile(made, threads=1)(np.zeros((3, 4), np.float32))
    np.testing.assert_array_equal(found, np.full((3, 4), np.float32(value)))


@pytest.mark.parametrize(("shown", "chosen"), [(True, "exp"), (False, "tanh")])
def test_choices_that_are_the_same_everywhere(shown: bool, chosen: str) -> None:
    everywhere = relax.const(np.full((3, 1), shown))
    made = model(lambda x: op.where(everywhere, op.exp(x), op.tanh(x)), (3, 4))
    assert operators(relax.transform.DeadCodeElimination()(FoldNoOps()(made))) == [chosen]
    x = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)
    found = fuse_epilogue.compile(made, threads=1)(x)
    np.testing.assert_allclose(found, getattr(np, chosen)(x), rtol=1e-6)


def test_a_function_that_does_not_read_an_operand_is_not_made() -> None:
    """TVM would leave its parameter out, and the call would have one argument too many."""
    x, y = (relax.Var(name, relax.TensorType((3, 4), "float32")) for name in "xy")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            condition = relax.const(np.ones((3, 1), bool))
            out = builder.emit_output(op.nn.softmax(builder.emit(op.where(condition, x, y))))
        builder.emit_func_output(out)
    (block,) = builder.get()["main"].body.blocks
    assert one_function(block.bindings) is None
    assert one_function(block.bindings[1:]) is not None


def test_a_batch_norm_in_training() -> None:
    """It takes the batch's mean and variance, after a convolution too, and returns new ones."""
    rng = np.random.default_rng(0)
    vectors = [relax.const(rng.random(6).astype("float32") + 0.5) for _ in range(4)]
    weight = relax.const(rng.standard_normal((6, 3, 3, 3)).astype("float32"))

    def normalized(x: Any) -> Any:
        return op.nn.batch_norm(op.nn.conv2d(x, weight), *vectors, axis=1, momentum=0.25)

    made = model(normalized, (2, 3, 7, 5))
    x = rng.standard_normal((2, 3, 7, 5)).astype("float32")
    own = relax.VirtualMachine(tvm.compile(made, "llvm"), tvm.cpu())["main"]
    found = fuse_epilogue.compile(made, threads=1)(x)
    for ours, theirs in zip(found, own(tvm.runtime.tensor(x)), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5, atol=1e-5)
