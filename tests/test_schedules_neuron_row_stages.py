"""Softmax, norms and the like on Trainium: kernels that check and compute what numpy says."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import s_tir
from tvm.relax import op

from conv_traces import stored
from fuse_epilogue import plan, schedules
from fuse_epilogue.kernels.trainium.row_stages import find_row_stages, scheduled
from fuse_epilogue.kernels.trainium.spread_rows import scheduled as spread
from fuse_epilogue.kernels.trainium.spread_rows import why_not_spread
from fuse_epilogue.neuron import Kernel, emit
from fuse_epilogue.schedules.neuron import RowStages
from kernel_runs import run
from neuron_rules import kernel_by
from row_operators import ROWS, function

Oracle = Callable[..., Any]


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gamma + beta


def rms_norm(x: Any, gamma: Any) -> Any:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * gamma


#: The operators, and what they compute in float64.
OPERATORS: dict[str, tuple[Callable[..., Any], int, Oracle]] = {
    "softmax": (lambda x: op.nn.softmax(x, -1), 0, softmax),
    "log-softmax": (lambda x: op.nn.log_softmax(x, -1), 0, lambda x: np.log(softmax(x))),
    "layer-norm": (lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-1]), 2, layer_norm),
    "rms-norm": (lambda x, g: op.nn.rms_norm(x, g, axes=[-1]), 1, rms_norm),
}
#: One row, fewer than partitions, tiles that are not full, several matrices.
SHAPES = ((1, 9), (5, 1000), (300, 33), (2, 3, 130, 16))
CASES = [(name, shape) for name in OPERATORS for shape in SHAPES]


kernel_of = partial(kernel_by, RowStages())


def drawn(kernel: Kernel) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=s).astype(dtype) for s, dtype in kernel.inputs.values()]


@pytest.mark.parametrize(
    ("name", "shape"), CASES, ids=[f"{name}-{'x'.join(map(str, shape))}" for name, shape in CASES]
)
def test_computes_what_numpy_does(name: str, shape: tuple[int, ...]) -> None:
    make, vectors, oracle = OPERATORS[name]
    kernel = kernel_of(function(make, [shape, *[shape[-1:]] * vectors]))
    arrays = drawn(kernel)
    expected = oracle(*(array.astype(np.float64) for array in arrays))
    np.testing.assert_allclose(kernel(*arrays), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", OPERATORS)
def test_narrow_types(name: str) -> None:
    """Where Relax sums up in float16 the function is refused, and its kernel is exact elsewhere."""
    make, vectors, oracle = OPERATORS[name]
    func = function(make, [(140, 48), *[(48,)] * vectors], "float16")
    if name not in ("layer-norm", "rms-norm"):
        choice = RowStages().choose(func, "trn2")
        assert choice.schedule is None and "in float16" in choice.why
        return
    kernel = kernel_of(func)
    arrays = drawn(kernel)
    expected = oracle(*(array.astype(np.float64) for array in arrays))
    np.testing.assert_allclose(kernel(*arrays), expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", ["softmax-of-gelu", "softmax-scaled", "variance", "norm"])
def test_agrees_with_the_unscheduled_function(name: str) -> None:
    make, shapes = ROWS[name]
    func = function(make, shapes(33))
    kernel = kernel_of(func)
    arrays = drawn(kernel)
    got = kernel(*arrays)
    expected = run(func, arrays, got.shape, str(got.dtype))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["softmax", "layer-norm"])
def test_special_values(name: str) -> None:
    """Infinities and NaN stay in their rows, and give what numpy gives."""
    make, vectors, oracle = OPERATORS[name]
    kernel = kernel_of(function(make, [(6, 8), *[(8,)] * vectors]))
    arrays = drawn(kernel)
    arrays[0][:4, 3] = np.inf, -np.inf, np.nan, 1e38
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(kernel(*arrays), oracle(*arrays), rtol=1e-5, atol=1e-6)


REFUSED: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], str]] = {
    "another axis": (
        lambda x: op.nn.softmax(x, 0),
        [(9, 33)],
        "reads rows other than|axes other than",
    ),
    "two axes": (
        lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-2, -1]),
        [(5, 4, 8), (4, 8), (4, 8)],
        "not along one axis",
    ),
    "transposed": (
        lambda x: op.permute_dims(op.nn.softmax(x, -1), [1, 0]),
        [(33, 33)],
        "reads rows other than its own",
    ),
    "no reduction": (lambda x: op.exp(x), [(5, 33)], "it does not reduce rows"),
    "other rows": (
        lambda x: op.multiply(op.nn.softmax(x, -1), op.flip(x, 0)),
        [(5, 33)],
        "not indexed by the axes of the rows",
    ),
    "too long": (lambda x: op.nn.softmax(x, -1), [(128, 40000)], "sbuf-capacity"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    make, shapes, why = REFUSED[case]
    choice = RowStages().choose(function(make, shapes), "trn2")
    assert choice.schedule is None
    assert re.search(why, choice.why), choice.why


def test_the_trace_replays() -> None:
    func = function(OPERATORS["softmax"][0], [(300, 33)])
    sch = RowStages().apply(func, "trn1")
    assert sch is not None
    again = s_tir.Schedule(func)
    s_tir.schedule.Trace.apply_json_to_schedule(sch.trace.as_json(), again)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)


def test_apply_takes_the_plan() -> None:
    func = function(OPERATORS["layer-norm"][0], [(256, 64), (64,), (64,)])
    kernel = emit(schedules.apply(func, "trn2"))
    assert kernel.source == emit(plan(func, "trn2").apply(func)).source
    assert schedules.explain(func, "trn2").startswith("plan: row stages: rows 128, stage_")


def test_softmax_takes_its_exponentials_in_one_instruction() -> None:
    """The scalar engine subtracts the maximum on the way, a bias of minus it, and sums them up."""
    kernel = kernel_of(function(OPERATORS["softmax"][0], [(128, 512)]))
    computed = [step for step in kernel.trace().steps if step.op != "dma_copy"]
    wide = [s.op for s in computed if max(a.free_elements for a in s.touched) == 512]
    assert wide == ["tensor_reduce", "activation_reduce", "tensor_scalar"]


def test_predicted_near_what_moves() -> None:
    """A large softmax: three passes of the vector engine, hidden behind nothing else."""
    kernel = emit(RowStages().apply(function(OPERATORS["softmax"][0], [(4096, 2048)]), "trn2"))
    predicted = kernel.predict("trn2")
    bytes_ms = 2 * 4096 * 2048 * 4 / 362e6
    assert bytes_ms < predicted.latency_ms < 2 * bytes_ms
    assert predicted.range_ms[0] < predicted.latency_ms < predicted.range_ms[1]


# ---- A few long rows -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shape", [(1, 128), (3, 384), (32, 256), (1, 5, 1024)])
@pytest.mark.parametrize("name", ["layer-norm", "rms-norm"])
def test_rows_on_all_partitions(name: str, shape: tuple[int, ...], dtype: str) -> None:
    make, vectors, oracle = OPERATORS[name]
    func = function(make, [shape, *[shape[-1:]] * vectors], dtype)
    sch = spread(find_row_stages(func))
    kernel = emit(sch)
    for machine in ("trn1", "trn2", "trn3"):
        kernel.check(machine)
    arrays = drawn(kernel)
    expected = oracle(*(array.astype(np.float64) for array in arrays))
    error = 2e-3 if dtype == "float16" else 2e-5
    np.testing.assert_allclose(kernel(*arrays), expected, rtol=error, atol=error)
    again = s_tir.Schedule(func)
    s_tir.schedule.Trace.apply_json_to_schedule(stored(sch), again)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)


@pytest.mark.parametrize("columns", [9, 2048])
def test_a_vector_is_one_row(columns: int) -> None:
    """Without an axis of rows: on one partition, or on all."""
    make, vectors, oracle = OPERATORS["layer-norm"]
    kernel = kernel_of(function(make, [(columns,)] * (1 + vectors)))
    arrays = drawn(kernel)
    expected = oracle(*(array.astype(np.float64) for array in arrays))
    np.testing.assert_allclose(kernel(*arrays), expected, rtol=2e-5, atol=2e-5)


def test_special_values_stay_in_their_rows() -> None:
    """The tensor engine adds up partitions, and a row has a column of its own there."""
    make, vectors, oracle = OPERATORS["rms-norm"]
    kernel = emit(spread(find_row_stages(function(make, [(6, 128), *[(128,)] * vectors]))))
    arrays = drawn(kernel)
    arrays[0][:4, 3] = np.inf, -np.inf, np.nan, 1e38
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(kernel(*arrays), oracle(*arrays), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "shape", "why"),
    [
        ("softmax", (4, 256), "is not a sum that starts with 0"),
        ("rms-norm", (33, 256), "more than 32 rows"),
        ("rms-norm", (2, 3, 256), "more than one axis of rows"),
        ("rms-norm", (4, 200), "are not a multiple of 128"),
    ],
)
def test_other_rows_are_not_spread(name: str, shape: tuple[int, ...], why: str) -> None:
    make, vectors, _ = OPERATORS[name]
    found = find_row_stages(function(make, [shape, *[shape[-1:]] * vectors]))
    assert why in why_not_spread(found)
    with pytest.raises(s_tir.ScheduleError, match=why):
        spread(found)


@pytest.mark.parametrize("rows", [1, 8])
def test_a_plan_spreads_long_rows(rows: int) -> None:
    make, vectors, _ = OPERATORS["layer-norm"]
    func = function(make, [(rows, 4096), *[(4096,)] * vectors], "float16")
    chosen = plan(func, "trn2")
    usual = emit(scheduled(find_row_stages(func))).predict("trn2").latency_ms
    assert chosen.point["spread"] == 1 and chosen.cost < 0.5e-3 * usual
    by_rule = emit(RowStages().apply(func, "trn2"))
    assert by_rule.source == emit(chosen.apply(func)).source
