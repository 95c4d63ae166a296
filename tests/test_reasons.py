"""What a report says about an epilogue that is not absorbed, in full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tvm.s_tir import Schedule
from tvm.script import tirx as T

from programs.builders import matmul_then

FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "a call": (lambda x, c: T.popcount(x) + c, "T.popcount(x) does not distribute over a sum"),
    "a call of three": (
        lambda x, c: T.if_then_else(c > 0, x, 0) + c,
        "T.if_then_else(C[vi, vj] > 0, x, 0) does not distribute over a sum",
    ),
    "all that is left": (lambda x, c: T.popcount(x + c), "it does not distribute over a sum"),
    "several uses": (lambda x, c: T.max(x, x * c), "it uses the finished value in several ways"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_reason_names_what_does_not_go_in(name: str) -> None:
    epilogue, reason = FUNCTIONS[name]
    sch = Schedule(matmul_then(lambda x, C, E, S, i, j: epilogue(x, C[i, j])))
    (step,) = sch.fuse_reduction_epilogue("mm").steps
    assert step.reason == reason


def test_two_signs_are_none() -> None:
    """The terms of c - (e - x) are those of x."""
    sch = Schedule(matmul_then(lambda x, C, E, S, i, j: C[i, j] - (E[j] - x)))
    (step,) = sch.fuse_reduction_epilogue("mm").steps
    assert (step.absorbed, step.distributed) == ("C[vi, vj] - E[vj]", "")
