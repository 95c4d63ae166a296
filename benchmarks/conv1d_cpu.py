"""Depthwise conv1d on the CPU: ours beside memcpy and what a user would take instead.

Every case of `conv1d_cpu_cases.py` is measured with each number of threads, in one run: memcpy of
x to y; ours; what TVM makes of the function as it is; torch, torch.compile, oneDNN, scipy and numpy
(`conv1d_cpu_peers.py`); MetaSchedule if asked for. Every version is compared with numpy before it
is timed. The bound of a case is the longer one of memcpy and of its arithmetic
(`conv1d_cpu_bound.py`): ours is to take 1.1 of it at most. A result of 32 MiB or more is stored
around the caches and can be faster than memcpy.

    python benchmarks/conv1d_cpu.py            about twenty minutes; writes results/conv1d_cpu.json,
                                               unless that has peers that are missing now
    python benchmarks/conv1d_cpu.py --tune FOLDER    lets MetaSchedule search, for an hour or two,
                                                     and keeps its records; measures nothing
    python benchmarks/conv1d_cpu.py --tuned FOLDER   MetaSchedule's best as well, where it has any
    python benchmarks/conv1d_cpu.py --quick    few samples; writes nothing without --output
    python benchmarks/conv1d_cpu.py --only main    the cases whose names begin with "main"

Ctrl-C ends it: what was measured until then is shown, and written if --output was given.

The peers come with `pip install --group bench`; those that are missing are reported.

The versions take turns, and who is first changes. Warm: a sample is the mean of as many runs as
take some milliseconds, behind one that is not timed. Cold: one run, after as much other memory has
been read as drives everything out of the caches. All are called from Python, and `call` is what
such a call of TVM takes by itself; the ratios to memcpy are without it.

Two things are done for the peers. Memory that they allocate and free for their results is kept by
the process, not returned to the system and asked for again, which would take longer than the
convolution: --as-shipped leaves that as it is. And before each sample all sleep for longer than the
threads of OpenMP (of GCC; Intel's are told to) and of TVM spin after their last loop, so that none
disturbs the next sample; the environment variables of OpenMP are otherwise left alone.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

# Before numpy and torch are loaded. Threads of OpenBLAS would go on spinning in the samples; those
# of Intel's OpenMP, which alone knows the second variable, for 0.2 s.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("KMP_BLOCKTIME", "1")

import numpy as np
from conv1d_cpu_bound import arithmetic_s, processor
from conv1d_cpu_cases import CASES, COLD, Case, check, operands, right_results
from conv1d_cpu_peers import Missing, Version, make, makers, prepare, versions_of_packages
from conv1d_cpu_report import absent, evaluate, left_out, missed, show, table
from conv1d_cpu_tvm import CALL, MEMCPY, OURS, tune, tvm_makers, use_threads_of_pool
from fusion import SAMPLE_S, Effort, Others, conditions, host, sample, use_threads
from primitive import progress, to_json
from provenance import provenance

RESULTS = Path(__file__).resolve().parent / "results" / "conv1d_cpu.json"

FULL, QUICK = Effort(25, 3.0, 3.0), Effort(5, 0.2, 0.2)
COLD_TURNS = 2  # times as many: a sample is a single run

PAUSE_S = 0.015  # threads that wait for work spin for a few milliseconds at most
FLUSH_BYTES = 128 << 20  # to be read for cold caches
ENOUGH_S = 0.5  # of runs, to know about how long one takes
TOO_SLOW = 30  # times as slow as ours: timed briefly, not in the turns

INTERRUPTED = 130  # as a shell says of a program that Ctrl-C ended

# Of glibc's mallopt: never to use mmap, never to give the end of the heap back.
M_MMAP_MAX, M_TRIM_THRESHOLD = -4, -1


def keep_memory() -> bool:
    """Have the process keep what is freed, so that peers' results lie in memory that is there."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, 2**31 - 1))


# ---- Samples -------------------------------------------------------------------------------------


def once(version: Version) -> float:
    """Return the seconds that a run takes now."""
    start = time.perf_counter()
    version.run()
    return time.perf_counter() - start


def least(version: Version) -> float:
    """Return the seconds that a run takes at best, of a few that do not take long."""
    seconds = [once(version)]
    while len(seconds) < 4 and sum(seconds) < ENOUGH_S:
        seconds.append(once(version))
    return min(seconds)


def warm(version: Version) -> Callable[[], float]:
    """Return a function that measures a run that follows other runs."""
    run = version.run
    number = max(1, round(SAMPLE_S / least(version)))

    def mean() -> float:
        time.sleep(PAUSE_S)
        run()
        start = time.perf_counter()
        for _ in repeat(None, number):
            run()
        return (time.perf_counter() - start) / number

    return mean


def cold(version: Version, other: np.ndarray) -> Callable[[], float]:
    """Return a function that measures a run with nothing of its data in the caches."""

    def single() -> float:
        other.max()
        time.sleep(PAUSE_S)
        return once(version)

    return single


# ---- The measurement -----------------------------------------------------------------------------


