"""How results look: as text, in notebooks, and in the log."""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
import types
from pathlib import Path
from xml.etree import ElementTree

import pytest
import tvm
from tvm import te, topi

import fuse_epilogue
from cli_runs import product, run, saved, sum_of_part
from fuse_epilogue import _html, _log, neuron, schedules, transform, tune, verify, workloads
from fuse_epilogue.models import FunctionReport, ModelReport

__all__ = ["product"]  # a fixture


def fused() -> tuple[tvm.s_tir.Schedule, tvm.tirx.PrimFunc, fuse_epilogue.FusionReport]:
    func = workloads.matmul(16, 16, 16, activation="relu")
    sch = tvm.s_tir.Schedule(func)
    return sch, sch.mod["main"], sch.fuse_reduction_epilogue("matmul")


def cells(text: str) -> list[list[str]]:
    """The rows of a table in HTML; it must be well-formed."""
    root = ElementTree.fromstring(text)
    return [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]


# ---- Tables for notebooks ------------------------------------------------------------------------


def test_cells_are_escaped() -> None:
    assert cells(_html.table(("a<b", "c"), [("<td>", "&")], "x < y")) == [
        ["a<b", "c"],
        ["<td>", "&"],
    ]


def test_a_report_of_a_call_has_a_row_for_each_epilogue() -> None:
    _, _, report = fused()
    head, bias, relu = cells(report._repr_html_())
    assert head[:2] == ["epilogue", "absorbed"]
    assert bias[:2] == ["bias", "bias[v_n]"]
    assert relu[0] == "relu" and "T.max" in relu[3]


def test_a_report_of_a_refusal_has_its_reason() -> None:
    sch = tvm.s_tir.Schedule(workloads.matmul(16, 16, 16, bias=False))
    (_, row) = cells(fuse_epilogue.analyze(sch, "matmul")._repr_html_())
    assert row[-1].startswith("[no-consumer]")


def test_a_report_of_the_pass_has_a_row_for_each_reduction() -> None:
    mod = tvm.IRModule({"main": workloads.matmul(16, 16, 16), "other": sum_of_part})
    report = transform.report_of(transform.FuseReductionEpilogue()(mod))
    _, *rows = cells(report._repr_html_())
    found = {row[0]: (row[1], row[2]) for row in rows}
    assert found == {"main": ("matmul", "yes"), "other": ("sum", "no")}
    assert next(row[-1] for row in rows if row[0] == "other") == "domain"
    assert str(report).startswith("2 reductions in 2 functions, 1 fused")


def test_one_is_no_plural() -> None:
    mod = tvm.IRModule({"main": workloads.matmul(16, 16, 16)})
    report = transform.report_of(transform.FuseReductionEpilogue()(mod))
    assert str(report).startswith("1 reduction in 1 function, 1 fused")


def test_a_report_of_a_model_has_a_row_for_each_function() -> None:
    function = FunctionReport("f<1>", "default", "none", 2, 0.0, None, "nothing knows it")
    head, row = cells(ModelReport((function,))._repr_html_())
    assert len(head) == len(row)
    assert (row[0], row[-1]) == ("f<1>", "nothing knows it")


def test_a_plan_is_a_picture_and_a_few_lines() -> None:
    plan = fuse_epilogue.plan(workloads.matmul(16, 16, 16, activation="relu"), schedules.host(1))
    assert ElementTree.fromstring(plan._repr_svg_()).tag.endswith("svg")
    lines = str(plan).splitlines()
    assert lines[0] == plan.explain().splitlines()[0]
    assert lines[1].startswith("chosen: ") and len(lines) <= 6
    assert "\n" not in repr(plan) and "product of float32" in repr(plan)


