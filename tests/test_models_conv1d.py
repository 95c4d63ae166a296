"""Convolutions along one axis in whole models: which kernel they get; whole numbers, so exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

import fuse_epilogue
from fuse_epilogue.schedules import host
from test_models_compile import relax_model


def whole(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(-3, 4, shape).astype("float32")


def windows(x: np.ndarray, taps: int, stride: int = 1, padding: int = 0) -> np.ndarray:
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding)))
    return np.lib.stride_tricks.sliding_window_view(x, taps, 2)[:, :, ::stride]


@pytest.mark.parametrize(
    ("channels", "taps", "stride", "kind"),
    [(32, 80, 16, "contraction"), (64, 10, 5, "contraction"), (1, 5, 1, "conv")],
)
def test_windows_of_many_channels_are_loaded_once(
    channels: int, taps: int, stride: int, kind: str
) -> None:
    """One channel of an image and many of a result: not depthwise, although no channel is added."""
    weight, x = whole(channels, 1, taps), whole(1, 1, 800)

    def build(_: Any, x: Any) -> Any:
        return relax.op.nn.conv1d(x, relax.const(weight), strides=stride)

    made = fuse_epilogue.compile(relax_model(x.shape, build=build), host(1))
    assert [each.kind for each in made.report.functions] == [kind]
    right = np.einsum("niwk,oik->now", windows(x, taps, stride), weight)
    assert np.array_equal(made(x), right)


@pytest.mark.parametrize("end", [48, 40])
def test_results_that_a_slice_leaves_out_are_not_computed(end: int) -> None:
    """An even filter with padding on both sides makes one result too many, which models cut off."""
    weight, x = whole(8, 4, 16), whole(2, 8, 48)

    def build(_: Any, x: Any) -> Any:
        y = relax.op.nn.conv1d(x, relax.const(weight), padding=8, groups=2)
        return relax.op.nn.relu(relax.op.strided_slice(y, [2], [0], [end]))

    made = fuse_epilogue.compile(relax_model(x.shape, build=build), host(1))
    assert [each.kind for each in made.report.functions] == ["contraction"]
    halves = windows(x, 16, padding=8).reshape(2, 2, 4, 49, 16)
    right = np.einsum("ngiwk,goik->ngow", halves, weight.reshape(2, 4, 4, 16)).reshape(2, 8, 49)
    assert np.array_equal(made(x), np.maximum(right[:, :, :end], 0))
