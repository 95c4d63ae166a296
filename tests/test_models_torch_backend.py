"""The backend of torch.compile, against torch itself."""

from __future__ import annotations

import gc
import importlib.metadata
import re
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fuse_epilogue.models import torch_graph  # noqa: E402
from fuse_epilogue.models.torch_backend import (  # noqa: E402
    EagerFallback,
    fuse_epilogue_backend,
)

functional = torch.nn.functional
pytestmark = [
    pytest.mark.full,
    pytest.mark.slow,
    pytest.mark.filterwarnings("error::fuse_epilogue.models.torch_backend.EagerFallback"),
]


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    """Nothing compiled before is there, and no gradients are wanted."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was compiled, in order."""
    made: list[Any] = []
    variant = torch_graph._Variant

    def noted(*arguments: Any) -> Any:
        made.append(variant(*arguments))
        return made[-1]

    monkeypatch.setattr(torch_graph, "_Variant", noted)
    return made


def compiled(model: Any, **options: Any) -> Any:
    return torch.compile(model, backend=fuse_epilogue_backend, **options)


def same(result: Any, expected: Any) -> None:
    """Results are those of torch: values, types, shapes and strides."""
    if isinstance(expected, tuple | list):
        assert len(result) == len(expected)
        for one, other in zip(result, expected, strict=True):
            same(one, other)
    elif isinstance(expected, torch.Tensor):
        assert result.dtype == expected.dtype and result.stride() == expected.stride()
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5, equal_nan=True)
    else:
        assert result == expected


class Dense(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, inputs: int = 5, outputs: int = 7) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(inputs, outputs)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.linear(x))


def test_its_entry_point() -> None:
    text = Path(__file__).resolve().parents[1].joinpath("pyproject.toml").read_text()
    found = re.search(r'\."torch_dynamo_backends"\]\n(\w+) = "(\S+)"', text)
    assert found is not None and found[1] == "fuse_epilogue"
    entry = importlib.metadata.EntryPoint(found[1], found[2], "torch_dynamo_backends")
    assert entry.load() is fuse_epilogue_backend


def test_a_model_is_compiled_once(compilations: list[Any]) -> None:
    model = Dense().eval()
    fast = compiled(model)
    for seed in range(3):
        x = torch.randn(4, 5, generator=torch.Generator().manual_seed(seed))
        same(fast(x), model(x))
    (variant,) = compilations
    assert len(variant.weights) == 2  # parameters are constants of the code


def test_values_that_are_not_finite() -> None:
    fast = compiled(lambda x: torch.maximum(x * 2, -x))
    for value in (float("nan"), float("inf"), -float("inf"), -0.0):
        x = torch.full((3, 5), value)
        same(fast(x), torch.maximum(x * 2, -x))


def test_other_sizes_are_compiled_for(compilations: list[Any]) -> None:
    """The second size makes torch's graph one for any size; its code is still for each."""
    model = Dense().eval()
    fast = compiled(model)
    counts = []
    for _ in range(2):
        for rows in (4, 6, 1, 17, 6, 4):
            x = torch.randn(rows, 5)
            same(fast(x), model(x))
        counts.append(len(compilations))
    assert counts[0] in (4, 5)  # 4 rows twice: before and after torch's graph is one for any size
    assert counts[1] == counts[0]


def test_too_many_sizes_run_in_torch(
    compilations: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_graph, "MOST_VARIANTS", 2)
    fast = compiled(lambda x: x * 2 + 1, dynamic=True)
    with pytest.warns(EagerFallback, match="more than 2 sizes or weights"):
        for rows in range(2, 7):
            x = torch.randn(rows, 3)
            same(fast(x), x * 2 + 1)
    assert len(compilations) == 2


def test_a_break_of_the_graph(compilations: list[Any]) -> None:
    def model(x: Any) -> Any:
        y = torch.relu(x) + 1
        torch._dynamo.graph_break()
        return y.transpose(0, 1) @ x

    x = torch.randn(4, 5)
    same(compiled(model)(x), model(x))
    assert len(compilations) == 2


