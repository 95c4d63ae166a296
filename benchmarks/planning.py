"""How long planning takes, and what it finds for Trainium against the rules written by hand.

Products, reductions of rows and depthwise convolutions of several sizes are planned for this
processor, for a GPU and for Trainium, each several times; the least processor time counts. Their
spaces differ in size: a straight line through all of one target says what a point takes. A second
part plans the convolution of the published study from its unscheduled function, and compares with
the schedule written by hand, both as the latency model predicts them.

    python benchmarks/planning.py            half a minute; writes results/planning.json
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from fusion import conditions, use_threads
from primitive import progress
from provenance import provenance

import fuse_epilogue
from fuse_epilogue import neuron, workloads
from fuse_epilogue.neuron.machine import MACHINES
from fuse_epilogue.schedules import host
from fuse_epilogue.schedules.neuron import DepthwiseConv1d

RESULTS = Path(__file__).resolve().parent / "results" / "planning.json"
REPEATS = 3
CUDA = {"kind": "cuda", "arch": "sm_90"}

#: Sizes with few divisors have small spaces, powers of two large ones.
PRODUCTS = ((37, 61, 53), (96, 160, 48), (240, 480, 120), (512, 512, 512), (960, 1920, 480))
ROWS = ((31, 77), (96, 640), (720, 5040), (4096, 4096))
CONVS = ((1, 24, 200, 3), (8, 384, 3000, 3), (2, 192, 800, 13))


def functions() -> dict[str, Any]:
    """Return what is planned, by name."""
    made = {f"product {m}x{n}x{k}": workloads.matmul(m, n, k) for m, n, k in PRODUCTS}
    made |= {f"rows {m}x{n}": workloads.row_reduce(m, n, bias=True) for m, n in ROWS}
    for b, c, w, f in CONVS:
        made[f"conv {b}x{c}x{w}, {f} taps"] = workloads.depthwise_conv1d(b, c, w, f)
    return made


def planned(func: Any, target: Any) -> dict[str, Any]:
    """Return how large the space is, and the least seconds of processor time that planning took."""
    least = float("inf")
    for _ in range(REPEATS):
        begun = time.process_time()
        found = fuse_epilogue.plan(func, target).found
        least = min(least, time.process_time() - begun)
    return {
        "points": found.size,
        "evaluated": found.evaluated,
        "exhaustive": found.exhaustive,
        "seconds": least,
    }


def line(cases: list[dict[str, Any]]) -> dict[str, float]:
    """Return the straight line through the seconds of spaces, and how well it fits."""
    points = np.array([case["points"] for case in cases], float)
    seconds = np.array([case["seconds"] for case in cases])
    slope, start = np.polyfit(points, seconds, 1)
    return {
        "seconds_at_0": float(start),
        "seconds_per_100_000_points": float(1e5 * slope),
        "correlation": float(np.corrcoef(points, seconds)[0, 1]),
        "longest": float(seconds.max()),
    }


def trainium() -> list[dict[str, Any]]:
    """Return plans against the schedules by hand, in predicted microseconds."""
    rows = []
    for machine in MACHINES:
        for dtype in ("float32", "bfloat16"):
            for finite in (False, True):
                func = workloads.depthwise_conv1d(8, 512, 2048, 3, dtype=dtype)
                progress(f"{machine} {dtype}")
                plan = fuse_epilogue.plan(func, machine, finite=finite)
                us = {
                    name: 1e3 * neuron.emit(sch).predict(machine).latency_ms
                    for name, sch in (
                        ("plan", plan.apply(func)),
                        ("by_hand", DepthwiseConv1d(finite).apply(func, machine)),
                    )
                }
                ratio = us["plan"] / us["by_hand"]
                rows.append(
                    {"machine": machine, "dtype": dtype, "finite": finite}
                    | {f"{name}_predicted_us": value for name, value in us.items()}
                    | {"plan_to_by_hand": ratio}
                )
    return rows


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=RESULTS)
    parsed = parser.parse_args()
    threads = use_threads(os.cpu_count() or 1)
    targets = {"llvm": host(), "cuda": CUDA, "trn1": "trn1"}
    planning: dict[str, Any] = {}
    for target, given in targets.items():
        cases = []
        for name, func in functions().items():
            progress(f"{target}: {name}")
            cases.append({"name": name, **planned(func, given)})
        planning[target] = {"cases": cases, "line": line(cases)}
    report = {
        **conditions(host(), threads),
        "benchmark": "planning",
        **provenance("planning"),
        "clock": "time on the processor, the least of several",
        "planning": planning,
        "trainium": trainium(),
    }
    progress()
    for target, each in planning.items():
        shown = {key: round(value, 4) for key, value in each["line"].items()}
        print(f"{target:6}", shown, max(case["points"] for case in each["cases"]), "points at most")
    for row in report["trainium"]:
        print({key: round(v, 4) if isinstance(v, float) else v for key, v in row.items()})
    parsed.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
