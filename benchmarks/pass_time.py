"""Time of the pass beside that of TVM's own `FuseTIR`, on models of 10 to 1,000 functions.

The models are those of `models_tvm.many_functions`: convolutions, products, biases, activations and
softmax, each of another size. `FuseTIR` makes one function of each group of operators, and
`FuseReductionEpilogue()` fuses what is in it: the pass stands behind `FuseTIR` in a pipeline, and
both work on the same functions. They are timed in turns; who is first changes from turn to turn.

    python benchmarks/pass_time.py            about two minutes; writes results/pass_time.json
    python benchmarks/pass_time.py --quick    up to 100 functions, briefly; writes nothing

Times are of the calling thread on its processor: neither pass uses another one. What to read:
`pass/FuseTIR` is the median of the ratios within the turns, with its quartiles. "again" is a
second run of the pass, on what the first returned: it finds nothing to do.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fusion import conditions, use_threads
from models_tvm import many_functions
from primitive import Samples, progress, ratio, to_json
from provenance import provenance
from tvm import relax, tirx

from fuse_epilogue.schedules import host
from fuse_epilogue.transform import FuseReductionEpilogue, report_of

RESULTS = Path(__file__).resolve().parent / "results" / "pass_time.json"

# Functions of the model, and turns.
TURNS = {10: 201, 100: 61, 1000: 21}
QUICK_TURNS = {10: 21, 100: 5}
PASS, FUSE_TIR, AGAIN = "pass", "FuseTIR", "again"


def time_in_turns(runs: dict[str, Callable[[], Any]], turns: int) -> Samples:
    """Seconds of the thread, a sample for each turn; what runs left behind is collected before."""
    samples: Samples = {name: [] for name in runs}
    for run in runs.values():
        run()
    for turn in range(turns):
        for name in list(runs)[:: 1 if turn % 2 else -1]:
            gc.collect()
            begin = time.thread_time()
            runs[name]()
            samples[name].append(time.thread_time() - begin)
    return samples


def measure(size: int, turns: int) -> dict[str, Any]:
    """Both passes on a model of `size` functions."""
    grouped = many_functions(size)
    functions = relax.transform.FuseTIR()(grouped)
    fused = FuseReductionEpilogue()(functions)
    runs = {
        PASS: lambda: FuseReductionEpilogue()(functions),
        FUSE_TIR: lambda: relax.transform.FuseTIR()(grouped),
        AGAIN: lambda: FuseReductionEpilogue()(fused),
    }
    samples = time_in_turns(runs, turns)
    report = report_of(fused)
    return {
        "functions": sum(isinstance(f, tirx.PrimFunc) for f in functions.functions.values()),
        "reductions": report.found,
        "fused": report.fused,
        "median_s": {name: statistics.median(times) for name, times in samples.items()},
        "pass/FuseTIR": ratio(samples, PASS, FUSE_TIR),
        "samples_s": {name: [round(t, 6) for t in times] for name, times in samples.items()},
    }


def show(result: dict[str, Any]) -> None:
    """One line for a model."""
    times, spread = result["median_s"], result["pass/FuseTIR"]
    print(
        f"{result['functions']:5} functions, {result['fused']:4} of {result['reductions']:4} "
        f"reductions fused:   pass {times[PASS] * 1e3:8.2f} ms   FuseTIR "
        f"{times[FUSE_TIR] * 1e3:8.2f} ms   pass/FuseTIR {spread['median']:.2f} "
        f"({spread['lower_quartile']:.2f} to {spread['upper_quartile']:.2f})   "
        f"again {times[AGAIN] * 1e3:7.2f} ms"
    )


def main() -> None:
    """Measure, print a line for each size, write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small models, briefly; no file")
    args = parser.parse_args()
    report: dict[str, Any] = conditions(host(1), use_threads(1)) | {
        "benchmark": "pass_time",
        **provenance("pass_time"),
        "clock": "of the calling thread on its processor",
    }
    report["sizes"] = {}
    for size, turns in (QUICK_TURNS if args.quick else TURNS).items():
        progress(f"{size} functions")
        report["sizes"][size] = measure(size, turns)
        progress()
        show(report["sizes"][size])
    if not args.quick:
        RESULTS.write_text(to_json(report))


if __name__ == "__main__":
    main()
