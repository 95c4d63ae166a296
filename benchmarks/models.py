"""Whole models, before and after the pass: what is fused, what it saves, how long they take.

The models of `models_torch.py` (torch is needed: the extra "bench") are taken through
torch.export, Relax and LLVM by TVM's default pipeline, once as it is and once with
`FuseReductionEpilogue` behind `FuseTIR`. Loops are those that TVM gives an operator: nothing is
scheduled, here or there. One model is taken through ONNX as well, if that is installed.

    python benchmarks/models.py            some minutes; writes results/models.json
    python benchmarks/models.py --quick    the tiny models of the tests; writes nothing
    python benchmarks/models.py --only bert    the models whose names begin with "bert"

Both versions are compared with PyTorch before they are timed: the largest difference is in the
table, as a part of the largest result. They are timed in turns, in one process, on one thread; who
is first changes from turn to turn. `before/after` is the median of the ratios within the turns,
with its quartiles. `pass/FuseTIR` is the time of the pass over that of `FuseTIR`, of the calling
thread, on the same model; the last line has it for a model of 1,000 functions.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
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
from fusion import use_threads
from models_torch import MODELS
from models_tvm import Runner, imported, imported_onnx, legalized, lowered, many_functions
from primitive import Samples, cpu_model, progress, ratio, to_json
from tvm import relax, tirx

import fuse_epilogue
from fuse_epilogue.schedules import host
from fuse_epilogue.transform import FuseReductionEpilogue, Report, report_of

RESULTS = Path(__file__).resolve().parent / "results" / "models.json"

TOLERANCE = 1e-5  # of the largest result, in float32; quantised models must be equal
SAMPLE_S = 0.02  # a sample takes about that long, or one run
TURNS, QUICK_TURNS = 41, 5
MANY = 1000  # functions of the model that the pass is timed on
BEFORE, AFTER = "before", "after"


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


def processor_time(run: Callable[[], Any], repetitions: int = 5) -> float:
    """Seconds of the calling thread, the best of some runs."""
    times = []
    for _ in range(repetitions):
        begin = time.thread_time()
        run()
        times.append(time.thread_time() - begin)
    return min(times)


def pass_times(grouped: tvm.IRModule) -> dict[str, Any]:
    """The time of the pass beside that of `FuseTIR` on the same model."""
    fused = relax.transform.FuseTIR()(grouped)
    functions = sum(isinstance(f, tirx.PrimFunc) for f in fused.functions.values())
    theirs = processor_time(lambda: relax.transform.FuseTIR()(grouped))
    ours = processor_time(lambda: FuseReductionEpilogue()(fused))
    return {"functions": functions, "pass_s": ours, "fuse_tir_s": theirs, "ratio": ours / theirs}


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


def measure(
    name: str, mod: tvm.IRModule, x: np.ndarray, expected: np.ndarray, turns: int
) -> dict[str, Any]:
    """One model: fused, compared, timed."""
    target = host(1)
    before = lowered(mod)
    after = FuseReductionEpilogue()(before)
    runners = {BEFORE: Runner(before, target), AFTER: Runner(after, target)}
    scale = float(np.abs(expected.astype("float64")).max())
    errors = {}
    for version, runner in runners.items():
        difference = runner.result(x).astype("float64") - expected
        errors[version] = float(np.abs(difference).max()) / scale
        allowed = 0.0 if expected.dtype.kind == "i" else TOLERANCE
        if not errors[version] <= allowed:
            raise AssertionError(f"{name} {version}: {errors[version]} off the results of PyTorch")
    (argument,) = runners[BEFORE].arguments([x])
    runs = {version: (lambda run=run: run(argument)) for version, run in runners.items()}
    samples = time_in_turns(runs, turns)
    return {
        "report": summary(report_of(after)),
        "error": errors,
        "median_s": {version: statistics.median(times) for version, times in samples.items()},
        "before/after": ratio(samples, BEFORE, AFTER),
        "pass": pass_times(legalized(mod)),
        "samples_s": {v: [float(f"{t:.4g}") for t in times] for v, times in samples.items()},
    }


def measure_onnx(small: bool, turns: int) -> dict[str, Any]:
    """The blocks of ResNet-18 through ONNX; a reason where it is not installed."""
    try:
        from models_onnx import resnet
    except ImportError as error:
        return {"absent": f"{error}: pip install 'fuse_epilogue[bench]'"}
    module, x = MODELS["resnet18"].build(small=small)
    with torch.no_grad():
        expected = module(x).numpy()
    model = resnet(module, tuple(x.shape), expected.shape)
    return measure("resnet18 (ONNX)", imported_onnx(model), x.numpy(), expected, turns)


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
        f"error {result['error'][AFTER]:.1e}   pass/FuseTIR {result['pass']['ratio']:.2f}"
    )
    for line in report["not_fused"]:
        print(f"{'':16} not fused: {line}")
    for line in report["fused_in_part"]:
        print(f"{'':16} in part: {line}")


def conditions(threads: int) -> dict[str, Any]:
    """What has to be known about a run to judge its figures."""
    return {
        "benchmark": "models",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {
            "cpu": cpu_model(),
            "cores": os.cpu_count(),
            "load_before": round(os.getloadavg()[0], 2),
        },
        "target": str(host(1)),
        "threads": threads,
        "versions": {
            "fuse_epilogue": fuse_epilogue.__version__,
            "tvm": tvm.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }


def main() -> None:
    """Measure the models that were asked for."""
    parser = argparse.ArgumentParser(description="whole models, before and after the pass")
    parser.add_argument("--quick", action="store_true", help="tiny models, briefly; writes nothing")
    parser.add_argument("--only", default="", help="models whose names begin with this; no file")
    args = parser.parse_args()
    report: dict[str, Any] = conditions(use_threads(1))
    turns = QUICK_TURNS if args.quick else TURNS
    models: dict[str, Any] = {}
    for name, model in MODELS.items():
        if not name.startswith(args.only):
            continue
        progress(name)
        module, x = model.build(small=args.quick)
        with torch.no_grad():
            expected = module(x).numpy()
        models[name] = measure(name, imported(module, x), x.numpy(), expected, turns)
        progress()
        show(name, models[name])
    if "onnx".startswith(args.only):
        models["resnet18_onnx"] = measure_onnx(args.quick, turns)
        show("resnet18_onnx", models["resnet18_onnx"])
    report["models"] = models
    if not args.only:
        report["many"] = pass_times(many_functions(100 if args.quick else MANY))
        many = report["many"]
        print(
            f"{many['functions']} functions: the pass {many['pass_s']:.3f} s, FuseTIR "
            f"{many['fuse_tir_s']:.3f} s, {many['ratio']:.2f}"
        )
    if not args.only and not args.quick:
        RESULTS.write_text(to_json(report))


if __name__ == "__main__":
    main()
