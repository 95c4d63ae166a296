"""Elementwise operators move before reshapes, where both sides have one number of elements each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from fuse_epilogue.models.graph.reshapes import SinkReshapes

X = (2, 3, 4)


def module(body: Callable[[Any, Any], Any]) -> Any:
    """A function of one argument; `body` takes a function that emits, and the argument."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(X, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(body(builder.emit, x))
        builder.emit_func_output(out)
    return builder.get()


def operators(mod: Any) -> list[str]:
    bindings = mod["main"].body.blocks[0].bindings
    names = [str(getattr(getattr(each.value, "op", None), "name", "")) for each in bindings]
    return [name.removeprefix("relax.") for name in names if name]


def run(mod: Any, x: np.ndarray) -> np.ndarray:
    built = tvm.compile(mod, target="llvm")
    return relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()


WEIGHT = relax.const(np.arange(20, dtype="float32").reshape(4, 5))
BIAS = relax.const(np.arange(5, dtype="float32"))
COLUMN = relax.const(np.arange(3, dtype="float32").reshape(3, 1))


def linear(emit: Any, x: Any) -> Any:
    flat = emit(relax.op.matmul(emit(relax.op.reshape(x, (6, 4))), WEIGHT))
    return emit(relax.op.reshape(flat, (2, 3, 5)))


def biased(emit: Any, x: Any) -> Any:
    return emit(relax.op.nn.relu(emit(relax.op.add(linear(emit, x), BIAS))))


def residual(emit: Any, x: Any) -> Any:
    y = biased(emit, x)
    return emit(
        relax.op.multiply(relax.const(np.float32(2)), emit(relax.op.add(y, linear(emit, x))))
    )


def by_column(emit: Any, x: Any) -> Any:
    return emit(relax.op.add(linear(emit, x), COLUMN))


@pytest.mark.parametrize(
    ("body", "last"),
    [
        (biased, ["reshape", "matmul", "add", "nn.relu", "reshape"]),
        (residual, ["add", "multiply", "reshape"]),
        # A column is no part of the last axes before the reshape: nothing may move.
        (by_column, ["matmul", "reshape", "add"]),
    ],
    ids=["bias", "residual", "column"],
)
def test_reshapes_come_last(body: Callable[[Any, Any], Any], last: list[str]) -> None:
    before = module(body)
    after = SinkReshapes()(before)
    assert operators(after)[-len(last) :] == last
    x = np.arange(24, dtype="float32").reshape(X)
    assert np.array_equal(run(after, x), run(before, x))


def test_two_reshapes_become_one() -> None:
    def body(emit: Any, x: Any) -> Any:
        return emit(relax.op.reshape(emit(relax.op.reshape(x, (4, 6))), (24,)))

    assert operators(SinkReshapes()(module(body))) == ["reshape"]


def by_one_matrix(emit: Any, x: Any) -> Any:
    return emit(relax.op.matmul(x, emit(relax.op.broadcast_to(WEIGHT, (2, 4, 5)))))


def by_several(emit: Any, x: Any) -> Any:
    weights = relax.const(np.arange(40, dtype="float32").reshape(2, 4, 5))
    return emit(relax.op.matmul(x, weights))


def by_a_larger_batch(emit: Any, x: Any) -> Any:
    one = emit(relax.op.take(x, relax.const(np.arange(1)), axis=0))
    return emit(relax.op.matmul(one, emit(relax.op.broadcast_to(WEIGHT, (2, 4, 5)))))


@pytest.mark.parametrize(
    ("body", "flat"),
    [(by_one_matrix, True), (by_several, False), (by_a_larger_batch, False)],
    ids=["one", "several", "larger-batch"],
)
def test_a_product_with_one_matrix_is_flat(body: Callable[[Any, Any], Any], flat: bool) -> None:
    before = module(body)
    after = SinkReshapes()(before)
    assert (operators(after)[-3:] == ["reshape", "matmul", "reshape"]) is flat
    x = np.arange(24, dtype="float32").reshape(X)
    assert np.array_equal(run(after, x), run(before, x))


def test_a_constant_keeps_its_type() -> None:
    """A number without axes would become one of 32 bits."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), "int64"))
    with builder.function("main", [x]):
        with builder.dataflow():
            flat = builder.emit(relax.op.reshape(x, (6,)))
            one = relax.const(np.array([1]), "int64")
            out = builder.emit_output(builder.emit(relax.op.add(flat, one)))
        builder.emit_func_output(out)
    sunk = SinkReshapes()(builder.get())
    assert operators(sunk) == ["add", "reshape"]
    given = np.arange(6, dtype="int64").reshape(2, 3)
    np.testing.assert_array_equal(run(sunk, given), np.arange(1, 7))
