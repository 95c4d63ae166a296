"""Single operators of torch, compiled: those that TVM's importer does not know or takes for others.

Each case failed, or returned something else than torch, when it was imported by TVM alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
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


def normal(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def whole(low: int, high: int, *shape: int) -> Any:
    generator = torch.Generator().manual_seed(high)
    return torch.randint(low, high, shape, generator=generator)


def compare(function: Callable[..., Any], *arguments: Any, within: float = 1e-5) -> None:
    """Within a share of the largest result, of torch's types and shapes; integers are the same."""
    module = Applied(function).eval()
    model = fuse_epilogue.compile(module, example_inputs=arguments, threads=1)
    results, expected = model(*arguments), module(*arguments)
    if isinstance(expected, torch.Tensor):
        results, expected = [results], [expected]
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected, strict=True):
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
        if wanted.dtype.is_floating_point:
            found, aim = result.double().numpy(), wanted.double().numpy()
            bound = within * np.abs(aim[np.isfinite(aim)]).max(initial=0)
            np.testing.assert_allclose(found, aim, rtol=0, atol=bound)
        else:
            np.testing.assert_array_equal(result.numpy(), wanted.numpy())


X = normal(8, 7)
CUBE = normal(4, 8, 7)
WHOLE = whole(-9, 9, 8, 7)


PROMOTED: dict[str, Callable[..., Any]] = {
    "integer_times_fraction": lambda x, i: i * 0.5,
    "integer_quotient": lambda x, i: i / 2,
    "integer_above_fraction": lambda x, i: i > 0.5,
    "fraction_minus_integer": lambda x, i: (1.0 - i) * -1e4,
    "range_times_fraction": lambda x, i: x + torch.arange(7) * 0.5,
    "choice_of_both": lambda x, i: torch.where(x > 0, x, i),
    "truncated": lambda x, i: torch.div(i, 3, rounding_mode="trunc"),
    "floored": lambda x, i: i // 3,
    "power_of_two": lambda x, i: 2 ** (i - 2),
    "scaled": lambda x, i: torch.ldexp(x, i),
    "shifted": lambda x, i: ((i + 9) >> 1, (i + 9) << 2),
    "bounds_that_contradict": lambda x, i: (x.clamp(0.5, -0.5), i.clamp(2, 1)),
    "without_sign": lambda x, i: -i.to(torch.uint8),
    "bools": lambda x, i: (x.any(1), (x > 3).any(), (i > 0).all(1)),
    "sum_of_one_constant": lambda x, i: i.reshape(56) + torch.tensor([1], dtype=torch.int64),
}


@pytest.mark.parametrize("name", PROMOTED)
def test_operands_of_several_types(name: str) -> None:
    compare(PROMOTED[name], X, WHOLE)


FACTORS: dict[str, Callable[..., Any]] = {
    "sum": lambda x, y: torch.add(x, y, alpha=2),
    "difference": lambda x, y: torch.sub(x, y, alpha=2),
    "reversed": lambda x, y: torch.rsub(x, y, alpha=3),
    "number": lambda x, y: torch.add(x, 3, alpha=2),
    "product": lambda x, y: torch.addmm(x[:, :8], x, y.T, alpha=2, beta=0.5),
}


