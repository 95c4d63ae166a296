"""``make fuzz N=100000``: judge generated programs, and write down the counts."""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
from pathlib import Path
from typing import Any

from .chunk import objection_to
from .command import finish, parser_of, positive, timed
from .report import conditions
from .runner import ProgressBar, run_all
from .state import CHUNK, FOLDER, Run
from .tally import Tally


def main() -> int:
    """Run what the command line asks for; returns the exit status."""
    parser = parser_of("generated", __doc__, 10_000, FOLDER)
    parser.add_argument("--chunk", type=positive, default=CHUNK, metavar="PROGRAMS")
    parser.add_argument("--baseline", action="store_true", help="TVM's own primitive as well")
    args = parser.parse_args()
    if args.show:
        return show(args.show)
    run = Run(
        args.seed, args.programs, folder=args.folder.resolve(), chunk=args.chunk, again=args.again
    )
    report = functools.partial(report_of, run, args.workers, args.baseline)
    return finish(report, args.output, print_report, is_wrong)


def is_wrong(report: dict[str, Any]) -> bool:
    """Return whether there is something in a report that must not be."""
    ours = report["ours"]
    return bool(ours["certificates_refused"] or any(ours["verdicts"][k] for k in wrong_kinds()))


def wrong_kinds() -> tuple[str, ...]:
    """Return the verdicts that must not be."""
    from .verdict import WRONG

    return WRONG


def report_of(run: Run, workers: int, baseline: bool) -> dict[str, Any]:
    """Run it, and TVM's primitive if that is asked for; return the report."""
    report = conditions(run, workers)
    report["ours"] = timed(run, workers, None, Tally, report).summary()
    if baseline:
        of_tvm = dataclasses.replace(run, baseline=True, again=False)
        print("TVM's own primitive:", file=sys.stderr)
        counts = run_all(of_tvm, workers, ProgressBar(run.programs)).summary()
        report["tvm"] = {
            "note": "the reduction and its first epilogue, the only call that TVM has; a "
            "refusal has no code, so that none is wrong",
            **counts,
        }
    return report


def print_report(report: dict[str, Any]) -> None:
    """Print the counts side by side."""
    columns = {"this package": report["ours"]}
    if "tvm" in report:
        columns["TVM's own"] = report["tvm"]
    print(f"{'':26}" + "".join(f"{name:>16}" for name in columns))
    rows = ("programs", "with_undefined_operands", "fusable", "fused", "percent_fused")
    for row in (*rows, "compiled_too", "certificates_checked", "certificates_refused"):
        print(f"{row:26}" + "".join(f"{counts[row]:>16,}" for counts in columns.values()))
    for kind in report["ours"]["verdicts"]:
        numbers = "".join(f"{counts['verdicts'][kind]:>16,}" for counts in columns.values())
        print(f"{kind:26}{numbers}")


def show(path: Path) -> int:
    """Judge a saved counterexample, as it was found and shrunk, and print it."""
    from .build import build
    from .spec import Program
    from .steps import scheduled
    from .truth import expectation
    from .verdict import WRONG, judge

    saved = json.loads(path.read_text())
    verdict = None
    for name in ("program", "shrunk"):
        if name not in saved:
            continue
        program = Program.from_json(saved[name])
        sch, done = scheduled(build(program), program)
        verdict = judge(program, seed=saved.get("number", 0))
        print(f"# {name}: {json.dumps(saved[name])}")
        print(sch.mod["main"].script())
        print(f"expected: {expectation(program, done)}")
        print(f"verdict:  {verdict.kind} {verdict.detail}")
        if verdict.certificate is not None:
            print(f"checker:  {objection_to(verdict) or 'accepts the certificate'}")
        if verdict.after is not None:
            print(verdict.after.script())
    return 1 if verdict is not None and verdict.kind in WRONG else 0


if __name__ == "__main__":
    sys.exit(main())
