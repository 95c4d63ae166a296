"""The planner against the clock: does its cost rank schedules as they run, and is its choice good?

For each of 30 workloads (products of matrices, reductions of rows, depthwise convolutions) these
points are compiled, compared with what the unscheduled function computes, and timed:

    the plan; the best of each way to fuse, by the cost; what the plan would be with one term of the
    cost left out (the ablation); and --points further ones, drawn from all feasible points.

Reported: the rank correlation (Spearman) of cost and time over all points drawn, and within each
workload; the regret, which is the time of the plan over that of the best point measured; both again
without each term; and the plan against the best unfused point and against TVM's function as it is.

    python benchmarks/planner.py                   writes results/planner.json
    python benchmarks/planner.py --points 4 --only product --output FILE
    python benchmarks/planner.py --profile FILE    as `calibrate` of the planner writes it

Every point is compiled and timed in a process of its own, for a minute at most. The points take
turns: a workload is measured --turns times over, and the shortest time counts.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from fusion import conditions, use_threads
from primitive import progress

from fuse_epilogue import workloads
from fuse_epilogue.planner.cost import NAMES, Weights
from fuse_epilogue.planner.machine import cpu
from fuse_epilogue.planner.measure import arguments, build, seconds
from fuse_epilogue.planner.plan import FINDERS
from fuse_epilogue.planner.profile import Profile, profile_of
from fuse_epilogue.planner.search import search
from fuse_epilogue.schedules import host

RESULTS = Path(__file__).resolve().parent / "results" / "planner.json"
LIMIT_S = 60
GREEK = dict(zip(NAMES, ("alpha", "beta", "gamma", "delta"), strict=True))

#: name -> function. None of them is a kernel of the calibration.
WORKLOADS: dict[str, Any] = {
    **{
        f"product {m}x{n}x{k}{' ' + kind if kind else ''}{' b[n, k]' if turned else ''}": (
            workloads.matmul,
            dict(m=m, n=n, k=k, activation=kind, transpose_b=turned),
        )
        for m, n, k, kind, turned in (
            (64, 64, 16, "relu", False),
            (256, 256, 256, "relu", False),
            (96, 192, 48, "silu", True),
            (128, 512, 64, None, False),
            (512, 512, 32, "relu", False),
            (1024, 1024, 8, "relu", False),
            (32, 1024, 512, "relu", False),
            (512, 512, 512, None, False),
            (16, 4096, 128, "silu", False),
            (1024, 64, 256, "relu", False),
            (320, 320, 320, "relu", True),
            (128, 128, 2048, "relu", False),
        )
    },
    **{
        f"rows {m}x{n} {op}{' ' + kind if kind else ''}": (
            workloads.row_reduce,
            dict(m=m, n=n, op=op, bias=True, activation=kind),
        )
        for m, n, op, kind in (
            (16, 64, "sum", None),
            (256, 64, "sum", "relu"),
            (4096, 16, "sum", "relu"),
            (64, 4096, "sum", None),
            (1024, 1024, "sum", "silu"),
            (128, 512, "max", "relu"),
            (2048, 256, "sum", None),
            (512, 8192, "sum", "relu"),
            (8, 65536, "sum", None),
        )
    },
    **{
        f"conv {b}x{c}x{w} taps {f}{' ' + kind if kind else ''}": (
            workloads.depthwise_conv1d,
            dict(batch=b, channels=c, width=w, taps=f, activation=kind),
        )
        for b, c, w, f, kind in (
            (1, 16, 256, 3, "relu"),
            (4, 32, 512, 3, "relu"),
            (2, 64, 256, 7, "silu"),
            (8, 128, 2048, 5, "relu"),
            (8, 512, 2048, 3, "relu"),
            (1, 1024, 128, 3, None),
            (2, 256, 1024, 15, "relu"),
            (4, 64, 300, 3, "relu"),
            (16, 32, 4096, 4, "silu"),
        )
    },
}


def function(name: str) -> tvm.tirx.PrimFunc:
    """Return a workload's function."""
    make, given = WORKLOADS[name]
    if make is workloads.depthwise_conv1d:
        given = dict(given)
        sizes = [given.pop(key) for key in ("batch", "channels", "width", "taps")]
        return make(*sizes, **given)
    return make(**given)


def _timed(pipe: Any, func: Any, problem: Any, point: Any, target: Any) -> None:
    """In a process of its own: send the seconds of a point, or what is wrong."""
    try:
        arrays = arguments(func)
        built = tvm.compile(func, target=target) if point is None else build(problem, point, target)
        if point is not None:
            tvm.compile(func, target=target)(*arrays)
            right = arrays[-1].numpy().copy()
            arrays[-1].copyfrom(np.full(right.shape, 99, right.dtype))
            built(*arrays)
            np.testing.assert_allclose(arrays[-1].numpy(), right, rtol=1e-5, atol=1e-5)
        pipe.send(seconds(built, arrays))
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {str(error)[-300:]}")


