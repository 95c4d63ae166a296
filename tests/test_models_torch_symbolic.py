"""Operators of torch on axes whose size differs from call to call, beside torch itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fuse_epilogue

torch = pytest.importorskip("torch", reason="the models are of torch: install torch")
functional = torch.nn.functional
pytestmark = [pytest.mark.full, pytest.mark.slow]


def attention(x: Any) -> Any:
    """Attention of new rows to themselves and as many before, behind a mask of their number."""
    rows, keys = x.shape[1], torch.cat([x * 2, x], 1)[:, None]
    visible = torch.ones(rows, keys.shape[2], dtype=torch.bool).tril(rows)
    return functional.scaled_dot_product_attention(x[:, None], keys, keys, attn_mask=visible)


def differences(x: Any) -> Any:
    """Whether a position follows the one before, as masks of packed sequences ask."""
    places = torch.arange(x.shape[1])[None].expand(x.shape[0], -1)
    steps = torch.cat([places[:, :1] - 1, places], -1).diff(dim=-1)
    return x[torch.arange(x.shape[0])[:, None], steps] * (steps != 1).cumsum(-1)[..., None]


def table(x: Any) -> Any:
    return torch.arange(64 * 6, dtype=x.dtype).reshape(1, 64, 6)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "the last row": lambda x: x[:, -1],
    "one before": lambda x: x[:, -3],
    "a share": lambda x: x.sum(1) / x.shape[1] - 2 * x.numel(),
    "deviation": lambda x: (x.std(1), x.var((0, 1), correction=0)),
    "attention to what was before": attention,
    "differences of neighbours": differences,
    "slices": lambda x: (x[:, 1:] * x[:, :-1], x[:, :2] + x[:, -2:], x[:, ::2]),
    "the beginning of a table": lambda x: (
        x + table(x)[:, : x.shape[1]],
        table(x)[:, : x.shape[1]],
    ),
    "rows by their numbers": lambda x: (
        x[torch.arange(x.shape[0]), -1],
        x[torch.arange(x.shape[0]), x[:, :, 0].argmax(1)],
        x[torch.arange(x.shape[0])[:, None], torch.tensor([0, -2])],
        x[:, torch.tensor([0, -1])],
        x[:, :, torch.tensor([0, -1])],
        x.index_put((torch.arange(x.shape[0]), torch.tensor(1)), x[:, 0] + 1),
    ),
}


class Function(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sizes_that_differ_from_call_to_call(name: str) -> None:
    module = Function(FUNCTIONS[name]).eval()
    sizes = {0: torch.export.Dim("b"), 1: torch.export.Dim("n", min=4, max=64)}
    compiled = fuse_epilogue.compile(
        module,
        threads=1,
        example_inputs=(torch.zeros(3, 5, 6),),
        dynamic_shapes=(sizes,),
        sizes={"b": 1, "n": 8},
    )
    for batch, rows in ((3, 5), (1, 8), (2, 33)):
        x = torch.randn(batch, rows, 6, generator=torch.Generator().manual_seed(rows))
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-5, atol=1e-6)


class Unet(torch.nn.Module):  # type: ignore[misc]
    """Halves images, and brings them back to their size in three ways."""

    def __init__(self) -> None:
        super().__init__()
        self.down = torch.nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.up = torch.nn.ConvTranspose2d(4, 4, 4, stride=2, padding=1)
        self.out = torch.nn.Conv2d(19, 2, 3, padding=1)

    def forward(self, x: Any) -> Any:
        y = self.down(x).relu()
        z = functional.max_pool2d(x, 2)
        ways = (
            self.up(y),
            functional.interpolate(y, scale_factor=2),
            functional.interpolate(y, scale_factor=2, mode="bilinear"),
            functional.interpolate(torch.cat([y, z], 1)[:, :4], size=x.shape[2:]),
        )
        return self.out(torch.cat([x, *ways], 1)), z.mean((2, 3))


def test_images_of_a_multiple_of_a_size() -> None:
    module = Unet().eval()
    h, w = (torch.export.Dim(name, min=1, max=64) for name in "hw")
    compiled = fuse_epilogue.compile(
        module,
        threads=1,
        example_inputs=(torch.zeros(1, 3, 8, 6),),
        dynamic_shapes=({2: 2 * h, 3: 2 * w},),
        sizes={"h": 3, "w": 4},
    )
    assert str(compiled.signature.inputs[0]) == "x: float32[1, 3, 2*h, 2*w]"
    for shape in ((6, 8), (2, 2), (10, 34), (4, 2)):
        x = torch.randn(1, 3, *shape, generator=torch.Generator().manual_seed(shape[0]))
        for one, other in zip(compiled(x), module(x), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    for shape in ((5, 4), (4, 5)):
        with pytest.raises(ValueError, match=r"not \(1, 3, 2\*h, 2\*w\)"):
            compiled(torch.zeros(1, 3, *shape))


def test_sequences_of_a_size_and_a_number() -> None:
    """Of an input of n + 1 elements, also where another has twice as many as n."""

    def function(x: Any, y: Any) -> Any:
        return (x[1:] - x[:-1], *y.chunk(2), y.reshape(2, -1).sum(0) + x[1:])

    class Two(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, y: Any) -> Any:
            return function(x, y)

    n = torch.export.Dim("n", min=1, max=64)
    compiled = fuse_epilogue.compile(
        Two().eval(),
        threads=1,
        example_inputs=(torch.zeros(6), torch.zeros(10)),
        dynamic_shapes=({0: n + 1}, {0: 2 * n}),
    )
    for size in (5, 1, 33):
        x, y = torch.randn(size + 1), torch.randn(2 * size)
        for one, other in zip(compiled(x, y), function(x, y), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"argument 1 of .* not \(2\*n\) with {'n': 5}"):
        compiled(torch.zeros(6), torch.zeros(12))


RESIZED: dict[str, Callable[[Any], Any]] = {
    "factors": lambda x: (
        functional.interpolate(x, scale_factor=1.5),
        functional.interpolate(x, scale_factor=(1.25, 2.25)),
        functional.interpolate(x, scale_factor=(0.5, 1.25), mode="bilinear"),
        functional.interpolate(x, scale_factor=3, mode="bilinear", align_corners=True),
    ),
    "sizes": lambda x: (
        functional.interpolate(x, size=(7, 9)),
        functional.interpolate(x, size=(7, 9), mode="bilinear"),
        functional.interpolate(x, size=(1, 9), mode="bilinear", align_corners=True),
        functional.interpolate(x[:, :, ::2, 1:], size=x.shape[2:], mode="bilinear"),
    ),
}


@pytest.mark.parametrize("name", RESIZED)
def test_images_of_any_size_are_resized_as_torch_does(name: str) -> None:
    module = Function(RESIZED[name]).eval()
    sizes = {2: torch.export.Dim("h", min=4, max=64), 3: torch.export.Dim("w", min=3, max=64)}
    compiled = fuse_epilogue.compile(
        module,
        threads=1,
        example_inputs=(torch.zeros(1, 2, 8, 6),),
        dynamic_shapes=(sizes,),
    )
    for shape in ((8, 6), (4, 3), (5, 17), (64, 7)):
        x = torch.randn(1, 2, *shape, generator=torch.Generator().manual_seed(shape[1]))
        for one, other in zip(compiled(x), module(x), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_a_size_that_torch_cannot_export_is_named() -> None:
    sizes = {1: torch.export.Dim("n", max=64)}
    with pytest.raises(ValueError, match=r"Not all values of n .* say with torch.export.Dim\("):
        fuse_epilogue.compile(
            Function(lambda x: x[:, 1:].sum(1) if x.shape[1] > 3 else x).eval(),
            example_inputs=(torch.zeros(3, 5),),
            dynamic_shapes=(sizes,),
        )


def test_axes_without_elements() -> None:
    """A sum of nothing is 0, and a scan of nothing reads nothing."""

    def function(x: Any) -> Any:
        totals = x.sum(0), x.prod(0), (x > 0).any(0), x[:, 0].T @ x[:, 1]
        return *totals, x.cumsum(0), x + 1, torch.cat([x, torch.ones(2, 4, 6)])

    module = Function(function).eval()
    compiled = fuse_epilogue.compile(
        module,
        threads=1,
        example_inputs=(torch.zeros(3, 4, 6),),
        dynamic_shapes=({0: torch.export.Dim("b", min=0, max=64)},),
    )
    for count in (5, 0, 1):
        x = torch.randn(count, 4, 6, generator=torch.Generator().manual_seed(count))
        for given in (x, x.numpy()):
            for one, other in zip(compiled(given), module(x), strict=True):
                torch.testing.assert_close(torch.as_tensor(one), other, rtol=1e-5, atol=1e-5)
