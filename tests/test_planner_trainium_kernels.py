"""Problems on Trainium without a choice of fusion: rows in stages, attention, windows of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, topi

import fuse_epilogue
from conv_traces import replayed
from fuse_epilogue import neuron, schedules
from fuse_epilogue.neuron.machine import MACHINES
from fuse_epilogue.planner import Plan
from fuse_epilogue.planner.problems.cost import Weights
from fuse_epilogue.planner.problems.request import Request
from fuse_epilogue.planner.problems.space import Points
from fuse_epilogue.planner.problems.trainium import (
    find_attention,
    find_conv2d,
    find_row_stages,
    find_windows,
)
from fuse_epilogue.workloads import depthwise_conv1d
from test_kernels_attention import drawn, function, reference
from test_schedules_neuron_attention import written_out

Arrays = list[np.ndarray]


def softmax(rows: int = 140, columns: int = 70) -> Any:
    x = te.placeholder((rows, columns), "float32", "x")
    return te.create_prim_func([x, topi.nn.softmax(x)])


def norm(rows: int = 130, columns: int = 48) -> Any:
    x, scale, shift = (
        te.placeholder(shape, "float32", name)
        for shape, name in (((2, rows, columns), "x"), ((columns,), "scale"), ((columns,), "shift"))
    )
    return te.create_prim_func([x, scale, shift, topi.nn.layer_norm(x, scale, shift, [2], 1e-5)])


def conv2d(stride: int = 1) -> Any:
    x, w = te.placeholder((2, 5, 40, 30), name="x"), te.placeholder((130, 5, 3, 3), name="w")
    bias = te.placeholder((130, 1, 1), name="bias")
    out = topi.nn.conv2d(x, w, stride, 1, 1)
    return te.create_prim_func([x, w, bias, topi.nn.relu(topi.add(out, bias))])


def depthwise2d() -> Any:
    x, w = te.placeholder((2, 130, 12, 11), name="x"), te.placeholder((130, 1, 3, 3), name="w")
    bias = te.placeholder((130, 1, 1), name="bias")
    out = topi.nn.depthwise_conv2d_nchw(x, w, 2, 1, 1)
    return te.create_prim_func([x, w, bias, topi.nn.relu(topi.add(out, bias))])


def pool() -> Any:
    x = te.placeholder((2, 130, 12, 10), name="x")
    return te.create_prim_func([x, topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0,) * 4, "max")])


def softmax_of(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def norm_of(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + shift


def convolved(x: np.ndarray, w: np.ndarray, bias: np.ndarray, stride: int) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    rows, columns = -(-x.shape[2] // stride), -(-x.shape[3] // stride)
    total = np.zeros((x.shape[0], w.shape[0], rows, columns))
    for i in range(3):
        for j in range(3):
            window = padded[:, :, i::stride, j::stride][:, :, :rows, :columns]
            if w.shape[1] == 1:
                total += window * w[:, 0, i, j, None, None]
            else:
                total += np.einsum("nchw,oc->nohw", window, w[:, :, i, j])
    return np.maximum(total + bias, 0)


#: What finds the problem, the rule, the function, what it computes.
SMALL: dict[str, tuple[Any, Any, Any, Callable[..., np.ndarray]]] = {
    "softmax": (find_row_stages, schedules.neuron.RowStages, softmax(), softmax_of),
    "norm": (find_row_stages, schedules.neuron.RowStages, norm(), norm_of),
    "attention": (
        find_attention,
        schedules.neuron.Attention,
        function(1, 300, 260, 1, 144),
        reference,
    ),
    "conv2d": (find_conv2d, schedules.neuron.Conv2d, conv2d(), lambda *a: convolved(*a, 1)),
    "conv2d, strided": (
        find_conv2d,
        schedules.neuron.Conv2d,
        conv2d(2),
        lambda *a: convolved(*a, 2),
    ),
    "windows": (
        find_windows,
        schedules.neuron.Windows2d,
        depthwise2d(),
        lambda *a: convolved(*a, 2),
    ),
    "windows, pooled": (
        find_windows,
        schedules.neuron.Windows2d,
        pool(),
        lambda x: x.reshape(2, 130, 6, 2, 5, 2).max((3, 5)),
    ),
}
#: The rules that take no promise of finite data.
FOR_ANY_DATA = (schedules.neuron.RowStages, schedules.neuron.Windows2d)


def problem(name: str, machine: str = "trn2") -> Any:
    find, _, func, _ = SMALL[name]
    found = find(Request(func, MACHINES[machine], True))
    assert found is not None
    return found


def arrays_of(name: str) -> Arrays:
    if name == "attention":
        return drawn(1, 300, 260, 1, 144)
    rng = np.random.default_rng(2)
    shapes = [[int(n) for n in param.ty.shape] for param in SMALL[name][2].params[:-1]]
    return [rng.normal(size=shape).astype("float32") for shape in shapes]


@pytest.mark.full
@pytest.mark.parametrize("name", SMALL)
def test_every_value_of_every_variable_is_right(name: str) -> None:
    found = problem(name)
    arrays = arrays_of(name)
    expected = SMALL[name][3](*arrays)
    points, _ = found.space.feasible()
    usual = int(np.flatnonzero(found.is_usual(points))[0])
    chosen = {usual}
    for variable in found.space.variables:
        for value in variable.choices:
            (places,) = np.nonzero(points[variable.name] == value)
            chosen.add(int(places[-1]))
    sources = set()
    for index in sorted(chosen):
        point = points.at(index)
        assert found.is_possible(point), found.space.describe(point)
        kernel = found.kernel(point)
        sources.add(kernel.source)
        result = kernel(*arrays).reshape(expected.shape)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
        bound = float(Weights().cost(found.cost(Points.of([point])))[0])
        assert 0 < bound <= found.exact(point) * (1 + 1e-9)
        again = replayed(found.apply(point), found.func, "none")
        tvm.ir.assert_structural_equal(again.mod, found.apply(point).mod)
    assert len(sources) > 1


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    "name",
    [each if "pooled" in each else pytest.param(each, marks=pytest.mark.full) for each in SMALL],
)
def test_a_plan_is_no_worse_than_the_rule(name: str, machine: str) -> None:
    _, rule, func, _ = SMALL[name]
    plan = fuse_epilogue.plan(func, machine, finite=True)
    kernel = neuron.emit(plan.apply(func))
    kernel.check(machine)
    latency = kernel.predict(machine).latency_ms
    assert plan.cost == pytest.approx(latency * 1e-3)
    by_rule = rule() if rule in FOR_ANY_DATA else rule(finite=True)
    assert latency <= neuron.emit(by_rule.apply(func, machine)).predict(machine).latency_ms * (
        1 + 1e-9
    )
    assert Plan.from_json(plan.to_json()) == plan
    text = plan.explain(func, verbose=True)
    assert plan.kind in text and all(name in text for name in plan.point)


def test_gpsimd_takes_work_off_the_vector_engine() -> None:
    """A norm is bound by the vector engine: its plan computes a stage elsewhere."""
    func = norm(1024, 512)
    plan = fuse_epilogue.plan(func, "trn2")
    rule = neuron.emit(schedules.neuron.RowStages().apply(func, "trn2")).predict("trn2")
    assert plan.cost < 0.8e-3 * rule.latency_ms
    busy = neuron.emit(plan.apply(func)).predict("trn2").busy_ms
    assert busy["gpsimd"] > 0 and busy["vector"] < rule.busy_ms["vector"]


@pytest.mark.parametrize("name", ["attention", "conv2d"])
def test_on_trn1_data_must_be_finite(name: str) -> None:
    func = SMALL[name][2]
    with pytest.raises(ValueError, match="say finite=True if there are none"):
        fuse_epilogue.plan(func, "trn1")
    assert fuse_epilogue.plan(func, "trn1", finite=True).kind == name


def test_long_attention_is_estimated() -> None:
    func = function(1, 2048, 2048, 8, 64)
    plan = fuse_epilogue.plan(func, "trn2")
    assert plan.found.estimated
    point = plan.point
    assert (point["pipelined"], point["together"], point["copies"]) == (8, 4, 0)


@pytest.mark.parametrize(
    ("kind", "func"),
    [("rows", lambda: reduced(1)), ("row stages", lambda: reduced(2))],
    ids=["one reduction", "two"],
)
def test_stages_without_elementwise_work(kind: str, func: Any) -> None:
    """One reduction is of another kind; two leave nothing to choose, and are planned."""
    made = func()
    plan = fuse_epilogue.plan(made, "trn2")
    assert plan.kind == kind
    x = np.random.default_rng(0).normal(size=(9, 20)).astype("float32")
    expected = x.max(1) if kind == "rows" else np.exp(x - x.max(1, keepdims=True)).sum(1)
    result = neuron.emit(plan.apply(made))(x)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def reduced(count: int) -> Any:
    x = te.placeholder((9, 20), "float32", "x")
    i, j = te.reduce_axis((0, 20), "i"), te.reduce_axis((0, 20), "j")
    top = te.compute((9,), lambda m: te.max(x[m, i], i), "top")
    if count == 1:
        return te.create_prim_func([x, top])
    return te.create_prim_func(
        [x, te.compute((9,), lambda m: te.sum(te.exp(x[m, j] - top[m]), j), "total")]
    )


def test_other_functions_are_none() -> None:
    request = Request(softmax(), MACHINES["trn2"])
    assert find_attention(request) is None and find_conv2d(request) is None
    assert find_windows(request) is None
    for found in (find_row_stages, find_windows):
        assert found(Request(conv2d(), MACHINES["trn2"])) is None


# ---- What a caller may permit --------------------------------------------------------------------


def narrow_attention(queries: int = 256, keys: int = 384) -> Any:
    return written_out(queries, keys, 64, 64, "bfloat16")


def narrow_conv() -> Any:
    return depthwise_conv1d(2, 128, 2048, 3, dtype="bfloat16")


def test_rounded_shares_are_a_choice_where_they_are_permitted() -> None:
    func = narrow_attention()
    usual = fuse_epilogue.plan(func, "trn2")
    rounded = fuse_epilogue.plan(func, "trn2", round_shares=True)
    assert "shares" not in usual.point and rounded.point["shares"] == 1
    assert rounded.cost < usual.cost
    assert Plan.from_json(rounded.to_json()) == rounded
    kernel = fuse_epilogue.compile(func, "trn2", round_shares=True)
    assert kernel.source == neuron.emit(rounded.apply(func)).source
    assert {s.dst.dtype for s in kernel.trace().steps if s.op == "activation_reduce"} == {
        "bfloat16"
    }
    by_rule = schedules.neuron.Attention(round_shares=True).apply(func, "trn2")
    assert rounded.cost <= 1e-3 * neuron.emit(by_rule).predict("trn2").latency_ms * (1 + 1e-9)


def test_tilings_of_rounded_shares_are_right() -> None:
    """Each result is within the error of bfloat16, relative to the largest value of its column."""
    found = find_attention(Request(narrow_attention(130, 1030), MACHINES["trn2"], False, True))
    assert found is not None
    points, _ = found.space.feasible()
    rng = np.random.default_rng(0)
    kernel = found.kernel(points.at(0))
    arrays = [rng.normal(size=shape).astype(dtype) for shape, dtype in kernel.inputs.values()]
    q, k, v = (array.astype(np.float64) for array in arrays)
    expected = softmax_of(q @ k.T) @ v
    chosen = {0} | {
        int(np.flatnonzero(points[v.name] == value)[-1])
        for v in found.space.variables
        for value in v.choices
    }
    for place in sorted(chosen):
        point = points.at(place)
        assert found.is_possible(point)
        error = 2.0**-8 * point["shares"] * abs(v).max(0) + 1e-5
        assert (abs(found.kernel(point)(*arrays) - expected) <= error).all()
        bound = float(Weights().cost(found.cost(Points.of([point])))[0])
        assert 0 < bound <= found.exact(point) * (1 + 1e-9)


@pytest.mark.full
@pytest.mark.parametrize(
    ("option", "func"),
    [("round_shares", narrow_attention), ("finite", narrow_conv)],
)
def test_a_plan_says_what_it_would_gain(option: str, func: Any) -> None:
    made = func()
    plan, permitted = (fuse_epilogue.plan(made, "trn2", **g) for g in ({}, {option: True}))
    saved = f"{100 * (1 - permitted.cost / plan.cost):.0f} % less"
    line = f"with {option}=True {1e6 * permitted.cost:.2f} us predicted, {saved}"
    for verbose in (False, True):
        assert line in plan.explain(made, verbose=verbose)
        assert option not in permitted.explain(made, verbose=verbose)


def test_a_plan_does_not_offer_what_gains_nothing() -> None:
    """Shares of values in float32 are not rounded; a product has nothing that is permitted."""
    plan = fuse_epilogue.plan(SMALL["attention"][2], "trn2")
    assert "round_shares" not in plan.explain()
    assert fuse_epilogue.plan(SMALL["attention"][2], "trn2", round_shares=True).point == plan.point
