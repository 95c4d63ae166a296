"""Whole models: ours against torch eager, torch.compile and ONNX Runtime.

The blocks of `models_torch.py`, in float32 (one in int8), and the architectures of
`models_transformers.py` are run by four parties (`model_parties.py`), each in a process of its own:
two pools of threads that wait in one process slow each other down. Ours is
`fuse_epilogue.compile(module, example_inputs=(x,))`, called with torch's tensors. Networks with
convolutions have a fifth party: ours with `winograd=True`.

    python benchmarks/models.py            half an hour; writes results/models.json
    python benchmarks/models.py --quick    fewer turns, one thread; writes nothing
    python benchmarks/models.py --only bert --threads 1    a part; writes nothing

Results are compared with torch eager before anything is timed: the largest difference, as a part of
the largest result, is in the table and must be at most 1e-5; whole numbers must be equal. Then the
parties are timed in turns; who is first changes from turn to turn. A sample is the mean of as many
runs as take 20 ms, after one that is not timed. Finished models are kept in
build/models_benchmark.jsonl: the same command at the same commit resumes where it was stopped.

What to read: `ours/best` is the median of the ratios within the turns, ours over the party that is
fastest by its median, with its quartiles; below 1 ours is faster. `winograd/best` is the same of
the fifth party. `--clock cpu` takes the time on
the processors instead of the time that passed: on a machine that others use, at one thread.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from fusion import Others, conditions
from model_parties import EAGER, OURS, PARTIES, WINOGRAD, environment
from models_torch import MODELS
from models_transformers import ARCHITECTURES
from primitive import Samples, progress, ratio, to_json
from provenance import provenance

from fuse_epilogue.schedules import host

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "models.json"
JOURNAL = HERE.parent / "build" / "models_benchmark.jsonl"

#: Models that Winograd's algorithms are measured on.
CONVOLUTIONAL = ("resnet18", "resnet50", "ResNet-18", "ResNet-50", "MobileNetV2")
TOLERANCE = 1e-5  # of the largest result, in float32; whole numbers must be equal
TURNS, QUICK_TURNS = 31, 7
# Before a sample: threads that wait for work spin first, those of TVM for about 0.1 s, and what is
# timed meanwhile shares its cores with them. One thread waits for nobody.
REST_S, REST_OF_ONE_S = 0.25, 0.005


class Party:
    """A process that runs the models of one party, by a script that serves requests."""

    def __init__(self, name: str, threads: int, script: str = "model_parties.py") -> None:
        command = [sys.executable, str(HERE / script), name, str(threads)]
        quiet = None if os.environ.get("MODELS_VERBOSE") else subprocess.DEVNULL
        self.process = subprocess.Popen(
            command,
            env=environment(threads),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=quiet,
            text=True,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and wait for the answer."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            return {"error": f"its process ended with {self.process.wait()}"}
        found: dict[str, Any] = json.loads(answer)
        return found

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def error_of(result: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, as a part of the largest result."""
    difference = np.abs(result.astype("float64") - expected.astype("float64"))
    return float(difference.max() / np.abs(expected.astype("float64")).max())


def loaded(name: str, parties: dict[str, Party], small: bool) -> dict[str, dict[str, Any]]:
    """Load a model in every process; return by party what is known about it, or its error."""
    facts: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        results: dict[str, np.ndarray] = {}
        for party, process in parties.items():
            progress(f"{name}: {party}")
            file = str(Path(folder) / f"{party}.npy")
            facts[party] = process.ask(do="load", model=name, small=small, result=file)
            if "error" in facts[party]:
                continue
            results[party] = np.load(file)
            facts[party]["difference"] = error_of(results[party], results[EAGER])
            exact = results[EAGER].dtype.kind in "iu"
            if not facts[party]["difference"] <= (0.0 if exact else TOLERANCE):
                facts[party]["error"] = f"{facts[party]['difference']:.1e} off torch's results"
    return facts


