"""The latency model on kernels of other structures than those with published latencies.

Nothing was measured of them. So no number is expected, but what holds of any machine: no prediction
is below what the bytes and the busiest engine take, its range encloses it, and more work of the
same kind takes longer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fuse_epilogue import neuron
from fuse_epilogue.neuron.machine import MACHINES, Machine
from neuron_kernels import kernel

#: A decaying sum along each row, in pieces that pass their last column on.
SCAN = kernel(
    """\
    y = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)
    for rows in range(x.shape[0] // 128):
        last = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
        nisa.memset(last, 0.0)
        for piece in range(x.shape[1] // 256):
            t = nl.ndarray((128, 256), nl.float32, buffer=nl.sbuf)
            decay = nl.ndarray((128, 256), nl.float32, buffer=nl.sbuf)
            r = nl.ndarray((128, 256), nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(t, x[nl.ds(rows * 128, 128), nl.ds(piece * 256, 256)])
            nisa.activation(decay, nl.sigmoid, t)
            nisa.tensor_tensor_scan(r, decay, t, last, nl.multiply, nl.add)
            nisa.tensor_copy(last, r[:, 255:256])
            nisa.dma_copy(y[nl.ds(rows * 128, 128), nl.ds(piece * 256, 256)], r)
    return y
    """,
    "x",
)

#: Scores of queries against blocks of keys, with the maximum and the sum corrected for each block.
ONLINE = kernel(
    """\
    y = nl.ndarray((128, 1), nl.float32, buffer=nl.shared_hbm)
    q = nl.ndarray((128, 128), nl.bfloat16, buffer=nl.sbuf)
    nisa.dma_copy(q, x[:, 0:128])
    top = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
    nisa.memset(top, -1e30)
    nisa.memset(total, 0.0)
    for block in range((x.shape[1] - 128) // 512):
        k = nl.ndarray((128, 512), nl.bfloat16, buffer=nl.sbuf)
        nisa.dma_copy(k, x[:, nl.ds(128 + block * 512, 512)])
        s = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(s, q, k)
        high = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
        low = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
        factor = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
        part = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
        e = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(high, nl.maximum, s, axis=1)
        nisa.tensor_tensor(high, high, top, nl.maximum)
        nisa.tensor_scalar(low, high, nl.multiply, -1.0)
        nisa.activation(factor, nl.exp, top, bias=low)
        nisa.activation_reduce(e, nl.exp, s, bias=low, reduce_op=nl.add, reduce_res=part)
        nisa.scalar_tensor_tensor(total, total, nl.multiply, factor, nl.add, part)
        nisa.tensor_copy(top, high)
    nisa.dma_copy(y, total)
    return y
    """,
    "x",
)

#: Rows by their places, each halved by GpSimd and added to the row beside it.
GATHERED = kernel(
    """\
    y = nl.ndarray((at.shape[0], table.shape[1]), nl.float32, buffer=nl.shared_hbm)
    for tile in range(at.shape[0] // 128):
        i = nl.ndarray((128, 1), nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(i, at[nl.ds(tile * 128, 128), 0:1])
        t = nl.ndarray((128, table.shape[1]), nl.float32, buffer=nl.sbuf)
        width = table.shape[1]
        rows = table.ap([[width, 128], [1, width]], offset=0, vector_offset=i, indirect_dim=0)
        nisa.dma_copy(t, rows)
        r = nl.ndarray((128, table.shape[1]), nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(r, t, nl.multiply, 0.5, engine=nisa.gpsimd_engine)
        nisa.tensor_tensor(r, r, t, nl.add)
        nisa.dma_copy(y[nl.ds(tile * 128, 128), :], r)
    return y
    """,
    "table, at",
)

Spec = tuple[tuple[int, ...], str]
Cycles = dict[str, float]


@dataclass(frozen=True)
class Structure:
    """A kernel.

    - `sizes` (tuple[Any, ...]): from the smallest.
    - `spec` (Callable): shapes and types of its inputs, of one size.
    - `moved` (Callable): bytes that it moves at least.
    - `cycles` (Callable): cycles of each engine, without reaching the memories.
    """

    text: str
    sizes: tuple[Any, ...]
    spec: Callable[[Any], list[Spec]]
    moved: Callable[[Any], int]
    cycles: Callable[[Any], Cycles]


def scanned(size: tuple[int, int]) -> Cycles:
    elements = size[0] // 128 * size[1]
    return {"vector": 2 * elements, "scalar": elements}


def scored(keys: int) -> Cycles:
    return {"tensor": keys, "vector": keys, "scalar": keys}


def halved(size: tuple[int, int]) -> Cycles:
    elements = size[0] // 128 * size[1]
    return {"vector": 2 * elements, "gpsimd": elements}


STRUCTURES = {
    "scan": Structure(
        SCAN,
        ((128, 256), (128, 1024), (256, 1024), (512, 2048)),
        lambda size: [(size, "float32")],
        lambda size: 8 * size[0] * size[1],
        scanned,
    ),
    "online softmax": Structure(
        ONLINE,
        (512, 1024, 2048, 8192),
        lambda keys: [((128, 128 + keys), "bfloat16")],
        lambda keys: 2 * 128 * (128 + keys),
        scored,
    ),
    "gathered rows": Structure(
        GATHERED,
        ((128, 64), (256, 64), (256, 512), (1024, 2048)),
        lambda size: [((500, size[1]), "float32"), ((size[0], 1), "int32")],
        lambda size: 8 * size[0] * size[1],
        halved,
    ),
}


def floor_ms(structure: Structure, size: Any, core: Machine) -> float:
    """What no kernel with this work is faster than, by the machine's data sheet alone."""
    rate = min(core.dma_peak_gb_per_s, core.hbm_gb_per_s) * 1e9
    busy = [
        cycles / (core.clock_ghz[name] * 1e9) for name, cycles in structure.cycles(size).items()
    ]
    return max(structure.moved(size) / rate, *busy) * 1e3


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", STRUCTURES)
def test_no_prediction_is_below_its_floor_and_more_work_takes_longer(
    name: str, machine: str
) -> None:
    structure, core = STRUCTURES[name], MACHINES[machine]
    read = neuron.load(structure.text)
    before = (0.0, 0.0, 0.0)
    for size in structure.sizes:
        spec = structure.spec(size)
        read.check(machine, *spec)
        predicted = read.predict(machine, *spec)
        low, high = predicted.range_ms
        assert floor_ms(structure, size, core) <= low <= predicted.latency_ms <= high, size
        assert high <= 4 * low, size
        now = (low, predicted.latency_ms, high)
        assert all(a < b for a, b in zip(before, now, strict=True)), size
        before = now


@pytest.mark.parametrize("name", STRUCTURES)
def test_they_compute_what_they_are_about(name: str) -> None:
    """A structure that computes nonsense would say little about kernels."""
    rng = np.random.default_rng(4)
    read = neuron.load(STRUCTURES[name].text)
    if name == "scan":
        x = rng.normal(size=(128, 512)).astype("float32")
        last, expected = np.zeros(128), np.empty((128, 512))
        for at in range(512):
            last = last / (1 + np.exp(-x[:, at].astype("float64"))) + x[:, at]
            expected[:, at] = last
        np.testing.assert_allclose(read(x), expected, rtol=1e-4, atol=1e-5)
    elif name == "online softmax":
        import ml_dtypes

        x = (rng.normal(size=(128, 128 + 1024)) / 8).astype(ml_dtypes.bfloat16)
        scores = x[:, :128].astype("float64").T @ x[:, 128:].astype("float64")
        expected = np.exp(scores - scores.max(1, keepdims=True)).sum(1, keepdims=True)
        np.testing.assert_allclose(read(x), expected, rtol=1e-4)
    else:
        table = rng.normal(size=(50, 64)).astype("float32")
        places = rng.integers(0, 50, (256, 1)).astype("int32")
        np.testing.assert_array_equal(read(table, places), table[places[:, 0]] * np.float32(1.5))