@pytest.mark.parametrize("name", FACTORS)
def test_factors_of_operands(name: str) -> None:
    x = normal(8, 8) if name == "product" else X
    compare(FACTORS[name], x, normal(*x.shape) + 1)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "selu": functional.selu,
    "celu": lambda x: functional.celu(x, 2.0),
    "elu": lambda x: functional.elu(x * 1e-3),
    "expm1": lambda x: (torch.expm1(x), torch.expm1(x * 1e-4)),
    "log1p": lambda x: (torch.log1p(x.abs()), torch.log1p(x * 1e-4)),
    "sinh": lambda x: (torch.sinh(x), torch.sinh(x * 1e-3), torch.sinh(x * 30)),
    "cosh": lambda x: (torch.cosh(x), torch.cosh(x * 30)),
    "exp2": lambda x: (torch.exp2(x), torch.erfc(x)),
    "copysign": lambda x: torch.copysign(x, torch.tensor([-0.0, 0.0, 1, -1, 2, -2, 3])),
    "norms": lambda x: (x.norm(1, 1), x.norm(torch.inf, 1), x.norm(3), torch.norm(x, 0, 1)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_a_float(name: str) -> None:
    compare(FUNCTIONS[name], X)


INF, NAN = float("inf"), float("nan")
SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 0.5, -0.5, 2.5, -2.5, 7.75, 3, -1e-3])
PAIRS = [each.reshape(-1) for each in torch.meshgrid(SPECIAL, SPECIAL, indexing="ij")]
SPECIAL_VALUES: dict[str, Callable[..., Any]] = {
    "gamma": lambda x, y: (torch.lgamma(x), torch.digamma(x)),
    "erfinv": lambda x, y: (torch.erfinv(x), torch.erfinv(x[:196:5] * 0.39999998)),
    "signs": lambda x, y: (torch.signbit(x), torch.copysign(x, y)),
    "one_of_two": lambda x, y: (torch.fmax(x, y), torch.fmin(x, y)),
    "filled": lambda x, y: torch.where(x > 0, x, torch.full_like(x, -INF)),
    "placed": lambda x, y: torch.bucketize(x, SPECIAL[:3].sort()[0]),
    "two": lambda x, y: (torch.special.xlog1py(x, y), torch.hypot(x, y)),
    "long": lambda x, y: torch.hypot(x * 2e37, y * 2e37),
    "constant_zero": lambda x, y: (x / 0.0, x / -0.0, x // 0.0, x % 0.0, 1 / x),
}


@pytest.mark.parametrize("name", SPECIAL_VALUES)
def test_special_values(name: str) -> None:
    compare(SPECIAL_VALUES[name], *PAIRS)


def running(x: Any) -> tuple[Any, ...]:
    return (*torch.cummax(x, 1), *torch.cummin(x, 0), torch.logcumsumexp(x, 1))


def test_running_values() -> None:
    x = torch.round(2 * X)
    x[2, 3], x[4, 1], x[5, 5], x[6, 0] = NAN, INF, -INF, NAN
    compare(running, x)


EMPTY: dict[str, Callable[..., Any]] = {
    "none": lambda x: (x.sum(1), x.prod(1), x.mean(1), x.sum(), x @ x.T),
    "others": lambda x: (x.any(1), torch.cat([x, X[:3]], 1)),
    "slice": lambda x: (x[:, 5:2].sum(1), x[:, 3:3].exp().prod(1) + x[:, 0]),
}


@pytest.mark.parametrize("name", EMPTY)
def test_reductions_of_no_elements(name: str) -> None:
    compare(EMPTY[name], X if name == "slice" else torch.zeros(3, 0))


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "maxima": lambda x: (x.amax(), x.amin((1, 2)), *x.max(1, keepdim=True), *x.min(-1)),
    "product": lambda x: x.prod(1),
    "extremes": lambda x: torch.aminmax(x, dim=1),
    "logsumexp": lambda x: (x.logsumexp(-1), x.logsumexp((0, 2))),
    "moments": lambda x: torch.var_mean(x, dim=(0, 2), correction=0),
    "kth": lambda x: x.kthvalue(2, 1),
    "sorted": lambda x: (
        *torch.sort(torch.round(x), dim=-1, stable=True),
        torch.argsort(torch.round(x), dim=1, descending=True, stable=True),
    ),
    "products": lambda x: torch.addbmm(torch.ones(8, 8), x, x.mT, beta=0.5),
    "distances": lambda x: (torch.cdist(x, x + 1), torch.cdist(x, x + 1, p=1.0)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    compare(REDUCTIONS[name], CUBE)


READS: dict[str, Callable[..., Any]] = {
    "last": lambda x, i, j: (x[:, -1], x[-2], x[..., -7]),
    "below_zero": lambda x, i, j: x[:, i],
    "two": lambda x, i, j: x[i[:4] % 4, j[:4]],
    "two_behind": lambda x, i, j: x[:, i, j],
    "apart": lambda x, i, j: x[i % 4, :, j],
    "broadcast": lambda x, i, j: x[:, i[:, None], j[None]],
    "windows": lambda x, i, j: x.unfold(1, 3, 2),
    "columns": lambda x, i, j: functional.unfold(x[None], 3, stride=2),
    "sorted_rows": lambda x, i, j: (
        torch.searchsorted(x.sort(-1)[0], x[..., :3]),
        torch.searchsorted(x.sort(-1)[0], x.sort(-1)[0][..., :3], right=True),
    ),
}


@pytest.mark.parametrize("name", READS)
def test_reads_at_indices(name: str) -> None:
    compare(READS[name], CUBE, whole(-8, 8, 5), whole(-7, 7, 5))


def placed(x: Any, i: Any) -> Any:
    x = x.clone()
    x[:, torch.tensor([1, 3, -1])] = 2.0
    return x


def masked(x: Any, i: Any) -> Any:
    x = x.clone()
    x[x < 0] = 0.0
    return x


def masked_columns(x: Any, i: Any) -> Any:
    x = x.clone()
    x[:, x[0] > 0] = x[:, :1]
    return x


WRITES: dict[str, Callable[..., Any]] = {
    "placed": placed,
    "masked": masked,
    "masked_columns": masked_columns,
    "masked_rows": lambda x, i: (
        x.index_put((x[:, 0] > 0,), x[0]),
        x.index_put((x > 0,), x[:1, :1]),
    ),
    "rows": lambda x, i: x.index_copy(0, i[:3], x[:3] + 1),
    "added": lambda x, i: x.index_add(0, i.repeat(3), x.repeat(2, 1)[:15] + 1),
    "numbered": lambda x, i: x.put(i, x[0, :5]),
    "two": lambda x, i: x.index_put((i, i - 1), x[0, :5]),
    "scattered": lambda x, i: x.scatter_add(1, i[:, None].repeat(1, 2), x),
    "replaced": lambda x, i: x.scatter(1, i[:, None].repeat(1, 2), x + 1),
    "largest": lambda x, i: x.scatter_reduce(0, i[:, None].repeat(1, 7), x[3:] + 1, "amax"),
    "means": lambda x, i: x.scatter_reduce(0, i[:, None].repeat(1, 7) % 3, x[3:], "mean"),
    "means_alone": lambda x, i: x.scatter_reduce(
        0, i[:, None].repeat(1, 7) % 3, x[3:], "mean", include_self=False
    ),
    "least_rows": lambda x, i: x.index_reduce(0, i % 3, x[3:], "amin", include_self=False),
    "selected": lambda x, i: x.masked_scatter(x > 0, (x * 2).flip(0)),
    "folded": lambda x, i: functional.fold(
        torch.cat([x] * 9).reshape(2, 9, 28)[..., :16], (4, 4), 3, padding=1
    ),
    "unpooled": lambda x, i: functional.max_unpool2d(
        *functional.max_pool2d(x.reshape(1, 1, 8, 7)[..., :6], 2, return_indices=True), 2
    ),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_at_indices(name: str) -> None:
    compare(WRITES[name], X, torch.tensor([6, 0, 3, 5, 1]))


FILTER = normal(3, 4, 2, 3, 3)
IMAGES: dict[str, Callable[..., Any]] = {
    "nearest": lambda x: functional.interpolate(x, size=(7, 11)),
    "by_factor": lambda x: functional.interpolate(x, scale_factor=1.5, mode="bilinear"),
    "to_a_point": lambda x: functional.interpolate(x, (1, 4), mode="bilinear", align_corners=True),
    "smoothed": lambda x: functional.interpolate(x, (4, 5), mode="bilinear", antialias=True),
    "volume": lambda x: functional.interpolate(x[None], scale_factor=2, mode="trilinear"),
    "maxima": lambda x: (
        functional.max_pool2d(x, 3, padding=1),
        functional.max_pool3d(x, 3, padding=1),
    ),
    "places": lambda x: functional.max_pool2d(x, 3, 2, 1, return_indices=True),
    "places_of_ties": lambda x: functional.max_pool2d(
        torch.round(x), 3, 2, ceil_mode=True, return_indices=True
    ),
    "adaptive": lambda x: functional.adaptive_max_pool2d(x, (3, 4)),
    "averages": lambda x: functional.adaptive_avg_pool2d(x, (4, 3)),
    "divisor": lambda x: functional.avg_pool2d(x, 2, divisor_override=3),
    "transposed": lambda x: functional.conv_transpose3d(
        x[None].transpose(1, 2), FILTER, stride=(1, 2, 2), padding=1, output_padding=(0, 1, 0)
    ),
}


@pytest.mark.parametrize("name", IMAGES)
def test_images(name: str) -> None:
    compare(IMAGES[name], normal(2, 3, 9, 8) if name != "volume" else normal(2, 3, 5, 4))


def test_adaptive_averages_of_several_windows_have_a_kernel() -> None:
    module = Applied(lambda x: functional.adaptive_avg_pool2d(x, (4, 3))).eval()
    model = fuse_epilogue.compile(module, example_inputs=(normal(1, 2, 9, 8),), threads=1)
    assert all(each.kind != "default" for each in model.report.functions)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_samples_of_an_image(mode: str, padding: str) -> None:
    def sample(x: Any, grid: Any) -> Any:
        return functional.grid_sample(x, grid, mode, padding, align_corners=False)

    compare(sample, normal(2, 3, 8, 9), normal(2, 5, 6, 2))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_rows(mode: str) -> None:
    table = normal(20, 4)
    compare(lambda i: functional.embedding_bag(i, table, mode=mode), whole(0, 20, 5, 6))


BAG_OF_3 = torch.tensor([3, 1, 4, 3, 3, 3, 3, 3, 9, 2, 6, 5])
BAGS: dict[str, Callable[..., Any]] = {
    "sizes": lambda at, x, bag, **own: bag(BAG_OF_3, x, at, **own),
    "end": lambda at, x, bag, **own: bag(BAG_OF_3, x, at, include_last_offset=True, **own),
    "padding": lambda at, x, bag, **own: bag(BAG_OF_3, x, at, padding_idx=3, **own),
    "padding_of_one_size": lambda at, x, bag, **own: bag(
        BAG_OF_3.reshape(3, 4), x, padding_idx=3, **own
    ),
}


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("name", BAGS)
def test_bags_of_several_sizes(name: str, mode: str) -> None:
    begins = torch.tensor([0, 3, 3, 8, 12])
    bag = functional.embedding_bag
    compare(lambda at, x: BAGS[name](at, x, bag, mode=mode), begins, normal(20, 4))


def test_a_row_before_all_bags_is_refused() -> None:
    table = normal(20, 4)
    module = Applied(lambda i, at: functional.embedding_bag(i, table, at, mode="sum"))
    arguments = whole(0, 20, 6), torch.tensor([0, 2])
    model = fuse_epilogue.compile(module.eval(), example_inputs=arguments, threads=1)
    with pytest.raises(IndexError):
        model(arguments[0], torch.tensor([1, 2]))


def test_a_bilinear_layer() -> None:
    layer = torch.nn.Bilinear(5, 6, 3)
    with torch.no_grad():
        compare(lambda x, y: layer(x, y).detach(), normal(2, 4, 5), normal(2, 4, 6))


NARROW: dict[str, Callable[..., Any]] = {
    "linear": lambda x, w, b: functional.linear(x, w, b),
    "product": lambda x, w, b: x @ w.T,
    "mean": lambda x, w, b: x.mean(-1),
    "normalised": lambda x, w, b: functional.layer_norm(x, (512,)),
    "convolution": lambda x, w, b: functional.conv1d(x[None, :, :64], w[:, :8, None], b),
    "power": lambda x, w, b: (x.abs() ** 2.5, 2**x),
    "attention": lambda x, w, b: functional.scaled_dot_product_attention(
        *[x.reshape(1, 4, 64, 16)[:, :, :10]] * 3
    ),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", NARROW)
def test_floats_of_16_bits_are_summed_in_32(name: str, dtype: Any) -> None:
    # The last digit of a result may be rounded the other way.
    digit = torch.finfo(dtype).eps
    values = [normal(8, 512).to(dtype), normal(9, 512).to(dtype), normal(9).to(dtype)]
    compare(NARROW[name], *values, within=1.01 * digit)


def test_a_linear_layer_in_64_bits() -> None:
    values = [normal(*shape).double() for shape in ((3, 9), (5, 9), (5,))]
    compare(functional.linear, *values, within=1e-14)


REFUSED: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "convolution": (
        lambda x: functional.conv1d(x, x),
        normal(3, 3, 3).double(),
        "convolution in float64",
    ),
    "places": (
        lambda x: functional.adaptive_max_pool2d(x, 2, return_indices=True),
        CUBE,
        "indices that adaptive_max_pool2d returns",
    ),
    "dropout": (functional.dropout, X, "dropout in inference draws random numbers"),
    "power": (lambda i: 3**i, whole(0, 9, 6), "integer base other than 2"),
    "powers": (lambda i: i**i, whole(0, 9, 6), "integer base other than 2"),
    "masked": (
        lambda x: x.index_put((x[:, 0] > 0,), x),
        X,
        "index_put by a mask",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_computed_otherwise_is_refused(name: str) -> None:
    function, x, message = REFUSED[name]
    with pytest.raises(ImportRefusal, match=message):
        fuse_epilogue.compile(Applied(function).eval(), example_inputs=(x,))


def test_a_division_of_integers_by_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="divides integers by the constant 0"):
        fuse_epilogue.compile(Applied(lambda i: i // 0).eval(), example_inputs=(WHOLE,))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            lambda x, relax: relax.op.sum(x, 1),
            r"aten.neg.default is imported with the shape \(8,\)",
        ),
        (lambda x, relax: relax.op.astype(x, "int64"), "with the type int64 instead of float32"),
    ],
    ids=["shape", "type"],
)
def test_an_operator_that_becomes_another_is_refused(
    monkeypatch: pytest.MonkeyPatch, made: Any, message: str
) -> None:
    from tvm import relax

    from fuse_epilogue.models.torch import operators

    known = operators.converters()
    wrong = lambda node, importer: made(importer.env[node.args[0]], relax)  # noqa: E731
    monkeypatch.setattr(operators, "converters", lambda: {**known, "neg.default": wrong})
    with pytest.raises(ImportRefusal, match=message):
        fuse_epilogue.compile(Applied(lambda x: -x).eval(), example_inputs=(X,))
