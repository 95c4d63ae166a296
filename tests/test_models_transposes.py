"""Transpositions move after elementwise operators, and vanish where they cancel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax, tirx

from fuse_epilogue.models.graph.channels_last import ChannelsLast
from fuse_epilogue.models.graph.transposes import SinkTransposes
from test_models_reshapes import X, module, operators, run

op = relax.op
AXES, BACK = (2, 0, 1), (1, 2, 0)


def moved(emit: Any, x: Any, axes: Any = AXES) -> Any:
    return emit(op.permute_dims(x, axes))


def clipped(emit: Any, x: Any) -> Any:
    return moved(emit, emit(op.clip(moved(emit, x), 0.0, 6.0)), BACK)


def reversed_twice(emit: Any, x: Any) -> Any:
    return moved(emit, emit(op.exp(moved(emit, x, None))), None)


def of_two(emit: Any, x: Any) -> Any:
    left, right = moved(emit, x), emit(op.exp(moved(emit, x)))
    positive = emit(op.greater(left, relax.const(np.float32(0))))
    return moved(emit, emit(op.where(positive, left, right)), BACK)


def other_axes(emit: Any, x: Any) -> Any:
    return emit(op.add(moved(emit, x, (1, 0, 2)), emit(op.reshape(moved(emit, x), (3, 2, 4)))))


def of_two_kinds(emit: Any, x: Any) -> Any:
    square = emit(op.reshape(x, (1, 24, 1)))
    return emit(op.add(moved(emit, square, (1, 0, 2)), moved(emit, square, (1, 2, 0))))


def with_a_row(emit: Any, x: Any) -> Any:
    row = relax.const(np.arange(3, dtype="float32"))
    return emit(op.add(moved(emit, x), row))


@pytest.mark.parametrize(
    ("body", "left"),
    [
        (clipped, ["clip"]),
        (reversed_twice, ["exp"]),
        (of_two, ["exp", "greater", "where"]),
        # Nothing may move: operands are transposed in different ways, or have axes of their own.
        (other_axes, ["permute_dims", "permute_dims", "reshape", "add"]),
        (of_two_kinds, ["reshape", "permute_dims", "permute_dims", "add"]),
        (with_a_row, ["permute_dims", "add"]),
    ],
)
def test_transpositions(body: Callable[..., Any], left: list[str]) -> None:
    before = module(body)
    after = SinkTransposes()(before)
    assert operators(after) == left
    x = np.random.default_rng(0).integers(-9, 9, X).astype("float32")
    assert np.array_equal(run(after, x), run(before, x))


@pytest.mark.parametrize("activation", ["clip", "nn.leakyrelu"])
def test_between_convolutions_nothing_is_transposed(activation: str) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 32, 8, 8), "float32"))
    weight = relax.const(np.ones((32, 32, 3, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.nn.conv2d(x, weight, padding=1))
            y = op.clip(y, 0.0, 6.0) if activation == "clip" else op.nn.leakyrelu(y)
            out = op.nn.conv2d(builder.emit(y), weight, padding=1)
            out = builder.emit_output(builder.emit(out))
        builder.emit_func_output(out)
    names = operators(ChannelsLast()(builder.get()))
    assert "permute_dims" in names
    inside = names[names.index("nn.conv2d") : len(names) - names[::-1].index("nn.conv2d")]
    assert [name for name in inside if name != "permute_dims"] == [
        "nn.conv2d",
        activation,
        "nn.conv2d",
    ]
    # The weight's layout may be converted in between.
    assert inside.count("permute_dims") <= 1


@pytest.mark.parametrize(
    ("filters", "kernel", "dtype", "height", "converts"),
    [
        (64, 3, "float32", 16, True),
        # The image has 64 values for each product of a filter, and is transposed before.
        (1, 1, "float32", 16, False),
        (64, 1, "float32", 16, False),
        # Products of bytes need neighbours of a sum side by side.
        (1, 1, "uint8", 16, True),
        (1, 1, "float32", "height", True),
    ],
)
def test_the_layout_is_converted_where_that_pays(
    filters: int, kernel: int, dtype: str, height: Any, converts: bool
) -> None:
    height = tirx.Var(height, "int64") if isinstance(height, str) else height
    x = relax.Var("x", relax.TensorType((1, 64, height, 16), dtype))
    of_weights, total = ("int8", "int32") if dtype == "uint8" else (dtype, dtype)
    weight = relax.const(np.ones((filters, 64, kernel, kernel), of_weights))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(op.nn.conv2d(x, weight, padding=kernel // 2, out_dtype=total))
        builder.emit_func_output(out)
    assert ("permute_dims" in operators(ChannelsLast()(builder.get()))) == converts
