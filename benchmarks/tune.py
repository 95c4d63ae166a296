"""Tuning with fusion in the search space and without: 24 tasks, the same number of trials.

Products of matrices and depthwise convolutions with a bias, and with a bias and an activation, are
tuned by TVM's MetaSchedule twice, with the same seed: in TVM's default space, and in that space
with our rule, which offers every reduction fused and as it is. The best five of either run, as it
measured them, are compiled again (what both have measured, once for both), compared with the
function that is not scheduled, and timed in turns in one process.

    python benchmarks/tune.py                  64 trials per task and space: results/tune.json
    python benchmarks/tune.py --only conv      the tasks whose names begin with "conv"
    python benchmarks/tune.py --minutes 9      stop after the task that is under way by then

A run that was stopped goes on when it is called again: every measurement of the search is kept (in
build/tune), and every task that is finished is in the file of results.

All trials of a search are one batch, drawn at random: TVM's learned cost model draws at random too
until it has seen 100 measurements. With the rule one trial in 16 is for the best schedules of that
run, fused (tune.FuseBest); the others are those of the run without it, measured anew.

What to read: `gain` is how many times faster the best found with the rule is than the best found
without: the median of the ratios within the turns, with its quartiles; 1 if both are the same
schedule. It is less than 1 where the best was among those that gave way to fused ones and none of
these was as good. `fusing` is how many times faster the best fused schedule
is than the best unfused one of both runs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

# Before numpy is loaded: its threads would go on spinning in the samples.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import tvm
from fusion import FLOAT_TOLERANCE, conditions, use_threads
from primitive import Samples, progress, ratio, to_json
from provenance import provenance
from tvm.s_tir import meta_schedule as ms

from fuse_epilogue import tune, workloads
from fuse_epilogue.planner.measurement.measure import arguments
from fuse_epilogue.schedules import host

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "tune.json"
RECORDS = HERE.parent / "build" / "tune"

WITH, WITHOUT = "with the rule", "without"
FINALISTS = 5
TURNS = 21
SAMPLE_S = 0.02  # a sample takes about that long, or one run
SEED = 1
#: What is measured of a candidate while searching: at least 30 ms.
EVALUATOR = ms.runner.EvaluatorConfig(number=1, repeat=3, min_repeat_ms=10)
NO_WORSE = 0.98  # the least gain that is within the reach of 2 %

#: name -> function.
TASKS: dict[str, Any] = {
    **{
        f"matmul {m}x{n}x{k} {kind or 'bias'}": (
            lambda m=m, n=n, k=k, kind=kind: workloads.matmul(m, n, k, activation=kind)
        )
        for m, n, k in ((128, 128, 128), (64, 512, 64), (512, 512, 16), (16, 1024, 256))
        for kind in (None, "relu", "silu")
    },
    **{
        f"conv1d {n}x{c}x{w} f{f} {kind or 'bias'}": (
            lambda n=n, c=c, w=w, f=f, kind=kind: workloads.depthwise_conv1d(
                n, c, w, f, activation=kind
            )
        )
        for n, c, w, f in ((1, 256, 512, 3), (4, 64, 1024, 4), (1, 64, 4096, 9), (8, 512, 128, 3))
        for kind in (None, "relu", "silu")
    },
}


def search(
    name: str, which: str, trials: int, target: tvm.target.Target, records: Path
) -> tuple[list[Any], set[str]]:
    """Tune one task in one space, or go on with it; return its best records and all traces.

    The best fused record and the best that is not are among them.
    """
    folder = records / f"{name} {which} {target.attrs['num-cores']}".replace(" ", "-")
    tvms = ms.search_strategy.EvolutionarySearch(population_size=max(128, 2 * trials))
    database = tune.tune(
        TASKS[name](),
        target,
        folder,
        trials=trials,
        batch=trials,
        space=tune.space(target, fuse=which == WITH),
        strategy=tune.FuseBest(tvms) if which == WITH else tvms,
        cost_model="random",
        runner=ms.runner.LocalRunner(evaluator_config=EVALUATOR),
        seed=SEED,
        repeatable=True,
        on_trial=lambda trial: progress(f"{name}, {which}: {trial.number} of {trial.of} trials"),
    )
    every = database.get_all_tuning_records()
    if not every:
        return [], set()
    best = list(database.get_top_k(every[0].workload, len(every)))
    first = [next((r for r in best if is_fused(r) == fused), None) for fused in (False, True)]
    return best[:FINALISTS] + [r for r in first if r and best.index(r) >= FINALISTS], {
        str(record.trace) for record in every
    }


def compiled(record: Any, target: tvm.target.Target) -> Any:
    """Return what a record schedules, compiled."""
    candidate = record.as_measure_candidate()
    return tvm.compile(candidate.sch.mod["main"].with_attr("tirx.is_scheduled", True), target)


def check(name: str, built: Any, arrays: list[Any], right: np.ndarray) -> None:
    """Run once, and compare: to the last bit where float32 is exact on these data."""
    arrays[-1].copyfrom(np.full(right.shape, 77, right.dtype))
    built["main"](*arrays)
    exact = "silu" not in name
    tolerance = 0 if exact else FLOAT_TOLERANCE
    np.testing.assert_allclose(arrays[-1].numpy(), right, rtol=tolerance, atol=tolerance)


def sample(timers: dict[str, Callable[[int], float]]) -> Samples:
    """Time all in turns; who is first changes from turn to turn."""
    number = {key: max(1, math.ceil(SAMPLE_S / timer(1))) for key, timer in timers.items()}
    samples: Samples = {key: [] for key in timers}
    order = list(timers)
    for _ in range(TURNS):
        order.append(order.pop(0))
        for key in order:
            samples[key].append(timers[key](number[key]))
    return samples


def timer(built: Any, arrays: list[Any]) -> Callable[[int], float]:
    """Return what times a mean of so many calls, in seconds."""
    evaluator = built.jit().time_evaluator

    def run(number: int) -> float:
        timed = evaluator("main", tvm.cpu(), number=number, repeat=1)
        return float(timed(*arrays).results[0])

    return run


def is_fused(record: Any) -> bool:
    """Whether the schedule of a record has a fusion in it."""
    return "fuse_reduction_epilogue" in str(record.trace)


def measure(name: str, trials: int, target: tvm.target.Target, records: Path) -> dict[str, Any]:
    """Tune a task in both spaces, time the best of both, and return what goes into the file."""
    begin = time.monotonic()
    found = {which: search(name, which, trials, target, records) for which in (WITHOUT, WITH)}
    tuning = time.monotonic() - begin
    progress(f"{name}: timing")
    func = TASKS[name]()
    arrays = arguments(func)
    tvm.compile(func, "llvm")["main"](*arrays)
    right = arrays[-1].numpy().copy()
    timers: dict[str, Callable[[int], float]] = {}
    fused: dict[str, bool] = {}
    for best, _ in found.values():
        for record in best:
            key = str(record.trace)
            if key not in timers:
                built = compiled(record, target)
                check(name, built, arrays, right)
                timers[key], fused[key] = timer(built, arrays), is_fused(record)
    # One contender of both, if both have measured it: a search times a schedule badly now and then.
    by = {which: [key for key in timers if key in traces] for which, (_, traces) in found.items()}
    samples = sample(timers)

    def fastest(keys: Iterable[str]) -> str | None:
        return min(keys, key=lambda key: statistics.median(samples[key]), default=None)

    winners = {which: fastest(keys) for which, keys in by.items()}
    for which, winner in winners.items():
        if winner is None:
            raise SystemExit(f"{name}: no trial succeeded {which}")
    best_fused = fastest(key for key in timers if fused[key])
    best_unfused = fastest(key for key in timers if not fused[key])
    progress()
    return {
        "trials": {which: len(traces) for which, (_, traces) in found.items()},
        "tuning_s": round(tuning, 1),
        "fused": fused[winners[WITH]],
        "same_schedule": winners[WITH] == winners[WITHOUT],
        "microseconds": {w: statistics.median(samples[key]) * 1e6 for w, key in winners.items()},
        "gain": ratio(samples, winners[WITHOUT], winners[WITH]),
        "fusing": ratio(samples, best_unfused, best_fused) if best_fused else None,
    }


def show(name: str, result: dict[str, Any]) -> None:
    """Print the line of a task."""
    gain, times = result["gain"], result["microseconds"]
    print(
        f"{name:30} {times[WITHOUT]:10.1f} {times[WITH]:10.1f} us   gain {gain['median']:.3f} "
        f"({gain['lower_quartile']:.3f} .. {gain['upper_quartile']:.3f}), best "
        f"{'fused' if result['fused'] else 'not fused'}; fusing "
        + (f"{result['fusing']['median']:.3f}" if result["fusing"] else "never worked"),
        flush=True,
    )


def summary(results: dict[str, Any]) -> dict[str, Any]:
    """Return what the run says as a whole."""
    gains = {name: result["gain"]["median"] for name, result in results.items()}
    return {
        "tasks": len(gains),
        "best_is_fused": sum(result["fused"] for result in results.values()),
        "geometric_mean_gain": math.exp(statistics.fmean(map(math.log, gains.values()))),
        "worst_gain": min(gains.values()),
        "worse_by_more_than_2_percent": sorted(n for n, gain in gains.items() if gain < NO_WORSE),
        "better_by_more_than_2_percent": sorted(
            n for n, gain in gains.items() if gain > 1 / NO_WORSE
        ),
    }


def main() -> None:
    """Tune, time, print, and write the file after each task."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=64, help="per task and space (default: 64)")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="tasks whose names begin so (repeatable)"
    )
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="(default: one for every core)"
    )
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no task after so many"
    )
    parser.add_argument(
        "--records", type=Path, default=RECORDS, metavar="FOLDER", help="(default: build/tune)"
    )
    parser.add_argument(
        "--output", type=Path, default=RESULTS, metavar="FILE", help="(default: results/tune.json)"
    )
    args = parser.parse_args()
    names = [n for n in TASKS if not args.only or n.startswith(tuple(args.only))]
    if not names:
        raise SystemExit(f"--only takes the start of one of: {', '.join(TASKS)}")

    target = host(use_threads(args.threads))
    report = conditions(target, args.threads) | {"benchmark": "tune", **provenance("tune")}
    settings = {"trials": args.trials, "seed": SEED}
    report |= {"settings": settings, "results": {}}
    if args.output.exists():
        before = json.loads(args.output.read_text())
        same = before.get("settings") == settings and before.get("target") == report["target"]
        if same:
            report["results"] = before["results"]
    print(f"{report['machine']['cpu']}, {args.threads} threads, {report['target']}")
    print(f"{'':30} {WITHOUT:>10} {'with':>10}")
    begin = time.monotonic()
    for name in names:
        if name not in report["results"]:
            if time.monotonic() - begin > 60 * args.minutes:
                print("more to do: the same command goes on")
                break
            report["results"][name] = measure(name, args.trials, target, args.records)
            report["summary"] = summary(report["results"])
            args.output.parent.mkdir(parents=True, exist_ok=True)
            args.output.write_text(to_json(report))
        show(name, report["results"][name])
    for key, value in summary(report["results"]).items():
        print(f"{key.replace('_', ' ')}: {value}")


if __name__ == "__main__":
    main()