def time_in_turns(parties: dict[str, Party], threads: int, turns: int, clock: str) -> Samples:
    """Seconds of one run, a sample for each turn; who is first changes."""
    rest_s = REST_S if threads > 1 else REST_OF_ONE_S
    samples: Samples = {name: [] for name in parties}
    order = list(parties.items())
    for turn in range(turns):
        first = turn % len(order)
        for name, party in order[first:] + order[:first]:
            time.sleep(rest_s)
            answer = party.ask(do="time")
            if "error" in answer:
                raise RuntimeError(f"{name}: {answer['error']}")
            samples[name].append(answer[f"{clock}_s"])
    return samples


def measure(
    name: str, threads: int, parties: dict[str, Party], turns: int, clock: str, small: bool
) -> dict[str, Any]:
    """One model at one number of threads: compared, timed."""
    if name not in CONVOLUTIONAL:
        parties = {party: parties[party] for party in PARTIES}
    facts = loaded(name, parties, small)
    able = {party: parties[party] for party in facts if "error" not in facts[party]}
    result: dict[str, Any] = {"parties": facts}
    if OURS not in able or len(able) < 2:
        return result
    others = Others()
    samples = time_in_turns(able, threads, turns, clock)
    medians = {party: statistics.median(times) for party, times in samples.items()}
    peers = [party for party in able if party not in (OURS, WINOGRAD)]
    best = min(peers, key=medians.__getitem__)
    if WINOGRAD in able:
        result["winograd/best"] = ratio(samples, WINOGRAD, best)
    return result | {
        "median_s": medians,
        "best": best,
        "ours/best": ratio(samples, OURS, best),
        "ours/": {party: ratio(samples, OURS, party) for party in peers},
        "others_share_of_processors": others.share(),
        "samples_s": {p: [float(f"{t:.4g}") for t in times] for p, times in samples.items()},
    }


def show(name: str, threads: int, result: dict[str, Any]) -> None:
    """One line for a model, and one for each party that cannot run it."""
    progress()
    if "median_s" in result:
        times = "  ".join(
            f"{result['median_s'][p] * 1e3:9.3f}" if p in result["median_s"] else f"{'-':>9}"
            for p in PARTIES
        )
        ratios = result["ours/best"]
        print(
            f"{name:14} {threads}  {times}   {ratios['median']:6.3f} "
            f"({ratios['lower_quartile']:.3f} to {ratios['upper_quartile']:.3f}) of "
            f"{result['best']}, difference {result['parties'][OURS]['difference']:.1e}",
            flush=True,
        )
        if "winograd/best" in result:
            ratios = result["winograd/best"]
            print(
                f"{'':14} {threads}  {WINOGRAD}: {result['median_s'][WINOGRAD] * 1e3:.3f}, "
                f"{ratios['median']:.3f} ({ratios['lower_quartile']:.3f} to "
                f"{ratios['upper_quartile']:.3f}) of {result['best']}, difference "
                f"{result['parties'][WINOGRAD]['difference']:.1e}",
                flush=True,
            )
    for party, facts in result["parties"].items():
        if "error" in facts:
            print(f"{name:14} {threads}  {party}: {facts['error']}", flush=True)


def show_functions(result: dict[str, Any]) -> None:
    """The functions of ours by their measured time."""
    from fuse_epilogue.models import ModelReport

    facts = result["parties"][OURS]
    if "report" in facts:
        print(ModelReport.from_json(json.dumps(facts["report"])))


