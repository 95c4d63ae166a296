"""Cascades proved over a field: what is right is, and none of the wrong forms."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tvm.ir import prim

from cascade_by_hand import WRONG, Form, after, before
from fuse_epilogue import verify
from fuse_epilogue.verify.cascades.limits import _OPERATIONS
from fuse_epilogue.verify.proof.field import Field, Ratio

KEYS = 5


@pytest.mark.parametrize("form", [Form(), Form(guarded=True)], ids=["plain", "guarded"])
def test_rolled_attention_is_proved(form: Form) -> None:
    found = verify.equivalent(before(KEYS), after(KEYS, form))
    assert found.proved, str(found)
    assert found.oracles == ("llvm", "evaluator")


def test_from_infinity_is_the_same_with_guards_alone() -> None:
    form = Form(infinite=True, guarded=True)
    x = np.array([[-np.inf] * 3 + [1.0, 2.0], [0.5, -np.inf, 1, 0, 3]], "float32")
    weights = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    v = np.arange(10, dtype="float32").reshape(5, 2)
    for wrong in (False, True):
        arrays = {"x": x, "v": v, "c": np.zeros(2, "float32"), "o": np.zeros((2, 2), "float32")}
        program = verify.compile_function(after(KEYS, replace(form, guarded=not wrong)))
        with np.errstate(all="ignore"):
            program.run(arrays, {})
        assert np.isnan(arrays["o"]).any() == wrong
        if not wrong:
            np.testing.assert_allclose(arrays["o"], weights @ v, rtol=1e-5)


@pytest.mark.parametrize("node", [prim.Add, prim.Sub, prim.Mul, prim.Div])
def test_limits_are_nan_unknown_or_a_value(node: type) -> None:
    combine = _OPERATIONS[node]
    for other in (None, 0.0, 2.0, math.inf, math.nan):
        assert all(
            math.isnan(found) for found in (combine(math.nan, other), combine(other, math.nan))
        )
    assert combine(None, 2.0) is combine(2.0, None) is None
    assert combine(6.0, 2.0) == {"Add": 8, "Sub": 4, "Mul": 12, "Div": 3}[node.__name__]
    assert combine(-math.inf, 2.0) == -math.inf


def test_infinities_that_cancel_are_nan() -> None:
    assert math.isnan(_OPERATIONS[prim.Sub](-math.inf, -math.inf))
    assert _OPERATIONS[prim.Div](1.0, 0.0) is None


@pytest.mark.parametrize("name", WRONG)
def test_wrong_form_is_not_proved(name: str) -> None:
    form = WRONG[name]
    functions = (
        before(KEYS, infinite=form.infinite, bias=form.scaled_init),
        after(KEYS, form),
    )
    if not form.infinite:
        # Over the real numbers nothing is wrong with a maximum from -inf: -inf - -inf is.
        outcome, _ = verify.prove(*functions, timeout=0.2)
        assert outcome.status != "proved", name
    if form.infinite or form.start:
        # What the first block starts from is scaled by exp(-largest - m), which is 0.
        with pytest.raises(verify.NotEquivalent):
            _compare_masked(*functions)
    else:
        with pytest.raises(verify.NotEquivalent):
            verify.equivalent(*functions)


def _compare_masked(one: object, other: object) -> None:
    """Compare two functions where the first block of keys is masked, or all are."""
    results = []
    for func in (one, other):
        x = np.array([[-np.inf] * 3 + [1.0, 2.0], [-np.inf] * 5], "float32")
        v, c = np.ones((5, 2), "float32"), np.zeros(2, "float32")
        arrays = {"x": x, "v": v, "c": c, "o": np.zeros((2, 2), "float32")}
        with np.errstate(all="ignore"):
            verify.compile_function(func).run(arrays, {})  # type: ignore[arg-type]
        results.append(arrays["o"])
    if not np.array_equal(np.isnan(results[0]), np.isnan(results[1])):
        raise verify.NotEquivalent("NaN in one of them")


# ---- The field -------------------------------------------------------------------------------


def _atoms(field: Field, names: str) -> list[Ratio]:
    return [field.atom(name) for name in names]


def test_exponentials_multiply() -> None:
    field = Field()
    x, m, n = _atoms(field, "xmn")
    rolled = field.mul(field.exp(field.sub(x, m)), field.exp(field.sub(m, n)))
    assert field.equal(rolled, field.exp(field.sub(x, n)))
    assert not field.equal(rolled, field.exp(field.sub(x, m)))
    assert not field.divided


def test_conditions_are_their_own_squares() -> None:
    field = Field()
    x, y = _atoms(field, "xy")
    held = field.condition("held")
    masked = field.choose(held, x, field.lowest)
    right = field.choose(held, field.exp(field.sub(x, y)), field.zero)
    assert field.equal(field.exp(field.sub(masked, y)), right)
    assert field.equal(field.mul(held, held), held)
    assert not field.equal(field.mul(x, x), x)


def test_what_is_cancelled_is_noted() -> None:
    field = Field()
    x, y = _atoms(field, "xy")
    assert field.equal(field.div(field.mul(x, y), y), x)
    assert field.divided


def test_sums_as_divisors() -> None:
    field = Field()
    x, y, z = _atoms(field, "xyz")
    both = field.add(field.exp(x), field.exp(y))
    apart = field.add(field.div(z, both), field.div(x, both))
    assert field.equal(apart, field.div(field.add(z, x), both))
    scaled = field.mul(field.exp(z), both)
    assert field.equal(field.div(field.exp(z), scaled), field.div(field.one, both))
    assert not field.divided


def test_casts_are_opaque_and_maxima_sets() -> None:
    field = Field()
    x, y, z = _atoms(field, "xyz")
    cast = field.atom("cast", [field.add(x, y)])
    assert not field.equal(cast, field.add(field.atom("cast", [x]), field.atom("cast", [y])))
    one = field.extremum("max", [field.extremum("max", [x, y]), z])
    assert field.equal(one, field.extremum("max", [z, field.extremum("max", [y, x]), x]))
    assert not field.equal(one, field.extremum("min", [x, y, z]))
