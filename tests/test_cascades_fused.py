"""Programs with cascades, fused: right within rounding, or refused without a change."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import s_tir
from tvm.s_tir import Schedule

import fuse_epilogue
from cascades import ACCEPT, BY_NAME, EITHER, REFUSE, Cascade
from cascades.case import FACTOR, KEYS
from cascades.data import inputs, run
from cascades.judge import judge
from oracles import compile_together, parameters


def scheduled(case: Cascade, keys: int = KEYS) -> Schedule:
    """A schedule on which the preparatory steps have been done."""
    sch = Schedule(case.func(keys), debug_mask="all")
    if case.schedule is not None:
        case.schedule(sch)
    return sch


def fuse(case: Cascade, sch: Schedule, factor: int = FACTOR) -> Any:
    """Call the primitive."""
    call: Any = sch.fuse_cascaded_reductions
    return call(case.block, factor=factor, numerics=case.numerics)


def demand_refused(case: Cascade) -> str:
    """The code of a call that must be refused, and must change nothing."""
    sch = scheduled(case)
    module, trace = sch.mod, str(sch.trace)
    with pytest.raises(s_tir.ScheduleError) as caught:
        fuse(case, sch)
    code = fuse_epilogue.refusal_code(caught.value)
    assert code is not None, case.name
    assert sch.mod.same_as(module)
    assert str(sch.trace) == trace
    return code


@cache
def builds() -> dict[str, Any]:
    """All programs, as they are and fused; what cannot be fused is missing."""
    functions = {case.name: case.func() for case in (*ACCEPT, *EITHER)}
    for case in (*ACCEPT, *EITHER):
        sch = scheduled(case)
        try:
            fuse(case, sch)
        except s_tir.ScheduleError:
            continue
        functions[f"{case.name}_fused"] = sch.mod["main"]
    return compile_together(functions, opt_level=1)


@pytest.mark.cpp
@pytest.mark.parametrize("case", ACCEPT, ids=lambda case: case.name)
def test_is_fused(case: Cascade) -> None:
    sch = scheduled(case)
    fuse(case, sch)
    replayed = scheduled(case)
    sch.trace.apply_to_schedule(replayed, remove_postproc=False)
    tvm.ir.assert_structural_equal(replayed.mod, sch.mod)


@pytest.mark.parametrize("case", [*ACCEPT, *EITHER], ids=lambda case: case.name)
def test_is_right(case: Cascade) -> None:
    fused = builds().get(f"{case.name}_fused")
    if fused is None:
        assert case.verdict == "either"
        demand_refused(case)
        return
    for kind, arrays in inputs(case, block=FACTOR):
        before, after = (run(built, case, arrays) for built in (builds()[case.name], fused))
        right = case.expected(arrays, -(-KEYS // FACTOR))
        what = f"{case.name} on {kind} data"
        judge(what, right, before, after)


@pytest.mark.cpp
@pytest.mark.parametrize("case", REFUSE, ids=lambda case: case.name)
def test_is_refused(case: Cascade) -> None:
    code = demand_refused(case)
    assert not case.codes or code in case.codes


LENGTHS = (1, 3, 4, 5, 64, 65)
OF_LENGTHS = ("softmax", "logsumexp", "attention", "layer_norm", "variance", "softmax_masked")


@pytest.mark.parametrize(
    ("name", "keys"),
    # The mean of one key is no division.
    [
        (name, keys)
        for name in OF_LENGTHS
        for keys in LENGTHS
        if keys > 1 or name not in ("layer_norm", "variance")
    ]
    + [pytest.param(name, 100_000, marks=pytest.mark.full) for name in ("logsumexp", "variance")],
)
def test_rows_of_all_lengths(name: str, keys: int) -> None:
    case = BY_NAME[name]
    sch, factor = scheduled(case, keys), 64 if keys > 64 else FACTOR
    fuse(case, sch, factor)
    built = compile_together({"before": case.func(keys), "after": sch.mod["main"]}, opt_level=1)
    for kind, arrays in inputs(case, keys, factor):
        before, after = (run(built[which], case, arrays, keys) for which in ("before", "after"))
        right = case.expected(arrays, -(-keys // factor))
        judge(f"{name} on {kind} data, {keys} keys", right, before, after)


@pytest.mark.cpp
@pytest.mark.parametrize(("x", "v"), [(3e38, 1), (3e37, 100)])
def test_factors_of_a_row_are_combined_before_the_sum_is_scaled(x: float, v: float) -> None:
    """The sum times the maximum overflows; the maximum divided by the other sum does not."""
    case = BY_NAME["times_the_maximum"]
    shapes = {p.name: p.shape for p in parameters(case.func(), {}) if p.name in ("x", "v")}
    values = {"x": x, "v": v}
    arrays = {name: np.full(shape, values[name], "float32") for name, shape in shapes.items()}
    before, after = (
        run(builds()[name], case, arrays)["o"] for name in (case.name, f"{case.name}_fused")
    )
    assert np.isfinite(before).all()
    np.testing.assert_allclose(after, before, rtol=1e-5)
