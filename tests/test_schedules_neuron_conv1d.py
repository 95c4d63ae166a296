"""The rule for depthwise convolutions on Trainium: right for any shape, kept by both machines."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm_ffi
from tvm import tirx

import fuse_epilogue
from fuse_epilogue import neuron, schedules, workloads
from fuse_epilogue.kernels.trainium.depthwise import channels_of_a_tile
from fuse_epilogue.kernels.trainium.depthwise_blocks import find_channel_conv, rewritten
from fuse_epilogue.kernels.trainium.depthwise_tiles import Tiling, scheduled
from fuse_epilogue.neuron.machine import MACHINES
from fuse_epilogue.schedules.neuron import DepthwiseConv1d
from kernel_runs import run
from tiers import crossed

# With sanitizers this would take long, and hardly any of it is the library's own code.
pytestmark = pytest.mark.slow

DTYPES: dict[str, Any] = {
    "float32": np.float32,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
}

#: N, C, W, F.
SHAPES = [
    (1, 1, 1, 1),
    (5, 3, 2, 7),
    (1, 64, 130, 3),
    (2, 200, 33, 3),
    (3, 131, 70, 4),
    (4, 256, 24, 16),
    (1, 96, 4200, 2),
]
PADDINGS = ("same", "causal", "valid", (3, 0), (0, 2))


def integers(*shape: int, dtype: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng((seed, *shape))
    return rng.integers(-4, 5, shape).astype(DTYPES[dtype])


def arguments(func: tirx.PrimFunc) -> list[np.ndarray]:
    """Return small integers for all parameters but the last."""
    return [
        integers(*map(int, param.ty.shape), dtype=str(param.dtype), seed=at)
        for at, param in enumerate(func.params[:-1])
    ]


def unscheduled(func: tirx.PrimFunc, arrays: list[np.ndarray]) -> np.ndarray:
    """Run a function as TVM compiles it for the processor."""
    out = func.params[-1]
    shape = tuple(map(int, out.ty.shape))
    return run(func, arrays, shape, str(out.dtype), "llvm").astype(np.float32)


def assert_same(func: tirx.PrimFunc, kernel: neuron.Kernel) -> None:
    for machine in ("trn1", "trn2"):
        kernel.check(machine)
    arrays = arguments(func)
    computed = kernel(*arrays).astype(np.float32)
    np.testing.assert_array_equal(computed, unscheduled(func, arrays))


@crossed(shape=SHAPES, dtype=["float32", "bfloat16"], finite=[False, True])
def test_shapes(shape: tuple[int, ...], dtype: str, finite: bool) -> None:
    n, c, w, f = shape
    for (padding, activation), bias in zip(
        itertools.product(PADDINGS, (None, "relu")), itertools.cycle([True, False, True])
    ):
        zeros = padding if isinstance(padding, tuple) else (0, 0 if padding == "valid" else f)
        if w + sum(zeros) < f:
            continue
        func = workloads.depthwise_conv1d(
            n, c, w, f, dtype=dtype, padding=padding, activation=activation, bias=bias
        )
        sch = DepthwiseConv1d(finite).apply(func, "trn1")
        assert sch is not None
        assert_same(func, neuron.emit(sch))


@pytest.mark.parametrize(
    "options",
    [
        {"stride": 2},
        {"dilation": 3},
        {"stride": 3, "dilation": 2, "padding": (2, 5)},
        {"layout": "NWC"},
        {"dtype": "float16"},
    ],
    ids=str,
)
def test_options(options: dict[str, Any]) -> None:
    func = workloads.depthwise_conv1d(2, 40, 31, 4, **options)
    sch = DepthwiseConv1d().apply(func, "trn2")
    assert sch is not None
    assert_same(func, neuron.emit(sch))


def test_silu() -> None:
    func = workloads.depthwise_conv1d(2, 160, 33, 4, padding="causal", activation="silu")
    kernel = neuron.emit(schedules.apply(func, "trn1"))
    arrays = arguments(func)
    np.testing.assert_allclose(kernel(*arrays), unscheduled(func, arrays), rtol=1e-5, atol=1e-6)
    assert "nl.silu" in kernel.source


@pytest.mark.parametrize("on_tensor", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_taps_on_the_tensor_engine(on_tensor: int, dtype: str) -> None:
    """Any number of them; in TIR, and in the kernel."""
    func = workloads.depthwise_conv1d(2, 12, 1030, 3, dtype=dtype)
    conv = find_channel_conv(func)
    assert conv is not None
    arrays = arguments(func)
    expected = unscheduled(func, arrays)
    anew = rewritten(conv, 6, on_tensor)
    np.testing.assert_array_equal(unscheduled(anew, arrays), expected)
    kernel = neuron.emit(scheduled(conv, Tiling(6, 1, 1030, 600, on_tensor, True)))
    kernel.check("trn1")
    assert "nc_matmul" in kernel.source
    np.testing.assert_array_equal(kernel(*arrays).astype(np.float32), expected)


@pytest.mark.full
@pytest.mark.parametrize(("on_tensor", "on_scalar"), [(0, 1), (0, 2), (1, 1)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("activation", [None, "silu"])
def test_taps_on_the_scalar_engine(
    on_tensor: int, on_scalar: int, dtype: str, activation: str | None
) -> None:
    """In TIR, and in the kernel: the sum in the order of the taps, the same to the last bit."""
    options: dict[str, Any] = {"dtype": dtype, "activation": activation}
    func = workloads.depthwise_conv1d(2, 12, 1030, 3, **options)
    conv = find_channel_conv(func)
    assert conv is not None
    arrays = arguments(func)
    expected = unscheduled(rewritten(conv, 6), arrays)
    anew = rewritten(conv, 6, on_tensor, on_scalar)
    np.testing.assert_array_equal(unscheduled(anew, arrays), expected)
    tiling = Tiling(6, 1, 1030, 600, on_tensor, on_scalar=on_scalar)
    kernel = neuron.emit(scheduled(conv, tiling))
    for machine in ("trn1", "trn2"):
        kernel.check(machine)
    assert f"{on_scalar} tap" in tiling.said()
    plain = neuron.emit(scheduled(conv, Tiling(6, 1, 1030, 600, on_tensor)))
    assert kernel(*arrays).tobytes() == plain(*arrays).tobytes()
    if on_tensor == 0:
        # The data may be anything.
        arrays[0][1, 3, 500], arrays[0][0, 0, 0] = np.inf, np.nan
        assert kernel(*arrays).tobytes() == plain(*arrays).tobytes()


def test_no_more_taps_than_there_are_on_the_scalar_engine() -> None:
    conv = find_channel_conv(workloads.depthwise_conv1d(2, 12, 40, 3))
    assert conv is not None
    for on_tensor, on_scalar in ((0, 3), (2, 1), (0, -1)):
        with pytest.raises(ValueError, match="on_scalar must be from 0 to"):
            rewritten(conv, 6, on_tensor, on_scalar)


@pytest.mark.full
@pytest.mark.parametrize(
    ("machine", "dtype", "finite", "most"),
    [
        ("trn1", "float32", False, 0.255),
        ("trn2", "float32", False, 0.2),
        ("trn2", "bfloat16", False, 0.19),
        ("trn1", "bfloat16", True, 0.13),
        ("trn2", "bfloat16", True, 0.105),
    ],
)
def test_the_layer_of_the_study(machine: str, dtype: str, finite: bool, most: float) -> None:
    """Predicted milliseconds; the bytes alone take 0.25 on trn1 and 0.18 on trn2 in float32."""
    func = workloads.depthwise_conv1d(8, 512, 2048, 3, dtype=dtype)
    kernel = neuron.emit(fuse_epilogue.plan(func, machine, finite=finite).apply(func))
    kernel.check(machine)
    assert kernel.predict(machine).latency_ms < most


def test_infinity_stays_in_its_channel() -> None:
    """The default keeps apart what the tensor engine would mix."""
    func = workloads.depthwise_conv1d(2, 12, 1030, 3)
    arrays = arguments(func)
    arrays[0][1, 3, 500] = np.inf
    expected = unscheduled(func, arrays)
    assert np.isfinite(expected[1, 4]).all()
    plain = neuron.emit(schedules.apply(func, "trn1"))
    np.testing.assert_array_equal(plain(*arrays), expected)
    conv = find_channel_conv(func)
    assert conv is not None
    mixing = neuron.emit(scheduled(conv, Tiling(12, 1, 1030, 1030, 2)))
    assert np.isnan(mixing(*arrays)[1, 4]).any()


def test_special_values() -> None:
    """Infinities, NaN and zeros of both signs, next to the padding too.

    Without large numbers: the bias is added first here, and sums round in another order.
    """
    plain = workloads.depthwise_conv1d(3, 40, 50, 3)
    rng = np.random.default_rng(0)
    arrays = arguments(plain)
    for array in arrays:
        flat = array.reshape(-1)
        where = rng.integers(0, flat.size, max(1, flat.size // 20))
        flat[where] = rng.choice([np.inf, -np.inf, np.nan, -0.0], where.size)
    kernel = neuron.emit(schedules.apply(plain, "trn1"))
    np.testing.assert_array_equal(kernel(*arrays), unscheduled(plain, arrays))


def test_left_alone() -> None:
    """Other functions, sizes that are not known, and sums in other types."""
    rule = DepthwiseConv1d()
    for func in (
        workloads.matmul(8, 8, 8),
        workloads.depthwise_conv1d("n", 8, 16, 3),
        workloads.depthwise_conv1d(1, 8, 16, 3, dtype="int8"),
    ):
        assert rule.apply(func, "trn1") is None
    assert rule.apply(workloads.depthwise_conv1d(1, 8, 16, 3), "trn1") is not None


def test_apply_and_explain() -> None:
    func = workloads.depthwise_conv1d(2, 8, 16, 3)
    assert "8 channels" in str(DepthwiseConv1d().choose(func, MACHINES["trn2"]))
    assert schedules.explain(func, "trn2").startswith("plan: conv: ")
    assert_same(func, neuron.emit(schedules.apply(func, "trn2")))
    with pytest.raises(ValueError, match="'x' has a size of n: for Trainium sizes are numbers"):
        schedules.apply(workloads.depthwise_conv1d("n", 8, 16, 3), "trn1")
    with pytest.raises(ValueError, match=r"'trn1' knows this function"):
        schedules.apply(workloads.depthwise_conv1d(1, 8, 16, 3, dtype="int8", shift=16), "trn1")
    with pytest.raises(ValueError, match="partitions do not divide"):
        conv = find_channel_conv(func)
        assert conv is not None
        rewritten(conv, 3, on_tensor=1)


@pytest.mark.parametrize(
    ("channels", "tile"), [(1, 1), (96, 96), (128, 128), (129, 65), (200, 100), (5120, 128)]
)
def test_channels_of_a_tile(channels: int, tile: int) -> None:
    assert channels_of_a_tile(channels, 128) == tile


def test_a_result_that_is_read() -> None:
    """What follows adds to what y holds already: no rule takes that for an output."""
    func = workloads.depthwise_conv1d(1, 8, 16, 3, activation="relu")
    out, old = func.params[-1], func.body.block.body.seq[-1]
    [store] = [node for node in _nodes(old, tirx.BufferStore) if node.buffer.same_as(out)]
    again = tirx.BufferStore(
        store.buffer, store.value + store.buffer[tuple(store.indices)], store.indices
    )
    changed = tvm_ffi.structural_map(
        func.body, (tirx.BufferStore, lambda node: again if node.same_as(store) else node)
    )
    assert DepthwiseConv1d().apply(func, "trn1") is not None
    assert DepthwiseConv1d().apply(func.with_body(changed), "trn1") is None


def _nodes(root: Any, kind: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(root, (kind, found.append))
    return found
