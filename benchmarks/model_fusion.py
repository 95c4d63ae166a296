"""Whole models, before and after the pass: what is fused, what it saves, how long they take.

The models of `models_torch.py` (torch is needed: the extra "bench") are taken through
torch.export, Relax and LLVM by TVM's default pipeline, once as it is and once with
`FuseReductionEpilogue` behind `FuseTIR`. Loops are those that TVM gives an operator: nothing is
scheduled, here or there. One model is taken through ONNX as well, if that is installed.

    python benchmarks/model_fusion.py            some minutes; writes results/model_fusion.json
    python benchmarks/model_fusion.py --quick    the tiny models of the tests; writes nothing
    python benchmarks/model_fusion.py --only bert    the models whose names begin with "bert"

Both versions are compared with PyTorch before they are timed: the largest difference is in the
table, as a part of the largest result. They are timed in turns, in one process, on one thread; who
is first changes from turn to turn. All of that is done several times, each time compiled and loaded
anew: where memory comes to lie changes times as well. `before/after` is the median of the ratios
within all turns, with its quartiles; `chance` is the same of two copies of the unfused model, which
differ in nothing. What the pass itself takes is in `pass_time.py`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Before numpy and torch are loaded: their threads would go on spinning in the samples.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import tvm
from fusion import conditions, use_threads
from models_torch import MODELS
from models_tvm import Runner, imported, imported_onnx, lowered
from primitive import Samples, progress, ratio, to_json
from provenance import provenance

from fuse_epilogue.schedules import host
from fuse_epilogue.transform import FuseReductionEpilogue, Report, report_of

RESULTS = Path(__file__).resolve().parent / "results" / "model_fusion.json"

TOLERANCE = 1e-5  # of the largest result, in float32; quantised models must be equal
SAMPLE_S = 0.02  # a sample takes about that long, or one run
TURNS, QUICK_TURNS = 21, 5
REPEATS, QUICK_REPEATS = 5, 1  # of all turns, compiled anew
BEFORE, AFTER, COPY = "before", "after", "copy of before"


def time_in_turns(runs: dict[str, Callable[[], Any]], turns: int) -> Samples:
    """Seconds of one run, a sample for each turn; who is first changes."""
    counts = {}
    for name, run in runs.items():
        run()
        begin = time.perf_counter()
        run()
        counts[name] = max(1, int(SAMPLE_S / (time.perf_counter() - begin)))
    count = min(counts.values())
    samples: Samples = {name: [] for name in runs}
    for turn in range(turns):
        for name in list(runs)[:: 1 if turn % 2 else -1]:
            runs[name]()
            begin = time.perf_counter()
            for _ in range(count):
                runs[name]()
            samples[name].append((time.perf_counter() - begin) / count)
    return samples


def summary(report: Report) -> dict[str, Any]:
    """What was fused, and what was not, each with its code."""
    reductions = [(f.name, each) for f in report.functions for each in f.reductions]
    return {
        "found": report.found,
        "fused": report.fused,
        "refused": report.refused,
        "bytes_saved": report.bytes_saved,
        "not_fused": [f"{name}/{r.reduction}: {r.code}" for name, r in reductions if not r.fused],
        "fused_in_part": [
            f"{name}/{r.reduction}: {r.code}" for name, r in reductions if r.fused and r.code
        ],
    }


def compared(name: str, runner: Runner, x: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference from PyTorch's results, as a part of the largest of them."""
    difference = runner.result(x).astype("float64") - expected
    error = float(np.abs(difference).max() / np.abs(expected.astype("float64")).max())
    if not error <= (0.0 if expected.dtype.kind == "i" else TOLERANCE):
        raise AssertionError(f"{name}: {error} off the results of PyTorch")
    return error


