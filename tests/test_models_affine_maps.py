"""Chains of additions and multiplications by constants become one of each, where that is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

import fuse_epilogue
from fuse_epilogue.models.graph.affine_maps import FoldAffineMaps
from fuse_epilogue.schedules import host
from test_models_reshapes import X, module, operators, run

op = relax.op
Body = Callable[[Any, Any], Any]


def constant(*values: float, dtype: str = "float32") -> Any:
    return relax.const(np.array(values, dtype).reshape(-1, 1), dtype)


MEAN, DEVIATION = constant(1, -2, 3), constant(2, 4, 0.5)
GAMMA, BETA = constant(1, -3, 2), constant(-1, 0, 5)


def normalised(emit: Any, x: Any, mean: Any = MEAN, gamma: Any = GAMMA) -> Any:
    away = emit(op.divide(emit(op.subtract(x, mean)), DEVIATION))
    return emit(op.add(emit(op.multiply(away, gamma)), BETA))


def of_pixels(emit: Any, x: Any) -> Any:
    """Three operators, of one number and of one for each row."""
    scaled = emit(op.multiply(x, relax.const(np.float32(0.5))))
    return emit(op.divide(emit(op.subtract(scaled, MEAN)), DEVIATION))


def negated(emit: Any, x: Any) -> Any:
    return emit(op.multiply(emit(op.subtract(BETA, emit(op.negative(x)))), DEVIATION))


def between_others(emit: Any, x: Any) -> Any:
    return emit(op.nn.relu(normalised(emit, emit(op.nn.relu(x)))))


@pytest.mark.parametrize(
    ("body", "left"),
    [
        (normalised, ["multiply", "add"]),
        (of_pixels, ["multiply", "add"]),
        (negated, ["multiply", "add"]),
        (between_others, ["nn.relu", "multiply", "add", "nn.relu"]),
    ],
)
def test_chains_are_folded(body: Body, left: list[str]) -> None:
    before = module(body)
    after = FoldAffineMaps()(before)
    assert operators(after) == left
    # Of whole numbers and factors that are powers of two, or whole, both are exact.
    x = np.random.default_rng(0).integers(-9, 9, X).astype("float32")
    assert np.array_equal(run(after, x), run(before, x))


def test_infinities_and_nan_come_out_as_before() -> None:
    before = module(lambda emit, x: normalised(emit, x, gamma=constant(0, -3, 2)))
    after = FoldAffineMaps()(before)
    assert operators(after) == ["multiply", "add"]
    x = np.random.default_rng(0).integers(-9, 9, X).astype("float32")
    x[:, :, 0], x[:, :, 1], x[:, :, 2] = np.inf, -np.inf, np.nan
    assert np.array_equal(run(after, x), run(before, x), equal_nan=True)


def test_a_large_mean_is_taken_off_first() -> None:
    """Near it, `x * a` and `b` have no common digits left: the difference has."""
    mean = 2.0**20
    before = module(lambda emit, x: normalised(emit, x, mean=constant(mean, mean, mean)))
    after = FoldAffineMaps()(before)
    assert operators(after) == ["add", "multiply", "add"]
    x = np.random.default_rng(0).integers(-9, 9, X).astype("float32") / 16 + np.float32(mean)
    assert np.array_equal(run(after, x), run(before, x))


def shared(emit: Any, x: Any) -> Any:
    away = emit(op.divide(emit(op.subtract(x, MEAN)), DEVIATION))
    return emit(op.add(emit(op.exp(away)), emit(op.add(emit(op.multiply(away, GAMMA)), BETA))))


def alone(emit: Any, x: Any) -> Any:
    return emit(op.divide(x, DEVIATION))


def rounds(emit: Any, x: Any) -> Any:
    """Adding and subtracting 1.5 * 2^23 rounds to whole numbers."""
    large = relax.const(np.float32(1.5 * 2**23))
    return emit(op.subtract(emit(op.add(x, large)), large))


def saturates(emit: Any, x: Any) -> Any:
    large = relax.const(np.float32(2.0**100))
    return emit(op.divide(emit(op.multiply(x, large)), large))


def grows(emit: Any, x: Any) -> Any:
    """The product of both constants has more elements than either."""
    row = relax.const(np.arange(1, 5, dtype="float32"))
    both = emit(op.multiply(emit(op.multiply(x, row)), GAMMA))
    return emit(op.multiply(both, row))


def widens(emit: Any, x: Any) -> Any:
    """The constant has an axis that the value has not."""
    more = relax.const(np.arange(1, 6, dtype="float32").reshape(5, 1, 1, 1))
    return emit(op.divide(emit(op.multiply(x, more)), more))


def by_zero(emit: Any, x: Any) -> Any:
    return emit(op.divide(emit(op.subtract(x, MEAN)), constant(1, 0, 2)))


def of_half(emit: Any, x: Any) -> Any:
    half = emit(op.astype(x, "float16"))
    away = emit(op.subtract(half, constant(1, 2, 3, dtype="float16")))
    return emit(op.astype(emit(op.divide(away, constant(2, 4, 8, dtype="float16"))), "float32"))


def quantised(emit: Any, x: Any) -> Any:
    scaled = emit(op.multiply(x, relax.const(np.float32(0.1))))
    return emit(op.round(emit(op.divide(scaled, relax.const(np.float32(0.3))))))


@pytest.mark.parametrize(
    "body",
    [alone, rounds, saturates, grows, by_zero, of_half, quantised],
    ids=lambda body: body.__name__,
)
def test_others_stay(body: Body) -> None:
    before = module(body)
    assert operators(FoldAffineMaps()(before)) == operators(before)


def test_what_others_read_stays() -> None:
    """The first two steps become one map, the last two another."""
    before = module(shared)
    after = FoldAffineMaps()(before)
    assert operators(after) == ["multiply", "add", "exp", "multiply", "add", "add"]
    x = np.random.default_rng(0).integers(-9, 9, X).astype("float32")
    np.testing.assert_allclose(run(after, x), run(before, x), rtol=1e-6)


def test_a_constant_with_more_axes_is_not_taken_in() -> None:
    before = module(widens)
    assert operators(FoldAffineMaps()(before)) == ["multiply", "divide"]


@pytest.mark.full
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_batch_norms_before_and_after_other_layers(dims: int) -> None:
    """Those that no convolution takes in have two operators left, and are right."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    norms = [getattr(torch.nn, f"BatchNorm{dims}d")(6) for _ in range(2)]
    for norm in norms:
        for value, low, high in (
            (norm.weight, 0.5, 1.5),
            (norm.bias, -0.5, 0.5),
            (norm.running_mean, -0.5, 0.5),
            (norm.running_var, 0.5, 1.5),
        ):
            torch.nn.init.uniform_(value, low, high)
    conv = getattr(torch.nn, f"Conv{dims}d")(6, 6, 3)
    layers = torch.nn.Sequential(norms[0], torch.nn.ReLU(), conv, norms[1]).eval()
    x = torch.randn(2, 6, *[5] * dims)
    made = fuse_epilogue.compile(layers, host(1), example_inputs=(x,))
    names = " ".join(each.name for each in made.report.functions)
    assert "divide" not in names and "subtract" not in names
    expected = layers(x).detach().numpy()
    np.testing.assert_allclose(made(x).numpy(), expected, atol=1e-5 * abs(expected).max())
