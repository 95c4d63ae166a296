"""``make fuzz-cuda N=1000``, ``make fuzz-neuron N=2000``: judge functions, and write the counts."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

from generated.command import finish, parser_of, timed
from generated.report import conditions
from generated.state import ROOT, Run

FOLDER = ROOT / "build" / "fuzz-guarded"
#: Functions that are compiled together, and lost together should the process die.
CHUNK = 20


def main() -> int:
    """Run what the command line asks for; returns the exit status."""
    parser = parser_of("guarded_functions", __doc__, 100, FOLDER, "functions")
    parser.add_argument("machine", choices=("cuda", "neuron"))
    args = parser.parse_args()
    if args.show:
        return show(args.show, args.machine)
    folder = args.folder.resolve() / args.machine
    run = Run(
        args.seed,
        args.programs,
        folder=folder,
        chunk=CHUNK,
        again=args.again,
        module="guarded_functions",
    )
    report = functools.partial(report_of, run, args.workers)
    return finish(report, args.output, print_report, lambda report: bool(report["wrong"]))


def report_of(run: Run, workers: int) -> dict[str, Any]:
    """Run it; return the report."""
    from .chunk import run_chunk
    from .verdicts import Tally

    machine = run.folder.name
    report = conditions(run, workers, f"fuzz_{machine}", f"fuzz of guarded {machine}")
    total = timed(run, workers, run_chunk, Tally, report)
    return {**report, "wrong": total.wrong, "counts": total.summary()}


def print_report(report: dict[str, Any]) -> None:
    """Print the counts."""
    print(json.dumps({key: report["counts"][key] for key in ("functions", "verdicts", "refusals")}))


def show(path: Path, machine: str) -> int:
    """Judge a saved counterexample again, and print it."""
    from .chunk import MACHINES, Scheduled, judge
    from .spec import Function
    from .text import build, script
    from .verdicts import WRONG

    saved = json.loads(path.read_text())
    function, number, way = Function.from_json(saved["function"]), saved["number"], saved["way"]
    print(script(function))
    func, on = build(function), MACHINES[machine]
    seed = f"{path.stem.split('-')[1]}/{number}"
    made = on.scheduled(func, way, seed, function.kind)
    print(getattr(made, "source", made))
    [verdict] = judge([Scheduled(number, function, way, func, made)], on)
    print(verdict)
    return 1 if verdict.kind in WRONG else 0


if __name__ == "__main__":
    sys.exit(main())
