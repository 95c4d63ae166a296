"""``make fuzz-cuda N=1000``, ``make fuzz-neuron N=2000``: judge functions, and write the counts."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from generated.__main__ import conditions, to_json
from generated.runner import ProgressBar, provenance, run_all
from generated.state import ROOT, Run, StateError

#: Functions that are compiled together, and lost together should the process die.
CHUNK = 20


def main() -> int:
    """Run what the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m guarded_functions", description=__doc__)
    parser.add_argument("machine", choices=("cuda", "neuron"))
    parser.add_argument("-n", "--functions", type=int, default=100, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, metavar="PROCESSES")
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON file for the counts")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "fuzz-guarded")
    parser.add_argument("--show", type=Path, metavar="FILE", help="judge one counterexample again")
    args = parser.parse_args()
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    if args.show:
        return show(args.show, args.machine)
    folder = args.folder.resolve() / args.machine
    run = Run(args.seed, args.functions, folder=folder, chunk=CHUNK, module="guarded_functions")
    try:
        report = report_of(run, args.workers)
    except StateError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nInterrupted; the same command goes on from here.", file=sys.stderr)
        return 130
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(to_json(report))
    print(json.dumps({key: report["counts"][key] for key in ("functions", "verdicts", "refusals")}))
    return 1 if report["wrong"] else 0


def report_of(run: Run, workers: int) -> dict[str, Any]:
    """Run it; return the report."""
    from .chunk import run_chunk
    from .verdicts import Tally

    begun = time.monotonic()
    total = run_all(run, workers, ProgressBar(run.programs), run_chunk, Tally)
    report = {**conditions(run, workers), "benchmark": f"fuzz of guarded {run.folder.name}"}
    report |= provenance(f"fuzz_{run.folder.name}")
    report["wall_time_s"] = round(time.monotonic() - begun, 1)
    report["wrong"] = total.wrong
    report["counts"] = total.summary()
    return report


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
