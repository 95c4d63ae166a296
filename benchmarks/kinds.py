"""Predictions of the kernels of whole models against the clock, on one thread.

For workloads of every kind (contractions, row programs, elementwise work, streams), the way that is
chosen by prediction and others are compiled and timed in turns, with warm caches:

- of contractions, the plans that are predicted to be the fastest of each choice of axes, packing
  and instruction, the tiles that follow, and some that are predicted to be up to 4 times slower;
- of the other kinds, of which one has a single way for each function, those with shorter vectors;
- TVM's own loops, and the same operators unfused, each scheduled by itself.

Reported:

- the rank correlation (Spearman) of predicted and measured seconds, over all points and within each
  workload;
- for how many workloads the way that is chosen by prediction is within 5 % of the best measured;
- its time over that of TVM's own loops and of the unfused operators.

    python benchmarks/kinds.py                 three minutes; writes results/kinds.json
    python benchmarks/kinds.py --only conv     a part; writes nothing
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from fusion import conditions
from kinds_ways import ways
from kinds_workloads import WORKLOADS
from planner import spearman
from primitive import progress, to_json
from provenance import provenance

from fuse_epilogue.kernels.cpu.for_llvm import for_llvm
from fuse_epilogue.schedules import host
from fuse_epilogue.transform.kinds import Work, candidates

RESULTS = Path(__file__).resolve().parent / "results" / "kinds.json"
TURNS = 9
#: Turns of the last round for each of the first, of the ways that may be the best, and how much
#: slower those were in the first.
LAST_TURNS, MAY_BE_BEST = 3, 1.2
NEAR, BEHIND = 1.05, 1.03
SAMPLE_S = 0.002
TOLERANCE = 1e-5  # of the largest result
TVM, UNFUSED = "TVM", "unfused"

Run = Callable[[], Any]
Samples = dict[str, list[float]]


def arrays_of(func: Any) -> list[np.ndarray]:
    """Return an array of small integers for each parameter."""
    rng = np.random.default_rng(0)
    return [
        rng.integers(0, 4, tuple(map(int, param.shape))).astype(str(param.dtype))
        for param in func.params
    ]


def compiled(func: Any) -> Any:
    """Return a function that is compiled for this machine."""
    named = func.with_attr("global_symbol", "main")
    return tvm.compile(named, target=host(1))["main"]


def started(run: Any, arrays: Sequence[np.ndarray]) -> tuple[Run, list[np.ndarray]]:
    """Run a function once; return how to run it again, and what is in its arrays."""
    given = [tvm.runtime.tensor(array) for array in arrays]
    run(*given)
    return lambda: run(*given), [each.numpy() for each in given]


def of_way(scheduled: Any, arrays: Sequence[np.ndarray]) -> tuple[Run, list[np.ndarray]]:
    """Return how to run a scheduled function, and its results."""
    packed = [
        scheduled.packing[place].pack(array) if place in scheduled.packing else array
        for place, array in enumerate(arrays)
    ]
    run, results = started(compiled(for_llvm(scheduled.func)), packed)
    return run, [
        array if place in scheduled.packing else results[place]
        for place, array in enumerate(arrays)
    ]


def unfused(workload: Any) -> Run:
    """Return how to run the steps of a workload, each of which is scheduled by itself."""
    runs = []
    for func in workload.unfused:
        constants = (
            workload.constants if len(func.params) > max(workload.constants, default=0) + 1 else ()
        )
        scheduled = next(candidates(Work(func, host(1), 1, frozenset(constants))))
        runs.append(of_way(scheduled, arrays_of(func))[0])

    def run() -> None:
        for each in runs:
            each()

    return run


def check(what: str, results: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    """Raise RuntimeError if the results of a way are not as expected."""
    for one, other in zip(results, expected, strict=True):
        a, b = one.astype("float64"), other.astype("float64")
        if not np.abs(a - b).max() <= TOLERANCE * max(1.0, np.abs(b).max()):
            raise RuntimeError(f"{what} has different results")


def measure(name: str, turns: int) -> dict[str, Any]:
    """Compare the results of the ways and time them in turns."""
    workload = WORKLOADS[name]()
    arrays = arrays_of(workload.func)
    plain, expected = started(compiled(workload.func), arrays)
    runs: dict[str, Run] = {}
    found = ways(workload)
    for way in found:
        run, results = of_way(way.schedule(), arrays)
        check(f"{name}: {way.name}", results, expected)
        runs[way.name] = run
    names = list(runs)
    runs[TVM] = plain
    if workload.unfused:
        runs[UNFUSED] = unfused(workload)

    samples = in_turns(runs, turns)
    measured = {each: statistics.median(times) for each, times in samples.items()}
    limit = MAY_BE_BEST * min(measured.values())
    last = {each: run for each, run in runs.items() if measured[each] <= limit or each == names[0]}
    more = in_turns(last, turns * LAST_TURNS)
    ratios = {each: over(more, names[0], each) for each in last}
    row = {
        "kind": found[0].kind,
        "ways": names,
        "predicted_s": [way.predicted_s for way in found],
        "measured_s": [measured[each] for each in names],
        "chosen/best": max(ratios.values()),
        "best": max(ratios, key=ratios.__getitem__),
        "TVM_s": measured[TVM],
        "chosen/TVM": ratios.get(TVM, over(samples, names[0], TVM)),
    }
    if workload.unfused:
        row["chosen/unfused"] = ratios.get(UNFUSED, over(samples, names[0], UNFUSED))
    # Where memory decides, predictions are all equal.
    several = len(set(row["predicted_s"])) > 2
    row["rank_correlation"] = spearman(row["predicted_s"], row["measured_s"]) if several else None
    row["samples_s"] = {p: [float(f"{t:.4g}") for t in each] for p, each in samples.items()}
    return row


def in_turns(runs: dict[str, Run], turns: int) -> Samples:
    """Return the processor time of a run of each in every turn; another one is first in each."""

    def sample(run: Run, count: int) -> float:
        begin = time.thread_time()
        for _ in range(count):
            run()
        return (time.thread_time() - begin) / count

    counts = {
        name: max(1, min(3000, round(SAMPLE_S / sample(run, 2)))) for name, run in runs.items()
    }
    samples: Samples = {name: [] for name in runs}
    order = list(runs)
    for turn in range(turns):
        first = turn % len(order)
        for name in order[first:] + order[:first]:
            samples[name].append(sample(runs[name], counts[name]))
    return samples


def over(samples: Samples, one: str, other: str) -> float:
    """Return the median of the ratios of two ways within the turns."""
    pairs = zip(samples[one], samples[other], strict=True)
    return statistics.median(a / b for a, b in pairs)


def judged(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of some workloads together."""
    points = [
        pair
        for row in rows.values()
        for pair in zip(row["predicted_s"], row["measured_s"], strict=True)
    ]
    within = [row["rank_correlation"] for row in rows.values() if row["rank_correlation"]]
    return {
        "points": len(points),
        "rank_correlation": spearman(*zip(*points, strict=True)) if len(points) > 2 else None,
        "rank_correlation_within_median": statistics.median(within) if within else None,
        "chosen_within_5_percent": sum(row["chosen/best"] <= NEAR for row in rows.values()),
        "behind_TVM_by_3_percent": sum(row["chosen/TVM"] > BEHIND for row in rows.values()),
        "behind_unfused_by_3_percent": sum(
            row.get("chosen/unfused", 0.0) > BEHIND for row in rows.values()
        ),
    }