def timed(func: Any, problem: Any, point: Any, target: Any) -> float | str:
    """Return the seconds of a point, or of TVM's function as it is for None; or what is wrong."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    process = fork.Process(target=_timed, args=(theirs, func, problem, point, target))
    process.start()
    theirs.close()
    result: float | str = f"takes longer than {LIMIT_S} s"
    try:
        if ours.poll(LIMIT_S):
            result = ours.recv()
    except EOFError:
        result = "died"
    process.kill()
    process.join()
    return result


def choices(problem: Any, weights: Weights, count: int, rng: Any) -> dict[str, Any]:
    """Return the points to measure by what they are for."""
    found = search(problem, weights)
    chosen = {"plan": found.best.point}
    chosen |= {f"best {name}": each.point for name, each in found.by_fusion.items()}
    for term, letter in GREEK.items():
        without = replace(weights, **{letter: 0.0})
        chosen[f"without {term}"] = search(problem, without).best.point
    points, _ = problem.space.feasible()
    drawn = rng.choice(points.size, min(count, points.size), replace=False)
    return chosen | {f"drawn {i}": points.at(int(index)) for i, index in enumerate(drawn)}


def measured(name: str, machine: Any, weights: Weights, count: int, turns: int, rng: Any) -> dict:
    """Return what was measured of a workload."""
    func, target = function(name), host()
    problem = next(p for find in FINDERS.values() if (p := find(func, machine)) is not None)
    chosen = choices(problem, weights, count, rng)
    distinct: dict[tuple[int, ...], Any] = {tuple(p.values()): p for p in chosen.values()}
    least: dict[Any, float] = {}
    wrong: dict[str, str] = {}
    for turn in range(turns):
        for number, key in enumerate([None, *distinct]):
            progress(f"{name}: turn {turn + 1}, point {number} of {len(distinct)}")
            if str(key) in wrong:
                continue
            took = timed(func, problem, None if key is None else distinct[key], target)
            if isinstance(took, str):
                wrong[str(key)] = took
            else:
                least[key] = min(took, least.get(key, took))
    rows = []
    for what, point in chosen.items():
        key = tuple(point.values())
        terms = problem.cost(_points(point))
        row = {"what": what, "point": point, "terms": terms.matrix()[0].tolist()}
        rows.append(row | {"seconds": least.get(key), "wrong": wrong.get(str(key), "")})
    return {"name": name, "points": rows, "tvm_as_is": least.get(None), "wrong": len(wrong)}


def _points(point: Any) -> Any:
    from fuse_epilogue.planner.space import Points

    return Points.of([point])


def spearman(a: Any, b: Any) -> float:
    """Return the rank correlation; equal values share their mean rank."""

    def ranks(values: Any) -> np.ndarray:
        _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[inverse]

    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


def judged(cases: list[dict], weights: Weights) -> dict[str, Any]:
    """Return correlation and regret, for the cost and without each of its terms."""

    def vector(without: str | None) -> np.ndarray:
        changed = weights if without is None else replace(weights, **{GREEK[without]: 0.0})
        return np.array([changed.alpha, changed.beta, changed.gamma, changed.delta])

    report: dict[str, Any] = {}
    for without in (None, *NAMES):
        costs, times, within, regrets = [], [], [], []
        for case in cases:
            good = [row for row in case["points"] if row["seconds"]]
            drawn = [row for row in good if row["what"].startswith("drawn")]
            cost = [float(np.dot(row["terms"], vector(without))) for row in drawn]
            time = [row["seconds"] for row in drawn]
            costs, times = costs + cost, times + time
            if len(set(cost)) > 2:
                within.append(spearman(cost, time))
            name = "plan" if without is None else f"without {without}"
            plan = next((row["seconds"] for row in good if row["what"] == name), None)
            if plan is not None:
                regrets.append(plan / min(row["seconds"] for row in good) - 1)
        report["all terms" if without is None else f"without {without}"] = {
            "points": len(times),
            "spearman": spearman(costs, times),
            "spearman_within_median": float(np.median(within)),
            "regret_median": float(np.median(regrets)),
            "regret_worst": float(max(regrets)),
            "within_5_percent": sum(r <= 0.05 for r in regrets),
            "workloads": len(regrets),
        }
    return report


def against(cases: list[dict]) -> dict[str, Any]:
    """Return the worst ratio of the plan to the best unfused point, and to TVM's as it is."""
    ratios: dict[str, dict[str, float]] = {"unfused": {}, "tvm_as_is": {}}
    for case in cases:
        took = {row["what"]: row["seconds"] for row in case["points"] if row["seconds"]}
        if "plan" in took and "best none" in took:
            ratios["unfused"][case["name"]] = took["plan"] / took["best none"]
        if "plan" in took and case["tvm_as_is"]:
            ratios["tvm_as_is"][case["name"]] = took["plan"] / case["tvm_as_is"]
    return {
        name: {"worst": max(values, key=values.__getitem__), "ratio": max(values.values())}
        | {"median": float(np.median(list(values.values())))}
        for name, values in ratios.items()
        if values
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--points", type=int, default=12, help="points drawn (default 12)")
    parser.add_argument("--turns", type=int, default=3, help="times over (default 3)")
    parser.add_argument("--only", default="", help="workloads whose names begin so")
    parser.add_argument("--profile", type=Path, help="instead of the one that comes along")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parsed = parser.parse_args()
    threads = use_threads(os.cpu_count() or 1)
    machine = cpu(host())
    given = Profile.from_json(parsed.profile.read_text()) if parsed.profile else profile_of(machine)
    weights = Weights() if given is None else given.weights
    machine = machine if given is None else given.on(machine)
    rng = np.random.default_rng(2)
    names = [name for name in WORKLOADS if name.startswith(parsed.only)]
    cases = [measured(n, machine, weights, parsed.points, parsed.turns, rng) for n in names]
    progress()
    report = {
        **conditions(host(), threads),
        "benchmark": "planner",
        "weights": vars(weights),
        "judged": judged(cases, weights),
        "plan_against": against(cases),
        "cases": cases,
    }
    for name, row in report["judged"].items():
        print(f"{name:20}", {k: round(v, 3) for k, v in row.items()})
    print(json.dumps(report["plan_against"], indent=1))
    parsed.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
