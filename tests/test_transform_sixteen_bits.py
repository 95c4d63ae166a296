"""Sums in 16 bits absorb nothing: the pass gives all that follows them to the tail at once."""

from __future__ import annotations

from typing import Any

import pytest
from tvm.ir import IRModule

from fuse_epilogue.transform import FuseReductionEpilogue, report_of
from generated.build import build
from generated.spec import Program
from generated.steps import scheduled

pytestmark = pytest.mark.cpp


# Products of 16 bits whose epilogues have several stages; one reads what an earlier one stores.
SCALED = {
    "reduction": {
        "monoid": "product",
        "source": "float16",
        "accumulator": "float16",
        "spatial": [4, 4],
        "term": "masked",
        "init": "buffer",
    },
    "epilogues": [
        {
            "expr": ["min", ["mul", ["lit", "float16", 0.5], ["x"]], ["scalar", "float16", 2]],
            "dtype": "float16",
            "parameter": False,
        },
        {"dtype": "float16", "stage": 1, "read": "transposed", "parameter": False},
        {
            "expr": ["max", ["sub", ["x"], ["lit", "float16", 1.0]], ["y"]],
            "dtype": "float16",
            "stage": 2,
            "other": 1,
        },
    ],
}
CONVERTED = {
    "reduction": {
        "monoid": "product",
        "source": "bfloat16",
        "accumulator": "bfloat16",
        "spatial": [5],
        "reduce": [3],
        "term": "window",
        "order": [1, 0],
    },
    "epilogues": [
        {
            "expr": ["cast", "float16", ["mul", ["row", "bfloat16", 1], ["x"]]],
            "dtype": "float16",
            "parameter": False,
        },
        {"expr": ["mul", ["row", "float16", 1], ["x"]], "dtype": "float16", "stage": 1},
    ],
}


# The second one, with loops that were split before the pass.
SPLIT = {**CONVERTED, "steps": [{"kind": "split", "numbers": [1, 1]}]}


@pytest.mark.parametrize(
    "program", [SCALED, CONVERTED, SPLIT], ids=["scaled", "converted", "converted and split"]
)
def test_a_second_run_finds_nothing_left(program: dict[str, Any]) -> None:
    drawn = Program.from_json(program)
    sch, done = scheduled(build(drawn), drawn)
    assert done == drawn.steps
    built = sch.mod["main"]
    fuse = FuseReductionEpilogue("always", numerics="reassociate", distribute=True)
    once = fuse(IRModule({"main": built}))
    assert report_of(once).fused == 1
    assert fuse(once).same_as(once)
