"""The command line of a long run: the options, the exit status and the file that all have."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .report import to_json
from .runner import ChunkFunction, ProgressBar, run_all
from .state import Run, State, StateError


def parser_of(
    package: str, description: str | None, programs: int, folder: Path, unit: str = "programs"
) -> argparse.ArgumentParser:
    """Return a parser with the options of every long run.

    Parameters
    ----------
    package : str
        The package of the tests that generates and judges.
    description : str or None
    programs : int
        How many there are by default.
    folder : Path
        Where the state goes by default.
    unit : str
        What the option with their number is called. The parsed value is ``programs``.
    """
    # The programs are tiny: threads would only wait for each other.
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    parser = argparse.ArgumentParser(prog=f"python -m {package}", description=description)
    parser.add_argument(
        "-n", f"--{unit}", dest="programs", type=positive, default=programs, metavar="N"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=positive, default=1, metavar="PROCESSES")
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON file for the counts")
    parser.add_argument("--folder", type=Path, default=folder, help="for the state")
    parser.add_argument(
        "--again",
        action="store_true",
        help="judge again only the chunks in which something was wrong, also after a change of "
        "the code; the report names the commits that judged the others",
    )
    parser.add_argument("--show", type=Path, metavar="FILE", help="judge one counterexample again")
    return parser


def positive(text: str) -> int:
    """Return the number that an option's text is, 1 or more."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def timed(
    run: Run,
    workers: int,
    function: ChunkFunction | None,
    tally: Callable[[], Any],
    report: dict[str, Any],
) -> Any:
    """Run what is left of a run; return the tally.

    The report gets the time that the whole took, if nothing was left of an earlier start; and, as
    ``kept``, which other commits judged how many of the programs.
    """
    is_whole = not State(run).finished
    start = time.monotonic()
    total = run_all(run, workers, ProgressBar(run.programs), function, tally)
    if is_whole:
        report["wall_time_s"] = round(time.monotonic() - start, 1)
    if kept := State(dataclasses.replace(run, again=False)).kept:
        report["kept"] = kept
    return total


def finish(
    report_of: Callable[[], dict[str, Any]],
    output: Path | None,
    print_report: Callable[[dict[str, Any]], None],
    is_wrong: Callable[[dict[str, Any]], bool],
) -> int:
    """Make the report of a run, write it, print it; return the exit status.

    Parameters
    ----------
    report_of : callable
        Runs what is left, and returns the report.
    output : Path or None
        The file for it.
    print_report : callable
    is_wrong : callable
        Returns whether there is a verdict in a report that must not be.
    """
    try:
        report = report_of()
    except StateError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nInterrupted; the same command goes on from here.", file=sys.stderr)
        return 130
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(to_json(report))
    print_report(report)
    return 1 if is_wrong(report) else 0