def shown(name: str, row: dict[str, Any]) -> str:
    """Return the line of a workload."""
    ranks = row["rank_correlation"]
    others = "".join(
        f"   / {other} {row[f'chosen/{other}']:.3f}"
        for other in (TVM, UNFUSED)
        if f"chosen/{other}" in row
    )
    within = "" if ranks is None else f"   rank correlation {ranks:.2f}"
    return (
        f"{name:34} {row['kind']:14} {row['measured_s'][0] * 1e6:9.2f} us (predicted "
        f"{row['predicted_s'][0] * 1e6:9.2f})   {len(row['ways']):2} ways   chosen / best "
        f"{row['chosen/best']:.3f}{others}{within}"
    )


def main() -> None:
    """Measure the workloads that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="workloads whose names begin so; no file"
    )
    parser.add_argument("--turns", type=int, default=TURNS)
    args = parser.parse_args()
    report: dict[str, Any] = conditions(host(1), 1) | {
        "benchmark": "kinds",
        **provenance("kinds"),
        "turns": args.turns,
        "clock": "time of the thread on its processor",
    }
    rows: dict[str, dict[str, Any]] = {}
    for name in WORKLOADS:
        if args.only and not name.startswith(tuple(args.only)):
            continue
        progress(name)
        rows[name] = measure(name, args.turns)
        progress()
        print(shown(name, rows[name]), flush=True)
    report |= judged(rows)
    kinds = dict.fromkeys(row["kind"] for row in rows.values())
    report["by_kind"] = {
        kind: judged({name: row for name, row in rows.items() if row["kind"] == kind})
        for kind in kinds
    }
    for kind, figures in {"all": judged(rows), **report["by_kind"]}.items():
        count = sum(kind in ("all", row["kind"]) for row in rows.values())
        print(f"{kind}, {count} workloads: {figures}")
    report["workloads"] = rows
    if not args.only:
        RESULTS.write_text(to_json(report))


if __name__ == "__main__":
    main()