def test_several_results_of_which_some_are_no_tensors() -> None:
    def model(x: Any, n: int) -> Any:
        y = x * n
        return y, None, y.t(), x.shape[0] + n, [torch.sum(y), y > 0]

    fast = compiled(model)
    for rows, n in ((3, 2), (4, 5), (7, 3)):
        x = torch.randn(rows, 5)
        same(fast(x, n), model(x, n))


@pytest.mark.parametrize("dtype", ["int32", "int64", "bool", "float64"])
def test_other_types(dtype: str) -> None:
    def model(x: Any) -> Any:
        return torch.where(x.bool(), x, x.new_ones(())), x.long() * 3

    x = torch.arange(-6, 6).reshape(3, 4).to(getattr(torch, dtype))
    same(compiled(model)(x), model(x))


def test_numbers_that_differ_by_call_have_another_type() -> None:
    fast = compiled(lambda x, a: x * a + a)
    for a in (2.5, 3.25, -0.5):
        x = torch.randn(4, 5)
        same(fast(x, a), x * a + a)


def test_queries_have_more_heads_than_keys() -> None:
    def model(q: Any, k: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, k * 2, enable_gqa=True)

    q, k = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8)
    same(compiled(model)(q, k), model(q, k))


def test_a_loop_is_left_to_torch_by_its_name() -> None:
    def model(x: Any) -> Any:
        return torch.while_loop(
            lambda i, _: i < 3, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x)
        )

    x = torch.randn(4)
    with pytest.warns(EagerFallback, match="operators to torch: .*while_loop"):
        same(compiled(model)(x), model(x))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_fast_path_of_an_encoder_layer(norm_first: bool, activation: str) -> None:
    """torch has one operator for the whole layer where no gradients are wanted."""
    options = {"norm_first": norm_first, "activation": activation, "batch_first": True}
    model = torch.nn.TransformerEncoderLayer(16, 4, 24, **options).eval()
    x = torch.randn(2, 9, 16)
    same(compiled(model)(x), model(x))


def test_the_fast_path_with_a_mask_says_how_to_do_without_it() -> None:
    model = torch.nn.TransformerEncoderLayer(16, 4, 24, batch_first=True).eval()
    x, hidden = torch.randn(2, 9, 16), torch.arange(9).expand(2, 9) > 6
    with pytest.warns(EagerFallback, match=r"mha.set_fastpath_enabled\(False\)"):
        compiled(model)(x, src_key_padding_mask=hidden)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_a_graph_of_constants(dtype: str) -> None:
    """No argument says that the results are tensors of torch."""

    def model(x: Any) -> Any:
        return torch.arange(1, 13, dtype=getattr(torch, dtype)).reshape(3, 4) * 2, x

    x = torch.randn(2)
    same(compiled(model)(x), model(x))


def test_indices() -> None:
    table = torch.nn.Embedding(11, 3).eval()
    indices = torch.tensor([[0, 10, 3], [10, 7, 7]])
    same(compiled(table)(indices), table(indices))


def test_inputs_changed_in_place() -> None:
    def model(x: Any, y: Any) -> Any:
        x.mul_(2)
        x[0] += 1
        return torch.relu(x) + y

    x, y = torch.randn(4, 5), torch.randn(5)
    expected_x = x.clone()
    expected = model(expected_x, y)
    same(compiled(model)(x, y), expected)
    same(x, expected_x)


def test_results_share_memory_as_in_torch() -> None:
    """Views of an input and of a result stay views; equal results are separate arrays."""

    def model(x: Any) -> Any:
        y = x + 1
        return x.view(-1), y, y[1:], torch.relu(x), torch.relu(x)

    x = torch.randn(4, 5)
    same(compiled(model)(x), model(x))
    view, y, rows, one, other = compiled(model)(x)
    view[0] = 5
    assert x[0, 0] == 5
    rows[0, 0] = 7
    assert y[1, 0] == 7
    one[0, 0] = -3
    assert other[0, 0] != -3


