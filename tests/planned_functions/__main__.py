"""``make fuzz-schedules N=5000``: judge schedules of generated functions; write down the counts."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

from generated.command import finish, parser_of, timed
from generated.report import conditions
from generated.state import ROOT, Run

from .build import build
from .chunk import run_chunk
from .spec import Function
from .tally import Tally
from .verdict import WRONG, judge, targets

FOLDER = ROOT / "build" / "fuzz-schedules"
CHUNK = 20


def main() -> int:
    """Run what the command line asks for; returns the exit status."""
    args = parser_of("planned_functions", __doc__, 5_000, FOLDER).parse_args()
    if args.show:
        return show(args.show)
    folder = args.folder.resolve()
    run = Run(
        args.seed,
        args.programs,
        folder=folder,
        chunk=CHUNK,
        again=args.again,
        module="planned_functions",
    )
    report = functools.partial(report_of, run, args.workers)
    return finish(report, args.output, print_report, is_wrong)


def report_of(run: Run, workers: int) -> dict[str, Any]:
    """Run it; return the report."""
    report = conditions(run, workers, "fuzz_schedules", "fuzz-schedules")
    report["machine"]["targets"] = [str(target) for target in targets()]
    report["ours"] = timed(run, workers, run_chunk, Tally, report).summary()
    return report


def is_wrong(report: dict[str, Any]) -> bool:
    """Return whether there is a verdict in a report that must not be."""
    return any(report["ours"]["verdicts"][kind] for kind in WRONG)


def print_report(report: dict[str, Any]) -> None:
    """Print the counts."""
    counts = report["ours"]
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
