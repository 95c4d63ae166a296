"""Products of widened integers in models are products of the narrow ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import fuse_epilogue
from fuse_epilogue.models.graph.narrow_products import NarrowProducts
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


def shifted(zero: Any, weight: Any, parameter: bool = False) -> Any:
    """Return a module that subtracts zero points from numbers before it multiplies them."""
    x = relax.Var("x", relax.TensorType((5, 24), "uint8"))
    builder = relax.BlockBuilder()
    params = [x]
    if parameter:
        params.append(relax.Var("w", relax.TensorType(weight.shape, str(weight.dtype))))
    right = params[1] if parameter else relax.const(weight)
    with builder.function("main", params):
        with builder.dataflow():
            wide = builder.emit(relax.op.astype(x, "int32"))
            left = builder.emit(relax.op.subtract(wide, relax.const(zero)))
            right = builder.emit(relax.op.astype(right, "int32"))
            # As importers write it: a zero point of weights, which is a single number.
            none = builder.emit(relax.op.astype(relax.const(np.int8(0)), "int32"))
            right = builder.emit(relax.op.subtract(right, none))
            out = builder.emit_output(relax.op.matmul(left, right, out_dtype="int32"))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("zero", [np.int32(255), np.arange(5, dtype="int32")[:, None]])
@pytest.mark.parametrize("weights", [(24, 19), (2, 24, 7)])
def test_zero_points_are_taken_out_of_products(zero: Any, weights: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    weight = rng.integers(-128, 128, weights).astype("int8")
    mod = shifted(zero, weight)
    assert factor_types(NarrowProducts()(mod)) == ["uint8", "int8"]
    x = rng.choice([0, 255, 254], (5, 24)).astype("uint8")
    result = fuse_epilogue.compile(mod, host(1))(x)
    assert np.array_equal(result, (x.astype("int32") - zero) @ weight.astype("int32"))


@pytest.mark.parametrize("why", ["of each product", "of 32 bits"])
def test_other_zero_points_stay(why: str) -> None:
    zero = np.arange(24, dtype="int32") if why == "of each product" else np.int32(7)
    weight = np.ones((24, 3), "int32" if why == "of 32 bits" else "int8")
    weight[0, 0] = 1 if why != "of 32 bits" else 1 << 20
    assert factor_types(NarrowProducts()(shifted(zero, weight))) == ["int32", "int32"]


def test_zero_points_are_in_16_bits_where_weights_are_not_constant() -> None:
    rng = np.random.default_rng(2)
    weight = rng.integers(-128, 128, (24, 19)).astype("int8")
    mod = shifted(np.int32(200), weight, parameter=True)
    assert factor_types(NarrowProducts()(mod)) == ["int16", "int16"]
    x = rng.choice([0, 255, 254], (5, 24)).astype("uint8")
    result = fuse_epilogue.compile(mod, host(1))(x, weight)
    assert np.array_equal(result, (x.astype("int32") - 200) @ weight.astype("int32"))
