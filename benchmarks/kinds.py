"""Predictions of the kernels of whole models against the clock, on one thread: products first.

For each workload (products and convolutions of float32 and of bytes, with constant weights), the
plans that are predicted to be the fastest of each choice of axes, packing and instruction, and some
tiles that are predicted to be slower, are compiled and timed in turns. Reported:

- the rank correlation (Spearman) of predicted and measured seconds, over all points and within each
  workload;
- for how many workloads the plan that is chosen by prediction is within 5 % of the best measured.

    python benchmarks/kinds.py                 five minutes; writes results/kinds.json
    python benchmarks/kinds.py --only conv     a part; writes nothing

Row programs and elementwise work have one plan for each function; how their predictions rank
operators is in results/operators.json.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from fusion import conditions
from planner import spearman
from primitive import progress, to_json
from provenance import provenance
from tvm import te, topi

from fuse_epilogue.kernels.cpu import contraction
from fuse_epilogue.kernels.cpu.contraction.plan import Plan, choose
from fuse_epilogue.kernels.cpu.vector_math import with_vector_functions
from fuse_epilogue.recognize.contraction import read_contraction
from fuse_epilogue.recognize.stages import read_program
from fuse_epilogue.schedules import host

RESULTS = Path(__file__).resolve().parent / "results" / "kinds.json"
CONSTANT = 1  # the parameter of weights
POINTS, TURNS = 8, 9
NEAR = 1.05
SAMPLE_S = 0.002


def product(m: int, n: int, k: int, dtype: str = "float32") -> Any:
    """Return a product of matrices."""
    x = te.placeholder((m, k), dtype, "x")
    of_weights, total = ("int8", "int32") if dtype == "uint8" else (dtype, dtype)
    w = te.placeholder((k, n), of_weights, "w")
    at = te.reduce_axis((0, k), "k")
    y = te.compute(
        (m, n), lambda i, j: te.sum(x[i, at].astype(total) * w[at, j].astype(total), at), "y"
    )
    return te.create_prim_func([x, w, y]).with_attr("tirx.noalias", True)


def conv(shape: tuple[int, ...], filters: int, size: int, stride: int = 1, **given: Any) -> Any:
    """Return a convolution of images NHWC."""
    dtype, groups = given.get("dtype", "float32"), given.get("groups", 1)
    x = te.placeholder(shape, dtype, "x")
    of_weights, total = ("int8", "int32") if dtype == "uint8" else (dtype, dtype)
    w = te.placeholder((filters, size, size, shape[3] // groups), of_weights, "w")
    y = topi.nn.conv(x, w, stride, size // 2, 1, groups, "NHWC", "OHWI", total)
    return te.create_prim_func([x, w, y]).with_attr("tirx.noalias", True)


WORKLOADS: dict[str, Callable[[], Any]] = {
    "product-64x128x128": lambda: product(64, 128, 128),
    "product-128x768x768": lambda: product(128, 768, 768),
    "product-196x256x64": lambda: product(196, 256, 64),
    "product-7x512x300": lambda: product(7, 512, 300),
    "product-1x1024x1024": lambda: product(1, 1024, 1024),
    "product-300x10x512": lambda: product(300, 10, 512),
    "product-bytes-128x768x768": lambda: product(128, 768, 768, "uint8"),
    "product-bytes-33x100x70": lambda: product(33, 100, 70, "uint8"),
    "conv-64-64-3x3-56": lambda: conv((1, 56, 56, 64), 64, 3),
    "conv-128-128-3x3s2-28": lambda: conv((1, 28, 28, 128), 128, 3, 2),
    "conv-256-64-1x1-28": lambda: conv((1, 28, 28, 256), 64, 1),
    "conv-512-512-3x3-7": lambda: conv((1, 7, 7, 512), 512, 3),
    "conv-3-32-3x3s2-112": lambda: conv((1, 112, 112, 3), 32, 3, 2),
    "conv-96-96-3x3-28-depthwise": lambda: conv((1, 28, 28, 96), 96, 3, groups=96),
    "conv-bytes-64-64-3x3-28": lambda: conv((1, 28, 28, 64), 64, 3, dtype="uint8"),
}


def plans_of(func: Any) -> list[Plan]:
    """Return the plans of a workload, the one that is chosen first."""
    program, target = read_program(func), host(1)
    found: list[Plan] = []
    for pad in (False, True):
        read = None if program is None else read_contraction(program, pad)
        if read is not None:
            machine = contraction.machine_of(target, 1)
            found += choose(read, machine, (False, True))
    return sorted(found, key=lambda plan: plan.cycles)[:POINTS]


def measure(name: str, turns: int) -> dict[str, Any]:
    """Compare the plans' results and time them in turns."""
    func, target = WORKLOADS[name](), host(1)
    rng = np.random.default_rng(0)
    given = [
        rng.integers(0, 4, tuple(map(int, param.shape))).astype(str(param.dtype))
        for param in func.params
    ]
    runs, predicted = [], []
    expected = None
    for plan in plans_of(func):
        made = contraction.scheduled(plan, target, 1)
        packed = [
            made.packing[place].pack(array) if place in made.packing else array
            for place, array in enumerate(given)
        ]
        main = with_vector_functions(made.func).with_attr("global_symbol", "main")
        arrays = [tvm.runtime.tensor(array) for array in packed]
        run = tvm.compile(main, target=target)["main"]
        run(*arrays)
        result = arrays[-1].numpy()
        if expected is not None and not np.array_equal(result, expected):
            raise RuntimeError(f"{name}: two plans differ")
        expected = result
        runs.append((run, arrays))
        predicted.append(made.predicted_s)

    def sample(place: int, count: int) -> float:
        run, arrays = runs[place]
        begin = time.process_time()
        for _ in range(count):
            run(*arrays)
        return (time.process_time() - begin) / count

    counts = [max(1, min(500, round(SAMPLE_S / sample(place, 2)))) for place in range(len(runs))]
    samples: list[list[float]] = [[] for _ in runs]
    for turn in range(turns):
        for number in range(len(runs)):
            place = (turn + number) % len(runs)
            samples[place].append(sample(place, counts[place]))
    measured = [statistics.median(each) for each in samples]
    return {
        "predicted_s": predicted,
        "measured_s": measured,
        # Where memory decides, predictions are all equal.
        "rank_correlation": spearman(predicted, measured) if len(set(predicted)) > 2 else None,
        "chosen/best": measured[0] / min(measured),
        "samples_s": [[float(f"{t:.4g}") for t in each] for each in samples],
    }


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
        "clock": "time on the processors",
    }
    rows: dict[str, dict[str, Any]] = {}
    for name in WORKLOADS:
        if args.only and not name.startswith(tuple(args.only)):
            continue
        progress(name)
        rows[name] = row = measure(name, args.turns)
        progress()
        ranks = row["rank_correlation"]
        within = "" if ranks is None else f"rank correlation {ranks:.2f}"
        print(
            f"{name:30} {len(row['measured_s'])} plans   chosen / best {row['chosen/best']:.3f}   "
            f"{within}",
            flush=True,
        )
    points = [
        pair
        for row in rows.values()
        for pair in zip(row["predicted_s"], row["measured_s"], strict=True)
    ]
    report["points"] = len(points)
    report["rank_correlation"] = spearman(*zip(*points, strict=True))
    report["chosen_within_5_percent"] = sum(row["chosen/best"] <= NEAR for row in rows.values())
    report["workloads"] = rows
    print(
        f"{report['points']} points: rank correlation {report['rank_correlation']:.3f}; chosen "
        f"within 5 % of the best for {report['chosen_within_5_percent']} of {len(rows)}"
    )
    if not args.only:
        RESULTS.write_text(to_json(report))


if __name__ == "__main__":
    main()