def measure(
    name: str, mod: tvm.IRModule, x: np.ndarray, expected: np.ndarray, quick: bool
) -> dict[str, Any]:
    """One model: fused, compared, timed."""
    target = host(1)
    before = lowered(mod)
    after = FuseReductionEpilogue()(before)
    samples: Samples = {BEFORE: [], AFTER: [], COPY: []}
    for _ in range(QUICK_REPEATS if quick else REPEATS):
        versions = {BEFORE: before, AFTER: after, COPY: before}
        runners = {version: Runner(each, target) for version, each in versions.items()}
        errors = {v: compared(f"{name} {v}", run, x, expected) for v, run in runners.items()}
        (argument,) = runners[BEFORE].arguments([x])
        runs = {version: (lambda run=run, x=argument: run(x)) for version, run in runners.items()}
        for version, times in time_in_turns(runs, QUICK_TURNS if quick else TURNS).items():
            samples[version] += times
    del errors[COPY]
    return {
        "report": summary(report_of(after)),
        "error": errors,
        "median_s": {version: statistics.median(times) for version, times in samples.items()},
        "before/after": ratio(samples, BEFORE, AFTER),
        "chance": ratio(samples, BEFORE, COPY),
        "samples_s": {v: [float(f"{t:.4g}") for t in times] for v, times in samples.items()},
    }


def measure_onnx(quick: bool) -> dict[str, Any]:
    """The blocks of ResNet-18 through ONNX; a reason where it is not installed."""
    try:
        from models_onnx import resnet
    except ImportError as error:
        return {"absent": f"{error}: pip install --group bench"}
    module, x = MODELS["resnet18"].build(small=quick)
    with torch.no_grad():
        expected = module(x).numpy()
    model = resnet(module, tuple(x.shape), expected.shape)
    return measure("resnet18 (ONNX)", imported_onnx(model), x.numpy(), expected, quick)


def show(name: str, result: dict[str, Any]) -> None:
    """One line for a model, and one for each reduction that is not fused."""
    if "absent" in result:
        print(f"{name:16} {result['absent']}")
        return
    report, ratios, times = result["report"], result["before/after"], result["median_s"]
    print(
        f"{name:16} {report['fused']:2} of {report['found']:2} "
        f"{report['bytes_saved']:>10,} bytes   "
        f"{times[BEFORE] * 1e3:8.3f} ms {times[AFTER] * 1e3:8.3f} ms   "
        f"before/after {ratios['median']:.3f} "
        f"({ratios['lower_quartile']:.3f} to {ratios['upper_quartile']:.3f})   "
        f"chance {result['chance']['median']:.3f}   error {result['error'][AFTER]:.1e}"
    )
    for line in report["not_fused"]:
        print(f"{'':16} not fused: {line}")
    for line in report["fused_in_part"]:
        print(f"{'':16} in part: {line}")


def main() -> None:
    """Measure the models that were asked for."""
    parser = argparse.ArgumentParser(description="whole models, before and after the pass")
    parser.add_argument("--quick", action="store_true", help="tiny models, briefly; writes nothing")
    parser.add_argument("--only", default="", help="models whose names begin with this; no file")
    args = parser.parse_args()
    report: dict[str, Any] = conditions(host(1), use_threads(1))
    report |= {"benchmark": "model_fusion", **provenance("model_fusion")}
    report["versions"]["torch"] = torch.__version__
    report["turns"], report["repeats"] = TURNS, REPEATS
    models: dict[str, Any] = {}
    for name, model in MODELS.items():
        if not name.startswith(args.only):
            continue
        progress(name)
        module, x = model.build(small=args.quick)
        with torch.no_grad():
            expected = module(x).numpy()
        models[name] = measure(name, imported(module, x), x.numpy(), expected, args.quick)
        progress()
        show(name, models[name])
    if "onnx".startswith(args.only):
        models["resnet18_onnx"] = measure_onnx(args.quick)
        show("resnet18_onnx", models["resnet18_onnx"])
    report["models"] = models
    if any("absent" in model for model in models.values()):
        print("Nothing was written: a model is absent that the results may have.")
    elif not args.only and not args.quick:
        RESULTS.write_text(to_json(report))


if __name__ == "__main__":
    main()
