"""The planner's registers of CUDA kernels against those that nvcc gives: no GPU is needed for that.

The plans of some functions, and points drawn from all that are feasible, are lowered to CUDA text
and compiled by nvcc, whose assembler tells the registers of a thread and what it spills. Reported:
the rank correlation (Spearman) of predicted and given registers, over all points and within each
function, how far apart they are, and how often the prediction of spills is right.

    python benchmarks/cuda_registers.py                 writes results/cuda_registers.json
    python benchmarks/cuda_registers.py --points 4 --output FILE

It takes nvcc and g++, and some seconds a kernel. A kernel of several is that of the reduction.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from fusion import conditions
from planner import spearman
from primitive import progress
from provenance import provenance

import fuse_epilogue
from fuse_epilogue import workloads
from fuse_epilogue.schedules import host

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # what compiles the text is a tool of the tests
from cuda_on_cpu import nvcc  # noqa: E402
from cuda_on_cpu.lowered import lower  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "cuda_registers.json"
ARCH = "sm_90"
PLAN = "plan"

FUNCTIONS: dict[str, Any] = {
    "product 1024x1024x512 relu": workloads.matmul(1024, 1024, 512, activation="relu"),
    "product 512x2048x1024 float16": workloads.matmul(512, 2048, 1024, dtype="float16"),
    "rows 4096x4096 relu": workloads.row_reduce(4096, 4096, bias=True, activation="relu"),
    "rows 65536x64 max": workloads.row_reduce(65536, 64, op="max", bias=True),
    "conv 8x512x2048 taps 3 relu": workloads.depthwise_conv1d(8, 512, 2048, 3, activation="relu"),
    "conv 2x96x16000 taps 16": workloads.depthwise_conv1d(2, 96, 16000, 16),
}


def measured(name: str, count: int, rng: Any) -> list[dict[str, Any]]:
    """Return what was predicted of the points of a function, and what nvcc says."""
    plan = fuse_epilogue.plan(FUNCTIONS[name], {"kind": "cuda", "arch": ARCH})
    space = plan.known.space
    points, _ = space.feasible()
    drawn = rng.choice(points.size, min(count, points.size), replace=False)
    rows = []
    for what, point in [(PLAN, plan.point), *((f"drawn {i}", points.at(int(i))) for i in drawn)]:
        progress(f"{name}: {len(rows)} of {len(drawn) + 1}")
        predicted = space.used(point)
        usages = nvcc.usage(lower(plan.known.apply(point).mod["main"], ARCH).source, ARCH).values()
        most = max(usages, key=lambda usage: usage.registers)
        rows.append(
            {
                "function": name,
                "what": what,
                "point": point,
                "predicted": int(predicted["registers"]),
                "threads": int(predicted["threads"]),
                "given": most.registers,
                "spilled_bytes": sum(usage.spill_stores for usage in usages),
            }
        )
    return rows


def judged(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how well registers are predicted."""
    predicted, given = (np.array([row[key] for row in rows]) for key in ("predicted", "given"))
    within = []
    for name in FUNCTIONS:
        own = np.array([row["function"] == name for row in rows])
        if len(set(predicted[own])) > 1 and len(set(given[own])) > 1:
            within.append(spearman(predicted[own], given[own]))
    return {
        "points": len(rows),
        "spearman": spearman(predicted, given),
        "spearman_within_median": float(np.median(within)) if within else None,
        "given_less_predicted": {
            name: float(np.percentile(given - predicted, at))
            for name, at in (("10%", 10), ("median", 50), ("90%", 90))
        },
        "spilled": sum(row["spilled_bytes"] > 0 for row in rows),
        "plans_spilled": sum(row["spilled_bytes"] > 0 for row in rows if row["what"] == PLAN),
    }


def main() -> None:
    """Compile, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--points", type=int, default=12, help="points drawn (default 12)")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parsed = parser.parse_args()
    if (missing := nvcc.missing(ARCH)) is not None:
        parser.error(missing)
    rng = np.random.default_rng(5)
    rows = [row for name in FUNCTIONS for row in measured(name, parsed.points, rng)]
    progress()
    report = {
        **conditions(host(), 1),
        "benchmark": "cuda_registers",
        **provenance("cuda_registers"),
        "arch": ARCH,
        "judged": judged(rows),
        "points": rows,
    }
    print(json.dumps(report["judged"], indent=1))
    parsed.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
