"""``make tvm-tests TVM=PATH``: run TVM's own tests without the extension and with it."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .compare import Comparison, Difference, compare, count
from .reasons import REASONS
from .runs import SIDES, SUITES, Outcomes, RunError, Runner, outcomes

FOLDER = Path(__file__).resolve().parents[2] / "build" / "tvm_tests"
# How often a difference is looked at again.
REPETITIONS = 2


def main() -> int:
    """Run what the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tvm_tests", description=__doc__)
    parser.add_argument("checkout", type=Path, help="folder of TVM's sources")
    parser.add_argument("--revision", help="of the sources, if they are not a clone of git")
    parser.add_argument("--suite", action="append", metavar="PATH", help="below tests/python")
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON file for the result")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for the records")
    parser.add_argument("--timeout", type=int, default=1200, metavar="SECONDS", help="of a test")
    args = parser.parse_args()
    suites = tuple(args.suite or SUITES)
    runner = Runner((args.checkout / "tests/python").resolve(), args.folder.resolve(), args.timeout)
    try:
        revision = args.revision or revision_of(args.checkout)
        report = conditions(revision, suites)
        forget_others(runner, suites, report)
        found = run_all(runner, suites)
        result = compare(
            *(found[side] for side in SIDES), REASONS, lambda t: again(runner, suites, t)
        )
    except RunError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nInterrupted; the same command goes on from here.", file=sys.stderr)
        return 130
    report["tests"] = {side: count(found[side]) for side in SIDES}
    report.update(dataclasses.asdict(result))
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps(report, indent=2) + "\n")
    show(found, result)
    return 0 if result.ok else 1


def run_all(runner: Runner, suites: Sequence[str]) -> dict[str, Outcomes]:
    """Run all suites on both sides; return the outcomes of each side."""
    found: dict[str, Outcomes] = {side: {} for side in SIDES}
    for suite in suites:
        for side in SIDES:
            print(f"{suite}, extension {side}", file=sys.stderr, flush=True)
            found[side].update(outcomes(runner.run(side, suite)))
    return found


def again(runner: Runner, suites: Sequence[str], tests: Sequence[str]) -> list[Outcomes]:
    """Run tests again without the extension."""
    repetitions = []
    for number in range(1, REPETITIONS + 1):
        found: Outcomes = {}
        for suite in suites:
            mine = [test for test in tests if test.startswith(suite)]
            if mine:
                print(f"{suite}, again ({len(mine)})", file=sys.stderr, flush=True)
                found.update(outcomes(runner.run("hidden", suite, mine, again=number)))
        repetitions.append(found)
    return repetitions


def show(found: dict[str, Outcomes], result: Comparison) -> None:
    """Print what a run has found."""
    for side in SIDES:
        counts = ", ".join(f"{number:,} {kind}" for kind, number in count(found[side]).items())
        print(f"extension {side}: {len(found[side]):,} tests: {counts}")
    parts: list[tuple[str, list[Difference]]] = [
        ("Differences that are listed", result.expected),
        ("Outcomes that vary without the extension", result.unstable),
        ("Differences", result.unexpected),
    ]
    for title, part in parts:
        print(f"\n{title}: {len(part)}")
        for one in part:
            print(f"  {one.test}\n    hidden: {one.hidden}; loaded: {one.loaded}")
            if one.reason:
                print(f"    {one.reason}")
    for test in result.stale:
        print(f"\nListed, and no difference: {test}")


# ---- Conditions ----------------------------------------------------------------------------------


def conditions(revision: str, suites: tuple[str, ...]) -> dict[str, Any]:
    """Return what has to be known about a run to judge its outcomes."""
    import tvm
    import tvm_ffi

    import fuse_epilogue
    from generated.runner import provenance

    return {
        "benchmark": "tvm_tests",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        **provenance("tvm_tests"),
        "tvm_revision": revision,
        "suites": list(suites),
        "versions": {
            "fuse_epilogue": fuse_epilogue.__version__,
            "tvm": tvm.__version__,
            "tvm_ffi": tvm_ffi.__version__,
            "python": platform.python_version(),
        },
        "machine": {"cores": os.cpu_count()},
    }


def revision_of(checkout: Path) -> str:
    """Return the commit of a clone; raise a RunError if it is none."""
    git = ["git", "-C", str(checkout), "rev-parse"]
    asked = subprocess.run([*git, "--show-prefix", "HEAD"], capture_output=True, text=True)
    lines = asked.stdout.split("\n")
    # A prefix: the folder is inside some other clone.
    if asked.returncode or lines[0]:
        raise RunError(f"{checkout} is not a clone of TVM; give its revision with --revision")
    return lines[1]


def forget_others(runner: Runner, suites: Sequence[str], report: dict[str, Any]) -> None:
    """Remove the records unless they are of the same code, which is then taken up again."""
    import fuse_epilogue

    digest = hashlib.sha256()
    package = Path(fuse_epilogue.__file__).parent
    code = [file for file in package.rglob("*") if file.suffix in (".py", ".so")]
    inside = (Path(__file__).parent / "inside").rglob("*.py")
    tests = [file for suite in suites for file in runner.files(suite)]
    for file in [*sorted(code), *sorted(inside), *tests]:
        digest.update(file.read_bytes())
    key = {"code": digest.hexdigest(), **{k: report[k] for k in ("tvm_revision", "versions")}}
    written = runner.folder / "key.json"
    if not written.is_file() or json.loads(written.read_text()) != key:
        for side in SIDES:
            shutil.rmtree(runner.folder / side, ignore_errors=True)
        runner.folder.mkdir(parents=True, exist_ok=True)
        written.write_text(json.dumps(key))


if __name__ == "__main__":
    sys.exit(main())
