"""Whole models from torch and ONNX, compiled, beside torch, ONNX Runtime and TVM's own build."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import fuse_epilogue
from fuse_epilogue.models import CompiledModel, ImportRefusal, import_model
from fuse_epilogue.models.signature import signature_of

torch = pytest.importorskip("torch", reason="the models are modules of PyTorch: install torch")

pytestmark = [pytest.mark.full, pytest.mark.slow]

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
FLOATS = ["mamba", "resnet18", "resnet50", "bert", "vit", "convnext"]
NAMES = [*FLOATS, "quantised_mlp"]


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("models_torch").MODELS


def near(result: Any, expected: Any) -> None:
    """Within 1e-5 of the largest result; integers are the same."""
    expected = np.asarray(expected)
    if expected.dtype.kind == "f":
        bound = 1e-5 * np.abs(expected).max()
        np.testing.assert_allclose(np.asarray(result), expected, rtol=0, atol=bound)
    else:
        np.testing.assert_array_equal(np.asarray(result), expected)


def by_tvm(mod: tvm.IRModule, x: np.ndarray) -> np.ndarray:
    """What TVM's own pipeline computes, which schedules nothing."""
    built = tvm.compile(mod, "llvm", relax_pipeline=relax.get_pipeline("default_build"))
    machine = relax.VirtualMachine(built, tvm.cpu())
    return machine["main"](tvm.runtime.tensor(x)).numpy()


@pytest.mark.parametrize("channels_last", [True, False], ids=["channels_last", "channels_first"])
@pytest.mark.parametrize("name", NAMES)
def test_a_module(models: Any, name: str, channels_last: bool) -> None:
    module, x = models[name].build(small=True)
    expected = module(x).detach().numpy()
    model = fuse_epilogue.compile(
        module, example_inputs=(x,), threads=1, channels_last=channels_last
    )
    near(model(x), expected)
    near(by_tvm(import_model(module, (x,)), x.numpy()), expected)
    wild = x.clone()
    wild.view(-1)[:2] = 100
    near(model(wild), module(wild).detach())


def test_weights_that_change_later_are_not_those_of_the_model() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)).eval()
    x = torch.randn(3, 4)
    expected = module(x).detach()
    model = fuse_epilogue.compile(module, example_inputs=(x,), threads=1)
    with torch.no_grad():
        for each in module.parameters():
            each.zero_()
    near(model(x), expected)


@pytest.mark.parametrize("name", NAMES)
def test_an_exported_program_saved_and_loaded(models: Any, name: str, tmp_path: Path) -> None:
    module, x = models[name].build(small=True, seed=1)
    exported = torch.export.export(module, (x,))
    fuse_epilogue.compile(exported, threads=2).save(tmp_path / "model.so")
    model = fuse_epilogue.load(tmp_path / "model.so")
    near(model(x.numpy()), module(x).detach())
    report = model.profile(x, repeats=2)
    assert report.measured and all(each.measured_s >= 0 for each in report.functions)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("error::fuse_epilogue.models.torch_backend.EagerFallback")
def test_the_backend(models: Any, name: str) -> None:
    from fuse_epilogue.models.torch_backend import fuse_epilogue_backend

    torch._dynamo.reset()
    module, x = models[name].build(small=True, seed=2)
    with torch.inference_mode():
        near(torch.compile(module, backend=fuse_epilogue_backend)(x), module(x))


