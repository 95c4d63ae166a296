"""Bools are compared and added as TVM can compile it, with the results of NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import fuse_epilogue
from fuse_epilogue.models.graph.bools import BoolsAsNumbers

FLAGS = np.array([False, False, True, True]), np.array([False, True, False, True])

OPERATORS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "equal": (relax.op.equal, np.equal),
    "not-equal": (relax.op.not_equal, np.not_equal),
    "less": (relax.op.less, np.less),
    "less-equal": (relax.op.less_equal, np.less_equal),
    "greater": (relax.op.greater, np.greater),
    "greater-equal": (relax.op.greater_equal, np.greater_equal),
    "add": (relax.op.add, np.add),
    "multiply": (relax.op.multiply, np.multiply),
    "maximum": (relax.op.maximum, np.maximum),
    "minimum": (relax.op.minimum, np.minimum),
}


def module(operator: Callable[..., Any], dtype: str = "bool") -> Any:
    builder = relax.BlockBuilder()
    params = [relax.Var(name, relax.TensorType((4,), dtype)) for name in "xy"]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(operator(*params))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_bools_are_those_of_numpy(name: str) -> None:
    ours, numpys = OPERATORS[name]
    result = fuse_epilogue.compile(module(ours))(*FLAGS)
    assert result.dtype == bool
    assert np.array_equal(result, numpys(*FLAGS))


def test_numbers_are_left_alone() -> None:
    before = module(relax.op.equal, "int32")
    tvm.ir.assert_structural_equal(BoolsAsNumbers()(before), before)
