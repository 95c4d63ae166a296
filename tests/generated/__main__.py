"""``make fuzz N=100000``: judge generated programs, and write down the counts."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

from .chunk import objection_to
from .runner import ProgressBar, provenance, run_all
from .state import CHUNK, FOLDER, Run, StateError


def main() -> int:
    """Run what the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m generated", description=__doc__)
    parser.add_argument("-n", "--programs", type=_positive, default=10_000, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=_positive, default=1, metavar="PROCESSES")
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON file for the counts")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for the state")
    parser.add_argument("--chunk", type=_positive, default=CHUNK, metavar="PROGRAMS")
    parser.add_argument("--baseline", action="store_true", help="TVM's own primitive as well")
    parser.add_argument("--show", type=Path, metavar="FILE", help="judge one counterexample again")
    args = parser.parse_args()
    # The programs are tiny: threads would only wait for each other.
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    if args.show:
        return show(args.show)
    run = Run(args.seed, args.programs, folder=args.folder.resolve(), chunk=args.chunk)
    try:
        report = report_of(run, args.workers, args.baseline)
    except StateError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nInterrupted; the same command goes on from here.", file=sys.stderr)
        return 130
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(to_json(report))
    print_report(report)
    refused = report["ours"]["certificates_refused"]
    return 1 if refused or any(report["ours"]["verdicts"][kind] for kind in wrong_kinds()) else 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def wrong_kinds() -> tuple[str, ...]:
    """Return the verdicts that must not be."""
    from .verdict import WRONG

    return WRONG


def report_of(run: Run, workers: int, baseline: bool) -> dict[str, Any]:
    """Run it, and TVM's primitive if that is asked for; return the report."""
    report = conditions(run, workers)
    start = time.monotonic()
    total = run_all(run, workers, ProgressBar(run.programs))
    report["wall_time_s"] = round(time.monotonic() - start, 1)
    report["ours"] = total.summary()
    if baseline:
        of_tvm = dataclasses.replace(run, baseline=True)
        print("TVM's own primitive:", file=sys.stderr)
        counts = run_all(of_tvm, workers, ProgressBar(run.programs)).summary()
        report["tvm"] = {
            "note": "the reduction and its first epilogue, the only call that TVM has; a "
            "refusal has no code, so that none is wrong",
            **counts,
        }
    return report


def conditions(run: Run, workers: int) -> dict[str, Any]:
    """Return what has to be known about a run to judge its counts."""
    return {
        "benchmark": "fuzz",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "seed": run.seed,
        "programs": run.programs,
        **provenance("fuzz"),
        **versions_and_machine(workers),
    }


def versions_and_machine(workers: int) -> dict[str, Any]:
    """Return with what versions and on which machine this process runs."""
    import tvm
    import tvm_ffi

    import fuse_epilogue

    return {
        "versions": {
            "fuse_epilogue": fuse_epilogue.__version__,
            "tvm": tvm.__version__,
            "tvm_ffi": tvm_ffi.__version__,
            "python": platform.python_version(),
        },
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "processes": workers},
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def to_json(report: dict[str, Any]) -> str:
    """Write the report as JSON, each feature on a line of its own."""
    text = json.dumps(report, indent=1)
    return _innermost_on_one_line(text) + "\n"


def _innermost_on_one_line(text: str) -> str:
    parts, depth = [], 0
    for line in text.split("\n"):
        stripped = line.strip()
        indent = len(line) - len(stripped)
        if indent >= 5 or (indent == 4 and stripped[0] in "}]"):
            parts.append(" " * (not parts[-1].endswith("{") and depth > 0) + stripped)
            depth += 1
            continue
        depth = 0
        parts.append(("\n" if parts else "") + line)
    return "".join(parts)


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
