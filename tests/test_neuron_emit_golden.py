"""Emitted kernels kept as text in ``neuron_golden``: what changes in them is shown, and judged.

``neuron_golden_schedules`` has the schedules, and writes the files again.
"""

from __future__ import annotations

import difflib

import numpy as np
import pytest

from depthwise import assert_between, bent_interval, zeros
from fuse_epilogue import neuron
from neuron_golden_schedules import FOLDER, KERNELS, RENEW, emitted, matmul, row_sum
from oracles import parameters


@pytest.mark.parametrize("name", KERNELS)
def test_emitted_as_kept(name):
    path = FOLDER / f"{name}.py"
    kept, now = path.read_text(), emitted(name)[1].source
    changes = "".join(
        difflib.unified_diff(
            kept.splitlines(keepends=True), now.splitlines(keepends=True), "kept", "emitted now"
        )
    )
    assert not changes, f"{path.name} has changed; {RENEW}\n{changes}"


def test_nothing_else_is_kept():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_what_is_kept_is_right(name):
    """The files themselves are loaded, checked and executed."""
    func, kernel = emitted(name)
    loaded = neuron.load((FOLDER / f"{name}.py").read_text(), kernel.inputs)
    loaded.check("trn1")
    loaded.check("trn2")
    rng = np.random.default_rng(5)
    shapes = [(param.shape, param.dtype) for param in parameters(func, {})[:-1]]
    inputs = [rng.integers(-4, 5, shape).astype(dtype) for shape, dtype in shapes]
    total = _total(name, [each.astype("float64") for each in inputs])
    y = loaded(*inputs)
    activation = KERNELS[name][2].get("activation")
    assert_between(y, *bent_interval(total, 0.0, activation, str(y.dtype)), name)


def _total(name, inputs):
    make, sizes, options = KERNELS[name]
    x, *rest = inputs
    if make is row_sum:
        return x.sum(axis=1)
    if make is matmul:
        weight, bias = rest
        return x.T @ weight + (bias[:, None] if options.get("bias_axis") == "m" else bias)
    weight, *bias = rest
    taps = sizes[3]
    padded = np.pad(
        x, [(0, 0), (0, 0), zeros(options.get("padding", "same"), sizes[2], taps, 1, 1)]
    )
    windows = np.lib.stride_tricks.sliding_window_view(padded, taps, axis=2)
    total = (windows * weight[:, None, :]).sum(axis=3)
    return total + bias[0][:, None] if bias else total
