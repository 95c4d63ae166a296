"""``make fuzz-cascades N=100000``: judge generated cascades, and write down the counts."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from generated.__main__ import conditions
from generated.runner import ProgressBar, provenance, run_all
from generated.state import ROOT, Run, StateError

FOLDER = ROOT / "build" / "fuzz-cascades"
CHUNK = 250


def main() -> int:
    """Run what the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m generated_cascades", description=__doc__)
    parser.add_argument("-n", "--programs", type=int, default=10_000, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, metavar="PROCESSES")
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON file for the counts")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for the state")
    parser.add_argument("--show", type=Path, metavar="FILE", help="judge one counterexample again")
    args = parser.parse_args()
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    if args.show:
        return show(args.show)
    run = Run(
        args.seed,
        args.programs,
        folder=args.folder.resolve(),
        chunk=CHUNK,
        module="generated_cascades",
    )
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
        args.output.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report["counts"], indent=1))
    return 1 if report["wrong"] else 0


def report_of(run: Run, workers: int) -> dict[str, Any]:
    """Run it; return the report."""
    from .chunk import run_chunk
    from .tally import Tally

    begun = time.monotonic()
    total = run_all(run, workers, ProgressBar(run.programs), run_chunk, Tally)
    report = {**conditions(run, workers), "benchmark": "fuzz of cascades"}
    report |= provenance("fuzz_cascades")
    report["wall_time_s"] = round(time.monotonic() - begun, 1)
    report["wrong"] = total.wrong
    report["counts"] = total.summary()
    return report


def show(path: Path) -> int:
    """Judge a saved counterexample again, and print it."""
    from .build import build
    from .chunk import compiled, judge
    from .spec import Program
    from .tally import FUSED, WRONG

    saved = json.loads(path.read_text())
    program = Program.from_json(saved["program"])
    seed = f"{path.stem.split('-')[-2]}/{saved['number']}"
    print(build(program).script())
    verdict = judge(program, seed)
    if verdict.after is not None:
        print(verdict.after.script())
    if verdict.kind == FUSED:
        verdict = compiled(program, seed, verdict.proof)
    print(verdict.kind, verdict.detail)
    return 1 if verdict.kind in WRONG else 0


if __name__ == "__main__":
    sys.exit(main())