def test_a_constant_result_is_not_the_constant() -> None:
    fast = compiled(lambda x: (x + 1, torch.arange(4) * 2))
    fast(torch.ones(2))[1].zero_()
    same(fast(torch.ones(2))[1], torch.arange(4) * 2)


class Counting(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x * self.calls


def test_a_buffer_that_the_model_changes(compilations: list[Any]) -> None:
    model = Counting().eval()
    fast = compiled(model)
    for calls in range(1, 5):
        same(fast(torch.ones(3)), torch.full((3,), float(calls)))
    assert len(compilations) == 1


def change_in_place(model: Any) -> None:
    model.linear.weight.mul_(2)


def change_data(model: Any) -> None:
    model.linear.weight.data = torch.randn(7, 5)


def change_parameter(model: Any) -> None:
    model.linear.bias = torch.nn.Parameter(torch.randn(7))


def load_weights(model: Any) -> None:
    model.load_state_dict(Dense().state_dict())


@pytest.mark.parametrize("change", [change_in_place, change_data, change_parameter, load_weights])
def test_weights_that_change(change: Callable[[Any], None], compilations: list[Any]) -> None:
    model = Dense().eval()
    fast = compiled(model)
    x = torch.randn(4, 5)
    same(fast(x), model(x))
    change(model)
    same(fast(x), model(x))
    same(fast(x), model(x))
    assert len(compilations) == 2


def test_weights_that_keep_changing_are_arguments(compilations: list[Any]) -> None:
    model = Dense().eval()
    fast = compiled(model)
    x = torch.randn(4, 5)
    for _ in range(6):
        model.linear.weight.mul_(1.5)
        same(fast(x), model(x))
    assert len(compilations) == 3
    assert len(compilations[-1].weights) == 1  # the bias


def test_one_graph_for_layers_with_weights_of_their_own() -> None:
    layers = [Dense(5, 5).eval() for _ in range(3)]
    fast = compiled(lambda layer, x: layer(x))
    x = torch.randn(4, 5)
    for _ in range(2):
        for layer in layers:
            same(fast(layer, x), layer(x))


def test_a_model_is_not_kept() -> None:
    model = Dense().eval()
    compiled(model)(torch.randn(4, 5))
    weight = weakref.ref(model.linear.weight)
    del model
    torch._dynamo.reset()
    gc.collect()
    assert weight() is None


@pytest.mark.parametrize(
    "options",
    [{}, {"is_causal": True}, {"scale": 0.3}, {"attn_mask": torch.eye(6, 6, dtype=torch.bool)}],
    ids=["plain", "causal", "scale", "mask"],
)
def test_attention(options: dict[str, Any]) -> None:
    def model(x: Any) -> Any:
        q, k, v = (x * n for n in (1, 2, 3))
        return functional.scaled_dot_product_attention(q, k, v, **options)

    x = torch.randn(2, 3, 6, 8)
    torch.testing.assert_close(compiled(model)(x), model(x), rtol=1e-5, atol=1e-5)


def test_heads_that_are_joined_after_attention() -> None:
    """torch's attention keeps the layout of its queries, so that it views what it returns."""

    def model(x: Any) -> Any:
        q, k, v = (each.unflatten(-1, (4, 8)).transpose(1, 2) for each in (x, x * 2, x * 3))
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return mixed.transpose(1, 2).reshape(x.shape) + 1

    x = torch.randn(2, 6, 32)
    same(compiled(model)(x), model(x))


def test_constant_tensors(compilations: list[Any]) -> None:
    def model(x: Any) -> Any:
        return x.index_copy(1, torch.tensor([2]), x[:, :1] * torch.tensor([[2.0], [3.0]]))

    fast = compiled(model)
    for columns in (4, 7):
        x = torch.randn(2, columns)
        same(fast(x), model(x))
    assert len(compilations) == 2


def test_inference_mode() -> None:
    with torch.inference_mode():
        model = Dense().eval()
        fast = compiled(model)
        for rows in (3, 4):
            x = torch.randn(rows, 5)
            same(fast(x), model(x))
            model.linear.weight.mul_(2)  # nothing counts this
            same(fast(x), model(x))


def test_an_operator_that_relax_does_not_know() -> None:
    with pytest.warns(EagerFallback, match=r"graph of \d+ operators to torch: .*_linalg_svd$"):
        values = compiled(lambda x: torch.linalg.svd(x)[1] + 1)(torch.eye(3))
    same(values, torch.full((3,), 2.0))


def test_a_reason_that_is_within_a_long_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch names the reason first, and then says where it was and what else to read."""

    def fail(*_arguments: Any) -> Any:
        raise RuntimeError("no such thing\n\nWhile executing %x\nUse tlparse to see full graph.")

    monkeypatch.setattr("fuse_epilogue.models.torch.operators.decomposed", fail)
    with pytest.warns(EagerFallback, match=r"program: no such thing \(RuntimeError\)$"):
        same(compiled(lambda x: x + 1)(torch.ones(3)), torch.full((3,), 2.0))


def test_gradients_are_left_to_torch() -> None:
    model = Dense().train()
    x = torch.randn(4, 5)
    with torch.enable_grad():
        with pytest.warns(EagerFallback, match=r"computes gradients: call .* torch.no_grad\(\)"):
            compiled(model)(x).sum().backward()
    assert model.linear.weight.grad is not None


@pytest.mark.filterwarnings("default")
def test_a_compiler_that_fails_changes_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: Any, **_options: Any) -> Any:
        raise RuntimeError("no machine code today")

    monkeypatch.setattr("fuse_epilogue.models.torch_backend.compile_imported", fail)
    with pytest.warns(EagerFallback, match="RuntimeError: no machine code today"):
        same(compiled(lambda x: x + 1)(torch.ones(3)), torch.full((3,), 2.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"options": {"thread": 1}}, "no option 'thread': it has target, threads"),
        ({"options": {"target": "trn1"}}, "a processor or a GPU is needed here, not trn1"),
        ({"mode": "max-autotune"}, "has no mode 'max-autotune'"),
    ],
)
def test_options_that_it_does_not_have(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        compiled(lambda x: x + 1, **options)(torch.ones(3))


def test_options_are_those_of_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    from fuse_epilogue.models import torch_backend

    asked: list[torch_backend.Options] = []
    real = torch_backend.compile_imported

    def noted(mod: Any, target: Any, options: torch_backend.Options) -> Any:
        asked.append(options)
        return real(mod, target, options)

    monkeypatch.setattr(torch_backend, "compile_imported", noted)
    options = {"threads": 1, "channels_last": False, "winograd": True}
    compiled(lambda x: x + 1, options=options)(torch.ones(3))
    assert asked == [torch_backend.Options(threads=1, channels_last=False, winograd=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", EagerFallback)
        compiled(lambda x: x + 2)(torch.ones(3))
    assert asked[1].threads == torch.get_num_threads()


@pytest.mark.parametrize("shape", [(4, 6, 5, 5), (3, 6)])
def test_batch_norm_in_training_uses_the_batch_and_updates_its_moments(shape: Any) -> None:
    def norm(x: Any, mean: Any, var: Any) -> Any:
        return functional.batch_norm(x, mean, var, training=True, momentum=0.3)

    x = torch.randn(shape) * 2 + 1
    found = [torch.zeros(6), torch.ones(6)]
    expected = [torch.zeros(6), torch.ones(6)]
    result = torch.compile(norm, backend="fuse_epilogue")(x, *found)
    aim = norm(x, *expected)
    for each, wanted in zip([result, *found], [aim, *expected], strict=True):
        torch.testing.assert_close(each, wanted, rtol=1e-5, atol=1e-5)
