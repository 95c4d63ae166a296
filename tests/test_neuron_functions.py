"""Functions of ``nl`` that are several instructions, registers and loops of the machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuse_epilogue import neuron
from neuron_kernels import kernel

RNG = np.random.default_rng(5)
X = RNG.normal(size=(128, 4, 16)).astype("float32")
FLAT = X.reshape(128, 64)
V = RNG.normal(size=(128, 1)).astype("float32")
ROW = RNG.normal(size=(1, 64)).astype("float32")
E = np.exp(FLAT - FLAT.max(axis=1, keepdims=True))


def computed(expression: str, machine: str = "trn2") -> np.ndarray:
    """The tile of an expression of t and f, the same as (128, 64), of a column and a row."""
    text = kernel(
        "t, v, w = nl.load(x), nl.load(column), nl.load(row)\n"
        f"f = t.reshape((128, 64))\nr = {expression}\n"
        "y = nl.ndarray(r.shape, r.dtype, buffer=nl.shared_hbm)\n"
        "nl.store(y, r if r.buffer == nl.sbuf else nl.copy(r))\nreturn y\n",
        "x, column, row",
    )
    read = neuron.load(text)
    read.check(machine, X, V, ROW)
    assert read.predict(machine, X, V, ROW).latency_ms > 0
    return np.asarray(read(X, V, ROW))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("nl.sum(t, axis=2)", X.sum(2)),
        ("nl.sum(t, [1, 2], keepdims=True)", X.sum((1, 2), keepdims=True)),
        ("nl.max(t, axis=-1, keepdims=True)", X.max(2, keepdims=True)),
        ("nl.min(f, axis=1)", FLAT.min(1, keepdims=True)),
        ("nl.prod(t, axis=2)", X.prod(2)),
        ("nl.mean(f, axis=1, dtype=nl.float32)", FLAT.mean(1, keepdims=True)),
        ("nl.var(t, axis=2)", X.var(2, keepdims=True)),
        ("nl.all(nl.greater(f, -9.0), axis=1)", np.ones((128, 1))),
        ("nl.softmax(f)", E / E.sum(1, keepdims=True)),
        (
            "nl.rms_norm(f, nl.broadcast_to(w, f.shape), axis=1, n=64)",
            FLAT / np.sqrt((FLAT**2).mean(1, keepdims=True) + 1e-6) * ROW,
        ),
        ("nl.where(nl.greater(f, 0.0), v, 2.0)", np.where(FLAT > 0, V, 2)),
        ("nl.where(nl.greater(f, 0.0), 3.0, f)", np.where(FLAT > 0, 3, FLAT)),
        ("nl.expand_dims(f, -1)", FLAT[..., None]),
        ("nl.broadcast_to(w, (70, 64))", np.repeat(ROW, 70, axis=0)),
        ("nl.broadcast_to(nl.sum(t, axis=2, keepdims=True), t.shape)", X.sum(2)[..., None] + 0 * X),
        ("nl.transpose(f)", FLAT.T),
        ("nl.matmul(f, nl.copy(nl.transpose(f)))", FLAT @ FLAT.T),
        ("nl.matmul(f, f, transpose_x=True)", FLAT.T @ FLAT),
        ("nl.load_transpose2d(x.reshape((512, 16)))", X.reshape(512, 16).T),
        ("nl.logical_not(nl.greater(f, 0.0))", FLAT <= 0),
        ("nl.cos(nl.multiply(f, 9.0))", np.cos(FLAT * 9)),
        ("nl.tan(nl.tanh(f))", np.tan(np.tanh(FLAT))),
        ("nl.floor(f)", np.floor(FLAT)),
        ("nl.ceil(f)", np.ceil(FLAT)),
        ("nl.trunc(f)", np.trunc(FLAT)),
        ("nl.fmod(f, 0.75)", np.fmod(FLAT, 0.75)),
        ("nl.abs(f)", np.abs(FLAT)),
        ("nl.subtract(v, f)", V - FLAT),
        ("nl.add(nl.max(t, axis=2, keepdims=True), t)", X.max(2, keepdims=True) + X),
        ("nl.invert(nl.full((128, 1), 5, nl.int32))", np.full((128, 1), -6)),
    ],
)
def test_function(expression: str, expected: Any) -> None:
    np.testing.assert_allclose(computed(expression), expected, rtol=2e-5, atol=4e-6)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("nl.add(f, w)", "partitions by nl.broadcast_to"),
        ("nl.sum(f, axis='x')", "axis is an integer"),
        ("nl.softmax(x)", "x is a tile on the chip"),
        ("nl.transpose(t)", "a tile of two dimensions"),
        ("nl.rand((128, 64), nl.float32)", "random numbers"),
        ("nl.load_transpose2d(f)", "two dimensions in HBM"),
    ],
)
def test_refused(expression: str, reason: str) -> None:
    with pytest.raises((neuron.KernelError, neuron.CheckError), match=reason):
        computed(expression)


def test_rows_at_indices() -> None:
    text = kernel(
        "y = nl.ndarray((32, 8), x.dtype, buffer=nl.shared_hbm)\n"
        "z = nl.ndarray((8,), x.dtype, buffer=nl.shared_hbm)\n"
        "i = nl.load(ids)\nt = nl.ndarray((32, 8), x.dtype)\nu = nl.ndarray((1, 8), x.dtype)\n"
        "nisa.dma_copy(t, x.vector_select(0, i))\nnisa.dma_copy(y, t)\n"
        "nisa.dma_copy(u, x.select(0, i[3:4]))\nnisa.dma_copy(z, u)\nreturn y, z\n",
        "x, ids",
    )
    x = RNG.normal(size=(50, 8)).astype("float32")
    ids = RNG.integers(0, 50, (32, 1)).astype("int32")
    y, z = neuron.load(text)(x, ids)
    np.testing.assert_array_equal(y, x[ids[:, 0]])
    np.testing.assert_array_equal(z, x[ids[3, 0]])
    wrong = neuron.load(text.replace("x.vector_select(0, i)", "x.vector_select(1, i)"))
    with pytest.raises(neuron.KernelError, match="dimension 0 of a tensor in HBM"):
        wrong(x, ids)


LOOP = """\
y = nl.ndarray((1, 1), nl.int32, buffer=nl.shared_hbm)
count, total = nl.load(n), nl.zeros((1, 1), nl.int32)
held = nisa.register_alloc()
nisa.register_load(held, count)
def body(r):
    with nl.no_reorder():
        nisa.tensor_scalar(total, total, nl.add, 2)
        nisa.tensor_scalar(count, count, nl.subtract, 1)
    nisa.register_load(r, count)
    {end}
{loop}
nisa.dma_copy(y, total)
return y
"""


@pytest.mark.parametrize(
    ("end", "loop", "expected"),
    [
        ("return r", "nl.while_loop(held, body)", 10),
        ("pass", "nl.fori_loop(2, held, body)", 6),
        (
            "pass",
            "last = nisa.register_alloc(9)\nnisa.register_move(last, held)\n"
            "nisa.register_store(total, last)",
            5,
        ),
    ],
)
def test_loops_of_the_machine(end: str, loop: str, expected: int) -> None:
    read = neuron.load(kernel(LOOP.format(end=end, loop=loop), "n"))
    n = np.array([[5]], "int32")
    read.check("trn2", n)
    assert read(n)[0, 0] == expected


def test_a_register_is_no_size() -> None:
    loop = "nl.fori_loop(0, 2, lambda k: nisa.memset(total[:, nl.ds(k, 1)], 0))"
    read = neuron.load(kernel(LOOP.format(end="pass", loop=loop), "n"))
    with pytest.raises(neuron.KernelError, match=r"use \.ap\(\.\.\., scalar_offset=register\)"):
        read(np.array([[5]], "int32"))


def test_a_body_returns_its_condition() -> None:
    read = neuron.load(kernel(LOOP.format(end="pass", loop="nl.while_loop(held, body)"), "n"))
    with pytest.raises(neuron.KernelError, match="its body returns one"):
        read(np.array([[5]], "int32"))
