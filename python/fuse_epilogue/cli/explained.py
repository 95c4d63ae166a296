"""``explain``: says what can be fused in a module, and why the rest cannot."""

from __future__ import annotations

import argparse

from tvm import ir

from ..transform import FuseReductionEpilogue, report_of
from . import fused, inputs, options
from .output import Answer

HELP = "say of each reduction what can be fused into it, and why the rest cannot"
DESCRIPTION = """
Look at every reduction of every function: what follows it, what of that the reduction can start
from, what is left for each finished element, and what is refused, with the code of the reason and
the way out. Nothing is changed and nothing is written.
"""
EXAMPLE = """
  python -m fuse_epilogue explain model.json
  python -m fuse_epilogue explain model.onnx --json
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--function", metavar="NAME", help="look at this one only (default: all)")
    options.add_numerics(parser)


def run(given: argparse.Namespace) -> Answer:
    """Analyse, without fusing."""
    module = inputs.read(given.input, given.run_python)
    names = inputs.functions(module, given.function)
    looking = FuseReductionEpilogue("never", numerics=given.numerics)
    report = report_of(ir.transform.Sequential([looking])(module))
    reports = [each for each in report.functions if each.name in names]
    texts, data = [], {}
    for each in reports:
        lines, found = [], []
        for one in each.reductions:
            stopped = one.fusion.stopped
            lines += [f"    {line}" for line in str(one.fusion).splitlines()]
            found.append(
                {
                    "reduction": one.reduction,
                    "fusable": one.fusion.fusable,
                    "bytes_saved": one.bytes_saved,
                    "steps": [vars(step) for step in one.fusion.steps],
                    "refused": None if stopped is None else vars(stopped),
                }
            )
        head = f"{each.name}: {len(found)} reduction{'s' * (len(found) != 1)}"
        if each.left_alone:
            head = f"{each.name}: not looked into: {each.reason}"
        texts.append("\n".join([head, *lines]))
        data[each.name] = {"left_alone": each.left_alone, "reductions": found}
    return Answer("\n".join(texts), data, fused.code(reports))
