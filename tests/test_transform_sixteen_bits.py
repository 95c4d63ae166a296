"""Sums in 16 bits absorb nothing: the pass gives all that follows them to the tail at once."""

from __future__ import annotations

import pytest
from tvm.ir import IRModule

from fuse_epilogue.transform import FuseReductionEpilogue, report_of
from generated.build import build
from generated.chunk import program_of
from generated.steps import scheduled

pytestmark = pytest.mark.cpp


@pytest.mark.parametrize("seed, number", [(4242, 463), (777, 22225), (777, 22304)])
def test_a_second_run_finds_nothing_left(seed: int, number: int) -> None:
    program = program_of(seed, number)
    built = build(program)
    if number % 2:
        built = scheduled(built, program)[0].mod["main"]
    fuse = FuseReductionEpilogue("always", numerics="reassociate", distribute=True)
    once = fuse(IRModule({"main": built}))
    assert report_of(once).fused == 1
    assert fuse(once).same_as(once)
