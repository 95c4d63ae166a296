"""The report of the pass: its numbers, its JSON, its text, how it survives; and the policies."""

from __future__ import annotations

import doctest
import json
import re
from dataclasses import replace
from typing import Any

import pytest
import tvm
from tvm import relax, tirx
from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.script import tirx as T

from fuse_epilogue import (
    REFUSALS,
    FusionReport,
    FusionStep,
    planner,
    schedules,
    transform,
    workloads,
)
from fuse_epilogue.transform import POLICIES, FuseReductionEpilogue, Report, policy, report_of
from fuse_epilogue.transform.previous_runs import with_earlier
from fuse_epilogue.transform.report import MODULE_ATTR, ReductionReport


def absorbing(*args: Any, **options: Any) -> Any:
    """The pass as it absorbs what it can."""
    return FuseReductionEpilogue(*args, **{"numerics": "reassociate", **options})


@T.prim_func(s_tir=True)
def kept(
    x: T.Buffer((4, 8), "float32"),
    total: T.Buffer((4,), "float32"),
    y: T.Buffer((4,), "float32"),
):
    """The sum itself is a result, too: no intermediate can become smaller."""
    for i, k in T.grid(4, 8):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                total[vi] = T.float32(0)
            total[vi] += x[vi, vk]
    for i in range(4):
        with T.sblock("twice"):
            vi = T.axis.spatial(4, i)
            y[vi] = total[vi] * T.float32(2)


@T.prim_func(s_tir=True)
def symbolic(a: T.handle, b: T.handle):
    n = T.int64()
    x, y = T.match_buffer(a, (n, 8)), T.match_buffer(b, (n,))
    total = T.sblock_alloc_buffer((n,))
    for i, k in T.grid(n, 8):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                total[vi] = T.float32(0)
            total[vi] += x[vi, vk]
    for i in range(n):
        with T.sblock("twice"):
            vi = T.axis.spatial(n, i)
            y[vi] = total[vi] * T.float32(2)


@pytest.fixture
def mod() -> IRModule:
    return IRModule({"b": workloads.matmul(4, 6, 5, activation="relu"), "a": kept})


# ---- Attached, and alive -------------------------------------------------------------------------


def test_json_keeps_everything(mod: IRModule) -> None:
    report = report_of(absorbing()(mod))
    assert Report.from_json(report.to_json()) == report
    data = json.loads(report.to_json())
    assert [each["name"] for each in data["functions"]] == ["b", "a"]
    assert data["functions"][0]["reductions"][0]["fusion"]["steps"][0]["absorbed"] == "bias[v_n]"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "not the JSON of a report"),
        ("[]", "not the JSON of a report"),
        ("no", "not the JSON of a report"),
        ('{"version": 2}', "not of version 1"),
        ('{"version": 1, "functions": [{}], "policy": 1}', "not the JSON of a report"),
    ],
)
def test_other_json_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Report.from_json(text)


def test_it_survives_saving(mod: IRModule) -> None:
    fused = absorbing()(mod)
    loaded = tvm.ir.load_json(tvm.ir.save_json(fused))
    assert report_of(loaded) == report_of(fused)
    # And a second run still knows what was done.
    assert absorbing()(loaded).same_as(loaded)


PASSES = [
    relax.transform.LegalizeOps(),
    relax.transform.AnnotateTIROpPattern(),
    relax.transform.FoldConstant(),
    relax.transform.FuseOps(),
    relax.transform.FuseTIR(),
    relax.transform.DeadCodeElimination(["a", "b"]),
    relax.transform.ToNonDataflow(),
    relax.transform.CallTIRRewrite(),
]


@pytest.mark.parametrize("after", PASSES, ids=lambda each: each.info.name)
def test_it_survives_passes(mod: IRModule, after: Any) -> None:
    fuse = absorbing()
    once = fuse(mod)
    sequence = tvm.ir.transform.Sequential([fuse, after])
    assert report_of(sequence(mod)) == report_of(once)


def test_no_report(mod: IRModule) -> None:
    with pytest.raises(ValueError, match="has no report of a fusion; run"):
        report_of(mod)
    assert MODULE_ATTR in absorbing("never")(mod).attrs


# ---- What it says --------------------------------------------------------------------------------


def test_bytes_are_those_of_the_buffers(mod: IRModule) -> None:
    """Two intermediates of 4 x 6 float32: one goes, of the other a row stays, or an element."""
    for rows, left in ((True, 6), (False, 1)):
        fused = absorbing(rows=rows)(mod)
        assert report_of(fused).bytes_saved == 4 * (24 + 24 - left)
    allocated = [len(f.body.block.alloc_buffers) for f in (mod["b"], fused["b"])]
    assert allocated == [2, 1]