@pytest.mark.parametrize("name", FLOATS)
def test_an_onnx_model(models: Any, name: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript", reason="torch writes ONNX by it")
    module, x = models[name].build(small=True, seed=3)
    path = tmp_path / "model.onnx"
    torch.onnx.export(module, (x,), str(path), dynamo=True, external_data=False, verbose=False)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    model = fuse_epilogue.compile(str(path), threads=1)
    assert isinstance(model, CompiledModel)
    near(model(x.numpy()), expected)
    near(model(x), module(x).detach())


class Changing(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x * self.calls


class Doubling(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x.mul_(2)


@pytest.mark.parametrize(("module", "array"), [(Changing, "calls"), (Doubling, "x")])
def test_a_module_that_changes_arrays_is_refused(module: type, array: str) -> None:
    with pytest.raises(ImportRefusal, match=f"changes '{array}' in place: .* return the new"):
        fuse_epilogue.compile(module().eval(), example_inputs=(torch.ones(3),))


class Attention(torch.nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, query: Any, key: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(query, key, key, **self.options)


@pytest.mark.parametrize(
    ("options", "heads"),
    [({}, 4), ({"scale": 0.25}, 4), ({"is_causal": True}, 4), ({"enable_gqa": True}, 2)],
    ids=["plain", "scale", "causal", "grouped"],
)
def test_attention(options: dict[str, Any], heads: int) -> None:
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, 4, 7, 8, generator=generator)
    key = torch.randn(2, heads, 9, 8, generator=generator)
    module = Attention(**options).eval()
    model = fuse_epilogue.compile(module, example_inputs=(query, key), threads=1)
    near(model(query, key), module(query, key))


def test_one_tensor_for_two_example_inputs() -> None:
    """torch.export would take the two arguments for one."""
    x, key = torch.randn(2, 4, 7, 8), torch.randn(2, 4, 7, 8)
    module = Attention().eval()
    model = fuse_epilogue.compile(module, example_inputs=(x, x), threads=1)
    near(model(x, key), module(x, key))


class Sinks(torch.nn.Module):
    """Attention with sinks under a sliding window, as language models write it."""

    def __init__(self) -> None:
        super().__init__()
        self.sinks = torch.nn.Parameter(torch.tensor([-1.0, 0.0, 3.0]))

    def forward(self, query: Any, key: Any) -> Any:
        i, j = torch.arange(query.shape[-2])[:, None], torch.arange(key.shape[-2])
        scores = (query @ key.mT * 0.25).masked_fill(~((j <= i) & (i - j < 5)), -torch.inf)
        sinks = self.sinks.reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
        joined = torch.cat([scores, sinks], -1)
        joined = joined - joined.max(-1, keepdim=True).values
        return torch.softmax(joined, -1)[..., :-1] @ key


def test_attention_with_sinks() -> None:
    generator = torch.Generator().manual_seed(0)
    operands = [torch.randn(2, 3, 90, 8, generator=generator) for _ in range(2)]
    module = Sinks().eval()
    model = fuse_epilogue.compile(module, example_inputs=tuple(operands), threads=1)
    assert [each.kind for each in model.report.functions] == ["attention"]
    near(model(*operands), module(*operands).detach())


class Masked(torch.nn.Module):
    def forward(self, query: Any, key: Any, mask: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(query, key, key, attn_mask=mask)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32], ids=["bool", "float"])
@pytest.mark.parametrize("rows", [1, 7])
def test_masked_attention(dtype: Any, rows: int) -> None:
    """A row that the mask leaves no key is zero, as in torch."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, 4, 7, 8, generator=generator)
    key = torch.randn(2, 4, 9, 8, generator=generator)
    mask = torch.rand(2, 1, rows, 9, generator=generator) > 0.4
    mask[1, 0, 0] = False
    if dtype != torch.bool:
        mask = torch.where(mask, torch.randn(mask.shape, generator=generator), -torch.inf)
    expected = Masked()(query, key, mask)
    assert (expected[1, :, 0] == 0).all()
    model = fuse_epilogue.compile(Masked().eval(), example_inputs=(query, key, mask), threads=1)
    assert "attention" in str(model.report)
    near(model(query, key, mask), expected)


class Tokens(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)

    def forward(self, x: Any, y: Any) -> Any:
        return torch.softmax(self.linear(x) @ y.transpose(1, 2), -1).sum(1)


def test_sizes_with_names() -> None:
    """The names of torch's dimensions; an exported program has symbols of its own."""
    batch, tokens = torch.export.Dim("batch"), torch.export.Dim("tokens")
    shapes = {"x": {0: batch, 1: tokens}, "y": {0: batch}}
    module = Tokens().eval()
    arrays = torch.randn(2, 5, 6), torch.randn(2, 4, 6)
    made = fuse_epilogue.compile(
        module,
        example_inputs=arrays,
        dynamic_shapes=shapes,
        sizes={"batch": (1, 3), "tokens": 7},
        threads=1,
    )
    assert made.signature.names == ("batch", "tokens")
    assert made.sizes == ({"batch": 1, "tokens": 7}, {"batch": 3, "tokens": 7})
    for sizes in ((1, 7), (3, 7), (2, 5), (4, 1)):
        x, y = torch.randn(*sizes, 6), torch.randn(sizes[0], 4, 6)
        near(made(x, y), module(x, y).detach())
    exported = torch.export.export(module, arrays, dynamic_shapes=shapes)
    assert len(signature_of(import_model(exported)).names) == 2
    with pytest.raises(ImportRefusal, match="dynamic_shapes is for torch modules"):
        import_model(exported, dynamic_shapes=shapes)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({}, ImportRefusal, "needs example_inputs="),
        ({"example_inputs": torch.ones(2)}, ImportRefusal, r"such as \(x,\), not Tensor"),
        ({"example_inputs": (np.ones(2),)}, ImportRefusal, r"torch.from_numpy\(x\)"),
        ({"target": (torch.ones(2),)}, TypeError, r"by name, example_inputs=\(x,\)"),
    ],
)
def test_example_inputs_that_are_none(given: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        fuse_epilogue.compile(torch.nn.ReLU().eval(), **given)


@pytest.mark.parametrize("dtype", [torch.int32, torch.float64])
def test_products_are_summed_in_their_own_type(dtype: torch.dtype) -> None:
    """Not in float32, where 2^24 + 1 is 2^24."""

    class Product(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.matmul(x, y)

    x = torch.tensor([[1 << 24, 1], [3, 5]], dtype=dtype)
    y = torch.ones((2, 3), dtype=dtype)
    model = fuse_epilogue.compile(Product().eval(), example_inputs=(x, y), threads=1)
    near(model(x, y), Product()(x, y))
    assert int(np.asarray(model(x, y))[0, 0]) == (1 << 24) + 1


def test_no_warning_of_torch_about_itself_stops_an_import() -> None:
    model = torch.nn.Linear(4, 3).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        compiled = fuse_epilogue.compile(model, example_inputs=(torch.zeros(2, 4),))
    near(compiled(torch.ones(2, 4)), model(torch.ones(2, 4)).detach())
