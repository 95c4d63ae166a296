"""Windows of each channel on Trainium: 2-D depthwise convolutions and poolings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te, topi
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import Trace

from conv_traces import stored
from fuse_epilogue import schedules
from fuse_epilogue.neuron import Kernel, emit
from fuse_epilogue.schedules.neuron import Windows2d

Shape = tuple[int, int, int, int]

#: Images, window, stride, padding, dilation of depthwise convolutions.
CONVS: list[tuple[Shape, tuple[int, int], Any, Any, Any]] = [
    ((2, 5, 9, 11), (3, 3), 1, 1, 1),
    ((1, 300, 7, 7), (3, 3), 2, 1, 1),
    ((1, 3, 60, 200), (5, 5), 1, 2, 1),
    ((1, 131, 10, 12), (5, 3), (1, 2), (2, 0), (1, 2)),
    ((1, 4, 20, 1), (3, 1), 1, (1, 0), 1),
    ((1, 1, 4, 4), (1, 1), 1, 0, 1),
]


def depthwise(
    shape: Shape, window: Any, stride: Any, padding: Any, dilation: Any, dtype: str = "float32"
) -> Any:
    """With a bias, an activation, and what is added."""
    x = te.placeholder(shape, dtype, name="x")
    weight = te.placeholder((shape[1], 1, *window), dtype, name="weight")
    bias = te.placeholder((shape[1], 1, 1), "float32", name="bias")
    conv = topi.nn.depthwise_conv2d_nchw(x, weight, stride, padding, dilation, "float32")
    residual = te.placeholder(conv.shape, "float32", name="residual")
    y = topi.add(topi.nn.relu(topi.add(conv, bias)), residual)
    return te.create_prim_func([x, weight, bias, residual, y])


def expected(
    x: Any, weight: Any, bias: Any, residual: Any, stride: Any, padding: Any, dilation: Any
) -> np.ndarray:
    """By numpy, tap by tap."""
    pads, strides, steps = (
        (each, each) if isinstance(each, int) else each for each in (padding, stride, dilation)
    )
    x, weight = (np.asarray(each, "float64") for each in (x, weight))
    x = np.pad(x, ((0, 0), (0, 0), (pads[0],) * 2, (pads[1],) * 2))
    total = np.zeros(residual.shape)
    height, width = residual.shape[2:]
    for kh in range(weight.shape[2]):
        for kw in range(weight.shape[3]):
            rows = x[:, :, kh * steps[0] :: strides[0], kw * steps[1] :: strides[1]]
            own = weight[:, 0, kh, kw].reshape(1, -1, 1, 1)
            total += rows[:, :, :height, :width] * own
    made: np.ndarray = np.maximum(total + bias, 0) + residual
    return made


def kernel_of(func: Any) -> Kernel:
    kernel = emit(schedules.apply(func, "trn2"))
    for machine in ("trn1", "trn2", "trn3"):
        kernel.check(machine)
        assert kernel.predict(machine).latency_ms > 0
    return kernel


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("index", range(len(CONVS)))
def test_depthwise_convolution(index: int, dtype: str) -> None:
    shape, window, *options = CONVS[index]
    kernel = kernel_of(depthwise(shape, window, *options, dtype))
    rng = np.random.default_rng(index)
    data = [rng.integers(-4, 5, size).astype(kind) for size, kind in kernel.inputs.values()]
    np.testing.assert_array_equal(kernel(*data), expected(*data, *options))


def pool(shape: Shape, kind: str, window: Any, stride: Any, pads: Any, dtype: str) -> Any:
    x = te.placeholder(shape, dtype, name="x")
    made = topi.nn.pool2d(x, window, stride, (1, 1), pads, kind, count_include_pad=True)
    return te.create_prim_func([x, made])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(2, 5, 9, 11), (1, 300, 8, 8)], ids=str)
def test_maxima(shape: Shape, dtype: str) -> None:
    kernel = kernel_of(pool(shape, "max", (3, 2), (2, 1), (1, 1, 1, 0), dtype))
    x = np.random.default_rng(1).normal(size=shape).astype(dtype)
    x[0, 0, :4] = -np.inf
    low = np.finfo(np.float32).min.astype(dtype).astype("float32")  # in bfloat16, an infinity
    padded = np.pad(x.astype("float32"), ((0, 0), (0, 0), (1, 1), (1, 0)), constant_values=low)
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 2), (2, 3))[:, :, ::2]
    wanted = np.maximum(views.max((4, 5)), low)
    np.testing.assert_array_equal(kernel(x).astype("float32"), wanted)


def test_averages() -> None:
    kernel = kernel_of(pool((2, 5, 9, 11), "avg", (3, 3), (2, 2), (0, 0, 0, 0), "float32"))
    x = np.random.default_rng(2).integers(-9, 10, (2, 5, 9, 11)).astype("float32")
    views = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))[:, :, ::2, ::2]
    np.testing.assert_allclose(kernel(x), views.mean((4, 5)), rtol=1e-6)


def test_maxima_go_along_columns_first() -> None:
    """A window of 5 x 5 takes 8 maxima, not 24."""
    kernel = kernel_of(pool((1, 64, 12, 12), "max", (5, 5), (1, 1), (0, 0, 0, 0), "float32"))
    counts = kernel.check("trn2").instructions
    assert counts["tensor_tensor"] == 8 * counts["tensor_copy"]


def test_rows_of_large_images_are_in_blocks() -> None:
    func = depthwise((1, 3, 60, 200), (5, 5), 1, 2, 1)
    kernel = emit(schedules.apply(func, "trn2"))
    assert "for i_b in range(" in kernel.source


def test_the_trace_replays() -> None:
    func = depthwise((1, 3, 6, 6), (3, 3), 1, 1, 1)
    sch = Windows2d().apply(func, "trn2")
    again = Schedule(func)
    Trace.apply_json_to_schedule(stored(sch), again)
    assert emit(again).source == emit(sch).source


def with_filters(count: int) -> Any:
    """A depthwise convolution with several filters for each channel."""
    x, weight = te.placeholder((1, 4, 6, 6)), te.placeholder((4, count, 3, 3))
    return te.create_prim_func([x, weight, topi.nn.depthwise_conv2d_nchw(x, weight, 1, 1, 1)])


def average(padding: int) -> Any:
    """Of the elements of a window that are not padding: fewer at the borders."""
    x = te.placeholder((1, 4, 6, 6))
    made = topi.nn.pool2d(x, (3, 3), (1, 1), (1, 1), (padding,) * 4, "avg", count_include_pad=False)
    return te.create_prim_func([x, made])


def wide(columns: int) -> Any:
    x = te.placeholder((1, 4, 4, columns))
    return te.create_prim_func([x, topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max")])


def padded(shown: bool) -> Any:
    """A pooling of a padded image, which may be a result, too."""
    x = te.placeholder((1, 4, 6, 6))
    padding = topi.nn.pad(x, (0, 0, 1, 1))
    made = topi.nn.pool2d(padding, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max")
    return te.create_prim_func([x, *([padding] if shown else []), made])


@pytest.mark.parametrize(
    ("func", "twin", "why"),
    [
        (with_filters(2), with_filters(1), "its windows do not belong to the channel"),
        (average(1), average(0), "what follows its windows depends on a result's place"),
        (wide(20000), wide(2000), "a row of its images takes more than 64 KiB"),
        (padded(True), padded(False), "it has several results"),
    ],
    ids=["filters", "average", "wide", "two results"],
)
def test_refused(func: Any, twin: Any, why: str) -> None:
    assert why in Windows2d().choose(func, "trn2").why
    assert Windows2d().choose(twin, "trn2").schedule is not None


def test_sums_that_are_rounded_are_refused() -> None:
    func = pool((1, 4, 6, 6), "avg", (3, 3), (1, 1), (0, 0, 0, 0), "float16")
    assert "summed in float32" in Windows2d().choose(func, "trn2").why
