"""The planner against the clock: does its cost rank schedules as they run, and is its choice good?

For each of 30 workloads (products of matrices, reductions of rows, depthwise convolutions) these
points are compiled, compared with what the unscheduled function computes, and timed:

    the plan; the best of each way to fuse, by the cost; what the plan would be with one term of the
    cost left out (the ablation); --points drawn from the cheapest twentieth of the feasible
    points; and as many drawn from all of them.

Reported: the rank correlation (Spearman) of cost and time over all points drawn, and within each
workload; the regret, which is the time of the plan over that of the best point measured; both again
without each term; and the plan against the best unfused point and against TVM's function as it is.

    python benchmarks/planner.py                   writes results/planner.json
    python benchmarks/planner.py --points 4 --only product --output FILE
    python benchmarks/planner.py --profile FILE    as `calibrate` of the planner writes it

The points of a workload take turns in one process, and the shortest time of each counts. The rank
correlation is over the points drawn from all; the others are those that may be the best.
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
from fuse_epilogue.planner.kinds import FINDERS
from fuse_epilogue.planner.machine import cpu
from fuse_epilogue.planner.measure import arguments, build, seconds
from fuse_epilogue.planner.profile import Profile, profile_of
from fuse_epilogue.planner.search import search
from fuse_epilogue.planner.space import Points
from fuse_epilogue.schedules import host

RESULTS = Path(__file__).resolve().parent / "results" / "planner.json"
LIMIT_S = 60
#: TVM's function, not scheduled, among the points.
AS_IS = "as is"
GREEK = dict(zip(NAMES, ("alpha", "beta", "gamma", "delta"), strict=True))

#: name -> function. None of them is a kernel of the calibration.
WORKLOADS: dict[str, Any] = {
    **{
        f"product {m}x{n}x{k}{' ' + kind if kind else ''}{' b[n, k]' if turned else ''}": (
            workloads.matmul,
            dict(m=m, n=n, k=k, activation=kind, transpose_b=turned),
        )
        for m, n, k, kind, turned in (
            (44, 96, 24, "relu", False),
            (192, 256, 160, "relu", False),
            (88, 176, 72, "silu", True),
            (128, 640, 56, None, False),
            (480, 640, 20, "relu", False),
            (900, 1120, 12, "relu", False),
            (20, 1792, 320, "relu", False),
            (352, 448, 384, None, False),
            (10, 2048, 224, "silu", False),
            (1100, 112, 144, "relu", False),
            (272, 320, 256, "relu", True),
            (104, 176, 1152, "relu", False),
        )
    },
    **{
        f"rows {m}x{n} {op}{' ' + kind if kind else ''}": (
            workloads.row_reduce,
            dict(m=m, n=n, op=op, bias=True, activation=kind),
        )
        for m, n, op, kind in (
            (28, 64, "sum", None),
            (320, 112, "sum", "relu"),
            (2800, 40, "sum", "relu"),
            (60, 4800, "sum", None),
            (640, 1600, "sum", "silu"),
            (112, 720, "max", "relu"),
            (1400, 352, "sum", None),
            (420, 6400, "sum", "relu"),
            (14, 44800, "sum", None),
        )
    },
    **{
        f"conv {b}x{c}x{w} taps {f}{' ' + kind if kind else ''}": (
            workloads.depthwise_conv1d,
            dict(batch=b, channels=c, width=w, taps=f, activation=kind),
        )
        for b, c, w, f, kind in (
            (1, 28, 240, 3, "relu"),
            (3, 36, 560, 3, "relu"),
            (2, 60, 352, 7, "silu"),
            (5, 120, 1440, 5, "relu"),
            (8, 416, 2600, 3, "relu"),
            (1, 800, 176, 3, None),
            (2, 208, 760, 13, "relu"),
            (4, 88, 240, 4, "relu"),
            (11, 44, 3100, 4, "silu"),
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


def problem_of(func: tvm.tirx.PrimFunc, machine: Any) -> Any:
    """Return the problem that a function is."""
    return next(p for find in FINDERS.values() if (p := find(func, machine)) is not None)


def _measured(pipe: Any, name: str, machine: Any, points: dict, turns: int, threads: int) -> None:
    """In a process of its own: send seconds of points, key by key, or what is wrong with one."""
    use_threads(threads)
    func, target = function(name), host()
    problem = problem_of(func, machine)
    arrays = arguments(func)
    plain = tvm.compile(func, target=target)
    plain(*arrays)
    right = arrays[-1].numpy().copy()
    built = {AS_IS: plain}
    for key, point in points.items():
        pipe.send(("begun", key, None))
        try:
            built[key] = build(problem, point, target)
            arrays[-1].copyfrom(np.full(right.shape, 99, right.dtype))
            built[key](*arrays)
            np.testing.assert_allclose(arrays[-1].numpy(), right, rtol=1e-5, atol=1e-5)
        except Exception as error:
            built.pop(key, None)
            pipe.send(("wrong", key, f"{type(error).__name__}: {str(error)[-300:]}"))
    for _ in range(turns):
        for key, each in built.items():
            pipe.send(("seconds", key, seconds(each, arrays)))
    pipe.send(("done", "", None))


def timed(name: str, machine: Any, points: dict, turns: int) -> tuple[dict, dict]:
    """Return the shortest seconds of points by key, and what is wrong with others.

    All run in one process, turn by turn. One that ends or hangs it is left out of the next process.
    """
    least: dict[str, float] = {}
    wrong: dict[str, str] = {}
    spawn = multiprocessing.get_context("spawn")
    while True:
        left = {key: point for key, point in points.items() if key not in wrong}
        ours, theirs = spawn.Pipe()
        given = (theirs, name, machine, left, turns, machine.cores)
        process = spawn.Process(target=_measured, args=given)
        process.start()
        theirs.close()
        what, key, value = "", "", None
        try:
            while what != "done" and ours.poll(LIMIT_S):
                what, key, value = ours.recv()
                progress(f"{name}: {what} {len(least)} of {len(left)}")
                if what == "wrong":
                    wrong[key] = value
                elif what == "seconds":
                    least[key] = min(value, least.get(key, value))
            if what != "done":
                wrong[key] = f"takes longer than {LIMIT_S} s"
        except EOFError:
            wrong[key] = "ended the process"
        process.kill()
        process.join()
        if what == "done":
            return least, wrong


def choices(problem: Any, weights: Weights, count: int, rng: Any) -> dict[str, Any]:
    """Return the points to measure by what they are for."""
    found = search(problem, weights)
    chosen = {"plan": found.best.point}
    chosen |= {f"best {name}": each.point for name, each in found.by_fusion.items()}
    for term, letter in GREEK.items():
        without = replace(weights, **{letter: 0.0})
        chosen[f"without {term}"] = search(problem, without).best.point
    points, _ = problem.space.feasible()
    order = np.argsort(weights.cost(problem.cost(points)), kind="stable")
    good = order[: max(count, len(order) // 20)]
    for what, among in (("near", good), ("drawn", np.arange(points.size))):
        drawn = rng.choice(among, min(count, len(among)), replace=False)
        chosen |= {f"{what} {i}": points.at(int(index)) for i, index in enumerate(drawn)}
    return chosen


def measured(name: str, machine: Any, weights: Weights, count: int, turns: int, rng: Any) -> dict:
    """Return what was measured of a workload."""
    problem = problem_of(function(name), machine)
    chosen = choices(problem, weights, count, rng)
    distinct = {str(tuple(point.values())): point for point in chosen.values()}
    least, wrong = timed(name, machine, distinct, turns)
    rows = []
    for what, point in chosen.items():
        key = str(tuple(point.values()))
        terms = problem.cost(Points.of([point])).matrix()[0].tolist()
        row = {"what": what, "point": point, "terms": terms, "seconds": least.get(key)}
        rows.append(row | ({"wrong": wrong[key]} if key in wrong else {}))
    return {"name": name, "points": rows, "tvm_as_is": least.get(AS_IS), "wrong": len(wrong)}


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
    parser.add_argument(
        "--points", type=int, default=12, help="points of each kind drawn (default 12)"
    )
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
    rng = np.random.default_rng(4)
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
