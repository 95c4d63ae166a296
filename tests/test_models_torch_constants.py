"""Arguments and results of torch modules that are no tensors, and operators of numbers alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fuse_epilogue
from fuse_epilogue.models import ImportRefusal

torch = pytest.importorskip("torch", reason="the models are modules of PyTorch: install torch")
functional = torch.nn.functional

pytestmark = [pytest.mark.full, pytest.mark.slow]


class Applied(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def compiled(function: Callable[..., Any], *arguments: Any) -> Any:
    return fuse_epilogue.compile(Applied(function).eval(), example_inputs=arguments, threads=1)


X = torch.arange(-6.0, 6.0).reshape(3, 4)


def test_arguments_that_are_no_tensors_are_in_the_model() -> None:
    def function(x: Any, mask: Any, factor: int, y: Any) -> Any:
        return (x if mask is None else x * mask) * factor + y

    model = compiled(function, X, None, 3, X + 1)
    assert len(model.signature.inputs) == 2
    assert torch.equal(model(X, X + 1), function(X, None, 3, X + 1))


def test_results_that_are_none_are_left_out() -> None:
    found = compiled(lambda x: (x + 1, None, {"twice": x * 2}), X)(X)
    assert [each.tolist() for each in found] == [(X + 1).tolist(), (X * 2).tolist()]


def test_a_result_that_is_a_number_is_refused() -> None:
    with pytest.raises(ImportRefusal, match="result that is 3 is not supported"):
        compiled(lambda x: (x, 3), X)


class Box:
    """A result that is not made of tensors, as far as torch knows."""

    def __init__(self, content: Any) -> None:
        self.content = content


def test_a_result_of_an_unknown_class_is_refused_with_a_way_out() -> None:
    with pytest.raises(ImportRefusal, match="Box'> in output.*; return tensors, for a model of"):
        compiled(Box, X)


def test_a_branch_on_values_is_refused_with_a_way_out() -> None:
    with pytest.raises(ImportRefusal, match=r"data-dependent .*; torch.compile\(model, backend="):
        compiled(lambda x: x if x.sum() > 0 else -x, X)


def test_operators_of_numbers_are_computed_once() -> None:
    def pairs(x: Any) -> Any:
        i, j = torch.tril_indices(3, 4)
        return x[i, j] + torch.hann_window(len(i))

    assert torch.allclose(compiled(pairs, X)(X), pairs(X), rtol=0, atol=1e-6)


def test_ranges_that_count_down_or_by_fractions() -> None:
    def function(x: Any) -> Any:
        return x + torch.arange(8, 0, -2), x + torch.arange(0.0, 1.0, 0.25), x + torch.arange(4)

    model = compiled(function, X)
    for found, expected in zip(model(X), function(X), strict=True):
        assert torch.allclose(found, expected, rtol=0, atol=1e-6)


def test_an_empty_vector_beside_tensors_of_any_shape() -> None:
    """A cache of keys that holds none yet."""

    def function(x: Any) -> Any:
        return torch.cat([torch.tensor([]), x, x], 1), torch.cat([torch.tensor([]), x[0]])

    for found, expected in zip(compiled(function, X)(X), function(X), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("axis", [None, 1])
def test_values_rounded_as_if_they_were_quantised(axis: int | None) -> None:
    def function(x: Any) -> Any:
        if axis is None:
            return torch.fake_quantize_per_tensor_affine(x, 0.3, 2, -8, 7)
        scales = torch.tensor([0.1, 0.3, 0.5, 2.0])
        zeros = torch.tensor([0, 1, 2, -1], dtype=torch.int32)
        return torch.fake_quantize_per_channel_affine(x, scales, zeros, axis, -8, 7)

    assert torch.allclose(compiled(function, X)(X), function(X), rtol=0, atol=1e-6)


def test_a_normalisation_in_64_bits() -> None:
    x = X.double() + 0.1
    layer = torch.nn.LayerNorm(4).double()
    with torch.no_grad():
        layer.weight.copy_(x[0])
        expected = layer(x)
    model = fuse_epilogue.compile(layer.eval(), example_inputs=(x,), threads=1)
    assert torch.allclose(model(x), expected, rtol=0, atol=1e-14)


NORMS: dict[str, Callable[[Any], Any]] = {
    "groups": lambda x: functional.group_norm(x, 2),
    "groups-with-factors": lambda x: functional.group_norm(x, 2, x[0, :, 0], x[1, :, 0]),
    "images": functional.instance_norm,
    "batch": lambda x: functional.batch_norm(x, None, None, x[0, :, 0], x[1, :, 0], True),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_normalisations_without_factors_and_in_64_bits(name: str, dtype: Any) -> None:
    x = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0)).to(dtype)
    result = compiled(NORMS[name], x)(x)
    assert result.dtype == dtype
    bound = 1e-5 if dtype is torch.float32 else 1e-13
    assert torch.allclose(result, NORMS[name](x), rtol=0, atol=bound)


@pytest.mark.parametrize("name", NORMS)
def test_normalisations_far_from_zero(name: str) -> None:
    # The mean of the squares less the square of the mean would be negative here.
    x = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0)) + 1e4
    factors = {"groups-with-factors": 1e4, "batch": 1e4}.get(name, 1.0)
    expected = NORMS[name](x.double())
    error = (compiled(NORMS[name], x)(x).double() - expected).abs().max() / factors
    assert error < 5e-3


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "complex": (lambda x: torch.fft.fft(x).abs(), r"aten._fft_r2c \(complex numbers\)"),
    "random": (torch.rand_like, r"aten.rand_like \(random numbers\)"),
    "random-numbers-alone": (lambda x: x + torch.rand(4), r"aten.rand \(random numbers\)"),
    "size": (torch.nonzero, r"aten.nonzero \(its size depends on data\)"),
    "unknown": (
        lambda x: x.mode(-1).values,
        "aten.mode; compute that outside of the model",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_operators_without_a_twin_are_named_with_a_way_out(name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(ImportRefusal, match=message):
        compiled(function, X)
