"""``plan``: chooses schedules for a module's functions, and says why."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from typing import Any

from tvm.target import Target

from .._files import write
from . import inputs, options, output
from .output import Answer

HELP = "choose a schedule for each function by what it costs on a machine, and say why"
DESCRIPTION = """
Choose a schedule for each function of a module: the problem as loops, tile sizes and ways to fuse,
the machine as constraints, and a cost that is predicted. With --measure the most promising points
are timed on this machine, and the fastest is taken. Prints the explanation; a plan is also data
(--out), and a picture (--picture).
"""
EXAMPLE = """
  python -m fuse_epilogue plan matmul.json --target host
  python -m fuse_epilogue plan matmul.json --measure 24
  python -m fuse_epilogue plan conv.json --target trn1 --out plan.json --picture plan.svg
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--target", default="host", help=options.TARGETS + " (default: host)")
    parser.add_argument("--function", metavar="NAME", help="plan this one only (default: all)")
    parser.add_argument("--finite", action="store_true", help="for Trainium: all data are finite")
    parser.add_argument(
        "--measure",
        metavar="N",
        type=options.natural,
        default=0,
        help="time N points on this machine, a quarter of a second each or so",
    )
    parser.add_argument(
        "-o", "--out", metavar="FILE", help="write the plan as JSON; of one function"
    )
    parser.add_argument("--picture", metavar="FILE", help="draw it as SVG; of one function")


def run(given: argparse.Namespace) -> Answer:
    """Plan, and write what was asked for."""
    from .. import plan

    target = options.planned_target(given.target)
    if given.finite and isinstance(target, Target):
        raise inputs.InputError(f"--finite is for Trainium: leave it out for {given.target}")
    if given.measure:
        _check_measure(target)
    output.check_file("--out", given.out)
    output.check_file("--picture", given.picture)
    if given.picture and Path(given.picture).suffix.lower() != ".svg":
        raise inputs.InputError(f"--picture '{given.picture}': a picture is SVG, name it .svg")
    funcs = inputs.functions(inputs.read(given.input, given.run_python), given.function)
    if len(funcs) > 1 and (given.out or given.picture):
        raise inputs.InputError(
            f"--out and --picture are of one function: pick one of {', '.join(funcs)} "
            "with --function"
        )
    texts: list[str] = []
    data: dict[str, Any] = {}
    code = output.DONE
    for number, (name, func) in enumerate(funcs.items()):
        if not given.measure:
            output.progress(name, number, len(funcs))
        what = f"{number + 1} of {len(funcs)}: {name}" if len(funcs) > 1 else name
        bar = functools.partial(output.progress, what)
        try:
            chosen = plan(func, target, finite=given.finite, measure=given.measure, on_trial=bar)
        except ValueError as error:
            texts.append(f"{name}: {error}")
            data[name] = {"error": str(error)}
            code = output.REFUSED
            continue
        if not given.json:  # it takes several times as long as the plan
            texts.append(f"{name}: {chosen.explain()}")
        data[name] = {
            "kind": chosen.kind,
            "point": chosen.point,
            "predicted_s": chosen.cost,
            "measured_s": chosen.found.best.measured,
            "fused": chosen.fused,
            "by_fusion": {way: each.seconds for way, each in chosen.found.by_fusion.items()},
        }
        if given.out:
            write(given.out, chosen.to_json() + "\n")
        if given.picture:
            chosen.picture(given.picture)
    if not given.measure:
        output.progress("planned", len(funcs), len(funcs))
    return Answer("\n\n".join(texts), data, code)


def _check_measure(target: Any) -> None:
    """Refuse to time on another machine than this one."""
    from ..planner.trials import check_here

    if not isinstance(target, Target):
        raise inputs.InputError(f"--measure is for this machine: leave it out for {target}")
    try:
        check_here(target)
    except ValueError as error:
        raise inputs.InputError(f"--measure: {error}") from error
