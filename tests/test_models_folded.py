"""Operators on constants are computed with NumPy, bit by bit as TVM computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

from fuse_epilogue.models.graph.folded import FoldArrays
from test_models_reshapes import module, operators, run

op = relax.op
ROWS = relax.const(np.random.default_rng(0).standard_normal((3, 4)).astype("float32"))
COLUMN = relax.const(np.array([[3.0], [0.0], [-7.0]], "float32"))
ONE = relax.const(np.float32(0.1))
HALVES = relax.const(np.ones((3, 4), "float16"))
WHOLE = relax.const(np.arange(12, dtype="int32").reshape(3, 4))


def deviation(emit: Any) -> Any:
    """As a batch norm has it; the root of a number below 0 is a NaN, and so are its quotients."""
    return emit(op.divide(ROWS, emit(op.sqrt(emit(op.add(COLUMN, ONE))))))


def moved(emit: Any) -> Any:
    wide = emit(op.expand_dims(emit(op.permute_dims(ROWS, [1, 0])), [0]))
    return emit(op.permute_dims(emit(op.squeeze(wide, [0]))))


def negated(emit: Any) -> Any:
    less = emit(op.subtract(emit(op.multiply(ROWS, ONE)), COLUMN))
    return emit(op.reshape(emit(op.negative(less)), (1, 3, 4)))


@pytest.mark.parametrize("constant", [deviation, moved, negated])
def test_folded(constant: Callable[[Any], Any]) -> None:
    before = module(lambda emit, x: emit(op.add(x, constant(emit))))
    after = FoldArrays()(before)
    assert operators(after) == ["add"]
    x = np.random.default_rng(1).standard_normal((2, 3, 4)).astype("float32")
    assert np.array_equal(run(after, x), run(before, x), equal_nan=True)


@pytest.mark.parametrize(
    "constant",
    [
        # An element for each product, NumPy's rounding of whole numbers, and of 16 bits.
        lambda emit: emit(op.add(COLUMN, relax.const(np.arange(4, dtype="float32")))),
        lambda emit: emit(op.astype(emit(op.multiply(WHOLE, WHOLE)), "float32")),
        lambda emit: emit(op.astype(emit(op.add(HALVES, HALVES)), "float32")),
        lambda emit: emit(op.exp(ROWS)),
    ],
)
def test_others_are_left_to_tvm(constant: Callable[[Any], Any]) -> None:
    before = module(lambda emit, x: emit(op.add(x, constant(emit))))
    assert operators(FoldArrays()(before)) == operators(before)
