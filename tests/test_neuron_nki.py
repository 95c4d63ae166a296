"""Kernels of this package in AWS's own: simulated there, they give what the interpreter gives.

The package ``nki`` is not on the public index, where another one has its name: without
``nki.simulate`` these tests are skipped.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fuse_epilogue
from fuse_epilogue import neuron, schedules, workloads
from fuse_epilogue.neuron.values import numpy_dtype
from neuron_golden_schedules import FOLDER, KERNELS, emitted

try:
    import nki

    simulate = nki.simulate
except (ImportError, AttributeError):
    simulate = None

pytestmark = [
    pytest.mark.nki,
    pytest.mark.skipif(simulate is None, reason="AWS's package nki is not installed"),
]


def decorated(path: Path, name: str) -> Any:
    """The function that a file of NKI defines."""
    spec = importlib.util.spec_from_file_location(f"kernel_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


def assert_simulated(kernel: neuron.Kernel, path: Path) -> None:
    rng = np.random.default_rng(11)
    inputs = [
        rng.integers(-4, 5, shape).astype(numpy_dtype(dtype))
        for shape, dtype in kernel.inputs.values()
    ]
    assert simulate is not None
    found = simulate(decorated(path, kernel.name))(*inputs)
    for got, wanted in zip(_several(found), _several(kernel(*inputs)), strict=True):
        wide = [np.asarray(each).astype("float32") for each in (got, wanted)]
        np.testing.assert_allclose(*wide, rtol=1e-2 if got.dtype.itemsize == 2 else 1e-5, atol=1e-5)


def _several(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("name", KERNELS)
def test_golden_kernels(name: str) -> None:
    assert_simulated(emitted(name)[1], FOLDER / f"{name}.py")


FUNCTIONS = {
    "product": workloads.matmul(64, 96, 80, bias_axis="n", activation="relu"),
    "conv": workloads.depthwise_conv1d(2, 40, 96, 3, activation="silu"),
    "rows": workloads.row_reduce(130, 300),
    "elements": workloads.elementwise(70, 200, scale=True, residual=True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_scheduled_functions(name: str, tmp_path: Path) -> None:
    kernel = neuron.emit(schedules.apply(FUNCTIONS[name], "trn2"))
    (tmp_path / f"{name}.py").write_text(kernel.source)
    assert_simulated(kernel, tmp_path / f"{name}.py")


def test_kernels_of_a_model(tmp_path: Path) -> None:
    from test_models_neuron import layers

    package = fuse_epilogue.compile(layers(), "trn2")
    package.save(tmp_path / "model")
    for name, kernel in package.kernels.items():
        assert_simulated(kernel, tmp_path / "model" / "kernels" / f"{name}.py")
