"""Schedules for LLVM where W is known at run time only: rows shorter than their paddings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import test_workloads_relax as relax
from depthwise import Options
from oracles import compile_together
from test_schedules_cpu import scheduled
from test_workloads import check, columns, workload
from tiers import crossed

BASE: Options = {
    "n": 2,
    "c": 2,
    "w": "w",
    "f": 7,
    "padding": "same",
    "stride": 1,
    "dilation": 1,
    "dtype": "float32",
    "bias": True,
    "activation": None,
    "layout": "NCW",
    "shift": 7,
}
# The paddings of the last ones are longer than several tiles, or only on one side.
SHAPES: list[Options] = [
    {"f": 7},
    {"f": 16},
    {"f": 9, "stride": 2},
    {"f": 8, "padding": "causal"},
    {"f": 5, "padding": "valid"},
    {"f": 4, "padding": (6, 6)},
    {"f": 5, "dilation": 3, "c": 5},
    {"f": 3, "padding": (40, 40)},
    {"f": 4, "padding": (9, 0), "dilation": 3},
    {"f": 7, "padding": (3, 9), "stride": 3, "c": 17},
]
TYPES: dict[str, Options] = {
    "float32": {},
    "float16": {"dtype": "float16", "activation": "silu"},
    "bfloat16": {"dtype": "bfloat16", "activation": "relu", "bias": False},
    "int8": {"dtype": "int8", "activation": "relu"},
}
WIDTHS = [*range(1, 21), 31, 32, 33, 64, 65]


@crossed(dtype=tuple(TYPES), layout=("NCW", "NWC"), half=(0, 1))
def test_rows_shorter_than_their_padding(dtype: str, layout: str, half: int) -> None:
    """No element outside of y is written, which the check looks after, and all in it are right."""
    cases = [{**BASE, **shape, **TYPES[dtype], "layout": layout} for shape in SHAPES[half::2]]
    functions = {
        str(i): scheduled(workload(case), (4, 16)[i % 2], (2, 1)[i % 3 == 2])
        for i, case in enumerate(cases)
    }
    built = compile_together(functions, opt_level=0)
    for i, case in enumerate(cases):
        for w in WIDTHS:
            if columns({**case, "w": w, "padding": run_time_padding(case)}) > 0:
                options = {**case, "padding": run_time_padding(case)}
                check(built[str(i)], options, "exact", w=w)


def run_time_padding(case: Options) -> Any:
    """ "same" is the same number of zeros for every W where W is symbolic."""
    if case["padding"] != "same":
        return case["padding"]
    reach = case["dilation"] * (case["f"] - 1)
    return reach // 2, reach - reach // 2


def test_rows_shorter_than_their_padding_from_relax() -> None:
    cases = [
        {"n": 2, "w": "w", "f": 9},
        {"n": 2, "w": "w", "f": 16, "activation": "silu"},
        {"n": 2, "w": "w", "f": 7, "stride": 2, "padding": (3, 3)},
        {"n": 2, "w": "w", "f": 9, "dtype": "float16", "activation": "relu"},
    ]
    functions = {str(i): scheduled(relax.layer(case), 4, 2) for i, case in enumerate(cases)}
    built = compile_together(functions, opt_level=0)
    for i, case in enumerate(cases):
        for w in WIDTHS:
            with np.errstate(all="ignore"):
                relax.check(built[str(i)], {**case, "w": w}, "exact")


@pytest.mark.parametrize("c", [3, 4, 5, 17, 33])
def test_channels_last_of_symbolic_sizes_compile(c: int) -> None:
    """Images or columns whose number is not known, and channels that are not whole vectors."""
    cases = [
        {**BASE, "n": "n", "c": c, "w": 33, "f": 3, "layout": "NWC"},
        {**BASE, "n": "n", "c": c, "w": "w", "f": 3, "layout": "NWC"},
        {**BASE, "c": c, "w": "w", "f": 3, "layout": "NWC", "dtype": "float16", "stride": 2},
    ]
    functions = {str(i): scheduled(workload(case), 4, 2) for i, case in enumerate(cases)}
    built = compile_together(functions, opt_level=0)
    for i, case in enumerate(cases):
        check(built[str(i)], {**case, "padding": (1, 1)}, "exact", n=2, w=33)
