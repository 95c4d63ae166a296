"""Scalars of the machine: conversions of floats that fit, and of those that do not."""

from __future__ import annotations

import math

import pytest

from fuse_epilogue.verify.evaluation import scalars
from fuse_epilogue.verify.evaluation.scalars import POISON, float_to_int

# The number, the type, and what x86 converts it to: toward zero, and to the smallest integer of the
# instruction where it does not fit. Narrow types take the low bits of 32, uint32 those of 64.
CONVERSIONS = [
    (3.7, "int32", 3),
    (-3.7, "int32", -3),
    (-0.5, "int32", 0),
    (2147483520.0, "int32", 2147483520),
    (2147483648.0, "int32", -2147483648),
    (-2147483648.0, "int32", -2147483648),
    (-2147483904.0, "int32", -2147483648),
    (math.nan, "int32", -2147483648),
    (math.inf, "int64", -(2**63)),
    (2.0**62, "int64", 2**62),
    (2.0**63, "int64", -(2**63)),
    (200.0, "int8", -56),
    (300.0, "uint8", 44),
    (-1.0, "uint8", 255),
    (3e9, "uint32", 3_000_000_000),
    (-1.0, "uint32", 2**32 - 1),
    (2.0**63, "uint64", 2**63),
    (1e19, "uint64", 10**19),
    (2.0**64, "uint64", 2**63),
]


@pytest.mark.parametrize(("number", "name", "result"), CONVERSIONS)
def test_floats_become_integers_as_on_x86(number: float, name: str, result: int) -> None:
    signed = name.startswith("int")
    assert float_to_int(number, int(name.lstrip("uint")), signed) == result


def test_a_value_that_is_not_defined_stays_so() -> None:
    assert float_to_int(POISON, 32, True) is POISON
    for function in (scalars.truncdiv, scalars.truncmod, scalars.ordered_not_equal):
        assert function(POISON, 3) is POISON and function(3, POISON) is POISON
