"""Everything after the sum of a streamed convolution is one tail of it, with a certificate."""

from __future__ import annotations

from typing import Any

import pytest
import tvm

from depthwise import Options
from fuse_epilogue import verify
from fused_block import blocks
from oracles import compile_together
from streaming import assert_forward, assert_update, draw, run
from test_workloads_streaming import forward, rng_of, updating

FORWARD: Options = {
    "n": 2,
    "c": 3,
    "w": 9,
    "f": 4,
    "activation": "silu",
    "gate": True,
    "residual": True,
    "initial_state": True,
    "final_state": True,
    "sequences": 3,
}
UPDATE: Options = {
    "n": 2,
    "c": 3,
    "f": 4,
    "activation": "gelu",
    "gate": True,
    "residual": True,
    "state_length": 6,
    "circular": True,
    "pool": 5,
    "steps": 2,
}
CASES: list[tuple[Any, Any, Options, list[str]]] = [
    (
        forward,
        assert_forward,
        {**FORWARD, "dtype": dtype},
        ["check_sequences", "pad", "conv", last, "ends", "final_state"],
    )
    for dtype, last in (("float32", "residual"), ("float16", "cast"), ("bfloat16", "cast"))
]
CASES += [
    (
        updating,
        assert_update,
        {**UPDATE, "dtype": dtype, "circular": circular},
        [
            *["check_positions"] * circular,
            "check_indices",
            "check_distinct",
            *["pad", "conv", last, "state"],
        ],
    )
    for dtype, last, circular in (("float32", "residual", True), ("float16", "cast", False))
]


@pytest.mark.parametrize(("make", "judge", "options", "left"), CASES)
def test_one_tail_is_left(make: Any, judge: Any, options: Options, left: list[str]) -> None:
    """The certificate holds, the state is still written, and the results are right."""
    func = make(options)
    sch = tvm.s_tir.Schedule(func, debug_mask="all")
    report = sch.fuse_reduction_epilogue("conv")
    fused = sch.mod["main"]
    assert report.stopped is None and list(blocks(fused)) == left
    assert verify.check(func, fused, report.certificate)
    arrays = draw(func, options, rng_of(options))
    judge(run(compile_together({"main": fused})["main"], arrays), arrays, options, str(options))


def test_a_certificate_of_another_tail_is_refused() -> None:
    """The gate is part of what is proved: the claims of one with it do not hold without."""
    reports, functions = [], []
    for gate in (True, False):
        func = updating({**UPDATE, "gate": gate})
        sch = tvm.s_tir.Schedule(func, debug_mask="all")
        reports.append(sch.fuse_reduction_epilogue("conv"))
        functions.append((func, sch.mod["main"]))
    with pytest.raises(verify.CertificateError):
        verify.check(functions[0][0], functions[1][1], reports[0].certificate)
