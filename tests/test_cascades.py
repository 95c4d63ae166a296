"""Programs with cascades: their formulas say what they compute, within the bound of rounding."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from cascades import ACCEPT, BY_NAME, CASES, Cascade
from cascades.bounded import Bounded, Rules, exactly, expand
from cascades.data import hard_rows, inputs, run
from cascades.judge import judge
from oracles import compile_together


@cache
def builds() -> dict[str, Any]:
    """All programs, compiled as they are."""
    return compile_together({case.name: case.func() for case in CASES}, opt_level=0)


def test_names_are_unique_and_twins_differ_in_the_verdict() -> None:
    assert len(BY_NAME) == len(CASES)
    for case in ACCEPT:
        assert not case.twin or BY_NAME[case.twin].verdict == "refuse", case.name


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_formula_is_the_program(case: Cascade) -> None:
    for kind, arrays in inputs(case):
        found = run(builds()[case.name], case, arrays)
        judge(f"{case.name} on {kind} data", case.expected(arrays, 0), found, found)


# ---- The bound itself ------------------------------------------------------------------------


def _row(values: Any, blocks: int = 3) -> Bounded:
    return exactly(np.array([values], "float32"), Rules("float32", blocks))


def test_bound_of_an_exponential_sum_is_the_stated_one() -> None:
    n, blocks = 100, 8
    x = np.linspace(-20, 0, n, dtype="float32")
    unit = 2.0**-24
    row = _row(x, blocks)
    right = (row - expand(row.max())).exp().sum()
    gamma = (n + 2 * blocks) * unit / (1 - (n + 2 * blocks) * unit)
    stated = (gamma + (blocks + 1) * 8 * unit + unit * 20) * float(right.value[0])
    assert stated / 2 < float(right.error[0]) < stated * 1.2


def test_bound_of_a_variance_excludes_the_difference_of_squares() -> None:
    x = np.array([80000, 80001, 80002, 80003] * 4, "float32")
    right = _row(x).squares_about_mean()[1]
    squares = np.float32(0)
    for value in x:
        squares += value * value
    textbook = squares - np.float32(x.sum(dtype="float32")) * np.float32(x.mean(dtype="float32"))
    assert abs(float(textbook) - 20) > float(right.error[0])


def test_judge_finds_what_is_new() -> None:
    row = _row([1, 2, 3])
    right = {"y": row.sum()}
    good, off = np.array([6], "float32"), np.array([6.001], "float32")
    judge("", right, {"y": good}, {"y": good})
    for bad in (off, off * np.nan, off * np.inf):
        with pytest.raises(AssertionError):
            judge("", right, {"y": good}, {"y": bad})


def test_judge_keeps_nan_and_infinities() -> None:
    right = {"y": _row([np.inf, 2, 3]).sum()}
    infinite, nan = np.array([np.inf], "float32"), np.array([np.nan], "float32")
    judge("", right, {"y": infinite}, {"y": infinite})
    for before, after in ((infinite, nan), (nan, infinite), (infinite, -infinite)):
        with pytest.raises(AssertionError):
            judge("", right, {"y": before}, {"y": after})


def test_hard_rows_have_what_they_are_for() -> None:
    rows = hard_rows(10, 4, "float32", np.random.default_rng(0))
    assert (rows == -np.inf).all(1).any()
    assert ((rows[:, :4] == -np.inf).all(1) & np.isfinite(rows[:, 4:]).all(1)).any()
    assert all(np.isnan(rows[:, place]).any() for place in range(10))
    assert np.isfinite(hard_rows(10, 4, "float32", np.random.default_rng(0), finite=True)).all()
