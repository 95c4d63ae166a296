"""``make fuzz-schedules N=5000``: judge schedules of generated functions; write down the counts."""

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

from .build import build
from .chunk import run_chunk
from .spec import Function
from .tally import Tally
from .verdict import WRONG, judge, targets

FOLDER = ROOT / "build" / "fuzz-schedules"
CHUNK = 20


def main() -> int:
    """Run what the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m planned_functions", description=__doc__)
    parser.add_argument("-n", "--programs", type=int, default=5_000, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, metavar="PROCESSES")
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON file for the counts")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for the state")
    parser.add_argument("--show", type=Path, metavar="FILE", help="judge one counterexample again")
    args = parser.parse_args()
    # The functions are tiny: threads would only wait for each other.
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    if args.show:
        return show(args.show)
    folder = args.folder.resolve()
    run = Run(args.seed, args.programs, folder=folder, chunk=CHUNK, module="planned_functions")
    report = conditions(run, args.workers)
    report |= {"benchmark": "fuzz-schedules", **provenance("fuzz_schedules")}
    report["machine"]["targets"] = [str(target) for target in targets()]
    start = time.monotonic()
    try:
        total = run_all(run, args.workers, ProgressBar(run.programs), run_chunk, Tally)
    except StateError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nInterrupted; the same command goes on from here.", file=sys.stderr)
        return 130
    report["wall_time_s"] = round(time.monotonic() - start, 1)
    report["ours"] = total.summary()
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(to_json(report))
    print_report(report["ours"])
    return 1 if total.wrong else 0


def print_report(counts: dict[str, Any]) -> None:
    """Print the counts."""
    for name in ("functions", "guarded", "scheduled", "schedules_compared"):
        print(f"{name:20}{counts[name]:>10,}")
    for kind, count in counts["verdicts"].items():
        print(f"{kind:20}{count:>10,}")


def show(path: Path) -> int:
    """Judge a saved counterexample, and print it."""
    saved = json.loads(path.read_text())
    function = Function.from_json(saved["program"])
    verdict = judge(function, saved["number"])
    print(build(function).text)
    print(f"verdict: {verdict.kind} {verdict.detail}")
    return 1 if verdict.kind in WRONG else 0


if __name__ == "__main__":
    sys.exit(main())
