"""Kernels of the tests' own, as people write them: they load, check, compute and are predicted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuse_epilogue import neuron
from fuse_epilogue.neuron.machine import MACHINES
from neuron_written import (
    GATED_MLP,
    PAGED_DECODE,
    ROTARY,
    SEGMENT_SUM,
    SELECTIVE_SCAN,
    TOP_K,
    TRANSPOSED_CONV,
)

Arrays = tuple[np.ndarray, ...]


def drawn(*shapes: tuple[int, ...], dtype: Any = "float32", scale: float = 1.0) -> Arrays:
    rng = np.random.default_rng(11)
    return tuple((rng.normal(size=shape) * scale).astype(dtype) for shape in shapes)


def mlp_of(tokens: int, model: int, hidden: int) -> Arrays:
    shapes = (tokens, model), (model, hidden), (model, hidden), (hidden, model)
    return drawn(*shapes, scale=0.1)


def mlp(x: Any, gate: Any, up: Any, down: Any) -> np.ndarray:
    x, gate, up, down = (each.astype("float64") for each in (x, gate, up, down))
    wide = x @ gate
    result: np.ndarray = (wide / (1 + np.exp(-wide)) * (x @ up)) @ down
    return result


def heads_of(length: int, width: int) -> Arrays:
    angles = np.arange(length)[:, None] / 100.0 ** (np.arange(width // 2) / width)
    tables = (np.cos(angles).astype("float32"), np.sin(angles).astype("float32"))
    return drawn((length, width), (length, width)) + tables


def rotary(q: Any, k: Any, cos: Any, sin: Any) -> np.ndarray:
    def rotated(x: Any) -> Any:
        a, b = np.split(x.astype("float64"), 2, axis=1)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=1)

    scores = rotated(q) @ rotated(k).T * 0.125
    scores[np.triu_indices(len(q), 1)] = -30000.0
    e = np.exp(scores - scores.max(1, keepdims=True))
    result: np.ndarray = e / e.sum(1, keepdims=True)
    return result


def top_k(x: Any) -> Arrays:
    order = np.argsort(-x, axis=1, kind="stable")[:, :16]
    return np.take_along_axis(x, order, 1), order


def transposed_conv(x: Any, weight: Any) -> np.ndarray:
    (channels, width), (_, taps, outputs) = x.shape, weight.shape
    y = np.zeros((outputs, (width - 1) * 2 + taps))
    for tap in range(taps):
        y[:, tap : tap + 2 * width - 1 : 2] += weight[:, tap].astype("float64").T @ x
    return y


def rows_of(rows: int, width: int) -> Arrays:
    rng = np.random.default_rng(2)
    segments = rng.integers(0, 8, (rows, 1)).astype("int32")
    return (*drawn((rows, width), dtype=ml_dtypes.bfloat16), segments)


def segment_sum(x: Any, segment: Any) -> np.ndarray:
    y = np.zeros((8, x.shape[1]))
    np.add.at(y, segment[:, 0], x.astype("float64"))
    return y


def steps_of(channels: int, length: int, states: int) -> Arrays:
    delta, u, a, b, c = drawn(
        *[(channels, length)] * 2, (channels, states), *[(states, length)] * 2
    )
    return 0.1 * abs(delta), u, -abs(a), b, c


def selective_scan(delta: Any, u: Any, a: Any, b: Any, c: Any) -> np.ndarray:
    h, y = np.zeros(a.shape), np.empty(delta.shape)
    for t in range(delta.shape[1]):
        h = np.exp(delta[:, t, None] * a) * h + (delta * u)[:, t, None] * b[:, t]
        y[:, t] = (h * c[:, t]).sum(axis=1)
    return y


def caches_of(width: int, heads: int, pages: int) -> Arrays:
    rows = 128 * (pages + 3)
    places = np.random.default_rng(4).permutation(rows)[: 128 * pages]
    caches = drawn((width, heads), (rows, width), (rows, width))
    return (*caches, places.reshape(pages, 128).astype("int32"))


def paged_decode(q: Any, keys: Any, values: Any, pages: Any) -> np.ndarray:
    scores = q.T.astype("float64") @ keys[pages.ravel()].T / np.sqrt(len(q))
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    result: np.ndarray = e / e.sum(axis=1, keepdims=True) @ values[pages.ravel()]
    return result


@dataclass(frozen=True)
class Written:
    """A kernel, arguments from the fewest work, what it computes, and cycles of its engines."""

    text: str
    arguments: tuple[Arrays, ...]
    computes: Callable[..., Any]
    cycles: Callable[[Arrays], dict[str, float]]


WRITTEN = {
    "gated MLP": Written(
        GATED_MLP,
        (mlp_of(100, 128, 256), mlp_of(300, 256, 256), mlp_of(512, 256, 1024)),
        mlp,
        # In four passes; a tile of few tokens streams few columns.
        lambda a: {"tensor": 8 * a[0].shape[0] * a[1].size / 128**2},
    ),
    "rotary scores": Written(
        ROTARY,
        (heads_of(128, 64), heads_of(256, 64), heads_of(512, 64)),
        rotary,
        lambda a: {"vector": 3 * a[0].shape[0] ** 2 / 128},
    ),
    "top k": Written(
        TOP_K,
        (drawn((100, 64)), drawn((300, 64)), drawn((300, 500))),
        top_k,
        lambda a: {"vector": 5 * -(-a[0].shape[0] // 128) * a[0].shape[1]},
    ),
    "transposed convolution": Written(
        TRANSPOSED_CONV,
        (
            drawn((16, 40), (16, 3, 24)),
            drawn((64, 700), (64, 3, 128)),
            drawn((64, 900), (64, 5, 128)),
        ),
        transposed_conv,
        lambda a: {"vector": a[1].shape[1] * a[0].shape[1]},
    ),
    "segment sum": Written(
        SEGMENT_SUM,
        (rows_of(128, 64), rows_of(512, 64), rows_of(512, 512)),
        segment_sum,
        lambda a: {"tensor": a[0].size / 128},
    ),
    "selective scan": Written(
        SELECTIVE_SCAN,
        (steps_of(128, 100, 3), steps_of(256, 300, 4), steps_of(256, 700, 8)),
        selective_scan,
        lambda a: {"vector": 6 * a[0].size / 128 * a[2].shape[1]},
    ),
    "paged decode": Written(
        PAGED_DECODE,
        (caches_of(64, 8, 1), caches_of(64, 32, 3), caches_of(128, 32, 6)),
        paged_decode,
        lambda a: {"tensor": 4 * 128 * 2 * a[3].shape[0]},
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_they_compute_what_they_are_about(name: str) -> None:
    written = WRITTEN[name]
    arguments = written.arguments[1]
    results, expected = neuron.load(written.text)(*arguments), written.computes(*arguments)
    if not isinstance(results, tuple):
        results, expected = (results,), (expected,)
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("name", WRITTEN)
def test_they_check_and_predictions_grow_from_their_floors(name: str) -> None:
    written = WRITTEN[name]
    read = neuron.load(written.text)
    for machine, core in MACHINES.items():
        if machine == "trn1" and "engine=nisa.scalar_engine" in written.text:
            continue  # It has no tensor_copy there.
        before = 0.0
        for arguments in written.arguments:
            specs = [(each.shape, str(each.dtype)) for each in arguments]
            read.check(machine, *specs)
            predicted = read.predict(machine, *specs)
            low, high = predicted.range_ms
            rate = min(core.dma_peak_gb_per_s, core.hbm_gb_per_s) * 1e9
            busy = [n / core.clock_ghz[e] / 1e9 for e, n in written.cycles(arguments).items()]
            floor = max(sum(each.nbytes for each in arguments) / rate, *busy) * 1e3
            assert floor <= low <= predicted.latency_ms <= high <= 4 * low, (machine, specs)
            assert before < predicted.latency_ms
            before = predicted.latency_ms


REFUSED = {
    "gated MLP": (mlp_of(8, 128, 200), "hidden is 200, not a multiple of 128"),
    "rotary scores": (heads_of(130, 64), "130 positions of 64 features"),
    "top k": (drawn((8, 12)), "12 columns have no 16 largest"),
    "transposed convolution": (drawn((8, 9), (8, 3, 200)), "8 to 200 channels: at most 128"),
    "segment sum": (rows_of(100, 8), "100 rows of 8"),
    "selective scan": (steps_of(100, 8, 2), "100 channels"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_their_own_assertions_are_reported(name: str) -> None:
    arguments, reason = REFUSED[name]
    with pytest.raises(neuron.KernelError, match=reason):
        neuron.load(WRITTEN[name].text)(*arguments)
