"""The pass that fuses cascades: what it fuses and what it leaves; the results stay the same."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx, topi
from tvm.ir import IRModule

from cascades import ACCEPT, BY_NAME, REFUSE, Cascade
from cascades.case import FACTOR, KEYS
from cascades.data import inputs, run
from cascades.judge import judge
from fuse_epilogue.transform import (
    FuseCascadedReductions,
    FuseReductionEpilogue,
    cascades_of,
    report_of,
)
from fuse_epilogue.transform.cascade_report import MODULE_ATTR
from oracles import compile_together

pytestmark = pytest.mark.cpp

#: Of the project's programs those that the pass is for: not scheduled, with the default numerics.
FUSABLE = [case for case in ACCEPT if case.schedule is None and case.numerics == "reassociate"]
#: TVM's own, and attention in further forms.
PRODUCTS = [
    *("tvm_attention", "tvm_attention_causal", "tvm_attention_with_bias", "tvm_attention_grouped"),
    *("tvm_rms_norm_then_matmul", "causal_attention", "grouped_attention"),
]


def softmax(rows: int = 4, keys: int = 100) -> tirx.PrimFunc:
    x = te.placeholder((rows, keys), name="x")
    return te.create_prim_func([x, topi.nn.softmax(x)])


@cache
def fused() -> IRModule:
    """All programs that can be fused, in one module, after the pass."""
    functions = {case.name: case.func() for case in FUSABLE}
    return FuseCascadedReductions("always", factor=FACTOR)(tvm.IRModule(functions))


@pytest.mark.parametrize("case", FUSABLE, ids=lambda case: case.name)
def test_fuses_what_the_primitive_does(case: Cascade) -> None:
    reports = {each.name: each for each in cascades_of(fused()) or ()}
    report = reports[case.name]
    assert report.left_alone == ""
    assert any(each.fused for each in report.cascades), report
    assert not fused()[case.name].same_as(case.func())


@cache
def builds() -> dict[str, Any]:
    before = {name: BY_NAME[name].func() for name in PRODUCTS}
    after = FuseCascadedReductions(factor=FACTOR)(tvm.IRModule(before))
    functions = {f"{name}_fused": after[name] for name in PRODUCTS}
    return compile_together({**before, **functions}, opt_level=1)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_one_loop_and_right(name: str) -> None:
    case = BY_NAME[name]
    mod = FuseCascadedReductions(factor=FACTOR)(tvm.IRModule({name: case.func()}))
    ((cascade,),) = [each.cascades for each in cascades_of(mod) or ()]
    assert cascade.fused
    assert len(cascade.reductions) >= 2
    for kind, arrays in inputs(case, block=FACTOR):
        before, after = (run(builds()[each], case, arrays) for each in (name, f"{name}_fused"))
        judge(f"{name} on {kind} data", case.expected(arrays, -(-KEYS // FACTOR)), before, after)


def test_scores_of_attention_are_computed_in_the_loop() -> None:
    mod = tvm.IRModule({"main": BY_NAME["tvm_attention"].func()})
    ((cascade,),) = [each.cascades for each in cascades_of(FuseCascadedReductions()(mod)) or ()]
    assert cascade.moved == ("T_divide", "T_batch_matmul_NT")
    kept = FuseCascadedReductions(move_inputs=False)(mod)
    ((cascade,),) = [each.cascades for each in cascades_of(kept) or ()]
    assert cascade.fused
    assert cascade.moved == ()


def test_refused_programs_stay_as_they_are() -> None:
    functions = {case.name: case.func() for case in REFUSE if case.schedule is None}
    mod = tvm.IRModule(functions)
    after = FuseCascadedReductions("always", factor=FACTOR)(mod)
    reports = {each.name: each for each in cascades_of(after) or ()}
    for case in REFUSE:
        if case.name not in functions or case.numerics == "exact":
            continue
        report = reports[case.name]
        whole = any(
            each.fused and not each.code and case.block in each.reductions
            for each in report.cascades
        )
        assert not whole, report
        if not any(each.fused for each in report.cascades):
            assert after[case.name].same_as(functions[case.name])


def decode(heads: int, keys: int) -> tirx.PrimFunc:
    """Attention of one query, as Relax lowers it."""
    q, k, v = (
        relax.Var(name, relax.TensorType((1, rows, heads, 8), "float32"))
        for name, rows in (("q", 1), ("k", keys), ("v", keys))
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [q, k, v]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.attention(q, k, v))
        builder.emit_func_output(out)
    mod = relax.transform.LegalizeOps()(builder.get())
    (func,) = [each for each in mod.functions.values() if isinstance(each, tirx.PrimFunc)]
    return func.with_attr("global_symbol", "main")


@pytest.mark.parametrize(
    ("heads", "keys", "threads", "parts"),
    [(1, 100, 2, 5), (1, 96, 2, 2), (2, 67, 3, 2), (2, 100, 2, 1), (1, 28, 2, 1), (1, 100, 1, 1)],
)
def test_threads_that_were_idle_take_parts_of_the_keys(
    heads: int, keys: int, threads: int, parts: int
) -> None:
    before = decode(heads, keys)
    mod = FuseCascadedReductions(factor=4, threads=threads)(tvm.IRModule({"main": before}))
    ((cascade,),) = [each.cascades for each in cascades_of(mod) or ()]
    assert cascade.fused
    assert ("T_batch_matmul_NT" in cascade.moved) == (keys % (4 * parts) == 0)
    text = f"in blocks of 4 keys, in {parts} parts" if parts > 1 else "in blocks of 4 keys."
    assert text in cascade.text
    assert ("T.parallel" in str(mod["main"])) == (parts > 1)
    rng = np.random.default_rng(keys)
    arrays = [rng.standard_normal((1, rows, heads, 8)) for rows in (1, keys, keys)]
    tensors = [tvm.runtime.tensor(each.astype("float32")) for each in arrays]
    results = []
    for func in (before, mod["main"]):
        out = tvm.runtime.tensor(np.zeros((1, 1, heads, 8), "float32"))
        tvm.compile(func, "llvm")["main"](*tensors, out)
        results.append(out.numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=0, atol=1e-6)


def test_what_is_refused_in_parts_is_fused_whole() -> None:
    case = BY_NAME["gather_at_the_largest"]
    mod = tvm.IRModule({"main": case.func()})
    for threads in (1, 64):
        done = FuseCascadedReductions("always", factor=1, threads=threads)(mod)
        ((cascade,),) = [each.cascades for each in cascades_of(done) or ()]
        assert cascade.fused


def test_a_softmax_alone_keeps_its_passes() -> None:
    mod = tvm.IRModule({"main": softmax()})
    after = FuseCascadedReductions()(mod)
    (report,) = cascades_of(after) or ()
    (cascade,) = report.cascades
    assert (cascade.fused, cascade.code) == (False, "not-chosen")
    assert cascade.rules == ("head", "roll")
    assert after["main"].same_as(mod["main"])


def test_exact_fuses_no_floats() -> None:
    mod = tvm.IRModule({"main": softmax()})
    after = FuseCascadedReductions("always", numerics="exact")(mod)
    (report,) = cascades_of(after) or ()
    assert [each.code for each in report.cascades] == ["cascade-exact"]
    assert after["main"].same_as(mod["main"])


def test_never_reports_and_changes_nothing() -> None:
    mod = tvm.IRModule({"main": BY_NAME["tvm_attention"].func()})
    after = FuseCascadedReductions("never")(mod)
    assert after["main"].same_as(mod["main"])
    (report,) = cascades_of(after) or ()
    assert [each.code for each in report.cascades] == ["not-chosen"]
    assert "corrected in each block" in str(report)


@pytest.mark.parametrize("policy", ["always", "never"])
def test_a_second_run_does_nothing(policy: Any) -> None:
    once = FuseCascadedReductions(policy)(tvm.IRModule({"main": softmax()}))
    assert FuseCascadedReductions(policy)(once).same_as(once)


def test_what_is_scheduled_or_elsewhere_is_left_alone() -> None:
    sch = tvm.s_tir.Schedule(softmax())
    sch.parallel(sch.get_loops(sch.get_sblock("T_softmax_norm"))[0])
    extern = relax.ExternFunc("somewhere")
    mod = tvm.IRModule({"scheduled": sch.mod["main"], "elsewhere": extern, "softmax": softmax()})
    found = {each.name: each for each in cascades_of(FuseCascadedReductions("always")(mod)) or ()}
    assert found["scheduled"].left_alone == "scheduled"
    assert found["elsewhere"].left_alone == "external"
    assert found["softmax"].cascades[0].fused
    assert "left alone [scheduled]" in str(found["scheduled"])


def test_the_pass_of_epilogues_leaves_a_fused_cascade_alone() -> None:
    mod = FuseCascadedReductions("always")(tvm.IRModule({"main": softmax()}))
    after = FuseReductionEpilogue("always")(mod)
    assert after["main"].same_as(mod["main"])
    assert [each.left_alone for each in report_of(after).functions] == ["scheduled"]
    assert cascades_of(after) == cascades_of(mod)


def test_a_damaged_report_is_named() -> None:
    mod = tvm.IRModule({}).with_attr(MODULE_ATTR, "[1]")
    with pytest.raises(ValueError, match="damaged"):
        cascades_of(mod)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"policy": "planner"}, ValueError),
        ({"policy": 1}, TypeError),
        ({"numerics": "fast"}, ValueError),
        ({"factor": 0}, ValueError),
        ({"factor": 2.0}, TypeError),
        ({"threads": 0}, ValueError),
        ({"threads": 2.0}, TypeError),
        ({"move_inputs": 1}, TypeError),
    ],
)
def test_wrong_options(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        FuseCascadedReductions(**arguments)
