"""Views of tiles by dimension, and functions of nl that return a tile, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from fuse_epilogue import neuron
from neuron_kernels import HEADER

X = np.arange(8 * 24, dtype="float32").reshape(8, 24)


def run(view: str, x: np.ndarray = X) -> np.ndarray:
    """Copy a view of a tile with the elements of `x`, or of `x` in HBM, to the result."""
    text = f"""{HEADER}def kernel(x):
    t = nl.load(x)
    v = {view}
    assert v.size == v.shape[0] * (v.size // v.shape[0]) and v.ndim == len(v.strides)
    out = nl.ndarray(v.shape, x.dtype, buffer=nl.shared_hbm)
    copy = nl.ndarray(v.shape, x.dtype, buffer=nl.sbuf)
    if v.buffer == nl.sbuf:
        nisa.tensor_copy(copy, v)
    else:
        nisa.dma_copy(copy, v)
    nisa.dma_copy(out, copy)
    return out
"""
    kernel = neuron.load(text)
    kernel.check("trn2", x)
    result = kernel(x)
    assert isinstance(result, np.ndarray)
    return result


VIEWS = {
    "t.reshape_dim(1, (4, 6))": X.reshape(8, 4, 6),
    "t.reshape_dim(1, (4, -1)).permute((0, 2, 1))": X.reshape(8, 4, 6).swapaxes(1, 2),
    "t.reshape_dim(1, (2, 3, 4)).flatten_dims(1, 2)": X.reshape(8, 6, 4),
    "t.expand_dim(1).broadcast(1, 3)": np.broadcast_to(X[:, None], (8, 3, 24)),
    "t.expand_dim(2).squeeze_dim(2)": X,
    "t.slice(1, 2, 20, 3)": X[:, 2:20:3],
    "t.slice(0, 0, 5)": X[:5],
    "t.reshape_dim(1, (4, 6)).select(1, 2)": X.reshape(8, 4, 6)[:, 2],
    "t.rearrange(('b', ('h', 'w')), ('b', 'w', 'h'), {'h': 4})": X.reshape(8, 4, 6).swapaxes(1, 2),
    "t.rearrange(('b', ('h', 'w')), ('b', ('h', 'w')), {'h': 4})": X,
    "x.permute((1, 0))": X.T,
    "x.reshape((1, 192)).broadcast(0, 3)": np.broadcast_to(X.reshape(1, 192), (3, 192)),
    "x.select(1, 5).expand_dim(1)": X[:, 5:6],
    "t if t.is_contiguous() and not t.slice(1, 0, 24, 2).is_contiguous() else None": X,
    "t if t.name and not t.is_indirect() else None": X,
}


@pytest.mark.parametrize("view", VIEWS)
def test_views(view: str) -> None:
    np.testing.assert_array_equal(run(view), VIEWS[view])


@pytest.mark.parametrize(
    ("view", "why"),
    [
        ("t.permute((1, 0))", "partitions first"),
        ("t.permute((0, 0))", "not a permutation"),
        ("t.broadcast(1, 3)", "dimension of size 1, not 24"),
        ("t.broadcast(0, 3)", "not for dimension 0 on the chip"),
        ("t.expand_dim(0)", "not a place"),
        ("t.squeeze_dim(1)", "dimension of size 1, not 24"),
        ("t.reshape_dim(1, (5, -1))", "is not one of"),
        ("t.reshape_dim(0, (2, 4))", "not for dimension 0 on the chip"),
        ("t.reshape_dim(1, (4, 6)).permute((0, 2, 1)).flatten_dims(1, 2)", "gaps"),
        ("t.slice(1, 2, 25)", "of a dimension of 24"),
        ("t.select(1, 24)", "in a dimension of 24"),
        ("t.select(2, 0)", "there is no dimension 2"),
        ("x.select(0, t)", "1 integers are needed"),
        ("t.rearrange(('a', 'b'), ('a', 'c'))", "are not the names"),
    ],
)
def test_views_that_are_not_possible(view: str, why: str) -> None:
    with pytest.raises(neuron.CheckError, match=why):
        run(view)


FUNCTIONS = {
    "nl.add(t, t)": X + X,
    "nl.subtract(1.0, t)": 1 - X,
    "nl.subtract(t, 1.0)": X - 1,
    "nl.multiply(t, t[:, 1:2])": X * X[:, 1:2],
    "nl.maximum(x=t, y=5.0)": np.maximum(X, 5),
    "nl.less(t, 5.0)": (X < 5).astype("float32"),
    "nl.less(5.0, t)": (X > 5).astype("float32"),
    "nl.sqrt(t)": np.sqrt(X),
    "nl.reciprocal(nl.add(t, 1.0))": 1 / (X + 1),
    "nl.add(t, t, dtype=nl.float32)": X + X,
    "nl.full(t.shape, 3.0, nl.float32, buffer=nl.sbuf)": np.full_like(X, 3),
    "nl.ones(t.shape, dtype=nl.float32)": np.ones_like(X),
    "nl.zeros_like(t)": np.zeros_like(X),
    "nl.add(nl.zeros_like(t, dtype=nl.float32), t)": X,
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_of_nl(function: str) -> None:
    np.testing.assert_allclose(run(function), FUNCTIONS[function], rtol=1e-6)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        ("nl.add(x, x)", "nl.load the tensor before"),
        ("nl.add(1.0, 2.0)", "at least one of them a tile"),
        ("nl.add(t)", "needs x and y"),
        ("nl.add(t, t[:, 0:3])", r"of \(8, 24\) and \(8, 3\)"),
        ("nl.exp(1.0)", "is not supported here"),
        ("nl.exp(t, other=1)", "takes x, dtype"),
        ("nl.shared_constant(1)", "use an argument of the kernel"),
        ("nl.empty_like(t)", "never written|not written|unwritten|uninitialized"),
        ("nl.full(t.shape, 1.0, nl.float32, buffer=nl.hbm)", "fill HBM by"),
    ],
)
def test_functions_that_are_refused(function: str, why: str) -> None:
    with pytest.raises((neuron.KernelError, neuron.CheckError), match=why):
        run(function)