def test_a_kernel_and_its_prediction() -> None:
    kernel = neuron.emit(schedules.apply(workloads.row_reduce(128, 64), "trn1"))
    assert str(kernel) == kernel.source
    assert repr(kernel) == f"<Kernel {kernel.name}(x: float32[128, 64])>"
    assert "&lt;Kernel" in kernel._repr_html_() and "<pre>" in kernel._repr_html_()
    predicted = kernel.predict("trn1")
    _, *rows = cells(predicted._repr_html_())
    assert [row[0] for row in rows] == list(predicted.utilisation)


# ---- Verdicts ------------------------------------------------------------------------------------


def test_a_verdict_names_what_was_proved() -> None:
    sch, before, report = fused()
    verdict = verify.check(before, sch.mod["main"], report.certificate)
    assert (verdict.reduction, verdict.epilogues) == ("matmul", ("bias", "relu"))
    head, *claims = str(verdict).splitlines()
    assert head == "proved: 'matmul' with 'bias', 'relu', numerics reassociate"
    assert len(claims) == len(verdict.claims) > 0


# ---- Shells --------------------------------------------------------------------------------------


def test_a_shell_shows_one_line_and_a_notebook_the_text() -> None:
    sch, before, report = fused()
    kernel = neuron.emit(schedules.apply(workloads.row_reduce(128, 64), "trn1"))
    mod = transform.FuseReductionEpilogue()(tvm.IRModule({"main": workloads.matmul(16, 16, 16)}))
    passed = transform.report_of(mod)
    for shown in (
        report,
        verify.check(before, sch.mod["main"], report.certificate),
        verify.equivalent(before, sch.mod["main"]),
        passed,
        passed.functions[0],
        kernel.check("trn1"),
        kernel.predict("trn1"),
        ModelReport((FunctionReport("f", "default", "none", 2, 0.0),), "llvm"),
    ):
        assert "\n" not in repr(shown) and repr(shown).startswith(f"<{type(shown).__name__}")
    assert "'bias' into T.init" in repr(report)
    assert repr(ModelReport(target="llvm")) == "<ModelReport: 0 functions for llvm, 1 thread>"
    printed: list[str] = []
    printer = types.SimpleNamespace(text=printed.append)
    report._repr_pretty_(printer, False)
    assert printed == [str(report)]


def test_parts_of_results_are_no_dumps_of_their_fields() -> None:
    _, _, report = fused()
    assert str(report.certificate).splitlines() == [
        "fusion of 'bias', 'relu' into 'matmul' (numerics: reassociate)",
        "    sum into biased[v_m, v_n], from bias[v_n]",
        "    after the loops, 'relu': y[v_m, v_n] = T.max(biased[v_m, v_n], T.float32(0.0))",
        "    gone: 'summed'",
        "    floats are combined in another order",
    ]
    assert str(report.steps[0]) == "'bias': bias[v_n] absorbed; 'summed' is gone"
    stopped = fuse_epilogue.analyze(workloads.matmul(8, 8, 4, bias=False), "matmul").stopped
    assert str(stopped).startswith("[no-consumer] nothing in its scope reads 'y'")
    trial = tune.Trial("mm", 2, 4, None, "it timed out\n", True)
    assert str(trial) == "mm 2/4: failed: it timed out, fused"
    assert str(tune.Trial("mm", 1, 4, 3e-6, "")) == "mm 1/4: 3.00 us"
    outcome = FunctionReport("f", "contraction", "tail", 1, 2e-6, why="it is small")
    assert str(outcome) == "f: contraction, epilogue: tail, 1 call, 2.0 us predicted (it is small)"
    for shown in (
        *(report.certificate, *report.certificate.epilogues, *report.certificate.tails),
        *(*report.steps, stopped, trial, outcome, tune.LeftOut("mm", "it has no loop")),
        transform.FunctionSchedule("f", why="nothing knows it"),
    ):
        assert repr(shown) == f"<{type(shown).__name__}: {str(shown).splitlines()[0]}>"


