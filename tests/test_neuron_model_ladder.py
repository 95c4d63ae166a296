"""The study's seven kernels and our own: checked, equal to numpy, predicted beside published."""

from __future__ import annotations

import functools
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from fuse_epilogue import workloads
from fuse_epilogue.kernels.trainium import ladder
from fuse_epilogue.neuron import Kernel, emit, load
from fuse_epilogue.schedules.neuron import DepthwiseConv1d

BY_HAND = Path(__file__).resolve().parent / "neuron_by_hand.py"
DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16}

full = pytest.mark.full
STEPS = [pytest.param(step, marks=() if step == 6 else full) for step in range(7)]


# A trace of a step takes more than 100 MB: only the last one stays.
@functools.lru_cache(maxsize=1)
def rung(step: int, merged: int | None = None) -> Kernel:
    return emit(ladder.schedule(step, merged))


def assert_computes(kernel: Kernel, dtype: str = "float32") -> None:
    """Compare with numpy on small integers, where every order of sums gives the same."""
    rng = np.random.default_rng(0)
    shapes = [shape for shape, _ in kernel.inputs.values()]
    arrays = [rng.integers(-4, 5, shape).astype(DTYPES[dtype]) for shape in shapes]
    x, weight = (array.astype(np.float32) for array in arrays[:2])
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1)))
    expected = sum(padded[:, :, f : f + 2048] * weight[:, f : f + 1] for f in range(3))
    if len(arrays) == 3:
        expected = expected + arrays[2].astype(np.float32)[:, None]
    np.testing.assert_array_equal(kernel(*arrays), expected.astype(DTYPES[dtype]))


@pytest.mark.parametrize("step", STEPS)
def test_step(step: int) -> None:
    kernel, published = rung(step), ladder.PUBLISHED[step]
    resources = kernel.check("trn1")
    assert_computes(kernel)
    predicted = kernel.predict("trn1")
    assert (predicted.sbuf_peak, predicted.psum_peak) == (
        resources.sbuf_bytes,
        resources.psum_bytes,
    )
    assert predicted.counts["tensor_tensor"] == published.multiplies
    assert predicted.counts["tensor_reduce"] == published.sums
    if step in ladder.UNEXPLAINED:
        # The compiler must have merged instructions, and which is not known.
        assert predicted.latency_ms > 1.3 * published.latency_ms
    else:
        assert predicted.latency_ms == pytest.approx(published.latency_ms, rel=0.1)
    if published.multiplies_ms:
        assert predicted.op_ms["tensor_tensor"] == pytest.approx(published.multiplies_ms, rel=0.05)
        assert predicted.op_ms["tensor_reduce"] == pytest.approx(published.sums_ms, rel=0.05)


@full
def test_step_4_with_the_merges_of_step_5() -> None:
    """Four sums in one instruction explain most of the difference, and then it is too fast."""
    published = ladder.PUBLISHED[4].latency_ms
    assert 0.85 * published < rung(4, merged=4).predict("trn1").latency_ms < published


def test_no_such_step() -> None:
    with pytest.raises(ValueError, match="step must be from 0 to 6, not 7"):
        ladder.schedule(7)


#: The least of max(engines, DMA) over ways to divide each tile's work, at documented costs, in ms.
FLOORS = {
    ("trn1", "float32"): 0.247,
    ("trn1", "bfloat16"): 0.123,
    ("trn2", "float32"): 0.205,
    ("trn2", "bfloat16"): 0.091,
}


@pytest.mark.full
@pytest.mark.parametrize(("machine", "dtype"), FLOORS)
def test_near_the_floor(machine: str, dtype: str) -> None:
    """Our own schedules, bias included; no faster than what the bytes take at the full rate."""
    func = workloads.depthwise_conv1d(8, 512, 2048, 3, dtype=dtype)
    sch = DepthwiseConv1d(finite=True).apply(func, machine)
    assert sch is not None
    kernel = emit(sch)
    kernel.check(machine)
    assert_computes(kernel, dtype)
    moved = 2 * 8 * 512 * 2048 * np.dtype(DTYPES[dtype]).itemsize
    rate = {"trn1": 272e9, "trn2": 368e9}[machine]
    assert moved / rate * 1e3 < kernel.predict(machine).latency_ms <= 1.15 * FLOORS[machine, dtype]


def test_any_data_in_float32_on_trn1() -> None:
    """The default, which is right for infinities too."""
    sch = DepthwiseConv1d().apply(workloads.depthwise_conv1d(8, 512, 2048, 3), "trn1")
    assert sch is not None
    assert emit(sch).predict("trn1").latency_ms <= 0.285


@pytest.mark.parametrize("dtype", DTYPES)
def test_by_hand(dtype: str) -> None:
    """A text that nobody emitted: one tile of four is computed in another way than the others."""
    inputs = {"x": ((8, 512, 2048), dtype), "weight": ((512, 3), dtype), "bias": ((512,), dtype)}
    kernel = load(BY_HAND.read_text(encoding="utf-8"), inputs=inputs)
    for machine in ("trn1", "trn2"):
        resources = kernel.check(machine)
        predicted = kernel.predict(machine)
        assert (predicted.sbuf_peak, predicted.psum_peak) == (
            resources.sbuf_bytes,
            resources.psum_bytes,
        )
    assert_computes(kernel, dtype)
