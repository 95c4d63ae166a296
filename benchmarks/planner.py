"""The planner against the clock: does its cost rank schedules as they run, and is its choice good?

For each of 30 workloads (products of matrices, reductions of rows, depthwise convolutions) these
points are compiled, compared with what the unscheduled function computes, and timed:

    the plan; the plan that is the fastest of 24 points timed while planning; the best of each way
    to fuse, by the cost; what the plan would be with one term of it left out (the ablation);
    --points drawn from the cheapest twentieth of the feasible points; and as many drawn from all.

Reported: the rank correlation (Spearman) of cost and time over all points drawn, and within each
workload; the regret, which is the time of the plan over that of the best point measured, for both
plans; correlation and regret again without each term; and both plans against the best unfused point
and against TVM's function as it is.

    python benchmarks/planner.py                   writes results/planner.json
    python benchmarks/planner.py --points 4 --only product --output FILE
    python benchmarks/planner.py --profile FILE    as `calibrate` of the planner writes it

The points of a workload take turns in one process, and are compared turn by turn: what a point
takes is the median of its shares of a turn's usual time, because the clock of the machine changes
from turn to turn, and so do the places of the arrays, which decide what is in whose way. Of some
forty points the fastest of few turns is one that was lucky: so those that may be the best, and all
that were chosen for some reason, run many more turns afterwards, and regrets and ratios are of
these alone.
The rank correlation is over the points drawn from all; the others are those that may be the best.
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
from provenance import provenance

from fuse_epilogue import workloads
from fuse_epilogue.planner.backends import CPU
from fuse_epilogue.planner.machines.cpu import cpu
from fuse_epilogue.planner.measurement.measure import arguments, build, places, seconds, shares
from fuse_epilogue.planner.measurement.profile import Profile, profile_of, weights_elsewhere
from fuse_epilogue.planner.problems.cost import NAMES, Weights
from fuse_epilogue.planner.problems.request import Request
from fuse_epilogue.planner.problems.space import Points
from fuse_epilogue.planner.search.search import EXHAUSTIVE, search
from fuse_epilogue.planner.search.trials import trials
from fuse_epilogue.schedules import host

RESULTS = Path(__file__).resolve().parent / "results" / "planner.json"
LIMIT_S = 60
#: Points that are timed while planning, for the second plan.
TIMED = 24
#: How many of the points drawn may be the best, and turns of the last round for each of the first.
LAST, LAST_TURNS = 6, 10
#: Places in memory where the arrays are, in turns.
PLACES = 15
#: TVM's function, not scheduled, among the points; the plan, and the one that timing chose.
AS_IS, PLAN, CHOSEN = "as is", "plan", f"plan of {TIMED} timed"
GREEK = dict(zip(NAMES, ("alpha", "beta", "gamma", "delta"), strict=True))

#: name -> function. None of them is a kernel of the calibration.
WORKLOADS: dict[str, Any] = {
    **{
        f"product {m}x{n}x{k}{' ' + kind if kind else ''}{' b[n, k]' if turned else ''}": (
            workloads.matmul,
            dict(m=m, n=n, k=k, activation=kind, transpose_b=turned),
        )
        for m, n, k, kind, turned in (
            (36, 80, 28, "relu", False),
            (168, 224, 192, "relu", False),
            (104, 208, 56, "silu", True),
            (112, 576, 72, None, False),
            (448, 704, 18, "relu", False),
            (840, 1248, 14, "relu", False),
            (18, 1664, 352, "relu", False),
            (320, 480, 416, None, False),
            (14, 2304, 208, "silu", False),
            (1000, 80, 176, "relu", False),
            (240, 352, 288, "relu", True),
            (88, 208, 1344, "relu", False),
        )
    },
    **{
        f"rows {m}x{n} {op}{' ' + kind if kind else ''}": (
            workloads.row_reduce,
            dict(m=m, n=n, op=op, bias=True, activation=kind),
        )
        for m, n, op, kind in (
            (36, 56, "sum", None),
            (260, 128, "sum", "relu"),
            (2600, 48, "sum", "relu"),
            (52, 5600, "sum", None),
            (600, 1760, "sum", "silu"),
            (132, 600, "max", "relu"),
            (1300, 416, "sum", None),
            (380, 6800, "sum", "relu"),
            (18, 35200, "sum", None),
        )
    },
    **{
        f"conv {b}x{c}x{w} taps {f}{' ' + kind if kind else ''}": (
            workloads.depthwise_conv1d,
            dict(batch=b, channels=c, width=w, taps=f, activation=kind),
        )
        for b, c, w, f, kind in (
            (1, 22, 280, 3, "relu"),
            (3, 44, 440, 3, "relu"),
            (2, 52, 304, 7, "silu"),
            (5, 104, 1680, 5, "relu"),
            (8, 432, 2500, 3, "relu"),
            (1, 840, 152, 3, None),
            (2, 184, 840, 13, "relu"),
            (4, 76, 300, 4, "relu"),
            (12, 36, 2900, 4, "silu"),
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
    request = Request(func, machine)
    return next(p for kind in CPU.kinds if (p := kind.find(request)) is not None)


def _measured(
    pipe: Any, name: str, machine: Any, points: dict, chosen: set[str], turns: int, threads: int
) -> None:
    """In a process of its own: send seconds of points, key by key, or what is wrong with one.

    First those of all, then those of the last round: of what was chosen and of the best others.
    """
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
    at = places(arrays, PLACES)
    least: dict[str, float] = {}
    for turn in range(turns):
        for key, each in built.items():
            took = seconds(each, at[turn % len(at)])
            least[key] = min(took, least.get(key, took))
            pipe.send(("seconds", key, took))
    drawn = sorted(least.keys() - chosen, key=lambda key: least[key])[:LAST]
    for turn in range(turns * LAST_TURNS):
        for key in [key for key in least if key in chosen or key in drawn]:
            pipe.send(("last", key, seconds(built[key], at[turn % len(at)])))
    pipe.send(("done", "", None))


def timed(
    name: str, machine: Any, points: dict, chosen: set[str], turns: int
) -> tuple[dict, dict, dict]:
    """Return the seconds of points by key, those of the last round, and what is wrong.

    All run in one process, turn by turn. One that ends or hangs it is left out of the next process.
    """
    wrong: dict[str, str] = {}
    spawn = multiprocessing.get_context("spawn")
    while True:
        left = {key: point for key, point in points.items() if key not in wrong}
        ours, theirs = spawn.Pipe()
        given = (theirs, name, machine, left, chosen, turns, machine.cores)
        process = spawn.Process(target=_measured, args=given)
        process.start()
        theirs.close()
        what, key, value = "", "", None
        taken: dict[str, dict[str, list[float]]] = {"seconds": {}, "last": {}}
        try:
            while what != "done" and ours.poll(LIMIT_S):
                what, key, value = ours.recv()
                progress(f"{name}: {what} {len(taken['seconds'])} of {len(left)}")
                if what == "wrong":
                    wrong[key] = value
                elif what in taken:
                    taken[what].setdefault(key, []).append(value)
            if what != "done":
                wrong[key] = f"takes longer than {LIMIT_S} s"
        except EOFError:
            wrong[key] = "ended the process"
        process.kill()
        process.join()
        if what == "done":
            return in_seconds(taken["seconds"]), in_seconds(taken["last"]), wrong


def in_seconds(turns: dict[str, list[float]]) -> dict[str, float]:
    """Return what points take, from their times in each turn."""
    usual = float(np.median(np.median(list(turns.values()), axis=0)))
    return {key: share * usual for key, share in shares(turns).items()}


def choices(problem: Any, weights: Weights, count: int, rng: Any) -> dict[str, Any]:
    """Return the points to measure by what they are for."""
    found = search(problem, weights)
    chosen = {PLAN: found.best.point}
    chosen[CHOSEN] = trials(problem, weights, host(), TIMED, EXHAUSTIVE).best.point
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
    keys = {what: str(tuple(point.values())) for what, point in chosen.items()}
    distinct = {keys[what]: point for what, point in chosen.items()}
    named = {AS_IS} | {key for what, key in keys.items() if not what.startswith(("near", "drawn"))}
    least, last, wrong = timed(name, machine, distinct, named, turns)
    rows = []
    for what, point in chosen.items():
        key = keys[what]
        terms = problem.cost(Points.of([point])).matrix()[0].tolist()
        row = {"what": what, "point": point, "terms": terms, "seconds": least.get(key)}
        row |= {"last": last[key]} if key in last else {}
        rows.append(row | ({"wrong": wrong[key]} if key in wrong else {}))
    return {"name": name, "points": rows, "tvm_as_is": last.get(AS_IS), "wrong": len(wrong)}


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
        costs, times, within = [], [], []
        for case in cases:
            good = [row for row in case["points"] if row["seconds"]]
            drawn = [row for row in good if row["what"].startswith("drawn")]
            cost = [float(np.dot(row["terms"], vector(without))) for row in drawn]
            time = [row["seconds"] for row in drawn]
            costs, times = costs + cost, times + time
            if len(set(cost)) > 2:
                within.append(spearman(cost, time))
        report["all terms" if without is None else f"without {without}"] = {
            "points": len(times),
            "spearman": spearman(costs, times),
            "spearman_within_median": float(np.median(within)),
            **regret(cases, PLAN if without is None else f"without {without}"),
        }
    report[CHOSEN] = regret(cases, CHOSEN)
    return report


def regret(cases: list[dict], name: str) -> dict[str, Any]:
    """Return how much longer a choice takes than the best point of the last round."""
    regrets = []
    for case in cases:
        took = {row["what"]: row["last"] for row in case["points"] if "last" in row}
        if name in took:
            regrets.append(took[name] / min(took.values()) - 1)
    return {
        "regret_median": float(np.median(regrets)),
        "regret_worst": float(max(regrets)),
        "within_5_percent": sum(r <= 0.05 for r in regrets),
        "workloads": len(regrets),
    }


def against(cases: list[dict]) -> dict[str, Any]:
    """Return the worst ratio of each plan to the best unfused point, and to TVM's as it is."""
    ratios: dict[str, dict[str, float]] = {}
    for case in cases:
        took = {row["what"]: row["last"] for row in case["points"] if "last" in row}
        others = {"unfused": took.get("best none"), "TVM as it is": case["tvm_as_is"]}
        for plan in (PLAN, CHOSEN):
            for name, other in others.items():
                if plan in took and other:
                    pair = ratios.setdefault(f"{plan} / {name}", {})
                    pair[case["name"]] = took[plan] / other
    return {
        name: {"worst": max(values, key=values.__getitem__), "ratio": max(values.values())}
        | {"median": float(np.median(list(values.values())))}
        for name, values in ratios.items()
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
    if parsed.only and parsed.output == RESULTS:
        parser.error(f"--only measures a part: name a file other than {RESULTS.name} by --output")
    threads = use_threads(os.cpu_count() or 1)
    machine = cpu(host())
    given = Profile.from_json(parsed.profile.read_text()) if parsed.profile else profile_of(machine)
    weights = weights_elsewhere() if given is None else given.weights
    machine = machine if given is None else given.on(machine)
    rng = np.random.default_rng(4)
    names = [name for name in WORKLOADS if name.startswith(parsed.only)]
    cases = [measured(n, machine, weights, parsed.points, parsed.turns, rng) for n in names]
    progress()
    report = {
        **conditions(host(), threads),
        "benchmark": "planner",
        **provenance("planner"),
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
