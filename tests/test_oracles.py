"""The oracles notice what they are there to notice: each wrong build here must be caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import tirx
from tvm.script import tirx as T

from oracles import (
    SPECIAL,
    assert_identical,
    assert_within_rounding,
    check_fused,
    check_identical,
    check_unfused,
    compile_together,
    fused,
    garbage,
    make,
    make_inputs,
    reduction_length,
    rounding_bound,
    run,
    without_threads,
)
from programs import BY_NAME, Case
from programs.builders import M, N, matmul_then

FLOATS = {"acc": "float32", "src": "float32"}


def biased(**types: str) -> Case:
    """A product plus C, the program that the wrong ones pretend to be."""
    return Case(
        name="biased",
        func=matmul_then(lambda t, C, E, S, i, j: t + C[i, j], **types),
        reference=lambda A, B, C, E, S: (
            (A if types.get("acc") == "float32" else A.astype("int32")) @ B.T + C
        ),
    )


def pretend(case: Case, wrong: Callable[..., Any], **more: Any) -> None:
    """Check `case` with another program in the place of the fused one."""
    built = compile_together({"right": case.func, "wrong": matmul_then(wrong, **more).func})
    check_fused(case, built["right"], built["wrong"])


# Wrong in one element; off by one; without the bias; with the bias in the place of another.
WRONG: dict[str, Callable[..., Any]] = {
    "one_element": lambda t, C, E, S, i, j: (
        t + C[i, j] + T.Select(tirx.all(i == M - 1, j == N - 1), T.int32(1), T.int32(0))
    ),
    "no_bias": lambda t, C, E, S, i, j: t,
    "bias_twice": lambda t, C, E, S, i, j: t + C[i, j] * 2,
    "shifted_bias": lambda t, C, E, S, i, j: t + C[(i + 1) % M, j],
    "saturated": lambda t, C, E, S, i, j: T.max(t + C[i, j], -(2**30)),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_integer_program_is_caught(wrong: str) -> None:
    with pytest.raises(AssertionError):
        pretend(biased(), WRONG[wrong])


def test_the_right_program_passes() -> None:
    pretend(biased(), lambda t, C, E, S, i, j: C[i, j] + t)
    pretend(biased(**FLOATS), lambda t, C, E, S, i, j: C[i, j] + t, **FLOATS)


def test_a_small_rounding_error_is_caught() -> None:
    """Exact data do not see a relative error of 1e-5, the rounding bound does."""
    with pytest.raises(AssertionError, match="is off by"):
        pretend(
            biased(**FLOATS),
            lambda t, C, E, S, i, j: t + C[i, j] + (C[i, j] - T.round(C[i, j])) * T.float32(1e-4),
            **FLOATS,
        )


def test_a_swallowed_infinity_is_caught() -> None:
    with pytest.raises(AssertionError, match="infinities|NaN"):
        pretend(
            biased(**FLOATS),
            lambda t, C, E, S, i, j: T.max(T.min(t + C[i, j], T.float32(1e30)), T.float32(-1e30)),
            **FLOATS,
        )


def test_a_wrong_activation_is_caught() -> None:
    """Where the reference is approximate, the bound still sees one part in ten thousand."""
    case = BY_NAME["sigmoid_of_the_biased_sum"]
    wrong = matmul_then(
        lambda t, C, E, S, i, j: T.sigmoid(t + C[i, j]) * T.float32(1.0001), **FLOATS
    ).func
    built = compile_together({"right": case.func, "wrong": wrong})
    inputs = make_inputs(case, "normal", {})
    assert_within_rounding(case, run(built["right"], case, inputs, {}), inputs, {})
    with pytest.raises(AssertionError, match="is off by"):
        assert_within_rounding(case, run(built["wrong"], case, inputs, {}), inputs, {})


def test_a_reassociated_sum_is_not_identical() -> None:
    case = BY_NAME["float_two_biases"]
    built = compile_together({"before": case.func, "after": fused(case.name)[0].mod["main"]})
    check_fused(case, built["before"], built["after"])
    with pytest.raises(AssertionError, match="bits"):
        check_identical(case, built["before"], built["after"])


@pytest.mark.parametrize(
    ("one", "other"), [(0.0, -0.0), (1e-45, 0.0), (1.0, 1.0 + 2**-23), (np.inf, np.nan)]
)
def test_other_bits_are_not_identical(one: float, other: float) -> None:
    with pytest.raises(AssertionError):
        assert_identical(np.float32([2, one]), np.float32([2, other]), "")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_nan_is_nan_and_bits_are_bits(dtype: str) -> None:
    values = np.array([np.nan, -0.0, np.inf, 1.5]).astype(dtype)
    assert_identical(values, values.copy(), "")
    assert_identical(values, -1 * -values, "")
    with pytest.raises(AssertionError):
        assert_identical(values, np.abs(values), "")


def test_an_unwritten_element_is_caught() -> None:
    case = BY_NAME["half_of_the_rows"]
    whole = Case(
        name=case.name, func=case.func, reference=lambda A, B, C: A.astype("int32") @ B.T + C
    )
    built = compile_together({"f": case.func})
    with pytest.raises(AssertionError):
        check_unfused(whole, built["f"])


def test_garbage_is_nothing_a_program_would_write() -> None:
    assert np.isnan(garbage("float32", (2, 3))).all()
    assert np.isnan(garbage("float16", ())).all()
    assert (garbage("int32", (2,)) == np.int32(-0x5A5A5A5B)).all()


def test_data_of_each_kind() -> None:
    rng = np.random.default_rng(0)
    exact = make("exact", "float32", (1000,), rng)
    assert (exact == np.round(exact)).all()
    assert exact.min() < 0 < exact.max()
    whole = make("exact", "int8", (1000,), rng)
    assert (whole.min(), whole.max()) == (-128, 127)
    nasty = make("nasty", "float32", (1000,), rng)
    assert np.isnan(nasty).any()
    assert np.isposinf(nasty).any()
    assert np.isneginf(nasty).any()
    assert (np.signbit(nasty) & (nasty == 0)).any()
    assert ((nasty != 0) & (np.abs(nasty) < np.finfo("float32").tiny)).any()


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_only_the_special_values_that_are_wanted(special: str, dtype: str) -> None:
    data = make("nasty", dtype, (1000,), np.random.default_rng(0), special).astype("float64")
    smallest = np.nanmin(np.abs(data[data != 0]))
    assert np.isnan(data).any() == (special in {"all", "no denormals"})
    assert np.isinf(data).any() == (special != "finite")
    assert (smallest < 1e-7) == (special != "no denormals")
    assert (np.signbit(data) & (data == 0)).any()


def test_the_bound_grows_with_the_number_of_terms() -> None:
    case = BY_NAME["tile_symbolic"]
    small, large = ({"n": 2, "m": 2, "k": k} for k in (2, 200))
    assert reduction_length(case, large) == 100 * reduction_length(case, small)
    tight = rounding_bound(case, make_inputs(case, "normal", small), small)["D"]
    loose = rounding_bound(case, make_inputs(case, "normal", large), large)["D"]
    assert 0 < tight.max() < loose.min() < 1e-2


def test_threads_become_loops() -> None:
    bound = BY_NAME["bind_to_threads"].scheduled().mod["main"]
    assert "thread_binding" in bound.script()
    assert "thread_binding" not in without_threads(bound).script()