class Journal:
    """What was measured so far with the same settings: a line of JSON for each model."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.results: dict[tuple[str, int], dict[str, Any]] = {}
        if JOURNAL.exists() and not settings["commit"].endswith("-dirty"):
            for line in JOURNAL.read_text().splitlines():
                self._read(line)

    def _read(self, line: str) -> None:
        try:
            entry = json.loads(line)
        except ValueError:  # the last line of a run that was killed while it wrote
            return
        if entry["settings"] == self.settings:
            self.results[entry["model"], entry["threads"]] = entry["result"]

    def write(self, model: str, threads: int, result: dict[str, Any]) -> None:
        """Append a finished model."""
        self.results[model, threads] = result
        entry = {"settings": self.settings, "model": model, "threads": threads, "result": result}
        JOURNAL.parent.mkdir(parents=True, exist_ok=True)
        with JOURNAL.open("a") as journal:
            journal.write(json.dumps(entry) + "\n")


def geometric_means(
    models: dict[str, dict[str, Any]], which: str = "ours/best"
) -> dict[str, dict[str, float]]:
    """The geometric mean of ratios, of blocks and of architectures, by number of threads."""
    ratios: dict[str, dict[str, list[float]]] = {}
    for name, by_threads in models.items():
        family = ratios.setdefault("blocks" if name in MODELS else "architectures", {})
        for threads, result in by_threads.items():
            if which in result:
                family.setdefault(threads, []).append(result[which]["median"])
    return {
        family: {t: math.exp(statistics.mean(map(math.log, each))) for t, each in found.items()}
        for family, found in ratios.items()
    }


def versions() -> dict[str, str]:
    """The versions of the other parties."""
    import importlib.metadata

    found = {}
    for name in ("torch", "onnxruntime", "onnx", "onnxscript", "transformers"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few turns, one thread; no file")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="models whose names begin so; no file"
    )
    parser.add_argument("--threads", type=int, action="append", help="(default: 1 and 2)")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--small", action="store_true", help="the tiny models of the tests")
    parser.add_argument("--functions", action="store_true", help="show ours by function")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="(default: results/models.json)"
    )
    return parser.parse_args()


def main() -> None:
    """Measure the models that were asked for."""
    args = arguments()
    counts = args.threads or ([1] if args.quick else [1, 2])
    everything = [*MODELS, *ARCHITECTURES]
    names = [n for n in everything if not args.only or n.startswith(tuple(args.only))]
    report: dict[str, Any] = conditions(host(1), counts[0]) | {
        "benchmark": "models",
        **provenance("models"),
        "threads": counts,
        "turns": QUICK_TURNS if args.quick else TURNS,
        "clock": "time that passed" if args.clock == "wall" else "time on the processors",
    }
    report["versions"] |= versions()
    print(f"{'ms':14} t  " + "  ".join(f"{party[:9]:>9}" for party in PARTIES) + "   ours/best")
    models: dict[str, dict[str, Any]] = {name: {} for name in names}
    settings = ("commit", "turns", "clock", "target")
    journal = Journal({key: report[key] for key in settings} | {"small": args.small})
    for threads in counts:
        left = [name for name in names if (name, threads) not in journal.results]
        parties = {name: Party(name, threads) for name in (*PARTIES, WINOGRAD) if left}
        try:
            for name in names:
                if name in left:
                    result = measure(
                        name, threads, parties, report["turns"], args.clock, args.small
                    )
                    journal.write(name, threads, result)
                result = journal.results[name, threads]
                models[name][str(threads)] = result
                show(name, threads, result)
                if args.functions:
                    show_functions(result)
        finally:
            for party in parties.values():
                party.close()
    for which in ("ours/best", "winograd/best"):
        report[f"geometric_mean_of_{which}"] = geometric_means(models, which)
        for family, means in report[f"geometric_mean_of_{which}"].items():
            for threads, mean in means.items():
                print(f"geometric mean of {which}, {family}, {threads} threads: {mean:.3f}")
    report["models"] = models
    whole = not args.only and not args.quick and not args.small and counts == [1, 2]
    failed = any(
        "error" in f for m in models.values() for r in m.values() for f in r["parties"].values()
    )
    if failed:
        print("Nothing was written: not every party ran every model.")
    elif args.output or whole:
        (args.output or RESULTS).write_text(to_json(report))


if __name__ == "__main__":
    main()
