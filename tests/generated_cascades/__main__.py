"""``make fuzz-cascades N=100000``: judge generated cascades, and write down the counts."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

from generated.command import finish, parser_of, timed
from generated.report import conditions
from generated.state import ROOT, Run

FOLDER = ROOT / "build" / "fuzz-cascades"
CHUNK = 250


def main() -> int:
    """Run what the command line asks for; returns the exit status."""
    args = parser_of("generated_cascades", __doc__, 10_000, FOLDER).parse_args()
    if args.show:
        return show(args.show)
    folder = args.folder.resolve()
    run = Run(
        args.seed,
        args.programs,
        folder=folder,
        chunk=CHUNK,
        again=args.again,
        module="generated_cascades",
    )
    report = functools.partial(report_of, run, args.workers)
    return finish(report, args.output, print_report, lambda report: bool(report["wrong"]))


def report_of(run: Run, workers: int) -> dict[str, Any]:
    """Run it; return the report."""
    from .chunk import run_chunk
    from .tally import Tally

    report = conditions(run, workers, "fuzz_cascades", "fuzz of cascades")
    total = timed(run, workers, run_chunk, Tally, report)
    return {**report, "wrong": total.wrong, "counts": total.summary()}


def print_report(report: dict[str, Any]) -> None:
    """Print the counts."""
    print(json.dumps(report["counts"], indent=1))


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
