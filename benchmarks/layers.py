"""Layers one by one on one thread, for `conv_layers.py` and `quantised.py`: only kernels are timed.

Ours are the functions of a compiled layer, ONNX Runtime's its nodes, by its own profiler, which
counts whole microseconds. A sample is the median of as many runs as take 5 ms; parties take turns.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from fusion import conditions
from models import versions
from primitive import in_turns, progress, ratio, to_json
from provenance import provenance

from fuse_epilogue.schedules import host

RESULTS = Path(__file__).resolve().parent / "results"
OURS, ONNX = "ours", "ONNX Runtime"
SAMPLE_S = 0.005

#: Runs a layer a number of times and returns the seconds of each run.
Timer = Callable[[int], list[float]]
#: By party: the result of a layer, and what times it.
Parties = Mapping[str, tuple[np.ndarray, Timer]]
#: The result of a measurement.
Row = dict[str, Any]


def our_timer(compiled: Any, x: Any) -> Timer:
    """Time the functions of a compiled layer that are no conversions of its layout."""

    def once() -> float:
        rows = compiled.profile(x, repeats=1).functions
        return sum(row.measured_s for row in rows if not row.name.startswith("transpose"))

    return lambda count: [once() for _ in range(count)]


def of_onnx_runtime(
    model: bytes, x: np.ndarray, kernels: Callable[[str], bool]
) -> tuple[np.ndarray, Timer]:
    """Return the result of a model of one input, and what times its nodes of some operators."""
    import onnxruntime

    def session(profile: str | None) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        if profile is not None:
            options.enable_profiling, options.profile_file_prefix = True, profile
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    plain = session(None)
    feed = {plain.get_inputs()[0].name: x}

    def timed(count: int) -> list[float]:
        with tempfile.TemporaryDirectory() as folder:
            profiled = session(str(Path(folder) / "profile"))
            for _ in range(count + 1):
                profiled.run(None, feed)
            events = json.loads(Path(profiled.end_profiling()).read_text())
        seconds = [
            event["dur"] * 1e-6
            for event in events
            if event.get("cat") == "Node"
            and event["name"].endswith("_kernel_time")
            and kernels(event["args"].get("op_name", ""))
        ]
        size = len(seconds) // (count + 1)
        return [sum(seconds[at : at + size]) for at in range(size, len(seconds), size)]

    return plain.run(None, feed)[0], timed


def compare(
    name: str,
    parties: Parties,
    expected: np.ndarray,
    tolerance: float,
    turns: int,
    peers: Sequence[str],
) -> tuple[Row, dict[str, list[float]]]:
    """Compare the parties' results with the expected one, and time the parties in turns.

    The tolerance is a part of the largest result. Returned with the samples.
    """
    expected = expected.astype("float64")
    differences = {
        party: float(np.abs(result.astype("float64") - expected).max() / np.abs(expected).max())
        for party, (result, _) in parties.items()
    }
    for party, difference in differences.items():
        if not difference <= tolerance:
            raise RuntimeError(f"{name}: {party} is {difference:.1e} off")
    timed = {
        party: partial(timer, max(1, min(200, round(SAMPLE_S / max(min(timer(3)), 1e-6)))))
        for party, (_, timer) in parties.items()
    }
    samples = in_turns(timed, turns)
    medians = {party: statistics.median(each) for party, each in samples.items()}
    best = min(peers, key=medians.__getitem__)
    row = {
        "parties": {party: {"difference": each} for party, each in differences.items()},
        "median_s": medians,
        "best": best,
        "ours/best": ratio(samples, OURS, best),
        "samples_s": {p: [float(f"{t:.4g}") for t in times] for p, times in samples.items()},
    }
    return row, samples


def run(
    benchmark: str,
    about: str | None,
    layers: Callable[[], Mapping[str, Any]],
    measure: Callable[[Any, int], Row],
    families: Callable[[Any], Mapping[str, str]],
) -> None:
    """Measure the layers that the command line asks for; write a file if it asks for all.

    Parameters
    ----------
    benchmark : str
        Name of the file of results, without ".json".
    about : str or None
        The text of the program.
    layers : callable
        Returns the layers by name.
    measure : callable
        Takes a layer and the number of turns.
    families : callable
        Takes a layer; returns for each ratio of its row of which layers a mean is taken.
    """
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="layers whose names begin so; no file"
    )
    parser.add_argument("--turns", type=int, default=15)
    args = parser.parse_args()
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    report: dict[str, Any] = conditions(host(1), 1) | {
        "benchmark": benchmark,
        **provenance(benchmark),
        "threads": [1],
        "turns": args.turns,
    }
    report["versions"] |= versions()
    rows: dict[str, dict[str, Any]] = {}
    ratios: dict[str, dict[str, list[float]]] = {}
    for name, layer in layers().items():
        if args.only and not name.startswith(tuple(args.only)):
            continue
        progress(name)
        row = measure(layer, args.turns)
        progress()
        rows[name] = {"1": row}
        times = "  ".join(f"{p} {each * 1e6:8.1f} us" for p, each in row["median_s"].items())
        shown = []
        for key, family in families(layer).items():
            median = row[key]["median"]
            ratios.setdefault(key, {}).setdefault(family, []).append(median)
            shown.append(f"{key} {median:.3f}")
        print(f"{name:48} {times}   {', '.join(shown)}: {row['best']}", flush=True)
    for key, by_family in ratios.items():
        means = report[f"geometric_mean_of_{key}"] = {
            family: {"1": math.exp(statistics.mean(map(math.log, each)))}
            for family, each in by_family.items()
        }
        for family, mean in means.items():
            print(f"geometric mean of {key}, {family}: {mean['1']:.3f}")
    report["models"] = rows
    if not args.only:
        (RESULTS / f"{benchmark}.json").write_text(to_json(report))
