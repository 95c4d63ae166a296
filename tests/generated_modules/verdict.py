"""Judges a module: fused against unfused, and both, and it compiled as a model, against oracles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm.ir import IRModule

from fuse_epilogue.models.compiling import compile_imported
from fuse_epilogue.transform import report_of

from . import pipeline
from .child import Ended, begins, in_child
from .data import KINDS, Fenced, arrays
from .oracle import Oracle
from .reference import Expected, expected
from .relax_module import build
from .spec import Module, is_float

EQUAL = "equal"
DIFFERENT = "different"
CRASHED = "crashed"
ERROR = "error"
ORACLE = "oracle-differs"
NO_PROGRAM = "not-compiled-unfused"
VERDICTS = (EQUAL, DIFFERENT, CRASHED, ERROR, ORACLE, NO_PROGRAM)
#: What must never happen. That TVM fails without the pass is a fault of TVM, or of the generator:
#: such a module is kept, and says nothing of the pass. Neither does one in which TVM and the
#: oracles do not agree without the pass, but it may hide that the pass is wrong.
WRONG = (DIFFERENT, CRASHED, ERROR, ORACLE)


@dataclass(frozen=True)
class Verdict:
    """The judgement of one module.

    - `kind`: one of `VERDICTS`.
    - `detail`: what differs, which signal, which error.
    - `reports` (dict[str, dict]): what the pass did under either numerics: reductions found and
      fused, and the codes of the others.
    - `oracle`: "equal", "none" without one, or why ONNX Runtime could not be asked.
    - `nasty`: whether special values were compared too.
    """

    kind: str
    detail: str = ""
    reports: dict[str, Any] = field(default_factory=dict)
    oracle: str = "none"
    nasty: bool = False


def judge(module: Module, seed: str, oracle: Oracle | None = None) -> Verdict:
    """Judge a module.

    - `seed`: of the data.
    - `oracle`: ONNX Runtime; NumPy is always asked.
    """
    kinds = KINDS if takes_any_float(module) else KINDS[:1]
    data = {kind: arrays(module, seed, kind) for kind in kinds}
    ended = in_child(lambda: _stages(module, data))
    found = ended.messages
    reports = {name: found[f"report {name}"] for name in _FUSED if f"report {name}" in found}
    nasty = len(kinds) > 1

    def verdict(kind: str, detail: str = "", message: str = "none") -> Verdict:
        return Verdict(kind, detail, reports, message, nasty)

    if ended.fault:
        return verdict(*_of_fault(ended))
    failed = [report["failed"] for report in reports.values() if report["failed"]]
    if failed:
        return verdict(ERROR, failed[0][0])
    wanted = expected(module, data["whole"])
    beyond = outside(wanted, found["run unfused whole"])
    if beyond:
        return verdict(ORACLE, f"TVM, unfused: {beyond}")
    for kind in kinds:
        difference = unequal(found[f"run unfused {kind}"], found[f"run exact {kind}"])
        if difference:
            return verdict(DIFFERENT, f"exact, {kind} data: {difference}")
    beyond = outside(wanted, found["run reassociate whole"])
    if beyond:
        return verdict(DIFFERENT, f"reassociate: {beyond}")
    # Kernels of models sum in another order, which special values show: those only have to run.
    beyond = outside(wanted, found["run as a model whole"])
    if beyond:
        return verdict(DIFFERENT, f"as a model: {beyond}")
    if oracle is None:
        return verdict(EQUAL)
    answer = oracle.run(module, data["whole"])
    if isinstance(answer, str):
        return verdict(EQUAL, message=answer.partition("\n")[0][:160])
    beyond = outside(wanted, answer)
    if beyond:
        return verdict(ORACLE, f"ONNX Runtime: {beyond}")
    return verdict(EQUAL, message="equal")


_FUSED = pipeline.VARIANTS[1:]
_UNFUSED = ("build", "lower", "compile unfused", "run unfused")


def takes_any_float(module: Module) -> bool:
    """Return whether special values have a result: none is converted to an integer."""
    for node in module.nodes:
        if node.op == "cast" and is_float(module.value(node.args[0]).dtype):
            if not is_float(node.value.dtype):
                return False
    return any(is_float(each.value.dtype) for each in module.parameters)


def _of_fault(ended: Ended) -> tuple[str, str]:
    detail = f"{ended.stage}: {ended.fault}"
    if ended.stage in _UNFUSED:
        return NO_PROGRAM, detail
    return (CRASHED if ended.fault.startswith(("SIG", "did not")) else ERROR), detail


def _stages(module: Module, data: dict[str, list[np.ndarray]]) -> Iterator[tuple[str, Any]]:
    """Lower, fuse, compile and run a module; yields what is found on the way."""
    yield begins("build")
    mod = build(module)
    yield begins("lower")
    mod = pipeline.lowered(mod)
    variants = {"unfused": mod}
    for name in _FUSED:
        yield begins(f"pass {name}")
        variants[name] = pipeline.fused(mod, name, module.options)
        yield f"report {name}", summary(variants[name])
    yield begins("compile")
    try:
        machine = pipeline.Machine(variants)
    except Exception:
        for name, variant in variants.items():  # which of them?
            yield begins(f"compile {name}")
            pipeline.Machine({name: variant})
        raise
    for name in variants:
        yield begins(f"run {name}")
        for kind, given in data.items():
            fenced = [Fenced(array) for array in given]
            outputs = machine(name, [each.array for each in fenced])
            yield f"run {name} {kind}", outputs
    yield begins("compile as a model")
    model = compile_imported(build(module), pipeline.PROCESSOR)
    yield begins("run as a model")
    for kind, given in data.items():
        fenced = [Fenced(array) for array in given]
        yield f"run as a model {kind}", list(model(*[each.array for each in fenced]))


def summary(mod: IRModule) -> dict[str, Any]:
    """Return what the pass says that it did."""
    report = report_of(mod)
    failed = [f"{each.name}: {each.reason}" for each in report.functions if each.left_alone]
    return {
        "found": report.found,
        "fused": report.fused,
        "codes": report.refused,
        "failed": failed,
    }


def unequal(before: list[np.ndarray], after: list[np.ndarray]) -> str:
    """Say where two lists of outputs differ in a bit; empty if nowhere. NaN equals NaN."""
    for place, (wanted, got) in enumerate(zip(before, after, strict=True)):
        if (wanted.shape, wanted.dtype) != (got.shape, got.dtype):
            return f"output {place} is {got.dtype}{got.shape}, not {wanted.dtype}{wanted.shape}"
        if wanted.tobytes() == got.tobytes():
            continue
        same = wanted == got
        if wanted.dtype.kind == "f":
            same &= np.signbit(wanted) == np.signbit(got)
            same |= np.isnan(wanted) & np.isnan(got)
        if not same.all():
            where = tuple(int(i) for i in np.argwhere(~same)[0])
            return f"output {place}{list(where)} is {got[where]}, not {wanted[where]}"
    return ""


def outside(wanted: list[Expected], outputs: list[np.ndarray]) -> str:
    """Say which output is not what was expected, within its bound; empty if none."""
    for place, (want, got) in enumerate(zip(wanted, outputs, strict=True)):
        if want.value.shape != got.shape:
            return f"output {place} has the shape {got.shape}, not {want.value.shape}"
        numbers = got.astype("float64") if got.dtype.kind == "f" else got.astype("int64")
        near = np.abs(numbers - want.value) <= want.error
        if not near.all():
            where = tuple(int(i) for i in np.argwhere(~near)[0])
            return (
                f"output {place}{list(where)} is {got[where]}, not {want.value[where]} "
                f"within {want.error[where]:.3g}"
            )
    return ""
