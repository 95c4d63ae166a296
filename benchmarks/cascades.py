"""Attention, softmax and layer norms of float32 beside torch and ONNX Runtime.

Each case is computed by up to four parties (`cascade_parties.py`), each in a process of its own,
since two pools of threads that wait in one process slow each other down:

- ours: the one kernel that `fuse_epilogue.compile` makes of the torch function;
- torch: the function itself, for attention `scaled_dot_product_attention`;
- ONNX Runtime: its operator; for attention also the products and the softmax, one by one.

    python benchmarks/cascades.py                     five minutes; writes results/cascades.json
    python benchmarks/cascades.py --only softmax      a part; writes nothing

What is several kernels of ours, such as torch's RMS norm, is not among the cases.

Results are compared before anything is timed. A sample is the mean of as many calls as take 20 ms;
parties take turns. Finished cases are kept in build/cascades_benchmark.jsonl: the same command at
the same commit resumes where it was stopped.

What to read: `ours/best` is the median of the ratios within the turns; below 1 ours is faster.
`--clock cpu` takes the time on the processors instead of the time that passed: on a machine that
others use, at one thread. On two, the threads of a party wait for each other there.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from cascade_parties import CASES, PARTIES, TORCH, operands_of
from fusion import Others, conditions
from model_parties import OURS
from models import Party, time_in_turns, versions
from primitive import progress, ratio, to_json
from provenance import provenance

from fuse_epilogue.schedules import host

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "cascades.json"
JOURNAL = ROOT / "build" / "cascades_benchmark.jsonl"
TOLERANCE = 1e-5  # of the largest result
TURNS = 15
THREADS = (1, 2)


def loaded(name: str, parties: dict[str, Party]) -> dict[str, float]:
    """Load a case in every process; return how far the result of each is off."""
    case = CASES[name]()
    expected = case.function(*(each.double() for each in operands_of(case))).numpy()
    differences = {}
    with tempfile.TemporaryDirectory() as folder:
        for party, process in parties.items():
            file = Path(folder) / f"{party}.npy"
            answer = process.ask(do="load", model=name, result=str(file))
            if "error" in answer:
                raise RuntimeError(f"{party}: {answer['error']}")
            off = np.abs(np.load(file) - expected).max() / np.abs(expected).max()
            differences[party] = float(off)
            if not off <= TOLERANCE:
                raise RuntimeError(f"{party} is {off:.1e} off")
    return differences


def measure(
    name: str, threads: int, parties: dict[str, Party], turns: int, clock: str
) -> dict[str, Any]:
    """Compare the results of the parties, and time them in turns."""
    graphs = CASES[name]().graphs
    able = {each: parties[each] for each in PARTIES if each in (OURS, TORCH) or each in graphs}
    differences = loaded(name, able)
    others = Others()
    samples = time_in_turns(able, threads, turns, clock)
    medians = {party: statistics.median(each) for party, each in samples.items()}
    best = min((party for party in able if party != OURS), key=medians.__getitem__)
    return {
        "differences": differences,
        "median_s": medians,
        "best": best,
        "ours/best": ratio(samples, OURS, best),
        "others_share_of_processors": others.share(),
        "samples_s": {p: [float(f"{t:.4g}") for t in times] for p, times in samples.items()},
    }


def journal(settings: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the cases that were finished with the same settings."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    if settings["commit"].endswith("-dirty"):
        return found
    for line in JOURNAL.read_text().splitlines() if JOURNAL.is_file() else ():
        try:
            entry = json.loads(line)
        except ValueError:  # the last line of a run that was killed while it wrote
            continue
        if entry["settings"] == settings:
            found[entry["case"], entry["threads"]] = entry["row"]
    return found


def measure_all(
    names: list[str], threads: int, settings: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Measure cases at a number of threads, and append each to the journal."""
    known = journal(settings)
    rows = {name: known[name, threads] for name in names if (name, threads) in known}
    left = [name for name in names if name not in rows]
    parties = {name: Party(name, threads, "cascade_parties.py") for name in PARTIES if left}
    JOURNAL.parent.mkdir(parents=True, exist_ok=True)
    try:
        for name in left:
            progress(f"{name}, {threads}")
            row = rows[name] = measure(name, threads, parties, settings["turns"], settings["clock"])
            progress()
            times = "  ".join(f"{p} {each * 1e6:8.1f} us" for p, each in row["median_s"].items())
            median = row["ours/best"]["median"]
            print(f"{name:27} {threads}  {times}   {median:.3f} of {row['best']}", flush=True)
            with JOURNAL.open("a") as lines:
                entry = {"settings": settings, "case": name, "threads": threads, "row": row}
                lines.write(json.dumps(entry) + "\n")
    finally:
        for party in parties.values():
            party.close()
    return rows


def main() -> None:
    """Measure the cases that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", metavar="NAME", help="cases that begin so")
    parser.add_argument("--threads", type=int, action="append", help="(default: 1 and 2)")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="(default: results/cascades.json for all)"
    )
    args = parser.parse_args()
    counts = args.threads or list(THREADS)
    source = provenance("cascades")
    settings = {"commit": source["commit"], "turns": args.turns, "clock": args.clock}
    wanted = [name for name in CASES if not args.only or name.startswith(tuple(args.only))]
    report: dict[str, Any] = conditions(host(1), 1) | {
        "benchmark": "cascades",
        **source,
        "threads": counts,
        "turns": args.turns,
        "clock": args.clock,
    }
    report["versions"] |= versions()
    by_threads = {threads: measure_all(wanted, threads, settings) for threads in counts}
    report["cases"] = {
        name: {str(threads): rows[name] for threads, rows in by_threads.items()} for name in wanted
    }
    for family in ("attention", "softmax", "layer norm"):
        for threads, rows in by_threads.items():
            found = [row["ours/best"]["median"] for n, row in rows.items() if n.startswith(family)]
            if found:
                mean = math.exp(statistics.mean(map(math.log, found)))
                print(f"geometric mean of ours/best, {family}, {threads}: {mean:.3f}")
    output = args.output or (None if args.only or args.threads else RESULTS)
    if output is not None:
        output.write_text(to_json(report))


if __name__ == "__main__":
    main()
