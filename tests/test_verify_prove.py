"""Proofs that two functions are equal, and what is said where there is none."""

from __future__ import annotations

from typing import Any

import pytest
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

import oracles
from fuse_epilogue.verify import (
    NotEquivalent,
    equivalent,
    prove,
)
from fuse_epilogue.verify import unknowns as unknowns_module
from programs import BY_NAME
from rows_of_sums import (
    BIAS_FIRST,
    BIAS_LAST,
    CLIPPED_LAST,
    CLIPPED_TERMS,
    f32,
    plain,
    rows,
)


def wrong_at_one_value() -> PrimFunc:
    """Wrong for one value of the accumulator only, which occurs in neither function."""
    value, mask = 123456789, 0x5A5A5A5

    def finish(x: Any, C: Any, i: Any) -> Any:
        hidden = T.bitwise_xor(x, T.IntImm("int32", mask))
        wrong = hidden == T.IntImm("int32", value ^ mask)
        return x + T.Select(wrong, T.IntImm("int32", 1), T.IntImm("int32", 0))

    return rows(plain, finish=finish, acc="int32")


def test_a_rare_difference_is_found_by_z3() -> None:
    pytest.importorskip("z3")
    before = rows(plain, acc="int32")
    with pytest.raises(NotEquivalent, match="on symbolic data") as caught:
        equivalent(before, wrong_at_one_value(), compiled=False)
    assert caught.value.before == 123456789


def test_without_z3_normal_forms_still_prove(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("proof.prover", "unknowns"):
        monkeypatch.setattr(f"fuse_epilogue.verify.{module}.has_z3", lambda: False)
    assert equivalent(BIAS_LAST, BIAS_FIRST, compiled=False).proved
    assert equivalent(CLIPPED_LAST, CLIPPED_TERMS, compiled=False).proved
    report = equivalent(rows(plain, acc="int32"), wrong_at_one_value(), compiled=False)
    assert not report.proved
    assert report.symbolic.status == "skipped"
    assert "z3 is not installed" in report.symbolic.reason


def test_what_z3_does_not_decide_is_unknown() -> None:
    pytest.importorskip("z3")
    # x * x >= 0 holds for numbers; to z3 a product of unknowns is an unknown.
    before = rows(plain, finish=lambda x, C, i: T.max(C[i] * C[i], f32(0)))
    after = rows(plain, finish=lambda x, C, i: C[i] * C[i])
    report = equivalent(before, after, timeout=0.5)
    assert report.symbolic.status == "unknown"
    assert "element 0 of 'D'" in report.symbolic.reason
    assert "unknown" in str(report)


def test_a_narrowing_cast_is_not_dropped() -> None:
    before = rows(plain, finish=lambda x, C, i: T.Cast("float32", T.Cast("float16", x)))
    assert equivalent(before, before).proved
    with pytest.raises((NotEquivalent, AssertionError)):
        assert equivalent(before, rows(plain), timeout=0.5).proved


def test_constant_extents_that_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknowns_module, "_EFFORT", 10)
    report = equivalent(BIAS_LAST, BIAS_FIRST, compiled=False)
    assert report.symbolic.status == "skipped"
    assert "too large" in report.symbolic.reason


def test_prove_alone() -> None:
    case = BY_NAME["bias_then_relu"]
    after = oracles.fuse(case)[0].mod["main"]
    found, candidates = prove(case.func, after)
    assert found.status == "proved"
    assert found.by_normal_form == found.elements
    assert not candidates
    assert "proved" in str(found)
