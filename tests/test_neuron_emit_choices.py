"""Choices that data make on Trainium: a comparison, and a copy where it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import prim

from fuse_epilogue import schedules
from fuse_epilogue.neuron import EmitError, emit

SHAPE = (5, 300)
Element = Callable[[Any, Any], Any]


def kernel(element: Element, dtype: str = "float32") -> Any:
    x, y = te.placeholder(SHAPE, dtype, "x"), te.placeholder(SHAPE, dtype, "y")
    out = te.compute(SHAPE, lambda i, j: element(x[i, j], y[i, j]), "out")
    made = emit(schedules.apply(te.create_prim_func([x, y, out]), "trn2"))
    for machine in ("trn1", "trn2", "trn3"):
        made.check(machine)
    return made


def arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    x, y = (rng.integers(-3, 4, SHAPE).astype("float32") for _ in range(2))
    x[0, :6] = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-40]
    return [x, y]


CASES: dict[str, tuple[Element, Callable[..., Any]]] = {
    "less": (lambda x, y: tirx.Select(x < y, x, y), lambda x, y: np.where(x < y, x, y)),
    "equal": (lambda x, y: tirx.Select(x.equal(y), 1.0, x), lambda x, y: np.where(x == y, 1, x)),
    "constant": (
        lambda x, y: tirx.Select(x > 1.0, y * 2.0, x + 1.0),
        lambda x, y: np.where(x > 1, y * 2, x + 1),
    ),
    "both": (
        lambda x, y: tirx.Select(tirx.all(x < y, y <= 2.0), y, 7.0),
        lambda x, y: np.where((x < y) & (y <= 2), y, 7),
    ),
    "either": (
        lambda x, y: tirx.Select(tirx.any(x < y, y > 2.0), y, x),
        lambda x, y: np.where((x < y) | (y > 2), y, x),
    ),
    "nested": (
        lambda x, y: tirx.Select(x < y, tirx.Select(x > 0.0, x, 5.0), tirx.abs(y)),
        lambda x, y: np.where(x < y, np.where(x > 0, x, 5), np.abs(y)),
    ),
    "inside": (
        lambda x, y: tirx.Select(x < y, x, y) * y + 1.0,
        lambda x, y: np.where(x < y, x, y) * y + 1,
    ),
    "as_number": (
        lambda x, y: prim.Cast("float32", x < y) * 3.0,
        lambda x, y: (x < y) * np.float32(3),
    ),
    "as_integer": (
        lambda x, y: tirx.Select(prim.Cast("int64", x < y) > prim.IntImm("int64", 0), x, y),
        lambda x, y: np.where(x < y, x, y),
    ),
    "not_as_integer": (
        lambda x, y: tirx.Select(prim.Cast("int8", x < y).equal(prim.IntImm("int8", 0)), x, y),
        lambda x, y: np.where(x < y, y, x),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_right_one_is_chosen(name: str) -> None:
    element, expected = CASES[name]
    x, y = arrays()
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(kernel(element)(x, y), expected(x, y))


def test_a_value_that_is_not_chosen_does_not_count() -> None:
    """Softplus as frameworks write it: beyond 20, the exponential is infinite."""
    made = kernel(lambda x, _: tirx.Select(x > 20.0, x, te.log(te.exp(x) + 1.0)))
    x, y = arrays()
    x[1] = np.linspace(-100, 1000, SHAPE[1])
    got = made(x, y)[1]
    np.testing.assert_allclose(got, np.logaddexp(0, x[1].astype("float64")), atol=1e-6)


def test_narrow_types_are_chosen_as_they_are() -> None:
    import ml_dtypes

    made = kernel(lambda x, y: tirx.Select(x < y, x, y), "bfloat16")
    x, y = (each.astype(ml_dtypes.bfloat16) for each in arrays())
    assert made(x, y).tobytes() == np.where(x < y, x, y).tobytes()
    assert "tensor_copy_predicated" in made.source
    assert "nl.uint8" in made.source


def test_comparisons_of_integers_are_refused() -> None:
    x = te.placeholder(SHAPE, "int32", "x")
    y = te.placeholder(SHAPE, "float32", "y")
    out = te.compute(SHAPE, lambda i, j: tirx.Select(x[i, j] > 0, y[i, j], 0.0), "out")
    with pytest.raises((ValueError, EmitError), match="no schedule"):
        schedules.apply(te.create_prim_func([x, y, out]), "trn2")
