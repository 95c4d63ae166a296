"""The call of fuse_cascaded_reductions: arguments, traces, what is left after a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import s_tir, te
from tvm.relax import op
from tvm.s_tir import Schedule

import fuse_epilogue
from row_operators import function

pytestmark = pytest.mark.cpp

ROWS, KEYS = 4, 10


def softmax(keys: int = KEYS) -> Any:
    return function(lambda x: op.nn.softmax(x, -1), [(ROWS, keys)])


def attention(**options: Any) -> Any:
    shape = (2, KEYS, 3, 8)
    return function(lambda q, k, v: op.nn.attention(q, k, v, **options), [shape] * 3)


def variance() -> Any:
    return function(lambda x: op.variance(x, -1), [(ROWS, KEYS)])


def norm() -> Any:
    shapes = [(ROWS, KEYS), (KEYS,), (KEYS,)]
    return function(lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-1]), shapes)


def norm_then_product() -> Any:
    def rule(x: Any, g: Any, w: Any) -> Any:
        return op.matmul(op.nn.rms_norm(x, g, axes=[-1]), w)

    return function(rule, [(ROWS, KEYS), (KEYS,), (KEYS, 5)])


#: A function, a block of its cascade, and the rules by which its reductions are fused.
PROGRAMS: dict[str, tuple[Callable[[], Any], str, list[str]]] = {
    "softmax": (softmax, "T_softmax_expsum", ["head", "roll"]),
    "attention": (attention, "T_softmax_maxelem", ["head", "roll", "mix"]),
    "attention-causal": (
        lambda: attention(causal_mask="TopLeft"),
        "T_batch_matmul_NN",
        ["head", "roll", "mix"],
    ),
    "variance": (variance, "x0_red", ["head", "basis"]),
    "layer-norm": (norm, "x0_var_sum", ["head", "basis"]),
    "rms-norm-product": (norm_then_product, "matmul", ["head", "defer"]),
}


def run(func: Any, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    shapes = [[int(dim) for dim in param.ty.shape] for param in func.params]
    arrays = [tvm.runtime.tensor((rng.standard_normal(s) * 3).astype("float32")) for s in shapes]
    tvm.compile(func.with_attr("global_symbol", "main"), target="llvm")["main"](*arrays)
    return [array.numpy() for array in arrays]


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_result_for_every_factor(name: str) -> None:
    make, block, rules = PROGRAMS[name]
    func = make()
    expected = run(func)
    for factor in (1, 3, 5, None):
        sch = Schedule(func, debug_mask="all")
        report = sch.fuse_cascaded_reductions(block, factor=factor)
        assert [stage.rule for stage in report.certificate.stages] == rules
        for before, after in zip(expected, run(sch.mod["main"]), strict=True):
            np.testing.assert_allclose(after, before, rtol=2e-5, atol=2e-6)


def test_replays_from_the_trace_and_from_json() -> None:
    sch = Schedule(softmax())
    loop = sch.get_loops(sch.get_sblock("T_softmax_expsum"))[-1]
    sch.fuse_cascaded_reductions("T_softmax_expsum", loop, factor=4)
    assert "sch.fuse_cascaded_reductions(block=" in str(sch.trace)
    assert ", factor=4)" in str(sch.trace)
    replayed, read = Schedule(softmax()), Schedule(softmax())
    sch.trace.apply_to_schedule(replayed, remove_postproc=False)
    s_tir.schedule.Trace.apply_json_to_schedule(sch.trace.as_json(), read)
    for other in (replayed, read):
        tvm.ir.assert_structural_equal(other.mod, sch.mod)


def test_a_refused_call_changes_nothing() -> None:
    sch = Schedule(norm())
    before, steps = sch.mod, len(sch.trace.insts)
    with pytest.raises(s_tir.ScheduleError) as caught:
        sch.fuse_cascaded_reductions("x0_sum", numerics="exact")
    assert fuse_epilogue.refusal_code(caught.value) == "cascade-exact"
    assert sch.mod.same_as(before)
    assert len(sch.trace.insts) == steps


def test_analyze_changes_nothing() -> None:
    sch = Schedule(softmax())
    before, steps = sch.mod, len(sch.trace.insts)
    report = fuse_epilogue.analyze_cascade(sch, "T_softmax_maxelem", factor=4)
    assert report.fusable
    assert report.second_pass == ("T_softmax_exp", "T_softmax_norm")
    refused = fuse_epilogue.analyze_cascade(sch, "T_softmax_maxelem", numerics="exact")
    assert not refused.fusable
    assert refused.stopped.code == "cascade-exact"
    assert sch.mod.same_as(before)
    assert len(sch.trace.insts) == steps


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"factor": 0}, ValueError),
        ({"factor": True}, TypeError),
        ({"factor": 2.0}, TypeError),
        ({"loop": "k"}, TypeError),
        ({"numerics": "fast"}, ValueError),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception]) -> None:
    sch = Schedule(softmax())
    steps = len(sch.trace.insts)
    with pytest.raises(error):
        sch.fuse_cascaded_reductions("T_softmax_expsum", **arguments)
    assert len(sch.trace.insts) == steps


def test_inputs_move_into_the_loop_of_the_keys() -> None:
    sch = Schedule(attention(), debug_mask="all")
    sch.fuse_cascaded_reductions("T_softmax_expsum", factor=4)
    cascade = sch.get_sblock("T_softmax_maxelem_cascade")
    keys = sch.get_loops(cascade)[-1]
    for name in ("T_divide", "T_batch_matmul_NT"):
        sch.compute_at(sch.get_sblock(name), keys)
    sch.decompose_reduction(cascade, keys)
    expected = run(attention())
    for before, after in zip(expected, run(sch.mod["main"]), strict=True):
        np.testing.assert_allclose(after, before, rtol=2e-5, atol=2e-6)


def test_another_reduction_axis_is_blocked() -> None:
    x = te.placeholder((ROWS, 3, KEYS), "float32", name="x")

    def keys(a: str, b: str) -> list[Any]:
        return [te.reduce_axis((0, 3), a), te.reduce_axis((0, KEYS), b)]

    a, b = keys("a", "b")
    m = te.compute((ROWS,), lambda i: te.max(x[i, a, b], axis=[a, b]), name="m")
    c, d = keys("c", "d")
    s = te.compute((ROWS,), lambda i: te.sum(te.exp(x[i, c, d] - m[i]), axis=[c, d]), name="s")
    func = te.create_prim_func([x, m, s])
    expected = run(func)
    for place, factor in ((1, 2), (2, 4)):
        sch = Schedule(func, debug_mask="all")
        loop = sch.get_loops(sch.get_sblock("s"))[place]
        report = sch.fuse_cascaded_reductions("m", loop, factor=factor)
        assert (report.certificate.shared, report.certificate.factor) == (place - 1, factor)
        for before, after in zip(expected, run(sch.mod["main"]), strict=True):
            np.testing.assert_allclose(after, before, rtol=2e-5, atol=2e-6)
    sch = Schedule(func)
    with pytest.raises(s_tir.ScheduleError, match="cascade-loop"):
        sch.fuse_cascaded_reductions("m", sch.get_loops(sch.get_sblock("s"))[0])


def test_a_softmax_that_is_no_epilogue_points_to_the_cascade() -> None:
    func = softmax(128)
    for block in ("T_softmax_maxelem", "T_softmax_expsum"):
        refused = fuse_epilogue.analyze(func, block)
        assert refused.stopped is not None and refused.stopped.code == "index-map"
        assert "sch.fuse_cascaded_reductions fuses both" in refused.stopped.message
    # The way out is one, and its report says first what it does to floats.
    made = fuse_epilogue.analyze_cascade(func, "T_softmax_maxelem")
    assert made.fusable
    assert str(made).splitlines()[0].endswith("blocks of 64 keys. (numerics: reassociate)")
    stopped = fuse_epilogue.analyze_cascade(func, "T_softmax_maxelem", numerics="exact")
    assert str(stopped).endswith("(numerics: exact)")
    # A read that is no read of rows has another cause, and another cure.
    x, k = te.placeholder((ROWS, KEYS), name="x"), te.reduce_axis((0, KEYS), "k")
    y = te.compute((ROWS, ROWS), lambda i, j: te.sum(x[i, k] * x[j, k], axis=k), name="y")
    other = te.create_prim_func([x, te.compute((ROWS,), lambda i: y[i, i] + 1.0, name="z")])
    assert "cascaded" not in str(fuse_epilogue.analyze(other, "y"))
