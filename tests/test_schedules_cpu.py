"""Schedules for LLVM compute what numpy says, and what the unscheduled function computes."""

from __future__ import annotations

from typing import Any

import pytest
import tvm

from depthwise import covering
from fuse_epilogue.schedules import cpu
from oracles import compile_together
from test_workloads import check, name_of, possible, workload
from tiers import tiered

CHOICES = {
    "n": [1, 3],
    "c": [1, 5, 19],
    "w": [1, 2, 7, 16, 17, 33, 70, 197],
    "f": [1, 2, 3, 4, 5, 7, 8, 13, 16],
    "padding": ["same", "valid", "causal", (2, 0), (0, 3), (5, 40)],
    "stride": [1, 1, 1, 2, 3],
    "dilation": [1, 1, 2, 3, 17],
    "dtype": ["float32", "float16", "bfloat16", "int8"],
    "bias": [True, False],
    "activation": [None, "relu", "silu"],
    "layout": ["NCW", "NCW", "NWC"],
    "shift": [0, 1, 7, 31],
}
CASES = covering(CHOICES, possible)
FUNCTIONS_PER_MODULE = 25
LLVM = tvm.target.Target("llvm")


def scheduled(func: Any, lanes: int = 16, unroll: int = 2) -> Any:
    """Schedule with vectors that any LLVM can compile, whatever this machine has."""
    sch = cpu.DepthwiseConv1d(unroll=unroll, lanes=lanes).apply(func, LLVM)
    assert sch is not None
    return sch.mod["main"]


@pytest.fixture(scope="module")
def built() -> Any:
    """Compiles a chunk of the cases when one of them is first asked for."""
    made: dict[int, Any] = {}

    def of(index: int) -> Any:
        chunk = index // FUNCTIONS_PER_MODULE
        if chunk not in made:
            first = chunk * FUNCTIONS_PER_MODULE
            some = enumerate(CASES[first : first + FUNCTIONS_PER_MODULE], first)
            functions = {
                f"case{i}": scheduled(workload(options), (4, 16)[i % 2], (1, 2, 4)[i % 3])
                for i, options in some
            }
            made[chunk] = compile_together(functions, opt_level=1)
        return made[chunk][f"case{index}"]

    return of


@pytest.mark.parametrize("index", tiered(CASES, name_of))
def test_computes_the_convolution(built: Any, index: int) -> None:
    options = CASES[index]
    kinds = ("exact",) if options["dtype"] == "int8" else ("exact", "normal", "nasty")
    for kind in kinds:
        check(built(index), options, kind)