def test_parts_of_cascades_are_no_dumps_of_their_fields() -> None:
    x = te.placeholder((4, 128), name="x")
    func = te.create_prim_func([x, topi.nn.softmax(x)])
    report = fuse_epilogue.analyze_cascade(tvm.s_tir.Schedule(func), "T_softmax_expsum")
    head, first, *_ = str(report.certificate).splitlines()
    assert head == (
        "cascade of 'T_softmax_maxelem', 'T_softmax_expsum' in 'T_softmax_maxelem_cascade', "
        "blocks of 64 of 128 keys (numerics: reassociate)"
    )
    assert first == "    'T_softmax_maxelem': max into T_softmax_maxelem[v_i0], law head"
    assert "T.exp(x[v_i0, v_k] - T_softmax_maxelem)" in str(report.certificate.stages[1])
    mod = transform.FuseCascadedReductions("always")(tvm.IRModule({"main": func}))
    (outcome,) = transform.cascades_of(mod)[0].cascades
    assert repr(outcome) == "<CascadeOutcome: T_softmax_maxelem -> T_softmax_expsum: fused>"


# ---- Log -----------------------------------------------------------------------------------------


def test_fusions_plans_and_passes_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fuse_epilogue"):
        fused()
        func = workloads.matmul(16, 16, 16)
        fuse_epilogue.plan(func, schedules.host(1))
        transform.FuseReductionEpilogue()(tvm.IRModule({"main": func}))
        fuse_epilogue.compile(tvm.IRModule({"main": func}), threads=1)
    text = caplog.text
    for part in ("fused 'matmul' absorbed", "planned product", "pass: 1 reduction", "compiled (a:"):
        assert part in text


def in_new_process(folder: Path, value: str | None) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(
        "import tvm, fuse_epilogue\n"
        "from fuse_epilogue import workloads\n"
        "sch = tvm.s_tir.Schedule(workloads.matmul(8, 8, 8))\n"
        "sch.fuse_reduction_epilogue('matmul')\n"
    )
    own = {} if value is None else {_log.ENVIRONMENT_VARIABLE: value}
    return subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **own},
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.full
def test_the_variable_shows_the_log_on_standard_error(tmp_path: Path) -> None:
    assert "fuse_epilogue: fused 'matmul'" in in_new_process(tmp_path, "stderr").stderr
    assert "fused" not in in_new_process(tmp_path, None).stderr


def test_the_variable_appends_the_log_to_a_file(tmp_path: Path) -> None:
    for _ in range(2):
        done = in_new_process(tmp_path, "log.txt")
        assert "fused" not in done.stderr
    assert (tmp_path / "log.txt").read_text().count("fused 'matmul'") == 2


# ---- Command line --------------------------------------------------------------------------------


def test_fuse_says_that_the_module_is_not_written(product: str, capsys, tmp_path: Path) -> None:
    _, _, said = run(capsys, "fuse", product)
    assert "the fused module is not written" in said and "--out" in said
    _, _, said = run(capsys, "fuse", product, "--out", str(tmp_path / "out.json"))
    assert "not written" not in said
    nothing = saved(tmp_path / "nothing.json", main=workloads.matmul(8, 8, 8, bias=False))
    assert "not written" not in run(capsys, "fuse", nothing)[2]


def test_fuse_shows_tir_before_and_after(product: str, capsys) -> None:
    _, text, _ = run(capsys, "fuse", product, "--show")
    before, after = text.split("main, after:")
    assert "main, before:" in before
    assert 'T.sblock("bias")' in before and 'T.sblock("bias")' not in after.split("main, after:")[0]
    assert 'T.sblock("bias")' not in run(capsys, "fuse", product)[1]


# ---- dir() ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["cli", "models", "neuron", "planner", "schedules", "transform", "tune", "verify", "workloads"],
)
def test_dir_lists_the_public_names(name: str) -> None:
    package = importlib.import_module(f"fuse_epilogue.{name}")
    assert dir(package) == sorted(package.__all__)
    assert not any(each.startswith("_") for each in dir(package))
    for each in dir(package):
        assert getattr(package, each) is not None