def test_text(mod: IRModule) -> None:
    text = str(report_of(absorbing()(mod)))
    assert text.splitlines() == [
        "2 reductions in 2 functions, 1 fused (numerics: reassociate), 168 bytes of intermediates "
        "saved; not fused: 1 not-chosen",
        "b: 1 of 1 fused, 168 bytes of intermediates saved",
        "    'matmul' absorbed bias[v_n] from 'bias' into T.init; 'summed' is gone.",
        "    'relu' computes T.max(x, T.float32(0.0)) once for each finished x: it does not "
        "distribute over a sum.",
        "    Fused: 168 bytes of intermediates are saved.",
        "a: 0 of 1 fused",
        "    Not fused [not-chosen]: no intermediate would become smaller.",
        "    ('twice' computes x * T.float32(2.0) once for each finished x: it cannot be absorbed, "
        "because the caller, or another scope, may read 'total' as it is.)",
        "    ('total' stays alive in full: a block outside of the fusion, or the caller, reads "
        "it.)",
        "Hint: the loops of b are not scheduled, and take most of the time: fusing alone gains "
        "little there, or loses. Schedule them too, with fuse_epilogue.compile, "
        "fuse_epilogue.schedules.apply or a pass of TVM's.",
    ]


def test_no_hint_where_something_is_scheduled_or_nothing_is_fused(mod: IRModule) -> None:
    assert report_of(absorbing()(mod)).hint
    assert not report_of(absorbing("never")(mod)).hint
    sch = Schedule(mod["b"])
    sch.vectorize(sch.get_loops("relu")[-1])
    report = report_of(absorbing()(IRModule({"b": sch.mod["main"]})))
    assert report.functions[0].left_alone == "scheduled" and not report.hint
    both = IRModule({"b": mod["b"], "c": mod["b"].with_attr("global_symbol", "c")})
    assert "the loops of b and 1 more are not" in str(report_of(absorbing()(both)))


def test_codes_are_known(mod: IRModule) -> None:
    mod = IRModule({**{v.name_hint: f for v, f in mod.functions.items()}, "c": summed()})
    report = report_of(absorbing()(mod))
    codes = {each.code for f in report.functions for each in f.reductions}
    assert codes == {"", "not-chosen", "no-consumer"}
    assert codes - {"", "not-chosen"} <= set(REFUSALS)


def summed() -> tirx.PrimFunc:
    return workloads.matmul(4, 6, 5, activation=None, bias=False)


# ---- Policies ------------------------------------------------------------------------------------


def test_by_bytes_where_nothing_is_saved(mod: IRModule) -> None:
    assert absorbing("planner")(mod)["a"].same_as(mod["a"])
    assert not absorbing("always")(mod)["a"].same_as(mod["a"])


def test_a_size_that_is_a_symbol() -> None:
    report = report_of(absorbing()(IRModule({"main": symbolic})))
    (entry,) = report.functions[0].reductions
    assert entry.fused and entry.bytes_saved is None and "a symbol" in entry.decision
    assert report.bytes_saved == 0


def test_never_says_what_could_be(mod: IRModule) -> None:
    unfused = absorbing("never")(mod)
    assert all(unfused[name].same_as(mod[name]) for name in ("a", "b"))
    never, always = report_of(unfused), report_of(absorbing("always")(mod))
    assert (never.fused, never.refused, never.bytes_saved) == (0, {"not-chosen": 2}, 0)
    assert [e.fusion for e in never.functions[0].reductions] == [
        e.fusion for e in always.functions[0].reductions
    ]


# With exact numerics only a tail will be there: that the other way is faster does not count.
@pytest.mark.parametrize(
    ("numerics", "apart", "fuses"),
    [
        ("reassociate", 3.0, True),
        ("reassociate", 2.0, True),
        ("reassociate", 1.0, False),
        ("exact", 5.0, True),
        ("exact", 3.0, False),
    ],
)
def test_the_planner_decides(
    monkeypatch: pytest.MonkeyPatch, mod: IRModule, numerics: str, apart: float, fuses: bool
) -> None:
    costs_of_plans(monkeypatch, {"none": apart, "tail": 4.0, "absorbed": 2.0})
    target = schedules.host(1)
    fused = absorbing(target=target, numerics=numerics)(IRModule({"main": mod["b"]}))
    (entry,) = report_of(fused).functions[0].reductions
    way = {"reassociate": "2e+06 us absorbed", "exact": "4e+06 us tail"}[numerics]
    assert entry.fused is fuses and "planner predicts" in entry.decision and way in entry.decision
    assert (entry.code == "not-chosen") is not fuses
    # Where the policy is to fuse, or nothing is planned for, nobody asks.
    monkeypatch.setattr(policy, "plan", lambda *_: pytest.fail("planned"))
    assert report_of(absorbing()(mod)).fused == 1
    assert report_of(absorbing("always", target=target)(mod)).fused == 2


