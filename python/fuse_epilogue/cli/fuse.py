"""``fuse``: fuses the reductions of a module with what follows them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from tvm import ir

from .._files import write
from ..transform import FunctionReport, FuseReductionEpilogue, report_of
from ..transform.report import FAILED
from . import inputs, output, targets
from .output import Answer

#: Of :data:`fuse_epilogue.REFUSALS`: codes of reductions of which nothing is left to be fused.
_NOTHING_TO_FUSE = ("no-consumer", "already-fused")


def run(given: argparse.Namespace) -> Answer:
    """Fuse, report and write."""
    target = None if given.target is None else targets.planned_target(given.target)
    output.check_file("--out", given.out)
    module = inputs.read(given.input, given.run_python)
    one = FuseReductionEpilogue(given.policy, numerics=given.numerics, target=target)
    fused = ir.transform.Sequential([one])(module)
    report = report_of(fused)
    if given.out:
        write(given.out, ir.save_json(fused) + "\n")
    elif report.fused:
        output.note("the fused module is not written: name a file with --out to keep it")
    text, data = str(report), json.loads(report.to_json())
    if given.show:
        data["tir"] = tir(module, fused, [each.name for each in report.functions if each.fused])
        shown = [
            f"{name}, {when}:\n{script}"
            for name, scripts in data["tir"].items()
            for when, script in scripts.items()
        ]
        text = "\n\n".join([text, *shown])
    return Answer(text, data, code(report.functions))


def tir(before: ir.IRModule, after: ir.IRModule, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the scripts of some functions, before and after fusing, by name."""
    return {
        name: {"before": before[name].script(), "after": after[name].script()} for name in names
    }


def code(reports: Sequence[FunctionReport]) -> int:
    """Return the exit code: whether anything was refused in some functions, or failed."""
    for each in reports:
        stopped = [one.fusion.stopped for one in each.reductions if one.fusion.stopped is not None]
        if each.left_alone == FAILED or any(one.code not in _NOTHING_TO_FUSE for one in stopped):
            return output.REFUSED
    return output.DONE
