"""Whole models through torch.export (and ONNX), Relax, the pass and LLVM, beside PyTorch."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from fuse_epilogue.transform import FuseReductionEpilogue, Report, report_of

torch = pytest.importorskip("torch", reason="the models are modules of PyTorch: install torch")

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"

# What is not fused, as "block: code"; every other reduction is. A mean and a softmax are read by
# whole rows; a product whose result goes out as it is has no epilogue.
ATTENTION = {"matmul: no-consumer", "T_softmax_maxelem: index-map", "T_softmax_expsum: index-map"}
NOT_FUSED = {
    "mamba": {"matmul: no-consumer", "red: no-consumer"},
    "resnet18": set(),
    "resnet50": set(),
    "bert": ATTENTION | {"var_sum: index-map"},
    "vit": ATTENTION | {"var_sum: index-map"},
    "quantised_mlp": set(),
    "convnext": {"var_sum: index-map"},
}
FUSED = {
    "mamba": 5,
    "resnet18": 4,
    "resnet50": 6,
    "bert": 6,
    "vit": 6,
    "quantised_mlp": 2,
    "convnext": 4,
}


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("models_torch")


@pytest.fixture
def in_tvm(models: Any) -> Any:
    return importlib.import_module("models_tvm")


def not_fused(report: Report) -> set[str]:
    """Blocks and codes; the front of a name that Relax makes of a variable's is left out."""
    found = set()
    for function in report.functions:
        for each in function.reductions:
            if not each.fused:
                block = each.reduction.partition("_")[2]
                known = each.reduction if each.reduction.startswith(("T_", "matmul")) else block
                found.add(f"{known}: {each.code}")
    return found


def both(in_tvm: Any, mod: tvm.IRModule, x: np.ndarray) -> tuple[Report, np.ndarray, np.ndarray]:
    target = tvm.target.Target("llvm")
    before = in_tvm.lowered(mod)
    after = FuseReductionEpilogue()(before)
    results = [in_tvm.Runner(each, target).result(x) for each in (before, after)]
    return report_of(after), *results


@pytest.mark.full
@pytest.mark.parametrize("name", NOT_FUSED)
def test_every_fusable_reduction_is_fused(name: str, models: Any, in_tvm: Any) -> None:
    module, x = models.MODELS[name].build(small=True)
    report, before, after = both(in_tvm, in_tvm.imported(module, x), x.numpy())
    assert report.fused == FUSED[name]
    assert not_fused(report) == NOT_FUSED[name]
    assert report.bytes_saved > 0
    with torch.no_grad():
        expected = module(x).numpy()
    if models.MODELS[name].quantised:
        np.testing.assert_array_equal(after, expected)
        np.testing.assert_array_equal(before, expected)
        assert len(np.unique(expected)) > 3
    else:
        np.testing.assert_allclose(before, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(after, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_whole_numbers_are_equal_bit_for_bit(name: str, models: Any, in_tvm: Any) -> None:
    """With whole numbers for weights and data, float32 is exact in any order."""
    module, x = models.MODELS[name].build(small=True)
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(torch.randint(-2, 3, weight.shape))
        x = torch.randint(-3, 4, x.shape).to(torch.float32)
        expected = module(x).numpy()
    _, before, after = both(in_tvm, in_tvm.imported(module, x), x.numpy())
    np.testing.assert_array_equal(before, expected)
    np.testing.assert_array_equal(after, expected)
    assert len(np.unique(expected)) > 3 and np.abs(expected).max() < 2**24


def test_onnx_gives_the_same(models: Any, in_tvm: Any) -> None:
    pytest.importorskip("onnx", reason="the model is one of ONNX: install onnx")
    resnet = importlib.import_module("models_onnx").resnet
    module, x = models.MODELS["resnet18"].build(small=True)
    with torch.no_grad():
        expected = module(x).numpy()
    model = resnet(module, tuple(x.shape), expected.shape)
    report, before, after = both(in_tvm, in_tvm.imported_onnx(model), x.numpy())
    assert (report.found, report.fused, report.refused) == (4, 4, {})
    np.testing.assert_allclose(before, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(after, expected, rtol=1e-5, atol=1e-5)


def test_a_wrong_weight_would_be_seen(models: Any, in_tvm: Any) -> None:
    """The comparison can fail: with one weight changed behind the export, it does."""
    module, x = models.MODELS["bert"].build(small=True)
    _, _, after = both(in_tvm, in_tvm.imported(module, x), x.numpy())
    with torch.no_grad():
        module.up.bias[0] += 0.1
        expected = module(x).numpy()
    assert np.abs(after - expected).max() > 1e-4
