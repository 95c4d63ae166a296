"""``make mutants``: put faults into the package and see whether the quick tests notice them."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from . import FOLDER, ROOT
from .copied import environment
from .faults import Fault, Mutated, switched_off, wrong_rows
from .judging import FRESH, SURVIVED, UNTESTED, Judge
from .recording import Recorder
from .report import lines, report
from .sample import Mutation, draw
from .store import Store, write

#: Arguments of pytest for the quick tier in one process.
QUICK = ("-m", "not full", "-n", "0", "-p", "no:cacheprovider", "--capture=sys", "-q")


def main() -> int:
    """Do what the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("--mutants", type=int, default=200, metavar="N", help="of Python, drawn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget", type=float, default=300, help="seconds of processor for one")
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON file for the outcomes")
    parser.add_argument("--again", action="store_true", help="judge again what no test noticed")
    parser.add_argument("--record", action="store_true", help="record lines, and nothing else")
    parser.add_argument("--judge", metavar="NAME", help="one fault, which this process has")
    parser.add_argument("tests", nargs="*", default=[str(ROOT / "tests")], help="files of tests")
    args = parser.parse_args()
    store = Store()
    if args.record:
        return int(pytest.main([*QUICK, *args.tests], plugins=[Recorder(store)]))
    faults = all_faults(args.mutants, args.seed)
    if args.judge:
        one = [fault for fault in faults if fault.name == args.judge]
        return judge(store, one, args, fresh=True)
    # Tests start threads; the process that forks must not have any.
    subprocess.run([sys.executable, "-m", "mutants", "--record", *args.tests], check=True)
    judge(store, pending(store, faults, args.again), args)
    for fault in faults:
        if store.outcomes().get(fault.name, {}).get("verdict") == FRESH:
            in_a_fresh_process(store, fault, args)
    known = store.outcomes()
    ran = {fault.name: known[fault.name] for fault in faults if fault.name in known}
    found = report(ran, args.mutants, args.seed)
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps(found, indent=1) + "\n")
    print("\n".join(lines(found)))
    return 0


def all_faults(number: int, seed: int) -> list[Fault]:
    """Return all faults; those drawn are kept in a file, since drawing takes a while."""
    path = FOLDER / f"drawn-{seed}-{number}.json"
    if not path.exists():
        write(path, [each.as_json() for each in draw(number, seed)])
    drawn = [Mutated(Mutation(**each)) for each in json.loads(path.read_text())]
    return [*wrong_rows(), *switched_off(), *drawn]


def pending(store: Store, faults: Sequence[Fault], again: bool) -> list[Fault]:
    """Return the faults without an outcome; with `again`, those that no test noticed as well."""
    known = store.outcomes()
    return [
        each
        for each in faults
        if each.name not in known or (again and known[each.name]["verdict"] in (SURVIVED, UNTESTED))
    ]


def judge(store: Store, faults: Sequence[Fault], args: argparse.Namespace, **more: bool) -> int:
    """Judge faults in forks of this process, which loads all tests first."""
    if not faults:
        return 0
    plugin = Judge(store, faults, args.budget, **more)
    return int(pytest.main([*QUICK, *args.tests], plugins=[plugin]))


def in_a_fresh_process(store: Store, fault: Fault, args: argparse.Namespace) -> None:
    """Judge a fault in a process that uses changed copies of the sources."""
    chosen = fault.tests(store.recorded(), {})
    files = sorted({test.partition("::")[0] for test in chosen}) or args.tests
    variables = environment(FOLDER / "copied", fault.changes())
    command = [sys.executable, "-m", "mutants", "--judge", fault.name, "--budget", str(args.budget)]
    command += ["--mutants", str(args.mutants), "--seed", str(args.seed)]
    # Copies of the package may not even be importable: pytest ends before it judges.
    done = subprocess.run([*command, *files], env=variables, cwd=ROOT, check=False)
    if store.outcomes()[fault.name]["verdict"] == FRESH:
        store.add(
            fault.name,
            {
                "kind": fault.kind,
                **fault.as_json(),
                "verdict": "killed",
                "by": "collection",
                "how": f"exit status {done.returncode}",
                "tests": 0,
            },
        )


if __name__ == "__main__":
    sys.exit(main())