def versions(
    case: Case, threads: int, records: Path | None
) -> tuple[dict[str, Version], dict[str, float], dict[str, str]]:
    """Compile and check all versions of a case; return also those too slow and those missing."""
    arrays = operands(case)
    right = right_results(case, arrays)
    all_makers = tvm_makers(case, arrays, host(threads), threads, records)
    for name in makers(case, threads):
        all_makers[name] = lambda name=name: make(name, case, arrays, threads)

    built: dict[str, Version] = {}
    too_slow: dict[str, float] = {}
    missing: dict[str, str] = {}
    for name, maker in all_makers.items():
        progress(f"{case.label}, {threads} threads: {name}")
        needed = name in (OURS, MEMCPY, CALL)
        try:
            version = maker()
            result = version.result()
        except (Missing, ImportError, AttributeError, RuntimeError) as error:
            if needed:
                raise
            # Not there, or not for this type or processor: each says so in its own way.
            missing[name] = " ".join(str(error).split())[:200]
            continue
        if name == MEMCPY:
            x = arrays["x"].astype("float32")
            check(case, name, result, (x, x))
        elif name != CALL:
            check(case, name, result, right)
        seconds = least(version)
        if not needed and seconds > max(SAMPLE_S, TOO_SLOW * least(built[OURS])):
            too_slow[name] = seconds
        else:
            built[name] = version
    return built, too_slow, missing


def measure(
    case: Case, threads: int, effort: Effort, records: Path | None, other: np.ndarray
) -> Iterator[dict[str, Any]]:
    """Time all versions of a case, in all its states."""
    use_threads_of_pool(threads)
    prepare(threads)
    built, too_slow, missing = versions(case, threads, records)
    least = arithmetic_s(case, processor(host(threads)), host(threads), threads)
    for state in case.states:
        others = Others()
        if state == COLD:
            calls = {name: cold(version, other) for name, version in built.items()}
            chosen = Effort(effort.turns * COLD_TURNS, effort.seconds, effort.at_most)
        else:
            calls = {name: warm(version) for name, version in built.items()}
            chosen = effort
        samples = sample(calls, chosen, f"{case.label} {state}, {threads} threads")
        progress()
        more = {
            "others_share_of_processors": others.share(),
            "too_slow_s": too_slow,
            "missing": missing,
        }
        yield evaluate(case, state, threads, samples, least, more)


# ---- The run -------------------------------------------------------------------------------------


def chosen_cases(only: Sequence[str] | None) -> list[Case]:
    """Return the cases to measure."""
    some = [case for case in CASES if not only or case.key.startswith(tuple(only))]
    if not some:
        raise SystemExit(f"--only takes the start of one of: {', '.join(c.key for c in CASES)}")
    return some


def options() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few samples")
    parser.add_argument(
        "--tune",
        type=Path,
        metavar="FOLDER",
        help="let MetaSchedule search for the cases in float32, and keep its records here",
    )
    parser.add_argument(
        "--tuned", type=Path, metavar="FOLDER", help="measure what is in these records as well"
    )
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="cases whose names begin so (repeatable)"
    )
    parser.add_argument(
        "--threads",
        type=int,
        action="append",
        metavar="NUMBER",
        help="(repeatable; default: 1, and 2 where there are as many cores)",
    )
    parser.add_argument(
        "--as-shipped", action="store_true", help="leave peers' memory to the C library"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="JSON to write (default: results/conv1d_cpu.json here; none with --quick or --only)",
    )
    return parser.parse_args()


def main() -> None:
    """Measure, print the tables, write the file."""
    args = options()
    output = args.output or (None if args.quick or args.only else RESULTS)
    cases, effort = chosen_cases(args.only), QUICK if args.quick else FULL
    counts = args.threads or ([1, 2] if (os.cpu_count() or 1) > 1 else [1])

    if args.tune is not None:
        for case in cases:
            for threads in counts if case.dtype == "float32" else ():
                tune(case, host(threads), args.tune)
        return

    if output == RESULTS and (lost := left_out(output, versions_of_packages(), args.tuned)):
        raise SystemExit(
            f"{output.name} compares with {', '.join(lost)}, which this run would leave out: "
            "install the extra 'bench', name MetaSchedule's records with --tuned, or write "
            "another file with --output"
        )
    kept = not args.as_shipped and keep_memory()
    use_threads(max(counts))
    report = conditions(host(max(counts)), max(counts))
    report |= {
        "benchmark": "conv1d_cpu",
        **provenance("conv1d_cpu"),
        "threads": counts,
        "memory_of_peers": "kept by the process" if kept else "as shipped",
    }
    report["versions"] |= versions_of_packages()
    print(f"{report['machine']['cpu']}, {report['target']}")
    if report["memory_of_peers"] == "as shipped":
        print("Peers' memory goes back to the system and is asked for again.", file=sys.stderr)

    other = np.ones(FLUSH_BYTES // 8, np.int64)
    rows: list[dict[str, Any]] = []
    interrupted = False
    try:
        for case in cases:
            for threads in counts:
                records = args.tuned if case.dtype == "float32" else None
                for row in measure(case, threads, effort, records, other):
                    rows.append(row)
                    show(row)
    except KeyboardInterrupt:
        interrupted = True
        progress()
        tables = "1 table was" if len(rows) == 1 else f"{len(rows)} tables were"
        print(f"\nInterrupted: {tables} measured before.", file=sys.stderr)
        # Part of them would not replace the results of all.
        output = args.output
    finish(report, rows, output, interrupted)


def finish(
    report: dict[str, Any], rows: list[dict[str, Any]], output: Path | None, interrupted: bool
) -> None:
    """Print the tables, and write the file if there is one to write."""
    behind = missed(rows)
    report |= {"missed": behind, "results": rows}
    if interrupted:
        report["interrupted"] = True
    print("", *table(rows), sep="\n")
    print(
        "",
        *absent(rows),
        "Targets missed:" if behind else "No target is missed." * (not interrupted),
        *behind,
        sep="\n",
    )
    if output is None or not rows:
        print("\nNothing was written.")
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(to_json(report))
        print(f"\nThe samples are in {output.name}.")
    if interrupted:
        raise SystemExit(INTERRUPTED)


if __name__ == "__main__":
    main()
