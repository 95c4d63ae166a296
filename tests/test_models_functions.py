"""Compiled functions: called with arrays of numpy and torch, in place or for results, and saved."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

import fuse_epilogue
from fuse_epilogue import workloads
from fuse_epilogue.models import CompiledFunction, SavedModelError

DRAW = np.random.default_rng(0)
A, B = (DRAW.integers(-4, 5, (8, 8)).astype(np.float32) for _ in range(2))
BIAS = DRAW.integers(-4, 5, 8).astype(np.float32)
EXPECTED = np.maximum(A @ B + BIAS, 0)


@pytest.fixture(scope="module")
def product() -> CompiledFunction:
    return fuse_epilogue.compile(workloads.matmul(8, 8, 8, activation="relu"))


@T.prim_func(s_tir=True)
def halves(x: T.Buffer((8,), "float32"), total: T.Buffer((8,), "float32"), n: T.int32):
    for i in range(8):
        with T.sblock("halves"):
            vi = T.axis.spatial(8, i)
            total[vi] = total[vi] + x[vi] / T.Cast("float32", n)


def test_results_that_are_left_out_are_returned(product: CompiledFunction) -> None:
    found = product(A, B, BIAS)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, EXPECTED)


@pytest.mark.parametrize(
    "memory",
    [
        np.full((8, 8), np.nan, np.float32),
        np.full((8, 16), np.nan, np.float32)[:, ::2],
        np.full(65, np.nan, np.float32)[1:].reshape(8, 8),
        np.full((8, 8), np.nan, np.dtype(">f4")),
    ],
    ids=["ready", "strided", "not aligned", "other byte order"],
)
def test_results_are_written_in_place(product: CompiledFunction, memory: np.ndarray) -> None:
    assert product(A, B, BIAS, memory) is None
    np.testing.assert_array_equal(memory, EXPECTED)


def test_torch(product: CompiledFunction) -> None:
    torch = pytest.importorskip("torch")
    a, b, bias = map(torch.from_numpy, (A, B, BIAS))
    assert torch.equal(product(a, b, bias), torch.from_numpy(EXPECTED))
    turned = torch.zeros(8, 8).t()
    product(a, b, bias, turned)
    assert torch.equal(turned, torch.from_numpy(EXPECTED))
    with pytest.raises(ValueError, match=r"'y' is written, and this tensor requires a gradient"):
        product(a, b, bias, torch.zeros(8, 8, requires_grad=True))


def test_a_parameter_that_is_updated_is_never_left_out() -> None:
    """Nor a number; the function keeps its loops, as nothing here knows it."""
    add = fuse_epilogue.compile(halves)
    total = np.ones(8, np.float32)
    x = np.arange(8, dtype=np.float32)
    assert add(x, total, 2) is None
    np.testing.assert_array_equal(total, 1 + x / 2)
    with pytest.raises(TypeError, match=r"takes 3 arrays \(x, total, n\), not 1"):
        add(x)


@pytest.mark.parametrize(
    ("arrays", "error", "message"),
    [
        ((A, B), TypeError, r"takes 4 arrays \(a, b, bias, y\), or the first 3 of them, not 2"),
        ((A, B, BIAS.astype("float64")), TypeError, "is float64, not float32: cast it"),
        ((A, B[:4], BIAS), ValueError, r"has shape \(4, 8\), not \(8, 8\)"),
        ((A, B, BIAS, "y"), TypeError, "arguments must be arrays"),
        ((A, B, BIAS, np.broadcast_to(BIAS, (8, 8))), ValueError, "'y' is written, .* read-only"),
    ],
)
def test_calls_are_checked(
    product: CompiledFunction, arrays: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        product(*arrays)


def test_what_it_says_of_itself(product: CompiledFunction) -> None:
    assert repr(product).endswith("y: float32[8, 8]) -> float32[8, 8]>")
    assert product.plan is not None
    (row,) = product.report.functions
    assert (row.kind, row.calls) == ("product", 1)
    assert row.predicted_s == product.plan.cost
    (measured,) = product.profile(A, B, BIAS, repeats=2).functions
    assert measured.measured_s
    assert product.report.measured


@pytest.mark.parametrize("name", ["product.fe", "product.so"])
def test_it_is_saved(product: CompiledFunction, tmp_path: Path, name: str) -> None:
    product.save(tmp_path / name)
    loaded = fuse_epilogue.load(tmp_path / name)
    assert isinstance(loaded, CompiledFunction)
    assert loaded.report == product.report
    np.testing.assert_array_equal(loaded(A, B, BIAS), EXPECTED)
    memory = np.zeros((8, 8), np.float32)
    loaded(A, B, BIAS, memory)
    np.testing.assert_array_equal(memory, EXPECTED)
    if name.endswith(".so"):
        tensors = [tvm.runtime.tensor(each) for each in (A, B, BIAS, np.zeros_like(EXPECTED))]
        tvm.runtime.load_module(str(tmp_path / name))["main"](*tensors)
        np.testing.assert_array_equal(tensors[-1].numpy(), EXPECTED)


@pytest.mark.parametrize(
    "change", [{"written": [4]}, {"scalars": ["a"]}, {"written": None}, {"format": "other"}]
)
def test_a_changed_file_is_refused(
    product: CompiledFunction, tmp_path: Path, change: dict[str, Any]
) -> None:
    product.save(tmp_path / "right.fe")
    with zipfile.ZipFile(tmp_path / "right.fe") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["manifest.json"] = json.dumps({**json.loads(parts["manifest.json"]), **change}).encode()
    with zipfile.ZipFile(tmp_path / "wrong.fe", "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    with pytest.raises(SavedModelError, match=r"wrong\.fe' is (damaged|not a saved model)"):
        fuse_epilogue.load(tmp_path / "wrong.fe")
