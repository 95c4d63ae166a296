"""Products of widened integers in models are products of the narrow ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import fuse_epilogue
from fuse_epilogue.models.narrow_products import NarrowProducts
from fuse_epilogue.schedules import host


def product(weight: np.ndarray, dtype: str = "uint8", length: int = 24) -> Any:
    """Return a module that multiplies numbers widened to 32 bits with a constant."""
    x = relax.Var("x", relax.TensorType((5, length), dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            wide = builder.emit(relax.op.astype(x, "int32"))
            out = builder.emit_output(relax.op.matmul(wide, relax.const(weight)))
        builder.emit_func_output(out)
    return builder.get()


def factor_types(mod: Any) -> list[str]:
    """Return the types of the factors of the product."""
    calls: list[Any] = []
    relax.analysis.post_order_visit(mod["main"], calls.append)
    (found,) = [e for e in calls if getattr(getattr(e, "op", None), "name", "") == "relax.matmul"]
    return [str(each.ty.dtype) for each in found.args]


@pytest.mark.parametrize(
    ("dtype", "greatest", "types"),
    [
        ("uint8", 127, ["uint8", "int8"]),
        ("int8", 255, ["int8", "uint8"]),
        ("int16", 32767, ["int16", "int16"]),
        ("int8", 32768, ["int32", "int32"]),
        ("uint16", 1, ["int32", "int32"]),
        ("float32", 1, ["int32", "int32"]),
    ],
)
def test_factors_are_as_narrow_as_their_values(dtype: str, greatest: int, types: list[str]) -> None:
    weight = np.zeros((24, 3), "int32")
    weight[3, 1] = greatest
    assert factor_types(NarrowProducts()(product(weight, dtype))) == types


def test_a_model_computes_the_same() -> None:
    rng = np.random.default_rng(0)
    weight = rng.integers(-128, 128, (24, 19)).astype("int32")
    x = rng.choice([0, 255, 254], (5, 24)).astype("uint8")
    compiled = fuse_epilogue.compile(product(weight), host(1))
    result = compiled(tvm.runtime.tensor(x))
    assert np.array_equal(np.from_dlpack(result), x.astype("int32") @ weight)