def costs_of_plans(monkeypatch: pytest.MonkeyPatch, costs: dict[str, float]) -> None:
    """Let plans have these ways to fuse, at these costs in seconds."""
    real = planner.plan

    def plan(func: Any, target: Any) -> Any:
        chosen = real(func, target)
        best = chosen.found.best
        ways = {way: replace(best, cost=cost) for way, cost in costs.items()}
        return replace(chosen, found=replace(chosen.found, by_fusion=ways))

    monkeypatch.setattr(policy, "plan", plan)


@pytest.mark.parametrize("apart", [1.0, 3.0])
def test_the_planner_knows_another_way_only(monkeypatch: pytest.MonkeyPatch, apart: float) -> None:
    costs_of_plans(monkeypatch, {"none": apart, "absorbed": 2.0})
    module = IRModule({"main": workloads.matmul(4, 6, 5, activation="relu")})
    fused = FuseReductionEpilogue(target=schedules.host(1))(module)
    (entry,) = report_of(fused).functions[0].reductions
    assert entry.fused and entry.decision == "168 bytes of intermediates are saved"


def test_the_planner_decides_for_trainium() -> None:
    module = IRModule({"main": workloads.matmul(16, 16, 16, activation="relu")})
    (entry,) = report_of(absorbing(target="trn1")(module)).functions[0].reductions
    assert "us fused" in entry.decision


def test_the_planner_does_not_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "plan", lambda *_: (_ for _ in ()).throw(ValueError("unknown")))
    mod = IRModule({"main": workloads.matmul(4, 6, 5, activation="relu")})
    (entry,) = report_of(absorbing(target=schedules.host(1))(mod)).functions[0].reductions
    assert entry.fused and entry.decision == "168 bytes of intermediates are saved"


def test_a_real_plan() -> None:
    mod = IRModule({"main": workloads.matmul(16, 16, 16, activation="relu")})
    report = report_of(absorbing(target=schedules.host(1))(mod))
    assert "the planner predicts" in report.functions[0].reductions[0].decision


@pytest.mark.parametrize("options", [{"policy": "often"}, {"numerics": "loose"}])
def test_options_that_are_none(options: dict[str, str]) -> None:
    ((name, value),) = options.items()
    known = list(POLICIES) if name == "policy" else ["reassociate", "exact"]
    with pytest.raises(ValueError, match=f"{name} must be one of .*{known[-1]}.*: '{value}'"):
        FuseReductionEpilogue(**options)


@pytest.mark.parametrize("value", [["always"], None, 1, {"exact": True}])
@pytest.mark.parametrize("name", ["policy", "numerics", "distribute", "rows"])
def test_options_of_another_type(name: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"{name} must be .*: {re.escape(repr(value))}"):
        FuseReductionEpilogue(**{name: value})


@pytest.mark.parametrize("thing", [None, "main", workloads.matmul(4, 4, 4)], ids=type)
def test_what_is_no_module_has_no_report(thing: object) -> None:
    with pytest.raises(TypeError, match=f"^mod must be an IRModule, not {type(thing).__name__}$"):
        report_of(thing)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["fuse_one", "policy", "previous_runs", "report", "fuse"])
def test_examples_in_docstrings(name: str) -> None:
    result = doctest.testmod(getattr(transform, name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


@pytest.mark.parametrize("target", ["lvm", "", 3, "trn9", ["x"], {"kind": "nope"}])
def test_a_target_that_is_none_is_refused(target):
    with pytest.raises(ValueError, match="cannot be planned for"):
        transform.FuseReductionEpilogue(target=target)


def test_a_part_absorbed_before_stays_when_its_tail_is_fused_again() -> None:
    """An earlier run absorbed a bias and left a tail; this one tells again of the tail alone."""

    def fused(*steps: FusionStep) -> ReductionReport:
        fusion = FusionReport(True, "sum", "y", "reassociate", steps, (), None, None)
        return ReductionReport("sum", True, fusion, 0, "", 0)

    left = FusionStep("relu", "bias[vi]", "", "T.max(x, 0)", "", "it does not distribute")
    now = fused(FusionStep("relu", "", "T.max(x, 0)", "", "summed", ""))
    steps = with_earlier(now, fused(left)).fusion.steps
    assert [(each.absorbed, each.distributed, each.tail) for each in steps] == [
        ("bias[vi]", "", ""),
        ("", "T.max(x, 0)", ""),
    ]
    only_tail = replace(left, absorbed="")
    assert with_earlier(now, fused(only_tail)).fusion.steps == now.fusion.steps
